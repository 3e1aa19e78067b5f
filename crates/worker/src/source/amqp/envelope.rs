//! AMQP messages and jobs: what a delivery says about its job, and how a copy of it is written.
//!
//! A message of nothing but a body is a job. What else a publisher can say:
//!
//! | Where | Means |
//! | --- | --- |
//! | property `message-id` | the job's id; without it one is made of the content: equal messages have equal ids |
//! | property `type`, else header `x-job-type` | the job's type |
//! | property `timestamp` | when it was published, in seconds |
//! | header `x-job-key`, else `x-partition-key` | the order and fairness key |
//! | header `x-job-attempt` | which attempt comes next, from 1 |
//! | header `x-job-attempts-max`, `x-job-timeout-ms` | instead of the pipeline's |
//! | header `x-job-then`, `x-job-batch` | JSON for `chain` and `batches` |
//! | header `x-job-not-before` | not before then, in milliseconds since 1970 |
//! | Celery's headers | see [`celery`] |
//!
//! What cannot be read makes the job dead, in words; it is never dropped.

mod celery;
mod copy;
mod text;

use std::time::Duration;

use amqp::{Properties, TableRef, ValueRef};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::job::{Extras, Header, Job, Message, Receipt};
use crate::limits::{ATTEMPTS_MAX, BODY_BYTES_MAX, DELIVERIES_MAX};
use crate::settlement::Cause;
use crate::source::key_hash;

pub use copy::{Change, copy, fresh};

/// Headers of Millrace's jobs, by their names on the wire.
pub mod name {
    pub const TYPE: &str = "x-job-type";
    pub const KEY: &str = "x-job-key";
    pub const ATTEMPT: &str = "x-job-attempt";
    pub const ATTEMPTS_MAX: &str = "x-job-attempts-max";
    pub const TIMEOUT_MS: &str = "x-job-timeout-ms";
    pub const THEN: &str = "x-job-then";
    pub const BATCH: &str = "x-job-batch";
    /// Milliseconds since 1970.
    pub const NOT_BEFORE: &str = "x-job-not-before";
    /// How often the job came back from a worker that did not settle it, where the broker does not count.
    pub const DELIVERIES: &str = "x-job-deliveries";
    /// Why the last attempt failed.
    pub const LAST_WHY: &str = "x-job-last-why";
    pub const DEAD_CAUSE: &str = "x-job-dead-cause";
    pub const DEAD_WHY: &str = "x-job-dead-why";
    /// Milliseconds since 1970.
    pub const DIED_MS: &str = "x-job-died-ms";
    /// The queue that the job was taken from.
    pub const QUEUE: &str = "x-job-queue";
    /// Everything above begins so.
    pub const OURS: &str = "x-job-";
    /// Other programs' name for an order key.
    pub const PARTITION_KEY: &str = "x-partition-key";
    /// Millrace's delay, in milliseconds.
    pub const DELAY: &str = "x-delay";
    /// Counted by quorum queues.
    pub const DELIVERY_COUNT: &str = "x-delivery-count";
    /// A queue that drops repeated messages looks at this before it looks at the message-id.
    pub const DEDUPLICATION: &str = "x-deduplication-header";
}

/// What a delivery turned out to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Taken {
    /// A job to execute.
    Job(Job),
    /// A job whose time has not come: it is to wait so long.
    Early { job: Job, wait: Duration },
    /// A job that came back from a worker that did not settle it, at a broker that does not count: a copy with
    /// this count is to take its place before it is executed.
    Uncounted { job: Job, deliveries: u32 },
    /// No job, or one that may not be executed.
    Dead { cause: Cause, why: String },
}

/// What is known of a delivery beside its properties.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    pub receipt: Receipt,
    /// It was delivered before.
    pub redelivered: bool,
    /// Now, in milliseconds since 1970.
    pub now_ms: u64,
}

