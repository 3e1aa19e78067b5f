//! Reading and locking the next rows.

use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::time::{Duration, Instant};

use tokio_postgres::Transaction;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::{After, Prepared, Scan, Shared};
use crate::batch::OutboxRow;
use crate::config::Order;
use crate::fields::Fields;
use crate::limits::{BATCH_BYTES_MIN, BATCHES_BYTES, CHUNK_BYTES, FIRST_ROWS};
use crate::sql::Fetch;

/// A scan starts at the head again after this, or twenty times what that took.
const HEAD_EVERY: Duration = Duration::from_secs(1);

/// What a fetch found.
pub(super) struct Fetched {
    pub(super) rows: Vec<OutboxRow>,
    pub(super) is_full: bool,
    /// Some of them have failed before, and their time has come.
    pub(super) had_failures: bool,
    /// How long the database looked for them.
    pub(super) took: Duration,
}

/// Fetches the next rows, in order.
pub(super) async fn fetch(
    shared: &Shared,
    prepared: &mut Prepared,
    transaction: &Transaction<'_>,
    lanes: Option<&[i32]>,
    largest: &mut usize,
) -> Result<Fetched, tokio_postgres::Error> {
    let mut fetched = match has_cursor(shared) {
        true => scan_on(shared, prepared, transaction, lanes, largest).await?,
        false => scan(shared, prepared, transaction, None, lanes, largest).await?,
    };
    shared.note_fetch(fetched.took);
    fetched.had_failures = leave_waiting(shared, prepared, transaction, &mut fetched.rows).await?;
    Ok(fetched)
}

/// Leaves out rows that have failed since the fetch began to look. Says whether any has failed.
///
/// A fetch sees failures as they were at its beginning. Whoever had a row locked then may have written its failure and
/// let it go before the fetch came to it: nothing of the row itself has changed, so that the database does not look
/// again. Now that the rows are ours, nobody else writes failures for them. Under an order, lanes see to that. Whether
/// there are failures is for the database to say: another relay's may be a moment old.
async fn leave_waiting(
    shared: &Shared,
    prepared: &mut Prepared,
    transaction: &Transaction<'_>,
    rows: &mut Vec<OutboxRow>,
) -> Result<bool, tokio_postgres::Error> {
    if shared.config.order != Order::None || rows.is_empty() {
        return Ok(false);
    }
    let id = shared.layout().id;
    let name = |row: &OutboxRow| row.fields.text(id).unwrap_or_default().to_owned();
    let ids: Vec<String> = rows.iter().map(name).collect();
    let statement = prepared.get(transaction, &shared.statements.failed()).await?;
    let failed = transaction.query(&statement, &[&ids]).await?;
    if failed.is_empty() {
        return Ok(false);
    }
    // The next fetch looks by itself.
    shared.failures.found();
    let waiting = failed.iter().filter(|row| row.get(1));
    let waiting: BTreeSet<&str> = waiting.map(|row| row.get(0)).collect();
    rows.retain(|row| !waiting.contains(row.fields.text(id).unwrap_or_default()));
    Ok(true)
}

/// Whether a scan may begin behind the rows that an earlier one has read.
fn has_cursor(shared: &Shared) -> bool {
    let mapping = &shared.config.mapping;
    // Without order columns, rows come as they lie in the table. If processed ones stay among them, an index finds the
    // others better; if it has many heaps, a place says nothing.
    let is_by_place =
        mapping.order_by.is_empty() && mapping.processed.is_none() && shared.table.is_plain;
    // Under an order every scan begins at the head: what committed late must not be overtaken.
    shared.config.order == Order::None && (!mapping.order_by.is_empty() || is_by_place)
}

/// Goes on where the last scan of any worker ended, and now and then from the head.
async fn scan_on(
    shared: &Shared,
    prepared: &mut Prepared,
    transaction: &Transaction<'_>,
    lanes: Option<&[i32]>,
    largest: &mut usize,
) -> Result<Fetched, tokio_postgres::Error> {
    let mut state = shared.scan.lock().await;
    let now = Instant::now();
    if now.duration_since(state.head_at) > HEAD_EVERY.max(state.head_took * 20) {
        state.after = None;
    }
    let after = state.after.take();
    let is_from_head = after.is_none();
    let mut fetched = scan(shared, prepared, transaction, after.as_ref(), lanes, largest).await?;
    if is_from_head {
        *state = Scan { after: None, head_at: now, head_took: fetched.took };
    }
    if fetched.is_full {
        state.after = fetched.rows.last().and_then(|row| behind(shared, row));
    }
    // The end of a scan that began in the middle says nothing about the head.
    fetched.is_full |= !is_from_head;
    Ok(fetched)
}

