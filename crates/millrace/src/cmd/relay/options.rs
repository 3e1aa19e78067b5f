//! What the commands of the relay share: its settings, from a file, the environment and options.
//!
//! The settings are `relay::SETTINGS`, and those of the process that drains: where it is watched, what it says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::Url;
use relay::{SOURCES, Sources};
use service::io::http::Orders;
use service::settings;
use service::settings::Kind::{Any, Choice, Judged, Switch, Time};
use service::settings::{Flag, Loaded, Said, Setting, Values, load_with_parts};

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

/// The configuration file's flags.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct File {
    /// Configuration file (TOML): it may hold any other option, with `_` for `-`, and several sources, as [sources.NAME]
    #[arg(long, value_name = "FILE", env = "MILLRACE_RELAY_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Of the sources that the file names, this one alone
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,
}

/// What a relay is to drain.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// One table, without a name.
    One(Box<relay::Config>),
    /// The sources that the file names.
    Several(Sources),
}

/// What a command that works on one table needs.
///
/// # Errors
/// All that is wrong, each in a sentence; or there are several sources.
pub(crate) fn config(flags: &[Flag], file: &File) -> Result<relay::Config, Vec<String>> {
    match wanted(flags, file)?.0 {
        Wanted::One(config) => Ok(*config),
        Wanted::Several(sources) => {
            let names: Vec<&str> = sources.keys().map(String::as_str).collect();
            let mut configs = sources.values();
            match (configs.next(), configs.next()) {
                (Some(config), None) => Ok(config.clone()),
                _ => Err(vec![format!(
                    "the file has several sources, and this command works on one: name it with --only. The sources \
                     are: {}",
                    names.join(", ")
                )]),
            }
        }
    }
}

/// Everything that a running relay needs, and the settings of its process.
///
/// # Errors
/// All that is wrong, each in a sentence.
pub(crate) fn wanted(flags: &[Flag], file: &File) -> Result<(Wanted, Values), Vec<String>> {
    let mut problems = Vec::new();
    let only = file.only.as_deref();
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
    let read = read(Said { file, variables: &variables, flags }, only);
    match read {
        Ok(read) if problems.is_empty() => Ok(read),
        Ok(_) => Err(problems),
        Err(more) => Err([problems, more].concat()),
    }
}

fn read(said: Said, only: Option<&str>) -> Result<(Wanted, Values), Vec<String>> {
    let Loaded { whole, parts, mut problems } = load_with_parts(Run::SHOWN, &SOURCES, said);
    let wanted = match parts {
        None => {
            if let Some(name) = only {
                problems.push(format!("--only {name}: the configuration file names no sources"));
            }
            one(&whole, &whole, &mut problems).map(|config| Wanted::One(Box::new(config)))
        }
        Some(parts) => {
            let sources = several(&parts, &whole, &mut problems);
            pick(sources, only, &mut problems).map(Wanted::Several)
        }
    };
    match wanted {
        Some(wanted) if problems.is_empty() => Ok((wanted, whole)),
        Some(_) | None => Err(problems),
    }
}

/// The sources, without those that something is wrong with.
fn several(
    parts: &BTreeMap<String, Values>,
    whole: &Values,
    problems: &mut Vec<String>,
) -> Sources {
    let mut sources = Sources::new();
    for (name, values) in parts {
        let mut own = Vec::new();
        let config = one(values, whole, &mut own);
        problems.extend(own.into_iter().map(|why| format!("sources.{name}: {why}")));
        if let Some(config) = config {
            sources.insert(name.clone(), config.named(name, values));
        }
    }
    problems.extend(relay::clashes(&sources));
    sources
}

fn pick(mut sources: Sources, only: Option<&str>, problems: &mut Vec<String>) -> Option<Sources> {
    let Some(name) = only else { return Some(sources) };
    let names: Vec<&str> = sources.keys().map(String::as_str).collect();
    if !sources.contains_key(name) {
        problems.push(format!(
            "--only {name}: the file has no such source. The sources are: {}",
            names.join(", ")
        ));
        return None;
    }
    sources.retain(|other, _| other == name);
    Some(sources)
}

