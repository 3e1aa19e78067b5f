//! Connections to MariaDB and MySQL: the same words in the URL as for PostgreSQL, and TLS that is always verified.

use std::path::PathBuf;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{
    ClientIdentity, Conn, Error as MyError, Opts, OptsBuilder, Params, SslOpts, Value,
};

use crate::error::Error;
use crate::io::postgres::split_tls_options;
use crate::mysql::is_mysql;

/// How long a connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// After so long without a word the system asks whether the server is there.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// The largest event of the binlog that is taken: MariaDB has no larger rows.
const LOG_EVENT_BYTES_MAX: usize = 1 << 30;
/// Statements that a session keeps prepared. Those that name rows come in fourteen lengths each.
const STATEMENTS_MAX: usize = 256;
/// Settings of every session. Each statement sees what is committed when it begins, and locks the rows that it finds, not
/// the gaps between them.
const SESSION: [&str; 2] = [
    "SET time_zone = '+00:00', autocommit = 1",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
];

/// MariaDB would make a table of a long list of ids, and join it: rows are to be found by their index.
const LISTS: &str = "SET in_predicate_conversion_threshold = 0";

/// Where the database is, and how to speak to it.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    opts: Opts,
}

impl Database {
    /// Reads `mysql://user:password@host:3306/name?sslmode=…&sslrootcert=…`, or `mariadb://…`.
    ///
    /// # Errors
    /// It is not such a URL, names no database, or asks for TLS that would not be verified.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let bad = |why: String| {
            Error::setup(format!(
                "the database URL: {why} (it reads mysql://user:password@host:3306/database)"
            ))
        };
        let (plain, options) = split_tls_options(url);
        let rest = plain.split_once("://").filter(|_| is_mysql(url)).map(|(_, rest)| rest);
        let plain = format!("mysql://{}", rest.ok_or_else(|| bad("it is no such URL".into()))?);
        let opts = Opts::from_url(&plain).map_err(|error| bad(error.to_string()))?;
        if opts.db_name().is_none_or(str::is_empty) {
            return Err(bad("it names no database".into()));
        }
        let tls = Tls::read(options, is_local(opts.ip_or_hostname())).map_err(bad)?;
        if tls.is_some() {
            // The driver asks the process; another part of it may have said so already.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let builder = OptsBuilder::from_opts(opts)
            .ssl_opts(tls.map(Tls::options).transpose()?)
            // How many rows fit, not how many became others.
            .client_found_rows(true)
            // Whatever the server offers: the URL's host is the one whose certificate is verified.
            .prefer_socket(false)
            .tcp_keepalive(Some(KEEPALIVE))
            .stmt_cache_size(STATEMENTS_MAX);
        Ok(Self { opts: builder.into() })
    }

    /// The same, where a statement's count is of the rows that it changed, not of those that it found.
    pub(crate) fn counting_changes(self) -> Self {
        Self { opts: OptsBuilder::from_opts(self.opts).client_found_rows(false).into() }
    }

    /// The database that the URL names.
    pub(crate) fn schema(&self) -> &str {
        self.opts.db_name().unwrap_or_default()
    }

    /// Whether connections are encrypted.
    pub(crate) fn has_tls(&self) -> bool {
        self.opts.ssl_opts().is_some()
    }

    /// Whether the server is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        is_local(self.opts.ip_or_hostname())
    }

    /// Host and port, for errors.
    pub(crate) fn address(&self) -> String {
        format!("{}:{}", self.opts.ip_or_hostname(), self.opts.tcp_port())
    }

    /// The same for the binlog, whose events may be as large as a row may be.
    pub(crate) fn for_log(&self) -> Self {
        let builder = OptsBuilder::from_opts(self.opts.clone());
        Self { opts: builder.max_allowed_packet(Some(LOG_EVENT_BYTES_MAX)).into() }
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// In words: where to, and what the server or the system said.
    pub(crate) async fn connect(&self) -> Result<Conn, Error> {
        let doing = format!("connecting to {}", self.address());
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, Conn::new(self.opts.clone()));
        let mut conn = match connecting.await {
            Ok(connected) => connected.map_err(|error| database(&doing, &error))?,
            Err(_) => {
                let text = format!("no answer in {} s", CONNECT_TIMEOUT.as_secs());
                return Err(Error::Database { doing, text, is_temporary: true });
            }
        };
        for sql in SESSION {
            conn.query_drop(sql).await.map_err(|error| database("setting up", &error))?;
        }
        // MySQL has no such variable, and makes no such change.
        let _ = conn.query_drop(LISTS).await;
        Ok(conn)
    }
}