/// Where the scan goes on behind `row`.
fn behind(shared: &Shared, row: &OutboxRow) -> Option<After> {
    let order = &shared.layout().order_by;
    if order.is_empty() {
        return Some(After::Place(Tid(row.place)));
    }
    let columns = order.iter().map(|&at| row.fields.text(at).map(str::to_owned));
    columns.collect::<Option<Vec<String>>>().map(After::Columns)
}

async fn scan(
    shared: &Shared,
    prepared: &mut Prepared,
    transaction: &Transaction<'_>,
    after: Option<&After>,
    lanes: Option<&[i32]>,
    largest: &mut usize,
) -> Result<Fetched, tokio_postgres::Error> {
    let start = Instant::now();
    let form = Fetch {
        after: after.is_some(),
        without_parked: shared.failures.has_some(),
        lanes: lanes.is_some(),
    };
    let statement = prepared.get(transaction, &shared.statements.fetch(form)).await?;
    let mut parameters: Vec<&(dyn ToSql + Sync)> = Vec::new();
    match after {
        Some(After::Columns(values)) => {
            parameters.extend(values.iter().map(|value| value as &(dyn ToSql + Sync)));
        }
        Some(After::Place(place)) => parameters.push(place),
        None => (),
    }
    if let Some(lanes) = &lanes {
        parameters.push(lanes);
    }
    let portal = transaction.bind(&statement, &parameters).await?;
    let batch = shared.config.batch as usize;
    let budget = (BATCHES_BYTES / shared.config.workers as usize).max(BATCH_BYTES_MIN);
    let mut rows = Vec::new();
    let mut bytes = 0;
    loop {
        // As many as fit for sure, going by the largest row seen of late. Few bytes at a time: what one
        // question brings is in memory twice, as it came and as it is kept.
        let fit = match *largest {
            0 => FIRST_ROWS,
            largest => (budget.saturating_sub(bytes).min(CHUNK_BYTES) / largest).max(1),
        };
        // Rows may have grown since the last batch: a few first.
        let fit = fit.min(FIRST_ROWS.max(rows.len() * 8));
        let chunk = fit.min(batch - rows.len());
        let found = transaction.query_portal(&portal, chunk as i32).await?;
        let is_end = found.len() < chunk;
        for row in found {
            let row = decode(&row)?;
            bytes += row.fields.byte_count();
            *largest = row.fields.byte_count().max(*largest);
            rows.push(row);
        }
        if is_end || rows.len() >= batch || bytes >= budget {
            // What was large once need not stay so.
            *largest -= *largest / 8;
            let took = start.elapsed();
            return Ok(Fetched { is_full: !is_end, rows, had_failures: false, took });
        }
    }
}

fn decode(row: &tokio_postgres::Row) -> Result<OutboxRow, tokio_postgres::Error> {
    let Tid(place) = row.try_get(0)?;
    let columns = row.len() - 1;
    let mut fields = Fields::with_capacity(columns, row.raw_size_bytes());
    for index in 1..=columns {
        let Raw(value) = row.try_get(index)?;
        fields.push(value);
    }
    Ok(OutboxRow { place, fields })
}

/// A column's bytes: text, or bytea.
struct Raw<'a>(Option<&'a [u8]>);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(Some(raw)))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// A row's place: block and offset, packed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tid(pub(super) u64);

impl<'a> FromSql<'a> for Tid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        let raw: [u8; 6] = raw.try_into()?;
        Ok(Self(raw.iter().fold(0, |place, &byte| place << 8 | u64::from(byte))))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TID
    }
}

impl ToSql for Tid {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        out.extend_from_slice(&self.0.to_be_bytes()[2..]);
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TID
    }

    to_sql_checked!();
}
