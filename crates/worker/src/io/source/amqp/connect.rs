//! Opens the connections: looks for the queues first, so that what is missing is said in words.

use client::{Connection, Consumer, ConsumerOptions, Publisher, QueueSpec, Url};
use std::time::Duration;

use super::{error, options};
use crate::error::Error;
use crate::source::amqp::{Broker, Settings};

/// Copies that are on their way at most.
const WINDOW: u32 = 4096;
/// Acknowledgements wait for others so long.
const ACK_WAIT: Duration = Duration::from_millis(2);
/// Or until there are so many.
const ACKS_MAX: usize = 256;

/// Looks for the queues and consumes.
pub(super) async fn consumer(settings: Settings, url: Url) -> Result<(Broker, Consumer), Error> {
    let away = |failure| error(format!("connecting to {url}"), &failure);
    let mut connection =
        Connection::open(&url, &options("looking for queues")).await.map_err(away)?;
    let broker = Broker::of(connection.server_properties());
    find_queue(&mut connection, &settings, &url).await?;
    find_dead_queue(&mut connection, &settings).await?;
    // The answer to the close is of no interest.
    let _ = connection.close().await;
    let prefetch = settings.prefetch;
    let mut how = ConsumerOptions {
        prefetch,
        // What is not acknowledged takes the place of new jobs.
        ack_every: (usize::from(prefetch) / 4).clamp(1, ACKS_MAX),
        ack_wait: ACK_WAIT,
        ..ConsumerOptions::default()
    };
    if let Some(priority) = settings.priority {
        how.arguments.insert("x-priority", priority);
    }
    let name = format!("jobs of {}", settings.queue);
    let consumer = Consumer::open(&url, &options(&name), &settings.queue, how).await;
    Ok((broker, consumer.map_err(away)?))
}

/// Opens the connection for copies.
pub(super) async fn publisher(settings: Settings, url: Url) -> Result<Publisher, Error> {
    let name = format!("retries of {}", settings.queue);
    let publisher = Publisher::open(&url, &options(&name), WINDOW).await;
    publisher.map_err(|failure| error(format!("connecting to {url}"), &failure))
}

async fn find_queue(
    connection: &mut Connection,
    settings: &Settings,
    url: &Url,
) -> Result<(), Error> {
    let queue = &settings.queue;
    if settings.declare {
        let mut spec = QueueSpec::durable(queue.clone());
        spec.arguments.insert("x-queue-type", settings.queue_type.name());
        return declare(connection, &spec).await;
    }
    connection.look_up_queue(queue).await.map(drop).map_err(|failure| match failure {
        client::Error::ChannelClosed { code: 404, ref text } if !text.contains("down") => {
            Error::setup(format!(
                "there is no queue `{queue}` at {url}: create it, or set `declare = true`"
            ))
        }
        failure => error(format!("looking for the queue `{queue}`"), &failure),
    })
}

async fn find_dead_queue(connection: &mut Connection, settings: &Settings) -> Result<(), Error> {
    declare(connection, &QueueSpec::durable(settings.dead_queue())).await
}

/// Declares a queue; one that is there already, declared otherwise, will do.
async fn declare(connection: &mut Connection, spec: &QueueSpec) -> Result<(), Error> {
    let Err(refusal) = connection.declare_queue(spec).await else { return Ok(()) };
    let may_be_there = matches!(refusal, client::Error::ChannelClosed { code: 403 | 406, .. });
    if may_be_there && connection.look_up_queue(&spec.name).await.is_ok() {
        return Ok(());
    }
    Err(error(format!("declaring the queue `{}`", spec.name), &refusal))
}