/// What the URL says of TLS.
#[derive(Debug, Default)]
struct Tls {
    root: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Tls {
    /// As for PostgreSQL: verified whenever it is used, and used unless the host is this machine. None: not used.
    fn read(options: Vec<(String, String)>, is_local: bool) -> Result<Option<Self>, String> {
        let (mut files, mut mode) = (Self::default(), None);
        for (key, value) in options {
            match key.as_str() {
                "sslrootcert" => files.root = Some(value.into()),
                "sslcert" => files.cert = Some(value.into()),
                "sslkey" => files.key = Some(value.into()),
                _ => mode = Some(value),
            }
        }
        let is_used = match mode.as_deref() {
            Some("disable") => false,
            Some("allow" | "prefer") => {
                return Err(
                    "sslmode allow and prefer verify nothing: use verify-full, or disable".into()
                );
            }
            Some("require" | "verify-ca" | "verify-full") => true,
            Some(other) => return Err(format!("sslmode `{other}` is unknown")),
            None => !is_local || files.root.is_some(),
        };
        Ok(is_used.then_some(files))
    }

    fn options(self) -> Result<SslOpts, Error> {
        let roots = match &self.root {
            Some(file) => {
                // What is wrong with the file is told before anybody connects.
                certificates::authorities(Some(file)).map_err(|why| in_url(&why))?;
                vec![file.clone().into()]
            }
            None => certificates::system_authorities()
                .map_err(|why| in_url(&why))?
                .iter()
                .map(|root| root.to_vec().into())
                .collect(),
        };
        let identity = match (self.cert, self.key) {
            (None, None) => None,
            (Some(cert), Some(key)) => {
                certificates::chain(&cert).map_err(|why| in_url(&why))?;
                certificates::key(&key).map_err(|why| in_url(&why))?;
                Some(ClientIdentity::new(cert.into(), key.into()))
            }
            _ => {
                return Err(Error::setup("sslcert and sslkey of the database URL need each other"));
            }
        };
        Ok(SslOpts::default()
            .with_disable_built_in_roots(true)
            .with_root_certs(roots)
            .with_client_identity(identity))
    }
}

fn in_url(why: &str) -> Error {
    Error::setup(format!("the database URL: {why}"))
}

fn is_local(host: &str) -> bool {
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// An error of `doing` something at the database.
pub(crate) fn database(doing: &str, error: &MyError) -> Error {
    Error::Database { doing: doing.into(), text: words(error), is_temporary: is_temporary(error) }
}

/// What the server said, with its number and SQLSTATE; else what the system said.
pub(crate) fn words(error: &MyError) -> String {
    match error {
        MyError::Server(server) => {
            format!("{} ({}, {})", server.message, server.code, server.state)
        }
        MyError::Io(_) | MyError::Driver(_) | MyError::Url(_) | MyError::Other(_) => {
            error.to_string()
        }
    }
}

/// Whether the same may work later: the connection, a lock, a deadlock, one row's data; not a wrong statement or password.
pub(crate) fn is_temporary(error: &MyError) -> bool {
    match error {
        MyError::Server(server) => {
            let state = server.state.as_str();
            !(state.starts_with("42") || state.starts_with("28") || state.starts_with("3D"))
        }
        MyError::Io(_) | MyError::Driver(_) => true,
        MyError::Url(_) | MyError::Other(_) => false,
    }
}

/// Numbers of errors that some row's data causes, and that have no SQLSTATE of their own: a CHECK constraint, a value
/// that does not fit, a column without a default, a trigger's SIGNAL with an SQLSTATE of its own.
const OF_A_ROW: &[u16] = &[1264, 1292, 1364, 1366, 1369, 1406, 1644, 3819, 4025];

/// Whether the data of some row is to blame: a constraint or a trigger refuses it. Other rows may pass.
pub(crate) fn is_of_a_row(error: &MyError) -> bool {
    let MyError::Server(server) = error else { return false };
    let class = server.state.get(..2).unwrap_or_default();
    matches!(class, "21" | "22" | "23" | "44" | "45") || OF_A_ROW.contains(&server.code)
}

/// Values of a list of ids for a statement with that many places: the last fills the rest.
pub(crate) fn filled(values: impl Iterator<Item = Value>, places: usize) -> Vec<Value> {
    let mut values: Vec<Value> = values.collect();
    let last = values.last().cloned().unwrap_or(Value::NULL);
    values.resize(places.max(values.len()), last);
    values
}

pub(crate) fn params(values: Vec<Value>) -> Params {
    if values.is_empty() { Params::Empty } else { Params::Positional(values) }
}

/// What a cell of an answer has: bytes, or none for NULL. Numbers come as such where a statement computes them.
pub(crate) fn cell(value: Option<Value>) -> Option<Vec<u8>> {
    match value {
        None | Some(Value::NULL) => None,
        Some(Value::Bytes(bytes)) => Some(bytes),
        Some(Value::Int(number)) => Some(number.to_string().into_bytes()),
        Some(Value::UInt(number)) => Some(number.to_string().into_bytes()),
        Some(Value::Float(number)) => Some(number.to_string().into_bytes()),
        Some(Value::Double(number)) => Some(number.to_string().into_bytes()),
        Some(other @ (Value::Date(..) | Value::Time(..))) => {
            Some(other.as_sql(true).trim_matches('\'').into())
        }
    }
}

/// The same as text.
pub(crate) fn text(value: Option<Value>) -> Option<String> {
    cell(value).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The same as a number; none: NULL, or no number.
pub(crate) fn number(value: Option<Value>) -> Option<f64> {
    text(value)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_verified_by_default_wherever_the_host_is_not_this_machine() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let uses_tls = |url: &str| Database::parse(url).map(|database| database.has_tls());
        assert_eq!(uses_tls("mysql://u@localhost/d"), Ok(false));
        assert_eq!(uses_tls("mariadb://u:p@127.0.0.2:3307/d"), Ok(false));
        assert_eq!(uses_tls("mysql://u@db.example.com/d?sslmode=disable"), Ok(false));
        assert_eq!(uses_tls("mysql://u@db.example.com/d"), Ok(true));
        assert_eq!(uses_tls("mysql://u@localhost/d?sslmode=verify-full"), Ok(true));
        for options in
            ["sslmode=prefer", "sslmode=allow", "sslmode=off", &format!("sslrootcert={root}")]
        {
            assert!(
                uses_tls(&format!("mysql://u@db.example.com/d?{options}")).is_err(),
                "{options}"
            );
        }
    }

    #[test]
    fn a_url_names_its_database_and_its_scheme() {
        for url in [
            "mysql://u@localhost",
            "mysql://u@localhost/",
            "postgres://u@localhost/d",
            "u@localhost/d",
        ] {
            assert!(Database::parse(url).is_err(), "{url}");
        }
        let database =
            Database::parse("mariadb://us%40er:p%2Fw@localhost:3307/shop").expect("it is one");
        assert_eq!((database.schema(), database.address().as_str()), ("shop", "localhost:3307"));
        assert_eq!(database.opts.user(), Some("us@er"));
        assert_eq!(database.opts.pass(), Some("p/w"));
    }

    #[test]
    fn a_list_of_ids_is_filled_with_its_last() {
        let values = || [1, 2, 3].into_iter().map(Value::from);
        assert_eq!(filled(values(), 4), [1, 2, 3, 3].map(Value::from));
        assert_eq!(filled(std::iter::empty(), 1), [Value::NULL]);
    }
}
