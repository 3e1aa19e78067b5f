//! The shell of the poll source: workers, each a connection to the database, one to the broker, and a core.

pub(super) mod apart;
mod batch;
pub(super) mod failures;
mod fetch;
mod lanes;
pub(super) mod late;
mod mark;
mod monitor;
pub(super) mod publishing;
mod worker;
pub(super) mod written;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinSet;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, SimpleQueryMessage};
use tracing::Instrument as _;

use self::apart::Apart;
use self::failures::Failures;
use self::late::Late;
use self::publishing::all_end;
use super::postgres::{Database, POOLER, database, words};
use super::table::{find_table, prepare_companion, warn_of_row_security};
use crate::admin::install::index;
use crate::config::{Config, OnSuccess};
use crate::error::Error;
use crate::mapping::Layout;
use crate::metrics::Metrics;
use crate::sql::{BYTES, Fetch, Statements, Table};

/// A fetch that takes longer is worth a word.
const SLOW: Duration = Duration::from_secs(1);

/// What the workers of one relay share.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) database: Database,
    pub(super) table: Table,
    layout: Layout,
    pub(super) statements: Statements,
    pub(super) metrics: Metrics,
    /// Where the next fetch begins; held during a fetch, so that each begins where the last one ended.
    pub(super) scan: Mutex<Scan>,
    failures: Arc<Failures>,
    /// Rows whose confirm came after their batch was given back.
    pub(super) late: Late,
    /// When some row's data last kept a batch from being written down.
    apart: Apart,
    has_been_slow: AtomicBool,
    /// Some worker has marked a row.
    has_marked: AtomicBool,
    pub(super) nudge: Notify,
}

/// How far the table was read. Rows behind it that were locked, or committed late, are found from the head again.
#[derive(Debug)]
pub(super) struct Scan {
    /// The last row that was read; none: begin at the head.
    after: Option<After>,
    pub(super) head_at: Instant,
    pub(super) head_took: Duration,
}

/// A row behind which rows are looked for.
#[derive(Debug)]
enum After {
    /// Its order columns.
    Columns(Vec<String>),
    /// Its place, where rows have no order.
    Place(fetch::Tid),
}

impl Shared {
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Says once that fetches are slow.
    pub(super) fn note_fetch(&self, took: Duration) {
        if took > SLOW && !self.has_been_slow.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                ?took,
                "fetching rows is slow: there is no index, VACUUM cannot remove dead tuples, or the database is busy. \
                 `millrace relay doctor` finds out which"
            );
        }
    }
}

/// Drains the table of a PostgreSQL until `stop` says so.
pub(super) async fn run_poll(
    config: Config,
    metrics: Metrics,
    stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    let database = Database::parse(&config.database)?;
    let client = database.connect("millrace-relay").await?;
    refuse_pooler(&database, &client).await?;
    prepare_companion(&client).await?;
    let table = find_table(&client, &config.mapping).await?;
    if let Some(column) = table.compared_bytes(&config) {
        return Err(Error::setup(format!("column `{column}` of {} {BYTES}", table.name)));
    }
    warn_without_index(&client, &config, &table).await;
    warn_of_row_security(&client, &table).await?;
    let statements = Statements::new(&config, &table);
    check_privileges(&client, &statements, &config, table.is_plain).await?;
    drop(client);
    // A wrong address or login is told at once.
    drop(super::broker::open(&config.broker, "millrace relay", 1).await?);
    tracing::info!(table = %table.label(), "reading the table");

    let now = Instant::now();
    let shared = Arc::new(Shared {
        statements,
        layout: config.mapping.layout(),
        database,
        table,
        metrics,
        scan: Mutex::new(Scan { after: None, head_at: now, head_took: Duration::ZERO }),
        failures: Arc::default(),
        late: Late::default(),
        apart: Apart::default(),
        has_been_slow: AtomicBool::new(false),
        has_marked: AtomicBool::new(false),
        nudge: Notify::new(),
        config,
    });
    let mut tasks = JoinSet::new();
    // They end with this function, however it ends.
    let mut helpers = JoinSet::new();
    helpers.spawn(monitor::watch_table(Arc::clone(&shared)).in_current_span());
    helpers.spawn(monitor::listen(Arc::clone(&shared)).in_current_span());
    for number in 0..shared.config.workers {
        let worker = worker::run(Arc::clone(&shared), number, stop.clone());
        tasks.spawn(worker.in_current_span());
    }
    all_end(tasks).await
}

/// How often it is looked whether a pooler is in between.
const PROBES: u32 = 3;

