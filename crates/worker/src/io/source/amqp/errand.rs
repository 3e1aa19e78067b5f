//! Looks for exchanges and declares queues for delays, over a connection of its own.

use std::time::Instant;

use amqp::{Method, exchange};
use client::{Connection, QueueSpec, Url};

use super::options;
use crate::source::amqp::QueueType;
use crate::source::amqp::letters::{BUCKET_OUTLIVES, Bucket, Need};

/// What was needed, and since before when it is there, or why not.
pub(in crate::io) type Found = Vec<(Need, Result<Instant, String>)>;

/// Sees to each need.
pub(in crate::io) async fn run(url: Url, needs: Vec<Need>, queue_type: QueueType) -> Found {
    let mut connection = match Connection::open(&url, &options("looking for exchanges")).await {
        Ok(connection) => connection,
        Err(error) => {
            let why = error.to_string();
            return needs.into_iter().map(|need| (need, Err(why.clone()))).collect();
        }
    };
    let mut found = Vec::with_capacity(needs.len());
    for need in needs {
        let at = Instant::now();
        let seen = match &need {
            Need::Exchange(exchange) => look_up(&mut connection, exchange).await,
            Need::Bucket(bucket) => declare(&mut connection, bucket, queue_type).await,
        };
        found.push((need, seen.map(|()| at)));
    }
    let _ = connection.close().await;
    found
}

async fn look_up(connection: &mut Connection, exchange: &str) -> Result<(), String> {
    let passive = exchange::Declare { exchange, passive: true, ..exchange::Declare::default() };
    match connection.call(&Method::ExchangeDeclare(passive)).await {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("looking for the exchange `{exchange}`: {error}")),
    }
}

async fn declare(
    connection: &mut Connection,
    bucket: &Bucket,
    queue_type: QueueType,
) -> Result<(), String> {
    let mut spec = QueueSpec::durable(bucket.queue());
    let expires_ms = bucket.ms.saturating_add(BUCKET_OUTLIVES.as_millis() as u64);
    spec.arguments
        .insert("x-message-ttl", bucket.ms.cast_signed())
        .insert("x-expires", expires_ms.cast_signed())
        .insert("x-dead-letter-exchange", bucket.exchange.as_str())
        .insert("x-dead-letter-routing-key", bucket.routing_key.as_str())
        .insert("x-queue-type", queue_type.name());
    if queue_type == QueueType::Quorum {
        // It keeps a message until the next queue has confirmed it.
        spec.arguments
            .insert("x-dead-letter-strategy", "at-least-once")
            .insert("x-overflow", "reject-publish");
    }
    let name = &spec.name;
    match connection.declare_queue(&spec).await {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "declaring the queue `{name}` for retries: {error} (a broker without quorum queues needs \
             `retry_queue_type = \"classic\"`; a queue that was declared otherwise has to go first)"
        )),
    }
}
