//! The table as a source: when a poll worker fetches, when a batch ends, and how.
//!
//! It is told the time and what happened, and says what to do; [`io::poll`](crate::io) does it. One batch is one
//! transaction: rows are locked from the fetch to the commit. The [`publisher`](crate::publisher) publishes them. A batch
//! that cannot be finished in time, or whose broker is away, is given back: what was confirmed is marked, the rest is
//! untouched and no attempt is counted.

pub mod halves;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::attempts::Reason;
use crate::batch::{Batch, Failed, OutboxRow};
use crate::config::{Config, OnDead, Order, Pipeline};
use crate::fields::Fields;
use crate::mapping::Layout;
use crate::publisher::{self, Options, Publisher, RowSeq, Settled};

/// The longest wait for an answer to what was given back.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// An idle worker rests so many times longer than its last look took: looking must never be what the database is busy
/// with, as when many rows that wait stand at the head.
const REST: u32 = 10;
/// But a look that was slow once does not keep it away for longer than this.
const REST_MAX: Duration = Duration::from_secs(30);

/// What happened to the table and to time. What happens to the broker is told to the publisher.
#[derive(Debug)]
pub enum Input {
    /// The broker stopped publishers, or lets them go on.
    BrokerBlocked(bool),
    /// What the fetch has locked, and how long it took. `is_full`: there may be more. `confirmed`: rows that the broker
    /// has taken already, too late for an earlier batch. `has_marked`: some worker has marked a row before.
    Fetched {
        rows: Vec<OutboxRow>,
        is_full: bool,
        took: Duration,
        confirmed: Vec<usize>,
        has_marked: bool,
    },
    /// The transaction has ended as it was asked to. `is_parked`: what failed is written down.
    Ended { is_parked: bool },
    /// The database is gone or refused; the transaction did not happen.
    DatabaseLost,
    /// Somebody says that there are rows.
    Nudge,
    /// End what is begun, and no more.
    Stop,
    /// Time has passed, or the publisher was told something. Only this makes an idle worker fetch.
    Time,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Begin a transaction and fetch.
    Fetch,
    /// Mark what is confirmed, write down what failed, commit.
    Commit,
    /// Give everything back.
    Rollback,
    /// It is over.
    Stopped,
}

/// Where a worker is with its batch. A lost database leads from any of them to `Idle`.
///
/// ```text
///          time, broker ready           rows               all settled, or time is up
///   Idle ─────────────────────> Fetching ────> Publishing ───────────────────────────> Ending
///    │ ^                           │ no rows, broker away, stopping: rolled back         ^ │
///    │ │                           └─────────────────────────────────────────────────────┘ │
///    │ └──────────────────────────────── the transaction has ended ────────────────────────┘
///    └──stop──> Stopped
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Fetching,
    Publishing { until: Instant },
    Ending,
    Stopped,
}

/// Messages of a batch that had no answer when it ended.
#[derive(Debug, Default)]
struct Open {
    /// Place and id of their rows.
    rows: BTreeMap<RowSeq, (u64, String)>,
    /// Each of these rows waits for another attempt, or behind such a row of its key: nobody needs to wait for their
    /// answers.
    is_parked: bool,
    /// That is so once the batch at hand is written down.
    is_unwritten: bool,
    /// Place and id of those that the broker has taken since.
    confirmed: Vec<(u64, String)>,
}

/// One worker.
#[derive(Debug)]
pub struct Worker {
    order: Order,
    pipeline: Pipeline,
    on_dead: OnDead,
    window: usize,
    batch_deadline: Duration,
    poll_min: Duration,
    poll_max: Duration,
    layout: Layout,
    publisher: Publisher,
    state: State,
    batch: Batch,
    /// The publisher's number of the next row.
    next: u64,
    open: Open,
    /// Rows that were stored behind one of their key that failed, and the key of the last of them.
    overtaken: Option<(u64, String)>,
    is_full: bool,
    is_blocked: bool,
    is_stopping: bool,
    /// Nothing is fetched before.
    not_before: Instant,
    idle_wait: Duration,
    /// How long the last fetch took.
    took: Duration,
    /// Nothing is fetched before by a worker that found nothing, whoever nudges: a look is followed by as much time
    /// without one.
    rest_until: Instant,
}

impl Worker {
    /// A worker that has nothing and waits for its broker.
    pub fn new(config: &Config, seed: u64, now: Instant) -> Self {
        let options = Options::of(config, config.batch_deadline * 2, SILENCE_MAX, seed);
        Self {
            order: config.order,
            pipeline: config.pipeline,
            on_dead: config.on_dead,
            window: config.window as usize,
            batch_deadline: config.batch_deadline,
            poll_min: config.poll_min,
            poll_max: config.poll_max,
            layout: config.mapping.layout(),
            publisher: Publisher::new(&options, now),
            state: State::Idle,
            batch: Batch::default(),
            next: 0,
            open: Open::default(),
            overtaken: None,
            is_full: false,
            is_blocked: false,
            is_stopping: false,
            not_before: now,
            idle_wait: config.poll_min,
            took: Duration::ZERO,
            rest_until: now,
        }
    }

