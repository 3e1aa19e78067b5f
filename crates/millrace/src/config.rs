//! The configuration of `millrace serve`: file, then environment, then flags.
//!
//! Every setting is one row of [`SETTINGS`], which `service::settings` reads. What is here is what the values mean, and
//! what must hold between them. A wrong key or value is told with its place, and all of them at once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use broker::io::first_user::FirstUser;
use certificates::{AlternativeKind, Clients, Files, UserFrom};
use cluster::PeerConfig;
use cluster::membership::TlsFiles;
use machine::limits::NODE_ID_MAX;
use machine::{NodeId, Version};
use management::limits::COMPANIONS_MAX;
use service::settings;
use service::settings::Kind::{Address, Any, Bytes, Count, Judged, Switch, Text};
use service::settings::{Flag, Said, Setting, Values};

use crate::cmd::log;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The value of a setting that is not set.
const NONE: &str = "none";

/// The value of a setting that follows from another one.
const DEFAULT: &str = "default";

/// What tokens may be signed with, if nobody says anything.
const ALGORITHMS: &str = "RS256,RS384,RS512,PS256,PS384,PS512,ES256,ES384,EdDSA";

/// A client must show a certificate.
const REQUIRED: &str = "required";

/// The limit of memory, if nobody sets one.
const MEMORY_SHARE: &str = "60%";

/// The version that is not there yet; and the variable without which no node goes to it, nor to a directory that nobody
/// can read later.
const TRIAL: &str = "trial";
const TRIAL_VARIABLE: &str = "MILLRACE_TRIAL";

/// The user that everybody knows, and its password.
const GUEST: &str = "guest";

