//! The shell of an inbox: one consumer, one connection to the database, one statement a batch.

mod links;
mod store;

use std::collections::VecDeque;
use std::future::{Future, pending};
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Consumer, Delivery, DeliveryTag, Outcome};
use tokio::sync::watch;

use self::links::{Link, is_taken, open_consumer, open_watcher, words};
use self::store::{Failed, Store};
use super::postgres::Database;
use crate::error::Error;
use crate::inbox::{Config, Counts, Inbox, Input, Metrics, Output, Row, Statements, Step};

/// How long a stop waits for the database and the broker.
const STOP_MAX: Duration = Duration::from_secs(10);
/// How often the queue is asked how much it has.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Deliveries that are taken at a time before the database is looked at again.
const TAKEN_AT_ONCE: usize = 1000;

type Storing = Pin<Box<dyn Future<Output = Result<u64, Failed>>>>;

/// What the loop waited for.
enum News {
    Delivered(Result<Delivery, client::Error>),
    Consumer(Box<Consumer>),
    Store(Store),
    Stored(Result<u64, Failed>),
    Stop,
    /// The stop has waited long enough.
    GiveUp,
}

/// Moves the queue's messages into the table until `stop` says so.
///
/// # Errors
/// What is wrong at the start: settings, table, privileges, a database or broker that is not there. Losses after
/// the start are waited out.
pub async fn run_inbox(
    config: Config,
    metrics: Metrics,
    stop: watch::Receiver<bool>,
) -> Result<Counts, Error> {
    let problems = config.problems();
    if !problems.is_empty() {
        return Err(Error::setup(problems.join("; ")));
    }
    let database = Database::parse(&config.database)?;
    let statements = Statements::new(&config.table);
    let store = Store::open(&database, &config, &statements).await?;
    let consumer = match open_consumer(&config).await {
        Ok(consumer) => Some(Box::new(consumer)),
        Err(error) if is_taken(&error) => {
            metrics.standby.set(1);
            tracing::info!(why = words(&error), "standing by");
            None
        }
        Err(error) => {
            let doing = format!("consuming {} of {}", config.queue, config.broker);
            return Err(Error::Broker { doing, text: error.to_string() });
        }
    };
    tracing::info!(
        queue = config.queue,
        consumer = config.consumer,
        table = %config.table,
        "the inbox is open"
    );
    metrics.broker_connections.set(i64::from(consumer.is_some()));
    let mut shell = Shell {
        core: Inbox::new(config.batch as usize, config.on_refused),
        to_database: Link::to_database(&config, &database, &statements),
        to_broker: Link::to_broker(&config, &metrics),
        consumer,
        config,
        metrics,
        counted: Counts::default(),
        tags: VecDeque::new(),
        store: None,
        storing: None,
        storing_since: None,
        ids: Ids::new(),
        stop,
        stopping_since: None,
        is_open: true,
    };
    shell.heard(News::Store(store)).await;
    while shell.is_open {
        let news = shell.wait().await;
        shell.heard(news).await;
    }
    Ok(shell.end().await)
}

