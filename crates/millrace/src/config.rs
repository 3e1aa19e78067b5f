//! The configuration of `millrace serve`: file, then environment, then flags.
//!
//! Every setting is one row of [`SETTINGS`]: its key in the file, its environment variable, what it
//! accepts. A wrong key or value is told with its place, and all of them at once.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use broker::io::first_user::FirstUser;
use cluster::PeerConfig;
use cluster::membership::TlsFiles;
use machine::limits::NODE_ID_MAX;
use machine::{NodeId, Version};
use toml::de::{DeTable, DeValue};

use crate::cmd::log;

/// What a setting accepts.
#[derive(Clone, Debug)]
enum Accepts {
    Path,
    Address,
    /// An address, or `none`.
    AddressOrNone,
    /// `1=ADDRESS:PORT,2=ADDRESS:PORT`, or `none`.
    Nodes,
    Count(RangeInclusive<u64>),
    /// A number, or `trial`, where trials of upgrades are made.
    Version(RangeInclusive<u64>),
    /// A number of bytes, or text with a unit: `64MiB`, `2GB`.
    Bytes(RangeInclusive<u64>),
    Text,
    /// What to log.
    Log,
}

/// One setting.
struct Setting {
    key: &'static str,
    variable: &'static str,
    accepts: Accepts,
    default: &'static str,
    about: &'static str,
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The value of a setting that is not set.
const NONE: &str = "none";

/// The version that is not there yet; and the variable without which no node goes to it, nor to a directory that nobody
/// can read later.
const TRIAL: &str = "trial";
const TRIAL_VARIABLE: &str = "MILLRACE_TRIAL";

/// The user that everybody knows, and its password.
const GUEST: &str = "guest";

/// All settings of the broker.
const SETTINGS: &[Setting] = &[
    Setting {
        key: "data_dir",
        variable: "MILLRACE_DATA_DIR",
        accepts: Accepts::Path,
        default: "millrace-data",
        about: "where messages are stored",
    },
    Setting {
        key: "amqp",
        variable: "MILLRACE_AMQP",
        accepts: Accepts::Address,
        default: "127.0.0.1:5672",
        about: "address and port for AMQP clients",
    },
    Setting {
        key: "metrics",
        variable: "MILLRACE_METRICS",
        accepts: Accepts::AddressOrNone,
        default: "none",
        about: "address and port for /metrics (Prometheus), /health and /ready; none: not served",
    },
    Setting {
        key: "default_user",
        variable: "MILLRACE_DEFAULT_USER",
        accepts: Accepts::Text,
        default: GUEST,
        about: "first start only: the user, an administrator, that a new node or cluster begins with in place of guest",
    },
    Setting {
        key: "default_pass",
        variable: "MILLRACE_DEFAULT_PASS",
        accepts: Accepts::Text,
        default: GUEST,
        about: "first start only: that user's password",
    },
    Setting {
        key: "loopback_users",
        variable: "MILLRACE_LOOPBACK_USERS",
        accepts: Accepts::Text,
        default: "guest",
        about: "users that may only connect from the same machine, with commas between; none: nobody",
    },
    Setting {
        key: "groups",
        variable: "MILLRACE_GROUPS",
        accepts: Accepts::Count(1..=64),
        default: "8",
        about: "consensus groups of a new data directory",
    },
    Setting {
        key: "wal_file_bytes",
        variable: "MILLRACE_WAL_FILE_BYTES",
        accepts: Accepts::Bytes(4 * MIB..=GIB),
        default: "64MiB",
        about: "size of one file of the log",
    },
    Setting {
        key: "commit_delay_us",
        variable: "MILLRACE_COMMIT_DELAY_US",
        accepts: Accepts::Count(0..=10_000),
        default: "300",
        about: "a sync waits for more messages for at most so many microseconds, where that saves syncs; 0: never",
    },
    Setting {
        key: "memory_limit",
        variable: "MILLRACE_MEMORY_LIMIT",
        accepts: Accepts::Bytes(64 * MIB..=u64::MAX),
        default: "60%",
        about: "publishers wait while the process holds more memory than this",
    },
    Setting {
        key: "disk_free_limit",
        variable: "MILLRACE_DISK_FREE_LIMIT",
        accepts: Accepts::Bytes(0..=u64::MAX),
        default: "2GiB",
        about: "publishers wait while the disk has less free than this",
    },
    Setting {
        key: "cluster_version_max",
        variable: "MILLRACE_CLUSTER_VERSION_MAX",
        accepts: Accepts::Version(Version::FIRST.0 as u64..=u16::MAX as u64),
        default: "65535",
        about: "the newest version that a cluster with this node agrees on; above what the node knows: no limit",
    },
    Setting {
        key: "heartbeat_s",
        variable: "MILLRACE_HEARTBEAT_S",
        accepts: Accepts::Count(0..=3600),
        default: "60",
        about: "heartbeat proposed to clients, in seconds; 0: none",
    },
    Setting {
        key: "consumer_timeout_s",
        variable: "MILLRACE_CONSUMER_TIMEOUT_S",
        accepts: Accepts::Count(0..=315_360_000),
        default: "1800",
        about: "seconds a consumer may hold a message of a queue without x-consumer-timeout; 0: for ever",
    },
    Setting {
        key: "frame_bytes_max",
        variable: "MILLRACE_FRAME_BYTES_MAX",
        accepts: Accepts::Bytes(4096..=MIB),
        default: "131072",
        about: "largest frame proposed to clients",
    },
    Setting {
        key: "channel_max",
        variable: "MILLRACE_CHANNEL_MAX",
        accepts: Accepts::Count(1..=65535),
        default: "2047",
        about: "channels of one connection",
    },
    Setting {
        key: "consumers_per_channel_max",
        variable: "MILLRACE_CONSUMERS_PER_CHANNEL_MAX",
        accepts: Accepts::Count(1..=1_000_000),
        default: "100000",
        about: "consumers of one channel",
    },
    Setting {
        key: "message_bytes_max",
        variable: "MILLRACE_MESSAGE_BYTES_MAX",
        accepts: Accepts::Bytes(1..=32 * MIB),
        default: "16MiB",
        about: "largest message",
    },
    Setting {
        key: "node_id",
        variable: "MILLRACE_NODE_ID",
        accepts: Accepts::Count(0..=NODE_ID_MAX),
        default: "0",
        about: "number of this node in its cluster; 0: as the data directory says, or no cluster",
    },
    Setting {
        key: "peer_listen",
        variable: "MILLRACE_PEER_LISTEN",
        accepts: Accepts::AddressOrNone,
        default: "none",
        about: "address and port for the other nodes of the cluster",
    },
    Setting {
        key: "peers",
        variable: "MILLRACE_PEERS",
        accepts: Accepts::Nodes,
        default: "none",
        about: "all nodes that make a new cluster, this one too: 1=ADDRESS:PORT,2=ADDRESS:PORT,...",
    },
    Setting {
        key: "join",
        variable: "MILLRACE_JOIN",
        accepts: Accepts::AddressOrNone,
        default: "none",
        about: "peer port of a member that takes this node in, if its data directory is new",
    },
    Setting {
        key: "cluster_secret",
        variable: "MILLRACE_CLUSTER_SECRET",
        accepts: Accepts::Text,
        default: "none",
        about: "what nodes prove to each other to know; none: what the data directory keeps",
    },
    Setting {
        key: "cluster_secret_file",
        variable: "MILLRACE_CLUSTER_SECRET_FILE",
        accepts: Accepts::Path,
        default: "none",
        about: "a file with the same; `millrace cluster token` prints what to put into it",
    },
    Setting {
        key: "peer_tls_authority",
        variable: "MILLRACE_PEER_TLS_AUTHORITY",
        accepts: Accepts::Path,
        default: "none",
        about: "PEM file with the authority that signed all nodes' certificates; none: no TLS between nodes",
    },
    Setting {
        key: "peer_tls_certificate",
        variable: "MILLRACE_PEER_TLS_CERTIFICATE",
        accepts: Accepts::Path,
        default: "none",
        about: "PEM file with this node's certificate, which names the host of its address",
    },
    Setting {
        key: "peer_tls_key",
        variable: "MILLRACE_PEER_TLS_KEY",
        accepts: Accepts::Path,
        default: "none",
        about: "PEM file with the certificate's key",
    },
    Setting {
        key: "snapshot_bytes_per_second",
        variable: "MILLRACE_SNAPSHOT_BYTES_PER_SECOND",
        accepts: Accepts::Bytes(100_000..=u64::MAX),
        default: "100MB",
        about: "what snapshots for other nodes may take of the network",
    },
    Setting {
        key: "log",
        variable: "MILLRACE_LOG",
        accepts: Accepts::Log,
        default: "info",
        about: "what is written to standard error: off, error, warn, info, debug, trace; or per part: info,cluster=debug",
    },
];

/// The settings in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) data_dir: PathBuf,
    pub(crate) amqp: String,
    /// `None`: metrics are not served.
    pub(crate) metrics: Option<String>,
    /// Made at the first start. `None`: there is `guest`.
    pub(crate) first_user: Option<FirstUser>,
    pub(crate) loopback_users: Vec<String>,
    pub(crate) groups: u32,
    pub(crate) wal_file_bytes: u64,
    pub(crate) commit_delay_us: u64,
    /// `None`: a share of the machine's memory.
    pub(crate) memory_limit: Option<u64>,
    pub(crate) disk_free_limit: u64,
    /// At most the newest that the program knows, but in trials of upgrades.
    pub(crate) version_max: Version,
    pub(crate) heartbeat_s: u16,
    pub(crate) consumer_timeout_s: u64,
    pub(crate) frame_bytes_max: u32,
    pub(crate) channel_max: u16,
    pub(crate) consumers_per_channel_max: usize,
    pub(crate) message_bytes_max: u64,
    /// `None`: this node is alone.
    pub(crate) peers: Option<PeerConfig>,
    pub(crate) log: String,
    /// Every setting as it was written.
    texts: BTreeMap<&'static str, String>,
    /// Variables that look like settings and are none.
    ignored: Vec<String>,
}

