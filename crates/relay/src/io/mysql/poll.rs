//! The poll source over MariaDB or MySQL: what its workers share, and how they begin and end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::connection::{Database, database, params, words};
use super::shared::Shared;
use super::table::{find_table, prepare_companion, server_version, tries};
use super::{monitor, worker};
use crate::config::{Config, OnSuccess};
use crate::error::Error;
use crate::io::poll::apart::Apart;
use crate::io::poll::late::Late;
use crate::io::poll::publishing::all_end;
use crate::metrics::Metrics;
use crate::mysql::shape::Shape;
use crate::mysql::sql::{FAILURES, Statements, quoted};
use crate::mysql::version;

/// Drains the table until `stop` says so.
///
/// # Errors
/// As [`run_poll`](crate::io::run_poll).
pub(in crate::io) async fn run_poll(
    config: Config,
    metrics: Metrics,
    stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    let database = Database::parse(&config.database)?;
    let mut conn = database.connect().await?;
    let said = server_version(&mut conn).await?;
    version::check(&said).map_err(Error::setup)?;
    prepare_companion(&mut conn).await?;
    let shape = find_table(&mut conn, &database, &config).await?;
    let statements = Statements::new(&config, &shape).map_err(Error::setup)?;
    warn_without_index(&config, &shape);
    check_privileges(&mut conn, &config, &statements).await?;
    let _ = conn.disconnect().await;
    // A wrong address or login is told at once.
    drop(crate::io::broker::open(&config.broker, "millrace relay", 1).await?);
    tracing::info!(table = %shape.name, server = said, "reading the table");

    let shared = Arc::new(Shared {
        statements,
        layout: config.mapping.layout(),
        database,
        shape,
        metrics,
        failures: Arc::default(),
        late: Late::default(),
        apart: Apart::default(),
        has_marked: AtomicBool::new(false),
        nudge: Notify::new(),
        config,
    });
    let mut tasks = JoinSet::new();
    // It ends with this function, however it ends.
    let mut watcher = JoinSet::new();
    watcher.spawn(monitor::watch_table(Arc::clone(&shared)).in_current_span());
    for number in 0..shared.config.workers {
        let worker = worker::run(Arc::clone(&shared), number, stop.clone());
        tasks.spawn(worker.in_current_span());
    }
    all_end(tasks).await
}

fn warn_without_index(config: &Config, shape: &Shape) {
    let is_needed = crate::mysql::shape::wanted_index(&config.mapping).is_some();
    if is_needed && shape.serving_index(&config.mapping).is_none() {
        tracing::warn!(
            table = %shape.name,
            "no index finds pending rows in order: each fetch reads and locks all of them, so that one worker works at a \
             time. `millrace relay doctor` says more, `millrace relay install` makes one"
        );
    }
}

/// So that a missing privilege or table is told before anything is published.
async fn check_privileges(
    conn: &mut Conn,
    config: &Config,
    statements: &Statements,
) -> Result<(), Error> {
    conn.query_drop("START TRANSACTION")
        .await
        .map_err(|error| database("checking privileges", &error))?;
    for (doing, sql, values) in tries(config, statements) {
        conn.exec_drop(sql, params(values)).await.map_err(|error| match &error {
            mysql_async::Error::Server(_) if config.on_success == OnSuccess::Archive && doing == "marking rows" => {
                Error::setup(format!(
                    "moving rows to the archive would fail: {}. `millrace relay install --on-success archive` makes it",
                    words(&error)
                ))
            }
            mysql_async::Error::Server(_) => Error::setup(format!(
                "{doing} would fail: {}. The relay's user needs SELECT and UPDATE (and DELETE, INSERT into the archive, \
                 for those modes) on the outbox, and SELECT, INSERT, UPDATE, DELETE on {}",
                words(&error),
                quoted(FAILURES)
            )),
            _ => database(doing, &error),
        })?;
    }
    conn.query_drop("ROLLBACK").await.map_err(|error| database("checking privileges", &error))
}
