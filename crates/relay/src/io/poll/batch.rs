//! One batch: a transaction from the fetch to the commit.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use client::{Address, Error as BrokerError, Publisher, Run, Verdict};
use tokio::time::timeout_at;
use tokio_postgres::{Client, Transaction};

use super::Shared;
use super::fetch::fetch;
use super::mark::{Unwritten, Writer, Written};
use super::worker::{Task, Woken};
use crate::attempts::{Fault, Reason};
use crate::batch::{Batch, OutboxRow};
use crate::config::Order;
use crate::error::Error;
use crate::io::broker;
use crate::io::postgres::{database, is_of_a_row, words};
use crate::metrics::Step;
use crate::poll::{Input, Output};

/// How often a batch looks at what does not wake it.
const LOOK: Duration = Duration::from_millis(100);
/// Exchanges that are remembered on a connection.
const EXCHANGES_MAX: usize = 10_000;

/// How a batch's time was spent.
#[derive(Default)]
struct Spent {
    publish: Duration,
    wait: Duration,
}

/// Rows of a batch whose messages have no verdict when it ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Nothing,
    /// All of them are among the failures of the batch.
    Failed,
    /// Some were given back.
    Held,
}

/// What became of a row that was to be published.
enum Handed {
    Published,
    /// Without the broker.
    Settled(Result<(), Fault>),
    /// Later: the window is full, or the broker blocks.
    NoRoom,
    Lost(BrokerError),
}

/// Whether the exchange is there; asked once on a connection, and not for longer than until `end`.
async fn has_exchange(
    publisher: &mut Publisher,
    known: &mut BTreeMap<String, bool>,
    exchange: &str,
    end: Instant,
) -> Result<bool, BrokerError> {
    if exchange.is_empty() {
        return Ok(true);
    }
    if let Some(&is_there) = known.get(exchange) {
        return Ok(is_there);
    }
    let Ok(answer) = timeout_at(end.into(), publisher.has_exchange(exchange)).await else {
        return Err(BrokerError::NoAnswer { to: "whether an exchange exists".into() });
    };
    let is_there = answer?;
    if known.len() >= EXCHANGES_MAX {
        known.clear();
    }
    known.insert(exchange.to_owned(), is_there);
    Ok(is_there)
}

