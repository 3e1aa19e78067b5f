//! `millrace relay replay`: brings rows back that are dead, that wait, or that were published already.

use std::process::ExitCode;

use relay::Reason;
use relay::admin::replay::{Among, Choice};
use relay::io::admin::Session;

use super::options::{File, Options};
use super::session::{confirmed, remark, say, with};

const EXAMPLES: &str = "\
Examples:
  millrace relay replay --all-dead                     every dead row
  millrace relay replay --reason unroutable --since 2h those that died for this reason in the last two hours
  millrace relay replay --error-like '%no queue%' --yes
  millrace relay replay --id 42 --id 43                these rows, if they are dead
  millrace relay replay --waiting                      rows that wait for their next attempt: try them now
  millrace relay replay --processed --since '2026-11-21 10:00+00' --until '2026-11-21 11:00+00'
      publishes again what was published in that hour, with the same message-ids: an inbox drops duplicates

The command counts the rows and asks before it replays them; with --yes it does not ask, with --dry-run it only counts.
A TIME is a timestamp as the database reads it (UTC, unless it names a zone), or an age: 90s, 15m, 2h, 7d.";

/// Publish rows again: dead ones, waiting ones now, or published ones
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    file: File,
    /// Replay the row with this id (repeatable)
    #[arg(long, value_name = "ID")]
    id: Vec<String>,
    /// Replay rows that died (or failed, or were published) at this time or later
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Replay rows that died (or failed, or were published) before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Replay rows with this reason: unroutable, refused, unanswered, too_large, broken
    #[arg(long, value_name = "REASON", value_parser = reason)]
    reason: Option<String>,
    /// Replay rows whose error matches this SQL pattern: % is any text, _ any character
    #[arg(long, value_name = "PATTERN")]
    error_like: Option<String>,
    /// Replay every dead row
    #[arg(long, conflicts_with_all = ["id", "since", "until", "reason", "error_like", "waiting", "processed"])]
    all_dead: bool,
    /// Choose among rows that wait for their next attempt, instead of dead rows: they become due now
    #[arg(long, conflicts_with = "processed")]
    waiting: bool,
    /// Choose among published rows, instead of dead rows: consumers get them again
    #[arg(long)]
    processed: bool,
    /// Do it without asking
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    /// Only count the rows
    #[arg(long)]
    dry_run: bool,
}

fn reason(text: &str) -> Result<String, String> {
    let names = Reason::ALL.map(Reason::name);
    match names.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("it must be one of {}", names.join(", "))),
    }
}

/// Counts, asks, brings back.
pub(crate) fn run(args: Args) -> ExitCode {
    with(&args.options, &args.file, async |session, config| {
        let among = match (args.waiting, args.processed) {
            (true, _) => Among::Waiting,
            (false, true) => Among::Processed,
            (false, false) => Among::Dead,
        };
        let choice = Choice {
            ids: (!args.id.is_empty()).then(|| args.id.clone()),
            since: moment(session, args.since.as_deref()).await?,
            until: moment(session, args.until.as_deref()).await?,
            reason: args.reason.clone(),
            error_like: args.error_like.clone(),
        };
        if choice.is_all() && !args.all_dead && among != Among::Waiting {
            return Err("no rows are chosen: use --all-dead, or some of --id, --since, --until, --reason, --error-like".into());
        }
        if among == Among::Processed && (args.reason.is_some() || args.error_like.is_some()) {
            return Err(
                "published rows have no reason and no error: choose them with --id, --since, --until"
                    .into(),
            );
        }
        let words = |error: relay::Error| error.to_string();
        let replay = session.replay(&config, among, choice).await.map_err(words)?;
        let counted = replay.count(session).await.map_err(words)?;
        let what = match among {
            Among::Dead => "dead rows would be published again",
            Among::Waiting => "waiting rows would be tried now",
            Among::Processed => "published rows would be published again",
        };
        let example = match (&counted.example, counted.error.as_deref()) {
            (Some(id), Some(error)) if !error.is_empty() => format!(" (for example {id}: {error})"),
            (Some(id), _) => format!(" (for example {id})"),
            (None, _) => String::new(),
        };
        say(&format!("{} {what}{example}", counted.count));
        if counted.count == 0 || args.dry_run {
            return Ok(ExitCode::SUCCESS);
        }
        if !args.yes && !confirmed("Do it?", "--yes") {
            return Ok(ExitCode::FAILURE);
        }
        let done = replay.run(session, |_| ()).await.map_err(words)?;
        say(&format!("{} rows replayed", done.rows));
        if done.gone > 0 {
            remark(&format!(
                "{} rows were not replayed, because somebody deleted them from the outbox. Their recorded failures \
                 stay; `millrace relay purge --dead` deletes those",
                done.gone
            ));
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// A time as the database says it; how long ago becomes one.
async fn moment(session: &Session, text: Option<&str>) -> Result<Option<String>, String> {
    let Some(text) = text else { return Ok(None) };
    let moment = match service::duration(text) {
        Ok(ago) => session.ago(ago).await,
        Err(_) => session.time(text).await,
    };
    moment.map(Some).map_err(|error| error.to_string())
}
