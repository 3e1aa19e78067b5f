//! The tracker of batches over a broker.
//!
//! **AMQP.** The exclusive consumer of [`QUEUE`] is the tracker: it publishes a completion (or a union of notes),
//! awaits the confirm, and acknowledges the notes. A completion that no queue takes is tried again, and its notes
//! stay.
//!
//! **Redis.** Two scripts: one moves notes into a hash of their batch, one publishes the completion and deletes the
//! hash. Both are exact, and any number of workers may run them.

use std::time::Duration;

use bytes::Bytes;
use client::{
    Connection, Consumer, ConsumerOptions, Delivery, DeliveryTag, Outcome, Publisher, QueueSpec,
};
use serde::Deserialize;
use tracing::{debug, error, info, warn};

use super::lock::REFUSED;
use super::publish::{address, properties, raw_properties, redis_command};
use super::{Broker, Queues, RETRY, Stop, amqp_options, away, now_ms, pause, redis_away};
use crate::batches::{Action, Held, Note, QUEUE, Tracker, completion_job};
use crate::error::Error;
use crate::limits::NOTES_HELD_MAX;
use crate::settlement::Publish;
use crate::value::Time;

/// How often the tracker looks for what has become old, and tries again what was refused.
const LOOK: Duration = Duration::from_secs(5);
/// Publishes that wait for their confirm.
const WINDOW: u32 = 1000;
/// Notes that are moved by one call of the script.
const NOTES_PER_CALL: usize = 100;

/// Moves notes into hashes: see its head for its words.
const ABSORB: &str = include_str!("batches/absorb.lua");
/// Completes a batch: see its head for its words.
const COMPLETE: &str = include_str!("batches/complete.lua");

/// `[batches]`: the section of the configuration file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// A batch that is not over after so long is given up: 1m to 365d.
    #[serde(default = "age_max")]
    pub age_max: Time,
}

fn age_max() -> Time {
    Time(Duration::from_secs(7 * 24 * 3600))
}

impl Default for Settings {
    fn default() -> Self {
        Self { age_max: age_max() }
    }
}

impl Settings {
    /// What is wrong with it, in words.
    pub fn problems(&self) -> Vec<String> {
        let is_good = (60..=365 * 86_400).contains(&self.age_max.0.as_secs());
        if is_good { Vec::new() } else { vec!["`age_max` is 1m to 365d".to_owned()] }
    }

    fn age_ms(&self) -> i64 {
        i64::try_from(self.age_max.0.as_millis()).unwrap_or(i64::MAX)
    }
}

/// Declares where notes go: before the first job of a batch may end.
///
/// # Errors
/// The broker is away, or has another queue of that name.
pub async fn declare(broker: &Broker) -> Result<(), Error> {
    let Broker::Amqp { url } = broker else { return Ok(()) };
    let declared = async {
        let mut connection = Connection::open(url, &amqp_options("batches")).await?;
        connection.declare_queue(&QueueSpec::durable(QUEUE)).await?;
        connection.close().await
    };
    declared.await.map_err(away("to declare the queue of the batches"))
}

/// Tracks batches, or stands by while another process does, until it is told to stop.
///
/// # Errors
/// None that time heals: those are logged and tried again.
pub async fn run(settings: Settings, broker: Broker, mut stop: Stop) -> Result<(), Error> {
    loop {
        let ended = match &broker {
            Broker::Amqp { url } => amqp(&settings, url, &mut stop).await,
            Broker::Redis { client, queues } => {
                absorb_and_complete(&settings, client, *queues, &mut stop).await
            }
        };
        match ended {
            Ok(true) => return Ok(()),
            Ok(false) => debug!("another process tracks the batches"),
            Err(error) => {
                warn!(%error, "the tracker of batches lost its broker; another process takes over, or this one again");
            }
        }
        if pause(&mut stop, RETRY).await {
            return Ok(());
        }
    }
}

/// True once it is told to stop; false where another process has the queue.
async fn amqp(settings: &Settings, url: &client::Url, stop: &mut Stop) -> Result<bool, Error> {
    let doing = "to track batches";
    let broker = Broker::Amqp { url: url.clone() };
    declare(&broker).await?;
    let how = ConsumerOptions {
        exclusive: true,
        prefetch: NOTES_HELD_MAX,
        ack_every: usize::MAX,
        ..ConsumerOptions::default()
    };
    let options = amqp_options("batches");
    let consumer = match Consumer::open(url, &options, QUEUE, how).await {
        Ok(consumer) => consumer,
        Err(client::Error::ChannelClosed { code: REFUSED, .. }) => return Ok(false),
        Err(error) => return Err(away(doing)(error)),
    };
    let publisher = Publisher::open(url, &options, WINDOW).await.map_err(away(doing))?;
    info!("this process tracks the batches now");
    let line = Line {
        consumer,
        publisher,
        tracker: Tracker::new(settings.age_ms()),
        tags: std::collections::BTreeMap::new(),
        next: 0,
        refused: Vec::new(),
    };
    line.run(stop).await.map_err(away(doing))?;
    Ok(true)
}

struct Line {
    consumer: Consumer,
    publisher: Publisher,
    tracker: Tracker,
    tags: std::collections::BTreeMap<Held, DeliveryTag>,
    next: u64,
    /// What no queue took: tried again.
    refused: Vec<Action>,
}

