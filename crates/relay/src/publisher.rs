//! The publishing core of every source: which row goes to the broker next, and what the broker's answers mean for it.
//!
//! It is told the time and what happened. A source adds rows in their order, and takes what is settled. The shell
//! ([`io::broker`](crate::io)) publishes what is offered, and tells the broker's answers.
//!
//! ```text
//!            add                offer            verdict
//!   source ──────> waiting ──> ready ──> in flight ─────> settled ──> source
//!                  (for rows     ^            │             confirmed: mark it
//!                   of its key)  └────────────┘             failed:    another attempt, or dead
//!                                 the connection is         withheld:  behind a failed row of its key
//!                                 lost, or an outage
//! ```

mod answers;
mod keys;
mod outage;
mod poison;
#[cfg(test)]
mod tests;
mod window;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{Chance, PublishSeq};
use service::{Attempts, Next};

use crate::attempts::{Fault, Reason};
use crate::config::{Config, OnDead, Pipeline};
use crate::fields::Fields;
use keys::{Answer, Keys};
use outage::Outage;
use poison::Poison;
use window::Window;

/// Bytes of rows that are in flight.
pub const IN_FLIGHT_BYTES_MAX: usize = 16 << 20;

/// Number that a source gives to a row. The rows of one key are added with growing numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowSeq(pub u64);

/// What the core must know of a row.
#[derive(Clone, Debug)]
pub struct Row {
    pub seq: RowSeq,
    /// Rows of one key keep their order; none: the row has no order.
    pub key: Option<Bytes>,
    /// Attempts that were counted before.
    pub attempts: u32,
    pub bytes: usize,
}

/// What became of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The broker has taken it. `overtook`: it was stored behind a row of its key that failed.
    Confirmed { row: RowSeq, overtook: bool },
    /// The broker has not taken it. `holds`: later rows of its key are withheld until [`Publisher::free`].
    Failed { row: RowSeq, fault: Fault, is_charged: bool, next: Next, holds: bool },
    /// It comes behind a row of its key that failed. `was_stored`: the broker has it, and gets it again in its order.
    Withheld { row: RowSeq, was_stored: bool },
    /// The broker has taken it after it was released.
    Late { row: RowSeq },
}

/// What a source tells of its rows.
pub trait Rows {
    /// The columns of a row.
    ///
    /// # Errors
    /// No message can be made of it.
    fn read(&mut self, row: RowSeq) -> Result<&Fields, Fault>;

    /// What names the row: the same each time that it is added.
    fn name(&mut self, row: RowSeq) -> Vec<u8>;
}

/// How one publisher works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Messages in flight.
    pub window: usize,
    pub pipeline: Pipeline,
    /// Messages of one key in flight, where its rows are pipelined.
    pub order_window: usize,
    pub attempts: Attempts,
    pub on_dead: OnDead,
    /// How long the broker may leave the oldest message without an answer. Each time in a row twice as long.
    pub silence: Duration,
    pub silence_max: Duration,
    pub seed: u64,
}

impl Options {
    /// As `config` says.
    pub fn of(config: &Config, silence: Duration, silence_max: Duration, seed: u64) -> Self {
        Self {
            window: config.window as usize,
            pipeline: config.pipeline,
            order_window: config.order_window as usize,
            attempts: config.attempts,
            on_dead: config.on_dead,
            silence,
            silence_max,
            seed,
        }
    }
}

/// Says what comes after a failure.
#[derive(Debug)]
struct Judge {
    attempts: Attempts,
    on_dead: OnDead,
    chance: Chance,
}

impl Judge {
    /// What is told of a row that failed, and whether it holds its key.
    fn judge(&mut self, row: &Row, fault: Fault, is_charged: bool) -> (Settled, bool) {
        let bits = self.chance.next_bits();
        let (_, next) = fault.reason.after(&self.attempts, row.attempts, is_charged, bits);
        let goes_on = next == Next::Dead && self.on_dead == OnDead::Skip;
        let holds = row.key.is_some() && !goes_on;
        (Settled::Failed { row: row.seq, fault, is_charged, next, holds }, holds)
    }
}

/// One connection to the broker, and the rows of one source.
#[derive(Debug)]
pub struct Publisher {
    window: usize,
    judge: Judge,
    keys: Keys,
    /// Rows that may be published, in order.
    ready: VecDeque<Row>,
    offered: Option<Row>,
    in_flight: Window,
    /// Refused, and it is not known yet whether by an outage.
    refused: Vec<Row>,
    /// While there are some: when the next row goes out, to find out.
    probe_at: Instant,
    settled: VecDeque<Settled>,
    outage: Outage,
    poison: Poison,
    /// The name of the row that is in flight alone, because it was alone when a connection was lost.
    alone: Option<Vec<u8>>,
    is_connected: bool,
    is_closed: bool,
    /// Nothing is published from then on: the right to the rows may end.
    closes_at: Option<Instant>,
}

