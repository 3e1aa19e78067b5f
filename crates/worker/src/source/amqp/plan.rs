//! What a settlement takes at the broker: the messages that have to be safe before the job is let go, and how it is
//! let go.
//!
//! A delay at Millrace is the header `x-delay`. Elsewhere the message waits in queues whose messages expire back to
//! where they came from, one for each power of two milliseconds, and carries the time before which it does not start
//! (`x-job-not-before`). It goes to the largest that is not longer than what is left, and a worker that gets it early
//! sends it on. So it is never early by the workers' clocks, and late by at most an eighth and at most five seconds.

use std::time::Duration;

use amqp::Properties;
use bytes::Bytes;

use super::Broker;
use super::envelope::{Change, copy, fresh, name};
use super::letters::{Bucket, Letter, To};
use crate::job::Receipt;
use crate::limits::{DELAY_MAX, WHY_BYTES_MAX};
use crate::settlement::{Cause, Publish, Settlement};

/// The shortest wait in a queue, in milliseconds.
const BUCKET_MS_MIN: u64 = 128;
/// The longest: more than six days.
const BUCKET_MS_MAX: u64 = 1 << 29;
/// How late a delayed message may be on purpose, in milliseconds.
const LATE_MS_MAX: u64 = 5000;

/// Where jobs come from and go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    pub broker: Broker,
    pub queue: String,
    pub dead_queue: String,
}

/// A message as it was taken.
#[derive(Clone, Debug)]
pub struct Original {
    pub receipt: Receipt,
    /// Of its job.
    pub id: String,
    pub attempt: u32,
    /// As on the wire.
    pub properties: Bytes,
    pub body: Bytes,
}

/// How a job is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Ack,
    Requeue,
}

/// The copy that a settlement needs, and how the job is let go after it.
pub fn settle(
    places: &Places,
    original: &Original,
    settlement: &Settlement,
    now_ms: u64,
) -> (Option<Letter>, End) {
    match settlement {
        Settlement::Done => (None, End::Ack),
        Settlement::Return => (None, End::Requeue),
        Settlement::Later { after, attempt, why, rest } => {
            let charged = [
                Change::Number(name::ATTEMPT, i64::from(*attempt)),
                Change::Text(name::LAST_WHY, cut(why)),
                Change::Without(name::DELIVERIES),
            ];
            let body = rest.clone().unwrap_or_else(|| original.body.clone());
            (Some(later(places, original, *after, &charged, body, now_ms)), End::Ack)
        }
        Settlement::Dead { cause, why } => {
            (Some(dead(places, original, *cause, why, now_ms)), End::Ack)
        }
    }
}

/// A copy that comes again after a delay, with `changes`.
pub fn later(
    places: &Places,
    original: &Original,
    after: Duration,
    changes: &[Change<'_>],
    body: Bytes,
    now_ms: u64,
) -> Letter {
    let wait = Wait::of(places.broker, after, now_ms);
    let once = once(original, now_ms);
    let mut all = vec![Change::Text(name::DEDUPLICATION, &once)];
    all.extend_from_slice(changes);
    all.extend(wait.changes());
    let to = wait.to("", &places.queue);
    Letter { receipt: original.receipt, to, properties: copied(original, &all), body }
}

/// A copy for the dead queue.
pub fn dead(places: &Places, original: &Original, cause: Cause, why: &str, now_ms: u64) -> Letter {
    let once = once(original, now_ms);
    let changes = [
        Change::Text(name::DEAD_CAUSE, cause.name()),
        Change::Text(name::DEAD_WHY, cut(why)),
        Change::Number(name::ATTEMPT, i64::from(original.attempt)),
        Change::Number(name::DIED_MS, now_ms.cast_signed()),
        Change::Text(name::QUEUE, &places.queue),
        Change::Text(name::DEDUPLICATION, &once),
        Change::Without(name::NOT_BEFORE),
        Change::Without(name::DELIVERIES),
    ];
    let to = To::Queue(places.dead_queue.clone());
    let properties = copied(original, &changes);
    Letter { receipt: original.receipt, to, properties, body: original.body.clone() }
}

/// A message of a chain, a batch or feedback.
///
/// # Errors
/// AMQP cannot carry it, in words.
pub fn publish(
    broker: Broker,
    receipt: Receipt,
    publish: &Publish,
    now_ms: u64,
) -> Result<Letter, String> {
    let wait = Wait::of(broker, publish.delay.unwrap_or_default(), now_ms);
    let changes: Vec<Change<'_>> = wait.changes().collect();
    let properties = fresh(&publish.message, publish.key.as_deref(), &changes)?;
    let to = wait.to(&publish.exchange, &publish.routing_key);
    Ok(Letter { receipt, to, properties, body: publish.message.body.clone() })
}

/// A delay, as this broker does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    No,
    Header { ms: u64 },
    Queue { bucket_ms: u64, due_ms: u64 },
}

