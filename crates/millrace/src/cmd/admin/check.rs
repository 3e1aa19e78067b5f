//! `millrace check`: one question, answered for Nagios and Kubernetes by an exit code.
//!
//! 0: ok. 1: warning. 2: critical. 3: unknown, because the question could not be asked.
#![allow(clippy::disallowed_methods, reason = "a check opens a connection, and reads the clock")]

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::api::Ask;
use super::failure::Failure;
use super::login;
use super::path::Path;
use super::resource::Vhost;
use super::session::{Session, Tone, block_on, painted, say, say_json};
use crate::table::{clean, shown};

pub(crate) const EXAMPLES: &str = "\
A readiness probe of Kubernetes; the user needs the tag management:
  millrace check ready --url http://probe@127.0.0.1:15672 --password-file /run/secrets/probe
Before a node is stopped:
  millrace check quorum-critical
A Nagios check:
  millrace check queue orders -p shop --warning 10000 --critical 100000 --consumers 1
  millrace check certificate --warning 30 --critical 7
Exit codes: 0 ok, 1 warning, 2 critical (also if no node answers), 3 unknown (wrong command line or login).";

/// How long a port may take to take a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Seconds of a day.
const DAY_S: u64 = 86_400;

/// What `millrace check` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    login: login::Options,
    #[command(flatten)]
    vhost: Vhost,
    #[command(subcommand)]
    check: Check,
}

#[derive(Subcommand)]
enum Check {
    /// The node answers, knows the login, and takes AMQP clients
    Ready,
    /// No alarm holds publishers back
    Alarms,
    /// Every group of queues would keep a majority without this node: it may be stopped
    QuorumCritical,
    /// The node listens
    Port {
        /// At this port; without it, see --protocol, or at any
        port: Option<u16>,
        /// With this protocol: amqp, amqp/ssl, http, https
        #[arg(long, conflicts_with = "port")]
        protocol: Option<String>,
        /// Connect from here, too, to the host of --url
        #[arg(long)]
        connect: bool,
    },
    /// The certificate that clients are shown is good for long enough; a node without one is ok
    Certificate {
        /// Warning if it expires within so many days
        #[arg(long, value_name = "DAYS", default_value_t = 30)]
        warning: u32,
        /// Critical if it expires within so many days
        #[arg(long, value_name = "DAYS", default_value_t = 7)]
        critical: u32,
    },
    /// A queue has few enough messages and enough consumers
    Queue {
        /// Name of the queue
        name: String,
        /// Warning from so many messages on
        #[arg(long, value_name = "COUNT")]
        warning: Option<u64>,
        /// Critical from so many messages on
        #[arg(long, value_name = "COUNT")]
        critical: Option<u64>,
        /// Critical with fewer consumers than this
        #[arg(long, value_name = "COUNT", default_value_t = 0)]
        consumers: u64,
    },
}

impl Check {
    fn name(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Alarms => "alarms",
            Self::QuorumCritical => "quorum-critical",
            Self::Port { .. } => "port",
            Self::Certificate { .. } => "certificate",
            Self::Queue { .. } => "queue",
        }
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Ok,
    Warning,
    Critical,
    Unknown,
}

/// What a check found.
struct Finding {
    level: Level,
    said: String,
}

impl Finding {
    fn ok(said: impl Into<String>) -> Self {
        Self { level: Level::Ok, said: said.into() }
    }

    fn critical(said: impl Into<String>) -> Self {
        Self { level: Level::Critical, said: said.into() }
    }

    /// Why there is no answer. A node that does not answer is as bad as one that says so.
    fn of(failure: &Failure) -> Self {
        let level = match failure {
            Failure::Away(_) => Level::Critical,
            Failure::Refused(_) | Failure::Usage(_) | Failure::Login(_) | Failure::Told => {
                Level::Unknown
            }
        };
        Self { level, said: failure.to_string() }
    }
}

/// The exit code of a wrong command line of a check: that of `unknown`.
pub(crate) const USAGE: u8 = 3;

