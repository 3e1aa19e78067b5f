//! The key of a message: what its order, and its partition, go by.

use std::borrow::Cow;

use amqp::{Properties, ValueRef, Widened};
use machine::{Arguments, Value, key_hash};

/// What names the key of a queue's messages.
pub(crate) const ARGUMENT: &str = "x-partition-by";
/// The header that holds the key where the queue names nothing else.
const HEADER: &str = "x-partition-key";
/// Before the name of a header.
const HEADER_PREFIX: &str = "header:";

/// Where the key of a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    Header(String),
    RoutingKey,
    MessageId,
    CorrelationId,
    UserId,
}

impl KeySource {
    /// `None`: there is no such place.
    pub(crate) fn parse(text: &str) -> Option<Self> {
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

    /// Of a queue with these arguments.
    pub(crate) fn of(arguments: &Arguments) -> Self {
        let named = arguments.find(ARGUMENT).and_then(Value::text);
        named.and_then(Self::parse).unwrap_or_else(|| Self::Header(HEADER.to_owned()))
    }

    /// A hash of the key, if the message has one. Numbers and truths are as if they were written.
    pub(crate) fn hash(&self, routing_key: &str, properties: &Properties<'_>) -> Option<u64> {
        let text = match self {
            Self::RoutingKey => Some(routing_key),
            Self::MessageId => properties.message_id,
            Self::CorrelationId => properties.correlation_id,
            Self::UserId => properties.user_id,
            Self::Header(name) => {
                let value = properties.headers?.find(name)?;
                return bytes_of(value).map(|bytes| key_hash(&bytes));
            }
        };
        text.map(|text| key_hash(text.as_bytes()))
    }
}

fn bytes_of(value: ValueRef<'_>) -> Option<Cow<'_, [u8]>> {
    Some(match value.widened() {
        Widened::LongStr(bytes) | Widened::Bytes(bytes) => Cow::Borrowed(bytes),
        Widened::Integer(number) => Cow::Owned(number.to_string().into_bytes()),
        Widened::Timestamp(seconds) => Cow::Owned(seconds.to_string().into_bytes()),
        Widened::Bool(truth) => Cow::Owned(truth.to_string().into_bytes()),
        Widened::F32(_)
        | Widened::F64(_)
        | Widened::Decimal { .. }
        | Widened::Array(_)
        | Widened::Table(_)
        | Widened::Void => return None,
    })
}

#[cfg(test)]
mod tests {
    use amqp::{FieldTable, FieldValue, TableRef};

    use super::*;

    #[test]
    fn a_key_is_where_the_queue_says() {
        let properties = Properties {
            message_id: Some("m"),
            correlation_id: Some("c"),
            user_id: Some("u"),
            ..Properties::default()
        };
        for (text, key) in
            [("routing-key", "r"), ("message-id", "m"), ("correlation-id", "c"), ("user-id", "u")]
        {
            let source = KeySource::parse(text).unwrap();
            assert_eq!(source.hash("r", &properties), Some(key_hash(key.as_bytes())), "{text}");
        }
        for wrong in ["", "header:", "body", "Routing-Key"] {
            assert_eq!(KeySource::parse(wrong), None, "{wrong}");
        }
        let without = Properties::default();
        assert_eq!(KeySource::MessageId.hash("r", &without), None);
    }

    #[test]
    fn a_number_is_the_key_that_its_text_is() {
        let hash = |value: FieldValue| {
            let raw = FieldTable(vec![("customer".to_owned(), value)]).to_bytes();
            let headers = Some(TableRef::validate(&raw).unwrap());
            let properties = Properties { headers, ..Properties::default() };
            KeySource::parse("header:customer").unwrap().hash("", &properties)
        };
        let seven = hash(FieldValue::LongStr(b"7".to_vec()));
        assert!(seven.is_some());
        assert_eq!(hash(FieldValue::I32(7)), seven);
        assert_eq!(hash(FieldValue::I64(7)), seven);
        assert_eq!(hash(FieldValue::Void), None);
    }
}
