//! The core of one poll worker: when to fetch, what to publish, when a batch ends and how.
//!
//! It is told the time and what happened, and says what to do; [`io::poll`](crate::io) does it. One batch is one
//! transaction: rows are locked from the fetch to the commit. A batch that cannot be finished in time, or whose
//! broker is away, is given back: what was confirmed is marked, the rest is untouched and nobody is charged.

pub mod halves;

use std::time::{Duration, Instant};

use crate::attempts::{Fault, Reason};
use crate::batch::{Batch, OutboxRow};
use crate::config::{Config, Order};
use crate::mapping::Layout;
use crate::suspects::{Loss, Name, Suspects};

/// So many batches in a row are given back before rows that nobody answers, or that are refused as a whole, are
/// parked to let others pass.
const TIMEOUT: u32 = 3;
/// Longest wait after the broker took nothing.
const OUTAGE_WAIT_MAX: Duration = Duration::from_secs(1);
const OUTAGE_WAIT_MIN: Duration = Duration::from_millis(50);
/// An idle worker rests so many times longer than its last look took: looking must never be what the database is busy
/// with, as when many rows that wait stand at the head.
const REST: u32 = 10;
/// But a look that was slow once does not keep it away for longer than this.
const REST_MAX: Duration = Duration::from_secs(30);

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// A channel in confirm mode is open.
    BrokerReady,
    /// The broker stopped publishers, or lets them go on.
    BrokerBlocked(bool),
    /// The connection is gone: what was unconfirmed is unknown.
    BrokerLost,
    /// The broker closed channel or connection because of something it was sent.
    BrokerRefused { code: u16, text: String },
    /// What the fetch has locked, and how long it took. `is_full`: there may be more.
    Fetched { rows: Vec<OutboxRow>, is_full: bool, took: Duration },
    /// The verdict on a row that was to be published.
    Verdict { row: usize, verdict: Result<(), Fault> },
    /// The transaction has ended as it was asked to.
    Ended,
    /// The database is gone or refused; the transaction did not happen.
    DatabaseLost,
    /// Somebody says that there are rows.
    Nudge,
    /// End what is begun, and no more.
    Stop,
    /// These rows of the batch could not be handed over yet.
    Unsent(Vec<usize>),
    /// Time has passed, and a fetch would be done. Only this makes an idle worker fetch.
    Time,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Begin a transaction and fetch.
    Fetch,
    /// Publish this row of the batch.
    Publish(usize),
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

/// One worker.
#[derive(Debug)]
pub struct Worker {
    order: Order,
    order_window: u32,
    window: usize,
    batch_deadline: Duration,
    poll_min: Duration,
    poll_max: Duration,
    layout: Layout,
    state: State,
    batch: Batch,
    is_full: bool,
    is_ready: bool,
    is_blocked: bool,
    is_stopping: bool,
    /// Nothing is fetched before.
    not_before: Instant,
    idle_wait: Duration,
    outage_wait: Duration,
    /// Nothing is fetched before, whoever nudges.
    outage_until: Instant,
    /// How long the last fetch took.
    took: Duration,
    /// The same for a worker that found nothing: a look is followed by as much time without one.
    rest_until: Instant,
    /// Rows of the batch that were to be published and could not be handed over: no room, or the broker blocks.
    unsent: Vec<usize>,
    /// Batches in a row of which the broker took nothing.
    fruitless: u32,
    /// Rows of the batch were refused by an outage.
    is_refused: bool,
    /// Rows that are published one at a time, to find one that makes the broker close the channel.
    careful: usize,
    suspects: Suspects,
}

impl Worker {
    /// A worker that has nothing and waits for its broker.
    pub fn new(config: &Config, now: Instant) -> Self {
        Self {
            order: config.order,
            order_window: config.order_window,
            window: config.window as usize,
            batch_deadline: config.batch_deadline,
            poll_min: config.poll_min,
            poll_max: config.poll_max,
            layout: config.mapping.layout(),
            state: State::Idle,
            batch: Batch::default(),
            is_full: false,
            is_ready: false,
            is_blocked: false,
            is_stopping: false,
            not_before: now,
            idle_wait: config.poll_min,
            outage_wait: OUTAGE_WAIT_MIN,
            outage_until: now,
            took: Duration::ZERO,
            rest_until: now,
            unsent: Vec::new(),
            fruitless: 0,
            is_refused: false,
            careful: 0,
            suspects: Suspects::default(),
        }
    }

    /// The batch at hand; it ends with the input after `Commit` or `Rollback`.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// One message at a time is published.
    pub fn is_careful(&self) -> bool {
        self.careful > 0
    }

    /// Some row is to be alone on the connection, to find out whether it is to blame for what happens there.
    pub fn is_wary(&self) -> bool {
        self.is_careful() || !self.suspects.is_empty()
    }

