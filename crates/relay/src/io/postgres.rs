//! Connections to PostgreSQL: the URL as libpq reads it, TLS that is always verified.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::{CertificateError, ClientConfig};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::{MakeTlsConnect, NoTlsStream};
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::Error;

/// How long a connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of every session: what the relay reads as text must look the same everywhere, and the plans it wants
/// are those along the order of the index.
const SESSION: &str = "SET DateStyle = 'ISO'; SET IntervalStyle = 'iso_8601'; SET TimeZone = 'UTC'; \
    SET extra_float_digits = 1; SET bytea_output = 'hex'; SET jit = off; SET client_min_messages = warning; \
    SET synchronous_commit = on; SET statement_timeout = 0; SET lock_timeout = 0; \
    SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off";

/// What is said where the server has no TLS.
pub(crate) const NO_TLS: &str = "the server does not speak TLS: turn on `ssl` there, or add \
    sslmode=disable to the database URL";

/// What tokio-postgres says then.
const NO_TLS_TOLD: &str = "server does not support TLS";

/// Where the database is, and how to speak to it.
#[derive(Clone, Debug)]
pub struct Database {
    config: tokio_postgres::Config,
    tls: Option<TlsFiles>,
}

/// Files of the URL's `sslrootcert`, `sslcert` and `sslkey`.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    pub root: Option<String>,
    pub cert: Option<String>,
    pub key: Option<String>,
}

/// One host of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// What its certificate must be for.
    pub(crate) name: String,
    /// Where it is reached: a name, an address, or the directory of a Unix socket.
    pub(crate) address: String,
    pub(crate) port: u16,
}

impl Database {
    /// Reads `postgres://user:password@host:port/name?sslmode=…&sslrootcert=…`.
    ///
    /// TLS is verified, chain and name, whenever it is used; without `sslmode` it is used unless the host is
    /// this machine. `disable` turns it off.
    ///
    /// # Errors
    /// It is not such a URL, or it asks for TLS that would not be verified.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let (plain, options) = split_tls_options(url);
        let bad = |why: String| {
            Error::setup(format!(
                "the database URL: {why} (it reads postgres://user:password@host:5432/database)"
            ))
        };
        let mut config: tokio_postgres::Config =
            plain.parse().map_err(|error: tokio_postgres::Error| bad(words(&error)))?;
        config.connect_timeout(CONNECT_TIMEOUT);
        config.keepalives_idle(Duration::from_secs(30));
        config.tcp_user_timeout(Duration::from_secs(30));
        let mut files = TlsFiles::default();
        let mut mode = None;
        for (key, value) in options {
            match key.as_str() {
                "sslrootcert" => files.root = Some(value),
                "sslcert" => files.cert = Some(value),
                "sslkey" => files.key = Some(value),
                _ => mode = Some(value),
            }
        }
        let is_local = config.get_hosts().iter().all(is_local)
            && config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback);
        let wants_tls = match mode.as_deref() {
            Some("disable") => false,
            Some("allow" | "prefer") => {
                return Err(bad("sslmode allow and prefer verify nothing: use verify-full, \
                                or disable"
                    .into()));
            }
            // Stricter than libpq: every one of these verifies chain and name.
            Some("require" | "verify-ca" | "verify-full") => true,
            Some(other) => return Err(bad(format!("sslmode `{other}` is unknown"))),
            None => !is_local || files.root.is_some(),
        };
        config.ssl_mode(if wants_tls { SslMode::Require } else { SslMode::Disable });
        Ok(Self { config, tls: wants_tls.then_some(files) })
    }

    /// The parts of the URL.
    pub fn config(&self) -> &tokio_postgres::Config {
        &self.config
    }

    /// Files for TLS; none: no TLS.
    pub fn tls(&self) -> Option<&TlsFiles> {
        self.tls.as_ref()
    }

    /// Opens a connection under `name` (application_name) and drives it in a task of its own.
    ///
    /// # Errors
    /// In words: where to, and what the server or the system said.
    pub async fn connect(&self, name: &str) -> Result<Client, Error> {
        self.open(name, is_temporary).await
    }

    /// Whether the settings lead to the database. A server that is away says nothing of that: it is there later.
    ///
    /// # Errors
    /// A wrong login; a certificate that is not believed, which a relay that runs would wait for to be better.
    pub(crate) async fn check(&self, name: &str) -> Result<(), Error> {
        match self.open(name, |error| is_temporary(error) && !is_of_tls(error)).await {
            Err(error) if error.is_temporary() => {
                tracing::warn!(%error, "waiting for the database");
                Ok(())
            }
            checked => checked.map(drop),
        }
    }

    async fn open(
        &self,
        name: &str,
        is_temporary: impl Fn(&tokio_postgres::Error) -> bool,
    ) -> Result<Client, Error> {
        let mut config = self.config.clone();
        config.application_name(name);
        let failed = |error: tokio_postgres::Error| Error::Database {
            doing: format!("connecting to {}", self.address()),
            text: words(&error),
            is_temporary: is_temporary(&error),
        };
        let client = match &self.tls {
            None => {
                let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
                drive(connection);
                client
            }
            Some(files) => {
                let tls = MakeRustlsConnect::new(files.client_config()?);
                let (client, connection) = config.connect(tls).await.map_err(failed)?;
                drive(connection);
                client
            }
        };
        client.batch_execute(SESSION).await.map_err(|error| database("setting up", &error))?;
        Ok(client)
    }

    /// A connection whose messages the caller polls: for LISTEN.
    ///
    /// # Errors
    /// As [`Database::connect`].
    pub(crate) async fn connect_to_listen(&self) -> Result<(Client, Messages), Error> {
        let mut config = self.config.clone();
        config.application_name("millrace-relay-listen");
        let failed = |error: tokio_postgres::Error| database("connecting to listen", &error);
        Ok(match &self.tls {
            None => {
                let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
                (client, Messages::Plain(Box::new(connection)))
            }
            Some(files) => {
                let tls = MakeRustlsConnect::new(files.client_config()?);
                let (client, connection) = config.connect(tls).await.map_err(failed)?;
                (client, Messages::Tls(Box::new(connection)))
            }
        })
    }

    /// Whether the URL names several: which of them it is, is known only when one has answered.
    pub(crate) fn has_several_hosts(&self) -> bool {
        self.config.get_hosts().len().max(self.config.get_hostaddrs().len()) > 1
    }

    /// The first host of the URL.
    pub(crate) fn place(&self) -> Place {
        let address = self.config.get_hostaddrs().first().map(ToString::to_string);
        let name = match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => address.clone().unwrap_or_else(|| "localhost".into()),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        Place { address: address.unwrap_or_else(|| name.clone()), name, port }
    }

    /// Host and port, for errors.
    pub fn address(&self) -> String {
        let place = self.place();
        format!("{}:{}", place.name, place.port)
    }
}

