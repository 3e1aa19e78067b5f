//! Reads what `doctor` judges, and what `status` shows.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};

use super::{Database, failures, has_companion, log, pending, table};
use crate::admin::Report;
use crate::admin::status::{BACKLOG_EXACT_MAX, Backlog, BlockedKey, RelaySession, Status};
use crate::config::Config;
use crate::error::Error;
use crate::io::mysql::connection::{database, number, params, text, words};
use crate::io::mysql::seats;
use crate::io::mysql::table::{read_shape, server_version, tries};
use crate::mysql::doctor::{self, Facts};
use crate::mysql::sql::{FAILURES, Statements};

/// Keys that are read: one more than are shown.
const KEYS_READ: u32 = 21;

/// Looks at all of it; changes nothing.
pub(super) async fn examine(
    conn: &mut Conn,
    at: &Database,
    config: &Config,
) -> Result<Report, Error> {
    let mut facts = Facts { is_remote: !at.is_local(), uses_tls: at.has_tls(), ..Facts::default() };
    facts.version = server_version(conn).await?;
    let of_server: Option<Row> = conn
        .query_first("SELECT @@global.read_only, @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog, @@max_connections")
        .await
        .map_err(|error| database("looking at the server", &error))?;
    if let Some(mut row) = of_server {
        let mut of = |at| number(row.take(at)).unwrap_or(0.0) as i64;
        facts.is_read_only = of(0) > 0;
        facts.flush_log_at_commit = of(1);
        facts.sync_binlog = (of(2) > 0).then(|| of(3));
        facts.connections_max = of(4);
    }
    let connected: Option<Row> = conn
        .query_first("SHOW GLOBAL STATUS LIKE 'Threads_connected'")
        .await
        .map_err(|error| database("counting connections", &error))?;
    facts.connections = connected.and_then(|mut row| number(row.take(1))).unwrap_or(0.0) as i64;
    facts.clock = clock(conn).await;
    let oldest =
        "SELECT MAX(TIMESTAMPDIFF(SECOND, trx_started, NOW())) FROM information_schema.innodb_trx";
    match conn.query_first::<Row, _>(oldest).await {
        Ok(row) => facts.oldest_transaction = row.and_then(|mut row| number(row.take(0))),
        Err(error) => facts.unread.push(("the age of transactions".into(), words(&error))),
    }
    if log::slot(config).is_some() {
        facts.binlog = Some(crate::io::mysql::log::places::binlog(conn).await?);
        facts.has_places = log::has_places(conn, at).await?;
    }
    facts.has_companion = has_companion(conn, at).await?;
    facts.shape = read_shape(conn, at, &config.mapping.table).await?;
    let statements = facts.shape.as_ref().filter(|shape| shape.missing(&config.mapping).is_empty());
    if let Some(Ok(statements)) = statements.map(|shape| Statements::new(config, shape)) {
        facts.relays = seats::held(conn, &statements.label(), config).await?.len() as i64;
        if log::slot(config).is_some() {
            facts.failures = match facts.has_companion {
                true => failures(conn, &statements.label()).await?,
                false => Vec::new(),
            };
            return Ok(doctor::judge(config, &facts));
        }
        if facts.has_companion {
            facts.refused = refused(conn, config, &statements).await?;
            facts.failures = failures(conn, &statements.label()).await?;
        }
        facts.pending = Some(pending(conn, &statements, BACKLOG_EXACT_MAX as u64).await?);
    }
    Ok(doctor::judge(config, &facts))
}

/// The database's clock less ours, and the half of the time that the question took.
async fn clock(conn: &mut Conn) -> Option<(f64, f64)> {
    let (start, now) = (Instant::now(), SystemTime::now());
    let row: Option<Row> =
        conn.query_first("SELECT CAST(UNIX_TIMESTAMP(NOW(6)) AS DOUBLE)").await.ok()?;
    let half = start.elapsed().as_secs_f64() / 2.0;
    let theirs = row.and_then(|mut row| number(row.take(0)))?;
    let ours = now.duration_since(UNIX_EPOCH).ok()?.as_secs_f64() + half;
    Some((theirs - ours, half))
}

