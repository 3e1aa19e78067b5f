//! One worker: keeps its two connections, and gives its core what happened.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Backoff, Chance, Publisher, Verdict};
use tokio::sync::watch;
use tokio_postgres::Client;

use super::lanes::Lanes;
use super::{Prepared, Shared, monitor};
use crate::compose::Composer;
use crate::config::Order;
use crate::error::Error;
use crate::io::broker;
use crate::io::postgres::database;
use crate::poll::{Input, Output, Worker};

/// While the broker blocks publishers, whether it still does is looked at so often.
const BLOCKED_LOOK: Duration = Duration::from_millis(100);
/// Plans go along the order of the index, whatever the statistics of a queue-like table say; without one, from the head
/// of the table.
const PLANS: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; \
    SET synchronize_seqscans = off";
/// How long the broker may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(5);
/// The longest wait for verdicts on what was given back.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
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
    pub(super) composer: Composer,
    pub(super) publisher: Option<Publisher>,
    is_blocked: bool,
    /// Since when the broker is away.
    away_since: Option<Instant>,
    /// The oldest message of an earlier batch that is without a verdict, and since when it is waited for.
    unclear_since: Option<(Option<u64>, Instant)>,
    pub(super) chance: Chance,
    pub(super) backoff: Backoff,
    broker_attempt: u32,
    pub(super) lanes: Lanes,
    pub(super) prepared: Prepared,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) verdicts: Vec<Verdict>,
    /// Rows by publish sequence number, from `first_seq` on.
    pub(super) rows_of: VecDeque<Option<u32>>,
    /// Ids of rows that were given back while their messages had no verdict.
    pub(super) open: BTreeMap<u64, (u64, String)>,
    /// The rows of all these wait for another attempt: nobody needs to wait for their verdicts.
    pub(super) is_open_parked: bool,
    /// How often in a row a connection was given up because nothing on it was answered.
    pub(super) timeout: u32,
    pub(super) first_seq: u64,
    /// Exchanges that were asked for on this connection, and whether they exist.
    pub(super) exchanges: BTreeMap<String, bool>,
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
    let mut task = Task {
        number,
        core: Worker::new(config, Instant::now()),
        out: Vec::new(),
        composer: Composer::new(&config.mapping, config.body_bytes_max),
        publisher: None,
        is_blocked: false,
        away_since: None,
        unclear_since: None,
        chance: Chance::new(seed),
        backoff: Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) },
        broker_attempt: 0,
        lanes: Lanes::default(),
        prepared: Prepared::default(),
        stop,
        verdicts: Vec::new(),
        rows_of: VecDeque::new(),
        open: BTreeMap::new(),
        is_open_parked: false,
        timeout: 0,
        first_seq: 0,
        exchanges: BTreeMap::new(),
        largest: 0,
        shared: Arc::clone(&shared),
    };
    let result = task.run().await;
    if let Some(publisher) = task.publisher.take() {
        task.shared.metrics.broker_connections.dec();
        // A goodbye, so that nothing on the wire is thrown away; the broker may be silent.
        let _ = tokio::time::timeout(GOODBYE, publisher.close()).await;
    }
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
            tracing::warn!(worker = self.number, %error, "it is tried again");
            self.shared.metrics.released.inc();
            self.step(Input::DatabaseLost);
            self.out.clear();
            (self.lanes, self.prepared) = (Lanes::default(), Prepared::default());
            if self.core_is_stopped() || self.pause(attempt).await {
                return Ok(());
            }
            attempt = attempt.saturating_add(1);
        }
    }

    fn core_is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits before attempt number `attempt`; true: it is to stop.
    async fn pause(&mut self, attempt: u32) -> bool {
        let delay = self.backoff.delay(attempt, self.chance.next_bits());
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
                self.keep_broker().await;
                self.keep_lanes(client).await?;
                self.look_at_block();
                self.look_at_rest();
                if self.lanes.has_some(&shared) && self.is_clear() {
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

    /// Connects to the broker if there is no connection; one attempt, then the caller waits.
    async fn keep_broker(&mut self) {
        if self.publisher.is_some() {
            return;
        }
        let config = &self.shared.config;
        let name = format!("millrace relay, worker {}", self.number);
        let window = config.window.max(config.batch);
        let opened = tokio::select! {
            opened = broker::open(&config.broker, &name, window) => opened,
            _ = self.stop.changed() => return,
        };
        match opened {
            Ok(publisher) => {
                self.publisher = Some(publisher);
                self.exchanges.clear();
                self.broker_attempt = 0;
                self.shared.metrics.broker_connections.inc();
                self.step(Input::BrokerReady);
            }
            Err(error) => {
                tracing::warn!(worker = self.number, %error, "it is tried again");
                self.pause(self.broker_attempt).await;
                self.broker_attempt = self.broker_attempt.saturating_add(1);
            }
        }
    }

    async fn keep_lanes(&mut self, client: &Client) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let failed = |error: tokio_postgres::Error| database("taking lanes", &error);
        if self.publisher.is_some() {
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

    fn look_at_block(&mut self) {
        let is_blocked = self.publisher.as_ref().is_some_and(Publisher::is_blocked);
        if is_blocked != self.is_blocked {
            self.is_blocked = is_blocked;
            self.shared.metrics.blocked.inc_by(if is_blocked { 1 } else { -1 });
            self.step(Input::BrokerBlocked(is_blocked));
        }
    }

    /// Nothing of an earlier batch is without a verdict.
    fn is_answered(&self) -> bool {
        self.publisher.as_ref().is_some_and(|publisher| publisher.unconfirmed() == 0)
    }

    /// A batch may begin: no row that it could fetch has a message on its way. Of others there may be some, as long as
    /// they leave room.
    fn is_clear(&self) -> bool {
        let has_room = |publisher: &Publisher| {
            publisher.unconfirmed() <= u64::from(self.shared.config.window / 2)
        };
        let may_pass = self.is_open_parked && !self.core.is_wary();
        self.is_answered() || may_pass && self.publisher.as_ref().is_some_and(has_room)
    }

    /// A broker that never answers what was given back gets a new connection: other rows need not wait for it.
    fn look_at_rest(&mut self) {
        if self.is_answered() || self.publisher.is_none() || self.is_blocked {
            self.unclear_since = None;
            return;
        }
        let oldest = self.open.keys().next().copied();
        if self.unclear_since.is_some_and(|(of, _)| of != oldest) {
            // The one that was waited for has its verdict: the next has its own time.
            self.unclear_since = None;
        }
        let (_, since) = *self.unclear_since.get_or_insert_with(|| (oldest, Instant::now()));
        // Twice as long each time: what is slow must get through in the end.
        let wait = self.shared.config.batch_deadline.saturating_mul(1 << self.timeout.min(10));
        if since.elapsed() > wait.min(TIMEOUT_MAX) {
            self.timeout += 1;
            tracing::warn!(worker = self.number, "messages are never confirmed: connecting again");
            self.drop_publisher();
            self.step(Input::BrokerLost);
        }
    }

    /// The broker's connection is gone, or is given up.
    pub(super) fn drop_publisher(&mut self) {
        if self.publisher.take().is_some() {
            self.shared.metrics.broker_connections.dec();
            if std::mem::take(&mut self.is_blocked) {
                self.shared.metrics.blocked.dec();
            }
        }
        self.rows_of.clear();
        self.open.clear();
    }

    /// Between batches: until there is something to do.
    async fn wait(&mut self) {
        let shared = Arc::clone(&self.shared);
        let now = Instant::now();
        let mut until = now + Duration::from_secs(1);
        if self.is_blocked || !self.is_clear() {
            until = now + BLOCKED_LOOK;
        } else if let (true, Some(deadline)) = (self.lanes.has_some(&shared), self.core.deadline())
        {
            until = until.min(deadline);
        }
        if let Some(deadline) = self.lanes.deadline(&shared) {
            until = until.min(deadline);
        }
        let Some(publisher) = &mut self.publisher else { return };
        let woken = tokio::select! {
            driven = publisher.drive(&mut self.verdicts) => Woken::Driven(driven),
            () = tokio::time::sleep_until(until.into()) => Woken::Time,
            () = shared.nudge.notified() => Woken::Nudge,
            _ = self.stop.changed() => Woken::Stop,
        };
        match woken {
            Woken::Driven(driven) => {
                self.take_late_verdicts();
                if let Err(error) = driven {
                    tracing::warn!(worker = self.number, %error, "the broker is lost");
                    self.drop_publisher();
                    self.step(Input::BrokerLost);
                }
            }
            Woken::Nudge => self.step(Input::Nudge),
            Woken::Time | Woken::Stop => (),
        }
    }
}

/// What ended a wait.
pub(super) enum Woken {
    Driven(Result<(), client::Error>),
    Time,
    Nudge,
    Stop,
}