impl Line {
    async fn run(mut self, stop: &mut Stop) -> Result<(), client::Error> {
        let mut looks = tokio::time::interval(LOOK);
        let mut verdicts = Vec::new();
        loop {
            let mut actions = Vec::new();
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                delivery = self.consumer.next() => {
                    let mut delivery = Some(delivery?);
                    // All that is here, so that many notes cost one confirm.
                    while let Some(one) = delivery {
                        actions.extend(self.note(&one)?);
                        delivery = if actions.is_empty() { self.consumer.try_next() } else { None };
                    }
                }
                _ = looks.tick() => {
                    actions = self.tracker.tick(now_ms());
                    actions.append(&mut self.refused);
                }
                driven = self.publisher.drive(&mut verdicts) => {
                    driven?;
                    verdicts.clear();
                }
            }
            for action in actions {
                self.carry_out(action).await?;
            }
            self.consumer.flush().await?;
        }
        let _ = self.publisher.close().await;
        self.consumer.close().await
    }

    fn note(&mut self, delivery: &Delivery) -> Result<Vec<Action>, client::Error> {
        match Note::decode(&delivery.body) {
            Ok(note) => {
                self.next += 1;
                let held = Held(self.next);
                self.tags.insert(held, delivery.tag);
                Ok(self.tracker.take(held, note, now_ms()))
            }
            Err(why) => {
                warn!(why, "a message in {QUEUE} is no note of a batch; it is rejected");
                self.consumer.settle(delivery.tag, Outcome::DeadLetter)?;
                Ok(Vec::new())
            }
        }
    }

    async fn carry_out(&mut self, action: Action) -> Result<(), client::Error> {
        let acks = match &action {
            Action::Complete { publish, acks, id, done, dead } => {
                if let Some(why) = self.publish(publish).await? {
                    let to = &publish.routing_key;
                    error!(
                        batch = id,
                        to,
                        why,
                        "the completion of a batch is refused; it is tried again: create the queue"
                    );
                    self.refused.push(action);
                    return Ok(());
                }
                info!(batch = id, done, dead, "a batch is complete");
                acks
            }
            Action::Merge { publish, acks } => {
                if let Some(why) = self.publish(publish).await? {
                    error!(why, "notes of a batch cannot be merged; it is tried again");
                    self.refused.push(action);
                    return Ok(());
                }
                acks
            }
            Action::Ack(acks) => acks,
            Action::Abandon { id, size, over, acks } => {
                warn!(
                    batch = id,
                    size,
                    over,
                    "a batch is given up: its other jobs did not end in time; its completion is not published"
                );
                acks
            }
        };
        for held in acks {
            if let Some(tag) = self.tags.remove(held) {
                self.consumer.settle(tag, Outcome::Done)?;
            }
        }
        Ok(())
    }

    /// Publishes and awaits the confirm; why it was refused.
    async fn publish(&mut self, publish: &Publish) -> Result<Option<String>, client::Error> {
        let raw = match raw_properties(publish) {
            Ok(raw) => raw,
            Err(error) => return Ok(Some(error.to_string())),
        };
        let body = &publish.message.body;
        self.publisher.publish(address(publish), &properties(&raw), body).await?;
        let settled = self.publisher.settle_all().await?;
        let refused = || settled.reason.clone().unwrap_or_else(|| "basic.nack".to_owned());
        Ok((!settled.is_clean()).then(refused))
    }
}

/// A batch in Redis that has all its jobs: its id, its first note's words, and how its jobs ended.
type Full = (String, String, u64, u64);

async fn absorb_and_complete(
    settings: &Settings,
    client: &redis::Client,
    queues: Queues,
    stop: &mut Stop,
) -> Result<bool, Error> {
    let doing = "to track batches";
    let (absorb, complete) = (redis::Script::new(ABSORB), redis::Script::new(COMPLETE));
    let mut connection = super::redis_connection(client).await?;
    loop {
        let mut call = absorb.prepare_invoke();
        call.key(QUEUE).arg(NOTES_PER_CALL).arg(settings.age_ms());
        let (moved, fulls): (usize, Vec<Full>) =
            call.invoke_async(&mut connection).await.map_err(redis_away(doing))?;
        for (id, words, done, dead) in fulls {
            let job = Note::decode(words.as_bytes())
                .and_then(|note| completion_job(note.batch(), done as usize, dead as usize));
            let job = match job {
                Ok(job) => job,
                Err(why) => {
                    warn!(
                        batch = id,
                        why, "the completion of a batch cannot be published; the batch is dropped"
                    );
                    let mut call = complete.prepare_invoke();
                    call.key(QUEUE).key(QUEUE).arg(&id).arg(settings.age_ms());
                    let _: i64 =
                        call.invoke_async(&mut connection).await.map_err(redis_away(doing))?;
                    continue;
                }
            };
            let command: Vec<Bytes> = redis_command(&job, queues, now_ms());
            let mut call = complete.prepare_invoke();
            call.key(QUEUE).key(&job.routing_key).arg(&id).arg(settings.age_ms());
            for word in &command {
                call.arg(&word[..]);
            }
            let is_mine: i64 =
                call.invoke_async(&mut connection).await.map_err(redis_away(doing))?;
            if is_mine == 1 {
                info!(batch = id, done, dead, "a batch is complete");
            }
        }
        if moved < NOTES_PER_CALL && pause(stop, Duration::from_millis(200)).await {
            return Ok(true);
        }
    }
}