    /// When [`Input::Time`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Idle if self.is_ready && !self.is_blocked => Some(self.not_before),
            State::Publishing { until } => Some(until),
            State::Idle | State::Fetching | State::Ending | State::Stopped => None,
        }
    }

    /// Takes in what happened and appends what to do.
    pub fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        let may_fetch = matches!(input, Input::Time);
        match input {
            Input::BrokerReady => (self.is_ready, self.is_blocked) = (true, false),
            Input::BrokerBlocked(is_blocked) => self.is_blocked = is_blocked,
            Input::BrokerLost => self.broker_lost(now, out),
            Input::BrokerRefused { code, text } => self.broker_refused(now, code, text, out),
            Input::Fetched { rows, is_full, took } => {
                self.took = took;
                self.fetched(now, rows, is_full, out);
            }
            Input::Verdict { row, verdict } => self.verdict(now, row, verdict, out),
            Input::Unsent(rows) => self.unsent = rows,
            Input::Ended => self.ended(now),
            Input::DatabaseLost => {
                self.batch = Batch::default();
                self.is_refused = false;
                self.state = State::Idle;
                self.outage(now);
            }
            Input::Nudge => {
                self.idle_wait = self.poll_min;
                let now = now.max(self.outage_until).max(self.rest_until);
                self.not_before = self.not_before.min(now);
            }
            Input::Stop => {
                self.is_stopping = true;
                if let State::Publishing { .. } = self.state {
                    self.batch.hold_unpublished();
                    self.end_if_settled(out);
                }
            }
            Input::Time => {
                if let State::Publishing { until } = self.state
                    && now >= until
                {
                    self.time_is_up(now, out);
                }
            }
        }
        if self.state == State::Idle {
            if self.is_stopping {
                self.state = State::Stopped;
                out.push(Output::Stopped);
            } else if may_fetch && self.is_ready && !self.is_blocked && now >= self.not_before {
                self.state = State::Fetching;
                out.push(Output::Fetch);
            }
        }
    }

    fn fetched(
        &mut self,
        now: Instant,
        rows: Vec<OutboxRow>,
        is_full: bool,
        out: &mut Vec<Output>,
    ) {
        self.is_full = is_full;
        self.unsent.clear();
        let key = self.layout.key;
        let id = self.layout.id;
        self.batch = Batch::new(rows, self.order, self.order_window, |fields| {
            let key = key.and_then(|key| fields.get(key)).or_else(|| fields.get(id));
            key.unwrap_or_default().to_vec()
        });
        if self.batch.rows().is_empty() || !self.is_ready || self.is_stopping {
            self.batch.hold_rest();
            self.state = State::Ending;
            out.push(Output::Rollback);
            return;
        }
        if !self.suspects.is_empty() {
            // Whoever else gets through tells a poison from an outage.
            let names: Vec<Name> = (0..self.batch.rows().len()).map(|row| self.name(row)).collect();
            let suspects = &self.suspects;
            self.batch.put_last(|row| {
                u8::from(suspects.is_suspect(&names[row]))
                    + u8::from(suspects.was_alone(&names[row]))
            });
        }
        self.state = State::Publishing { until: now + self.batch_deadline };
        self.pump(out);
    }

    fn pump(&mut self, out: &mut Vec<Output>) {
        while let Some(next) = self.batch.next() {
            let others = self.batch.unconfirmed();
            let is_alone_there = others == 1 && self.alone().is_some();
            let room = if self.goes_alone(next) { 1 } else { self.window };
            if others >= room || is_alone_there {
                break;
            }
            self.batch.take_next();
            out.push(Output::Publish(next));
        }
        self.end_if_settled(out);
    }

    fn name(&self, row: usize) -> Name {
        let OutboxRow { place, fields } = &self.batch.rows()[row];
        (*place, fields.get(self.layout.id).unwrap_or_default().to_vec())
    }

    /// Nothing else is under way while this row is.
    fn goes_alone(&self, row: usize) -> bool {
        self.is_careful() || !self.suspects.is_empty() && self.suspects.is_suspect(&self.name(row))
    }

    /// The row that is under way alone, on purpose.
    fn alone(&self) -> Option<usize> {
        if !self.is_wary() {
            return None;
        }
        let row = self.batch.sole_unconfirmed()?;
        (!self.unsent.contains(&row) && self.goes_alone(row)).then_some(row)
    }

    fn verdict(
        &mut self,
        now: Instant,
        row: usize,
        verdict: Result<(), Fault>,
        out: &mut Vec<Output>,
    ) {
        let State::Publishing { until } = self.state else { return };
        let OutboxRow { place, fields } = &self.batch.rows()[row];
        let name = || (*place, fields.get(self.layout.id).unwrap_or_default().to_vec());
        self.suspects.answered(name, verdict.is_ok());
        self.batch.settle(row, verdict);
        self.careful = self.careful.saturating_sub(1);
        // Nothing is published in the last part of the time: only a broker that is silent for all of it leaves
        // messages without a verdict, which are published again. And whoever was frozen may have lost its locks.
        if now + self.batch_deadline / 5 < until {
            return self.pump(out);
        }
        self.batch.hold_unpublished();
        self.end_if_settled(out);
    }

    /// The batch has held its transaction for long enough.
    fn time_is_up(&mut self, now: Instant, out: &mut Vec<Output>) {
        // A broker that answered others, or that keeps silent again and again: the rows wait, others pass.
        if self.batch.confirmed_count() > 0 || self.fruitless >= TIMEOUT {
            let text = "the broker neither confirmed nor refused it in time";
            self.batch.leave_unanswered(text, |row| !self.unsent.contains(&row));
            self.end_if_settled(out);
            return;
        }
        self.outage(now);
        self.give_up(out);
    }

    fn end_if_settled(&mut self, out: &mut Vec<Output>) {
        if self.batch.is_settled() && matches!(self.state, State::Publishing { .. }) {
            self.state = State::Ending;
            self.is_refused = self.batch.is_refused_whole() && self.fruitless < TIMEOUT;
            if self.is_refused {
                self.batch.hold_refused();
            }
            let nothing = self.batch.confirmed_count() == 0 && self.batch.faults().is_empty();
            out.push(if nothing { Output::Rollback } else { Output::Commit });
        }
    }

    fn give_up(&mut self, out: &mut Vec<Output>) {
        self.batch.hold_rest();
        self.end_if_settled(out);
    }

    fn broker_lost(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.is_ready = false;
        let State::Publishing { .. } = self.state else { return };
        let is_proved = self.suspect();
        if self.batch.confirmed_count() == 0 && !is_proved {
            self.outage(now);
        }
        self.give_up(out);
    }

    /// The connection was lost without a word: an outage, or one of the rows that were under way. Whether it is proved
    /// which.
    fn suspect(&mut self) -> bool {
        let Some(row) = self.alone() else {
            let rows: Vec<usize> = self.batch.all_unconfirmed().collect();
            for row in rows.into_iter().filter(|row| !self.unsent.contains(row)) {
                self.suspects.lost(self.name(row));
            }
            return false;
        };
        let loss = self.suspects.lost_alone(self.name(row));
        match loss {
            Loss::Again => (),
            Loss::Rest => {
                let text = "the connection to the broker was lost again and again while it alone was under way";
                self.batch
                    .settle(row, Err(Fault { reason: Reason::Unanswered, text: text.into() }));
            }
            Loss::Guilty => {
                let text = "the connection to the broker is lost whenever this is published, while others are confirmed";
                self.batch.convict(row, Fault { reason: Reason::Refused, text: text.into() });
            }
        }
        loss == Loss::Guilty
    }

    /// Something that was published is to blame. With one message at a time it is known which.
    fn broker_refused(&mut self, now: Instant, code: u16, text: String, out: &mut Vec<Output>) {
        self.is_ready = false;
        let State::Publishing { .. } = self.state else { return };
        match self.alone() {
            Some(row) => {
                let reason = match code {
                    // The exchange is missing, or this user may not publish to it: somebody can mend that.
                    404 | 403 => Reason::Unroutable,
                    311 => Reason::TooLarge,
                    _ if text.contains("larger than") || text.contains("too large") => {
                        Reason::TooLarge
                    }
                    406 | 501 | 502 | 540 | 0 => Reason::Broken,
                    // Whatever else: it may have nothing to do with the row, so it is not dead at once.
                    _ => Reason::Refused,
                };
                let fault = Fault { reason, text: format!("{code} {text}") };
                self.batch.settle(row, Err(fault));
                self.careful = self.careful.saturating_sub(1);
            }
            None => self.careful = self.batch.rows().len(),
        }
        if self.batch.confirmed_count() == 0 && self.batch.faults().is_empty() {
            // It is tried again at once, carefully; a broker that always refuses is not hammered.
            self.outage(now);
        }
        self.give_up(out);
    }

    fn ended(&mut self, now: Instant) {
        let batch = std::mem::take(&mut self.batch);
        self.state = State::Idle;
        if batch.confirmed_count() > 0 {
            self.outage_wait = OUTAGE_WAIT_MIN;
            self.fruitless = 0;
        } else if !batch.rows().is_empty() {
            self.fruitless = self.fruitless.saturating_add(1);
        }
        if std::mem::take(&mut self.is_refused) {
            self.outage(now);
        } else if batch.rows().is_empty() && self.is_full {
            // The end of a scan that began in the middle: once more from the head.
        } else if batch.rows().is_empty() {
            self.not_before = now + self.idle_wait.max((self.took * REST).min(REST_MAX));
            self.rest_until = now + self.took.min(REST_MAX);
            self.idle_wait = (self.idle_wait * 2).min(self.poll_max);
        } else {
            self.idle_wait = self.poll_min;
            let ended = batch.confirmed_count() + batch.faults().len();
            let has_more =
                self.is_full || batch.confirmed_count() > 0 && ended < batch.rows().len();
            if !has_more {
                self.not_before = self.not_before.max(now + self.poll_min);
            }
        }
    }

    fn outage(&mut self, now: Instant) {
        self.not_before = now + self.outage_wait;
        self.outage_until = self.not_before;
        self.outage_wait = (self.outage_wait * 2).min(OUTAGE_WAIT_MAX);
    }
}

#[cfg(test)]
mod tests;