impl Config {
    /// A sentence on variables that look like settings and are none, if there are any. Whoever runs a
    /// container has some: Kubernetes sets MILLRACE_SERVICE_HOST for a service called millrace.
    pub(crate) fn ignored_variables(&self) -> Option<String> {
        (!self.ignored.is_empty()).then(|| {
            format!(
                "variables of the environment that are no settings of `millrace serve`, and were ignored: {}",
                self.ignored.join(", ")
            )
        })
    }

    /// The settings that another configuration has otherwise.
    pub(crate) fn differences(&self, other: &Self) -> Vec<&'static str> {
        let differs = |key: &&'static str| self.texts.get(key) != other.texts.get(key);
        SETTINGS.iter().map(|setting| setting.key).filter(differs).collect()
    }
}

/// A setting that the command line gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flag {
    key: &'static str,
    text: String,
    /// As it was written, for messages.
    place: String,
}

impl Flag {
    /// The setting has an option of its own.
    pub(crate) fn named(key: &'static str, text: String) -> Self {
        Self { key, text, place: format!("command line, --{}", key.replace('_', "-")) }
    }

    /// What stands behind `--set`: KEY=VALUE.
    ///
    /// # Errors
    /// A sentence that says what it should be.
    pub(crate) fn set(text: &str) -> Result<Self, String> {
        let Some((key, value)) = text.split_once('=') else {
            return Err(format!(
                "command line, --set {text}: it must be KEY=VALUE, for instance groups=8"
            ));
        };
        let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
            let known = list(|setting| setting.key);
            return Err(format!(
                "command line, --set {key}: there is no setting {key}; known are {known}"
            ));
        };
        Ok(Self {
            key: setting.key,
            text: value.to_owned(),
            place: format!("command line, --set {key}"),
        })
    }
}