settings! {
    /// All settings of the node.
    pub(crate) const SETTINGS in Some("MILLRACE_");

    /// Directory where the node stores messages; created if it is missing
    data_dir: Text("DIR"), default("millrace-data"), flag;
    /// Address and port where AMQP clients connect
    amqp: Address, default("127.0.0.1:5672"), flag;
    /// Address and port where AMQP clients connect under TLS, usually port 5671; none: not served
    amqps: Address, or(NONE), default(NONE), flag;
    /// Address and port for /metrics (Prometheus), /health/live and /health/ready; none: not served
    metrics: Address, or(NONE), default(NONE), flag;
    /// Queues that /metrics/per-object and /metrics/detailed show at most, those with the most messages; each takes
    /// about 2 KB of an answer
    metrics_queues_max: Count(0..=100_000, "queues"), default("2000");
    /// Address and port for RabbitMQ's HTTP API, for example 127.0.0.1:15672; none: not served
    http: Address, or(NONE), default(NONE), flag;
    /// Address and port for the same under TLS; none: not served
    https: Address, or(NONE), default(NONE), flag;
    /// Relays and workers that the console shows: where they serve their metrics, ADDR:PORT with commas between, at most
    /// 32; the node asks them; none: it asks nobody
    companions: Judged("LIST", judge_companions), or(NONE), default(NONE), flag;
    /// File with the secret that these take orders with, their orders_secret_file; none: this node gives them none
    companions_secret_file: Text("FILE"), or(NONE), default(NONE);
    /// Where the node is, such as a data centre: /api/nodes and the console say it, and nothing follows from it
    zone: Text("NAME"), or(NONE), default(NONE), flag;
    /// PEM file with the certificate that clients are shown under TLS, and those between it and its authority
    tls_certfile: Text("FILE"), or(NONE), default(NONE), flag;
    /// PEM file with that certificate's key
    tls_keyfile: Text("FILE"), or(NONE), default(NONE), flag;
    /// PEM file with the authority that signs clients' certificates; none: clients are asked for none
    tls_cacertfile: Text("FILE"), or(NONE), default(NONE), flag;
    /// Whether a client under TLS must show a certificate of that authority: optional, required
    tls_client_certificates: Judged("WORD", judge_clients), default("optional");
    /// Part of a client's certificate that names its user for the login EXTERNAL: cn (its common name), dn (its whole
    /// subject), san-dns, san-email, san-uri; or RabbitMQ's common_name, distinguished_name,
    /// subject_alternative_name; none: no such login
    tls_certificate_user: Judged("WORD", judge_certificate_user), or(NONE), default(NONE);
    /// Which of several alternative names of that kind, counted from 0
    tls_certificate_user_index: Count(0..=99, ""), default("0");
    /// File with the public keys (JWKS) of those who sign tokens that clients log in with (OAuth 2); none: no such login
    oauth_jwks_file: Text("FILE"), or(NONE), default(NONE);
    /// The same from a server: a URL that begins with https://
    oauth_jwks_url: Text("URL"), or(NONE), default(NONE);
    /// PEM file with the authority that signed that server's certificate; none: the authorities of this machine
    oauth_jwks_cacertfile: Text("FILE"), or(NONE), default(NONE);
    /// Name of this broker in tokens: their audience, and what their scopes begin with
    oauth_resource_server_id: Text("NAME"), or(NONE), default(NONE);
    /// What scopes for this broker begin with, perhaps nothing; default: oauth_resource_server_id and a dot
    oauth_scope_prefix: Any("PREFIX"), or(DEFAULT), default(DEFAULT);
    /// Who must have issued a token, exactly as its claim iss says; none: whoever has one of the keys
    oauth_issuer: Text("ISSUER"), or(NONE), default(NONE);
    /// Whether a token must name oauth_resource_server_id as an audience (claim aud)
    oauth_verify_audience: Switch, default("true");
    /// More claims of a token that hold scopes, with commas between: names, or paths with dots; none: scope alone
    oauth_additional_scopes_key: Text("CLAIMS"), or(NONE), default(NONE);
    /// Claims of a token that may name its user, with commas between, the first one first; sub and client_id follow
    oauth_preferred_username_claims: Text("CLAIMS"), or(NONE), default(NONE);
    /// Algorithms that a token may be signed with
    oauth_algorithms: Judged("NAMES", judge_algorithms), default(ALGORITHMS);
    /// Client that the console is at the identity server, a public one with PKCE: browsers are sent there to log in; none:
    /// they are not
    oauth_client_id: Text("NAME"), or(NONE), default(NONE);
    /// Where browsers are sent: the server's authorization endpoint, a URL that begins with https://
    oauth_authorize_url: Text("URL"), or(NONE), default(NONE);
    /// Where this node turns their codes into tokens: its token endpoint, likewise
    oauth_token_url: Text("URL"), or(NONE), default(NONE);
    /// What the console asks for there, with spaces between
    oauth_scopes: Text("SCOPES"), default("openid");
    /// Collector of OpenTelemetry that is sent the spans of messages with a trace context (OTLP over HTTP), for example
    /// http://127.0.0.1:4318; none: no spans are made
    otlp: Judged("URL", judge_otlp), or(NONE), default(NONE), flag;
    /// PEM file with the authority that signed the collector's certificate; none: the authorities of this machine
    otlp_cacertfile: Text("FILE"), or(NONE), default(NONE);
    /// First start only: name of the administrator that a new node or cluster begins with, in place of guest
    default_user: Text("NAME"), default(GUEST);
    /// First start only: that user's password
    default_pass: Text("PASSWORD"), default(GUEST), secret;
    /// JSON file with users, vhosts, permissions, policies, queues, exchanges and bindings, as RabbitMQ's definitions:
    /// the node brings them in at each start, before it serves clients
    definitions: Text("FILE"), or(NONE), default(NONE), flag;
    /// Users that may connect only from the same machine, separated by commas; none: no such users
    loopback_users: Text("NAMES"), default(GUEST);
    /// Number of consensus groups in a new data directory
    groups: Count(1..=64, "groups"), default("8");
    /// Size of one file of the log
    wal_file_bytes: Bytes(4 * MIB..=GIB), default("64MiB");
    /// Maximum time that a sync waits for more messages, where that saves syncs; 0: never
    commit_delay_us: Count(0..=10_000, "microseconds"), default("300");
    /// The node blocks publishers while the process holds more memory than this; 60%: a share of the machine's
    /// memory, or of the process's limit if it has one
    memory_limit: Bytes(64 * MIB..=u64::MAX), or(MEMORY_SHARE), default(MEMORY_SHARE);
    /// The node blocks publishers while the disk has less free space than this
    disk_free_limit: Bytes(0..=u64::MAX), default("2GiB");
    /// The newest version that a cluster with this node may agree on; above what the node knows: no limit
    cluster_version_max: Judged("1 to 65535", judge_version), default("65535");
    /// A group of queues confirms nothing while its replicas differ; without it they only raise an alarm
    reconcile_stop: Switch, default("false"), flag;
    /// Heartbeat proposed to clients; 0: none
    heartbeat_s: Count(0..=3600, "seconds"), default("60");
    /// How long a consumer may hold a message of a queue without x-consumer-timeout; 0: for ever
    consumer_timeout_s: Count(0..=315_360_000, "seconds"), default("1800");
    /// Largest frame proposed to clients
    frame_bytes_max: Bytes(4096..=MIB), default("131072");
    /// Maximum number of channels per connection
    channel_max: Count(1..=65535, "channels"), default("2047");
    /// Maximum number of consumers per channel
    consumers_per_channel_max: Count(1..=1_000_000, "consumers"), default("100000");
    /// Largest message; at most a quarter of wal_file_bytes
    message_bytes_max: Bytes(1..=32 * MIB), default("16MiB");
    /// Number of this node, unique in its cluster; 0: as the data directory says, or no cluster
    node_id: Count(0..=NODE_ID_MAX, ""), default("0"), flag;
    /// Address and port where the other nodes connect; none: this node's address in peers
    peer_listen: Address, or(NONE), default(NONE), flag;
    /// All nodes of a new cluster, the same list on each node: 1=ADDR:PORT,2=ADDR:PORT,3=ADDR:PORT; none:
    /// no new cluster
    peers: Judged("LIST", judge_nodes), default(NONE), flag;
    /// Join a running cluster with a new data directory: peer address of any member; needs node_id and peer_listen
    join: Address, or(NONE), default(NONE), flag;
    /// Secret that the nodes of a cluster share; none: the secret in the data directory
    cluster_secret: Text("SECRET"), or(NONE), default(NONE), secret;
    /// File that holds this secret; `millrace cluster token` prints it
    cluster_secret_file: Text("FILE"), or(NONE), default(NONE);
    /// PEM file with the authority that signed all nodes' certificates; none: no TLS between nodes
    peer_tls_authority: Text("FILE"), or(NONE), default(NONE);
    /// PEM file with this node's certificate, which names the host of its address
    peer_tls_certificate: Text("FILE"), or(NONE), default(NONE);
    /// PEM file with the certificate's key
    peer_tls_key: Text("FILE"), or(NONE), default(NONE);
    /// Maximum number of bytes per second that snapshots for other nodes take of the network
    snapshot_bytes_per_second: Bytes(100_000..=u64::MAX), default("100MB");
    /// Log level for standard error: off, error, warn, info, debug, trace; or per part: info,cluster=debug
    log: Judged("FILTER", judge_log), default("info"), reload;
}

