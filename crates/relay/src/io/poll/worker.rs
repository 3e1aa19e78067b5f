//! One worker: keeps its two connections, and gives its core what happened.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Backoff, Chance};
use tokio::sync::watch;
use tokio_postgres::Client;

use super::lanes::Lanes;
use super::{Prepared, Shared, monitor};
use crate::config::Order;
use crate::error::Error;
use crate::io::broker::Broker;
use crate::io::postgres::database;
use crate::poll::{Input, Output, Worker};

/// How often the broker is looked at while it blocks publishers, or owes answers.
const BLOCKED_LOOK: Duration = Duration::from_millis(100);
/// Plans go along the order of the index, whatever the statistics of a queue-like table say; without one, from the head
/// of the table.
const PLANS: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; \
    SET synchronize_seqscans = off";
/// How long lanes are kept while the broker is away.
const AWAY: Duration = Duration::from_secs(5);
/// The database takes rows and lanes from a relay that is frozen this long after its batch's deadline, twice. One
/// that lives touches its session every second.
const FROZEN_MS: u128 = 5_000;
const FROZEN_MIN_MS: u128 = 20_000;

/// A worker between batches.
pub(super) struct Task {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u32,
    pub(super) core: Worker,
    pub(super) out: Vec<Output>,
    pub(super) broker: Broker,
    /// Since when the broker is away.
    away_since: Option<Instant>,
    pub(super) chance: Chance,
    backoff: Backoff,
    pub(super) lanes: Lanes,
    pub(super) prepared: Prepared,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) largest: usize,
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
        prepared: Prepared::default(),
        stop,
        largest: 0,
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
                Ok(mut client) => match self.drain(&mut client, &mut attempt).await {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if !error.is_temporary() {
                return Err(error);
            }
            self.shared.metrics.released.inc();
            self.step(Input::DatabaseLost);
            self.out.clear();
            (self.lanes, self.prepared) = (Lanes::default(), Prepared::default());
            if self.is_told_to_stop() || self.pause(&error, attempt).await {
                return Ok(());
            }
            attempt = attempt.saturating_add(1);
        }
    }

    fn is_told_to_stop(&self) -> bool {
        *self.stop.borrow()
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

    async fn connect(&mut self) -> Result<Client, Error> {
        let name = format!("millrace-relay-worker-{}", self.number);
        let client = self.shared.database.connect(&name).await?;
        let deadline = self.shared.config.batch_deadline.as_millis();
        // A live worker may be connecting to its broker meanwhile.
        let frozen = (deadline * 2 + FROZEN_MS).max(FROZEN_MIN_MS);
        let mut sql = format!("{PLANS}; SET idle_in_transaction_session_timeout = {frozen}");
        if self.shared.config.order != Order::None {
            // What follows a row that somebody else has locked must not pass it: it is waited for, but not for ever.
            sql += &format!("; SET idle_session_timeout = {frozen}; SET lock_timeout = {deadline}");
        }
        client.batch_execute(&sql).await.map_err(|error| database("setting up", &error))?;
        Ok(client)
    }

    /// Works until it is stopped (Ok) or the database fails.
    async fn drain(&mut self, client: &mut Client, attempt: &mut u32) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        loop {
            if *self.stop.borrow() {
                self.step(Input::Stop);
            } else {
                self.connect_broker().await;
                self.keep_lanes(client).await?;
                self.look();
                if self.lanes.has_some(&shared) {
                    self.step(Input::Time);
                }
            }
            match self.out.pop() {
                Some(Output::Fetch) => {
                    self.batch(client).await?;
                    *attempt = 0;
                }
                Some(Output::Stopped) => return Ok(()),
                Some(_) => unreachable!("between batches there is nothing else to do"),
                None => self.wait().await,
            }
        }
    }

    pub(super) fn step(&mut self, input: Input) {
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
    pub(super) fn look(&mut self) {
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

    async fn keep_lanes(&mut self, client: &Client) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let failed = |error: tokio_postgres::Error| database("taking lanes", &error);
        if self.broker.is_connected() {
            self.away_since = None;
        } else if self.away_since.get_or_insert_with(Instant::now).elapsed() > AWAY {
            // A relay that reaches its broker may take them over.
            return self.lanes.give_up(client).await.map_err(failed);
        }
        if self.lanes.keep(&shared, client, self.number).await? {
            // What the last holder wrote down must be known before the first fetch.
            monitor::read_failures(&shared, client).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Between batches: until there is something to do.
    async fn wait(&mut self) {
        let shared = Arc::clone(&self.shared);
        let now = Instant::now();
        let mut until = now + Duration::from_secs(1);
        if self.broker.is_blocked() || self.core.publishing().0.in_flight() > 0 {
            until = now + BLOCKED_LOOK;
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
}
