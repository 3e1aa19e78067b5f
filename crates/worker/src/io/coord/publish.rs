//! A [`Publish`] in the words of each broker.

use std::collections::BTreeMap;

use amqp::Properties;
use bytes::Bytes;
use client::Address;

use super::Queues;
use crate::error::Error;
use crate::settlement::Publish;
use crate::source::amqp::envelope;
use crate::source::envelope::{self as element, Envelope};

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
        Queues::Streams => (words(&["XADD", "*"]), stream_values(&envelope)),
        Queues::ListsFromRight => (words(&["LPUSH"]), vec![Bytes::from(element::write(&envelope))]),
        Queues::ListsFromLeft => (words(&["RPUSH"]), vec![Bytes::from(element::write(&envelope))]),
    };
    command.extend(values);
    command
}

/// A job as the fields of a stream's entry, names and values in turn.
fn stream_values(envelope: &Envelope) -> Vec<Bytes> {
    let message = &envelope.message;
    let extras = message.extras.as_deref();
    let headers: BTreeMap<&str, &str> =
        message.headers.iter().map(|h| (h.name.as_str(), h.value.as_str())).collect();
    let headers = (!headers.is_empty())
        .then(|| serde_json::to_string(&headers).expect("texts can be written as JSON"));
    let fields = [
        ("id", Some(message.id.clone())),
        ("type", Some(message.kind.clone()).filter(|kind| !kind.is_empty())),
        ("key", envelope.key.clone()),
        ("content_type", message.content_type.clone()),
        ("headers", headers),
        ("then", extras.and_then(|extras| extras.then.clone())),
        ("batch", extras.and_then(|extras| extras.batch.clone())),
        ("published_ms", envelope.published_ms.map(|ms| ms.to_string())),
    ];
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name, Bytes::from(value?))));
    let fields = fields.chain([("body", message.body.clone())]);
    fields.flat_map(|(name, value)| [Bytes::from_static(name.as_bytes()), value]).collect()
}
