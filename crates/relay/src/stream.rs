//! The core of a relay that reads the log: what to publish, when a row is done, how far the log is done.
//!
//! It is told the time and what happened, and says what to do; [`io::slot`](crate::io) does it. Rows are published in
//! commit order. A row that the broker does not take is stored among the failures *before* it counts as done, with
//! itself, and tried again from there: the log never waits for it. Under an order, later rows of its key go there
//! behind it.
//!
//! ```text
//! change -> row -> ready -> unconfirmed -> confirmed -> settled
//!             \-> waits for its key /  \-> fails -> being stored -> settled
//! ```

mod keys;
mod publish;
mod retries;
mod rows;
mod sent;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{Backoff, Chance, PublishSeq, Verdict};
use service::{Attempts, Next};

use crate::attempts::{Fault, Reason};
use crate::config::{Config, OnDead, Order};
use crate::error::Error;
use crate::fields::Fields;
use crate::label::{hash, label, label_of};
use crate::limits::shortened;
use crate::lsn::Lsn;
use crate::mapping::TableName;
use crate::progress::{CommitTime, Partial, Progress, Reached, TransactionSeq};
use crate::sql::Table;
use crate::stored;
use crate::suspects::Suspects;
use crate::timestamp;
use keys::{Admission, Keys};
use retries::{Retries, Retry, RetrySeq};
use rows::{Rows, Version};
use sent::Sent;

pub use retries::Due;

/// Rows of the log that are read and not done, or twice the window if that is more.
pub const LOG_ROWS_MAX: usize = 16_384;
/// Bytes of them.
pub const LOG_BYTES_MAX: usize = 32 << 20;
/// Bytes of rows that are unconfirmed, when they come from the log.
pub const UNCONFIRMED_BYTES_MAX: usize = 16 << 20;
/// Keys with rows among the failures: with more the log is not read on.
pub const PARKED_KEYS_MAX: usize = 100_000;
/// How often failures are looked through for what is due.
const DUE_EVERY: Duration = Duration::from_secs(1);
/// How often it is asked which keys still have rows among the failures: somebody may have purged them.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// A refusal is a row's own fault only if others were confirmed so shortly before.
const HEALTHY_FOR: Duration = Duration::from_millis(250);
/// Waits after the broker was lost or refused everything.
const OUTAGE: Backoff =
    Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(2) };

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The transaction whose commit is written at `commit` arrives.
    Begin {
        commit: Lsn,
        at: Option<CommitTime>,
    },
    /// A change, as pgoutput has it.
    Change {
        lsn: Lsn,
        data: Bytes,
    },
    /// A message of `pg_logical_emit_message`. Outside a transaction it stands alone.
    Message {
        lsn: Lsn,
        content: Bytes,
    },
    /// A row that was read from the table, in the form of [`crate::pgoutput::encode_row`].
    Scanned(Bytes),
    /// The transaction has arrived.
    Commit {
        end: Lsn,
        at: Option<CommitTime>,
    },
    /// Everything before has been sent.
    KeepAlive {
        wal_end: Lsn,
    },
    /// A channel in confirm mode is open.
    BrokerReady,
    /// The connection is gone: what is unconfirmed is unknown.
    BrokerLost,
    /// The connection was cut: the oldest message was without a verdict for too long.
    BrokerSilent,
    /// The broker closed because of something it was sent.
    BrokerRefused {
        code: u16,
        text: String,
    },
    /// What [`Stream::offer`] gave was published.
    Published(PublishSeq),
    /// What [`Stream::offer`] gave cannot be published.
    Unfit(Fault),
    Verdict(Verdict),
    /// The oldest so many of [`Output::Store`] are in the database.
    Stored(usize),
    /// The answer to [`Output::FetchDue`], and whether there may be more.
    Due {
        rows: Vec<Due>,
        is_full: bool,
    },
    /// The answer to [`Output::Sweep`]: which keys have rows among the failures.
    Swept(BTreeSet<String>),
    /// These have none any more.
    Free(Vec<String>),
    /// Read and publish no more.
    Stop,
    /// Time has passed.
    Time,
}

