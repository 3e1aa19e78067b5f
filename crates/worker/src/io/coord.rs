//! What several worker processes agree on, over their broker: who fires a tick, who may use how much of a rate,
//! and when a batch is over.
//!
//! Each of [`cron::run`], [`shares::run`] and [`batches::run`] is one task per process. It runs until it is told to
//! stop, connects again by itself, and may be killed at any moment. Of all processes one acts and the others stand
//! by (AMQP), or all act and a script decides (Redis).

pub mod batches;
pub mod cron;
mod lock;
mod publish;
pub mod shares;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use crate::error::Error;

/// How long a task waits before it tries again to connect, or to become the one that acts.
const RETRY: Duration = Duration::from_secs(1);
/// Heartbeats of these connections, in seconds: a holder that is gone is replaced after twice as long at most.
const HEARTBEAT_SECONDS: u16 = 5;

/// Over which broker processes agree.
#[derive(Clone, Debug)]
pub enum Broker {
    /// Millrace, RabbitMQ.
    Amqp { url: client::Url },
    /// Redis, and what its queues are.
    Redis { client: redis::Client, queues: Queues },
}

/// What jobs lie in at a Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queues {
    Streams,
    /// Lists that are consumed from the right: jobs are added at the left.
    ListsFromRight,
    /// Lists that are consumed from the left.
    ListsFromLeft,
}

/// Why a source of this kind cannot carry `what` (schedules, shared rates, batches); none if it can.
pub fn refusal(kind: &str, what: &str) -> Option<String> {
    let is_able = kind.starts_with("amqp") || kind.starts_with("redis");
    (!is_able).then(|| {
        format!("{what} need a source of AMQP or Redis; a source of the kind `{kind}` has no place to agree by")
    })
}

/// Told to stop: true, or the sender is gone.
pub type Stop = watch::Receiver<bool>;

/// Waits for so long; true if it was told to stop meanwhile.
async fn pause(stop: &mut Stop, wait: Duration) -> bool {
    tokio::time::timeout(wait, stop.wait_for(|stop| *stop)).await.is_ok()
}

fn amqp_options(name: &str) -> client::Options {
    let options = client::Options::named(format!("millrace work {name}"));
    client::Options { heartbeat: HEARTBEAT_SECONDS, ..options }.without_retry()
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn away(doing: &str) -> impl FnOnce(client::Error) -> Error {
    move |error| Error::away(doing, error)
}

fn redis_away(doing: &str) -> impl FnOnce(redis::RedisError) -> Error {
    move |error| Error::away(doing, error)
}

/// A connection to Redis whose requests end in time.
async fn redis_connection(
    client: &redis::Client,
) -> Result<redis::aio::MultiplexedConnection, Error> {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(5)))
        .set_response_timeout(Some(Duration::from_secs(5)));
    let connection = client.get_multiplexed_async_connection_with_config(&config).await;
    connection.map_err(redis_away("no connection to Redis"))
}
