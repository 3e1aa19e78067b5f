//! One session: a log (or first the table), the broker and the failures, until one of them ends it. What differs between
//! databases is behind [`Log`] and [`Records`].

mod again;
mod database;
mod orders;

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

use super::broker::Broker;
use crate::error::Error;
use crate::lsn::Lsn;
use crate::metrics::{Metrics, Step};
use crate::progress::Reached;
use crate::stream::{Input, NextAttempt, Output, Stream};
pub(super) use again::{Again, pause};
pub(super) use database::{Counted, Log, Looked, Records};
pub(super) use orders::{Asked, Orders};

/// Changes that are taken before the broker is looked at again.
const CHANGES_AT_ONCE: usize = 512;
/// Orders for the database that are done at once.
const ORDERS_AT_ONCE: usize = 1000;
/// How often it is written down how far the log is done, under load.
pub(super) const RECORD_EVERY: Duration = Duration::from_millis(250);
/// How often the log tells of rows that failed and are tried again.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How often the log and the failures are looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long unconfirmed messages may take after a stop.
const STOP_MAX: Duration = Duration::from_secs(10);
/// Longer than any turn takes: whoever stood still for so long may have lost the log without knowing.
pub(super) const FROZEN_FOR: Duration = Duration::from_secs(40);
/// How long the last writing may take.
const LAST_RECORD: Duration = Duration::from_secs(5);
/// How often it is told how long the oldest row has waited.
const AGE_EVERY: Duration = Duration::from_millis(250);

/// Where rows come from now.
pub(super) enum From<R: Records> {
    /// None while it reads.
    Scan(Option<R::Scan>),
    Log(R::Log),
}

impl<R: Records> From<R> {
    /// The log has come to its end, whose reason is still to be told.
    fn has_ended(&self) -> bool {
        matches!(self, Self::Log(log) if log.has_ended())
    }
}

/// How a session ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Stopped,
    /// The table was read, and every row is done.
    Scanned,
}

/// What the database is doing; it has the connection meanwhile.
type Running<R> = Pin<Box<dyn Future<Output = Result<(R, Done<R>), Error>> + Send>>;

/// What the database has done.
enum Done<R: Records> {
    Applied(Vec<Input>),
    Recorded(Reached),
    Looked(Looked),
    Rows(R::Scan, Vec<Input>),
}

/// The parts of a session.
pub(super) struct Session<R: Records> {
    metrics: Metrics,
    stream: Stream,
    broker: Broker,
    /// None while it works.
    records: Option<R>,
    is_gone: Box<dyn Fn() -> bool + Send + Sync>,
    from: From<R>,
    state: State<R>,
}

/// What a session remembers between turns.
struct State<R: Records> {
    out: Vec<Output>,
    orders: VecDeque<Output>,
    running: Option<Running<R>>,
    recorded: Reached,
    record_at: Instant,
    rows_since: u64,
    look_at: Instant,
    /// Since when the oldest of the failures waits.
    failing_since: Option<Instant>,
    age_at: Instant,
    /// When a failure may be told of again.
    tell_at: Instant,
    /// The last row of the table has come.
    is_scanned: bool,
    stop_by: Option<Instant>,
}

impl<R: Records> State<R> {
    fn new(recorded: Reached) -> Self {
        let now = Instant::now();
        Self {
            out: Vec::new(),
            orders: VecDeque::new(),
            running: None,
            recorded,
            record_at: now,
            rows_since: 0,
            look_at: now,
            failing_since: None,
            age_at: now,
            tell_at: now,
            is_scanned: false,
            stop_by: None,
        }
    }
}

/// What woke a session.
enum Woken<R: Records> {
    Driven(Result<(), client::Error>),
    Database(Result<(R, Done<R>), Error>),
    Log(Result<Input, Error>),
    Stop,
    Time,
}

/// It is to stop; at once where it was told before.
async fn told(stop: &mut watch::Receiver<bool>) {
    // Without anybody left to tell, it is to stop, too.
    let _ = stop.wait_for(|is_told| *is_told).await;
}

