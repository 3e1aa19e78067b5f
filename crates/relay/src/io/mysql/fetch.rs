//! Reading and locking the next rows.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as MyError, Row, Value};

use super::connection::{cell, filled, params, text};
use super::shared::Shared;
use crate::batch::OutboxRow;
use crate::config::Order;
use crate::fields::Fields;
use crate::mysql::sql::{Fetch, list_length};

/// What a fetch found.
pub(super) struct Fetched {
    pub(super) rows: Vec<OutboxRow>,
    pub(super) is_full: bool,
    /// Some of them have failed before, and their time has come.
    pub(super) had_failures: bool,
    /// How long the database looked for them.
    pub(super) took: Duration,
}

/// Fetches the next rows, in order; `limit` at most.
pub(super) async fn fetch(
    shared: &Shared,
    conn: &mut Conn,
    lanes: Option<Vec<u32>>,
    limit: usize,
) -> Result<Fetched, MyError> {
    let start = Instant::now();
    let form = Fetch { without_parked: shared.failures.has_some(), lanes };
    let limited = || params(vec![Value::UInt(limit as u64)]);
    let (found, is_full) = match shared.config.order {
        Order::None => {
            let found: Vec<Row> = conn.exec(shared.statements.fetch(&form), limited()).await?;
            let is_full = found.len() == limit;
            (found, is_full)
        }
        Order::Key | Order::Strict => {
            let chosen: Vec<Row> = conn.exec(shared.statements.choose(&form), limited()).await?;
            let is_full = chosen.len() == limit;
            (lock(shared, conn, chosen).await?, is_full)
        }
    };
    let mut rows: Vec<OutboxRow> = found.into_iter().map(decode).collect();
    let took = start.elapsed();
    let had_failures = leave_waiting(shared, conn, &mut rows).await?;
    Ok(Fetched { rows, is_full, had_failures, took })
}

async fn lock(shared: &Shared, conn: &mut Conn, chosen: Vec<Row>) -> Result<Vec<Row>, MyError> {
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let length = list_length(chosen.len());
    let ids = chosen.into_iter().map(|mut row| row.take(0).unwrap_or(Value::NULL));
    let ids = filled(ids.collect::<Vec<_>>().into_iter(), length);
    conn.exec(shared.statements.lock(length), params(ids)).await
}

/// Leaves out rows that have failed since the fetch began to look. Says whether any has failed.
///
/// A fetch sees failures as they were at its beginning. Whoever had a row locked then may have written its failure and let
/// it go before the fetch came to it. Now that the rows are ours, nobody else writes failures for them. Under an order,
/// lanes see to that.
async fn leave_waiting(
    shared: &Shared,
    conn: &mut Conn,
    rows: &mut Vec<OutboxRow>,
) -> Result<bool, MyError> {
    if shared.config.order != Order::None || rows.is_empty() {
        return Ok(false);
    }
    let id = shared.layout.id;
    let name = |row: &OutboxRow| row.fields.text(id).unwrap_or_default().to_owned();
    let length = list_length(rows.len());
    let ids = filled(rows.iter().map(|row| Value::from(name(row))), length);
    let failed: Vec<Row> = conn.exec(shared.statements.failed(length), params(ids)).await?;
    if failed.is_empty() {
        return Ok(false);
    }
    // The next fetch looks by itself.
    shared.failures.found();
    let mut waiting = BTreeSet::new();
    for mut row in failed {
        let waits = text(row.take(1)).is_some_and(|text| text == "1");
        waiting.extend(text(row.take(0)).filter(|_| waits));
    }
    rows.retain(|row| !waiting.contains(&name(row)));
    Ok(true)
}

fn decode(row: Row) -> OutboxRow {
    let values = row.unwrap();
    let mut fields = Fields::with_capacity(values.len(), 0);
    for value in values {
        fields.push(cell(Some(value)).as_deref());
    }
    // A row has no place that stays: its id alone names it.
    OutboxRow { place: 0, fields }
}
