//! The key of a message: what its partition, and its turn among messages of the same key, go by.
//!
//! It is read of the properties as they stand, so neither a publish nor a delivery decodes them for that.

use std::borrow::Cow;
use std::fmt;

use crate::catalog::key_hash;
use crate::encoding::{Corrupt, Reader, put_text};
use crate::head::{self, Found, Id};

/// Where the key of a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The header with this name.
    Header(String),
    RoutingKey,
    MessageId,
    CorrelationId,
    UserId,
}

/// The header that holds the key where a queue names nothing else.
const HEADER: &str = "x-partition-key";
/// Before the name of a header.
const HEADER_PREFIX: &str = "header:";

// As they are written.
const OF_HEADER: u8 = 1;
const OF_ROUTING_KEY: u8 = 2;
const OF_MESSAGE_ID: u8 = 3;
const OF_CORRELATION_ID: u8 = 4;
const OF_USER_ID: u8 = 5;

impl Default for KeySource {
    /// The header `x-partition-key`.
    fn default() -> Self {
        Self::Header(HEADER.to_owned())
    }
}

/// As the argument `x-partition-by` says it.
impl fmt::Display for KeySource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(out, "{HEADER_PREFIX}{name}"),
            Self::RoutingKey => out.write_str("routing-key"),
            Self::MessageId => out.write_str("message-id"),
            Self::CorrelationId => out.write_str("correlation-id"),
            Self::UserId => out.write_str("user-id"),
        }
    }
}

impl KeySource {
    /// As the argument `x-partition-by` says it. `None`: there is no such place.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "routing-key" => Self::RoutingKey,
            "message-id" => Self::MessageId,
            "correlation-id" => Self::CorrelationId,
            "user-id" => Self::UserId,
            _ => {
                let name = text.strip_prefix(HEADER_PREFIX).filter(|name| !name.is_empty())?;
                Self::Header(name.to_owned())
            }
        })
    }

    /// A hash of the key, if a message with this head has one. `None` also where the head cannot be read.
    pub fn of_head(&self, stored: &[u8]) -> Option<u64> {
        self.hash(head::routing_key(stored)?, head::properties(stored).ok()?)
    }

    /// The same of a message with this routing key and these properties, as AMQP writes them. Numbers and truths are as
    /// if they were written.
    pub fn hash(&self, routing_key: &[u8], properties: &[u8]) -> Option<u64> {
        let text = match self {
            Self::RoutingKey => Ok(Some(routing_key)),
            Self::MessageId => head::id(properties, Id::Message),
            Self::CorrelationId => head::id(properties, Id::Correlation),
            Self::UserId => head::id(properties, Id::User),
            Self::Header(name) => {
                let value = head::header(properties, name).unwrap_or(None)?;
                return bytes_of(value).map(|bytes| key_hash(&bytes));
            }
        };
        text.unwrap_or(None).map(key_hash)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::Header(_) => OF_HEADER,
            Self::RoutingKey => OF_ROUTING_KEY,
            Self::MessageId => OF_MESSAGE_ID,
            Self::CorrelationId => OF_CORRELATION_ID,
            Self::UserId => OF_USER_ID,
        });
        if let Self::Header(name) = self {
            put_text(out, name);
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(match reader.u8()? {
            OF_HEADER => Self::Header(reader.string()?),
            OF_ROUTING_KEY => Self::RoutingKey,
            OF_MESSAGE_ID => Self::MessageId,
            OF_CORRELATION_ID => Self::CorrelationId,
            OF_USER_ID => Self::UserId,
            _ => return Err(Corrupt::newer("a key of another kind")),
        })
    }
}

fn bytes_of(value: Found<'_>) -> Option<Cow<'_, [u8]>> {
    let written = |text: String| Cow::Owned(text.into_bytes());
    Some(match value {
        Found::Text(bytes) | Found::Bytes(bytes) => Cow::Borrowed(bytes),
        Found::Integer(number) => written(number.to_string()),
        Found::Timestamp(seconds) => written(seconds.to_string()),
        Found::Bool(truth) => written(truth.to_string()),
        Found::Other => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Correlation, message and user ids.
    const IDS: &[u8] = b"\x04\x90\x01c\x01m\x01u";

    #[test]
    fn a_key_is_where_the_queue_says() {
        for (text, key) in
            [("routing-key", "r"), ("message-id", "m"), ("correlation-id", "c"), ("user-id", "u")]
        {
            let source = KeySource::parse(text).unwrap();
            assert_eq!(source.to_string(), text);
            let hash = Some(key_hash(key.as_bytes()));
            assert_eq!(source.hash(b"r", IDS), hash, "{text}");
            let head = [b"\x00\x01r", IDS].concat();
            assert_eq!(source.of_head(&head), hash, "{text}");
        }
        for wrong in ["", "header:", "body", "Routing-Key"] {
            assert_eq!(KeySource::parse(wrong), None, "{wrong}");
        }
        assert_eq!(KeySource::MessageId.hash(b"r", b"\x00\x00"), None);
        assert_eq!(KeySource::MessageId.hash(b"r", b"\x00"), None, "it cannot be read");
    }

    #[test]
    fn a_number_is_the_key_that_its_text_is() {
        let hash = |value: &[u8]| {
            let entry = [b"\x08customer", value].concat();
            let count = u32::try_from(entry.len()).unwrap().to_be_bytes();
            let properties = [b"\x20\x00", &count[..], &entry].concat();
            KeySource::parse("header:customer").unwrap().hash(b"", &properties)
        };
        let seven = Some(key_hash(b"7"));
        assert_eq!(hash(b"S\x00\x00\x00\x017"), seven);
        assert_eq!(hash(b"I\x00\x00\x00\x07"), seven);
        assert_eq!(hash(b"l\x00\x00\x00\x00\x00\x00\x00\x07"), seven);
        assert_eq!(hash(b"V"), None);
    }
}
