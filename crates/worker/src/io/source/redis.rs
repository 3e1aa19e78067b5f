//! What both Redis sources share: settings, connections, scripts, and errors in words.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, IntoConnectionInfo, RedisError, Value};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::backoff::chance;
use crate::error::Error;
use crate::io::secret;
use crate::limits::{FETCHERS_MAX, REDIS_BATCH_MAX};
use crate::source::redis::setup_problem;
use crate::value::{Secret, Time};

/// How long a call that does not wait may take.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a fetch waits for the first job.
pub(super) const WAIT: Duration = Duration::from_secs(1);
/// How often delayed jobs are looked at, at least.
pub(super) const MOVE_EVERY: Duration = Duration::from_millis(100);

/// Where a Redis is.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// `redis://HOST:PORT/DB`, `rediss://…` with TLS, or `unix:///PATH`. Without a password.
    pub url: String,
    /// The user; none: Redis' default one.
    #[serde(default)]
    pub username: Option<String>,
    /// The password; none: Redis asks for none.
    #[serde(default)]
    pub password: Option<Secret>,
    /// A certificate authority (PEM) instead of the machine's.
    #[serde(default)]
    pub ca: Option<PathBuf>,
}

impl Server {
    /// What is wrong with it.
    pub fn problems(&self) -> Vec<String> {
        match self.url.as_str().into_connection_info() {
            Err(error) => vec![format!("url: {error}: write redis://HOST:6379/0")],
            Ok(info) if info.redis_settings().password().is_some() => {
                vec!["url: write the password into `password`, so that it is never shown".into()]
            }
            Ok(_) => Vec::new(),
        }
    }

    pub(crate) fn client(&self) -> Result<Client, Error> {
        let wrong = |error: RedisError| Error::setup(format!("the Redis URL is wrong: {error}"));
        let info = self.url.as_str().into_connection_info().map_err(wrong)?;
        let mut settings = info.redis_settings().clone();
        if let Some(username) = &self.username {
            settings = settings.set_username(username);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(secret::read(password)?);
        }
        let info = info.set_redis_settings(settings);
        if !self.url.starts_with("rediss:") {
            return Client::open(info).map_err(wrong);
        }
        // It is set already where another part of the process was first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let root_cert = match &self.ca {
            None => None,
            Some(path) => Some(std::fs::read(path).map_err(|error| {
                Error::setup(format!("certificate authority {}: {error}", path.display()))
            })?),
        };
        let certificates = redis::TlsCertificates { client_tls: None, root_cert };
        Client::build_with_tls(info, certificates).map_err(wrong)
    }
}

/// What both sources can be told.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// `redis://HOST:PORT/DB`, `rediss://…` with TLS, or `unix:///PATH`. Without a password.
    pub url: String,
    /// The user; none: Redis' default one.
    #[serde(default)]
    pub username: Option<String>,
    /// The password; none: Redis asks for none.
    #[serde(default)]
    pub password: Option<Secret>,
    /// A certificate authority (PEM) instead of the machine's.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// The stream's or the list's key.
    pub queue: String,
    /// Streams: the consumer group. Default `millrace`.
    #[serde(default = "default_group")]
    pub group: String,
    /// Streams: how long a job is this worker's before another one takes it, unless it is renewed. Lists: how long a
    /// worker may give no sign of life. 1 s to 12 h, default 60 s.
    #[serde(default = "default_lease")]
    pub lease: Time,
    /// Calls that fetch at the same time. 1 to 64, default 1.
    #[serde(default = "one")]
    pub fetchers: usize,
    /// Jobs per call, fetched or settled. 1 to 1000, default 256.
    #[serde(default = "default_batch")]
    pub batch: usize,
    /// How long a settlement waits for company while a call is free. Up to 1 s, default none: settlements gather
    /// while the call before them is under way.
    #[serde(default = "no_time")]
    pub settle_after: Time,
    /// Lists: the side that jobs are taken from: `right` (publishers use LPUSH, as Celery and Sidekiq do) or `left`
    /// (RPUSH). Default `right`.
    #[serde(default)]
    pub take_from: Side,
}