    /// The batch at hand; it ends with the input after `Commit` or `Rollback`.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// The publisher, and the rows that it asks for. After it was told something, [`Input::Time`] must follow.
    pub fn publishing(&mut self) -> (&mut Publisher, &mut Batch) {
        (&mut self.publisher, &mut self.batch)
    }

    /// Place and id of rows that the broker has taken after their batch was given back.
    pub fn take_late(&mut self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.open.confirmed)
    }

    /// How many rows were stored behind one of their key that failed since this was asked last, and the key of one.
    pub fn take_overtaken(&mut self) -> Option<(u64, String)> {
        self.overtaken.take()
    }

    /// When [`Input::Time`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Idle if self.may_begin() => Some(self.begins_at()),
            State::Publishing { until } => Some(until),
            State::Idle | State::Fetching | State::Ending | State::Stopped => None,
        }
    }

    /// A batch may begin: no row that it could fetch has a message on its way. Of others there may be some, as long as
    /// they leave room.
    fn may_begin(&self) -> bool {
        let in_flight = self.publisher.in_flight();
        let may_pass = self.open.is_parked && !self.publisher.is_isolating();
        let is_clear = in_flight == 0 || may_pass && in_flight <= self.window / 2;
        self.publisher.is_connected() && !self.is_blocked && is_clear
    }

    fn begins_at(&self) -> Instant {
        self.not_before.max(self.publisher.paused_until())
    }

    /// Takes in what happened and appends what to do.
    pub fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        self.take_settled();
        let may_fetch = matches!(input, Input::Time);
        match input {
            Input::BrokerBlocked(is_blocked) => self.is_blocked = is_blocked,
            Input::Fetched { rows, is_full, took, confirmed, has_marked } => {
                (self.is_full, self.took) = (is_full, took);
                if has_marked {
                    self.publisher.note_confirmed();
                }
                self.fetched(now, rows, &confirmed, out);
            }
            Input::Ended { is_parked } => self.ended(now, is_parked),
            Input::DatabaseLost => {
                self.give_back_at(now, false);
                self.open.is_parked = false;
                self.batch = Batch::default();
                self.state = State::Idle;
                self.publisher.pause(now);
            }
            Input::Nudge => {
                self.idle_wait = self.poll_min;
                self.not_before = self.not_before.min(now.max(self.rest_until));
            }
            Input::Stop => {
                self.is_stopping = true;
                self.publisher.close();
            }
            Input::Time => (),
        }
        self.end_if_over(now, out);
        if self.state == State::Idle {
            if self.is_stopping {
                self.state = State::Stopped;
                out.push(Output::Stopped);
            } else if may_fetch && self.may_begin() && now >= self.begins_at() {
                self.state = State::Fetching;
                out.push(Output::Fetch);
            }
        }
    }

    fn fetched(
        &mut self,
        now: Instant,
        rows: Vec<OutboxRow>,
        confirmed: &[usize],
        out: &mut Vec<Output>,
    ) {
        self.batch = Batch::new(rows, self.next, self.layout.id);
        self.next += self.batch.rows().len() as u64;
        if self.batch.rows().is_empty() || !self.publisher.is_connected() || self.is_stopping {
            self.state = State::Ending;
            return out.push(Output::Rollback);
        }
        let confirmed: BTreeSet<usize> = confirmed.iter().copied().collect();
        // Of these keys a row is published now.
        let mut published: BTreeSet<Bytes> = BTreeSet::new();
        for row in 0..self.batch.rows().len() {
            let fields = &self.batch.rows()[row].fields;
            let (key, bytes, seq) = (self.key_of(fields), fields.byte_count(), self.batch.seq(row));
            let is_behind = key.as_ref().is_some_and(|key| published.contains(key));
            if confirmed.contains(&row) && self.stays_confirmed(seq, is_behind) {
                self.batch.confirm(row);
                continue;
            }
            published.extend(key.clone());
            // The attempts that were made are known when the failure is written down.
            self.publisher.add(publisher::Row { seq, key, attempts: 0, bytes });
        }
        let until = now + self.batch_deadline;
        // Nothing is published in the last part of the time: only a broker that is silent for all of it leaves
        // messages without an answer, which are published again. And whoever was frozen may have lost its locks.
        self.publisher.close_at(until - self.batch_deadline / 5);
        self.state = State::Publishing { until };
    }

    /// The broker has taken a row too late for an earlier batch. Whether it is marked without being published again, where
    /// `is_behind` says that a row of its key before it is published now.
    fn stays_confirmed(&mut self, row: RowSeq, is_behind: bool) -> bool {
        match self.pipeline {
            _ if self.order == Order::None => true,
            // A row before it may have been published since, in this batch or an earlier one: the last that a consumer
            // sees of each row is in order.
            Pipeline::Repeat => planted::is("relay_late_overtakes"),
            Pipeline::Report => {
                self.note_overtaken(row, is_behind);
                true
            }
            // It was alone: the row before it is one that was committed later.
            Pipeline::Wait => true,
        }
    }

    /// Rows of one key keep their order.
    fn key_of(&self, fields: &Fields) -> Option<Bytes> {
        match self.order {
            Order::None => None,
            Order::Strict => Some(Bytes::new()),
            Order::Key => {
                let key = self.layout.key.and_then(|key| fields.get(key));
                let key = key.or_else(|| fields.get(self.layout.id)).unwrap_or_default();
                Some(Bytes::copy_from_slice(key))
            }
        }
    }

    fn take_settled(&mut self) {
        while let Some(settled) = self.publisher.next_settled() {
            match settled {
                Settled::Confirmed { row, overtook } => {
                    self.note_overtaken(row, overtook);
                    if let Some(row) = self.batch.place(row) {
                        self.batch.confirm(row);
                    }
                }
                Settled::Failed { row, fault, is_charged, .. } => {
                    if let Some(row) = self.batch.place(row) {
                        self.batch.fail(row, fault, is_charged);
                    }
                }
                // It is given back; its key is not fetched before the row that failed is published.
                Settled::Withheld { row, was_stored } => self.note_overtaken(row, was_stored),
                Settled::Late { row } => self.open.confirmed.extend(self.open.rows.remove(&row)),
            }
        }
        if self.publisher.in_flight() == 0 {
            // Answered, or lost with their connection: nothing more is heard of them.
            self.open.rows.clear();
        }
    }

    fn note_overtaken(&mut self, row: RowSeq, is_overtaken: bool) {
        let Some(row) = self.batch.place(row).filter(|_| is_overtaken) else { return };
        let key = self.layout.key.filter(|_| self.order == Order::Key);
        let key = key.and_then(|key| self.batch.rows()[row].fields.text(key)).unwrap_or_default();
        let before = self.overtaken.take().map_or(0, |(count, _)| count);
        self.overtaken = Some((before + 1, key.to_owned()));
    }

    /// Ends the batch if nothing more can come of it.
    fn end_if_over(&mut self, now: Instant, out: &mut Vec<Output>) {
        let State::Publishing { until } = self.state else { return };
        let is_over = now >= until;
        let is_paused = self.publisher.paused_until() > now && self.publisher.is_still();
        let can_go_on = self.publisher.is_connected() && !is_paused;
        if can_go_on && !is_over && !self.publisher.is_idle(now) {
            return;
        }
        self.give_back_at(now, is_over);
        self.state = State::Ending;
        out.push(if self.batch.is_untouched() { Output::Rollback } else { Output::Commit });
    }

    /// What has no answer goes back to the table; one may still come, later.
    fn give_back_at(&mut self, now: Instant, is_over: bool) {
        let open: Vec<RowSeq> = self.publisher.rows_in_flight().collect();
        if is_over {
            self.publisher.expire(now);
            self.take_settled();
        }
        if !open.is_empty() {
            (self.open.is_parked, self.open.is_unwritten) = (true, true);
        }
        let (failed, keys) = self.parked();
        for seq in open {
            let Some(row) = self.batch.place(seq) else { continue };
            let OutboxRow { place, fields } = &self.batch.rows()[row];
            let key = self.key_of(fields);
            self.open.is_parked &=
                failed.contains(&row) || key.is_some_and(|it| keys.contains(&it));
            if let Some(id) = fields.text(self.layout.id) {
                self.open.rows.insert(seq, (*place, id.to_owned()));
            }
        }
        self.publisher.release();
        self.take_settled();
    }

    /// Rows of the batch that failed, and the keys that are blocked for that: nothing of them is fetched before their time.
    fn parked(&self) -> (BTreeSet<usize>, BTreeSet<Bytes>) {
        let (mut rows, mut keys) = (BTreeSet::new(), BTreeSet::new());
        for Failed { row, fault, .. } in self.batch.failed() {
            rows.insert(*row);
            // A row that is dead may let its key go on.
            if self.on_dead == OnDead::Block || fault.reason == Reason::Unanswered {
                keys.extend(self.key_of(&self.batch.rows()[*row].fields));
            }
        }
        (rows, keys)
    }

    fn ended(&mut self, now: Instant, is_parked: bool) {
        let batch = std::mem::take(&mut self.batch);
        self.state = State::Idle;
        if std::mem::take(&mut self.open.is_unwritten) {
            self.open.is_parked &= is_parked;
        }
        if batch.rows().is_empty() && self.is_full {
            // The end of a scan that began in the middle: once more from the head.
        } else if batch.rows().is_empty() {
            self.not_before = now + self.idle_wait.max((self.took * REST).min(REST_MAX));
            self.rest_until = now + self.took.min(REST_MAX);
            self.idle_wait = (self.idle_wait * 2).min(self.poll_max);
        } else {
            self.idle_wait = self.poll_min;
            let ended = batch.confirmed().len() + batch.failed().len();
            let has_more =
                self.is_full || !batch.confirmed().is_empty() && ended < batch.rows().len();
            if !has_more {
                self.not_before = self.not_before.max(now + self.poll_min);
            }
        }
    }
}

#[cfg(test)]
mod tests;