/// Looks whether each transaction finds itself in another session: then a pooler is in between.
pub(super) async fn refuse_pooler(database: &Database, client: &Client) -> Result<(), Error> {
    // Without a prepared statement, which a pooler may refuse in its own words.
    async fn backend(client: &Client) -> Result<String, Error> {
        let failed =
            |error: tokio_postgres::Error| self::database("looking at the session", &error);
        let messages = client.simple_query("SELECT pg_backend_pid()").await.map_err(failed)?;
        let row = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        Ok(row.unwrap_or_default().to_owned())
    }
    let failed = |error: tokio_postgres::Error| self::database("looking at the session", &error);
    let other = database.connect("millrace-relay-probe").await?;
    let first = backend(client).await?;
    // While the other connection is in a transaction, a pooler has to give this connection another session of the
    // server, or has given its session to the other. A pooler that is slow to take a session back may open a new one for
    // the other connection, and pass once. It then has two free sessions, and one of the next looks finds them exchanged.
    for _ in 0..PROBES {
        let again = backend(client).await?;
        other.batch_execute("BEGIN").await.map_err(failed)?;
        let of_other = backend(&other).await?;
        let second = backend(client).await?;
        other.batch_execute("ROLLBACK").await.map_err(failed)?;
        if first != again || first != second || first == of_other {
            let address = database.address();
            return Err(Error::setup(format!("the relay cannot work through {address}: {POOLER}")));
        }
    }
    Ok(())
}

/// A newcomer's first relay works on any table; a slow one is explained before it is slow.
async fn warn_without_index(client: &Client, config: &Config, table: &Table) {
    let mapping = &config.mapping;
    let Ok(Some(shape)) = super::admin::read_shape(client, &table.name).await else { return };
    if index::is_needed(mapping) && shape.serving_index(mapping).is_none() {
        tracing::warn!(
            table = %table.name,
            "no index finds pending rows in order: each fetch reads the table, and will be slow when it has grown. \
             `millrace relay doctor` says more, `millrace relay install` makes one"
        );
    }
}

/// Runs every statement on no rows, so that a missing privilege or table is told before anything is published.
async fn check_privileges(
    client: &Client,
    statements: &Statements,
    config: &Config,
    is_plain: bool,
) -> Result<(), Error> {
    let (places, ids): (Vec<fetch::Tid>, Vec<String>) = (Vec::new(), Vec::new());
    let (numbers, times): (Vec<i32>, Vec<Option<f64>>) = (Vec::new(), Vec::new());
    let rows: &(dyn ToSql + Sync) = if is_plain { &places } else { &ids };
    let fetch = statements.fetch(Fetch { without_parked: true, ..Fetch::default() });
    let fetch = fetch.replace(&format!("LIMIT {}", config.batch), "LIMIT 0");
    let failures: [&(dyn ToSql + Sync); 6] = [&ids, &ids, &numbers, &ids, &ids, &times];
    let checks: [(&str, String, &[&(dyn ToSql + Sync)]); 6] = [
        ("reading and locking rows", fetch, &[]),
        ("marking rows", statements.mark(), &[rows]),
        ("setting dead rows aside", statements.move_to_dead(), &[rows, &ids]),
        ("reading failures", statements.attempts(), &[&ids]),
        ("writing failures", statements.fail(), &failures),
        ("forgetting failures", statements.clear_failures(), &[&ids]),
    ];
    client.batch_execute("BEGIN").await.map_err(|error| database("checking privileges", &error))?;
    for (doing, sql, parameters) in checks {
        client.execute(&sql, parameters).await.map_err(|error| match error.as_db_error() {
            Some(_) if config.on_success == OnSuccess::Archive && doing == "marking rows" => {
                Error::setup(format!(
                    "moving rows to {} would fail: {}. `millrace relay install --on-success archive` makes it",
                    statements.archive(),
                    words(&error)
                ))
            }
            Some(_) => Error::setup(format!(
                "{doing} would fail: {}. The relay's user needs SELECT, UPDATE (and DELETE, INSERT into the \
                 archive, for those modes) on the outbox, and all of these on millrace.relay_failures",
                words(&error)
            )),
            None => database(doing, &error),
        })?;
    }
    if let Some(sql) = statements.try_mark() {
        // The data of some row may refuse it, which is dealt with when it is that row's turn.
        let tried = client.query_opt(&sql, &[]).await.unwrap_or_default();
        if tried.is_some_and(|row| row.get::<_, Option<bool>>(0) == Some(true)) {
            return Err(Error::setup(config.mapping.still_waits()));
        }
    }
    client.batch_execute("ROLLBACK").await.map_err(|error| database("checking privileges", &error))
}

/// Prepared statements by their text.
#[derive(Default)]
pub(super) struct Prepared(BTreeMap<String, tokio_postgres::Statement>);

impl Prepared {
    pub(super) async fn get(
        &mut self,
        client: &impl tokio_postgres::GenericClient,
        sql: &str,
    ) -> Result<tokio_postgres::Statement, tokio_postgres::Error> {
        if let Some(statement) = self.0.get(sql) {
            return Ok(statement.clone());
        }
        let statement = client.prepare(sql).await?;
        self.0.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}