impl Publisher {
    /// Without rows and without a connection.
    pub fn new(options: &Options, now: Instant) -> Self {
        Self {
            window: options.window,
            judge: Judge {
                attempts: options.attempts,
                on_dead: options.on_dead,
                chance: Chance::new(options.seed),
            },
            keys: Keys::new(options.pipeline, options.order_window),
            ready: VecDeque::new(),
            offered: None,
            in_flight: Window::default(),
            refused: Vec::new(),
            probe_at: now,
            settled: VecDeque::new(),
            outage: Outage::new(options.silence, options.silence_max, now),
            poison: Poison::new(options.attempts.backoff.longest, now),
            alone: None,
            is_connected: false,
            is_closed: false,
            closes_at: None,
        }
    }

    /// The next row of the source.
    pub fn add(&mut self, row: Row) {
        match &row.key {
            None => self.ready.push_back(row),
            Some(_) => self.keys.add(row, &mut self.ready, &mut self.settled),
        }
    }

    /// What is settled, in the order of each key.
    pub fn next_settled(&mut self) -> Option<Settled> {
        self.settled.pop_front()
    }

    /// Rows of this key are withheld.
    pub fn hold(&mut self, key: &Bytes) {
        self.keys.hold(key);
    }

    /// A row that held its key, or was withheld, is stored by the source.
    pub fn stored(&mut self, key: &Bytes) {
        self.keys.stored(key);
    }

    /// Nothing keeps the key's rows back any more, as far as the source knows.
    pub fn free(&mut self, key: &Bytes) {
        self.keys.free(key, &mut self.ready);
    }

    /// Keys whose rows are withheld.
    pub fn held_keys(&self) -> impl Iterator<Item = &Bytes> {
        self.keys.held()
    }

    /// How many there are.
    pub fn held_count(&self) -> usize {
        self.keys.held_count()
    }

    /// A channel in confirm mode is open.
    pub fn connected(&mut self) {
        self.is_connected = true;
    }

    /// There is a connection to the broker.
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Somebody else has seen the broker take a message: a queue that is missing is not one that nobody has declared yet.
    pub fn note_confirmed(&mut self) {
        self.outage.has_confirmed = true;
    }

    /// Nothing more is published; what is in flight may still be settled.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Nothing more is published from `at` on, until the rows are released.
    pub fn close_at(&mut self, at: Instant) {
        self.closes_at = Some(at);
    }

    /// All that is not settled goes back to its source. What is in flight may still be told as late. Rows that are stored
    /// behind one without an answer are settled, where they are not published again to keep the order.
    pub fn release(&mut self) {
        self.take_back();
        self.ready.clear();
        self.refused.clear();
        self.keys.release(&mut self.settled);
        self.in_flight.release();
        (self.is_closed, self.closes_at) = (false, None);
    }

    /// The next row to publish. What came of it must be told before anything else: [`Publisher::published`],
    /// [`Publisher::unfit`] or [`Publisher::take_back`].
    pub fn offer(&mut self, now: Instant, rows: &mut impl Rows) -> Option<RowSeq> {
        assert!(self.offered.is_none(), "what was offered before has an end");
        let is_paused = self.outage.is_paused(now);
        if !self.is_connected || self.is_closed(now) || is_paused || self.alone.is_some() {
            return None;
        }
        if !self.refused.is_empty() {
            return self.offer_probe(now, rows);
        }
        while self.has_room() {
            let row = self.ready.front()?;
            if row.key.as_ref().is_some_and(|key| self.keys.is_barred(key, row.seq)) {
                // It was ready before one of its key failed.
                let row = self.ready.pop_front()?;
                self.answer(&row, Answer::Unsent);
                continue;
            }
            let seq = row.seq;
            let name = self.marked_name(now, seq, rows);
            if name.is_some() && self.in_flight.count() > 0 {
                return None;
            }
            self.alone = name;
            self.offered = self.ready.pop_front();
            return Some(seq);
        }
        None
    }

    /// One row goes out now and then while others are refused: what is in flight beside them may never be answered. Its
    /// answer says whether the broker takes anything. No row of a key that was refused is chosen.
    fn offer_probe(&mut self, now: Instant, rows: &mut impl Rows) -> Option<RowSeq> {
        if now < self.probe_at {
            return None;
        }
        self.probe_at = now + self.outage.next_probe();
        if !self.has_room() {
            return None;
        }
        let refused: BTreeSet<&Bytes> =
            self.refused.iter().filter_map(|row| row.key.as_ref()).collect();
        let may_go = |row: &Row| {
            let key = row.key.as_ref();
            key.is_none_or(|key| !refused.contains(key) && !self.keys.is_barred(key, row.seq))
        };
        let at = self.ready.iter().position(may_go)?;
        let seq = self.ready[at].seq;
        if self.marked_name(now, seq, rows).is_some() {
            return None;
        }
        self.offered = self.ready.remove(at);
        Some(seq)
    }

