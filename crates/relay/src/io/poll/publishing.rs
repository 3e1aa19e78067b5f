//! A worker's core and its broker: what a worker does of which the database knows nothing, whichever database it is.

use std::time::{Duration, Instant};

use client::{Backoff, Chance};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::late::Late;
use crate::config::Config;
use crate::error::Error;
use crate::io::broker::Broker;
use crate::metrics::Metrics;
use crate::poll::{Input, Output, Worker};

/// How often it is looked at what wakes nobody: a broker that unblocks or owes answers, a database that is gone.
const LOOK: Duration = Duration::from_millis(100);
/// How long nothing is looked at while there is nothing to do.
const REST: Duration = Duration::from_secs(1);
/// How long lanes are kept while the broker is away.
const AWAY: Duration = Duration::from_secs(5);

/// Waits for workers, of which one that cannot go on for good ends all: the same is wrong for the others.
///
/// # Errors
/// That of the first one.
pub(crate) async fn all_end(mut workers: JoinSet<Result<(), Error>>) -> Result<(), Error> {
    let mut result = Ok(());
    while let Some(ended) = workers.join_next().await {
        let ended = ended
            .unwrap_or_else(|panic| Err(Error::setup(format!("a worker ended by a bug: {panic}"))));
        if let (Err(error), true) = (ended, result.is_ok()) {
            result = Err(error);
            workers.abort_all();
        }
    }
    result
}

pub(crate) struct Publishing {
    pub(crate) number: u32,
    pub(crate) core: Worker,
    /// What the core wants done.
    pub(crate) out: Vec<Output>,
    pub(crate) chance: Chance,
    broker: Broker,
    /// Since when the broker is away.
    away_since: Option<Instant>,
    backoff: Backoff,
    stop: watch::Receiver<bool>,
}

impl Publishing {
    /// Of worker `number`, until `stop`.
    pub(crate) fn new(
        config: &Config,
        metrics: &Metrics,
        number: u32,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let seed = {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one(number)
        };
        let name = format!("millrace relay, worker {number}");
        let window = config.window.max(config.batch);
        Self {
            number,
            core: Worker::new(config, seed, Instant::now()),
            out: Vec::new(),
            chance: Chance::new(seed),
            broker: Broker::new(config, metrics, name, window, seed),
            away_since: None,
            backoff: Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) },
            stop,
        }
    }

    pub(crate) fn step(&mut self, input: Input) {
        self.core.step(Instant::now(), input, &mut self.out);
    }

    pub(crate) fn is_told_to_stop(&self) -> bool {
        *self.stop.borrow()
    }

    /// The database is gone, and with it the batch: nothing that was to be done with it is.
    pub(crate) fn lose_database(&mut self) {
        self.step(Input::DatabaseLost);
        self.out.clear();
    }

    /// Waits before attempt number `attempt` at the database; true: it is to stop.
    pub(crate) async fn pause(&mut self, error: &Error, attempt: u32) -> bool {
        let delay = self.backoff.delay(attempt, self.chance.next_bits());
        let (worker, ms) = (self.number, delay.as_millis());
        tracing::warn!(worker, %error, "the database refused or is gone; retrying in {ms} ms");
        tokio::select! {
            () = tokio::time::sleep(delay) => false,
            _ = self.stop.changed() => true,
        }
    }

    pub(crate) async fn connect(&mut self) {
        let (publisher, _) = self.core.publishing();
        tokio::select! {
            () = self.broker.connect(publisher) => (),
            _ = self.stop.changed() => (),
        }
    }

    /// Whether the broker is away for so long that a relay which reaches its own may take the lanes over.
    pub(crate) fn is_away(&mut self) -> bool {
        if self.broker.is_connected() {
            self.away_since = None;
            return false;
        }
        self.away_since.get_or_insert_with(Instant::now).elapsed() > AWAY
    }

    /// What the broker says beside verdicts, and verdicts that came too late for their batch.
    pub(crate) fn look(&mut self, late: &Late) {
        let (publisher, rows) = self.core.publishing();
        self.broker.look(publisher, rows);
        self.step(Input::BrokerBlocked(self.broker.is_blocked()));
        if let Some((count, key)) = self.core.take_overtaken() {
            self.broker.note_overtaken(count, Some(key));
        }
        for (place, id) in self.core.take_late() {
            late.note(place, id);
        }
    }

    /// Between batches: until there is something to do. `has_lanes`: there may be something to fetch; `lanes_due`: when
    /// lanes are to be looked after.
    pub(crate) async fn wait(
        &mut self,
        has_lanes: bool,
        lanes_due: Option<Instant>,
        nudge: &Notify,
    ) {
        let now = Instant::now();
        let is_owed = self.broker.is_blocked() || self.core.publishing().0.in_flight() > 0;
        let mut until = now + if is_owed { LOOK } else { REST };
        if !self.broker.is_connected() {
            until = until.min(self.broker.connect_at);
        } else if let (true, Some(deadline)) = (has_lanes, self.core.deadline()) {
            until = until.min(deadline);
        }
        if let Some(due) = lanes_due {
            until = until.min(due);
        }
        tokio::select! {
            driven = self.broker.drive() => {
                let (publisher, rows) = self.core.publishing();
                self.broker.driven(driven, publisher, rows);
            }
            () = tokio::time::sleep_until(until.into()) => (),
            () = nudge.notified() => self.step(Input::Nudge),
            _ = self.stop.changed() => (),
        }
    }

    /// Within a batch: publishes what may be, and waits for answers if the core wants nothing else.
    pub(crate) async fn publish(&mut self, late: &Late) {
        let (publisher, rows) = self.core.publishing();
        self.broker.publish(publisher, rows).await;
        self.look(late);
        self.step(Input::Time);
        if self.out.is_empty() {
            self.wait_for_answers().await;
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

    /// Closes the connection to the broker.
    pub(crate) async fn leave(self) {
        self.broker.leave().await;
    }
}