pub(crate) fn run(args: Args) -> ExitCode {
    let Args { login, vhost, check } = args;
    let found = Session::open(&login).and_then(|mut session| {
        block_on(async { find(&mut session, vhost.name(), &check).await })?
    });
    let Finding { level, said } = found.unwrap_or_else(|failure| Finding::of(&failure));
    let (word, json_word, tone, code) = match level {
        Level::Ok => ("OK", "ok", Tone::Good, 0),
        Level::Warning => ("WARNING", "warning", Tone::Warning, 1),
        Level::Critical => ("CRITICAL", "critical", Tone::Bad, 2),
        Level::Unknown => ("UNKNOWN", "unknown", Tone::Bad, USAGE),
    };
    let name = check.name();
    let _ = match login.json {
        true => say_json(&json!({ "check": name, "status": json_word, "reason": said })),
        false => say(&format!("{} - {name}: {}", painted(word, tone), clean(&said))),
    };
    ExitCode::from(code)
}

async fn find(session: &mut Session, vhost: &str, check: &Check) -> Result<Finding, Failure> {
    match check {
        Check::Ready => match ready(session).await {
            Ok(said) => Ok(Finding::ok(said)),
            Err(Failure::Refused(why)) => Ok(Finding::critical(why)),
            Err(failure) => Err(failure),
        },
        Check::Alarms => Ok(match failed(session, &["alarms"]).await? {
            None => Finding::ok("none"),
            Some(body) => Finding::critical(alarm_words(&body)),
        }),
        Check::QuorumCritical => Ok(match failed(session, &["node-is-quorum-critical"]).await? {
            None => Finding::ok("the node may be stopped: every group keeps a majority"),
            Some(_) => Finding::critical(
                "without this node some groups of queues have no majority: bring the other nodes back first \
                     (`millrace cluster status`)",
            ),
        }),
        Check::Port { port, protocol, connect } => {
            listening(session, *port, protocol.as_deref(), *connect).await
        }
        Check::Certificate { warning, critical } => certificate(session, *warning, *critical).await,
        Check::Queue { name, warning, critical, consumers } => {
            let label = super::deed::in_vhost("queue", name, vhost);
            let queue = session.api.get(Path::of(&["queues", vhost, name]), &label).await?;
            Ok(judge_queue(&queue, *warning, *critical, *consumers))
        }
    }
}

/// That the node answers, knows the login, and takes clients.
///
/// # Errors
/// What is missing: `Refused` if the node takes no clients yet.
pub(crate) async fn ready(session: &mut Session) -> Result<String, Failure> {
    let user = session.api.get(Path::of(&["whoami"]), "who this is").await?;
    for protocol in ["amqp", "amqp/ssl"] {
        if failed(session, &["protocol-listener", protocol]).await?.is_none() {
            let user = shown(user["name"].as_str().unwrap_or_default());
            let place = session.api.login().address.place();
            return Ok(format!("{place} answers {user} and takes AMQP clients"));
        }
    }
    Err(Failure::Refused("the node takes no AMQP clients yet".to_owned()))
}

/// What the node says if one of its health checks fails; `None` if it does not.
pub(crate) async fn failed(
    session: &mut Session,
    check: &[&str],
) -> Result<Option<Value>, Failure> {
    let ask = Ask::get(Path::of(&[&["health", "checks"][..], check].concat()), "the health check");
    let answer = session.api.ask(&ask).await?;
    match answer.status == StatusCode::SERVICE_UNAVAILABLE && answer.body["status"] == "failed" {
        true => Ok(Some(answer.body)),
        false => session.api.judged(&ask, answer).map(|_| None),
    }
}

/// Which alarms, on which nodes.
pub(crate) fn alarm_words(body: &Value) -> String {
    let alarms = body["alarms"].as_array().map(Vec::as_slice).unwrap_or_default();
    let words: Vec<String> = alarms
        .iter()
        .map(|alarm| {
            let text = |field: &str| shown(alarm[field].as_str().unwrap_or("unknown"));
            format!("{} alarm on {}", text("resource"), text("node"))
        })
        .collect();
    if words.is_empty() { "there are alarms".to_owned() } else { words.join(", ") }
}

