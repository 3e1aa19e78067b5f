//! What an operator asks of a relay that reads the binlog.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Value};

use super::Database;
use crate::admin::status::{RelaySession, SlotLine};
use crate::config::{Config, Source};
use crate::error::Error;
use crate::io::mysql::connection::{database, number, params, text};
use crate::io::mysql::log::places;
use crate::io::mysql::table::read_shape;
use crate::io::mysql::{log, seats};
use crate::mapping::TableName;
use crate::mysql::binlog::start::Recorded;
use crate::mysql::sql::{FAILURES, PLACES, Statements};

/// Its place's name. None: the source is the table.
pub(super) fn slot(config: &Config) -> Option<&str> {
    match &config.source {
        Source::Wal { slot, .. } => Some(slot),
        Source::Poll | Source::Messages { .. } => None,
    }
}

/// Whether there is a table of places.
pub(super) async fn has_places(conn: &mut Conn, at: &Database) -> Result<bool, Error> {
    let name = TableName { schema: None, name: PLACES.into() };
    Ok(read_shape(conn, at, &name).await?.is_some())
}

/// Whether the table of failures has an order for rows of the log.
pub(super) async fn has_position(conn: &mut Conn, at: &Database) -> Result<bool, Error> {
    let name = TableName { schema: None, name: FAILURES.into() };
    let shape = read_shape(conn, at, &name).await?;
    Ok(shape.is_some_and(|shape| shape.column("position").is_some()))
}

/// The place, and who reads from it.
pub(super) async fn look(
    conn: &mut Conn,
    at: &Database,
    label: &str,
    slot: &str,
) -> Result<(Vec<SlotLine>, Vec<RelaySession>), Error> {
    if !has_places(conn, at).await? {
        return Ok((Vec::new(), Vec::new()));
    }
    let holder = seats::holders(conn, &[log::lock_name(label, slot)]).await?;
    let holder = holder.into_iter().next().flatten();
    let Some(recorded) = places::recorded(conn, slot).await? else {
        return Ok((Vec::new(), Vec::new()));
    };
    let line = line(conn, slot, &recorded, holder.is_some()).await?;
    let relays = holder.into_iter().map(|id| RelaySession {
        pid: i32::try_from(id).unwrap_or(i32::MAX),
        name: "reader of the binlog".into(),
        address: "unknown".into(),
        state: "connected".into(),
        transaction_seconds: None,
        locks: 0,
    });
    Ok((vec![line], relays.collect()))
}

async fn line(
    conn: &mut Conn,
    slot: &str,
    recorded: &Recorded,
    is_active: bool,
) -> Result<SlotLine, Error> {
    let micros = recorded.reached.last_commit.map_or(Value::NULL, |at| at.0.into());
    let sql = "SELECT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP '2000-01-01 00:00:00' + INTERVAL ? MICROSECOND, NOW(6)) / 1000000";
    let row: Option<Row> = conn
        .exec_first(sql, params(vec![micros]))
        .await
        .map_err(|error| database("reading the place", &error))?;
    let wal_status = match recorded.is_begun {
        true => "the table is not read to its end yet".into(),
        false => format!("at {}", recorded.place.words()),
    };
    Ok(SlotLine {
        name: slot.into(),
        is_there: true,
        is_active,
        is_begun: recorded.is_begun,
        wal_status,
        lag_bytes: match recorded.is_begun {
            true => None,
            false => Some(places::lag(conn, &recorded.place).await?),
        },
        last_commit_seconds: row.and_then(|mut row| number(row.take(0))),
    })
}

/// Deletes rows that occurred before the cutoff, and an hour before the last commit that is published. The log has them, so
/// nothing that is still to be published is lost; a `resync` would need what is younger.
pub(super) async fn purge(
    conn: &mut Conn,
    statements: &Statements,
    config: &Config,
    slot: &str,
    batch: u32,
    cutoff: &str,
) -> Result<u64, Error> {
    let occurred = config.mapping.occurred.as_deref().ok_or_else(|| {
        Error::setup("nothing says when a row occurred: name a column (--occurred-column)")
    })?;
    let failed = |error| database("deleting old rows", &error);
    let sql =
        format!("SELECT CAST(last_commit AS CHAR) FROM {PLACES} WHERE slot = ? AND NOT is_begun");
    let row: Option<Row> = conn.exec_first(sql, (slot,)).await.map_err(failed)?;
    let last = row.and_then(|mut row| text(row.take(0))).and_then(|text| text.parse::<i64>().ok());
    let last = last.ok_or_else(|| {
        Error::setup(format!(
            "no relay has published anything from the binlog under the slot `{slot}`, so nothing is known to be published"
        ))
    })?;
    let sql = statements.purge_older(occurred, batch);
    conn.exec_drop(sql, params(vec![Value::from(cutoff), Value::from(last)]))
        .await
        .map_err(failed)?;
    Ok(conn.affected_rows())
}
