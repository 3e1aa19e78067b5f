//! What the commands of the relay share: its settings, from a file, the environment and options.
//!
//! The settings are `relay::SETTINGS`, and those of the process that drains: where it is watched, what it says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::Url;
use service::io::http::Orders;
use service::settings;
use service::settings::Kind::{Any, Choice, Judged, Switch, Time};
use service::settings::{Flag, Said, Setting, Values};

use crate::cmd::flags::{Flags, Tables};
use crate::cmd::log;

settings! {
    /// Settings of `run` alone. The file may have them; other commands pass them over.
    pub(crate) const RUN in None;

    /// Do not wait for confirms: a crash of the broker loses messages whose rows are already marked
    unsafe_no_confirms: Switch, default("false"), flag;
    /// Interval of progress reports; 0s: none
    report_every: Time(Duration::ZERO..=Duration::MAX), otherwise("1s on a terminal, else 10s"), flag;
    /// Write progress reports as JSON lines to standard output
    json: Switch, default("false"), flag;
    /// Serve /metrics (Prometheus), /health and /ready on this address: 127.0.0.1:9187
    metrics: Any("ADDR"), otherwise("not served"), flag;
    /// File with the secret of whoever may pause and resume the relay there, PUT and DELETE /pause with Authorization:
    /// Bearer; none: nobody may
    orders_secret_file: Any("FILE"), otherwise("none"), flag;
    /// Log level: error, warn, info, debug, trace or off; PART=LEVEL for one part, separated by commas
    log: Judged("FILTER", judge_log), default("info"), flag, variable("MILLRACE_LOG");
    /// Log format; json: one object per line
    log_format: Choice(&["text", "json"]), default("text"), flag;
}

/// The secret of whoever may pause the relay.
///
/// # Errors
/// The file cannot be read, or is empty; or nothing is served that could be asked.
pub(super) fn orders_secret(values: &Values) -> Result<Option<String>, String> {
    let Some(file) = values.given("orders_secret_file") else { return Ok(None) };
    let problem = |why: &str| Err(values.problem("orders_secret_file", why));
    if values.text("metrics").is_none() {
        return problem("orders come to the address of metrics, and none is set");
    }
    Orders::secret_in(Path::new(file)).map(Some).or_else(|why| problem(&why))
}

fn judge_log(text: &str) -> Result<(), String> {
    log::filter(text).map(drop)
}

/// What every command of the relay takes.
#[derive(Clone, Debug)]
pub(crate) struct Every;

impl Tables for Every {
    const SHOWN: &'static [&'static [Setting]] = &[relay::SETTINGS];
}

/// What `run` takes.
#[derive(Clone, Debug)]
pub(crate) struct Run;

impl Tables for Run {
    const SHOWN: &'static [&'static [Setting]] = &[relay::SETTINGS, RUN];
}

/// Options of a command beside `run`.
pub(crate) type Options = Flags<Every>;

/// The configuration file's flag.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct File {
    /// Configuration file (TOML): it may hold any other option, with `_` for `-`
    #[arg(long, value_name = "FILE", env = "MILLRACE_RELAY_CONFIG")]
    pub(crate) config: Option<PathBuf>,
}

/// Everything that a running relay needs, and the settings that it is made of.
///
/// # Errors
/// All that is wrong, each in a sentence.
pub(crate) fn config(flags: &[Flag], file: &File) -> Result<(relay::Config, Values), Vec<String>> {
    let mut problems = Vec::new();
    let file = file.config.as_ref().and_then(|path| {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| problems.push(format!("{name}: cannot be read: {error}")));
        Some((name, text.ok()?))
    });
    let variables: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)))
        .collect();
    let file = file.as_ref().map(|(name, text)| (&**name, &**text));
    let read = read(Said { file, variables: &variables, flags });
    match read {
        Ok(read) if problems.is_empty() => Ok(read),
        Ok(_) => Err(problems),
        Err(more) => Err([problems, more].concat()),
    }
}