/// Variables of other commands, which have no meaning for `serve`.
const OTHERS_VARIABLES: [&str; 3] = ["MILLRACE_CONFIG", "MILLRACE_RELAY_", "MILLRACE_WORK_"];

/// A value and where it was found, for messages.
#[derive(Clone, Debug)]
struct Found {
    text: String,
    place: String,
}

/// Reads the settings. `file`: path and text of the configuration file; `variables`: the environment;
/// `flags`: what the command line says, by key.
pub(crate) fn load(
    file: Option<(&Path, &str)>,
    variables: impl Iterator<Item = (String, String)>,
    flags: &[Flag],
) -> Result<Config, Vec<String>> {
    let mut problems = Vec::new();
    let mut ignored = Vec::new();
    let mut found: BTreeMap<&'static str, Found> = BTreeMap::new();
    for setting in SETTINGS {
        let place = "default".to_owned();
        found.insert(setting.key, Found { text: setting.default.to_owned(), place });
    }
    if let Some((path, text)) = file {
        read_file(path, text, &mut found, &mut problems);
    }
    let mut is_trial = false;
    for (name, text) in variables.filter(|(name, _)| name.starts_with("MILLRACE_")) {
        match SETTINGS.iter().find(|setting| setting.variable == name) {
            Some(setting) => {
                found.insert(setting.key, Found { text, place: format!("environment, {name}") });
            }
            None if name == TRIAL_VARIABLE => is_trial = true,
            None if OTHERS_VARIABLES.iter().any(|other| name.starts_with(other)) => {}
            None => ignored.push(name),
        }
    }
    for Flag { key, text, place } in flags {
        found.insert(key, Found { text: text.clone(), place: place.clone() });
    }
    for setting in SETTINGS {
        if let Err(why) = check(&setting.accepts, &found[setting.key].text, setting.default) {
            let Found { text, place } = &found[setting.key];
            problems.push(format!("{place}: {} is \"{text}\": {why}", setting.key));
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let version = &found["cluster_version_max"];
    if version.text == TRIAL && !is_trial {
        return Err(vec![format!(
            "{}: cluster_version_max is \"{TRIAL}\": that is for trials of upgrades; no released program starts on \
             such a directory",
            version.place
        )]);
    }
    let (given, missing): (Vec<_>, Vec<_>) =
        TLS_KEYS.into_iter().partition(|key| found[key].text != NONE);
    if let ([given, ..], [missing, ..]) = (&given[..], &missing[..]) {
        let place = &found[given].place;
        return Err(vec![format!("{place}: {given} is set, and {missing} is not: TLS needs both")]);
    }
    let first = &found["default_user"];
    if first.text != GUEST && found["default_pass"].text == GUEST {
        return Err(vec![format!(
            "{}: default_user is \"{}\", and default_pass is not set: choose its password",
            first.place, first.text
        )]);
    }
    let config = Config { ignored, ..build(&found) };
    if let Some(Err(why)) = config.peers.as_ref().map(PeerConfig::check) {
        return Err(vec![format!("{}: {why}", found["peers"].place)]);
    }
    if config.message_bytes_max > config.wal_file_bytes / 4 {
        let Found { text, place } = &found["message_bytes_max"];
        return Err(vec![format!(
            "{place}: message_bytes_max is \"{text}\": it must be at most a quarter of wal_file_bytes, \
             which is {}",
            config.wal_file_bytes
        )]);
    }
    Ok(config)
}

/// The settings as a file that could be read back, with what each is for.
pub(crate) fn reference() -> String {
    let mut text = String::new();
    for Setting { key, variable, accepts, default, about } in SETTINGS {
        let value = if default.parse::<u64>().is_ok() {
            (*default).to_owned()
        } else {
            format!("\"{default}\"")
        };
        let range = match accepts {
            Accepts::Count(range) | Accepts::Version(range) => {
                format!(" ({} to {})", range.start(), range.end())
            }
            Accepts::Bytes(range) if *range.end() == u64::MAX => {
                format!(" (bytes, at least {})", range.start())
            }
            Accepts::Bytes(range) => format!(" (bytes, {} to {})", range.start(), range.end()),
            Accepts::Path
            | Accepts::Address
            | Accepts::AddressOrNone
            | Accepts::Nodes
            | Accepts::Text
            | Accepts::Log => String::new(),
        };
        text.push_str(&format!("# {about}{range}; {variable}\n{key} = {value}\n\n"));
    }
    text
}

fn read_file(
    path: &Path,
    text: &str,
    found: &mut BTreeMap<&'static str, Found>,
    problems: &mut Vec<String>,
) {
    let line_of = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
    let table = match DeTable::parse(text) {
        Ok(table) => table.into_inner(),
        Err(error) => {
            let line = error.span().map_or(1, |span| line_of(span.start));
            problems.push(format!("{}:{line}: {}", path.display(), error.message()));
            return;
        }
    };
    for (key, value) in table {
        let place = format!("{}:{}", path.display(), line_of(key.span().start));
        let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key.get_ref().as_ref())
        else {
            problems.push(format!(
                "{place}: there is no setting {}; known are {}",
                key.get_ref(),
                list(|setting| setting.key)
            ));
            continue;
        };
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.as_str().to_owned(),
            other => {
                problems.push(format!("{place}: {} is a {}", setting.key, other.type_str()));
                continue;
            }
        };
        found.insert(setting.key, Found { text, place });
    }
}