/// Reads a delivery.
pub fn read(came: Came, properties: &Properties<'_>, body: Bytes) -> Taken {
    let dead = |why| Taken::Dead { cause: Cause::Malformed, why };
    if body.len() > BODY_BYTES_MAX {
        return dead(format!("the body has {} bytes, more than {BODY_BYTES_MAX}", body.len()));
    }
    let said = match Said::read(properties) {
        Ok(said) => said,
        Err(why) => return dead(why),
    };
    let deliveries = said.deliveries.saturating_add(u32::from(came.redelivered));
    let deliveries = said.delivery_count.unwrap_or(deliveries);
    if deliveries >= DELIVERIES_MAX {
        let why = format!(
            "it came out of the queue {deliveries} times and no worker settled it: it may kill its workers"
        );
        return Taken::Dead { cause: Cause::Exhausted, why };
    }
    if said.expires_ms.is_some_and(|expires| expires <= came.now_ms) {
        let why = "its time, as the header expires says, was over before it could start".into();
        return Taken::Dead { cause: Cause::Rejected, why };
    }
    let is_uncounted = came.redelivered && said.delivery_count.is_none() && said.key.is_none();
    let not_before = said.not_before_ms;
    let job = said.into_job(came.receipt, properties, body);
    let wait_ms = not_before.map_or(0, |due| due.saturating_sub(came.now_ms));
    if wait_ms > 0 {
        return Taken::Early { job, wait: Duration::from_millis(wait_ms) };
    }
    if is_uncounted {
        return Taken::Uncounted { job, deliveries };
    }
    Taken::Job(job)
}

/// The id of a message's job.
pub fn id(properties: &Properties<'_>, body: &[u8]) -> String {
    let written = properties.message_id.filter(|id| !id.is_empty());
    let celerys = || {
        let task = celery::Task::find(properties.headers?).ok()??;
        Some(task.id)
    };
    let known = written.or_else(celerys);
    known.map_or_else(|| content_id(properties, body), str::to_owned)
}

/// The job's type, if it has one.
pub fn kind<'a>(properties: &Properties<'a>) -> Option<&'a str> {
    let header = || match properties.headers?.find(name::TYPE)? {
        ValueRef::LongStr(text) => std::str::from_utf8(text).ok(),
        _ => None,
    };
    let celerys = || Some(celery::Task::find(properties.headers?).ok()??.name);
    properties.kind.filter(|kind| !kind.is_empty()).or_else(header).or_else(celerys)
}

/// The attempt that comes next, as far as it can be read.
pub fn attempt(properties: &Properties<'_>) -> u32 {
    let written = properties.headers.and_then(|headers| headers.find(name::ATTEMPT));
    written.and_then(|value| number(name::ATTEMPT, value, 1).ok()).unwrap_or(1)
}

/// What the headers say.
#[derive(Default)]
struct Said<'a> {
    id: Option<&'a str>,
    kind: Option<&'a str>,
    /// Hashed.
    key: Option<u64>,
    has_own_key: bool,
    attempt: Option<u32>,
    extras: Extras,
    not_before_ms: Option<u64>,
    expires_ms: Option<u64>,
    deliveries: u32,
    delivery_count: Option<u32>,
    headers: Vec<Header>,
}

impl<'a> Said<'a> {
    fn read(properties: &Properties<'a>) -> Result<Self, String> {
        let mut said = Self::default();
        let Some(table) = properties.headers.filter(|table| !table.is_empty()) else {
            return Ok(said);
        };
        if let Some(task) = celery::Task::find(table)? {
            said.id = Some(task.id);
            said.kind = Some(task.name);
            said.attempt = Some(task.attempt);
            said.not_before_ms = task.eta_ms;
            said.expires_ms = task.expires_ms;
            said.extras.timeout = task.timeout;
        }
        for (name, value) in table {
            said.header(name, value)?;
        }
        Ok(said)
    }

    fn header(&mut self, name: &'a str, value: ValueRef<'a>) -> Result<(), String> {
        if let Some(short) = name.strip_prefix(name::OURS) {
            return self.own_header(short, name, value);
        }
        match name {
            name::DELIVERY_COUNT => self.delivery_count = Some(number(name, value, 0)?),
            name::PARTITION_KEY if !self.has_own_key => {
                self.key = Some(key_hash(&text::of(value)));
            }
            _ => (),
        }
        if !copy::is_changed_on_the_way(name) {
            self.headers
                .push(Header { name: name.to_owned(), value: text::of(value).into_owned() });
        }
        Ok(())
    }

