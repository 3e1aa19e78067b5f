//! `millrace backup`: copies a running cluster, with all messages, into a directory.
//!
//! ```text
//!   begin: the cluster cuts all groups ──> part after part of each group ──> MANIFEST ──> UNFINISHED is removed
//! ```
//!
//! What a backup has is in `docs/operating/backup.md`, its files in [`files`].
#![allow(clippy::disallowed_methods, reason = "a command writes files, and waits")]

pub(crate) mod files;

use std::path::{Path as FilePath, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::api::Ask;
use super::failure::{Failure, remark};
use super::login;
use super::path::Path;
use super::session::{Session, say, say_json, with};
use files::{Draft, GroupFile, Manifest, Writing};

pub(crate) const EXAMPLES: &str = "\
  millrace backup /backups/2026-11-27
  millrace backup --rate 20MB --json /backups/tonight
  millrace backup --verify /backups/tonight       reads all of it, and asks no node
  millrace restore /backups/tonight /var/lib/millrace
The backup has every message that was confirmed before it began and not acknowledged, and users, policies and all
else. It has hashes of passwords: keep it like the data directory. docs/operating/backup.md says more.
Exit code 1: the cluster refuses it, the disk is full, or the backup is damaged or unfinished.";

/// How often something that failed for a moment is tried, and the time between.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);

/// What `millrace backup` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    login: login::Options,
    /// Read at most so many bytes a second: 20MB, 500KiB
    #[arg(long, value_name = "BYTES", value_parser = rate, conflicts_with = "verify")]
    rate: Option<u64>,
    /// Check the backup in DIR: that it is finished, that nothing in it is damaged, and that it can be restored
    #[arg(long)]
    verify: bool,
    /// Directory of the backup: it must be empty, or not be there yet
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run(args: Args) -> ExitCode {
    if !args.verify {
        return with(&args.login.clone(), async |session| back_up(session, &args).await);
    }
    match verify(&args.dir, args.login.json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.end(),
    }
}

fn rate(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let scale = match &text[digits.len()..] {
        "" | "B" => 1,
        "kB" | "KB" => 1000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        _ => 0,
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
    let is_known = |bytes: &u64| *bytes > 0;
    bytes
        .filter(is_known)
        .ok_or_else(|| "a rate is a number of bytes a second, such as 20MB".into())
}

/// What the cluster says of the backup that it has begun.
struct Begun {
    backup: String,
    cluster: String,
    version: u64,
    /// Group, index and term.
    groups: Vec<(u32, u64, u64)>,
}

async fn back_up(session: &mut Session, args: &Args) -> Result<(), Failure> {
    let begun_ms = now_ms();
    let draft = Draft::begin(&args.dir).map_err(Failure::Usage)?;
    let begun = begin(session).await?;
    let copied = copy(session, args, &draft, &begun).await;
    let ended = Ask::delete(Path::of(&["millrace", "backups", &begun.backup]), "the backup");
    // If nobody hears it, the nodes let go of the backup by themselves.
    let _ = session.api.ask(&ended).await;
    let groups = copied?;
    let manifest = Manifest {
        format: files::FORMAT,
        millrace: env!("CARGO_PKG_VERSION").to_owned(),
        backup: begun.backup,
        cluster: begun.cluster,
        version: begun.version,
        begun_ms,
        ended_ms: now_ms(),
        groups,
    };
    draft.finish(&manifest).map_err(Failure::Refused)?;
    let (dir, bytes) = (args.dir.display(), manifest.bytes());
    match session.is_json {
        true => say_json(&json!({
            "action": "backup",
            "directory": dir.to_string(),
            "backup": manifest.backup,
            "cluster": manifest.cluster,
            "groups": manifest.groups.len(),
            "bytes": bytes,
        })),
        false => say(&format!(
            "backup finished: {} groups, {bytes} bytes in {dir}. Check it with millrace backup --verify {dir}",
            manifest.groups.len()
        )),
    }
}

/// All groups are cut. A cluster that is busy is asked again.
async fn begin(session: &mut Session) -> Result<Begun, Failure> {
    let ask = Ask::post(Path::of(&["millrace", "backups"]), json!({}), "a backup");
    let mut tries = 0;
    let answer = loop {
        tries += 1;
        let answer = session.api.ask(&ask).await?;
        if answer.status != StatusCode::SERVICE_UNAVAILABLE || tries >= TRIES {
            break session.api.judged(&ask, answer)?;
        }
        remark(&format!("not yet: {}", answer.reason()));
        tokio::time::sleep(PAUSE).await;
    };
    read_begun(&answer.body)
        .ok_or_else(|| Failure::Away("the node's answer to a backup cannot be read".to_owned()))
}

fn read_begun(body: &Value) -> Option<Begun> {
    let text = |name: &str| body.get(name)?.as_str().map(str::to_owned);
    let group = |group: &Value| {
        let number = |name: &str| group.get(name)?.as_u64();
        Some((u32::try_from(number("group")?).ok()?, number("index")?, number("term")?))
    };
    Some(Begun {
        backup: text("backup")?,
        cluster: text("cluster")?,
        version: body.get("version")?.as_u64()?,
        groups: body.get("groups")?.as_array()?.iter().map(group).collect::<Option<_>>()?,
    })
}

async fn copy(
    session: &mut Session,
    args: &Args,
    draft: &Draft,
    begun: &Begun,
) -> Result<Vec<GroupFile>, Failure> {
    let bar = match session.is_json {
        true => ProgressBar::hidden(),
        false => progress(begun.groups.len()),
    };
    let mut pace = Pace { rate: args.rate, started: Instant::now(), bytes: 0 };
    let mut files = Vec::new();
    for &(group, index, term) in &begun.groups {
        let mut file = draft.group(group).map_err(Failure::Refused)?;
        let place = |offset: u64| {
            Path::of(&[
                "millrace",
                "backups",
                &begun.backup,
                &group.to_string(),
                &offset.to_string(),
            ])
        };
        while let Some(bytes) = part(session, &place(file.bytes())).await? {
            file.write(&bytes).map_err(Failure::Refused)?;
            bar.set_message(format!("group {group}, {} MB in all", pace.bytes >> 20));
            pace.wait(bytes.len() as u64).await;
        }
        files.push(finish(file, group, index, term)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(files)
}

fn finish(file: Writing, group: u32, index: u64, term: u64) -> Result<GroupFile, Failure> {
    let (bytes, sha256) = file.finish().map_err(Failure::Refused)?;
    Ok(GroupFile { group, index, term, bytes, sha256 })
}

/// The next bytes of a group. `None`: there are no more.
async fn part(session: &mut Session, place: &Path) -> Result<Option<Vec<u8>>, Failure> {
    let ask = Ask::get(place.clone(), "a part of the backup");
    let mut tries = 0;
    loop {
        let answer = match session.api.ask(&ask).await {
            // The node gives the same part again.
            Err(Failure::Away(_)) if tries < TRIES => {
                tries += 1;
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            answer => session.api.judged(&ask, answer?)?,
        };
        let said = |name: &str| answer.body.get(name);
        if let Some(data) = said("data").and_then(Value::as_str) {
            let bytes = STANDARD.decode(data);
            return bytes.map(Some).map_err(|_| unreadable());
        }
        if said("end") == Some(&Value::Bool(true)) {
            return Ok(None);
        }
        if said("early") != Some(&Value::Bool(true)) {
            return Err(unreadable());
        }
    }
}

fn unreadable() -> Failure {
    Failure::Away(
        "the node's answer cannot be read: use a millrace of the node's version".to_owned(),
    )
}

/// Not faster than somebody wants.
struct Pace {
    rate: Option<u64>,
    started: Instant,
    bytes: u64,
}

impl Pace {
    async fn wait(&mut self, bytes: u64) {
        self.bytes += bytes;
        let Some(rate) = self.rate else { return };
        let due = Duration::from_secs_f64(self.bytes as f64 / rate as f64);
        let left = due.saturating_sub(self.started.elapsed());
        if !left.is_zero() {
            tokio::time::sleep(left).await;
        }
    }
}

fn progress(groups: usize) -> ProgressBar {
    let bar = ProgressBar::new(groups as u64);
    let style = indicatif::ProgressStyle::with_template("{pos}/{len} groups {elapsed} {msg}");
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

fn verify(dir: &FilePath, is_json: bool) -> Result<(), Failure> {
    let manifest = files::load(dir).map_err(Failure::Refused)?;
    let mut totals = cluster::Totals::default();
    for group in &manifest.groups {
        group.check(dir).map_err(Failure::Refused)?;
        let stream = group.open(dir).map_err(Failure::Refused)?;
        totals += cluster::check_backup_group(stream).map_err(Failure::Refused)?;
    }
    let cluster::Totals { groups, queues, messages } = totals;
    let (dir, bytes) = (dir.display(), manifest.bytes());
    match is_json {
        true => say_json(&json!({
            "action": "verify",
            "directory": dir.to_string(),
            "backup": manifest.backup,
            "cluster": manifest.cluster,
            "version": manifest.version,
            "begun_ms": manifest.begun_ms,
            "groups": groups,
            "queues": queues,
            "messages": messages,
            "bytes": bytes,
        })),
        false => say(&format!(
            "the backup in {dir} is whole: {groups} groups, {queues} queues, {messages} messages, {bytes} bytes"
        )),
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_a_unit_or_none() {
        assert_eq!(rate("20MB"), Ok(20_000_000));
        assert_eq!(rate("512KiB"), Ok(512 << 10));
        assert_eq!(rate("77"), Ok(77));
        for wrong in ["", "0", "MB", "-1", "5 apples", "1.5MB"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