async fn listening(
    session: &mut Session,
    port: Option<u16>,
    protocol: Option<&str>,
    connect: bool,
) -> Result<Finding, Failure> {
    let overview = session.api.get(Path::of(&["overview"]), "the node's listeners").await?;
    let listeners = overview["listeners"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_meant = |listener: &&Value| {
        let has_port = port.is_none_or(|port| listener["port"] == port);
        has_port && protocol.is_none_or(|protocol| listener["protocol"] == protocol)
    };
    let found: Vec<(String, u16)> = listeners
        .iter()
        .filter(is_meant)
        .filter_map(|listener| {
            let port = u16::try_from(listener["port"].as_u64()?).ok()?;
            Some((shown(listener["protocol"].as_str()?), port))
        })
        .collect();
    if found.is_empty() {
        let port = port.map_or_else(String::new, |port| format!(" at port {port}"));
        let protocol = protocol.map_or_else(String::new, |it| format!(" with {}", shown(it)));
        return Ok(Finding::critical(format!("the node does not listen{port}{protocol}")));
    }
    let host = session.api.login().address.host.clone();
    for (protocol, port) in found.iter().filter(|_| connect) {
        let tried = TcpStream::connect((host.as_str(), *port));
        let why = match tokio::time::timeout(CONNECT_WAIT, tried).await {
            Ok(Ok(_)) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no connection within {CONNECT_WAIT:?}"),
        };
        return Ok(Finding::critical(format!(
            "the node listens at {port} ({protocol}), and {host}:{port} is not reached from here: {why}"
        )));
    }
    let words: Vec<String> =
        found.iter().map(|(protocol, port)| format!("{protocol} at {port}")).collect();
    let reached = if connect { ", reached from here" } else { "" };
    Ok(Finding::ok(format!("{}{reached}", words.join(", "))))
}

async fn certificate(
    session: &mut Session,
    warning: u32,
    critical: u32,
) -> Result<Finding, Failure> {
    for (days, level) in [(critical, Level::Critical), (warning, Level::Warning)] {
        let expiring = expiring(session, days).await?;
        if let Some(said) = expiring {
            return Ok(Finding { level, said });
        }
    }
    let days = warning.max(critical);
    Ok(Finding::ok(format!("none of the node's certificates expires within {days} days")))
}

/// What expires within so many days; `None`: nothing.
pub(crate) async fn expiring(session: &mut Session, days: u32) -> Result<Option<String>, Failure> {
    let check = ["certificate-expiration", &days.to_string(), "days"];
    let Some(body) = failed(session, &check).await? else { return Ok(None) };
    let end_s = body["expired"][0]["not_after"].as_u64();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(Some(match end_s {
        Some(end_s) if end_s <= now => {
            "the certificate that clients are shown has expired".to_owned()
        }
        Some(end_s) => {
            let left = (end_s - now) / DAY_S;
            format!("the certificate that clients are shown expires in {left} days")
        }
        None => format!("a certificate expires within {days} days"),
    }))
}

fn judge_queue(
    queue: &Value,
    warning: Option<u64>,
    critical: Option<u64>,
    consumers_min: u64,
) -> Finding {
    let (Some(messages), Some(consumers)) =
        (queue["messages"].as_u64(), queue["consumers"].as_u64())
    else {
        return Finding::critical(
            "the queue's leader does not answer: see `millrace cluster status`",
        );
    };
    let said = format!("{messages} messages, {consumers} consumers");
    let reaches = |bound: Option<u64>| bound.is_some_and(|bound| messages >= bound);
    let level = if consumers < consumers_min || reaches(critical) {
        Level::Critical
    } else if reaches(warning) {
        Level::Warning
    } else {
        Level::Ok
    };
    Finding { level, said }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_judged_by_its_bounds() {
        let queue = json!({ "messages": 50, "consumers": 1 });
        let level =
            |warning, critical, consumers| judge_queue(&queue, warning, critical, consumers).level;
        assert_eq!(level(None, None, 0), Level::Ok);
        assert_eq!(level(Some(51), Some(100), 1), Level::Ok);
        assert_eq!(level(Some(50), Some(100), 1), Level::Warning);
        assert_eq!(level(Some(10), Some(50), 1), Level::Critical);
        assert_eq!(level(None, None, 2), Level::Critical);
        assert_eq!(judge_queue(&json!({}), None, None, 0).level, Level::Critical);
    }

    #[test]
    fn a_node_that_is_away_is_critical_and_a_wrong_login_unknown() {
        let why = || "why".to_owned();
        assert_eq!(Finding::of(&Failure::Away(why())).level, Level::Critical);
        for failure in [Failure::Login(why()), Failure::Usage(why()), Failure::Refused(why())] {
            assert_eq!(Finding::of(&failure).level, Level::Unknown);
        }
    }
}