/// The settings in force.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) data_dir: PathBuf,
    pub(crate) amqp: String,
    /// `None`: metrics are not served.
    pub(crate) metrics: Option<String>,
    pub(crate) metrics_queues_max: usize,
    /// `None`: the HTTP API is not served.
    pub(crate) http: Option<String>,
    /// The same under TLS.
    pub(crate) https: Option<String>,
    /// Where relays and workers serve their metrics.
    pub(crate) companions: Vec<String>,
    pub(crate) companions_secret_file: Option<PathBuf>,
    /// Where the node is, for who looks at it.
    pub(crate) zone: Option<String>,
    /// `None`: AMQP is not served under TLS.
    pub(crate) amqps: Option<String>,
    /// What clients are shown under TLS.
    pub(crate) tls: Option<Files>,
    /// `None`: nobody logs in with a certificate.
    pub(crate) certificate_user: Option<UserFrom>,
    /// `None`: nobody logs in with a token.
    pub(crate) oauth: Option<oauth::io::Settings>,
    /// `None`: nobody collects spans.
    pub(crate) otlp: Option<otlp::io::Settings>,
    /// Brought in at each start.
    pub(crate) definitions: Option<PathBuf>,
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
    /// A group confirms nothing while its replicas differ.
    pub(crate) reconcile_stop: bool,
    pub(crate) heartbeat_s: u16,
    pub(crate) consumer_timeout_s: u64,
    pub(crate) frame_bytes_max: u32,
    pub(crate) channel_max: u16,
    pub(crate) consumers_per_channel_max: usize,
    pub(crate) message_bytes_max: u64,
    /// `None`: this node is alone.
    pub(crate) peers: Option<PeerConfig>,
    pub(crate) log: String,
    values: Values,
    /// Variables that look like settings and are none.
    ignored: Vec<String>,
}

impl Config {
    /// A sentence on variables that look like settings and are none, if there are any. Whoever runs a
    /// container has some: Kubernetes sets MILLRACE_SERVICE_HOST for a service called millrace.
    pub(crate) fn ignored_variables(&self) -> Option<String> {
        (!self.ignored.is_empty()).then(|| {
            format!(
                "ignored these environment variables, which are not settings of `millrace serve`: {}",
                self.ignored.join(", ")
            )
        })
    }

    /// The settings that another configuration has otherwise.
    pub(crate) fn differences<'a>(
        &'a self,
        other: &'a Self,
    ) -> impl Iterator<Item = &'static Setting> {
        self.values.differences(&other.values)
    }
}

