//! The processor itself: one transaction for each batch, in the form that the steps give it.

use std::time::{Duration, Instant, SystemTime};

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Connection, PublisherConfirm};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Transaction};

use super::report::Times;
use super::rig::Rig;
use super::steps::{Steps, UPDATE_ONE, update_all};
use super::{queue, table};
use crate::chaos::Failure;

/// Of AMQP: survives a restart of the broker.
const PERSISTENT: u8 = 2;

/// What a drain came to.
#[derive(Debug, Default)]
pub struct Drained {
    pub messages: u64,
    pub elapsed: Duration,
    pub times: Times,
}

struct Message {
    id: String,
    kind: String,
    content: String,
}

struct Worker {
    steps: Steps,
    client: Client,
    channel: Channel,
    messages: u64,
    times: Times,
}

/// Drains until nothing is left or the time is up. Connections are made before the clock starts.
pub async fn drain(rig: &Rig, steps: Steps, limit: Duration) -> Result<Drained, Failure> {
    let connection = queue::connect(&rig.amqp_url()).await?;
    let shared = open_channel(&connection, steps).await?;
    let mut workers = Vec::new();
    for _ in 0..steps.workers {
        let channel = match steps.has_own_channel {
            true => open_channel(&connection, steps).await?,
            false => shared.clone(),
        };
        let client = table::connect(&rig.database_url()).await?;
        workers.push(Worker { steps, client, channel, messages: 0, times: Times::default() });
    }
    let begin = Instant::now();
    let tasks: Vec<_> =
        workers.into_iter().map(|worker| tokio::spawn(worker.run(begin + limit))).collect();
    let mut drained = Drained::default();
    for task in tasks {
        let worker = task.await.map_err(|error| Failure::Trial(error.to_string()))??;
        drained.messages += worker.messages;
        drained.times.add(&worker.times);
    }
    drained.elapsed = begin.elapsed();
    drained.times.messages = drained.messages;
    Ok(drained)
}

async fn open_channel(connection: &Connection, steps: Steps) -> Result<Channel, Failure> {
    let channel = connection.create_channel().await.map_err(|error| queue::failed(&error))?;
    if steps.confirms {
        let options = ConfirmSelectOptions::default();
        channel.confirm_select(options).await.map_err(|error| queue::failed(&error))?;
    }
    Ok(channel)
}

impl Worker {
    async fn run(mut self, deadline: Instant) -> Result<Self, Failure> {
        while Instant::now() < deadline {
            if self.batch().await? == 0 {
                break;
            }
        }
        Ok(self)
    }

    /// One batch: how many messages it had.
    async fn batch(&mut self) -> Result<usize, Failure> {
        let Self { steps, client, channel, times, .. } = self;
        let begin = Instant::now();
        let select = steps.select();
        let transaction =
            client.transaction().await.map_err(|error| table::failed(&error, "BEGIN"))?;
        let rows = transaction.query_typed(&select, &[]).await;
        let rows = rows.map_err(|error| table::failed(&error, &select))?;
        let messages: Vec<Message> = rows
            .iter()
            .map(|row| Message { id: row.get(0), kind: row.get(1), content: row.get(2) })
            .collect();
        times.query += begin.elapsed();
        if messages.is_empty() {
            return Ok(0);
        }
        if steps.publishes_together {
            let begin = Instant::now();
            publish_all(channel, *steps, &messages).await.map_err(|error| queue::failed(&error))?;
            times.publish += begin.elapsed();
            let begin = Instant::now();
            mark_all(&transaction, *steps, &messages).await?;
            times.mark += begin.elapsed();
        } else {
            one_by_one(channel, &transaction, *steps, &messages, times).await?;
        }
        let begin = Instant::now();
        transaction.commit().await.map_err(|error| table::failed(&error, "COMMIT"))?;
        times.mark += begin.elapsed();
        self.messages += messages.len() as u64;
        Ok(messages.len())
    }
}

/// Each message published, confirmed, and marked too, if updates are not batched, before the next.
async fn one_by_one(
    channel: &Channel,
    transaction: &Transaction<'_>,
    steps: Steps,
    messages: &[Message],
    times: &mut Times,
) -> Result<(), Failure> {
    for message in messages {
        let begin = Instant::now();
        let confirm = publish(channel, message).await.map_err(|error| queue::failed(&error))?;
        confirm.await.map_err(|error| queue::failed(&error))?;
        times.publish += begin.elapsed();
        if !steps.updates_together {
            let begin = Instant::now();
            mark_one(transaction, message).await?;
            times.mark += begin.elapsed();
        }
    }
    if steps.updates_together {
        let begin = Instant::now();
        mark_all(transaction, steps, messages).await?;
        times.mark += begin.elapsed();
    }
    Ok(())
}

async fn publish_all(
    channel: &Channel,
    steps: Steps,
    messages: &[Message],
) -> Result<(), lapin::Error> {
    let mut confirms = Vec::with_capacity(messages.len());
    for message in messages {
        let confirm = publish(channel, message).await?;
        if steps.has_own_channel {
            // Left to the channel, which awaits all of them at once.
            drop(confirm);
        } else {
            confirms.push(confirm);
        }
    }
    for confirm in confirms {
        confirm.await?;
    }
    if steps.has_own_channel && steps.confirms {
        channel.wait_for_confirms().await?;
    }
    Ok(())
}

async fn publish(channel: &Channel, message: &Message) -> Result<PublisherConfirm, lapin::Error> {
    let properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_content_type("application/json".into())
        .with_message_id(message.id.as_str().into())
        .with_type(message.kind.as_str().into());
    let (exchange, key) = (queue::NAME.into(), message.kind.as_str().into());
    let options = BasicPublishOptions::default();
    channel.basic_publish(exchange, key, options, message.content.as_bytes(), properties).await
}

async fn mark_all(
    transaction: &Transaction<'_>,
    steps: Steps,
    messages: &[Message],
) -> Result<(), Failure> {
    if !steps.updates_together {
        for message in messages {
            mark_one(transaction, message).await?;
        }
        return Ok(());
    }
    let (now, no_error) = (SystemTime::now(), None::<String>);
    let mut parameters: Vec<(&(dyn ToSql + Sync), Type)> = Vec::with_capacity(messages.len() * 3);
    for message in messages {
        parameters.push((&message.id, Type::TEXT));
        parameters.push((&now, Type::TIMESTAMPTZ));
        parameters.push((&no_error, Type::TEXT));
    }
    let update = update_all(messages.len());
    let marked = transaction.execute_typed(&update, &parameters).await;
    let marked = marked.map_err(|error| table::failed(&error, &update))?;
    assert_eq!(marked, messages.len() as u64, "every row of the batch is marked");
    Ok(())
}

async fn mark_one(transaction: &Transaction<'_>, message: &Message) -> Result<(), Failure> {
    let (now, no_error) = (SystemTime::now(), None::<String>);
    let parameters: [(&(dyn ToSql + Sync), Type); 3] =
        [(&now, Type::TIMESTAMPTZ), (&no_error, Type::TEXT), (&message.id, Type::TEXT)];
    let marked = transaction.execute_typed(UPDATE_ONE, &parameters).await;
    marked.map(|_| ()).map_err(|error| table::failed(&error, UPDATE_ONE))
}