/// The broker has taken these rows, and they are not marked.
fn note_late(shared: &Shared, batch: &Batch, rows: impl Iterator<Item = usize>) {
    for row in rows {
        let OutboxRow { place, fields } = &batch.rows()[row];
        if let Some(id) = fields.text(shared.layout().id) {
            shared.note_late(*place, id.to_owned());
        }
    }
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
        if !fetched.rows.is_empty() {
            self.shared.metrics.step(Step::Query, start.elapsed().as_nanos() as u64);
        }
        let super::fetch::Fetched { rows, is_full, had_failures: some, took } = fetched;
        let had_failures = had_failures || some;
        self.step(Input::Fetched { rows, is_full, took });
        let mut spent = Spent::default();
        let ending = self.publish(&transaction, &mut spent).await;
        // What was open before is parked: else no batch would have begun.
        let open = self.remember_open();
        self.is_open_parked = open == Open::Nothing;
        match ending {
            Output::Commit => match self.commit(transaction, had_failures, &spent).await {
                // Apart, a failure may have been refused.
                Ok(()) => self.is_open_parked |= open == Open::Failed && !self.shared.is_apart(),
                Err(Unwritten::ByRow(words)) => {
                    self.find_row(&words);
                    return Ok(());
                }
                Err(Unwritten::Failed(error)) => return Err(error),
            },
            Output::Fetch | Output::Publish(_) | Output::Rollback | Output::Stopped => {
                transaction
                    .rollback()
                    .await
                    .map_err(|error| database("giving a batch back", &error))?;
                if !self.core.batch().rows().is_empty() {
                    self.shared.metrics.released.inc();
                }
            }
        }
        self.step(Input::Ended);
        Ok(())
    }

    async fn commit(
        &mut self,
        transaction: Transaction<'_>,
        had_failures: bool,
        spent: &Spent,
    ) -> Result<(), Unwritten> {
        let metrics = &self.shared.metrics;
        metrics.step(Step::Publish, spent.publish.as_nanos() as u64);
        metrics.step(Step::Confirm, spent.wait.as_nanos() as u64);
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
        note_late(shared, batch, rest.iter().copied());
        transaction.commit().await.map_err(|error| {
            forgiven(match is_of_a_row(&error) {
                true => Unwritten::ByRow(words(&error)),
                false => Unwritten::Failed(database("committing a batch", &error)),
            })
        })?;
        metrics.step(Step::Mark, start.elapsed().as_nanos() as u64);
        metrics.batches.inc();
        metrics.confirmed.inc_by(marked.len() as u64);
        let payload = self.shared.layout().payload;
        let body = |&row: &usize| batch.rows()[row].fields.get(payload).map_or(0, <[u8]>::len);
        metrics.confirmed_bytes.inc_by(marked.iter().map(body).sum::<usize>() as u64);
        Ok(())
    }

    /// The data of some row let nothing of the batch be written: the next ones are written apart, which finds it.
    fn find_row(&mut self, words: &str) {
        tracing::warn!(
            worker = self.number,
            words,
            "rows are marked one by one: some row cannot be"
        );
        self.shared.write_apart();
        self.shared.metrics.released.inc();
        self.step(Input::DatabaseLost);
    }

    /// Publishes and waits until the core says how the batch ends.
    async fn publish(&mut self, transaction: &Transaction<'_>, spent: &mut Spent) -> Output {
        let mut queue = VecDeque::new();
        let mut had_unsent = false;
        loop {
            for output in std::mem::take(&mut self.out) {
                match output {
                    Output::Publish(row) => queue.push_back(row),
                    ending => return ending,
                }
            }
            if transaction.client().is_closed() {
                // Its locks are gone, and with them the right to publish.
                self.core.step(Instant::now(), Input::DatabaseLost, &mut Vec::new());
                return Output::Rollback;
            }
            let start = Instant::now();
            self.publish_some(&mut queue).await;
            if had_unsent || !queue.is_empty() {
                had_unsent = !queue.is_empty();
                self.step(Input::Unsent(queue.iter().copied().collect()));
            }
            if !self.out.is_empty() {
                spent.publish += start.elapsed();
                continue;
            }
            let now = Instant::now();
            spent.publish += now - start;
            self.wait_for_verdicts(!queue.is_empty()).await;
            spent.wait += now.elapsed();
        }
    }

    /// Hands over what there is room and time for.
    async fn publish_some(&mut self, queue: &mut VecDeque<usize>) {
        let end = self.core.deadline().unwrap_or_else(Instant::now);
        let has_late = self.shared.has_late();
        let mut published = Vec::new();
        while let Some(&row) = queue.front()
            && Instant::now() < end
        {
            match self.publish_one(row, has_late, end).await {
                Handed::Published => published.push(row),
                Handed::Settled(verdict) => self.step(Input::Verdict { row, verdict }),
                Handed::NoRoom => break,
                Handed::Lost(error) => {
                    // It was tried, those behind it were not.
                    queue.pop_front();
                    self.step(Input::Unsent(queue.iter().copied().collect()));
                    return self.lost(&error);
                }
            }
            queue.pop_front();
        }
        if queue.is_empty() {
            // An exchange may be declared meanwhile: the next batch asks again for those that were missing.
            self.exchanges.retain(|_, is_there| *is_there);
        }
        if self.shared.config.no_confirms && !published.is_empty() {
            self.believe(published).await;
        }
    }

    async fn publish_one(&mut self, row: usize, has_late: bool, end: Instant) -> Handed {
        let Some(publisher) = self.publisher.as_mut() else { return Handed::NoRoom };
        let OutboxRow { place, fields } = &self.core.batch().rows()[row];
        let id = || fields.text(self.shared.layout().id);
        if has_late && id().is_some_and(|id| self.shared.take_late(*place, id)) {
            return Handed::Settled(Ok(()));
        }
        let message = match self.composer.compose(fields) {
            Ok(message) => message,
            Err(fault) => return Handed::Settled(Err(fault)),
        };
        let exchange = message.exchange;
        match has_exchange(publisher, &mut self.exchanges, exchange, end).await {
            Ok(true) => (),
            Ok(false) => {
                let text = format!("there is no exchange '{exchange}'");
                return Handed::Settled(Err(Fault { reason: Reason::Unroutable, text }));
            }
            Err(error) => return Handed::Lost(error),
        }
        let to = Address { exchange, routing_key: message.routing_key, mandatory: true };
        match publisher.try_publish(to, &message.properties, message.body) {
            Ok(Some(seq)) => {
                if self.rows_of.is_empty() {
                    self.first_seq = seq.0;
                }
                self.rows_of.push_back(Some(row as u32));
                Handed::Published
            }
            Ok(None) => Handed::NoRoom,
            Err(BrokerError::Invalid { text }) => {
                Handed::Settled(Err(Fault { reason: Reason::Broken, text }))
            }
            Err(error) => Handed::Lost(error),
        }
    }

    /// Without confirms, what is in the socket counts as taken.
    async fn believe(&mut self, rows: Vec<usize>) {
        let until = self.core.deadline().unwrap_or_else(Instant::now).into();
        let Some(publisher) = &mut self.publisher else { return };
        match timeout_at(until, publisher.flush()).await {
            Ok(Ok(())) => (),
            Ok(Err(error)) => return self.lost(&error),
            Err(_) => return self.step(Input::Time),
        }
        self.rows_of.clear();
        for row in rows {
            self.step(Input::Verdict { row, verdict: Ok(()) });
        }
    }

    /// What is published and has no verdict yet; one may still come, later.
    fn remember_open(&mut self) -> Open {
        let rows = std::mem::take(&mut self.rows_of);
        if self.publisher.is_none() {
            return Open::Nothing;
        }
        let batch = self.core.batch();
        let open = match rows.iter().flatten().all(|row| batch.has_failed(*row as usize)) {
            _ if rows.iter().all(Option::is_none) => Open::Nothing,
            true => Open::Failed,
            false => Open::Held,
        };
        for (seq, row) in (self.first_seq..).zip(rows) {
            let row = row.and_then(|row| self.core.batch().rows().get(row as usize));
            let Some(row) = row else { continue };
            if let Some(id) = row.fields.text(self.shared.layout().id) {
                self.open.insert(seq, (row.place, id.to_owned()));
            }
        }
        open
    }

    /// Verdicts between batches: on rows that were given back.
    pub(super) fn take_late_verdicts(&mut self) {
        for verdict in std::mem::take(&mut self.verdicts) {
            match verdict {
                Verdict::Confirmed(run) => self.settle_late(run, true),
                Verdict::Refused(run) => self.settle_late(run, false),
                Verdict::Returned { seq, .. } => {
                    self.settle_late(Run { first: seq, last: seq }, false);
                }
            }
        }
    }

    /// What of this run is of an earlier batch.
    fn settle_late(&mut self, run: Run, is_confirmed: bool) {
        if self.open.is_empty() {
            return;
        }
        let later = self.open.split_off(&(run.last.0 + 1));
        let mut settled = std::mem::replace(&mut self.open, later);
        let ended = settled.split_off(&run.first.0);
        self.open.append(&mut settled);
        if is_confirmed && !ended.is_empty() {
            self.timeout = 0;
            ended.into_values().for_each(|(place, id)| self.shared.note_late(place, id));
        }
    }

    /// `is_held_back`: some rows could not be handed over, for want of room or because the broker blocks.
    async fn wait_for_verdicts(&mut self, is_held_back: bool) {
        let Some(publisher) = &mut self.publisher else {
            // The core was told; it ends the batch.
            return;
        };
        let now = Instant::now();
        let mut deadline = self.core.deadline().unwrap_or(now);
        if is_held_back || self.shared.config.order != Order::None {
            // A broker that unblocks, and a database that is gone, wake nobody.
            deadline = deadline.min(now + LOOK);
        }
        let is_stopping = *self.stop.borrow();
        let woken = tokio::select! {
            driven = publisher.drive(&mut self.verdicts) => Woken::Driven(driven),
            () = tokio::time::sleep_until(deadline.into()) => Woken::Time,
            _ = self.stop.changed(), if !is_stopping => Woken::Stop,
        };
        match woken {
            Woken::Driven(driven) => {
                self.take_verdicts();
                if let Err(error) = driven {
                    self.lost(&error);
                }
            }
            Woken::Time | Woken::Nudge => self.step(Input::Time),
            Woken::Stop => self.step(Input::Stop),
        }
    }

    fn take_verdicts(&mut self) {
        let mut verdicts = std::mem::take(&mut self.verdicts);
        for verdict in verdicts.drain(..) {
            match verdict {
                Verdict::Confirmed(run) => self.settle(run, &Ok(())),
                Verdict::Refused(run) => {
                    let text = "the broker refused it (basic.nack)".into();
                    self.settle(run, &Err(Fault { reason: Reason::Refused, text }));
                }
                Verdict::Returned { seq, code, text } => {
                    let text =
                        format!("no queue was found for {}: {code} {text}", self.address(seq.0));
                    let fault = Fault { reason: Reason::Unroutable, text };
                    self.settle(Run { first: seq, last: seq }, &Err(fault));
                }
            }
        }
        self.verdicts = verdicts;
    }

    /// Where the message went, in words.
    fn address(&mut self, seq: u64) -> String {
        let at = seq.checked_sub(self.first_seq).map(|at| at as usize);
        let row = at.and_then(|at| self.rows_of.get(at).copied()).flatten();
        let fields = row.and_then(|row| self.core.batch().rows().get(row as usize));
        match fields.map(|row| self.composer.compose(&row.fields)) {
            Some(Ok(to)) => {
                format!("exchange '{}' with routing key '{}'", to.exchange, to.routing_key)
            }
            _ => "it".into(),
        }
    }

    fn settle(&mut self, run: Run, verdict: &Result<(), Fault>) {
        self.settle_late(run, verdict.is_ok());
        let first = run.first.0.max(self.first_seq);
        for seq in first..=run.last.0 {
            let row = self.rows_of.get_mut((seq - self.first_seq) as usize).and_then(Option::take);
            if let Some(row) = row {
                self.step(Input::Verdict { row: row as usize, verdict: verdict.clone() });
            }
        }
    }

    fn lost(&mut self, error: &BrokerError) {
        tracing::warn!(worker = self.number, %error, "the broker is lost");
        if let Some(publisher) = &mut self.publisher {
            publisher.take_verdicts(&mut self.verdicts);
            self.take_verdicts();
        }
        self.drop_publisher();
        let input = match broker::refusal(error) {
            Some((code, text)) => Input::BrokerRefused { code, text },
            None => Input::BrokerLost,
        };
        self.step(input);
    }
}
