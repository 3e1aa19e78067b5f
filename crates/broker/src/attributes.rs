//! What a message's properties ask of the queues it goes to: how long it lives, when it is ready, how
//! urgent it is, and by which key it is known.
//!
//! A key is what a queue with a window tells a second message from a first by, and what a delayed
//! message is cancelled by: the value of `x-deduplication-header`, or else the `message-id`. Queues see
//! only its hash, which is replicated and compared with what was stored years ago: it never changes.

use amqp::{Properties, ReplyCode, ValueRef, Widened};
use machine::limits::TIME_MS_MAX;
use machine::{Attributes, QueueId, Target};
use sha2::{Digest as _, Sha256};

use crate::errors::Failure;

/// A message with this header waits so many milliseconds before it is ready.
pub(crate) const DELAY: &str = "x-delay";
/// By this header a queue with a window knows a message, whatever its `message-id`.
pub(crate) const DEDUPLICATION: &str = "x-deduplication-header";
/// A message with this header is none: the delayed one of this key goes.
pub(crate) const CANCEL: &str = "x-cancel-delayed";

/// What one message asks for. The default asks for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) delay_ms: Option<u64>,
    pub(crate) priority: u8,
    /// Only drawn up where it is wanted.
    pub(crate) key: Option<u128>,
    /// Nothing is stored: the delayed message of this key goes.
    pub(crate) cancels: Option<u128>,
}

impl Asked {
    /// What is stored with the message in a queue that `dedups`, or does not.
    pub(crate) fn attributes(&self, dedups: bool) -> Attributes {
        let key = if dedups || self.delay_ms.is_some() { self.key } else { None };
        Attributes { ttl_ms: self.ttl_ms, delay_ms: self.delay_ms, key }
    }

    /// Where in its queue the message goes.
    pub(crate) fn level(&self, target: &Target) -> QueueId {
        target.queue.level(self.priority.min(target.max_priority))
    }
}

/// The key of a message with these properties, if it has one.
pub(crate) fn key(properties: &Properties<'_>) -> Option<u128> {
    let header = properties.headers.and_then(|headers| headers.find(DEDUPLICATION));
    match (header, properties.message_id) {
        (Some(value), _) => key_of(value),
        (None, Some(id)) => Some(hash(TEXT, id.as_bytes())),
        (None, None) => None,
    }
}

const TEXT: u8 = b'S';
const INTEGER: u8 = b'l';

/// The key that a header names. What is no text, number or truth is none.
pub(crate) fn key_of(value: ValueRef<'_>) -> Option<u128> {
    Some(match value.widened() {
        Widened::LongStr(bytes) => hash(TEXT, bytes),
        Widened::Bytes(bytes) => hash(b'x', bytes),
        Widened::Bool(truth) => hash(b't', &[truth.into()]),
        Widened::Timestamp(seconds) => hash(b'T', &seconds.to_be_bytes()),
        Widened::F32(number) => hash(b'f', &number.to_be_bytes()),
        Widened::F64(number) => hash(b'd', &number.to_be_bytes()),
        Widened::Integer(number) => hash(INTEGER, &number.to_be_bytes()),
        Widened::Decimal { .. } | Widened::Array(_) | Widened::Table(_) | Widened::Void => {
            return None;
        }
    })
}

/// The first half of SHA-256 over the value's type and its bytes, as a little-endian number.
fn hash(kind: u8, bytes: &[u8]) -> u128 {
    let digest = Sha256::new().chain_update([kind]).chain_update(bytes).finalize();
    let mut half = [0; 16];
    half.copy_from_slice(&digest[..16]);
    u128::from_le_bytes(half)
}

/// How long a message is to wait, from its `x-delay`. As the delayed message plugin of RabbitMQ has it:
/// numbers and texts of numbers count, what is no number or not above 0 does not delay.
pub(crate) fn delay_ms(value: ValueRef<'_>) -> Option<u64> {
    let number = match value.widened() {
        Widened::Integer(number) => number,
        Widened::LongStr(text) => std::str::from_utf8(text).ok()?.parse().ok()?,
        Widened::F32(number) => f64::from(number) as i64,
        Widened::F64(number) => number as i64,
        Widened::Bool(_)
        | Widened::Decimal { .. }
        | Widened::Bytes(_)
        | Widened::Array(_)
        | Widened::Timestamp(_)
        | Widened::Table(_)
        | Widened::Void => return None,
    };
    u64::try_from(number).ok().filter(|ms| *ms > 0).map(|ms| ms.min(TIME_MS_MAX))
}