fn list(name: impl Fn(&Setting) -> &'static str) -> String {
    SETTINGS.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn check(accepts: &Accepts, text: &str, default: &str) -> Result<(), String> {
    match accepts {
        Accepts::Path | Accepts::Text if text.is_empty() => Err("it must not be empty".to_owned()),
        Accepts::Path | Accepts::Text => Ok(()),
        Accepts::Log => log::filter(text).map(|_| ()),
        Accepts::Address => match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(()),
            _ => Err("it must be ADDRESS:PORT, for instance 127.0.0.1:5672".to_owned()),
        },
        Accepts::AddressOrNone if text == NONE => Ok(()),
        Accepts::AddressOrNone => check(&Accepts::Address, text, default),
        Accepts::Nodes => nodes(text).map(|_| ()),
        Accepts::Version(_) if text == TRIAL => Ok(()),
        Accepts::Count(range) | Accepts::Version(range) => match text.parse::<u64>() {
            Ok(count) if range.contains(&count) => Ok(()),
            _ => Err(format!("it must be a number from {} to {}", range.start(), range.end())),
        },
        Accepts::Bytes(_) if text == default => Ok(()),
        Accepts::Bytes(range) => match bytes(text) {
            Some(count) if range.contains(&count) => Ok(()),
            _ => Err(format!(
                "it must be a number of bytes from {} to {} (64MiB, 2GB)",
                range.start(),
                range.end()
            )),
        },
    }
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "B" => 1,
        "kB" | "KB" => 1000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => MIB,
        "GB" => 1_000_000_000,
        "GiB" => GIB,
        _ => return None,
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(unit)
}

