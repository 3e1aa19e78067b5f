//! Writing down how a batch ended, in its own transaction.

use std::collections::{BTreeMap, BTreeSet};

use client::Chance;
use tokio_postgres::Transaction;
use tokio_postgres::types::ToSql;

use super::fetch::Tid;
use super::{Prepared, Shared};
use crate::attempts::{Fault, Next, Reason};
use crate::batch::Batch;
use crate::config::Order;
use crate::error::Error;
use crate::io::postgres::database;
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
) -> Result<(), Error> {
    let failed = |error: tokio_postgres::Error| database("writing down how a batch ended", &error);
    let confirmed: Vec<usize> = batch.confirmed().collect();
    if !confirmed.is_empty() {
        let statement =
            prepared.get(transaction, &shared.statements.mark()).await.map_err(failed)?;
        let names = Names::of(shared, batch, &confirmed);
        let marked = transaction
            .execute(&statement, &[names.parameter()])
            .await
            .map_err(|error| database("marking rows", &error))?;
        if marked != confirmed.len() as u64 {
            let text = format!(
                "{} rows of {} were confirmed and {marked} would be marked. Nothing was committed, because that \
                 would lose or repeat rows: column `{}` is not unique, or a trigger or rule of the table \
                 interferes",
                confirmed.len(),
                shared.table.label(),
                shared.config.mapping.id
            );
            return Err(Error::setup(text));
        }
        if had_failures || shared.has_failures() {
            let ids: Vec<&str> = confirmed.iter().map(|&row| id(shared, batch, row)).collect();
            let statement =
                prepared.get(transaction, &shared.statements.absolve()).await.map_err(failed)?;
            transaction.execute(&statement, &[&ids]).await.map_err(failed)?;
        }
    }
    if !batch.faults().is_empty() {
        fail(shared, prepared, transaction, batch, chance).await.map_err(failed)?;
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
    let earlier: BTreeMap<&str, i32> =
        earlier.iter().map(|row| (row.get::<_, &str>(0), row.get(1))).collect();
    let mut failures = Failures::default();
    let mut seen = BTreeSet::new();
    let mut told: BTreeMap<Reason, (usize, &str, &str)> = BTreeMap::new();
    for (row, Fault { reason, text }) in batch.faults() {
        let id = id(shared, batch, *row);
        told.entry(*reason).or_insert((0, id, text)).0 += 1;
        // Two rows without an id, say, are written down as one.
        if !seen.insert(id) {
            continue;
        }
        let before = earlier.get(id).copied().unwrap_or(0);
        let attempts = before.saturating_add(i32::from(is_charged(shared, batch, *reason)));
        let next =
            shared.config.attempts.judge(*reason, attempts.max(1) as u32, chance.next_bits());
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
    }
    for (reason, (count, id, text)) in told {
        let error = shortened(text);
        tracing::warn!(
            count,
            reason = reason.name(),
            id,
            error,
            "messages were not taken, such as this one"
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

/// Whether this counts as an attempt. What nobody answered, what a broker refused as a whole, and what finds no queue
/// while nothing ever did (nobody has declared them yet) does not.
fn is_charged(shared: &Shared, batch: &Batch, reason: Reason) -> bool {
    match reason {
        Reason::Unanswered => false,
        Reason::Refused => !batch.is_failed_whole(reason),
        Reason::Unroutable => !batch.is_failed_whole(reason) || shared.metrics.confirmed.get() > 0,
        Reason::TooLarge | Reason::Broken => true,
    }
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
