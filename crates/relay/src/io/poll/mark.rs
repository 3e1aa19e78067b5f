//! Writing down how a batch ended, in its own transaction.

use client::Chance;
use tokio_postgres::Transaction;
use tokio_postgres::types::ToSql;

use super::fetch::Tid;
use super::{Prepared, Shared};
use crate::attempts::{Fault, Next};
use crate::batch::Batch;
use crate::config::Order;
use crate::limits::shortened;

/// Failures as they are written.
#[derive(Default)]
struct Failures {
    rows: Vec<usize>,
    ids: Vec<String>,
    keys: Vec<Option<String>>,
    attempts: Vec<i32>,
    reasons: Vec<&'static str>,
    errors: Vec<String>,
    after: Vec<Option<f64>>,
}

/// Marks what is confirmed and writes down what failed. The commit is the caller's.
pub(super) async fn mark(
    shared: &Shared,
    prepared: &mut Prepared,
    transaction: &Transaction<'_>,
    batch: &Batch,
    chance: &mut Chance,
    had_failures: bool,
) -> Result<(), tokio_postgres::Error> {
    let confirmed: Vec<usize> = batch.confirmed().collect();
    if !confirmed.is_empty() {
        let statement = prepared.get(transaction, &shared.statements.mark()).await?;
        let names = Names::of(shared, batch, &confirmed);
        let marked = transaction.execute(&statement, &[names.parameter()]).await?;
        if marked != confirmed.len() as u64 {
            tracing::warn!(
                confirmed = confirmed.len(),
                marked,
                "rows that were confirmed could not all be marked: a trigger or a rule of the table is in \
                 the way; they will be published again"
            );
        }
        if had_failures {
            let ids: Vec<&str> = confirmed.iter().map(|&row| id(shared, batch, row)).collect();
            let statement = prepared.get(transaction, &shared.statements.absolve()).await?;
            transaction.execute(&statement, &[&ids]).await?;
        }
    }
    if !batch.faults().is_empty() {
        fail(shared, prepared, transaction, batch, chance).await?;
    }
    Ok(())
}

async fn fail(
    shared: &Shared,
    prepared: &mut Prepared,
    transaction: &Transaction<'_>,
    batch: &Batch,
    chance: &mut Chance,
) -> Result<(), tokio_postgres::Error> {
    shared.note_failure();
    let ids: Vec<&str> = batch.faults().iter().map(|(row, _)| id(shared, batch, *row)).collect();
    let statement = prepared.get(transaction, &shared.statements.attempts()).await?;
    let earlier = transaction.query(&statement, &[&ids]).await?;
    let made = |id: &str| {
        let row = earlier.iter().find(|row| row.get::<_, &str>(0) == id);
        row.map_or(0, |row| row.get::<_, i32>(1))
    };
    let mut failures = Failures::default();
    for (row, Fault { reason, text }) in batch.faults() {
        let id = id(shared, batch, *row);
        let attempts = made(id).saturating_add(1);
        let next = shared.config.attempts.judge(*reason, attempts as u32, chance.next_bits());
        failures.rows.push(*row);
        failures.ids.push(id.to_owned());
        failures.keys.push(key(shared, batch, *row));
        failures.attempts.push(attempts);
        failures.reasons.push(reason.name());
        failures.errors.push(shortened(text));
        failures.after.push(match next {
            Next::Retry { after } => Some(after.as_secs_f64()),
            Next::Dead => None,
        });
        shared.metrics.failed(*reason, next == Next::Dead);
        tracing::warn!(
            id,
            reason = reason.name(),
            error = shortened(text),
            attempts,
            is_dead = next == Next::Dead,
            "a message was not taken"
        );
    }
    let statement = prepared.get(transaction, &shared.statements.fail()).await?;
    let Failures { rows, ids, keys, attempts, reasons, errors, after } = &failures;
    transaction.execute(&statement, &[ids, keys, attempts, reasons, errors, after]).await?;
    let dead: Vec<usize> = (0..rows.len()).filter(|&at| after[at].is_none()).collect();
    if !dead.is_empty() {
        let statement = prepared.get(transaction, &shared.statements.bury()).await?;
        let places: Vec<usize> = dead.iter().map(|&at| rows[at]).collect();
        let texts: Vec<String> =
            dead.iter().map(|&at| format!("{}: {}", reasons[at], errors[at])).collect();
        let names = Names::of(shared, batch, &places);
        transaction.execute(&statement, &[names.parameter(), &texts]).await?;
    }
    Ok(())
}

fn id<'b>(shared: &Shared, batch: &'b Batch, row: usize) -> &'b str {
    // A NULL id cannot be published; it is written down under the empty text.
    batch.rows()[row].fields.text(shared.layout().id).unwrap_or_default()
}

fn key(shared: &Shared, batch: &Batch, row: usize) -> Option<String> {
    match shared.config.order {
        Order::None => None,
        Order::Strict => Some(String::new()),
        Order::Key => {
            let key = shared.layout().key;
            let key = key.and_then(|key| batch.rows()[row].fields.text(key));
            Some(key.unwrap_or_else(|| id(shared, batch, row)).to_owned())
        }
    }
}

/// How rows are named to the database.
enum Names<'b> {
    Places(Vec<Tid>),
    Ids(Vec<&'b str>),
}

impl<'b> Names<'b> {
    fn of(shared: &Shared, batch: &'b Batch, rows: &[usize]) -> Self {
        match shared.table.is_plain {
            true => Self::Places(rows.iter().map(|&row| Tid(batch.rows()[row].place)).collect()),
            false => Self::Ids(rows.iter().map(|&row| id(shared, batch, row)).collect()),
        }
    }

    fn parameter(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Places(places) => places,
            Self::Ids(ids) => ids,
        }
    }
}