/// `1=ADDRESS:PORT` with commas between; `none` is the empty list.
fn nodes(text: &str) -> Result<Vec<(NodeId, String)>, String> {
    if text == NONE {
        return Ok(Vec::new());
    }
    let node = |item: &str| {
        let (number, address) = item.trim().split_once('=')?;
        check(&Accepts::Address, address, NONE).ok()?;
        let is_plain = !address.contains(char::is_whitespace);
        is_plain.then_some((NodeId(number.parse().ok()?), address.to_owned()))
    };
    text.split(',')
        .map(|item| {
            node(item).ok_or_else(|| {
                format!(
                    "\"{}\" must be NUMBER=ADDRESS:PORT, for instance 1=10.0.0.1:7000",
                    item.trim()
                )
            })
        })
        .collect()
}

/// The files for TLS between nodes: all three, or none.
const TLS_KEYS: [&str; 3] = ["peer_tls_authority", "peer_tls_certificate", "peer_tls_key"];

fn tls(found: &BTreeMap<&'static str, Found>) -> Option<TlsFiles> {
    let [authority, certificate, key] = TLS_KEYS.map(|key| &found[key].text);
    let is_given = [authority, certificate, key].iter().all(|text| *text != NONE);
    is_given.then(|| TlsFiles {
        authority: authority.into(),
        certificate: certificate.into(),
        key: key.into(),
    })
}

