//! The log as a source: which rows there are, when each is done, how far the log is done.
//!
//! It is told the time and what happened, and says what to do; [`io::slot`](crate::io) does it. The
//! [`publisher`](crate::publisher) publishes the rows in commit order. A row that the broker does not take is stored among
//! the failures *before* it counts as done, with itself, and is tried again from there: the log never waits for it. Under
//! an order, later rows of its key are stored behind it.
//!
//! ```text
//! change -> row -> publisher -> confirmed ----------------> done
//!                      \-> failed or withheld -> stored -> done
//! ```

mod arrived;
mod events;
mod retries;
mod rows;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use service::Next;

use crate::attempts::{Fault, Reason};
use crate::config::{Config, Order};
use crate::error::Error;
use crate::label::label_of;
use crate::limits::shortened;
use crate::lsn::Lsn;
use crate::mapping::TableName;
use crate::progress::{CommitTime, Partial, Progress, Reached, TransactionSeq};
use crate::publisher::{self, Publisher, RowSeq, Settled};
use crate::sql::Table;
use crate::stored;
use crate::timestamp;
use arrived::{Arrived, Row};
use retries::Retry;
use rows::Version;

pub use events::{Counts, Failure, Input, NextAttempt, Output, Start};
pub use retries::Due;

/// Rows of the log that are read and not done, or twice the window if that is more.
pub const LOG_ROWS_MAX: usize = 16_384;
/// Bytes of them.
pub const LOG_BYTES_MAX: usize = 32 << 20;
/// Keys with rows among the failures: with more the log is not read on.
pub const HELD_KEYS_MAX: usize = 100_000;
/// How often failures are looked through for what is due.
const DUE_EVERY: Duration = Duration::from_secs(1);
/// How often it is asked which keys still have rows among the failures: somebody may have purged them.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// How long a message may be without an answer; each time in a row that this is all that helps, twice as long.
const SILENCE: Duration = Duration::from_secs(30);
const SILENCE_MAX: Duration = Duration::from_secs(240);

/// One log, one broker.
#[derive(Debug)]
pub struct Stream {
    config: Config,
    rows: Arrived,
    publisher: Publisher,
    progress: Progress,
    /// What was done of a transaction when the stream began: those rows are passed over.
    resumed: Option<Partial>,
    /// The last row that arrived: its place, and how many of its transaction came before it from there.
    last: (Lsn, u32),
    /// Rows on their way to the failures, and the key that is told.
    storing: VecDeque<(RowSeq, Option<Bytes>)>,
    position: i64,
    is_fetching: bool,
    due_at: Instant,
    sweep_at: Instant,
    is_stopping: bool,
    counts: Counts,
}

impl Stream {
    /// For `table` (with its schema; unused by messages) as `config` maps it.
    pub fn new(config: &Config, table: &TableName, start: Start, now: Instant) -> Self {
        let options = publisher::Options::of(config, SILENCE, SILENCE_MAX, start.seed);
        let mut publisher = Publisher::new(&options, now);
        for key in &start.parked {
            publisher.hold(&Bytes::copy_from_slice(key.as_bytes()));
        }
        if start.reached.last_commit.is_some() {
            publisher.note_confirmed();
        }
        Self {
            config: config.clone(),
            rows: Arrived::new(&config.mapping, table),
            publisher,
            progress: Progress::new(start.reached),
            resumed: start.reached.partial,
            last: (Lsn(0), 0),
            storing: VecDeque::new(),
            position: start.position,
            is_fetching: false,
            due_at: now,
            sweep_at: now + SWEEP_EVERY,
            is_stopping: false,
            counts: Counts::default(),
        }
    }

    /// The table is this one: a column that is renamed for a while is still found.
    pub fn knowing(mut self, table: &Table) -> Self {
        if !table.has_dropped {
            self.rows.decoder.know(table.columns.iter().map(|(name, _)| name.clone()));
        }
        self
    }

    /// The publisher, and the rows that it asks for. After it was told something, [`Input::Time`] must follow.
    pub fn publishing(&mut self) -> (&mut Publisher, &mut impl publisher::Rows) {
        (&mut self.publisher, &mut self.rows)
    }

