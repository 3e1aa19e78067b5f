//! Deletes old rows step by step, each step a short transaction.

use std::collections::BTreeSet;
use std::time::Instant;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Value};

use super::{Database, log, table};
use crate::admin::purge::{Purge, Purged, Scope};
use crate::config::{Config, OnDead, OnSuccess, Order};
use crate::error::Error;
use crate::io::mysql::connection::{database, params, text};
use crate::io::mysql::table::id_value;
use crate::mysql::sql::{FAILURES, Statements, archive_of, quoted_table};

fn failed(error: mysql_async::Error) -> Error {
    database("deleting old rows", &error)
}

/// Deletes the rows of `purge`, batch by batch; `told` hears how far it is.
pub(super) async fn purge(
    conn: &mut Conn,
    at: &Database,
    config: &Config,
    purge: &Purge,
    mut told: impl FnMut(&Purged),
) -> Result<Purged, Error> {
    let shape = table(conn, at, config).await?;
    let statements = Statements::new(config, &shape).map_err(Error::setup)?;
    let age = Value::Int(i64::try_from(purge.older_than.as_micros()).unwrap_or(i64::MAX));
    // One time for all steps: what becomes old meanwhile is for the next run.
    let cutoff: Option<Row> = conn
        .exec_first("SELECT CAST(NOW(6) - INTERVAL ? MICROSECOND AS CHAR)", params(vec![age]))
        .await
        .map_err(failed)?;
    let cutoff = cutoff.and_then(|mut row| text(row.take(0))).unwrap_or_default();
    let (begun, mut done) = (Instant::now(), Purged::default());
    let mut keys = BTreeSet::new();
    loop {
        let count = match purge.scope {
            Scope::Dead => dead(conn, config, &statements, purge.batch, &cutoff, &mut keys).await?,
            Scope::Processed if let Some(slot) = log::slot(config) => {
                log::purge(conn, &statements, config, slot, purge.batch, &cutoff).await?
            }
            Scope::Processed | Scope::Archived => {
                let sql = delete(config, &statements, purge)?;
                conn.exec_drop(sql, (cutoff.as_str(),)).await.map_err(failed)?;
                conn.affected_rows()
            }
        };
        done.rows += count;
        // Keys that their dead rows have blocked go on.
        if config.order != Order::None && config.on_dead == OnDead::Block {
            done.keys = keys.len() as u64;
        }
        told(&done);
        if count < u64::from(purge.batch) {
            return Ok(done);
        }
        tokio::time::sleep(purge.wait(done.rows, begun.elapsed())).await;
    }
}

/// Deletes rows that are published, or archived, and old. Each statement checks that itself.
fn delete(config: &Config, statements: &Statements, purge: &Purge) -> Result<String, Error> {
    let batch = purge.batch;
    if purge.scope == Scope::Archived {
        let archive = quoted_table(&archive_of(statements.name()));
        return Ok(format!(
            "DELETE FROM {archive} WHERE archived_at < CAST(? AS DATETIME(6)) LIMIT {batch}"
        ));
    }
    if config.on_success != OnSuccess::Update || config.mapping.processed.is_none() {
        return Err(Error::setup(
            "confirmed rows leave the outbox by themselves under --on-success delete and archive: there is nothing to \
             purge in it (`--archived` purges the archive)",
        ));
    }
    let at = statements.marked_at().ok_or_else(|| {
        Error::setup("nothing says when a row was published, nor when it occurred: name a column (--occurred-column)")
    })?;
    Ok(statements.purge(&at, batch))
}

/// Deletes dead rows and what is known of their failure.
async fn dead(
    conn: &mut Conn,
    config: &Config,
    statements: &Statements,
    batch: u32,
    cutoff: &str,
    keys: &mut BTreeSet<String>,
) -> Result<u64, Error> {
    conn.query_drop("START TRANSACTION").await.map_err(failed)?;
    let sql = format!(
        "SELECT row_id, row_key FROM {FAILURES} WHERE outbox = ? AND dead_at < CAST(? AS DATETIME(6)) \
         ORDER BY row_id LIMIT {batch} FOR UPDATE"
    );
    let label = statements.label();
    let rows: Vec<Row> = conn.exec(sql, (&label, cutoff)).await.map_err(failed)?;
    let count = rows.len() as u64;
    for mut row in rows {
        let id = text(row.take(0)).unwrap_or_default();
        let value = id_value(&config.mapping.id, &id, statements.shape());
        if log::slot(config).is_none() {
            conn.exec_drop(statements.delete_row(), params(vec![value])).await.map_err(failed)?;
        }
        let sql = format!("DELETE FROM {FAILURES} WHERE outbox = ? AND row_id = ?");
        conn.exec_drop(sql, (&label, &id)).await.map_err(failed)?;
        keys.extend(text(row.take(1)));
    }
    conn.query_drop("COMMIT").await.map_err(failed)?;
    Ok(count)
}
