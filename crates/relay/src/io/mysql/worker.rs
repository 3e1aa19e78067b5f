//! One worker: keeps its two connections, gives its core what happened, and does what it says. One batch is one
//! transaction, from the fetch to the commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use client::{Backoff, Chance};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::sync::watch;

use super::connection::{database, is_of_a_row, words};
use super::fetch::{Fetched, fetch};
use super::lanes::Lanes;
use super::mark::{Unwritten, Writer, Written};
use super::monitor;
use super::shared::Shared;
use crate::batch::{Batch, OutboxRow};
use crate::error::Error;
use crate::io::broker::Broker;
use crate::metrics::Step;
use crate::poll::{Input, Output, Worker};

/// How often a batch looks at what does not wake it: a broker that unblocks, a database that is gone.
const LOOK: Duration = Duration::from_millis(100);
/// How often the session is used while a batch waits for the broker: its locks are gone with it.
const PING_EVERY: Duration = Duration::from_secs(1);
/// How long lanes are kept while the broker is away.
const AWAY: Duration = Duration::from_secs(5);
/// The server takes rows and lanes from a relay that says nothing for so long, or for longer than its batch may take.
const FROZEN_MIN_S: u64 = 60;
/// For how long batches are written apart after one could not be written as a whole.
const APART_FOR: Duration = Duration::from_secs(30);

/// A worker between batches.
struct Task {
    shared: Arc<Shared>,
    number: u32,
    core: Worker,
    out: Vec<Output>,
    broker: Broker,
    /// Since when the broker is away.
    away_since: Option<Instant>,
    chance: Chance,
    backoff: Backoff,
    lanes: Lanes,
    stop: watch::Receiver<bool>,
    /// Bytes of the largest row seen of late, and rows of the last fetch: how many the next may have.
    largest: usize,
    fetched: usize,
    touched: Instant,
}

/// Runs worker `number` until it is stopped.
pub(super) async fn run(
    shared: Arc<Shared>,
    number: u32,
    stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    let seed = {
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(number)
    };
    let config = &shared.config;
    let name = format!("millrace relay, worker {number}");
    let window = config.window.max(config.batch);
    let mut task = Task {
        number,
        core: Worker::new(config, seed, Instant::now()),
        out: Vec::new(),
        broker: Broker::new(config, &shared.metrics, name, window, seed),
        away_since: None,
        chance: Chance::new(seed),
        backoff: Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) },
        lanes: Lanes::default(),
        stop,
        largest: 0,
        fetched: 0,
        touched: Instant::now(),
        shared: Arc::clone(&shared),
    };
    let result = task.run().await;
    task.broker.leave().await;
    result
}

