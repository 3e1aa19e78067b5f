//! Reading and locking the next rows.

use std::error::Error as StdError;
use std::time::Instant;

use tokio_postgres::Transaction;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::{Prepared, Scan, Shared};
use crate::batch::OutboxRow;
use crate::config::Order;
use crate::fields::Fields;
use crate::limits::{BATCH_BYTES_MIN, BATCHES_BYTES, FIRST_ROWS};
use crate::sql::Fetch;

/// A scan starts at the head again after this, or twenty times what that took.
const HEAD_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// What a fetch found.
pub(super) struct Fetched {
    pub(super) rows: Vec<OutboxRow>,
    pub(super) is_full: bool,
}

/// Fetches the next rows, in order.
pub(super) async fn fetch(
    shared: &Shared,
    prepared: &mut Prepared,
    transaction: &Transaction<'_>,
    lanes: Option<&[i32]>,
    largest: &mut usize,
) -> Result<Fetched, tokio_postgres::Error> {
    // Under an order every scan begins at the head: what committed late must not be overtaken.
    let has_cursor =
        shared.config.order == Order::None && !shared.config.mapping.order_by.is_empty();
    if !has_cursor {
        return scan(shared, prepared, transaction, None, lanes, largest).await;
    }
    let mut state = shared.scan.lock().await;
    let now = Instant::now();
    if now.duration_since(state.head_at) > HEAD_EVERY.max(state.head_took * 20) {
        state.after = None;
    }
    let after = state.after.take();
    let is_from_head = after.is_none();
    let mut fetched = scan(shared, prepared, transaction, after.as_deref(), lanes, largest).await?;
    if is_from_head {
        *state = Scan { after: None, head_at: now, head_took: now.elapsed() };
    }
    if fetched.is_full {
        let order = &shared.config.mapping.layout().order_by;
        state.after = fetched.rows.last().and_then(|row| {
            order.iter().map(|&at| row.fields.text(at).map(str::to_owned)).collect()
        });
    }
    // The end of a scan that began in the middle says nothing about the head.
    fetched.is_full |= !is_from_head;
    Ok(fetched)
}

async fn scan(
    shared: &Shared,
    prepared: &mut Prepared,
    transaction: &Transaction<'_>,
    after: Option<&[String]>,
    lanes: Option<&[i32]>,
    largest: &mut usize,
) -> Result<Fetched, tokio_postgres::Error> {
    let form = Fetch {
        after: after.is_some(),
        without_parked: shared.has_failures(),
        lanes: lanes.is_some(),
    };
    let statement = prepared.get(transaction, &shared.statements.fetch(form)).await?;
    let mut parameters: Vec<&(dyn ToSql + Sync)> = Vec::new();
    parameters.extend(after.unwrap_or_default().iter().map(|value| value as &(dyn ToSql + Sync)));
    if let Some(lanes) = &lanes {
        parameters.push(lanes);
    }
    let portal = transaction.bind(&statement, &parameters).await?;
    let batch = shared.config.batch as usize;
    let budget = (BATCHES_BYTES / shared.config.workers as usize).max(BATCH_BYTES_MIN);
    let mut rows = Vec::new();
    let mut bytes = 0;
    loop {
        // As many as fit for sure, going by the largest row seen of late.
        let fit = match *largest {
            0 => FIRST_ROWS,
            largest => (budget.saturating_sub(bytes) / largest).max(1),
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
            return Ok(Fetched { is_full: !is_end, rows });
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