    /// Something happened at `now`.
    pub fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Begin { commit, at } => self.begin(commit, at),
            Input::Change { lsn, data } => match self.rows.decoder.change(&data) {
                Ok(Some(version)) => self.arrive(data, version, lsn, None),
                Ok(None) => (),
                Err(text) => out.push(Output::GiveUp(Error::setup(text))),
            },
            Input::Row { lsn, data } => self.arrive(data, Version::OWN, lsn, None),
            Input::Message { lsn, content } => self.message(lsn, &content),
            Input::Scanned(row) => self.arrive(row, Version::OWN, Lsn(0), None),
            Input::Commit { end, at } => self.progress.commit(end, at),
            Input::KeepAlive { wal_end } => self.progress.keepalive(wal_end),
            Input::Stored(count) => self.stored(count),
            Input::Due { rows, is_full } => self.due(now, rows, is_full),
            Input::Swept(parked) => self.swept(&parked),
            Input::Free(keys) => {
                keys.iter().for_each(|key| self.publisher.free(&label_bytes(key)));
            }
            Input::Stop => {
                self.is_stopping = true;
                self.publisher.close();
            }
            Input::Time => (),
        }
        while let Some(settled) = self.publisher.next_settled() {
            self.settled(settled, out);
        }
        self.plan(now, out);
    }

    fn begin(&mut self, commit: Lsn, at: Option<CommitTime>) {
        self.progress.begin(commit, at);
        if commit > Lsn(0) {
            self.last = (Lsn(0), 0);
        }
        // Rows that are read from the table have no place: they are numbered from the first portion to the last.
    }

    fn message(&mut self, lsn: Lsn, content: &[u8]) {
        let stands_alone = self.progress.is_closed();
        if stands_alone {
            self.begin(lsn, None);
        }
        let (row, fault) = stored::from_message(self.rows.decoder.layout(), content, lsn);
        self.arrive(row, Version::OWN, lsn, fault);
        if stands_alone {
            // Its record begins at `lsn`; whatever comes next begins behind that.
            self.progress.commit(lsn.next(), None);
        }
    }

    /// A row of the transaction that arrives; with a fault, one that cannot be published.
    fn arrive(&mut self, data: Bytes, version: Version, lsn: Lsn, fault: Option<Fault>) {
        // Rows of one COPY may be written at one place.
        let nth = if self.last.0 == lsn { self.last.1 + 1 } else { 0 };
        self.last = (lsn, nth);
        if self.was_done(lsn) {
            return;
        }
        let of = self.progress.row();
        let layout = self.rows.decoder.layout();
        let (key_at, id_at) = (layout.key, layout.id);
        let key = match self.config.order {
            Order::None => None,
            Order::Strict => Some(Bytes::new()),
            // As it is called among the failures, so that the two are one key.
            Order::Key => key_at
                .and_then(|at| self.rows.decoder.value(version, &data, at))
                .or_else(|| self.rows.decoder.value(version, &data, id_at))
                .map(label_of),
        };
        let bytes = data.len();
        let fault = fault.map(Box::new);
        let row = Row { data, version, lsn, nth, of, key: key.clone(), fault, is_done: false };
        let seq = self.rows.push(row);
        self.publisher.add(publisher::Row { seq, key, attempts: 0, bytes });
    }

    /// Whether a row of the transaction that arrives was done before the stream began.
    fn was_done(&self, lsn: Lsn) -> bool {
        self.resumed.is_some_and(|partial| {
            self.progress.arriving() == Some(partial.commit) && lsn < partial.below
        })
    }

    /// The publisher has settled a row.
    fn settled(&mut self, settled: Settled, out: &mut Vec<Output>) {
        match settled {
            Settled::Confirmed { row, overtook } => {
                self.counts.rows += 1;
                self.counts.bytes += self.rows.body_bytes(row) as u64;
                self.count_overtaken(row, overtook);
                match self.rows.retries.remove(row) {
                    Some(Retry { row_id, key, .. }) => out.push(Output::Remove { row_id, key }),
                    None => self.done(row),
                }
            }
            Settled::Failed { row, fault, is_charged, next, holds } => {
                let charge = u32::from(is_charged);
                match self.rows.retries.remove(row) {
                    Some(retry) => self.retry_failed(retry, &fault, charge, next, holds, out),
                    None => {
                        let next = next_attempt(next);
                        let failure =
                            self.failure(row, charge, Some(fault.reason), &fault.text, next);
                        out.push(Output::Store(failure));
                        let key = self.rows.row(row).key.clone();
                        self.storing.push_back((row, key.filter(|_| holds)));
                    }
                }
            }
            Settled::Withheld { row, was_stored } => {
                self.count_overtaken(row, was_stored);
                match self.rows.retries.remove(row) {
                    // It stays where it is, untried.
                    Some(retry) => self.retry_leaves(&retry),
                    None => {
                        let error = "waits behind a row of its key that failed";
                        let failure = self.failure(row, 0, None, error, NextAttempt::Behind);
                        out.push(Output::Store(failure));
                        let key = self.rows.row(row).key.clone();
                        self.storing.push_back((row, key));
                    }
                }
            }
            // Nothing of the log is ever released.
            Settled::Late { .. } => (),
        }
    }

    fn count_overtaken(&mut self, row: RowSeq, is_overtaken: bool) {
        if is_overtaken {
            self.counts.overtaken += 1;
            self.counts.overtaken_key = self.rows.key(row);
        }
    }

    /// A row is done for good.
    fn done(&mut self, seq: RowSeq) {
        let of = self.rows.done(seq);
        self.progress.settle(of);
    }

    fn failure(
        &mut self,
        seq: RowSeq,
        attempts: u32,
        reason: Option<Reason>,
        error: &str,
        next: NextAttempt,
    ) -> Failure {
        let row_id = self.rows.label(seq);
        let position = self.position;
        self.position += 1;
        Failure {
            row_id,
            key: self.rows.key(seq),
            position: Some(position),
            attempts,
            reason,
            error: shortened(error),
            next,
            stored_row: self.rows.stored_row(seq),
        }
    }

    fn stored(&mut self, count: usize) {
        for _ in 0..count {
            let (seq, key) =
                self.storing.pop_front().expect("only what was to be stored is stored");
            if let Some(key) = key {
                self.publisher.stored(&key);
            }
            self.done(seq);
        }
    }

    fn due(&mut self, now: Instant, rows: Vec<Due>, is_full: bool) {
        self.is_fetching = false;
        self.due_at = if is_full { now } else { now + DUE_EVERY };
        if self.is_stopping {
            return;
        }
        for key in self.rows.retries.take_keys() {
            self.publisher.free(&key);
        }
        for due in rows {
            let row = self.rows.add_retry(due);
            self.publisher.add(row);
        }
    }

    fn retry_failed(
        &mut self,
        retry: Retry,
        fault: &Fault,
        charge: u32,
        mut next: Next,
        holds: bool,
        out: &mut Vec<Output>,
    ) {
        if let Next::Retry { after } = &mut next
            && charge == 0
        {
            // What is not counted is tried later and later all the same.
            *after = retry.age.clamp(*after, self.config.attempts.backoff.longest.max(*after));
        }
        if holds {
            self.retry_leaves(&retry);
        }
        out.push(Output::Retry(Failure {
            row_id: retry.row_id,
            key: retry.key,
            position: None,
            attempts: retry.attempts + charge,
            reason: Some(fault.reason),
            error: shortened(&fault.text),
            next: next_attempt(next),
            stored_row: String::new(),
        }));
    }

    /// It is among the failures already. Its key is free again when all that was fetched is done.
    fn retry_leaves(&mut self, retry: &Retry) {
        if let Some(key) = retry.publishing_key() {
            self.publisher.stored(&key);
        }
    }

    fn swept(&mut self, parked: &BTreeSet<String>) {
        let is_free = |key: &&Bytes| !Retry::is_key_of_one(key) && !parked.contains(&text_of(key));
        let free: Vec<Bytes> = self.publisher.held_keys().filter(is_free).cloned().collect();
        free.iter().for_each(|key| self.publisher.free(key));
    }

    /// What is due without anybody's doing.
    fn plan(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.is_stopping || !self.publisher.is_connected() {
            return;
        }
        if now >= self.due_at && !self.is_fetching && self.rows.retries.is_empty() {
            self.is_fetching = true;
            out.push(Output::FetchDue);
        }
        if now >= self.sweep_at {
            self.sweep_at = now + SWEEP_EVERY;
            if self.config.order != Order::None {
                out.push(Output::Sweep);
            }
        }
    }

    /// When to say [`Input::Time`] at the latest.
    pub fn deadline(&self, now: Instant) -> Instant {
        if self.is_stopping || !self.publisher.is_connected() {
            return now + SWEEP_EVERY;
        }
        let is_due = !self.is_fetching && self.rows.retries.is_empty();
        let times =
            [is_due.then_some(self.due_at), self.publisher.resumes_at(now)].into_iter().flatten();
        times.fold(self.sweep_at, Instant::min)
    }

    /// Whether there is room for more of the log.
    pub fn wants_input(&self) -> bool {
        !self.is_stopping
            && self.rows.count() < LOG_ROWS_MAX.max(2 * self.config.window as usize)
            && self.rows.bytes() < LOG_BYTES_MAX
            && !self.has_too_many_keys()
    }

    /// So many keys have rows among the failures that no more of the log is read.
    pub fn has_too_many_keys(&self) -> bool {
        self.publisher.held_count() >= HELD_KEYS_MAX
    }

    /// Everything that has arrived is done.
    pub fn is_done(&self) -> bool {
        self.rows.count() == 0
    }

    /// Nothing is in flight, and nothing on its way to the failures.
    pub fn is_still(&self) -> bool {
        self.publisher.is_still() && self.storing.is_empty()
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
        let front = self.rows.first()?;
        if let Some(at) = self.progress.oldest_at() {
            return Some(at);
        }
        let occurred = self.rows.decoder.layout().occurred?;
        let text = self.rows.decoder.value(front.version, &front.data, occurred)?;
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
        let below = match self.rows.first() {
            // Rows leave the log from its front, and all that left it are done.
            Some(row) => {
                assert!(row.of == oldest, "the oldest row is of the oldest transaction");
                row.lsn
            }
            // More may come from the place of the last that came.
            None => self.last.0,
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
        self.rows.count()
    }

    /// What was confirmed since this was asked last.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (confirmed, log, storing) = (self.confirmed(), self.rows.count(), self.storing.len());
        write!(out, "confirmed {confirmed} log {log} storing {storing} {}", self.publisher)
    }
}

fn next_attempt(next: Next) -> NextAttempt {
    match next {
        Next::Retry { after } => NextAttempt::After(after),
        Next::Dead => NextAttempt::Never,
    }
}

fn label_bytes(key: &str) -> Bytes {
    Bytes::copy_from_slice(key.as_bytes())
}

/// A key, which is a label, as the database has it.
fn text_of(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

#[cfg(test)]
mod tests;