type TlsStream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// A connection that is driven by polling for its messages.
pub(crate) enum Messages {
    Plain(Box<Connection<Socket, NoTlsStream>>),
    Tls(Box<Connection<Socket, TlsStream>>),
}

impl Messages {
    pub(crate) fn poll_message(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<AsyncMessage, tokio_postgres::Error>>> {
        match self {
            Self::Plain(connection) => connection.poll_message(context),
            Self::Tls(connection) => connection.poll_message(context),
        }
    }
}

impl TlsFiles {
    pub(crate) fn client_config(&self) -> Result<ClientConfig, Error> {
        let root = self.root.as_ref().map(Path::new);
        let roots = certificates::authorities(root).map_err(|why| match root {
            Some(_) => in_url(&why),
            None => Error::setup(format!("{why} with sslrootcert=FILE in the database URL")),
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::setup(format!("TLS cannot be set up: {error}")))?
            .with_root_certificates(roots);
        match (&self.cert, &self.key) {
            (None, None) => Ok(builder.with_no_client_auth()),
            (Some(cert), Some(key)) => {
                let file = certificates::key(Path::new(key)).map_err(|why| in_url(&why))?;
                let chain = certificates::chain(Path::new(cert)).map_err(|why| in_url(&why))?;
                builder
                    .with_client_auth_cert(chain, file)
                    .map_err(|error| Error::setup(format!("{cert} and {key} do not fit: {error}")))
            }
            _ => Err(Error::setup("sslcert and sslkey of the database URL need each other")),
        }
    }
}

/// What is wrong with a file of the database URL.
fn in_url(why: &str) -> Error {
    Error::setup(format!("the database URL: {why}"))
}

/// Connects under `name`; the URL as [`Database::parse`] reads it.
///
/// # Errors
/// As [`Database::parse`] and [`Database::connect`].
pub async fn connect(url: &str, name: &str) -> Result<Client, Error> {
    Database::parse(url)?.connect(name).await
}

fn drive<S, T>(connection: Connection<S, T>)
where
    Connection<S, T>: Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
    S: 'static,
    T: 'static,
{
    tokio::spawn(async move {
        // Whoever uses the client is told too.
        if let Err(error) = connection.await {
            tracing::debug!(error = words(&error), "a connection to the database ended");
        }
    });
}

/// The URL without what tokio-postgres does not know, and that.
pub(super) fn split_tls_options(url: &str) -> (String, Vec<(String, String)>) {
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), Vec::new()) };
    let mut kept = Vec::new();
    let mut options = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match key {
            "sslmode" | "sslrootcert" | "sslcert" | "sslkey" => {
                options.push((key.to_owned(), value.replace("%2F", "/").replace("%2f", "/")));
            }
            _ => kept.push(pair),
        }
    }
    let base = base.to_owned();
    let url = if kept.is_empty() { base } else { format!("{base}?{}", kept.join("&")) };
    (url, options)
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost"
                || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

