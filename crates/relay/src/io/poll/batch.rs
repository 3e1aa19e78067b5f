//! One batch: a transaction from the fetch to the commit.

use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio_postgres::{Client, Transaction};

use super::fetch::{Fetched, fetch};
use super::mark::Writer;
use super::worker::Task;
use super::written::{Unwritten, Written};
use crate::error::Error;
use crate::io::postgres::{database, is_of_a_row, words};
use crate::metrics::Step;
use crate::poll::{Input, Output};

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
        let confirmed = self.shared.late.take_rows(&rows, self.shared.layout().id);
        let has_marked = self.shared.has_marked.load(Ordering::Relaxed);
        self.at.step(Input::Fetched { rows, is_full, took, confirmed, has_marked });
        let mut is_parked = false;
        match self.publish(&transaction).await {
            Output::Commit => match self.commit(transaction, had_failures || some).await {
                // Apart, a failure may have been refused.
                Ok(()) => is_parked = !self.shared.apart.is_on(),
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
                if !self.at.core.batch().rows().is_empty() {
                    self.shared.metrics.released.inc();
                }
            }
        }
        self.at.step(Input::Ended { is_parked });
        Ok(())
    }

    async fn commit(
        &mut self,
        transaction: Transaction<'_>,
        had_failures: bool,
    ) -> Result<(), Unwritten> {
        let metrics = &self.shared.metrics;
        let start = Instant::now();
        let batch = self.at.core.batch();
        let time = self.shared.config.batch_deadline;
        let writer = Writer {
            shared: &self.shared,
            prepared: &mut self.prepared,
            transaction: &transaction,
            batch,
            chance: &mut self.at.chance,
            had_failures,
            apart_until: self.shared.apart.is_on().then(|| start + time),
        };
        // What is confirmed and not marked need not be published again: who locks it next must know that.
        let shared = &self.shared;
        let forgiven = |unwritten| {
            shared.late.note_rows(batch, batch.confirmed(), shared.layout().id);
            unwritten
        };
        // Held until after the commit: who sees no failures meanwhile must not take that for the truth.
        let Written { marked, rest, writing: _writing } = writer.write().await.map_err(forgiven)?;
        shared.late.note_rows(batch, &rest, shared.layout().id);
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
            worker = self.at.number,
            words,
            "the database refuses to mark some row; marking rows one by one to find it"
        );
        self.shared.apart.begin();
        self.shared.metrics.released.inc();
        self.at.step(Input::DatabaseLost);
    }

    /// Publishes and waits until the core says how the batch ends.
    async fn publish(&mut self, transaction: &Transaction<'_>) -> Output {
        loop {
            if let Some(ending) = self.at.out.pop() {
                return ending;
            }
            if transaction.client().is_closed() {
                // Its locks are gone, and with them the right to publish.
                self.at.core.step(Instant::now(), Input::DatabaseLost, &mut Vec::new());
                return Output::Rollback;
            }
            self.at.publish(&self.shared.late).await;
        }
    }
}