/// One relay, or one source of it. `whole` has what all sources share.
fn one(values: &Values, whole: &Values, problems: &mut Vec<String>) -> Option<relay::Config> {
    let before = problems.len();
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
    let config = relay::Config::read(values, database.unwrap_or_default(), broker);
    let config = config.map_err(|more| problems.extend(more)).ok()?;
    let no_confirms = whole.is_on("unsafe_no_confirms");
    (problems.len() == before).then_some(relay::Config { no_confirms, ..config })
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
        super::read(said, None).map(|(wanted, _)| match wanted {
            Wanted::One(config) => *config,
            Wanted::Several(sources) => panic!("there is one: {sources:?}"),
        })
    }

    /// The sources that a file names.
    fn sources(file: &str, only: Option<&str>) -> Result<Sources, Vec<String>> {
        let variables = BTreeMap::from([("DATABASE_URL".into(), "postgres://env/d".into())]);
        let said = Said { file: Some(("r.toml", file)), variables: &variables, flags: &[] };
        super::read(said, only).map(|(wanted, _)| match wanted {
            Wanted::One(config) => panic!("it has sources: {config:?}"),
            Wanted::Several(sources) => sources,
        })
    }

    #[test]
    fn the_top_of_the_file_has_the_defaults_of_its_sources() {
        let file = "workers = 2\n[sources.orders]\ntable = \"o\"\n[sources.invoices]\nworkers = 3\n\
                    database = \"mysql://h/i\"\n[sources.log]\nsource = \"wal\"\ntable = \"l\"\n";
        let all = sources(file, None).expect("it is right");
        let orders = &all["orders"];
        assert_eq!((orders.workers, &*orders.database), (2, "postgres://env/d"));
        assert_eq!(orders.source_name.as_deref(), Some("orders"));
        let invoices = &all["invoices"];
        assert_eq!((invoices.workers, &*invoices.database), (3, "mysql://h/i"));
        let relay::Source::Wal { publication, .. } = &all["log"].source else { panic!("the log") };
        assert_eq!((&**publication, all["log"].has_default_slot), ("millrace_relay_log", true));
        let one = sources(file, Some("log")).expect("it is right");
        assert_eq!(one.keys().collect::<Vec<_>>(), ["log"]);
    }

    #[test]
    fn what_is_wrong_with_a_source_is_told_with_its_name() {
        let file = "[sources.a]\nworkers = 0\n[sources.b]\norder = \"key\"\n[sources.c]\nmetrics = \"x\"\n\
                    [sources.d]\n[sources.e]\n";
        let problems = sources(file, None).expect_err("much is wrong").join("\n");
        for words in [
            "sources.a: r.toml:2: workers is \"0\"",
            "sources.b: order is key, but no key column is named",
            "sources.c: r.toml:6: there is no setting metrics",
            "sources.d and sources.e both have the table outbox_messages",
        ] {
            assert!(problems.contains(words), "{words} is not in {problems}");
        }
        let unknown = sources("[sources.a]\n", Some("b")).expect_err("no such source").join("\n");
        assert!(
            unknown.contains("--only b") && unknown.ends_with("The sources are: a"),
            "{unknown}"
        );
        let none =
            super::read(Said { file: None, variables: &BTreeMap::new(), flags: &[] }, Some("b"));
        assert!(none.expect_err("no sources").join("\n").contains("names no sources"));
    }

    #[test]
    fn a_relay_has_256_sources_at_most() {
        let of = |count: usize| {
            let one = |at| format!("[sources.s{at}]\ntable = \"t{at}\"\n");
            (0..count).map(one).collect::<String>()
        };
        assert_eq!(sources(&of(256), None).expect("it is right").len(), 256);
        let problems = sources(&of(257), None).expect_err("too many");
        assert!(problems.len() == 1 && problems[0].contains("1 to 256"), "{problems:?}");
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
