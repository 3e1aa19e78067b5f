//! Options that are more than a word or a number.

use std::fmt;
use std::time::Duration;

use amqp::FieldValue;

/// An argument of the queues.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Argument {
    pub(crate) name: String,
    pub(crate) value: FieldValue,
    text: String,
}

impl fmt::Display for Argument {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}={}", self.name, self.text)
    }
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Duration,
    pub(super) to: Duration,
}

/// What makes messages dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Death {
    /// All messages expire at the same moment
    Expired,
    /// A consumer rejects all messages
    Rejected,
}

/// Reads `x-message-ttl=60000`.
pub(crate) fn argument(text: &str) -> Result<Argument, String> {
    let (name, value) = text.split_once('=').ok_or("an argument must be NAME=VALUE")?;
    let parsed = match (value, value.parse()) {
        ("true", _) => FieldValue::Bool(true),
        ("false", _) => FieldValue::Bool(false),
        (_, Ok(number)) => FieldValue::I64(number),
        (_, Err(_)) => FieldValue::LongStr(value.as_bytes().to_vec()),
    };
    Ok(Argument { name: name.into(), value: parsed, text: value.into() })
}

/// Reads `15s..35s`.
pub(super) fn span(text: &str) -> Result<Span, String> {
    let (from, to) = text.split_once("..").ok_or("a time span must look like 15s..35s")?;
    let span = Span { from: super::duration(from)?, to: super::duration(to)? };
    if span.from > span.to { Err("the time span ends before it begins".into()) } else { Ok(span) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_numbers_truths_or_text() {
        let value = |text| argument(text).map(|argument| argument.value);
        assert_eq!(value("x-message-ttl=60000"), Ok(FieldValue::I64(60_000)));
        assert_eq!(value("x-single-active-consumer=true"), Ok(FieldValue::Bool(true)));
        assert_eq!(value("x-overflow=drop-head"), Ok(FieldValue::LongStr(b"drop-head".to_vec())));
        assert!(argument("x-overflow").is_err());
    }

    #[test]
    fn a_stretch_of_time_has_two_ends_in_their_order() {
        let seconds = Duration::from_secs;
        assert_eq!(span("15s..35s"), Ok(Span { from: seconds(15), to: seconds(35) }));
        assert!(span("35s..15s").is_err());
        assert!(span("15s").is_err());
    }
}