/// The time to live in a message's `expiration`: decimal text, judged in RabbitMQ's words.
pub(crate) fn ttl_ms(properties: &Properties<'_>) -> Result<Option<u64>, Failure> {
    let Some(text) = properties.expiration else { return Ok(None) };
    let invalid = |problem: String| {
        let text = format!("invalid expiration '{text}': {problem}");
        Err(Failure::channel(ReplyCode::PreconditionFailed, text))
    };
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit()).unwrap_or(unsigned.len());
    let (digits, rest) = unsigned.split_at(end);
    if digits.is_empty() {
        return invalid("no_integer".to_owned());
    }
    if !rest.is_empty() {
        return invalid(format!("{{leftover_string,\"{rest}\"}}"));
    }
    let number = match digits.trim_start_matches('0') {
        "" => "0",
        number => number,
    };
    if text.starts_with('-') && number != "0" {
        return invalid(format!("{{value_negative,-{number}}}"));
    }
    match number.parse::<u64>() {
        Ok(ms) if ms <= TIME_MS_MAX => Ok(Some(ms)),
        Ok(_) | Err(_) => invalid(format!("{{value_too_large,{number}}}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_expiration(text: &str) -> Properties<'_> {
        Properties { expiration: Some(text), ..Properties::default() }
    }

    #[test]
    fn an_expiration_is_a_number_of_milliseconds_up_to_ten_years() {
        let ttl = |text| ttl_ms(&with_expiration(text)).unwrap();
        assert_eq!(ttl_ms(&Properties::default()).unwrap(), None);
        for (text, ms) in [("0", 0), ("+5", 5), ("007", 7), ("315360000000", 315_360_000_000)] {
            assert_eq!(ttl(text), Some(ms));
        }
    }

    #[test]
    fn a_bad_expiration_is_refused_in_rabbitmqs_words() {
        for (text, problem) in [
            ("", "no_integer"),
            ("soon", "no_integer"),
            (" 100", "no_integer"),
            ("-", "no_integer"),
            ("１", "no_integer"),
            ("-1", "{value_negative,-1}"),
            ("1.5", "{leftover_string,\".5\"}"),
            ("10s", "{leftover_string,\"s\"}"),
            ("315360000001", "{value_too_large,315360000001}"),
            ("99999999999999999999999", "{value_too_large,99999999999999999999999}"),
        ] {
            let refused = ttl_ms(&with_expiration(text)).unwrap_err().error.text;
            assert_eq!(refused, format!("invalid expiration '{text}': {problem}"));
        }
    }

    #[test]
    fn a_delay_is_any_number_above_zero() {
        assert_eq!(delay_ms(ValueRef::I32(5000)), Some(5000));
        assert_eq!(delay_ms(ValueRef::U8(5)), Some(5));
        assert_eq!(delay_ms(ValueRef::LongStr(b"70")), Some(70));
        assert_eq!(delay_ms(ValueRef::F64(1.9)), Some(1));
        assert_eq!(delay_ms(ValueRef::I64(i64::MAX)), Some(TIME_MS_MAX));
        for none in
            [ValueRef::I32(-5), ValueRef::I32(0), ValueRef::LongStr(b"soon"), ValueRef::Void]
        {
            assert_eq!(delay_ms(none), None);
        }
    }

    #[test]
    fn a_key_is_the_same_on_every_machine_and_in_every_version() {
        let by_id = Properties { message_id: Some("order-1"), ..Properties::default() };
        assert_eq!(key(&by_id), key_of(ValueRef::LongStr(b"order-1")));
        assert_eq!(key(&by_id), Some(0x1209_f442_aac9_0465_cb66_e491_467a_e35a));
        assert_eq!(key_of(ValueRef::I8(7)), key_of(ValueRef::I64(7)));
        assert_eq!(key_of(ValueRef::Void), None);
        assert_eq!(key(&Properties::default()), None);
    }
}
