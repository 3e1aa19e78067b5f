//! Publishes one job.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use amqp::Properties;
use client::{Address, Connection, QueueSpec, Url};

use super::{Send, connect, look_up, url_of};
use crate::error::Error;
use crate::io::source::amqp::{errand, error};
use crate::job::{Extras, Header, Message, Receipt};
use crate::settlement::Publish;
use crate::source::amqp::letters::{Bucket, Need, To};
use crate::source::amqp::{Broker, QueueType, plan};
use crate::unique::{self, Unique};

/// Publishes one job, and gives its id once the broker has confirmed it. `url` is an `amqp://` or `amqps://` URL.
///
/// # Errors
/// The URL is none, the broker cannot be reached, the queue is not there, or the broker cannot do what is asked.
pub(super) async fn send(url: &str, job: &Send) -> Result<String, Error> {
    let url = url_of(url)?;
    let mut connection = connect(&url, "send").await?;
    let broker = Broker::of(connection.server_properties());
    if job.unique.is_some()
        && broker == Broker::Other
        && let Some(why) = unique::refusal("RabbitMQ")
    {
        return Err(Error::setup(why));
    }
    match &job.unique {
        Some((key, Some(window))) => declare(&mut connection, &job.queue, key, *window).await?,
        Some((_, None)) | None => drop(look_up(&mut connection, &job.queue).await?),
    }
    let id = job.id.clone().map_or_else(new_id, Ok)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let publish = publish_of(job, id.clone());
    let letter = plan::publish(broker, Receipt(0), &publish, now.as_millis() as u64);
    let letter = letter.map_err(Error::setup)?;
    let queue = match letter.to {
        To::Queue(queue) => queue,
        To::Exchange { routing_key, .. } => routing_key,
        To::Bucket(bucket) => declared(&url, bucket).await?,
    };
    let properties = Properties::decode(&letter.properties).expect("it was just written");
    let properties = Properties { timestamp: Some(now.as_secs()), ..properties };
    confirmed(&mut connection, &queue, &properties, &letter.body).await?;
    let _ = connection.close().await;
    Ok(id)
}

pub(super) fn publish_of(job: &Send, id: String) -> Publish {
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&job.body).is_ok();
    let usual = if is_json { "application/json" } else { "application/octet-stream" };
    let mut headers = job.headers.clone();
    if let Some((key, _)) = &job.unique {
        headers.push(Header { name: unique::HEADER.into(), value: key.clone() });
    }
    let extras = Extras {
        timeout: job.timeout,
        attempts_max: job.attempts_max,
        then: job.then.clone(),
        batch: None,
    };
    let message = Message {
        id,
        kind: job.kind.clone(),
        content_type: Some(job.content_type.clone().unwrap_or_else(|| usual.into())),
        headers,
        body: job.body.clone().into(),
        attempt: 1,
        extras: (extras != Extras::default()).then(|| Box::new(extras)),
    };
    Publish {
        exchange: String::new(),
        routing_key: job.queue.clone(),
        message,
        key: job.key.clone(),
        delay: job.delay,
    }
}

/// A queue that remembers keys for so long.
async fn declare(
    connection: &mut Connection,
    queue: &str,
    key: &str,
    window: Duration,
) -> Result<(), Error> {
    let unique = Unique::new(key, window).map_err(Error::setup)?;
    let arguments = unique::queue_arguments(unique.window);
    let spec = QueueSpec { arguments, ..QueueSpec::durable(queue) };
    connection.declare_queue(&spec).await.map(drop).map_err(|failure| match failure {
        client::Error::ChannelClosed { code: 406, text } => Error::setup(format!(
            "the queue `{queue}` does not remember keys for that window: leave the window out, or declare it anew ({text})"
        )),
        failure => error(format!("declaring the queue `{queue}`"), &failure),
    })
}

/// The queue in which it waits.
async fn declared(url: &Url, bucket: Bucket) -> Result<String, Error> {
    let queue = bucket.queue();
    let found = errand::run(url.clone(), vec![Need::Bucket(bucket)], QueueType::default()).await;
    for (_, seen) in found {
        seen.map_err(|why| Error::away("sending a delayed job", why))?;
    }
    Ok(queue)
}

async fn confirmed(
    connection: &mut Connection,
    queue: &str,
    properties: &Properties<'_>,
    body: &[u8],
) -> Result<(), Error> {
    let published = connection.publish(Address::queue(queue), properties, body).await;
    published.map_err(|failure| error(format!("publishing to the queue `{queue}`"), &failure))
}

/// 128 bits of chance, in hexadecimal.
pub(super) fn new_id() -> Result<String, Error> {
    let mut bytes = [0_u8; 16];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    filled.map_err(|failure| Error::away("making an id", failure))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