impl<R: Records> Session<R> {
    /// Begins at `reached`.
    pub(super) fn new(
        records: R,
        from: From<R>,
        (stream, broker): (Stream, Broker),
        reached: Reached,
        metrics: Metrics,
    ) -> Self {
        let (is_gone, records) = (records.watch(), Some(records));
        Self { metrics, stream, broker, records, is_gone, from, state: State::new(reached) }
    }

    /// Works until it is stopped, the table is read (where that was all), or something fails. Gives the connection back, if
    /// it does nothing.
    pub(super) async fn run(
        mut self,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<(Ended, Option<R>), Error> {
        let mut turned_at = Instant::now();
        loop {
            if *stop.borrow() && self.state.stop_by.is_none() {
                self.woken(Woken::Stop)?;
            }
            if turned_at.elapsed() > FROZEN_FOR {
                // Another relay may have the log by now: nothing that waits here may be published.
                return Err(Error::Database {
                    doing: "reading the log".into(),
                    text: format!("this process stood still for {:?}", turned_at.elapsed()),
                    is_temporary: true,
                });
            }
            turned_at = Instant::now();
            self.connect(stop).await;
            let has_more = self.take_changes()?;
            self.publish().await?;
            self.count();
            self.begin_database();
            if let Some(ended) = self.is_over() {
                return Ok((ended, self.leave().await));
            }
            let woken = self.wait(stop, has_more).await;
            self.woken(woken)?;
        }
    }

    /// Writes down how far the log is done, and closes it.
    async fn leave(self) -> Option<R> {
        let Self { stream, mut records, from, mut state, .. } = self;
        let From::Log(mut log) = from else { return records };
        let reached = stream.reached();
        if reached != state.recorded {
            let written = match &mut records {
                Some(records) => {
                    let written = records.record(log.place(reached.confirmed), reached);
                    matches!(tokio::time::timeout(LAST_RECORD, written).await, Ok(Ok(())))
                }
                None => false,
            };
            if written {
                state.recorded = reached;
            } else {
                tracing::warn!(
                    "how far the log is done could not be written down: some rows are published again at the next start"
                );
            }
        }
        log.close(state.recorded.confirmed).await;
        records
    }

    async fn connect(&mut self, stop: &mut watch::Receiver<bool>) {
        let Self { broker, stream, state, .. } = self;
        let is_stopping = state.stop_by.is_some();
        tokio::select! {
            () = broker.connect(stream.publishing().0) => (),
            () = told(stop), if !is_stopping => (),
        }
    }

    /// Takes what has arrived; says whether there is certainly more.
    fn take_changes(&mut self) -> Result<bool, Error> {
        let Self { from: From::Log(log), stream, state, metrics, .. } = self else {
            return Ok(false);
        };
        let start = Instant::now();
        let mut count = 0;
        while count < CHANGES_AT_ONCE && stream.wants_input() {
            let Some(input) = log.poll()? else { break };
            stream.step(start, input, &mut state.out);
            count += 1;
        }
        if count > 0 {
            metrics.step(Step::Query, start.elapsed().as_nanos() as u64);
        }
        self.sort_out()?;
        Ok(count == CHANGES_AT_ONCE)
    }

    async fn publish(&mut self) -> Result<(), Error> {
        let (publisher, rows) = self.stream.publishing();
        // With the connection to the database the right to the log is gone, too: another relay may publish by now.
        if !(self.is_gone)() && !self.from.has_ended() {
            self.broker.publish(publisher, rows).await;
        }
        self.broker.look(publisher, rows);
        self.stream.step(Instant::now(), Input::Time, &mut self.state.out);
        self.sort_out()
    }

    /// The core's orders, to where they are done.
    fn sort_out(&mut self) -> Result<(), Error> {
        for output in self.state.out.drain(..) {
            match &output {
                Output::GiveUp(error) => return Err(error.clone()),
                Output::Store(failure) | Output::Retry(failure) => {
                    if let Some(reason) = failure.reason {
                        let is_dead = failure.next == NextAttempt::Never;
                        self.metrics.failed(reason, is_dead);
                        let (row, error, advice) =
                            (&failure.row_id, &failure.error, reason.advice());
                        self.metrics.note_failure(reason, row, failure.key.as_deref(), error);
                        if is_dead {
                            tracing::warn!(row, %reason, error, advice, "a row is dead: it gets no more attempts");
                        } else if self.state.tell_at <= Instant::now() {
                            self.state.tell_at = Instant::now() + TELL_EVERY;
                            tracing::warn!(
                                row, %reason, error, advice,
                                "the broker or the relay refused rows, such as this one"
                            );
                        }
                    }
                }
                Output::Remove { .. } | Output::FetchDue | Output::Sweep => (),
            }
            self.state.orders.push_back(output);
        }
        Ok(())
    }

    fn count(&mut self) {
        let counts = self.stream.take_counts();
        if counts.rows > 0 {
            self.metrics.confirmed.inc_by(counts.rows);
            self.metrics.confirmed_bytes.inc_by(counts.bytes);
            self.state.rows_since += counts.rows;
        }
        if counts.overtaken > 0 {
            self.broker.note_overtaken(counts.overtaken, counts.overtaken_key);
        }
        self.metrics.backlog.set(self.stream.backlog() as i64);
        let now = Instant::now();
        if now >= self.state.age_at {
            self.state.age_at = now + AGE_EVERY;
            self.metrics.oldest_age.set(self.age(now));
        }
    }

    /// One thing at a time is asked of the database, in the core's order.
    fn begin_database(&mut self) {
        let now = Instant::now();
        if (self.is_gone)() {
            // Any statement tells why.
            self.state.look_at = now;
        }
        let reached = self.stream.reached();
        let is_to_be_recorded = self.is_to_be_recorded(reached, now);
        let wants_rows = !self.state.is_scanned && self.stream.wants_input();
        let state = &mut self.state;
        let Some(mut records) = self.records.take() else { return };
        state.running = if !state.orders.is_empty() {
            let count = state.orders.len().min(ORDERS_AT_ONCE);
            let orders = state.orders.drain(..count).collect();
            Some(Box::pin(async move {
                let inputs = records.apply(orders).await?;
                Ok((records, Done::Applied(inputs)))
            }))
        } else if let From::Log(log) = &mut self.from
            && is_to_be_recorded
        {
            state.rows_since = 0;
            state.record_at = now + RECORD_EVERY;
            let place = log.place(reached.confirmed);
            Some(Box::pin(async move {
                records.record(place, reached).await?;
                Ok((records, Done::Recorded(reached)))
            }))
        } else if now >= state.look_at {
            state.look_at = now + LOOK_EVERY;
            let place = match &mut self.from {
                From::Log(log) => Some(log.place(reached.confirmed)),
                From::Scan(_) => None,
            };
            Some(Box::pin(async move {
                let looked = records.look(place).await?;
                Ok((records, Done::Looked(looked)))
            }))
        } else if let From::Scan(scan) = &mut self.from
            && wants_rows
            && let Some(scan) = scan.take()
        {
            Some(Box::pin(async move {
                let (scan, rows) = records.read(scan).await?;
                Ok((records, Done::Rows(scan, rows)))
            }))
        } else {
            self.records = Some(records);
            None
        };
    }

    /// Whether the place is worth writing down now.
    fn is_to_be_recorded(&self, reached: Reached, now: Instant) -> bool {
        let (before, state) = (self.state.recorded, &self.state);
        let (From::Log(log), Some(overdue)) =
            (&self.from, now.checked_duration_since(state.record_at))
        else {
            return false;
        };
        let is_worth = || log.is_worth_writing(before.confirmed, reached.confirmed, overdue);
        reached != before && (state.rows_since > 0 || is_worth())
    }

    fn is_over(&self) -> Option<Ended> {
        let state = &self.state;
        let is_quiet = self.stream.is_still() && state.orders.is_empty() && state.running.is_none();
        if let Some(by) = state.stop_by {
            return (is_quiet || Instant::now() >= by).then_some(Ended::Stopped);
        }
        let is_scanned = matches!(self.from, From::Scan(_)) && state.is_scanned;
        (is_scanned && is_quiet && self.stream.is_done()).then_some(Ended::Scanned)
    }

    async fn wait(&mut self, stop: &mut watch::Receiver<bool>, has_more: bool) -> Woken<R> {
        let Self { broker, stream, state, from, .. } = self;
        let now = Instant::now();
        let is_stopping = state.stop_by.is_some();
        let mut until = stream.deadline(now).min(now + RECORD_EVERY);
        if let Some(by) = state.stop_by {
            until = until.min(by);
        }
        if !broker.is_connected() {
            until = until.min(broker.connect_at);
        }
        if has_more || until <= now {
            until = now;
        }
        let wants_input = stream.wants_input() || (from.has_ended() && !is_stopping);
        tokio::select! {
            biased;
            () = told(stop), if !is_stopping => Woken::Stop,
            // First, as the broker nearly always has something to say under load.
            done = run(&mut state.running) => Woken::Database(done),
            driven = broker.drive() => Woken::Driven(driven),
            input = next(from), if wants_input => Woken::Log(input),
            () = tokio::time::sleep_until(until.into()) => Woken::Time,
        }
    }

    fn woken(&mut self, woken: Woken<R>) -> Result<(), Error> {
        let now = Instant::now();
        match woken {
            Woken::Driven(driven) => {
                let (publisher, rows) = self.stream.publishing();
                self.broker.driven(driven, publisher, rows);
                self.stream.step(now, Input::Time, &mut self.state.out);
            }
            Woken::Database(done) => {
                self.state.running = None;
                let (records, done) = done?;
                self.records = Some(records);
                self.done(done);
            }
            Woken::Log(input) => self.stream.step(now, input?, &mut self.state.out),
            Woken::Stop => {
                self.state.stop_by = Some(now + STOP_MAX);
                self.stream.step(now, Input::Stop, &mut self.state.out);
            }
            Woken::Time => (),
        }
        self.sort_out()
    }

    fn done(&mut self, done: Done<R>) {
        let now = Instant::now();
        match done {
            Done::Applied(inputs) => {
                for input in inputs {
                    self.stream.step(now, input, &mut self.state.out);
                }
            }
            Done::Recorded(reached) => {
                self.state.recorded = reached;
                if let From::Log(log) = &self.from {
                    log.recorded(reached.confirmed);
                }
            }
            Done::Looked(Looked { lag, failures: Counted { waiting, dead, oldest } }) => {
                self.state.failing_since = oldest.and_then(|age| now.checked_sub(age));
                self.metrics.slot_lag.set(lag);
                self.metrics.parked.set(waiting);
                self.metrics.dead_now.set(dead);
                tracing::debug!(state = %self.stream, lag, "log");
                if self.stream.has_too_many_keys() {
                    tracing::warn!(
                        waiting,
                        dead,
                        lag,
                        "reading the log has stopped: too many keys are blocked by failures. See `millrace relay status`; mend \
                         the cause, then replay or purge the failures"
                    );
                }
            }
            Done::Rows(scan, rows) => {
                self.state.is_scanned = rows.is_empty();
                self.from = From::Scan(Some(scan));
                let begin = Input::Begin { commit: Lsn(0), at: None };
                self.stream.step(now, begin, &mut self.state.out);
                for row in rows {
                    self.stream.step(now, row, &mut self.state.out);
                }
                let end = Input::Commit { end: Lsn(0), at: None };
                self.stream.step(now, end, &mut self.state.out);
            }
        }
    }

    /// Seconds that the oldest row has waited: of the log, or among the failures.
    fn age(&self, now: Instant) -> f64 {
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let since = self.stream.waiting_since();
        let log = since.map_or(0.0, |at| clock.as_secs_f64() - at.unix_seconds());
        let failing = self.state.failing_since.map_or(0.0, |since| (now - since).as_secs_f64());
        log.max(failing).max(0.0)
    }
}

async fn run<R: Records>(running: &mut Option<Running<R>>) -> Result<(R, Done<R>), Error> {
    match running {
        Some(running) => running.await,
        None => std::future::pending().await,
    }
}

async fn next<R: Records>(from: &mut From<R>) -> Result<Input, Error> {
    match from {
        From::Log(log) => log.next().await,
        From::Scan(_) => std::future::pending().await,
    }
}