fn read(said: Said) -> Result<(relay::Config, Values), Vec<String>> {
    let (values, mut problems) = settings::load(Run::SHOWN, said);
    let mut given = |key, file_key| {
        let file = values.given(file_key).map(PathBuf::from);
        let url = secret(values.given(key), file.as_deref());
        url.unwrap_or_else(|problem| {
            problems.push(problem);
            None
        })
    };
    let (database, url) = (given("database", "database_file"), given("url", "url_file"));
    if database.is_none() && values.given("database_file").is_none() {
        problems.push(
            "no database is given: use --database postgres://user@host/name, or DATABASE_URL"
                .into(),
        );
    }
    // A bad URL is told without its text, which may hold a password.
    let said = if values.given("url").is_none() && url.is_some() { "url_file" } else { "url" };
    let url = url.unwrap_or_else(|| values.words("url")).parse::<Url>();
    let broker = url.map_err(|error| problems.push(values.problem(said, &error.to_string())));
    let broker = broker.unwrap_or_else(|()| {
        Values::defaults(Run::SHOWN).words("url").parse().expect("the default is a URL")
    });
    let config = relay::Config::read(&values, database.unwrap_or_default(), broker);
    let config = config.map_err(|more| problems.extend(more));
    match config {
        Ok(config) if problems.is_empty() => {
            let no_confirms = values.is_on("unsafe_no_confirms");
            Ok((relay::Config { no_confirms, ..config }, values))
        }
        Ok(_) | Err(()) => Err(problems),
    }
}

/// A URL, or what stands in the file that is named instead.
///
/// # Errors
/// The file cannot be read.
pub(super) fn secret(url: Option<&str>, file: Option<&Path>) -> Result<Option<String>, String> {
    let (None, Some(path)) = (url, file) else { return Ok(url.map(str::to_owned)) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
    Ok(Some(text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the command line, variables and a file say it.
    fn read(
        file: &str,
        variables: &[(&str, &str)],
        flags: &[(&str, &str)],
    ) -> Result<relay::Config, Vec<String>> {
        let variables: BTreeMap<String, String> =
            variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let flag = |(key, text): &(&str, &str)| {
            Flag::named(settings::setting(relay::SETTINGS, key), (*text).to_owned())
        };
        let flags: Vec<Flag> = flags.iter().map(flag).collect();
        let said = Said { file: Some(("r.toml", file)), variables: &variables, flags: &flags };
        super::read(said).map(|(config, _)| config)
    }

    #[test]
    fn all_problems_are_told_together() {
        let flags = [("source", "kafka"), ("order", "sorted"), ("workers", "0"), ("exchange", "{")];
        let all = read("", &[("AMQP_URL", "amqq://app:hunter2@broker")], &flags)
            .expect_err("nothing is right");
        let all = all.join("\n");
        for word in
            ["--source", "--order", "workers is \"0\"", "--exchange", "no database", "AMQP_URL"]
        {
            assert!(all.contains(word), "{word} is not in {all}");
        }
        assert!(!all.contains("hunter2"), "{all}");
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test writes the file that is read")]
    fn a_url_may_stand_in_a_file_of_its_own() {
        let path = std::env::temp_dir().join(format!("relay-options-{}", std::process::id()));
        std::fs::write(&path, "postgres://app:secret@db/shop\n").expect("it can be written");
        let name = path.display().to_string();
        let named = [("DATABASE_URL_FILE", &*name)];
        let database = |flags: &[(&str, &str)]| read("", &named, flags).map(|it| it.database);
        assert_eq!(database(&[]).as_deref(), Ok("postgres://app:secret@db/shop"));
        let other = "postgres://db/other";
        assert_eq!(database(&[("database", other)]).as_deref(), Ok(other), "what is said itself");
        std::fs::remove_file(&path).expect("it is there");
        assert!(
            database(&[]).is_err_and(|why| why.len() == 1 && why[0].contains("cannot be read"))
        );
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_that_over_the_file() {
        let file =
            "workers = 2\nbatch = 10\ndatabase = \"postgres://file/d\"\nlog_format = \"json\"\n";
        let config = read(file, &[("DATABASE_URL", "postgres://env/d")], &[("workers", "3")]);
        let config = config.expect("it is right");
        assert_eq!((config.workers, config.batch), (3, 10));
        assert_eq!(config.database, "postgres://env/d");
    }

    #[test]
    fn a_wrong_key_is_told_with_its_place() {
        let problems = read("\nworker = 2\n", &[("DATABASE_URL", "postgres://h/d")], &[]);
        let problems = problems.expect_err("no such key");
        assert!(
            problems[0].starts_with("r.toml:2: there is no setting worker. The settings are:"),
            "{problems:?}"
        );
    }
}