/// Statements of the relay that this user may not run, and why; on no rows, and undone.
async fn refused(
    conn: &mut Conn,
    config: &Config,
    statements: &Statements,
) -> Result<Vec<(String, String)>, Error> {
    let failed = |error: mysql_async::Error| database("trying what the relay does", &error);
    conn.query_drop("START TRANSACTION").await.map_err(failed)?;
    let mut refused = Vec::new();
    for (doing, sql, values) in tries(config, statements) {
        match conn.exec_drop(sql, params(values)).await {
            Ok(()) => (),
            Err(error @ mysql_async::Error::Server(_)) => {
                refused.push((doing.to_owned(), words(&error)))
            }
            Err(error) => return Err(failed(error)),
        }
    }
    conn.query_drop("ROLLBACK").await.map_err(failed)?;
    Ok(refused)
}

/// How the outbox stands.
pub(super) async fn look(conn: &mut Conn, at: &Database, config: &Config) -> Result<Status, Error> {
    let shape = table(conn, at, config).await?;
    let statements = Statements::new(config, &shape).map_err(Error::setup)?;
    let label = statements.label();
    if let Some(slot) = log::slot(config) {
        let (slots, relays) = log::look(conn, at, &label, slot).await?;
        let mut status = Status { outbox: label.clone(), slots, relays, ..Status::default() };
        if has_companion(conn, at).await? {
            status.failures = failures(conn, &label).await?.into_iter().map(Into::into).collect();
            status.blocked_keys = blocked_keys(conn, &label).await?;
        }
        return Ok(status);
    }
    let bound = BACKLOG_EXACT_MAX as u64 + 1;
    let counted = pending(conn, &statements, bound).await?;
    let is_exact = counted.rows <= BACKLOG_EXACT_MAX;
    let rows = if is_exact { counted.rows } else { counted.rows.max(shape.rows as i64) };
    let oldest_seconds = counted.oldest_seconds;
    let mut status = Status {
        backlog: Some(Backlog { rows, is_exact, oldest_seconds, per_second: None }),
        relays: relays(conn, &label, config).await?,
        outbox: label.clone(),
        ..Status::default()
    };
    if has_companion(conn, at).await? {
        status.failures = failures(conn, &label).await?.into_iter().map(Into::into).collect();
        status.blocked_keys = blocked_keys(conn, &label).await?;
    }
    Ok(status)
}

async fn blocked_keys(conn: &mut Conn, label: &str) -> Result<Vec<BlockedKey>, Error> {
    let sql = format!(
        "SELECT row_key, COUNT(*), MAX(dead_at IS NOT NULL), \
           TIMESTAMPDIFF(MICROSECOND, NOW(6), MIN(next_attempt_at)) / 1000000, MIN(row_id), MIN(reason) \
         FROM {FAILURES} WHERE outbox = ? AND row_key <> row_id \
         GROUP BY row_key ORDER BY MIN(first_failed_at) LIMIT {KEYS_READ}"
    );
    let rows: Vec<Row> =
        conn.exec(sql, (label,)).await.map_err(|error| database("reading blocked keys", &error))?;
    let key = |mut row: Row| BlockedKey {
        key: text(row.take(0)).unwrap_or_default(),
        failed: number(row.take(1)).unwrap_or(0.0) as i64,
        is_dead: number(row.take(2)).is_some_and(|told| told > 0.0),
        next_seconds: number(row.take(3)),
        row_id: text(row.take(4)).unwrap_or_default(),
        reason: text(row.take(5)).unwrap_or_default(),
    };
    Ok(rows.into_iter().map(key).collect())
}

/// Workers, by the locks that they hold; what this user may see of their sessions.
async fn relays(conn: &mut Conn, label: &str, config: &Config) -> Result<Vec<RelaySession>, Error> {
    let held = seats::held(conn, label, config).await?;
    let failed = |error: mysql_async::Error| database("looking for relays", &error);
    let mut sessions = Vec::new();
    for (seat, id) in held {
        let sql = "SELECT host, command, time FROM information_schema.processlist WHERE id = ?";
        let seen: Option<Row> = conn.exec_first(sql, (id,)).await.map_err(failed)?;
        let mut row = seen.map(Row::unwrap).unwrap_or_default().into_iter();
        let address = text(row.next()).unwrap_or_else(|| "unknown".into());
        let state = text(row.next()).unwrap_or_default().to_lowercase();
        sessions.push(RelaySession {
            pid: i32::try_from(id).unwrap_or(i32::MAX),
            name: format!("worker in seat {seat}"),
            address,
            state,
            transaction_seconds: None,
            locks: 0,
        });
    }
    Ok(sessions)
}
