//! One worker: keeps its two connections, gives its core what happened, and does what it says. One batch is one
//! transaction, from the fetch to the commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::sync::watch;

use super::connection::{database, is_of_a_row, words};
use super::fetch::{Fetched, fetch};
use super::lanes::Lanes;
use super::mark::Writer;
use super::monitor;
use super::shared::Shared;
use crate::batch::OutboxRow;
use crate::error::Error;
use crate::io::poll::publishing::Publishing;
use crate::io::poll::written::{Unwritten, Written};
use crate::metrics::Step;
use crate::poll::{Input, Output};

/// How often the session is used while a batch waits for the broker: its locks are gone with it.
const PING_EVERY: Duration = Duration::from_secs(1);
/// The server takes rows and lanes from a relay that says nothing for so long, or for longer than its batch may take.
const FROZEN_MIN_S: u64 = 60;

/// A worker between batches.
struct Task {
    shared: Arc<Shared>,
    at: Publishing,
    lanes: Lanes,
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
    let mut task = Task {
        at: Publishing::new(&shared.config, &shared.metrics, number, stop),
        lanes: Lanes::default(),
        largest: 0,
        fetched: 0,
        touched: Instant::now(),
        shared: Arc::clone(&shared),
    };
    let result = task.run().await;
    task.at.leave().await;
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
            let batch = self.at.core.batch();
            self.shared.late.note_rows(batch, batch.confirmed(), self.shared.layout.id);
            self.at.lose_database();
            self.lanes = Lanes::default();
            if self.at.is_told_to_stop() || self.at.pause(&error, attempt).await {
                return Ok(());
            }
            attempt = attempt.saturating_add(1);
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
            if self.at.is_told_to_stop() {
                self.at.step(Input::Stop);
            } else {
                self.at.connect().await;
                self.keep_lanes(conn).await?;
                self.at.look(&shared.late);
                if self.lanes.has_some(&shared) {
                    self.at.step(Input::Time);
                }
            }
            match self.at.out.pop() {
                Some(Output::Fetch) => {
                    self.batch(conn).await?;
                    *attempt = 0;
                }
                Some(Output::Stopped) => return Ok(()),
                Some(_) => unreachable!("between batches there is nothing else to do"),
                None => {
                    let (has_lanes, due) =
                        (self.lanes.has_some(&shared), self.lanes.deadline(&shared));
                    self.at.wait(has_lanes, due, &shared.nudge).await;
                }
            }
            if self.touched.elapsed() > PING_EVERY * 10 {
                self.touch(conn).await?;
            }
        }
    }

    async fn keep_lanes(&mut self, conn: &mut Conn) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        if self.at.is_away() {
            // A relay that reaches its broker may take them over.
            return self.lanes.give_up(conn).await;
        }
        if self.lanes.keep(&shared, conn, self.at.number).await? {
            self.touched = Instant::now();
            // What the last holder wrote down must be known before the first fetch.
            monitor::read_failures(&shared, conn).await?;
        }
        Ok(())
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
        let confirmed = shared.late.take_rows(&rows, shared.layout.id);
        let has_marked = shared.has_marked.load(Ordering::Relaxed);
        self.at.step(Input::Fetched { rows, is_full, took, confirmed, has_marked });
        let mut is_parked = false;
        match self.publish(conn).await? {
            Output::Commit => match self.commit(conn, had_failures || some).await {
                // Apart, a failure may have been refused.
                Ok(()) => is_parked = !shared.apart.is_on(),
                Err(Unwritten::ByRow(words)) => {
                    conn.query_drop("ROLLBACK").await.map_err(failed("giving a batch back"))?;
                    self.find_row(&words);
                    return Ok(());
                }
                Err(Unwritten::Failed(error)) => return Err(error),
            },
            Output::Fetch | Output::Rollback | Output::Stopped => {
                conn.query_drop("ROLLBACK").await.map_err(failed("giving a batch back"))?;
                if !self.at.core.batch().rows().is_empty() {
                    shared.metrics.released.inc();
                }
            }
        }
        self.at.step(Input::Ended { is_parked });
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
        let batch = self.at.core.batch();
        let writer = Writer {
            shared: &shared,
            conn,
            batch,
            chance: &mut self.at.chance,
            had_failures,
            apart_until: shared.apart.is_on().then(|| start + shared.config.batch_deadline),
        };
        // What is confirmed and not marked need not be published again: who locks it next must know that.
        let forgiven = |unwritten| {
            shared.late.note_rows(batch, batch.confirmed(), shared.layout.id);
            unwritten
        };
        // Held until after the commit: who sees no failures meanwhile must not take that for the truth.
        let Written { marked, rest, writing: _writing } = writer.write().await.map_err(forgiven)?;
        shared.late.note_rows(batch, &rest, shared.layout.id);
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
            worker = self.at.number,
            words,
            "the database refuses to mark some row; marking rows one by one to find it"
        );
        self.shared.apart.begin();
        self.shared.metrics.released.inc();
        self.at.step(Input::DatabaseLost);
    }

    /// Publishes and waits until the core says how the batch ends.
    async fn publish(&mut self, conn: &mut Conn) -> Result<Output, Error> {
        loop {
            if let Some(ending) = self.at.out.pop() {
                return Ok(ending);
            }
            if self.touched.elapsed() > PING_EVERY {
                self.touch(conn).await?;
            }
            self.at.publish(&self.shared.late).await;
        }
    }
}
