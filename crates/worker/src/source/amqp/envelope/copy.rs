//! Writes messages: copies of a delivery (a retry, a dead job), and new ones (chains, batches, feedback).

use amqp::{FieldWriter, Properties, TableRef};
use bytes::{Bytes, BytesMut};

use super::name;
use crate::job::Message;
use crate::limits::HEADERS_BYTES_MAX;

/// What is copied of the headers of an original, in bytes and fields: what a copy adds has room behind it, with any
/// broker.
const COPIED_BYTES_MAX: usize = 60 * 1024;
const COPIED_MAX: usize = 112;

/// A header of a copy, instead of all of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    Text(&'static str, &'a str),
    Number(&'static str, i64),
    /// The original's is left out.
    Without(&'static str),
}

impl Change<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Text(name, _) | Self::Number(name, _) | Self::Without(name) => name,
        }
    }
}

/// Headers that brokers write.
pub(super) fn is_brokers(name: &str) -> bool {
    matches!(name, "x-delivery-count" | "x-acquired-count" | "x-death" | "x-delay")
        || name.starts_with("x-first-death-")
        || name.starts_with("x-last-death-")
}

/// Headers that may differ between two deliveries of the same job.
pub(super) fn is_changed_on_the_way(name: &str) -> bool {
    is_brokers(name) || name.starts_with(name::OURS) || name == name::DEDUPLICATION
}

/// Headers that must not act again: a copy goes to one queue, once. `x-death` is left out because RabbitMQ takes a
/// message with it for one that goes round in circles.
fn acts(name: &str) -> bool {
    is_brokers(name) || matches!(name, "CC" | "BCC" | "x-cancel-delayed" | name::DEDUPLICATION)
}

/// The properties of a copy, as on the wire: those of the original with `changes`, persistent, under `id`.
///
/// Without `expiration`, which would let the copy die early, and `user-id`, which only its own user may write.
/// Headers for which there is no room any more are left out, the last ones first.
pub fn copy(original: &Properties<'_>, id: &str, changes: &[Change<'_>]) -> Bytes {
    let mut headers = BytesMut::new();
    let mut fields = FieldWriter::new(&mut headers);
    let mut bytes = 0;
    let kept = original.headers.unwrap_or(TableRef::EMPTY).raw_fields();
    let kept =
        kept.filter(|(name, _)| !acts(name) && changes.iter().all(|change| change.name() != *name));
    for (_, field) in kept.take(COPIED_MAX) {
        bytes += field.len();
        if bytes > COPIED_BYTES_MAX {
            break;
        }
        fields.raw(field);
    }
    write(&mut fields, changes);
    let properties =
        Properties { delivery_mode: Some(2), expiration: None, user_id: None, ..*original };
    encode(properties, id, &headers).unwrap_or_else(|_| {
        // Nested so wide that there is no room for one field more.
        headers.clear();
        write(&mut FieldWriter::new(&mut headers), changes);
        encode(properties, id, &headers).expect("a few short fields are a table")
    })
}

/// The properties of a new message.
///
/// # Errors
/// Its headers are longer or more than AMQP can carry, in words.
pub fn fresh(
    message: &Message,
    key: Option<&str>,
    changes: &[Change<'_>],
) -> Result<Bytes, String> {
    let mut headers = BytesMut::new();
    let mut fields = FieldWriter::new(&mut headers);
    for header in &message.headers {
        fields.text(&header.name, header.value.as_bytes());
    }
    if let Some(key) = key {
        fields.text(name::KEY, key.as_bytes());
    }
    if message.attempt > 1 {
        fields.long(name::ATTEMPT, i64::from(message.attempt));
    }
    if let Some(extras) = &message.extras {
        if let Some(timeout) = extras.timeout {
            let ms = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
            fields.long(name::TIMEOUT_MS, ms);
        }
        if let Some(max) = extras.attempts_max {
            fields.long(name::ATTEMPTS_MAX, i64::from(max));
        }
        if let Some(then) = &extras.then {
            fields.text(name::THEN, then.as_bytes());
        }
        if let Some(batch) = &extras.batch {
            fields.text(name::BATCH, batch.as_bytes());
        }
    }
    write(&mut fields, changes);
    // A type that is too long for the property is a header.
    let is_short = message.kind.len() <= amqp::limits::SHORTSTR_BYTES_MAX;
    if !is_short {
        FieldWriter::new(&mut headers).text(name::TYPE, message.kind.as_bytes());
    }
    let kind = (is_short && !message.kind.is_empty()).then_some(message.kind.as_str());
    let content_type = message.content_type.as_deref();
    let content_type = content_type.filter(|text| text.len() <= amqp::limits::SHORTSTR_BYTES_MAX);
    let properties =
        Properties { content_type, delivery_mode: Some(2), kind, ..Properties::default() };
    encode(properties, &message.id, &headers)
}

fn write(fields: &mut FieldWriter<'_>, changes: &[Change<'_>]) {
    for change in changes {
        match change {
            Change::Text(name, text) => fields.text(name, text.as_bytes()),
            Change::Number(name, number) => fields.long(name, *number),
            Change::Without(_) => (),
        }
    }
}

fn encode(properties: Properties<'_>, id: &str, headers: &[u8]) -> Result<Bytes, String> {
    if headers.len() > HEADERS_BYTES_MAX {
        let bytes = headers.len();
        return Err(format!(
            "the headers do not fit into a message: {bytes} bytes, and at most {HEADERS_BYTES_MAX} are sent"
        ));
    }
    let table = TableRef::validate(headers)
        .map_err(|error| format!("the headers do not fit into a message: {error}"))?;
    let message_id =
        Some(id).filter(|id| !id.is_empty() && id.len() <= amqp::limits::SHORTSTR_BYTES_MAX);
    let headers = (!table.is_empty()).then_some(table);
    let mut raw = BytesMut::new();
    Properties { message_id, headers, ..properties }.encode(&mut raw);
    Properties::decode(&raw)
        .map_err(|error| format!("the headers do not fit into a message: {error}"))?;
    Ok(raw.freeze())
}