/// Variables of other commands, which have no meaning for `serve`.
const OTHERS_VARIABLES: [&str; 6] = [
    "MILLRACE_CONFIG",
    "MILLRACE_CONTEXT",
    "MILLRACE_HTTP_",
    "MILLRACE_MOVE_",
    "MILLRACE_RELAY_",
    "MILLRACE_WORK_",
];

/// Reads the settings. `file`: path and text of the configuration file; `variables`: the environment;
/// `flags`: what the command line says.
pub(crate) fn load(
    file: Option<(&str, &str)>,
    variables: impl Iterator<Item = (String, String)>,
    flags: &[Flag],
) -> Result<Config, Vec<String>> {
    let variables: BTreeMap<String, String> =
        variables.filter(|(name, _)| name.starts_with("MILLRACE_")).collect();
    let said = Said { file, variables: &variables, flags };
    let (values, problems) = settings::load(&[SETTINGS], said);
    if !problems.is_empty() {
        return Err(problems);
    }
    let is_trial = variables.contains_key(TRIAL_VARIABLE);
    related(&values, is_trial).map_err(|problem| vec![problem])?;
    let is_ignored = |name: &&String| {
        let is_setting = |setting: &Setting| setting.variable_name().as_ref() == Some(name);
        let is_others = OTHERS_VARIABLES.iter().any(|other| name.starts_with(other));
        !SETTINGS.iter().any(is_setting) && !is_others && *name != TRIAL_VARIABLE
    };
    let ignored = variables.keys().filter(is_ignored).cloned().collect();
    let config = Config { ignored, ..build(values) };
    if let Some(Err(why)) = config.peers.as_ref().map(PeerConfig::check) {
        return Err(vec![format!("{}: {why}", config.values.place("peers"))]);
    }
    if config.message_bytes_max > config.wal_file_bytes / 4 {
        let why = format!(
            "it must be at most a quarter of wal_file_bytes, which is {}",
            config.wal_file_bytes
        );
        return Err(vec![config.values.problem("message_bytes_max", &why)]);
    }
    Ok(config)
}

/// What must hold between settings that are right each by itself.
fn related(values: &Values, is_trial: bool) -> Result<(), String> {
    if values.text("cluster_version_max") == Some(TRIAL) && !is_trial {
        let why = "that is for trials of upgrades; no released program starts on such a directory";
        return Err(values.problem("cluster_version_max", why));
    }
    let (given, missing): (Vec<_>, Vec<_>) =
        TLS_KEYS.into_iter().partition(|key| values.text(key).is_some());
    if let ([given, ..], [missing, ..]) = (&given[..], &missing[..]) {
        let place = values.place(given);
        return Err(format!("{place}: {given} is set, and {missing} is not: TLS needs both"));
    }
    check_client_tls(values)?;
    check_oauth(values)?;
    if values.text("otlp_cacertfile").is_some() && values.text("otlp").is_none() {
        let why = "without otlp no collector is asked for its certificate";
        return Err(values.problem("otlp_cacertfile", why));
    }
    let is_guests = |key| values.text(key) == Some(GUEST);
    if !is_guests("default_user") && is_guests("default_pass") {
        let why = "default_pass is not set: choose its password";
        return Err(values.problem("default_user", why));
    }
    Ok(())
}

fn judge_log(text: &str) -> Result<(), String> {
    log::filter(text).map(drop)
}

fn judge_nodes(text: &str) -> Result<(), String> {
    nodes(text).map(drop)
}

/// `ADDRESS:PORT` with commas between.
fn judge_companions(text: &str) -> Result<(), String> {
    let all = names(text);
    if all.len() > COMPANIONS_MAX {
        return Err(format!("at most {COMPANIONS_MAX} can be named"));
    }
    all.iter().try_for_each(|address| Address.check(address))
}

/// A number, or `trial`, where trials of upgrades are made.
fn judge_version(text: &str) -> Result<(), String> {
    let known = u64::from(Version::FIRST.0)..=u64::from(u16::MAX);
    if text == TRIAL { Ok(()) } else { Count(known, "").check(text) }
}

/// `1=ADDRESS:PORT` with commas between; `none` is the empty list.
fn nodes(text: &str) -> Result<Vec<(NodeId, String)>, String> {
    if text == NONE {
        return Ok(Vec::new());
    }
    let node = |item: &str| {
        let (number, address) = item.trim().split_once('=')?;
        Address.check(address).ok()?;
        let is_plain = !address.contains(char::is_whitespace);
        is_plain.then_some((NodeId(number.parse().ok()?), address.to_owned()))
    };
    text.split(',')
        .map(|item| {
            node(item).ok_or_else(|| {
                format!(
                    "\"{}\" must be NUMBER=ADDRESS:PORT, for example 1=10.0.0.1:7000",
                    item.trim()
                )
            })
        })
        .collect()
}