/// What to do. Everything for the database is done in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Put a row among the failures, then say [`Input::Stored`].
    Store(Failure),
    /// A row among the failures has failed again.
    Charge(Failure),
    /// A row among the failures is confirmed: remove it.
    Absolve {
        row_id: String,
        key: Option<String>,
    },
    FetchDue,
    Sweep,
    /// It cannot go on.
    GiveUp(Error),
}

/// A row that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub row_id: String,
    pub key: Option<String>,
    /// Order among the failures; none if it is there already.
    pub position: Option<i64>,
    pub attempts: u32,
    /// None: it waits behind another of its key.
    pub reason: Option<Reason>,
    pub error: String,
    pub next: NextAttempt,
    /// The row as a JSON object; empty if it is there already.
    pub stored_row: String,
}

/// When a failed row is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextAttempt {
    After(Duration),
    /// Once those before it are done.
    Behind,
    /// Never: it is dead.
    Never,
}

/// Number of a row, in commit order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RowSeq(u64);

/// What is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    Row(RowSeq),
    Retry(RetrySeq),
}

/// A row of the log.
#[derive(Debug)]
struct Row {
    /// Empty once it is settled.
    data: Bytes,
    version: Version,
    lsn: Lsn,
    /// Rows of its transaction before it from the same place.
    nth: u32,
    of: TransactionSeq,
    key: Option<Bytes>,
    is_settled: bool,
}

/// Where a stream begins.
#[derive(Clone, Debug, Default)]
pub struct Start {
    pub reached: Reached,
    /// Keys that have rows among the failures.
    pub parked: Vec<String>,
    /// Above every position that is in use there.
    pub position: i64,
    pub seed: u64,
}

/// What was confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub rows: u64,
    /// Of their bodies.
    pub bytes: u64,
}

/// One log, one broker.
#[derive(Debug)]
pub struct Stream {
    order: Order,
    on_dead: OnDead,
    window: usize,
    attempts: Attempts,
    chance: Chance,
    rows: Rows,
    progress: Progress,
    /// What was done of a transaction when the stream began: those rows are passed over.
    resumed: Option<Partial>,
    /// The last row that arrived: its place, and how many of its transaction came before it from there.
    arrived: (Lsn, u32),
    /// Rows from the oldest that is not settled on.
    log: VecDeque<Row>,
    log_first: u64,
    log_bytes: usize,
    keys: Keys,
    ready: VecDeque<Job>,
    offered: Option<Job>,
    sent: Sent,
    /// Rows on their way to the failures, and the key that is told.
    storing: VecDeque<(RowSeq, Option<Bytes>)>,
    position: i64,
    retries: Retries,
    is_fetching: bool,
    due_at: Instant,
    sweep_at: Instant,
    is_broker_ready: bool,
    is_stopping: bool,
    /// Published one at a time until so many have a verdict: one of them made the broker close.
    careful: usize,
    outages: u32,
    /// Times that everything was refused, with nothing confirmed between.
    refusals: u32,
    pause_until: Instant,
    healthy_until: Option<Instant>,
    confirmed_at: Option<Instant>,
    /// Times that the broker was silent, with nothing confirmed between.
    silences: u32,
    suspects: Suspects,
    /// What is under way alone, as a suspect.
    alone: Option<Job>,
    counts: Counts,
    scratch: Fields,
}

impl Stream {
    /// For `table` (with its schema; unused by messages) as `config` maps it.
    pub fn new(config: &Config, table: &TableName, start: Start, now: Instant) -> Self {
        let mut keys = Keys::new(config.order_window);
        for key in &start.parked {
            keys.park(&Bytes::copy_from_slice(key.as_bytes()));
        }
        Self {
            order: config.order,
            on_dead: config.on_dead,
            window: config.window as usize,
            attempts: config.attempts,
            chance: Chance::new(start.seed),
            rows: Rows::new(&config.mapping, table),
            progress: Progress::new(start.reached),
            resumed: start.reached.partial,
            arrived: (Lsn(0), 0),
            log: VecDeque::new(),
            log_first: 0,
            log_bytes: 0,
            keys,
            ready: VecDeque::new(),
            offered: None,
            sent: Sent::default(),
            storing: VecDeque::new(),
            position: start.position,
            retries: Retries::default(),
            is_fetching: false,
            due_at: now,
            sweep_at: now + SWEEP_EVERY,
            is_broker_ready: false,
            is_stopping: false,
            careful: 0,
            outages: 0,
            refusals: 0,
            pause_until: now,
            healthy_until: None,
            confirmed_at: None,
            silences: 0,
            suspects: Suspects::default(),
            alone: None,
            counts: Counts::default(),
            scratch: Fields::default(),
        }
    }