impl Task {
    async fn run(&mut self) -> Result<(), Error> {
        let mut attempt = 0;
        loop {
            let error = match self.connect().await {
                Ok(mut conn) => match self.drain(&mut conn, &mut attempt).await {
                    Ok(()) => {
                        let _ = conn.disconnect().await;
                        return Ok(());
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if !error.is_temporary() {
                return Err(error);
            }
            self.shared.metrics.released.inc();
            // The broker has these: they need not be published again when they are fetched next.
            let batch = self.core.batch();
            note_late(&self.shared, batch, batch.confirmed());
            self.step(Input::DatabaseLost);
            self.out.clear();
            self.lanes = Lanes::default();
            if *self.stop.borrow() || self.pause(&error, attempt).await {
                return Ok(());
            }
            attempt = attempt.saturating_add(1);
        }
    }

    /// Waits before attempt number `attempt`; true: it is to stop.
    async fn pause(&mut self, error: &Error, attempt: u32) -> bool {
        let delay = self.backoff.delay(attempt, self.chance.next_bits());
        let (worker, ms) = (self.number, delay.as_millis());
        tracing::warn!(worker, %error, "the database refused or is gone; retrying in {ms} ms");
        tokio::select! {
            () = tokio::time::sleep(delay) => false,
            _ = self.stop.changed() => true,
        }
    }

    async fn connect(&mut self) -> Result<Conn, Error> {
        let mut conn = self.shared.database.connect().await?;
        let deadline = self.shared.config.batch_deadline.as_secs().max(1);
        let frozen = (deadline * 2 + 5).max(FROZEN_MIN_S);
        let sql = format!("SET wait_timeout = {frozen}, innodb_lock_wait_timeout = {deadline}");
        conn.query_drop(sql).await.map_err(|error| database("setting up", &error))?;
        Ok(conn)
    }

    /// Works until it is stopped (Ok) or the database fails.
    async fn drain(&mut self, conn: &mut Conn, attempt: &mut u32) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        loop {
            if *self.stop.borrow() {
                self.step(Input::Stop);
            } else {
                self.connect_broker().await;
                self.keep_lanes(conn).await?;
                self.look();
                if self.lanes.has_some(&shared) {
                    self.step(Input::Time);
                }
            }
            match self.out.pop() {
                Some(Output::Fetch) => {
                    self.batch(conn).await?;
                    *attempt = 0;
                }
                Some(Output::Stopped) => return Ok(()),
                Some(_) => unreachable!("between batches there is nothing else to do"),
                None => self.wait().await,
            }
            if self.touched.elapsed() > PING_EVERY * 10 {
                self.touch(conn).await?;
            }
        }
    }

    fn step(&mut self, input: Input) {
        self.core.step(Instant::now(), input, &mut self.out);
    }

    async fn connect_broker(&mut self) {
        let (publisher, _) = self.core.publishing();
        tokio::select! {
            () = self.broker.connect(publisher) => (),
            _ = self.stop.changed() => (),
        }
    }

    /// What the broker says beside verdicts, and verdicts that came too late for their batch.
    fn look(&mut self) {
        let (publisher, rows) = self.core.publishing();
        self.broker.look(publisher, rows);
        self.step(Input::BrokerBlocked(self.broker.is_blocked()));
        if let Some((count, key)) = self.core.take_overtaken() {
            self.broker.note_overtaken(count, Some(key));
        }
        for (place, id) in self.core.take_late() {
            self.shared.late.note(place, id);
        }
    }

    async fn keep_lanes(&mut self, conn: &mut Conn) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        if self.broker.is_connected() {
            self.away_since = None;
        } else if self.away_since.get_or_insert_with(Instant::now).elapsed() > AWAY {
            // A relay that reaches its broker may take them over.
            return self.lanes.give_up(conn).await;
        }
        if self.lanes.keep(&shared, conn, self.number).await? {
            self.touched = Instant::now();
            // What the last holder wrote down must be known before the first fetch.
            monitor::read_failures(&shared, conn).await?;
        }
        Ok(())
    }

    /// Between batches: until there is something to do.
    async fn wait(&mut self) {
        let shared = Arc::clone(&self.shared);
        let now = Instant::now();
        let mut until = now + Duration::from_secs(1);
        if self.broker.is_blocked() || self.core.publishing().0.in_flight() > 0 {
            until = now + LOOK;
        }
        if !self.broker.is_connected() {
            until = until.min(self.broker.connect_at);
        } else if let (true, Some(deadline)) = (self.lanes.has_some(&shared), self.core.deadline())
        {
            until = until.min(deadline);
        }
        if let Some(deadline) = self.lanes.deadline(&shared) {
            until = until.min(deadline);
        }
        tokio::select! {
            driven = self.broker.drive() => {
                let (publisher, rows) = self.core.publishing();
                self.broker.driven(driven, publisher, rows);
            }
            () = tokio::time::sleep_until(until.into()) => (),
            () = shared.nudge.notified() => self.step(Input::Nudge),
            _ = self.stop.changed() => (),
        }
    }

    async fn touch(&mut self, conn: &mut Conn) -> Result<(), Error> {
        self.touched = Instant::now();
        conn.ping().await.map_err(|error| database("looking whether the session lives", &error))
    }

    /// Fetches, publishes, marks. An error is the database's; whatever the broker does ends the batch in order.
    async fn batch(&mut self, conn: &mut Conn) -> Result<(), Error> {
        let start = Instant::now();
        let shared = Arc::clone(&self.shared);
        let had_failures = shared.failures.has_some();
        let failed = |doing: &'static str| move |error: mysql_async::Error| database(doing, &error);
        conn.query_drop("START TRANSACTION").await.map_err(failed("beginning a batch"))?;
        let lanes = self.lanes.limit(&shared);
        let limit = self.limit();
        let fetched = fetch(&shared, conn, lanes, limit).await.map_err(failed("fetching rows"))?;
        let Fetched { rows, is_full, had_failures: some, took } = fetched;
        self.note_sizes(&rows);
        if !rows.is_empty() {
            shared.metrics.step(Step::Query, start.elapsed().as_nanos() as u64);
        }
        self.touched = Instant::now();
        let confirmed = confirmed_late(&shared, &rows);
        let has_marked = shared.has_marked.load(Ordering::Relaxed);
        self.step(Input::Fetched { rows, is_full, took, confirmed, has_marked });
        let mut is_parked = false;
        match self.publish(conn).await? {
            Output::Commit => match self.commit(conn, had_failures || some).await {
                // Apart, a failure may have been refused.
                Ok(()) => is_parked = !is_apart(&shared),
                Err(Unwritten::ByRow(words)) => {
                    conn.query_drop("ROLLBACK").await.map_err(failed("giving a batch back"))?;
                    self.find_row(&words);
                    return Ok(());
                }
                Err(Unwritten::Failed(error)) => return Err(error),
            },
            Output::Fetch | Output::Rollback | Output::Stopped => {
                conn.query_drop("ROLLBACK").await.map_err(failed("giving a batch back"))?;
                if !self.core.batch().rows().is_empty() {
                    shared.metrics.released.inc();
                }
            }
        }
        self.step(Input::Ended { is_parked });
        Ok(())
    }

    /// How many rows the next fetch may have: as many as fit for sure, going by the largest seen of late. Rows may have
    /// grown since the last batch, so that a fetch has at most eight times as many as the one before.
    fn limit(&self) -> usize {
        let config = &self.shared.config;
        let budget = (crate::limits::BATCHES_BYTES / config.workers as usize)
            .max(crate::limits::BATCH_BYTES_MIN);
        let fit = match self.largest {
            0 => crate::limits::FIRST_ROWS,
            largest => (budget / largest).max(1),
        };
        fit.min(crate::limits::FIRST_ROWS.max(self.fetched * 8)).min(config.batch as usize)
    }

    fn note_sizes(&mut self, rows: &[OutboxRow]) {
        let largest = rows.iter().map(|row| row.fields.byte_count()).max().unwrap_or(0);
        // What was large once need not stay so.
        self.largest = largest.max(self.largest - self.largest / 8);
        if !rows.is_empty() {
            self.fetched = rows.len();
        }
    }

    async fn commit(&mut self, conn: &mut Conn, had_failures: bool) -> Result<(), Unwritten> {
        let shared = Arc::clone(&self.shared);
        let metrics = &shared.metrics;
        let start = Instant::now();
        let batch = self.core.batch();
        let writer = Writer {
            shared: &shared,
            conn,
            batch,
            chance: &mut self.chance,
            had_failures,
            apart_until: is_apart(&shared).then(|| start + shared.config.batch_deadline),
        };
        // What is confirmed and not marked need not be published again: who locks it next must know that.
        let forgiven = |unwritten| {
            note_late(&shared, batch, batch.confirmed());
            unwritten
        };
        // Held until after the commit: who sees no failures meanwhile must not take that for the truth.
        let Written { marked, rest, writing: _writing } = writer.write().await.map_err(forgiven)?;
        note_late(&shared, batch, &rest);
        conn.query_drop("COMMIT").await.map_err(|error| {
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
        let payload = shared.layout.payload;
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
        *self.shared.apart.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some(Instant::now());
        self.shared.metrics.released.inc();
        self.step(Input::DatabaseLost);
    }

    /// Publishes and waits until the core says how the batch ends.
    async fn publish(&mut self, conn: &mut Conn) -> Result<Output, Error> {
        loop {
            if let Some(ending) = self.out.pop() {
                return Ok(ending);
            }
            if self.touched.elapsed() > PING_EVERY {
                self.touch(conn).await?;
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

/// Whether batches are written apart.
fn is_apart(shared: &Shared) -> bool {
    let apart = shared.apart.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    apart.is_some_and(|since| since.elapsed() < APART_FOR)
}

/// The broker has taken these rows, and they are not marked.
fn note_late(shared: &Shared, batch: &Batch, rows: &[usize]) {
    for &row in rows {
        let OutboxRow { place, fields } = &batch.rows()[row];
        if let Some(id) = fields.text(shared.layout.id) {
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
        let id = row.fields.text(shared.layout.id);
        id.is_some_and(|id| shared.late.take(row.place, id))
    };
    (0..rows.len()).filter(|&row| is_late(&rows[row])).collect()
}