/// An error of `doing` something at the database.
pub(crate) fn database(doing: &str, error: &tokio_postgres::Error) -> Error {
    Error::Database { doing: doing.into(), text: words(error), is_temporary: is_temporary(error) }
}

/// What a connection pooler makes impossible, and what to do.
pub(crate) const POOLER: &str = "a connection pooler gives each transaction another session (pool_mode = transaction or \
    statement), and the relay's locks, settings and prepared statements live in one: give it the URL of PostgreSQL itself, \
    or of a pool with pool_mode = session";

/// What the server said, with its hint and SQLSTATE; else what the system said.
pub(crate) fn words(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        let mut text = format!("{} ({})", db.message(), db.code().code());
        // A prepared statement that is not there, or is there already: it was made in another session.
        if matches!(db.code().code(), "26000" | "42P05") {
            text += &format!("; probably {POOLER}");
        }
        for (what, more) in [("detail", db.detail()), ("hint", db.hint())] {
            if let Some(more) = more {
                text += &format!("; {what}: {more}");
            }
        }
        return text;
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let inner_text = match inner.downcast_ref::<io::Error>() {
            Some(error) => tls_words(error),
            None if inner.to_string() == NO_TLS_TOLD => NO_TLS.into(),
            None => inner.to_string(),
        };
        if !text.contains(&inner_text) {
            text += &format!(": {inner_text}");
        }
        source = inner.source();
    }
    text
}

/// What went wrong with a connection; of a certificate that is not believed, why, and what to do.
pub(crate) fn tls_words(error: &io::Error) -> String {
    let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match refused {
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => "the server's certificate is not signed by an authority that is trusted here: name the file of the \
               one that signed it with sslrootcert=FILE in the database URL"
            .into(),
        Some(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            expected,
            presented,
        })) => {
            // They come as `DnsName("a.example")`.
            let bare = |name: &String| name.split('"').nth(1).unwrap_or(name).to_owned();
            let names: Vec<String> = presented.iter().map(bare).collect();
            format!(
                "the server's certificate is for {}, and not for {}: connect by a name that it is for",
                names.join(", "),
                expected.to_str()
            )
        }
        Some(rustls::Error::InvalidCertificate(other)) => {
            format!("the server's certificate is not believed: {other}")
        }
        Some(rustls::Error::AlertReceived(alert)) => {
            format!("the server refuses the TLS connection ({alert:?}): it may want sslcert and sslkey, or others")
        }
        Some(_) | None => error.to_string(),
    }
}

/// Whether the data of some row is to blame: a constraint, a policy or a trigger refuses it, or a value does not fit.
/// Other rows may pass.
pub(crate) fn is_of_a_row(error: &tokio_postgres::Error) -> bool {
    let db = error.as_db_error();
    db.is_some_and(|db| is_state_of_a_row(db.code().code(), db.routine()))
}

