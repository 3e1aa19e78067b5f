//! A [`Publish`] in the words of each broker.

use amqp::Properties;
use bytes::Bytes;
use client::Address;

use super::Queues;
use crate::error::Error;
use crate::settlement::Publish;
use crate::source::amqp::envelope;
use crate::source::envelope::Envelope;
use crate::source::redis::operations;

/// The properties of a message at an AMQP broker, encoded.
pub(super) fn raw_properties(publish: &Publish) -> Result<Bytes, Error> {
    let mut changes = Vec::new();
    if let Some(delay) = publish.delay {
        // Millrace's queues delay it; with another broker a worker that takes it early lets it wait.
        let ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        changes.push(envelope::Change::Number(envelope::name::DELAY, ms));
        let due = super::now_ms().saturating_add(ms);
        changes.push(envelope::Change::Number(envelope::name::NOT_BEFORE, due));
    }
    envelope::fresh(&publish.message, publish.key.as_deref(), &changes).map_err(Error::setup)
}

pub(super) fn properties(raw: &[u8]) -> Properties<'_> {
    Properties::decode(raw).expect("they were just encoded")
}

/// Where it goes; returned if nobody takes it.
pub(super) fn address(publish: &Publish) -> Address<'_> {
    let Publish { exchange, routing_key, .. } = publish;
    Address { exchange, routing_key, mandatory: true }
}

/// The command that adds a job to a stream or list of Redis, and its arguments after the key.
pub(super) fn redis_command(publish: &Publish, queues: Queues, now_ms: i64) -> Vec<Bytes> {
    let envelope = Envelope {
        message: publish.message.clone(),
        key: publish.key.clone(),
        published_ms: u64::try_from(now_ms).ok(),
        due_ms: None,
    };
    let words = |words: &[&'static str]| -> Vec<Bytes> {
        words.iter().map(|word| Bytes::from_static(word.as_bytes())).collect()
    };
    let (mut command, values) = match queues {
        Queues::Streams => (words(&["XADD", "*"]), operations::stream_values(&envelope)),
        Queues::ListsFromRight => (words(&["LPUSH"]), operations::list_values(&envelope)),
        Queues::ListsFromLeft => (words(&["RPUSH"]), operations::list_values(&envelope)),
    };
    command.extend(values);
    command
}
