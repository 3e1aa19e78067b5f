//! What every test of an inbox has: messages of many keys that are published in rounds, and waiting.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    dead_code,
    reason = "a test of the whole waits for processes; no test needs everything"
)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueuePurgeOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, PublisherConfirm};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

pub(crate) const KEYS: usize = 25;
/// Longer than anything here takes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(20);
/// Between two rounds of a publisher.
const PACE: Duration = Duration::from_millis(5);
const RETRY: Duration = Duration::from_millis(50);
/// How many messages a publisher may be ahead of the table. A database may take half a minute to recover, and the trial
/// is about kills, not about a backlog of minutes.
const AHEAD_MAX: usize = 2_000;

pub(crate) async fn channel(broker: SocketAddr) -> Result<(Connection, Channel), lapin::Error> {
    let uri = format!("amqp://guest:guest@{broker}/%2f?heartbeat=5");
    let connecting = Connection::connect(&uri, ConnectionProperties::default());
    let late = || std::io::Error::from(std::io::ErrorKind::TimedOut);
    let connected = tokio::time::timeout(Duration::from_secs(10), connecting).await;
    let connection = connected.unwrap_or_else(|_| Err(late().into()))?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok((connection, channel))
}

/// Publishes to the queue; Ok once it is confirmed.
pub(crate) async fn publish(
    channel: &Channel,
    queue: &str,
    properties: BasicProperties,
    body: &[u8],
) -> Result<(), lapin::Error> {
    confirmed(send(channel, queue, properties, body).await?).await
}

/// Hands a message to the client. One task at a time: lapin counts a message before it sends it, and of two tasks
/// that send at once, each may get the confirm of the other's.
async fn send(
    channel: &Channel,
    queue: &str,
    properties: BasicProperties,
    body: &[u8],
) -> Result<PublisherConfirm, lapin::Error> {
    let options = BasicPublishOptions::default();
    let properties = properties.with_delivery_mode(2);
    channel.basic_publish("".into(), queue.into(), options, body, properties).await
}

async fn confirmed(confirm: PublisherConfirm) -> Result<(), lapin::Error> {
    let confirm = tokio::time::timeout(Duration::from_secs(10), confirm).await;
    let late = || std::io::Error::from(std::io::ErrorKind::TimedOut);
    assert!(confirm.unwrap_or_else(|_| Err(late().into()))?.is_ack(), "the broker refused");
    Ok(())
}

/// Publishes until it is told to stop.
pub(crate) struct Publisher {
    rounds: JoinHandle<usize>,
    is_enough: Arc<AtomicBool>,
    /// Messages in the table, as far as the trial has looked.
    stored: Arc<AtomicUsize>,
}

impl Publisher {
    /// Rounds of one message for each key: the next of a key is published when the one before it is confirmed,
    /// and what is not confirmed is published again. So the order of first arrival is the order of numbers.
    pub(crate) fn start(runtime: &Runtime, broker: SocketAddr, queue: &str) -> Self {
        let is_enough = Arc::new(AtomicBool::new(false));
        let stored = Arc::new(AtomicUsize::new(0));
        let queue = queue.to_owned();
        let (told, known) = (Arc::clone(&is_enough), Arc::clone(&stored));
        let rounds = runtime.spawn(async move {
            let mut link = None;
            let mut round = 0;
            while !told.load(Ordering::Relaxed) {
                if round * KEYS < known.load(Ordering::Relaxed) + AHEAD_MAX {
                    publish_round(broker, &queue, &mut link, round).await;
                    round += 1;
                }
                tokio::time::sleep(PACE).await;
            }
            round
        });
        Self { rounds, is_enough, stored }
    }

    /// Takes note of how many messages are in the table. Gives the count back.
    pub(crate) fn note_stored(&self, count: usize) -> usize {
        self.stored.store(count, Ordering::Relaxed);
        count
    }

    /// How many rounds there were, all of them confirmed.
    pub(crate) fn ended(self, runtime: &Runtime) -> usize {
        self.is_enough.store(true, Ordering::Relaxed);
        until("everything is published", || self.rounds.is_finished());
        runtime.block_on(self.rounds).unwrap()
    }
}

async fn publish_round(
    broker: SocketAddr,
    queue: &str,
    link: &mut Option<(Connection, Channel)>,
    round: usize,
) {
    let mut left: Vec<usize> = (0..KEYS).collect();
    while !left.is_empty() {
        if link.is_none() {
            tokio::time::sleep(RETRY).await;
            *link = channel(broker).await.ok();
        }
        let Some((_, channel)) = &*link else { continue };
        let mut sent = Vec::new();
        for key in &left {
            let properties = BasicProperties::default()
                .with_message_id(format!("{key}-{round}").into())
                .with_type("Round".into())
                .with_headers(keyed(&key.to_string()));
            let body = format!("body of {key}-{round}");
            sent.push((*key, send(channel, queue, properties, body.as_bytes()).await));
        }
        let mut missing = Vec::new();
        for (key, sent) in sent {
            let is_confirmed = match sent {
                Ok(confirm) => confirmed(confirm).await.is_ok(),
                Err(_) => false,
            };
            if !is_confirmed {
                missing.push(key);
            }
        }
        if !missing.is_empty() {
            *link = None;
        }
        left = missing;
    }
}

#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Headers that say which key a message has, for `--key header:k`.
pub(crate) fn keyed(key: &str) -> FieldTable {
    let mut headers = FieldTable::default();
    headers.insert("k".into(), AMQPValue::LongString(key.into()));
    headers
}

/// Makes an empty queue.
pub(crate) fn declare(runtime: &Runtime, broker: SocketAddr, name: &str) {
    runtime.block_on(async {
        let (_connection, channel) = channel(broker).await.unwrap();
        let durable = QueueDeclareOptions { durable: true, ..Default::default() };
        channel.queue_declare(name.into(), durable, FieldTable::default()).await.unwrap();
        channel.queue_purge(name.into(), QueuePurgeOptions::default()).await.unwrap();
    });
}

/// How many messages are ready in the queue.
pub(crate) fn ready(runtime: &Runtime, broker: SocketAddr, queue: &str) -> u32 {
    runtime.block_on(async {
        let (_connection, channel) = channel(broker).await.unwrap();
        let passive = QueueDeclareOptions { passive: true, ..Default::default() };
        let declared = channel.queue_declare(queue.into(), passive, FieldTable::default()).await;
        declared.unwrap().message_count()
    })
}

/// Every message once, each key's in the order of its numbers, each with its own body. A row: id, body and type.
pub(crate) fn judge<'a>(rows: impl Iterator<Item = Vec<&'a str>>, rounds: usize) {
    let mut next: BTreeMap<usize, usize> = BTreeMap::new();
    for row in rows {
        let [id, body, kind] = row[..] else { panic!("not three columns: {row:?}") };
        assert_eq!((body, kind), (&*format!("body of {id}"), "Round"));
        let (key, number) = id.split_once('-').unwrap();
        let due = next.entry(key.parse().unwrap()).or_default();
        assert_eq!(number.parse::<usize>().unwrap(), *due, "out of order, lost or twice: {id}");
        *due += 1;
    }
    assert_eq!(next.len(), KEYS);
    assert!(next.values().all(|count| *count == rounds), "{next:?}");
}