impl Wait {
    fn of(broker: Broker, after: Duration, now_ms: u64) -> Self {
        let ms = after.min(DELAY_MAX).as_nanos().div_ceil(1_000_000) as u64;
        match (ms, broker) {
            (0, _) => Self::No,
            (ms, Broker::Millrace) => Self::Header { ms },
            (ms, Broker::Other) => {
                Self::Queue { bucket_ms: bucket_ms(ms), due_ms: now_ms.saturating_add(ms) }
            }
        }
    }

    fn changes<'a>(self) -> impl Iterator<Item = Change<'a>> {
        let changes = match self {
            Self::No => [Some(Change::Without(name::NOT_BEFORE)), None],
            Self::Header { ms } => {
                let delay = Change::Number(name::DELAY, ms.cast_signed());
                [Some(Change::Without(name::NOT_BEFORE)), Some(delay)]
            }
            Self::Queue { due_ms, .. } => {
                [Some(Change::Number(name::NOT_BEFORE, due_ms.cast_signed())), None]
            }
        };
        changes.into_iter().flatten()
    }

    fn to(self, exchange: &str, routing_key: &str) -> To {
        let (exchange, routing_key) = (exchange.to_owned(), routing_key.to_owned());
        match self {
            Self::Queue { bucket_ms, .. } => {
                To::Bucket(Bucket { exchange, routing_key, ms: bucket_ms })
            }
            Self::No | Self::Header { .. } if exchange.is_empty() => To::Queue(routing_key),
            Self::No | Self::Header { .. } => To::Exchange { exchange, routing_key },
        }
    }
}

/// How long a message that is due in `ms` milliseconds waits next.
fn bucket_ms(ms: u64) -> u64 {
    let above = ms.max(BUCKET_MS_MIN).next_power_of_two();
    let late = (above - ms).min(above);
    let is_near = late <= (ms / 8).min(LATE_MS_MAX) || above == BUCKET_MS_MIN;
    let next = if is_near { above } else { above / 2 };
    next.clamp(BUCKET_MS_MIN, BUCKET_MS_MAX)
}

/// What a queue that drops repeated messages is told: this copy is none.
fn once(original: &Original, now_ms: u64) -> String {
    format!("{}/{}/{}/{now_ms}", original.id, original.attempt, original.receipt.0)
}

fn copied(original: &Original, changes: &[Change<'_>]) -> Bytes {
    // What the broker sent and cannot be read is dead, and its properties are lost with it.
    let properties = Properties::decode(&original.properties).unwrap_or_default();
    copy(&properties, &original.id, changes)
}

/// At most so much of a reason as is kept.
fn cut(why: &str) -> &str {
    let mut end = why.len().min(WHY_BYTES_MAX);
    while !why.is_char_boundary(end) {
        end -= 1;
    }
    &why[..end]
}

#[cfg(test)]
mod tests;