/// A side of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Left,
    #[default]
    Right,
}

impl Side {
    /// As scripts are told.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Left => "LEFT",
            Self::Right => "RIGHT",
        }
    }
}

fn default_group() -> String {
    "millrace".into()
}

fn default_lease() -> Time {
    Time(Duration::from_secs(60))
}

fn no_time() -> Time {
    Time(Duration::ZERO)
}

fn one() -> usize {
    1
}

fn default_batch() -> usize {
    256
}

impl Settings {
    /// What is wrong with them.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.server().problems();
        let mut check = |is_good: bool, problem: &str| {
            if !is_good {
                problems.push(problem.to_owned());
            }
        };
        check(!self.queue.is_empty(), "queue: write the key of the stream or list");
        check(!self.group.is_empty(), "group: write a name");
        let lease = self.lease.0;
        let is_lease = lease >= Duration::from_secs(1) && lease <= Duration::from_secs(12 * 3600);
        check(is_lease, "lease: write 1s to 12h");
        check((1..=FETCHERS_MAX).contains(&self.fetchers), "fetchers: write 1 to 64");
        check((1..=REDIS_BATCH_MAX).contains(&self.batch), "batch: write 1 to 1000");
        check(self.settle_after.0 <= Duration::from_secs(1), "settle_after: write at most 1s");
        problems
    }

    /// Where the Redis is.
    pub fn server(&self) -> Server {
        Server {
            url: self.url.clone(),
            username: self.username.clone(),
            password: self.password.clone(),
            ca: self.ca.clone(),
        }
    }
}

/// A name for this worker that no other has: the process, and chance.
pub(super) fn worker_name() -> String {
    format!("{}-{:016x}", std::process::id(), chance())
}

/// Connections to one Redis: one per line, each used for one call at a time, made again after a failure.
#[derive(Debug)]
pub(crate) struct Lines {
    client: Client,
    lines: Vec<Mutex<Option<MultiplexedConnection>>>,
}

impl Lines {
    pub(crate) fn new(client: Client, count: usize) -> Self {
        Self { client, lines: (0..count).map(|_| Mutex::new(None)).collect() }
    }

    /// Asks one command.
    pub(crate) async fn ask(&self, line: usize, command: &Cmd) -> Result<Value, RedisError> {
        let mut line = self.lines[line].lock().await;
        let connection = self.connected(&mut line).await?;
        let result = command.query_async(connection).await;
        Self::keep_if_sound(&mut line, result)
    }

    /// Runs a script.
    pub(crate) async fn run(
        &self,
        line: usize,
        script: &redis::Script,
        keys: &[&str],
        args: &[Bytes],
    ) -> Result<Value, RedisError> {
        let mut call = script.prepare_invoke();
        for key in keys {
            call.key(*key);
        }
        for arg in args {
            call.arg(&arg[..]);
        }
        let mut line = self.lines[line].lock().await;
        let connection = self.connected(&mut line).await?;
        let result = call.invoke_async(connection).await;
        Self::keep_if_sound(&mut line, result)
    }

    async fn connected<'a>(
        &self,
        line: &'a mut Option<MultiplexedConnection>,
    ) -> Result<&'a mut MultiplexedConnection, RedisError> {
        if line.is_none() {
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(CONNECT_MAX))
                .set_response_timeout(Some(ANSWER_MAX));
            let made = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            *line = Some(made);
        }
        Ok(line.as_mut().expect("it was made"))
    }

    /// A connection whose answer did not come is not used again.
    fn keep_if_sound(
        line: &mut Option<MultiplexedConnection>,
        result: Result<Value, RedisError>,
    ) -> Result<Value, RedisError> {
        if let Err(error) = &result
            && (error.code().is_none() || error.is_unrecoverable_error())
        {
            *line = None;
        }
        result
    }
}