/// By the SQLSTATE, and the routine of the server that said it. A trigger may give any state to its objection, so all
/// are of a row but those that the server gives to something else.
fn is_state_of_a_row(state: &str, routine: Option<&str>) -> bool {
    match state.get(..2).unwrap_or_default() {
        // The connection, a transaction, a resource, a lock, a stop, the server itself.
        "08" | "25" | "40" | "53" | "55" | "57" | "58" | "72" | "XX" => false,
        // What is missing or not allowed, whatever the row: a table, a column, a function, a role, a statement.
        "0A" | "0L" | "0P" | "24" | "26" | "28" | "2B" | "2D" | "34" | "39" | "3B" | "3D"
        | "3F" | "F0" | "HV" => false,
        // A missing privilege has the state of a row that a policy refuses.
        "42" => state == "42501" && routine == Some("ExecWithCheckOptions"),
        // 21 to 23: a constraint or a value. 27: a trigger changed the row. 44: WITH CHECK OPTION. 54: an index entry
        // that is too long. P0: RAISE in a trigger. 45 and others: RAISE with a state of somebody's own.
        _ => true,
    }
}

/// Whether the two could not agree on TLS: a certificate that is not believed, or no TLS there.
fn is_of_tls(error: &tokio_postgres::Error) -> bool {
    let sources = std::iter::successors(std::error::Error::source(error), |inner| inner.source());
    sources.into_iter().any(|inner| match inner.downcast_ref::<io::Error>() {
        Some(error) => error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()),
        None => inner.to_string() == NO_TLS_TOLD,
    })
}

/// Whether the same may work later: the connection, a resource, a lock; not a wrong statement or password.
pub(crate) fn is_temporary(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        None => true,
        Some(code) => {
            let class = code.code().get(..2).unwrap_or_default();
            // 0A000: a plan that no longer fits a changed table; classes 21 to 23: one row's data, not the setting.
            matches!(
                class,
                "08" | "0A" | "21" | "22" | "23" | "25" | "40" | "53" | "55" | "57" | "58" | "XX"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_verified_by_default_wherever_the_host_is_not_this_machine() {
        let uses_tls = |url: &str| Database::parse(url).map(|database| database.tls.is_some());
        assert_eq!(uses_tls("postgres://u@localhost/d"), Ok(false));
        assert_eq!(uses_tls("postgres://u@127.0.0.2:5433/d"), Ok(false));
        assert_eq!(uses_tls("postgres://u@db.example.com/d"), Ok(true));
        assert_eq!(uses_tls("postgres://u@db.example.com/d?sslmode=disable"), Ok(false));
        assert_eq!(uses_tls("postgres://u@localhost/d?sslmode=verify-full"), Ok(true));
        for mode in ["prefer", "allow", "off"] {
            let url = format!("postgres://u@db.example.com/d?sslmode={mode}");
            assert!(uses_tls(&url).is_err(), "{mode}");
        }
    }

    #[test]
    fn a_row_is_to_blame_for_what_refuses_it_and_not_for_what_is_missing_or_away() {
        for state in ["22021", "23505", "23514", "21000", "27000", "44000", "54000", "P0001"] {
            assert!(is_state_of_a_row(state, None), "{state}");
        }
        for state in ["45000", "U0001", "ZZ999", "38000"] {
            assert!(is_state_of_a_row(state, Some("exec_stmt_raise")), "a trigger's own: {state}");
        }
        for state in ["08006", "25P03", "40001", "53100", "55P03", "57014", "58030", "XX000"] {
            assert!(!is_state_of_a_row(state, None), "it may pass: {state}");
        }
        for state in ["42P01", "42703", "42883", "3F000", "0A000", "26000", "28000", "39P01"] {
            assert!(!is_state_of_a_row(state, None), "set-up: {state}");
        }
        assert!(is_state_of_a_row("42501", Some("ExecWithCheckOptions")), "a policy of the table");
        assert!(!is_state_of_a_row("42501", Some("aclcheck_error")), "a missing GRANT");
    }

    #[test]
    fn options_of_the_connection_stay_in_the_url() {
        let (url, options) =
            split_tls_options("postgres://h/d?connect_timeout=3&sslmode=require&sslrootcert=%2Fca");
        assert_eq!(url, "postgres://h/d?connect_timeout=3");
        let options: Vec<&str> = options.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(options, ["require", "/ca"]);
    }
}