/// The files for TLS between nodes: all three, or none.
const TLS_KEYS: [&str; 3] = ["peer_tls_authority", "peer_tls_certificate", "peer_tls_key"];

fn tls(values: &Values) -> Option<TlsFiles> {
    let [authority, certificate, key] = TLS_KEYS.map(|key| values.text(key).map(PathBuf::from));
    Some(TlsFiles { authority: authority?, certificate: certificate?, key: key? })
}

/// The files for TLS with clients.
fn client_tls(values: &Values) -> Option<Files> {
    let file = |key| values.text(key).map(PathBuf::from);
    let must_show = values.words("tls_client_certificates") == REQUIRED;
    let clients = match file("tls_cacertfile") {
        Some(authority) => Clients::SignedBy { authority, must_show },
        None => Clients::Anybody,
    };
    Some(Files { certificate: file("tls_certfile")?, key: file("tls_keyfile")?, clients })
}

/// What TLS with clients needs.
fn check_client_tls(values: &Values) -> Result<(), String> {
    let is_set = |key: &&str| values.text(key).is_some();
    let needed = ["tls_certfile", "tls_keyfile"];
    let served = ["amqps", "https"].into_iter().find(is_set);
    let given = served.or_else(|| needed.into_iter().find(is_set));
    if let (Some(given), Some(missing)) = (given, needed.into_iter().find(|key| !is_set(key))) {
        return Err(values.problem(given, &format!("TLS needs {missing}, too")));
    }
    let is_required = values.words("tls_client_certificates") == REQUIRED;
    if is_required && !is_set(&"tls_cacertfile") {
        let why = "without tls_cacertfile no certificate of a client can be checked";
        return Err(values.problem("tls_client_certificates", why));
    }
    if is_set(&"tls_certificate_user") && !is_set(&"tls_cacertfile") {
        let why = "without tls_cacertfile no certificate of a client can be checked";
        return Err(values.problem("tls_certificate_user", why));
    }
    Ok(())
}

fn judge_certificate_user(text: &str) -> Result<(), String> {
    let problem = || {
        format!(
            "\"{text}\" must be cn, dn, san-dns, san-email, san-uri, common_name, distinguished_name or \
             subject_alternative_name"
        )
    };
    user_from(text, 0).map(drop).ok_or_else(problem)
}

/// Where a certificate has its user's name, in our words or RabbitMQ's, whose alternative names are those of DNS if
/// nothing else is said.
fn user_from(text: &str, index: usize) -> Option<UserFrom> {
    let alternative = |kind| UserFrom::AlternativeName { kind, index };
    match text {
        "cn" | "common_name" => Some(UserFrom::CommonName),
        "dn" | "distinguished_name" => Some(UserFrom::DistinguishedName),
        "san-dns" | "subject_alternative_name" => Some(alternative(AlternativeKind::Dns)),
        "san-email" => Some(alternative(AlternativeKind::Email)),
        "san-uri" => Some(alternative(AlternativeKind::Uri)),
        _ => None,
    }
}

/// `optional` or `required`.
fn judge_clients(text: &str) -> Result<(), String> {
    match [REQUIRED, "optional"].contains(&text) {
        true => Ok(()),
        false => Err(format!("\"{text}\" must be optional or required")),
    }
}

fn judge_algorithms(text: &str) -> Result<(), String> {
    oauth::algorithms(text).map(drop)
}

/// What logins by token need.
fn check_oauth(values: &Values) -> Result<(), String> {
    let is_set = |key: &&str| values.text(key).is_some();
    let sources = ["oauth_jwks_file", "oauth_jwks_url"];
    let id = "oauth_resource_server_id";
    let of_login = ["oauth_client_id", "oauth_authorize_url", "oauth_token_url"];
    if let Some(missing) = of_login.iter().find(|key| !is_set(key))
        && let Some(set) = of_login.iter().find(|key| is_set(key))
    {
        let why = format!("a login of browsers needs {missing}, too");
        return Err(values.problem(set, &why));
    }
    match sources.map(|key| is_set(&key)) {
        [true, true] => {
            let why = "oauth_jwks_file is set, too: name one place of keys";
            Err(values.problem("oauth_jwks_url", why))
        }
        [false, false] => {
            match [id, "oauth_jwks_cacertfile", "oauth_issuer", of_login[0]]
                .into_iter()
                .find(is_set)
            {
                Some(key) => {
                    let why = "without oauth_jwks_file or oauth_jwks_url no token is taken";
                    Err(values.problem(key, why))
                }
                None => Ok(()),
            }
        }
        [true, false] | [false, true] if is_set(&id) => Ok(()),
        [has_file, _] => {
            let why = format!("tokens need {id}, too: what this broker is called in them");
            Err(values.problem(if has_file { sources[0] } else { sources[1] }, &why))
        }
    }
}

