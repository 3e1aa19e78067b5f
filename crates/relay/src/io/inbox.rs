//! The shell of an inbox: one consumer, a few connections to the database, one transaction a batch.

mod ids;
mod links;
mod store;
mod worker;

use std::future::pending;
use std::time::{Duration, Instant};

use client::{Consumer, Delivery, DeliveryTag, Outcome};
use tokio::sync::watch;

use self::ids::Ids;
use self::links::{Link, is_taken, open_consumer, open_watcher, words};
use self::store::{Failed, Place, Store};
use self::worker::{Worker, any};
use crate::error::Error;
use crate::inbox::{Config, Counts, Input, Metrics, Output, Outputs, Row, Step, Workers};

/// How long a stop waits for the database and the broker.
const STOP_MAX: Duration = Duration::from_secs(10);
/// How often the queue is asked how much it has.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Deliveries that are taken at a time before the database is looked at again.
const TAKEN_AT_ONCE: usize = 1000;

/// What the loop waited for.
enum News {
    Delivered(Result<Delivery, client::Error>),
    Consumer(Box<Consumer>),
    /// Of one worker.
    Database(usize, worker::News),
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
    let place = Place::parse(&config.database)?;
    let mut stores = vec![Store::open(&place, &config).await?];
    let others = Config { install: false, ..config.clone() };
    while stores.len() < config.workers as usize {
        stores.push(Store::open(&place, &others).await?);
    }
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
    let worker = |_| Worker::new(Link::to_database(&config, &place));
    let mut shell = Shell {
        core: Workers::new(&config),
        workers: (0..stores.len()).map(worker).collect(),
        to_broker: Link::to_broker(&config, &metrics),
        consumer,
        ids: Ids::new(config.key.clone()),
        config,
        metrics,
        counted: Counts::default(),
        stop,
        stopping_since: None,
        is_open: true,
    };
    for (number, store) in stores.into_iter().enumerate() {
        shell.heard(News::Database(number, worker::News::Open(store))).await;
    }
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
    core: Workers,
    workers: Vec<Worker>,
    to_broker: Link<Consumer>,
    /// None while the broker is away.
    consumer: Option<Box<Consumer>>,
    ids: Ids,
    stop: watch::Receiver<bool>,
    stopping_since: Option<Instant>,
    is_open: bool,
}

impl Shell {
    async fn wait(&mut self) -> News {
        let Self { consumer, to_broker, workers, stop, stopping_since, .. } = self;
        let is_stopping = stopping_since.is_some();
        let give_up_at = stopping_since.map(|since| since + STOP_MAX);
        tokio::select! {
            // What is committed is told before more is taken.
            biased;
            (number, news) = any(workers) => News::Database(number, news),
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
                self.take(Some(first));
            }
            News::Delivered(Err(error)) => self.broker_lost(&error),
            News::Consumer(consumer) => {
                self.consumer = Some(consumer);
                self.metrics.broker_connections.set(1);
            }
            News::Database(number, worker::News::Open(store)) => {
                self.workers[number].store = Some(store);
                self.count_workers();
                self.step(number, Input::DatabaseReady);
            }
            News::Database(number, worker::News::Stored(result, nanos)) => {
                self.metrics.step(Step::Store, nanos);
                self.stored(number, result);
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

    /// Gives what is here to the workers. False: nothing is here.
    fn take(&mut self, first: Option<Delivery>) -> bool {
        let Some(consumer) = self.consumer.as_deref_mut() else { return false };
        let since = Instant::now();
        let here = std::iter::from_fn(|| consumer.try_next());
        let taken: (Vec<DeliveryTag>, Vec<Row>) = first
            .into_iter()
            .chain(here)
            .take(TAKEN_AT_ONCE)
            .map(|delivery| (delivery.tag, self.ids.row(&delivery)))
            .unzip();
        let (tags, rows) = taken;
        self.metrics.step(Step::Take, since.elapsed().as_nanos() as u64);
        let (is_some, mut out) = (!rows.is_empty(), Vec::new());
        let owners = self.core.deliver(rows, &mut out);
        for (tag, owner) in tags.into_iter().zip(owners) {
            self.workers[owner].tags.push_back(tag);
        }
        self.count_unacked();
        self.act(out);
        is_some
    }

    fn stored(&mut self, number: usize, result: Result<u64, Failed>) {
        match result {
            Ok(new) => {
                self.workers[number].works();
                self.count_workers();
                self.step(number, Input::Stored { new });
            }
            Err(Failed::Refused { why }) => {
                tracing::warn!(why, "the database refuses a batch: looking for the message");
                self.step(number, Input::Refused { why });
            }
            Err(Failed::Lost { why }) => {
                tracing::warn!(why, "the database is lost");
                self.workers[number].store = None;
                self.count_workers();
                self.step(number, Input::DatabaseLost);
            }
        }
    }

    fn step(&mut self, number: usize, input: Input) {
        let mut out = Vec::new();
        self.core.step(number, input, &mut out);
        self.act(out);
    }

    fn step_all(&mut self, input: &Input) {
        let mut out = Vec::new();
        self.core.step_all(input, &mut out);
        self.act(out);
    }

    fn act(&mut self, out: Outputs) {
        let counts = self.core.counts();
        self.metrics.count(std::mem::replace(&mut self.counted, counts), counts);
        for (number, output) in out {
            match output {
                Output::Store(rows) => self.workers[number].begin(rows),
                Output::Settle(count) => self.settle(number, count, Outcome::Done),
                Output::Reject { message_id, why } => {
                    tracing::warn!(
                        message_id,
                        why,
                        "the table refuses a message: it is rejected, and goes where its queue sends dead letters"
                    );
                    self.settle(number, 1, Outcome::DeadLetter);
                }
                Output::Stuck { message_id, why } => {
                    tracing::error!(
                        message_id,
                        why,
                        "the table refuses a message, even without what may be wrong with it (a check, a trigger): it is tried again, and what is behind it waits. Mend the table; or start the inbox with --on-refused reject, which dead-letters such a message; or take it out of the queue while the inbox is stopped (millrace consume --queue QUEUE --count 1)"
                    );
                    self.workers[number].is_stuck = true;
                    self.workers[number].store = None;
                    self.count_workers();
                }
                Output::TakeLess => self.take_less(),
                Output::Stopped => self.is_open = false,
            }
        }
    }

    fn count_workers(&self) {
        let count = |is_so: fn(&Worker) -> bool| {
            self.workers.iter().filter(|worker| is_so(worker)).count() as i64
        };
        self.metrics.database_connections.set(count(|worker| worker.store.is_some()));
        self.metrics.stuck.set(count(|worker| worker.is_stuck));
    }

    fn count_unacked(&self) {
        let unacked: usize = self.workers.iter().map(|worker| worker.tags.len()).sum();
        self.metrics.unacked.set(unacked as i64);
    }

    /// The worker's oldest deliveries have ended so. The next wait for deliveries tells the broker.
    fn settle(&mut self, number: usize, count: usize, outcome: Outcome) {
        let Some(consumer) = self.consumer.as_deref_mut() else { return };
        let since = Instant::now();
        for tag in self.workers[number].tags.drain(..count) {
            if let Err(error) = consumer.settle(tag, outcome) {
                tracing::error!(%error, "a delivery was settled twice");
            }
        }
        self.count_unacked();
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
        self.workers.iter_mut().for_each(|worker| worker.tags.clear());
        self.metrics.broker_connections.set(0);
        self.count_unacked();
        self.step_all(&Input::BrokerLost);
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
        while self.take(None) {}
        self.step_all(&Input::Stop);
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