/// What the settings say of a cluster, if anything.
fn peers(found: &BTreeMap<&'static str, Found>) -> Option<PeerConfig> {
    let given = |key: &str| Some(found[key].text.clone()).filter(|text| text != NONE);
    let config = PeerConfig {
        node: given("node_id").and_then(|text| text.parse().ok()).filter(|id| *id > 0).map(NodeId),
        listen: given("peer_listen"),
        peers: nodes(&found["peers"].text).unwrap_or_default(),
        join: given("join"),
        secret: given("cluster_secret"),
        secret_file: given("cluster_secret_file").map(PathBuf::from),
        tls: tls(found),
        bulk_bytes_per_second: bytes(&found["snapshot_bytes_per_second"].text).unwrap_or(u64::MAX),
    };
    let is_meant = config.node.is_some()
        || config.listen.is_some()
        || config.join.is_some()
        || !config.peers.is_empty();
    is_meant.then_some(config)
}

fn first_user(found: &BTreeMap<&'static str, Found>) -> Option<FirstUser> {
    let [name, password] = ["default_user", "default_pass"].map(|key| found[key].text.clone());
    (password != GUEST).then_some(FirstUser { name, password })
}

/// Names with commas between; `none` is the empty list.
fn names(text: &str) -> Vec<String> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "none");
    names.map(str::to_owned).collect()
}

/// A number above what the program knows is no limit.
fn version_max(text: &str) -> Version {
    if text == TRIAL {
        return Version::TRIAL;
    }
    text.parse().map_or(Version::NEWEST, Version).min(Version::NEWEST)
}

