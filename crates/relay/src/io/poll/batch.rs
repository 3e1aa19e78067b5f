//! One batch: a transaction from the fetch to the commit.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio_postgres::{Client, Transaction};

use super::Shared;
use super::fetch::{Fetched, fetch};
use super::mark::{Unwritten, Writer, Written};
use super::worker::Task;
use crate::batch::{Batch, OutboxRow};
use crate::error::Error;
use crate::io::postgres::{database, is_of_a_row, words};
use crate::metrics::Step;
use crate::poll::{Input, Output};

/// How often a batch looks at what does not wake it: a broker that unblocks, a database that is gone.
const LOOK: Duration = Duration::from_millis(100);

/// The broker has taken these rows, and they are not marked.
fn note_late(shared: &Shared, batch: &Batch, rows: &[usize]) {
    for &row in rows {
        let OutboxRow { place, fields } = &batch.rows()[row];
        if let Some(id) = fields.text(shared.layout().id) {
            shared.late.note(*place, id.to_owned());
        }
    }
}

/// Rows that the broker has taken a moment ago, too late for their batch.
fn confirmed_late(shared: &Shared, rows: &[OutboxRow]) -> Vec<usize> {
    if !shared.late.has_some() {
        return Vec::new();
    }
    let is_late = |row: &OutboxRow| {
        let id = row.fields.text(shared.layout().id);
        id.is_some_and(|id| shared.late.take(row.place, id))
    };
    (0..rows.len()).filter(|&row| is_late(&rows[row])).collect()
}

impl Task {
    /// Fetches, publishes, marks. An error is the database's; whatever the broker does ends the batch in order.
    pub(super) async fn batch(&mut self, client: &mut Client) -> Result<(), Error> {
        let start = Instant::now();
        let had_failures = self.shared.failures.has_some();
        let transaction =
            client.transaction().await.map_err(|error| database("beginning a batch", &error))?;
        let lanes = self.lanes.limit(&self.shared);
        let fetched =
            fetch(&self.shared, &mut self.prepared, &transaction, lanes, &mut self.largest)
                .await
                .map_err(|error| database("fetching rows", &error))?;
        let Fetched { rows, is_full, had_failures: some, took } = fetched;
        if !rows.is_empty() {
            self.shared.metrics.step(Step::Query, start.elapsed().as_nanos() as u64);
        }
        let confirmed = confirmed_late(&self.shared, &rows);
        let has_marked = self.shared.has_marked.load(Ordering::Relaxed);
        self.step(Input::Fetched { rows, is_full, took, confirmed, has_marked });
        let mut is_parked = false;
        match self.publish(&transaction).await {
            Output::Commit => match self.commit(transaction, had_failures || some).await {
                // Apart, a failure may have been refused.
                Ok(()) => is_parked = !self.shared.is_apart(),
                Err(Unwritten::ByRow(words)) => {
                    self.find_row(&words);
                    return Ok(());
                }
                Err(Unwritten::Failed(error)) => return Err(error),
            },
            Output::Fetch | Output::Rollback | Output::Stopped => {
                transaction
                    .rollback()
                    .await
                    .map_err(|error| database("giving a batch back", &error))?;
                if !self.core.batch().rows().is_empty() {
                    self.shared.metrics.released.inc();
                }
            }
        }
        self.step(Input::Ended { is_parked });
        Ok(())
    }

    async fn commit(
        &mut self,
        transaction: Transaction<'_>,
        had_failures: bool,
    ) -> Result<(), Unwritten> {
        let metrics = &self.shared.metrics;
        let start = Instant::now();
        let batch = self.core.batch();
        let time = self.shared.config.batch_deadline;
        let writer = Writer {
            shared: &self.shared,
            prepared: &mut self.prepared,
            transaction: &transaction,
            batch,
            chance: &mut self.chance,
            had_failures,
            apart_until: self.shared.is_apart().then(|| start + time),
        };
        // What is confirmed and not marked need not be published again: who locks it next must know that.
        let shared = &self.shared;
        let forgiven = |unwritten| {
            note_late(shared, batch, batch.confirmed());
            unwritten
        };
        // Held until after the commit: who sees no failures meanwhile must not take that for the truth.
        let Written { marked, rest, writing: _writing } = writer.write().await.map_err(forgiven)?;
        note_late(shared, batch, &rest);
        transaction.commit().await.map_err(|error| {
            forgiven(match is_of_a_row(&error) {
                true => Unwritten::ByRow(words(&error)),
                false => Unwritten::Failed(database("committing a batch", &error)),
            })
        })?;
        metrics.step(Step::Mark, start.elapsed().as_nanos() as u64);
        metrics.batches.inc();
        metrics.confirmed.inc_by(marked.len() as u64);
        if !marked.is_empty() {
            shared.has_marked.store(true, Ordering::Relaxed);
        }
        let payload = shared.layout().payload;
        let body = |&row: &usize| batch.rows()[row].fields.get(payload).map_or(0, <[u8]>::len);
        metrics.confirmed_bytes.inc_by(marked.iter().map(body).sum::<usize>() as u64);
        Ok(())
    }

    /// The data of some row let nothing of the batch be written: the next ones are written apart, which finds it.
    fn find_row(&mut self, words: &str) {
        tracing::warn!(
            worker = self.number,
            words,
            "the database refuses to mark some row; marking rows one by one to find it"
        );
        self.shared.write_apart();
        self.shared.metrics.released.inc();
        self.step(Input::DatabaseLost);
    }

    /// Publishes and waits until the core says how the batch ends.
    async fn publish(&mut self, transaction: &Transaction<'_>) -> Output {
        loop {
            if let Some(ending) = self.out.pop() {
                return ending;
            }
            if transaction.client().is_closed() {
                // Its locks are gone, and with them the right to publish.
                self.core.step(Instant::now(), Input::DatabaseLost, &mut Vec::new());
                return Output::Rollback;
            }
            let (publisher, rows) = self.core.publishing();
            self.broker.publish(publisher, rows).await;
            self.look();
            self.step(Input::Time);
            if self.out.is_empty() {
                self.wait_for_answers().await;
            }
        }
    }

    async fn wait_for_answers(&mut self) {
        let now = Instant::now();
        let until = self.core.deadline().unwrap_or(now).min(now + LOOK);
        let is_stopping = *self.stop.borrow();
        let driven = tokio::select! {
            driven = self.broker.drive() => Some(driven),
            () = tokio::time::sleep_until(until.into()) => None,
            _ = self.stop.changed(), if !is_stopping => return self.step(Input::Stop),
        };
        if let Some(driven) = driven {
            let (publisher, rows) = self.core.publishing();
            self.broker.driven(driven, publisher, rows);
        }
        self.step(Input::Time);
    }
}
