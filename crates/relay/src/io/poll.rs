//! The shell of the poll source: workers, each a connection to the database, one to the broker, and a core.

mod batch;
mod fetch;
mod lanes;
mod mark;
mod monitor;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinSet;

use super::postgres::Database;
use super::table::{find_table, prepare_companion};
use crate::config::Config;
use crate::error::Error;
use crate::mapping::Layout;
use crate::metrics::Metrics;
use crate::sql::{Statements, Table};

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
    failures: AtomicU64,
    pub(super) nudge: Notify,
}

/// How far the table was read. Rows behind it that were locked, or committed late, are found from the head again.
#[derive(Debug)]
pub(super) struct Scan {
    /// Order columns of the last row that was read; none: begin at the head.
    pub(super) after: Option<Vec<String>>,
    pub(super) head_at: Instant,
    pub(super) head_took: Duration,
}

impl Shared {
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether something failed that keeps rows back.
    pub(super) fn has_failures(&self) -> bool {
        self.failures.load(Ordering::SeqCst) & 1 == 1
    }

    /// Somebody is about to write a failure down. Said before the commit: a fetch must not miss it.
    pub(super) fn note_failure(&self) {
        let bump = |old: u64| Some((old | 1) + 2);
        let _ = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, bump);
    }

    /// A mark to be given back to [`Shared::set_failures`].
    pub(super) fn failures_mark(&self) -> u64 {
        self.failures.load(Ordering::SeqCst)
    }

    /// What the database said of failures, asked after `mark` was taken; void if one was noted since.
    pub(super) fn set_failures(&self, mark: u64, has_some: bool) {
        let new = (mark & !1) | u64::from(has_some);
        let _ = self.failures.compare_exchange(mark, new, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// Drains the table until `stop` says so.
///
/// # Errors
/// What is wrong at the start (settings, table, privileges, database or broker not there), and what turns up later
/// that no waiting can mend. Losses after the start are waited out.
pub async fn run_poll(
    config: Config,
    metrics: Metrics,
    stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    let problems = config.problems();
    if !problems.is_empty() {
        return Err(Error::setup(problems.join("; ")));
    }
    let database = Database::parse(&config.database)?;
    let client = database.connect("millrace-relay").await?;
    prepare_companion(&client).await?;
    let table = find_table(&client, &config.mapping).await?;
    drop(client);
    // A wrong address or login is told at once.
    drop(super::broker::open(&config.broker, "millrace relay", 1).await?);

    let now = Instant::now();
    let shared = Arc::new(Shared {
        statements: Statements::new(&config, &table),
        layout: config.mapping.layout(),
        database,
        table,
        metrics,
        scan: Mutex::new(Scan { after: None, head_at: now, head_took: Duration::ZERO }),
        failures: AtomicU64::new(1),
        nudge: Notify::new(),
        config,
    });
    let mut tasks = JoinSet::new();
    let helpers = [
        tokio::spawn(monitor::watch_table(Arc::clone(&shared))),
        tokio::spawn(monitor::listen(Arc::clone(&shared))),
    ];
    for number in 0..shared.config.workers {
        tasks.spawn(worker::run(Arc::clone(&shared), number, stop.clone()));
    }
    let mut result = Ok(());
    while let Some(ended) = tasks.join_next().await {
        let ended = ended
            .unwrap_or_else(|panic| Err(Error::setup(format!("a worker ended by a bug: {panic}"))));
        if let (Err(error), true) = (ended, result.is_ok()) {
            result = Err(error);
            // One that cannot go on for good ends all: the same is wrong for the others.
            tasks.abort_all();
        }
    }
    helpers.iter().for_each(tokio::task::JoinHandle::abort);
    result
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
