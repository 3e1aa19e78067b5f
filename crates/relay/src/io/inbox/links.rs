//! The connections of an inbox, made again for as long as it takes.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::time::{Duration, Instant};

use client::{Backoff, Chance, Connection, Consumer, ConsumerOptions, Options};

use super::store::{Place, Store};
use crate::inbox::{Config, Metrics};

/// Seconds between heartbeats: how long a dead inbox may keep the queue from the next.
const HEARTBEAT: u16 = 10;

/// A consumer that every loss is told of: what it was given comes again on the next. Alone on the queue, unless
/// it is shared: two would have a part of each key.
pub(super) async fn open_consumer(config: &Config) -> Result<Consumer, client::Error> {
    let name = format!("millrace relay inbox {}", config.consumer);
    let options = Options { heartbeat: HEARTBEAT, ..Options::named(name) };
    let how = ConsumerOptions {
        prefetch: config.prefetch,
        exclusive: !config.shared,
        // Acknowledgements are sent with the next wait after their commit.
        ack_every: usize::MAX,
        ack_wait: Duration::ZERO,
        ..ConsumerOptions::default()
    };
    Consumer::open(&config.broker, &options.without_retry(), &config.queue, how).await
}

/// A connection that only looks.
pub(super) async fn open_watcher(config: &Config) -> Result<Connection, client::Error> {
    let name = format!("millrace relay inbox {}, metrics", config.consumer);
    Connection::open(&config.broker, &Options::named(name).without_retry()).await
}

/// Whether somebody else has the queue.
pub(super) fn is_taken(error: &client::Error) -> bool {
    matches!(error, client::Error::ChannelClosed { code: 403, text } if text.contains("exclusive"))
}

/// The error in words, with what to do where somebody else has the queue.
pub(super) fn words(error: &client::Error) -> String {
    if is_taken(error) {
        return format!(
            "{error}; this one stands by until the other is gone (a queue with \
             x-single-active-consumer wants --shared)"
        );
    }
    error.to_string()
}

/// Something that is going on.
type Going<T> = Pin<Box<dyn Future<Output = T>>>;

/// Makes one kind of connection. A wait that is cancelled goes on with the next.
pub(super) struct Link<T> {
    what: &'static str,
    open: Box<dyn Fn() -> Going<Result<T, String>>>,
    opening: Option<Going<Result<T, String>>>,
    /// Nothing is tried before.
    due: Option<Instant>,
    chance: Chance,
    attempt: u32,
    lost_at: Option<Instant>,
    /// What the log knows already.
    last: String,
}

impl Link<Store> {
    pub(super) fn to_database(config: &Config, place: &Place) -> Self {
        // The table was there: if it goes, nobody but its owner makes another.
        let config = Config { install: false, ..config.clone() };
        let known = (place.clone(), config);
        Self::new("the database", move || {
            let (place, config) = known.clone();
            async move {
                let opened = Store::open(&place, &config).await;
                opened.map_err(|error| error.to_string())
            }
        })
    }
}

impl Link<Consumer> {
    pub(super) fn to_broker(config: &Config, metrics: &Metrics) -> Self {
        let known = (config.clone(), metrics.clone());
        Self::new("the broker", move || {
            let (config, metrics) = known.clone();
            async move {
                let opened = open_consumer(&config).await;
                metrics.standby.set(i64::from(opened.as_ref().is_err_and(is_taken)));
                opened.map_err(|error| words(&error))
            }
        })
    }
}

impl<T: 'static> Link<T> {
    fn new<F>(what: &'static str, open: impl Fn() -> F + 'static) -> Self
    where
        F: Future<Output = Result<T, String>> + 'static,
    {
        Self {
            what,
            open: Box::new(move || Box::pin(open())),
            opening: None,
            due: None,
            chance: Chance::new(RandomState::new().hash_one(std::process::id())),
            attempt: 0,
            lost_at: None,
            last: String::new(),
        }
    }

    /// A new connection. One line in the log when it is there, and one for each different reason why it is not.
    pub(super) async fn next(&mut self) -> T {
        let lost_at = *self.lost_at.get_or_insert_with(Instant::now);
        loop {
            if self.opening.is_none() {
                let due = *self.due.get_or_insert_with(|| {
                    let delay = Backoff::default().delay(self.attempt, self.chance.next_bits());
                    Instant::now() + delay
                });
                tokio::time::sleep_until(due.into()).await;
            }
            let opening = self.opening.get_or_insert_with(|| (self.open)());
            let opened = opening.await;
            (self.opening, self.due) = (None, None);
            // A connection that is made and lost at once is an attempt, too.
            self.attempt = self.attempt.saturating_add(1);
            match opened {
                Ok(opened) => {
                    let away_ms = lost_at.elapsed().as_millis() as u64;
                    tracing::info!(away_ms, "{} is back", self.what);
                    (self.lost_at, self.last) = (None, String::new());
                    return opened;
                }
                Err(why) if why == self.last => {}
                Err(why) => {
                    tracing::warn!(why, "{} is away", self.what);
                    self.last = why;
                }
            }
        }
    }

    /// It does what it is for: the next loss is the first again.
    pub(super) fn works(&mut self) {
        self.attempt = 0;
    }
}