/// A failure in the worker's words.
pub(crate) fn failure(doing: &str, error: &RedisError) -> Error {
    let text = error.to_string();
    if error.kind() == ErrorKind::AuthenticationFailed {
        return setup(doing, setup_problem("WRONGPASS", ""), &text);
    }
    match setup_problem(error.code().unwrap_or_default(), &text) {
        None => Error::away(doing, text),
        problem => setup(doing, problem, &text),
    }
}

fn setup(doing: &str, problem: Option<&str>, text: &str) -> Error {
    Error::setup(format!("{doing}: {} ({text})", problem.unwrap_or_default()))
}

/// An answer that does not look as Redis answers.
pub(super) fn strange(doing: &str, value: &Value) -> Error {
    let mut text = format!("{value:?}");
    text.truncate(text.floor_char_boundary(200));
    Error::away(doing, format!("Redis answered in a strange way: {text}"))
}

/// Bytes of an answer.
pub(crate) fn bytes(value: Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(Bytes::from(bytes)),
        Value::SimpleString(text) => Some(Bytes::from(text)),
        Value::Int(number) => Some(Bytes::from(number.to_string())),
        _ => None,
    }
}

/// Text of an answer.
pub(crate) fn text(value: Value) -> Option<String> {
    String::from_utf8(bytes(value)?.to_vec()).ok()
}

/// A list of an answer; nothing is an empty one.
pub(crate) fn list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(values) => Some(values),
        Value::Nil | Value::Boolean(false) => Some(Vec::new()),
        _ => None,
    }
}

/// A number of an answer.
pub(crate) fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

/// An entry of a stream: its id, and its fields.
pub(crate) fn entry(value: Value) -> Option<(String, Vec<(Bytes, Bytes)>)> {
    let mut parts = list(value)?.into_iter();
    let id = text(parts.next()?)?;
    let values = list(parts.next()?)?;
    let mut fields = Vec::with_capacity(values.len() / 2);
    let mut values = values.into_iter();
    while let (Some(name), Some(value)) = (values.next(), values.next()) {
        fields.push((bytes(name)?, bytes(value)?));
    }
    Some((id, fields))
}

/// Warns once where Redis may forget what it has confirmed.
pub(super) async fn warn_of_durability(lines: &Lines, source: &str) {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg("append*");
    // Some providers forbid it: then nobody can say.
    let Ok(answer) = lines.ask(0, &command).await else { return };
    let Some(values) = list(answer) else { return };
    let values: Vec<String> = values.into_iter().filter_map(text).collect();
    let of = |name: &str| {
        let at = values.iter().position(|value| value == name)?;
        values.get(at + 1).cloned()
    };
    let is_safe = of("appendonly").as_deref() == Some("yes")
        && of("appendfsync").as_deref() == Some("always");
    if !is_safe {
        tracing::warn!(
            source,
            "Redis may forget jobs and settlements in a power cut; set `appendonly yes` and `appendfsync always`"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        toml::from_str(text).expect("it is right")
    }

    #[test]
    fn settings_have_bounds_and_say_them() {
        let good = settings("url = 'redis://localhost:6379/0'\nqueue = 'jobs'");
        assert!(good.problems().is_empty(), "{:?}", good.problems());
        let bad = settings(
            "url = 'redis://:canary@localhost'\nqueue = ''\nlease = '1ms'\nfetchers = 0\nbatch = 5000\n\
             settle_after = '2s'\ngroup = ''",
        );
        let problems = bad.problems();
        assert_eq!(problems.len(), 7, "{problems:?}");
        assert!(!problems.concat().contains("canary"), "a password is never shown");
    }

    #[test]
    fn a_password_is_never_shown() {
        let settings = settings("url = 'redis://localhost'\nqueue = 'q'\npassword = 'canary'");
        assert!(!format!("{settings:?}").contains("canary"));
    }
}