/// What the settings say of tokens, if anything.
fn oauth_settings(values: &Values) -> Option<oauth::io::Settings> {
    let text = |key| values.text(key).map(str::to_owned);
    let list = |key| values.text(key).map(names).unwrap_or_default();
    let authority = text("oauth_jwks_cacertfile").map(PathBuf::from);
    let source = match (text("oauth_jwks_file"), text("oauth_jwks_url")) {
        (Some(file), _) => oauth::io::Source::File(file.into()),
        (None, Some(url)) => oauth::io::Source::Server { url, authority: authority.clone() },
        (None, None) => return None,
    };
    let resource_server_id = text("oauth_resource_server_id")?;
    let prefix = || format!("{resource_server_id}.");
    let rules = oauth::Rules {
        scope_prefix: text("oauth_scope_prefix").unwrap_or_else(prefix),
        resource_server_id,
        issuer: text("oauth_issuer"),
        checks_audience: values.words("oauth_verify_audience") == "true",
        scope_claims: list("oauth_additional_scopes_key"),
        username_claims: list("oauth_preferred_username_claims"),
        algorithms: oauth::algorithms(&values.words("oauth_algorithms")).unwrap_or_default(),
    };
    let login = text("oauth_client_id").map(|client_id| oauth::io::LoginSettings {
        client_id,
        authorize_url: text("oauth_authorize_url").unwrap_or_default(),
        token_url: text("oauth_token_url").unwrap_or_default(),
        scopes: values.words("oauth_scopes"),
        authority,
    });
    Some(oauth::io::Settings { source, rules, login })
}

fn judge_otlp(text: &str) -> Result<(), String> {
    otlp::Endpoint::read(text).map(drop)
}

/// What the settings say of a collector of spans, if anything.
fn otlp_settings(values: &Values) -> Option<otlp::io::Settings> {
    let endpoint = otlp::Endpoint::read(values.text("otlp")?).ok()?;
    let authority = values.text("otlp_cacertfile").map(PathBuf::from);
    Some(otlp::io::Settings { endpoint, authority })
}

/// What the settings say of a cluster, if anything.
fn peers(values: &Values) -> Option<PeerConfig> {
    let given = |key: &str| values.text(key).map(str::to_owned);
    let config = PeerConfig {
        node: Some(values.number::<u64>("node_id")).filter(|id| *id > 0).map(NodeId),
        listen: given("peer_listen"),
        peers: nodes(&values.words("peers")).unwrap_or_default(),
        join: given("join"),
        secret: given("cluster_secret"),
        secret_file: given("cluster_secret_file").map(PathBuf::from),
        tls: tls(values),
        bulk_bytes_per_second: values.number("snapshot_bytes_per_second"),
    };
    let is_meant = config.node.is_some()
        || config.listen.is_some()
        || config.join.is_some()
        || !config.peers.is_empty();
    is_meant.then_some(config)
}