    /// The table is this one: a column that is renamed for a while is still found.
    pub fn knowing(mut self, table: &Table) -> Self {
        if !table.has_dropped {
            self.rows.know(table.columns.iter().map(|(name, _)| name.clone()));
        }
        self
    }

    /// Something happened at `now`.
    pub fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Begin { commit, at } => self.begin(commit, at),
            Input::Change { lsn, data } => match self.rows.change(&data) {
                Ok(Some(version)) => self.arrive(data, version, lsn, None, out),
                Ok(None) => (),
                Err(text) => out.push(Output::GiveUp(Error::setup(text))),
            },
            Input::Message { lsn, content } => self.message(lsn, &content, out),
            Input::Scanned(row) => self.arrive(row, Version::OWN, Lsn(0), None, out),
            Input::Commit { end, at } => self.progress.commit(end, at),
            Input::KeepAlive { wal_end } => self.progress.keepalive(wal_end),
            Input::BrokerReady => self.is_broker_ready = true,
            Input::BrokerLost => self.broker_lost(now, out),
            Input::BrokerSilent => self.broker_silent(now, out),
            Input::BrokerRefused { code, text } => self.broker_refused(now, code, text, out),
            Input::Published(seq) => self.published(now, seq),
            Input::Unfit(fault) => self.unfit(fault, out),
            Input::Verdict(verdict) => self.verdict(now, verdict, out),
            Input::Stored(count) => self.stored(count),
            Input::Due { rows, is_full } => self.due(now, rows, is_full, out),
            Input::Swept(parked) => self.swept(&parked),
            Input::Free(keys) => keys.iter().for_each(|key| self.free(key.as_bytes())),
            Input::Stop => {
                self.is_stopping = true;
                self.ready.clear();
            }
            Input::Time => (),
        }
        self.plan(now, out);
    }

    fn begin(&mut self, commit: Lsn, at: Option<CommitTime>) {
        self.progress.begin(commit, at);
        if commit > Lsn(0) {
            self.arrived = (Lsn(0), 0);
        }
        // Rows that are read from the table have no place: they are numbered from the first portion to the last.
    }

    fn message(&mut self, lsn: Lsn, content: &[u8], out: &mut Vec<Output>) {
        let stands_alone = self.progress.is_closed();
        if stands_alone {
            self.begin(lsn, None);
        }
        let (row, fault) = stored::from_message(self.rows.layout(), content, lsn);
        self.arrive(row, Version::OWN, lsn, fault, out);
        if stands_alone {
            // Its record begins at `lsn`; whatever comes next begins behind that.
            self.progress.commit(lsn.next(), None);
        }
    }

    /// A row of the transaction that arrives; with a fault, one that cannot be published.
    fn arrive(
        &mut self,
        data: Bytes,
        version: Version,
        lsn: Lsn,
        fault: Option<Fault>,
        out: &mut Vec<Output>,
    ) {
        // Rows of one COPY may be written at one place.
        let nth = if self.arrived.0 == lsn { self.arrived.1 + 1 } else { 0 };
        self.arrived = (lsn, nth);
        if self.was_done(lsn) {
            return;
        }
        let of = self.progress.row();
        let seq = RowSeq(self.log_first + self.log.len() as u64);
        let layout = self.rows.layout();
        let (key_at, id_at) = (layout.key, layout.id);
        let key = match self.order {
            Order::None => None,
            Order::Strict => Some(Bytes::new()),
            // As it is called among the failures, so that the two are one key.
            Order::Key => key_at
                .and_then(|at| self.rows.value(version, &data, at))
                .or_else(|| self.rows.value(version, &data, id_at))
                .map(label_of),
        };
        self.log_bytes += data.len();
        let row = Row { data, version, lsn, nth, of, key: key.clone(), is_settled: false };
        self.log.push_back(row);
        let admission = key.as_ref().map_or(Admission::Publish, |key| self.keys.arrive(key, seq));
        match (admission, fault) {
            (Admission::Publish, Some(fault)) => self.fail_row(seq, fault, 1, out),
            (Admission::Publish, None) => self.ready.push_back(Job::Row(seq)),
            // A fault is found again when it is its turn.
            (Admission::Wait, _) => (),
            (Admission::Park, _) => self.store_waiting(seq, out),
        }
    }

    /// Whether a row of the transaction that arrives was done before the stream began.
    fn was_done(&self, lsn: Lsn) -> bool {
        self.resumed.is_some_and(|partial| {
            self.progress.arriving() == Some(partial.commit) && lsn < partial.below
        })
    }

    fn row(&self, seq: RowSeq) -> &Row {
        &self.log[(seq.0 - self.log_first) as usize]
    }

    /// A row is done for good.
    fn settle(&mut self, seq: RowSeq) {
        let row = &mut self.log[(seq.0 - self.log_first) as usize];
        assert!(!row.is_settled, "a row is settled once");
        row.is_settled = true;
        self.log_bytes -= row.data.len();
        (row.data, row.key) = (Bytes::new(), None);
        self.progress.settle(row.of);
        while self.log.front().is_some_and(|row| row.is_settled) {
            self.log.pop_front();
            self.log_first += 1;
        }
    }

    /// The broker did not take a row; `charge` attempts are counted: 1, or 0 if it is not to blame.
    fn fail_row(&mut self, seq: RowSeq, fault: Fault, charge: u32, out: &mut Vec<Output>) {
        let next = fault.reason.next(&self.attempts, 1, self.chance.next_bits());
        let blocks = !(next == Next::Dead && self.on_dead == OnDead::Skip);
        let key = self.row(seq).key.clone();
        let next_at = next_attempt(next);
        let failure = self.failure(seq, charge, Some(fault.reason), &fault.text, next_at);
        out.push(Output::Store(failure));
        match &key {
            Some(key) if blocks => self.keys.failed(key),
            Some(key) => {
                let next = self.keys.done(key);
                self.ready.extend(next.map(Job::Row));
            }
            None => (),
        }
        self.storing.push_back((seq, key.clone().filter(|_| blocks)));
        if let Some(key) = key {
            self.park_waiting(&key, out);
        }
    }

    /// Rows behind a failure of their key follow it, once nothing of the key is unconfirmed.
    fn park_waiting(&mut self, key: &Bytes, out: &mut Vec<Output>) {
        let mut waiting = Vec::new();
        self.keys.take_parking(key, &mut waiting);
        for seq in waiting {
            self.store_waiting(seq, out);
        }
    }

    fn store_waiting(&mut self, seq: RowSeq, out: &mut Vec<Output>) {
        let key = self.row(seq).key.clone();
        let error = "waits behind a row of its key that failed";
        out.push(Output::Store(self.failure(seq, 0, None, error, NextAttempt::Behind)));
        self.storing.push_back((seq, key));
    }

    fn failure(
        &mut self,
        seq: RowSeq,
        attempts: u32,
        reason: Option<Reason>,
        error: &str,
        next: NextAttempt,
    ) -> Failure {
        let row = &self.log[(seq.0 - self.log_first) as usize];
        self.rows.read(row.version, &row.data, &mut self.scratch);
        let layout = self.rows.layout();
        let id = self.scratch.get(layout.id);
        let position = self.position;
        self.position += 1;
        Failure {
            row_id: id.map_or_else(|| place_of(row), |id| label(id).into_owned()),
            key: row.key.as_ref().map(|key| text_of(key)),
            position: Some(position),
            attempts,
            reason,
            error: shortened(error),
            next,
            stored_row: stored::to_json(layout, &self.scratch),
        }
    }

    fn stored(&mut self, count: usize) {
        for _ in 0..count {
            let (seq, key) =
                self.storing.pop_front().expect("only what was to be stored is stored");
            if let Some(key) = key {
                self.keys.stored(&key);
            }
            self.settle(seq);
        }
    }

    fn due(&mut self, now: Instant, rows: Vec<Due>, is_full: bool, out: &mut Vec<Output>) {
        self.is_fetching = false;
        self.due_at = if is_full { now } else { now + DUE_EVERY };
        if self.is_stopping {
            return;
        }
        for Due { row_id, key, attempts, age, stored_row } in rows {
            let row = stored::from_json(self.rows.layout(), &stored_row);
            let data = row.clone().unwrap_or_default();
            let seq = self.retries.add(Retry { row_id, key, attempts, age, row: data });
            match (seq, row) {
                (Some(seq), Ok(_)) => self.ready.push_back(Job::Retry(seq)),
                (Some(seq), Err(text)) => {
                    let fault = Fault { reason: Reason::Broken, text };
                    self.fail_retry(seq, fault, 1, out);
                }
                // What cannot be read is found when it is its turn: nothing can be made of it.
                (None, _) => (),
            }
        }
    }

    fn fail_retry(&mut self, seq: RetrySeq, fault: Fault, charge: u32, out: &mut Vec<Output>) {
        let Some((made, age)) = self.retries.get(seq).map(|it| (it.attempts + charge, it.age))
        else {
            return;
        };
        let mut next = fault.reason.next(&self.attempts, made.max(1), self.chance.next_bits());
        if let Next::Retry { after } = &mut next
            && fault.reason == Reason::Unanswered
        {
            // What is not counted is tried later and later all the same.
            *after = age.clamp(*after, self.attempts.backoff.longest.max(*after));
        }
        let retry = match next == Next::Dead && self.on_dead == OnDead::Skip {
            false => self.retries.failed(seq),
            true => self.retries.done(seq).map(|(retry, behind)| {
                self.ready.extend(behind.map(Job::Retry));
                retry
            }),
        };
        let Some(Retry { row_id, key, .. }) = retry else { return };
        out.push(Output::Charge(Failure {
            row_id,
            key,
            position: None,
            attempts: made,
            reason: Some(fault.reason),
            error: shortened(&fault.text),
            next: next_attempt(next),
            stored_row: String::new(),
        }));
    }

    fn swept(&mut self, parked: &BTreeSet<String>) {
        let is_free = |key: &&Bytes| !parked.contains(&text_of(key));
        let free: Vec<Bytes> = self.keys.parked().filter(is_free).cloned().collect();
        free.iter().for_each(|key| self.free(key));
    }

    fn free(&mut self, key: &[u8]) {
        let mut rows = Vec::new();
        self.keys.unpark(&Bytes::copy_from_slice(key), &mut rows);
        self.ready.extend(rows.into_iter().map(Job::Row));
    }

    /// What is due without anybody's doing.
    fn plan(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.is_stopping || !self.is_broker_ready {
            return;
        }
        if now >= self.due_at && !self.is_fetching && self.retries.is_empty() {
            self.is_fetching = true;
            out.push(Output::FetchDue);
        }
        if now >= self.sweep_at {
            self.sweep_at = now + SWEEP_EVERY;
            if self.order != Order::None {
                out.push(Output::Sweep);
            }
        }
    }

    /// When to say [`Input::Time`] at the latest.
    pub fn deadline(&self, now: Instant) -> Instant {
        if self.is_stopping || !self.is_broker_ready {
            return now + SWEEP_EVERY;
        }
        let mut deadline = self.sweep_at;
        if !self.is_fetching && self.retries.is_empty() {
            deadline = deadline.min(self.due_at);
        }
        if !self.ready.is_empty() && self.pause_until > now {
            deadline = deadline.min(self.pause_until);
        }
        deadline
    }

    /// Whether there is room for more of the log.
    pub fn wants_input(&self) -> bool {
        !self.is_stopping
            && self.log.len() < LOG_ROWS_MAX.max(2 * self.window)
            && self.log_bytes < LOG_BYTES_MAX
            && !self.has_too_many_keys()
    }

    /// So many keys have rows among the failures that no more of the log is read.
    pub fn has_too_many_keys(&self) -> bool {
        self.keys.parked_count() >= PARKED_KEYS_MAX
    }

    /// Since when the oldest message is without a verdict.
    pub fn unconfirmed_since(&self) -> Option<Instant> {
        self.sent.oldest_at()
    }

    /// Everything that has arrived is done.
    pub fn is_done(&self) -> bool {
        self.log.is_empty()
    }

    /// Nothing is unconfirmed, and nothing on its way to the failures.
    pub fn is_still(&self) -> bool {
        self.sent.count() == 0 && self.storing.is_empty() && self.offered.is_none()
    }

    /// Everything before it is done.
    pub fn confirmed(&self) -> Lsn {
        self.progress.confirmed()
    }

    /// When the last transaction that is done was committed.
    pub fn last_commit(&self) -> Option<CommitTime> {
        self.progress.last_commit()
    }

    /// When the oldest row that is not done was committed. A row that was read from the table says itself when that was.
    pub fn waiting_since(&self) -> Option<CommitTime> {
        let front = self.log.front()?;
        if let Some(at) = self.progress.oldest_at() {
            return Some(at);
        }
        let occurred = self.rows.layout().occurred?;
        let text = self.rows.value(front.version, &front.data, occurred)?;
        let seconds = timestamp::seconds(std::str::from_utf8(&text).ok()?)?;
        Some(CommitTime::of_unix(seconds))
    }

    /// How far the log is done, to be written down.
    pub fn reached(&self) -> Reached {
        let (confirmed, last_commit) = (self.confirmed(), self.last_commit());
        Reached { confirmed, last_commit, partial: self.partial() }
    }

    fn partial(&self) -> Option<Partial> {
        // It stays true until that transaction is done: it arrives again from its first row on.
        let resumed = self.resumed.filter(|resumed| resumed.commit >= self.confirmed());
        let Some((oldest, commit)) = self.progress.oldest() else { return resumed };
        let below = match self.log.front() {
            // Rows leave the log from its front, and all that left it are done.
            Some(row) => {
                assert!(row.of == oldest, "the oldest row is of the oldest transaction");
                row.lsn
            }
            // More may come from the place of the last that came.
            None => self.arrived.0,
        };
        match resumed {
            Some(resumed) if resumed.commit > commit => Some(resumed),
            Some(resumed) if resumed.commit == commit => {
                Some(Partial { commit, below: below.max(resumed.below) })
            }
            Some(_) | None => (below > Lsn(0)).then_some(Partial { commit, below }),
        }
    }

    /// Rows that have arrived and are not done.
    pub fn backlog(&self) -> usize {
        self.log.len()
    }

    /// Messages without a verdict.
    pub fn unconfirmed(&self) -> usize {
        self.sent.count()
    }

    /// What was confirmed since this was asked last.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "confirmed {} log {} ready {} sent {} storing {} parked keys {} careful {}",
            self.confirmed(),
            self.log.len(),
            self.ready.len(),
            self.sent.count(),
            self.storing.len(),
            self.keys.parked_count(),
            self.careful
        )
    }
}

fn next_attempt(next: Next) -> NextAttempt {
    match next {
        Next::Retry { after } => NextAttempt::After(after),
        Next::Dead => NextAttempt::Never,
    }
}

/// What names a row without an id: the same each time that it comes.
fn place_of(row: &Row) -> String {
    match row.nth {
        // Whatever is left among the failures from an earlier reading of the table is another row.
        nth if row.lsn == Lsn(0) => format!("table:{}+{nth}", hash(&row.data)),
        0 => format!("log:{}", row.lsn),
        nth => format!("log:{}+{nth}", row.lsn),
    }
}

/// A key, which is a label, as the database has it.
fn text_of(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

#[cfg(test)]
mod tests;