    /// `x-job-…`. Names that nobody knows are left alone: a newer publisher may have written them.
    fn own_header(&mut self, short: &str, name: &str, value: ValueRef<'a>) -> Result<(), String> {
        match short {
            "type" => self.kind = Some(words(name, value)?),
            "key" => {
                (self.key, self.has_own_key) = (Some(key_hash(&text::of(value))), true);
            }
            "attempt" => {
                let attempt: u32 = number(name, value, 1)?;
                self.attempt = Some(attempt);
            }
            "attempts-max" => {
                let max: u32 = number(name, value, 1)?;
                self.extras.attempts_max = Some(max.min(ATTEMPTS_MAX));
            }
            "timeout-ms" => {
                let ms: u64 = number(name, value, 1)?;
                self.extras.timeout = Some(Duration::from_millis(ms));
            }
            "then" => self.extras.then = Some(words(name, value)?.to_owned()),
            "batch" => self.extras.batch = Some(words(name, value)?.to_owned()),
            "not-before" => self.not_before_ms = Some(number(name, value, 0)?),
            "deliveries" => self.deliveries = number(name, value, 0)?,
            _ => (),
        }
        Ok(())
    }

    fn into_job(self, receipt: Receipt, properties: &Properties<'_>, body: Bytes) -> Job {
        let id = properties.message_id.filter(|id| !id.is_empty()).or(self.id);
        let id = id.map_or_else(|| content_id(properties, &body), str::to_owned);
        let kind = properties.kind.filter(|kind| !kind.is_empty()).or(self.kind);
        let has_extras = self.extras != Extras::default();
        Job {
            receipt,
            message: Message {
                id,
                kind: kind.unwrap_or_default().to_owned(),
                content_type: properties.content_type.map(str::to_owned),
                headers: self.headers,
                body,
                attempt: self.attempt.unwrap_or(1),
                extras: has_extras.then(|| Box::new(self.extras)),
            },
            key: self.key,
            group: None,
            lease_until: None,
            published_ms: properties.timestamp.map(|seconds| seconds.saturating_mul(1000)),
        }
    }
}

/// The id of a message that has none: the first 128 bits of SHA-256 over what its publisher wrote. The same at
/// every delivery, and the same for messages that are equal in all of it.
fn content_id(properties: &Properties<'_>, body: &[u8]) -> String {
    let mut hash = Sha256::new();
    let texts = [
        properties.content_type,
        properties.content_encoding,
        properties.correlation_id,
        properties.reply_to,
        properties.kind,
        properties.app_id,
    ];
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    for text in texts {
        add(text.unwrap_or_default().as_bytes());
    }
    add(&properties.timestamp.unwrap_or_default().to_be_bytes());
    for (name, field) in properties.headers.unwrap_or(TableRef::EMPTY).raw_fields() {
        if !copy::is_changed_on_the_way(name) {
            add(field);
        }
    }
    add(body);
    let digest = hash.finalize();
    let mut id = String::with_capacity(32);
    for byte in &digest[..16] {
        for half in [byte >> 4, byte & 15] {
            id.push(char::from_digit(u32::from(half), 16).expect("four bits are one digit"));
        }
    }
    id
}

fn words<'a>(name: &str, value: ValueRef<'a>) -> Result<&'a str, String> {
    let text = match value {
        ValueRef::LongStr(bytes) | ValueRef::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    };
    text.ok_or_else(|| format!("the header {name} is no text"))
}

/// A number, or its text, that is at least `least`.
fn number<T: TryFrom<u64>>(name: &str, value: ValueRef<'_>, least: u64) -> Result<T, String> {
    let number = text::integer(value).and_then(|number| u64::try_from(number).ok());
    number.filter(|number| *number >= least).and_then(|number| T::try_from(number).ok()).ok_or_else(
        || {
            format!(
                "the header {name} is `{}`: it has to be a whole number of at least {least}",
                text::of(value)
            )
        },
    )
}

#[cfg(test)]
mod tests;