fn first_user(values: &Values) -> Option<FirstUser> {
    let [name, password] = ["default_user", "default_pass"].map(|key| values.words(key));
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

fn build(values: Values) -> Config {
    Config {
        data_dir: values.words("data_dir").into(),
        amqp: values.words("amqp"),
        metrics: values.text("metrics").map(str::to_owned),
        metrics_queues_max: values.number("metrics_queues_max"),
        http: values.text("http").map(str::to_owned),
        https: values.text("https").map(str::to_owned),
        companions: values.text("companions").map(names).unwrap_or_default(),
        companions_secret_file: values.text("companions_secret_file").map(PathBuf::from),
        zone: values.text("zone").map(str::to_owned),
        amqps: values.text("amqps").map(str::to_owned),
        tls: client_tls(&values),
        certificate_user: values
            .text("tls_certificate_user")
            .and_then(|text| user_from(text, values.number("tls_certificate_user_index"))),
        oauth: oauth_settings(&values),
        otlp: otlp_settings(&values),
        definitions: values.text("definitions").map(PathBuf::from),
        first_user: first_user(&values),
        loopback_users: names(&values.words("loopback_users")),
        groups: values.number("groups"),
        wal_file_bytes: values.number("wal_file_bytes"),
        commit_delay_us: values.number("commit_delay_us"),
        memory_limit: values.count("memory_limit"),
        disk_free_limit: values.number("disk_free_limit"),
        reconcile_stop: values.is_on("reconcile_stop"),
        version_max: version_max(&values.words("cluster_version_max")),
        heartbeat_s: values.number("heartbeat_s"),
        consumer_timeout_s: values.number("consumer_timeout_s"),
        frame_bytes_max: values.number("frame_bytes_max"),
        channel_max: values.number("channel_max"),
        consumers_per_channel_max: values.number("consumers_per_channel_max"),
        message_bytes_max: values.number("message_bytes_max"),
        peers: peers(&values),
        log: values.words("log"),
        values,
        ignored: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn from_file(text: &str) -> Result<Config, Vec<String>> {
        load(Some(("m.toml", text)), std::iter::empty(), &[])
    }

    fn set(text: &str) -> Result<Flag, String> {
        Flag::set(&[SETTINGS], text)
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let variables = [
            ("MILLRACE_GROUPS".to_owned(), "3".to_owned()),
            ("MILLRACE_CHANNEL_MAX".to_owned(), "9".to_owned()),
        ];
        let file = "groups = 2\nchannel_max = 5\nheartbeat_s = 7\n";
        let flags = [set("groups=4").unwrap()];
        let config = load(Some(("m.toml", file)), variables.into_iter(), &flags).unwrap();
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
        assert!(told.ends_with("serve`: MILLRACE_PORT_5672_TCP, MILLRACE_SERVICE_HOST"), "{told}");
        assert_eq!(
            set(&["MILLRACE_RELAY_CONFIG", "MILLRACE_WORK_METRICS", "MILLRACE_HTTP_URL"])
                .ignored_variables(),
            None
        );
    }

    #[test]
    fn the_version_to_come_is_for_trials_and_a_number_never_means_it() {
        let flag = |text: &str| [set(&format!("cluster_version_max={text}")).unwrap()];
        let trial = || std::iter::once((TRIAL_VARIABLE.to_owned(), "1".to_owned()));
        let refused = load(None, std::iter::empty(), &flag(TRIAL)).unwrap_err();
        assert!(refused[0].contains("for trials of upgrades"), "{refused:?}");
        assert_eq!(load(None, trial(), &flag(TRIAL)).unwrap().version_max, Version::TRIAL);
        for (text, read) in [("4", Version(4)), ("10", Version::NEWEST), ("65535", Version::NEWEST)]
        {
            assert_eq!(load(None, trial(), &flag(text)).unwrap().version_max, read);
        }
    }

    #[test]
    fn what_is_wrong_with_set_names_set_and_what_it_takes() {
        assert!(set("x").unwrap_err().contains("--set x: it must be KEY=VALUE"));
        let unknown = set("x=1").unwrap_err();
        assert!(unknown.contains("there is no setting x. The settings are: data_dir"), "{unknown}");
        let amqp = settings::setting(SETTINGS, "amqp");
        let wrong = [set("groups=0").unwrap(), Flag::named(amqp, "here".to_owned())];
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
            problems[0].starts_with("m.toml:1: log is \"inof\": \"inof\" is not a log level"),
            "{problems:?}"
        );
    }

    #[test]
    fn settings_that_changed_are_named() {
        let (old, new) =
            (from_file("groups = 3\n").unwrap(), from_file("log = \"debug\"\n").unwrap());
        let changed = new.differences(&old).map(|it| (it.key, it.is_reloaded));
        assert_eq!(changed.collect::<Vec<_>>(), [("groups", false), ("log", true)]);
        assert_eq!(old.differences(&old).count(), 0);
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
    fn companions_are_a_list_of_addresses() {
        let config = from_file("companions = \"127.0.0.1:9187, relay.local:9190\"\n").unwrap();
        assert_eq!(config.companions, ["127.0.0.1:9187", "relay.local:9190"]);
        assert!(from_file("").unwrap().companions.is_empty());
        let many = vec!["a:1"; COMPANIONS_MAX + 1].join(",");
        for (list, why) in [("relay.local", "ADDRESS:PORT"), (&*many, "at most 32")] {
            let problems = from_file(&format!("companions = \"{list}\"\n")).unwrap_err();
            assert!(problems[0].contains(why), "{problems:?}");
        }
    }

    #[test]
    fn tls_with_clients_needs_certificate_and_key() {
        for (file, why) in [
            ("amqps = \"127.0.0.1:5671\"\n", "TLS needs tls_certfile, too"),
            ("https = \"127.0.0.1:15671\"\ntls_certfile = \"c.pem\"\n", "tls_keyfile, too"),
            ("tls_keyfile = \"k.pem\"\n", "TLS needs tls_certfile, too"),
            ("tls_client_certificates = \"required\"\n", "without tls_cacertfile"),
            ("tls_client_certificates = \"perhaps\"\n", "must be optional or required"),
        ] {
            let problems = from_file(file).unwrap_err();
            assert!(problems[0].contains(why), "{file}: {problems:?}");
        }
        let file = "amqps = \"127.0.0.1:5671\"\ntls_certfile = \"c.pem\"\ntls_keyfile = \"k.pem\"\n\
                    tls_cacertfile = \"ca.pem\"\ntls_client_certificates = \"required\"\n";
        let tls = from_file(file).unwrap().tls.unwrap();
        let authority = "ca.pem".into();
        assert_eq!(tls.clients, Clients::SignedBy { authority, must_show: true });
    }

    #[test]
    fn the_user_of_a_certificate_is_said_in_our_words_or_rabbitmqs() {
        let tls =
            "tls_certfile = \"c.pem\"\ntls_keyfile = \"k.pem\"\ntls_cacertfile = \"ca.pem\"\n";
        let from = |more: &str| from_file(&format!("{tls}{more}")).unwrap().certificate_user;
        let san = |kind, index| Some(UserFrom::AlternativeName { kind, index });
        assert_eq!(from(""), None, "nobody is let in by a certificate alone who has not said so");
        for (word, expected) in [
            ("none", None),
            ("cn", Some(UserFrom::CommonName)),
            ("common_name", Some(UserFrom::CommonName)),
            ("dn", Some(UserFrom::DistinguishedName)),
            ("distinguished_name", Some(UserFrom::DistinguishedName)),
            ("san-email", san(AlternativeKind::Email, 2)),
            ("san-uri", san(AlternativeKind::Uri, 2)),
            ("subject_alternative_name", san(AlternativeKind::Dns, 2)),
        ] {
            let more =
                format!("tls_certificate_user = \"{word}\"\ntls_certificate_user_index = 2\n");
            assert_eq!(from(&more), expected, "{word}");
        }
        let wrong = from_file(&format!("{tls}tls_certificate_user = \"CN\"\n")).unwrap_err();
        assert!(wrong[0].contains("\"CN\" must be cn, dn, "), "{wrong:?}");
        let bare = from_file("tls_certificate_user = \"cn\"\n").unwrap_err();
        assert!(bare[0].contains("without tls_cacertfile"), "{bare:?}");
    }

    #[test]
    fn tokens_need_one_place_of_keys_and_the_name_of_the_broker() {
        for (file, why) in [
            ("oauth_jwks_file = \"k\"\n", "tokens need oauth_resource_server_id, too"),
            ("oauth_jwks_url = \"https://x/k\"\n", "tokens need oauth_resource_server_id, too"),
            (
                "oauth_jwks_file = \"k\"\noauth_jwks_url = \"https://x/k\"\n",
                "name one place of keys",
            ),
            ("oauth_resource_server_id = \"x\"\n", "no token is taken"),
            ("oauth_algorithms = \"RS256,HS256\"\n", "\"HS256\" must be one of RS256"),
        ] {
            let problems = from_file(file).unwrap_err();
            assert!(problems[0].contains(why), "{file}: {problems:?}");
        }
        assert_eq!(from_file("").unwrap().oauth, None);
        let file = "oauth_jwks_file = \"keys.json\"\noauth_resource_server_id = \"shop\"\n";
        let read = |more: &str| from_file(&format!("{file}{more}")).unwrap().oauth.unwrap();
        let plain = read("");
        assert_eq!(plain.source, oauth::io::Source::File("keys.json".into()));
        assert_eq!(
            (plain.rules.scope_prefix.as_str(), plain.rules.checks_audience),
            ("shop.", true)
        );
        assert_eq!(plain.rules.algorithms.len(), 9);
        let full = read(
            "oauth_scope_prefix = \"\"\noauth_verify_audience = false\n\
             oauth_additional_scopes_key = \"roles, realm_access.roles\"\noauth_algorithms = \"ES256\"\n",
        );
        assert_eq!((full.rules.scope_prefix.as_str(), full.rules.checks_audience), ("", false));
        assert_eq!(full.rules.scope_claims, ["roles", "realm_access.roles"]);
        assert_eq!(full.rules.algorithms.len(), 1);
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
        let read = from_file(&settings::reference(SETTINGS)).unwrap();
        assert_eq!(read.differences(&from_file("").unwrap()).count(), 0);
    }
}