/// Asks the queue how many messages it has ready, for ever, on a connection of its own.
pub async fn watch_queue(config: Config, metrics: Metrics) {
    let mut connection = None;
    loop {
        let looked = look_up(&mut connection, &config).await;
        if let Err(error) = &looked {
            tracing::debug!(%error, "cannot look at the queue");
            connection = None;
        }
        metrics.queued.set(looked.map_or(-1, i64::from));
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn look_up(
    connection: &mut Option<client::Connection>,
    config: &Config,
) -> Result<u32, client::Error> {
    let connection = match connection {
        Some(connection) => connection,
        None => connection.insert(open_watcher(config).await?),
    };
    Ok(connection.look_up_queue(&config.queue).await?.message_count)
}

struct Shell {
    config: Config,
    metrics: Metrics,
    /// What the metrics know of the core's counts.
    counted: Counts,
    core: Inbox,
    to_database: Link<Store>,
    to_broker: Link<Consumer>,
    /// None while the broker is away.
    consumer: Option<Box<Consumer>>,
    /// What this consumer was given and has not settled, oldest first.
    tags: VecDeque<DeliveryTag>,
    /// None while the database is away.
    store: Option<Store>,
    storing: Option<Storing>,
    storing_since: Option<Instant>,
    ids: Ids,
    stop: watch::Receiver<bool>,
    stopping_since: Option<Instant>,
    is_open: bool,
}

impl Shell {
    async fn wait(&mut self) -> News {
        let Self { consumer, to_broker, to_database, storing, store, stop, stopping_since, .. } =
            self;
        let is_stopping = stopping_since.is_some();
        let give_up_at = stopping_since.map(|since| since + STOP_MAX);
        tokio::select! {
            // What is committed is told before more is taken.
            biased;
            stored = or_never(storing.as_mut()) => News::Stored(stored),
            new = to_database.next(), if store.is_none() => News::Store(new),
            () = stopped(stop), if !is_stopping => News::Stop,
            () = until(give_up_at) => News::GiveUp,
            delivery = next(consumer.as_deref_mut()), if !is_stopping => News::Delivered(delivery),
            new = to_broker.next(), if consumer.is_none() && !is_stopping => {
                News::Consumer(Box::new(new))
            }
        }
    }

    async fn heard(&mut self, news: News) {
        match news {
            News::Delivered(Ok(first)) => {
                self.to_broker.works();
                let rows = self.take(Some(first));
                self.step(Input::Delivered(rows));
            }
            News::Delivered(Err(error)) => self.broker_lost(&error),
            News::Consumer(consumer) => {
                self.consumer = Some(consumer);
                self.metrics.broker_connections.set(1);
            }
            News::Store(store) => {
                self.store = Some(store);
                self.metrics.database_connections.set(1);
                self.step(Input::DatabaseReady);
            }
            News::Stored(result) => {
                self.storing = None;
                if let Some(since) = self.storing_since.take() {
                    self.metrics.step(Step::Store, since.elapsed().as_nanos() as u64);
                }
                self.stored(result);
            }
            News::Stop => self.stop().await,
            News::GiveUp => {
                let held = self.core.held();
                tracing::warn!(
                    held,
                    "the database does not answer: what is not stored goes back to the queue"
                );
                self.is_open = false;
            }
        }
    }

    /// What is here, as rows.
    fn take(&mut self, first: Option<Delivery>) -> Vec<Row> {
        let Some(consumer) = self.consumer.as_deref_mut() else { return Vec::new() };
        let since = Instant::now();
        let here = std::iter::from_fn(|| consumer.try_next());
        let mut rows = Vec::new();
        for delivery in first.into_iter().chain(here).take(TAKEN_AT_ONCE) {
            self.tags.push_back(delivery.tag);
            rows.push(self.ids.row(&delivery));
        }
        self.metrics.unacked.set(self.tags.len() as i64);
        self.metrics.step(Step::Take, since.elapsed().as_nanos() as u64);
        rows
    }

    fn stored(&mut self, result: Result<u64, Failed>) {
        match result {
            Ok(new) => {
                self.to_database.works();
                self.metrics.stuck.set(0);
                self.step(Input::Stored { new });
            }
            Err(Failed::Refused { why }) => {
                tracing::warn!(why, "the database refuses a batch: looking for the message");
                self.step(Input::Refused { why });
            }
            Err(Failed::Lost { why }) => {
                tracing::warn!(why, "the database is lost");
                self.database_lost();
                self.step(Input::DatabaseLost);
            }
        }
    }

    fn step(&mut self, input: Input) {
        let mut out = Vec::new();
        self.core.step(input, &mut out);
        let counts = self.core.counts();
        self.metrics.count(std::mem::replace(&mut self.counted, counts), counts);
        for output in out {
            match output {
                Output::Store(rows) => self.begin_to_store(rows),
                Output::Settle(count) => self.settle(count, Outcome::Done),
                Output::Reject { message_id, why } => {
                    tracing::warn!(
                        message_id,
                        why,
                        "the table refuses a message: it is rejected, and goes where its queue sends dead letters"
                    );
                    self.settle(1, Outcome::DeadLetter);
                }
                Output::Stuck { message_id, why } => {
                    tracing::error!(
                        message_id,
                        why,
                        "the table refuses a message, even without what may be wrong with it (a check, a trigger): it is tried again, and what is behind it waits. Mend the table; or start the inbox with --on-refused reject, which dead-letters such a message; or take it out of the queue while the inbox is stopped (millrace consume --queue QUEUE --count 1)"
                    );
                    self.metrics.stuck.set(1);
                    self.database_lost();
                }
                Output::TakeLess => self.take_less(),
                Output::Stopped => self.is_open = false,
            }
        }
    }

    fn begin_to_store(&mut self, rows: Arc<Vec<Row>>) {
        let store = self.store.clone().expect("the core was told that the database is there");
        self.storing_since = Some(Instant::now());
        self.storing = Some(Box::pin(async move { store.insert(&rows).await }));
    }

    fn database_lost(&mut self) {
        self.store = None;
        self.metrics.database_connections.set(0);
    }

    /// The oldest deliveries have ended so. The next wait for deliveries tells the broker.
    fn settle(&mut self, count: usize, outcome: Outcome) {
        let Some(consumer) = self.consumer.as_deref_mut() else { return };
        let since = Instant::now();
        for tag in self.tags.drain(..count) {
            if let Err(error) = consumer.settle(tag, outcome) {
                tracing::error!(%error, "a delivery was settled twice");
            }
        }
        self.metrics.unacked.set(self.tags.len() as i64);
        self.metrics.step(Step::Settle, since.elapsed().as_nanos() as u64);
    }

    /// What is here and not being stored goes back to the queue, and comes again in smaller portions.
    fn take_less(&mut self) {
        self.config.prefetch = (self.config.prefetch / 4).max(1);
        let prefetch = self.config.prefetch;
        tracing::warn!(prefetch, "the messages are large: fewer of them are taken at a time");
        self.to_broker = Link::to_broker(&self.config, &self.metrics);
        self.leave_broker();
    }

    fn broker_lost(&mut self, error: &client::Error) {
        tracing::warn!(%error, "the broker is lost");
        self.leave_broker();
    }

    fn leave_broker(&mut self) {
        self.consumer = None;
        self.tags.clear();
        self.metrics.broker_connections.set(0);
        self.metrics.unacked.set(0);
        self.step(Input::BrokerLost);
    }

    /// No more deliveries: what came until now is the last.
    async fn stop(&mut self) {
        self.stopping_since = Some(Instant::now());
        tracing::info!(held = self.core.held(), "no more is taken: what is here is stored");
        if let Some(consumer) = self.consumer.as_deref_mut() {
            match tokio::time::timeout(STOP_MAX, consumer.cancel()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => self.broker_lost(&error),
                Err(_) => self.broker_lost(&client::Error::NoAnswer { to: "basic.cancel".into() }),
            }
        }
        loop {
            let rows = self.take(None);
            if rows.is_empty() {
                break;
            }
            self.step(Input::Delivered(rows));
        }
        self.step(Input::Stop);
    }

    /// Tells the broker what is stored, and closes the connection.
    async fn end(self) -> Counts {
        if let Some(consumer) = self.consumer {
            match tokio::time::timeout(STOP_MAX, consumer.close()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the last acknowledgements may not have arrived")
                }
                Err(_) => tracing::warn!("the broker did not answer the goodbye"),
            }
        }
        self.core.counts()
    }
}

async fn or_never(storing: Option<&mut Storing>) -> Result<u64, Failed> {
    match storing {
        Some(storing) => storing.await,
        None => pending().await,
    }
}

async fn next(consumer: Option<&mut Consumer>) -> Result<Delivery, client::Error> {
    match consumer {
        Some(consumer) => consumer.next().await,
        None => pending().await,
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        // Nobody is left who could say it.
        pending::<()>().await;
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => pending().await,
    }
}

/// Makes rows, and ids for messages that have none.
struct Ids {
    state: RandomState,
    next: u64,
    has_warned: bool,
}

impl Ids {
    fn new() -> Self {
        Self { state: RandomState::new(), next: 0, has_warned: false }
    }

    fn row(&mut self, delivery: &Delivery) -> Row {
        let (key, body) = (delivery.routing_key(), delivery.body.clone());
        let row = match delivery.properties() {
            Ok(properties) => {
                Row::new(delivery.exchange(), key, &properties, body, || self.new_id())
            }
            Err(error) => Row::unreadable(key, body, &error.to_string(), || self.new_id()),
        };
        if row.is_without_id && !self.has_warned {
            self.has_warned = true;
            tracing::warn!(
                "a message has no message-id: it is kept, and kept again whenever it is delivered again"
            );
        }
        row
    }

    /// A random UUID (RFC 9562, version 4): a keyed hash of a counter, under a key of this process.
    fn new_id(&mut self) -> String {
        self.next += 1;
        let half = |which: u8| u128::from(self.state.hash_one((self.next, which)));
        let bits = (half(0) << 64 | half(1)) & !(0xf << 76) & !(0x3 << 62) | 4 << 76 | 2 << 62;
        let hex = format!("{bits:032x}");
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        parts.join("-")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_ids_are_uuids_that_do_not_repeat() {
        let mut ids = Ids::new();
        let made: std::collections::BTreeSet<String> = (0..1000).map(|_| ids.new_id()).collect();
        assert_eq!(made.len(), 1000);
        for id in made {
            assert_eq!((id.len(), &id[14..15]), (36, "4"), "{id}");
            assert!("89ab".contains(&id[19..20]), "{id}");
        }
    }
}