    fn has_room(&self) -> bool {
        let window = if self.poison.is_isolating() { 1 } else { self.window };
        self.in_flight.count() < window && self.in_flight.bytes() < IN_FLIGHT_BYTES_MAX
    }

    /// The name of a row that goes alone, because the connection was lost at it.
    fn marked_name(&mut self, now: Instant, row: RowSeq, rows: &mut impl Rows) -> Option<Vec<u8>> {
        let name = self.poison.has_marks(now).then(|| rows.name(row));
        name.filter(|name| self.poison.is_marked(name))
    }

    /// What was offered is on its way, as message `seq` of the connection.
    pub fn published(&mut self, now: Instant, seq: PublishSeq) {
        let row = self.offered.take().expect("only what was offered is published");
        self.in_flight.push(seq, row, now);
    }

    /// No message can be made of what was offered.
    pub fn unfit(&mut self, fault: Fault) {
        let row = self.offered.take().expect("only what was offered is unfit");
        self.fail(&row, fault, true);
    }

    /// There is no room for what was offered: it stays where it was.
    pub fn take_back(&mut self) {
        if let Some(row) = self.offered.take() {
            self.alone = None;
            self.ready.push_front(row);
        }
    }

    /// The row of a message without an answer.
    pub fn row_of(&self, seq: PublishSeq) -> Option<RowSeq> {
        self.in_flight.row(seq)
    }

    /// The row of the oldest message without an answer that was not released.
    pub fn oldest_row(&self) -> Option<RowSeq> {
        self.in_flight.rows().next()
    }

    /// Messages without an answer, also those of released rows.
    pub fn in_flight(&self) -> usize {
        self.in_flight.count()
    }

    /// The rows of messages without an answer that were not released.
    pub fn rows_in_flight(&self) -> impl Iterator<Item = RowSeq> {
        self.in_flight.rows()
    }

    /// Nothing is left to do with what was added.
    pub fn is_idle(&self, now: Instant) -> bool {
        let has_more = !self.is_closed(now) && !self.ready.is_empty();
        !has_more && self.is_still()
    }

    fn is_closed(&self, now: Instant) -> bool {
        self.is_closed || self.closes_at.is_some_and(|at| now >= at)
    }

    /// Nothing that was not released is on its way.
    pub fn is_still(&self) -> bool {
        self.in_flight.live_count() == 0 && self.offered.is_none() && self.refused.is_empty()
    }

    /// One row after the other is published, to find the one at which connections are lost.
    pub fn is_isolating(&self) -> bool {
        self.poison.is_isolating()
    }

    /// Until then nothing is published, because of an outage. In the past: it is over.
    pub fn paused_until(&self) -> Instant {
        self.outage.pause_until
    }

    /// The database, or something else, is away for now.
    pub fn pause(&mut self, now: Instant) {
        self.outage.pause(now);
    }

    /// When [`Publisher::offer`] may offer again what an outage keeps back, or the next row that shows whether there is
    /// one. None: now, or not before something else happens.
    pub fn resumes_at(&self, now: Instant) -> Option<Instant> {
        let probe_at = (!self.refused.is_empty()).then_some(self.probe_at);
        let at = probe_at.unwrap_or(now).max(self.outage.pause_until);
        (!self.ready.is_empty() && at > now).then_some(at)
    }

    fn answer(&mut self, row: &Row, answer: Answer) {
        if !matches!(answer, Answer::Unsent) {
            self.poison.answered();
        }
        match (&row.key, answer) {
            (Some(key), answer) => {
                let Self { keys, ready, settled, .. } = self;
                keys.answer(key, row.seq, answer, ready, settled);
            }
            (None, Answer::Confirmed) => {
                self.settled.push_back(Settled::Confirmed { row: row.seq, overtook: false });
            }
            (None, Answer::Failed { settled, .. }) => self.settled.push_back(settled),
            (None, Answer::Unsent) => unreachable!("a row without a key is never withheld"),
        }
    }

    fn fail(&mut self, row: &Row, fault: Fault, is_charged: bool) {
        self.alone = None;
        // While nothing ever found a queue, nobody has declared them yet.
        let is_declared = fault.reason != Reason::Unroutable || self.outage.has_confirmed;
        let (settled, holds) = self.judge.judge(row, fault, is_charged && is_declared);
        self.answer(row, Answer::Failed { settled, holds });
    }

    /// To be published again, before everything else and in their order.
    fn again(&mut self, mut rows: Vec<Row>) {
        self.keys.publish_again(&mut rows);
        rows.sort_unstable_by_key(|row| row.seq);
        if planted::is("relay_again_unordered") {
            rows.reverse();
        }
        for row in rows.into_iter().rev() {
            self.ready.push_front(row);
        }
    }
}

impl fmt::Display for Publisher {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "ready {} in flight {} held keys {} isolating {}",
            self.ready.len(),
            self.in_flight.count(),
            self.keys.held_count(),
            self.poison.is_isolating()
        )
    }
}