fn build(found: &BTreeMap<&'static str, Found>) -> Config {
    let text = |key: &str| found[key].text.clone();
    let number = |key: &str| bytes(&found[key].text).unwrap_or(0);
    Config {
        data_dir: text("data_dir").into(),
        amqp: text("amqp"),
        metrics: Some(text("metrics")).filter(|address| address != NONE),
        first_user: first_user(found),
        loopback_users: names(&text("loopback_users")),
        groups: number("groups").try_into().unwrap_or(u32::MAX),
        wal_file_bytes: number("wal_file_bytes"),
        commit_delay_us: number("commit_delay_us"),
        memory_limit: bytes(&found["memory_limit"].text),
        disk_free_limit: number("disk_free_limit"),
        version_max: version_max(&text("cluster_version_max")),
        heartbeat_s: number("heartbeat_s").try_into().unwrap_or(u16::MAX),
        consumer_timeout_s: number("consumer_timeout_s"),
        frame_bytes_max: number("frame_bytes_max").try_into().unwrap_or(u32::MAX),
        channel_max: number("channel_max").try_into().unwrap_or(u16::MAX),
        consumers_per_channel_max: number("consumers_per_channel_max").try_into().unwrap_or(1),
        message_bytes_max: number("message_bytes_max"),
        peers: peers(found),
        log: text("log"),
        texts: found.iter().map(|(key, found)| (*key, found.text.clone())).collect(),
        ignored: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_file(text: &str) -> Result<Config, Vec<String>> {
        load(Some((Path::new("m.toml"), text)), std::iter::empty(), &[])
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let variables = [
            ("MILLRACE_GROUPS".to_owned(), "3".to_owned()),
            ("MILLRACE_CHANNEL_MAX".to_owned(), "9".to_owned()),
        ];
        let file = "groups = 2\nchannel_max = 5\nheartbeat_s = 7\n";
        let flags = [Flag::set("groups=4").unwrap()];
        let config =
            load(Some((Path::new("m.toml"), file)), variables.into_iter(), &flags).unwrap();
        assert_eq!((config.groups, config.channel_max, config.heartbeat_s), (4, 9, 7));
    }

    #[test]
    fn all_problems_are_told_at_once_with_their_lines() {
        let problems =
            from_file("groups = 0\n\nspeed = 9\nframe_bytes_max = \"4kB\"\n").unwrap_err();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(
            problems.iter().any(|problem| problem.starts_with("m.toml:3: there is no setting"))
        );
        assert!(problems.iter().any(|problem| problem.contains("m.toml:1: groups is \"0\"")));
        assert!(problems.iter().any(|problem| problem.contains("from 4096 to 1048576")));
    }

    #[test]
    fn text_that_is_not_toml_is_told_with_its_line() {
        let problems = from_file("groups = 2\ngroups = 3\n").unwrap_err();
        assert!(problems[0].starts_with("m.toml:2: "), "{problems:?}");
    }

    #[test]
    fn variables_that_are_no_settings_are_ignored_and_told() {
        let set = |names: &[&str]| {
            let variables =
                names.iter().map(|name| ((*name).to_owned(), "tcp://10.0.0.1:5672".to_owned()));
            load(None, variables.collect::<Vec<_>>().into_iter(), &[]).unwrap()
        };
        let config = set(&[
            "MILLRACE_SERVICE_HOST",
            "MILLRACE_PORT_5672_TCP",
            "MILLRACE_RELAY_CONFIG",
            "HOME",
        ]);
        let told = config.ignored_variables().unwrap();
        assert!(told.ends_with("ignored: MILLRACE_SERVICE_HOST, MILLRACE_PORT_5672_TCP"), "{told}");
        assert_eq!(
            set(&["MILLRACE_RELAY_CONFIG", "MILLRACE_WORK_METRICS"]).ignored_variables(),
            None
        );
    }

    #[test]
    fn the_version_to_come_is_for_trials_and_a_number_never_means_it() {
        let flag = |text: &str| [Flag::set(&format!("cluster_version_max={text}")).unwrap()];
        let trial = || std::iter::once((TRIAL_VARIABLE.to_owned(), "1".to_owned()));
        let refused = load(None, std::iter::empty(), &flag(TRIAL)).unwrap_err();
        assert!(refused[0].contains("for trials of upgrades"), "{refused:?}");
        assert_eq!(load(None, trial(), &flag(TRIAL)).unwrap().version_max, Version::TRIAL);
        for (text, read) in [("4", Version(4)), ("8", Version::NEWEST), ("65535", Version::NEWEST)]
        {
            assert_eq!(load(None, trial(), &flag(text)).unwrap().version_max, read);
        }
    }

    #[test]
    fn what_is_wrong_with_set_names_set_and_what_it_takes() {
        assert!(Flag::set("x").unwrap_err().contains("--set x: it must be KEY=VALUE"));
        let unknown = Flag::set("x=1").unwrap_err();
        assert!(unknown.contains("there is no setting x; known are data_dir"), "{unknown}");
        let wrong = [Flag::set("groups=0").unwrap(), Flag::named("amqp", "here".to_owned())];
        let problems = load(None, std::iter::empty(), &wrong).unwrap_err();
        assert!(problems[0].starts_with("command line, --amqp: amqp is \"here\""), "{problems:?}");
        assert!(
            problems[1].starts_with("command line, --set groups: groups is \"0\""),
            "{problems:?}"
        );
    }

    #[test]
    fn a_typo_in_the_log_level_is_refused() {
        let problems = from_file("log = \"inof\"\n").unwrap_err();
        assert!(
            problems[0].starts_with("m.toml:1: log is \"inof\": \"inof\" is no level"),
            "{problems:?}"
        );
    }

    #[test]
    fn settings_that_changed_are_named() {
        let (old, new) =
            (from_file("groups = 3\n").unwrap(), from_file("log = \"debug\"\n").unwrap());
        assert_eq!(new.differences(&old), ["groups", "log"]);
        assert!(old.differences(&old).is_empty());
    }

    #[test]
    fn sizes_may_have_units() {
        let config = from_file("wal_file_bytes = \"65MiB\"\ndisk_free_limit = 5\n").unwrap();
        assert_eq!((config.wal_file_bytes, config.disk_free_limit), (65 * MIB, 5));
    }

    #[test]
    fn names_have_commas_between_and_none_is_nobody() {
        let users = |text: &str| from_file(text).unwrap().loopback_users;
        assert_eq!(users(""), ["guest"]);
        assert_eq!(users("loopback_users = \"guest, admin\"\n"), ["guest", "admin"]);
        assert!(users("loopback_users = \"none\"\n").is_empty());
    }

    #[test]
    fn a_first_user_has_a_password_that_somebody_chose() {
        assert_eq!(from_file("").unwrap().first_user, None);
        let user =
            from_file("default_user = \"ann\"\ndefault_pass = \"s3cret\"\n").unwrap().first_user;
        let ann = FirstUser { name: "ann".to_owned(), password: "s3cret".to_owned() };
        assert!(!format!("{user:?}").contains("s3cret"));
        assert_eq!(user, Some(ann));
        let problems = from_file("default_user = \"ann\"\n").unwrap_err();
        assert!(problems[0].contains("default_pass is not set"), "{problems:?}");
    }

    #[test]
    fn a_node_is_alone_until_something_says_that_it_is_not() {
        assert_eq!(from_file("").unwrap().peers, None);
        let file = "node_id = 2\npeers = \"1=10.0.0.1:7000, 2=b.example:7000\"\n";
        let peers = from_file(file).unwrap().peers.unwrap();
        assert_eq!(peers.node, Some(NodeId(2)));
        let addresses: Vec<_> = peers.peers.iter().map(|(_, address)| &address[..]).collect();
        assert_eq!(addresses, ["10.0.0.1:7000", "b.example:7000"]);
        assert_eq!((peers.secret, peers.listen), (None, None));
        assert_eq!(peers.bulk_bytes_per_second, 100_000_000);
    }

    #[test]
    fn a_wrong_list_of_nodes_is_told_with_its_place() {
        for (list, words) in [
            ("1=a", "\"1=a\" must be NUMBER=ADDRESS:PORT"),
            ("a:7000", "must be NUMBER=ADDRESS:PORT"),
            ("1=a:1,1=b:1", "names node 1 twice"),
            ("1=a:1,70000=b:1", "it must be from 1 to"),
        ] {
            let problems = from_file(&format!("peers = \"{list}\"\n")).unwrap_err();
            assert!(problems[0].starts_with("m.toml:1: "), "{problems:?}");
            assert!(problems[0].contains(words), "{problems:?}");
        }
    }

    #[test]
    fn tls_between_nodes_needs_all_its_files() {
        let problems = from_file("peer_tls_key = \"k.pem\"\n").unwrap_err();
        assert!(problems[0].contains("and peer_tls_authority is not"), "{problems:?}");
        let file = "node_id = 1\npeer_tls_authority = \"ca.pem\"\n\
                    peer_tls_certificate = \"c.pem\"\npeer_tls_key = \"k.pem\"\n";
        let tls = from_file(file).unwrap().peers.unwrap().tls.unwrap();
        assert_eq!(tls.key, Path::new("k.pem"));
    }

    #[test]
    fn a_message_must_fit_the_log() {
        let problems = from_file("wal_file_bytes = \"32MiB\"\n").unwrap_err();
        assert!(problems[0].contains("at most a quarter of wal_file_bytes"), "{problems:?}");
    }

    #[test]
    fn the_reference_is_a_file_that_can_be_read() {
        assert_eq!(from_file(&reference()).unwrap(), from_file("").unwrap());
    }
}
