//! What a client's arguments make of an exchange.

use super::super::exchanges::{ExchangeKind, ExchangeSpec, HashBy};
use crate::value::{Arguments, HashProperty, Value};
use crate::version::Version;

const HISTORY_LENGTH_DEFAULT: u64 = 20;

/// Total: what is not valid is as if it were not there.
pub(in crate::catalog) fn exchange_spec(kind: ExchangeKind, arguments: &Arguments) -> ExchangeSpec {
    let routing = routing(kind, arguments);
    ExchangeSpec {
        kind,
        routing,
        alternate: arguments.find("alternate-exchange").and_then(Value::text).map(str::to_owned),
        hash_by: hash_by(arguments),
        history_length: (routing == ExchangeKind::RecentHistory).then(|| history_length(arguments)),
    }
}

fn hash_by(arguments: &Arguments) -> HashBy {
    let text = |name: &str| arguments.find(name).and_then(Value::text);
    if let Some(header) = text("hash-header") {
        return HashBy::Header(header.to_owned());
    }
    let property = text("hash-property").and_then(HashProperty::parse);
    property.map_or(HashBy::Key, HashBy::Property)
}

/// How an exchange with these arguments routes. A delayed one without a valid inner kind, which nobody could declare,
/// is direct.
fn routing(kind: ExchangeKind, arguments: &Arguments) -> ExchangeKind {
    if kind != ExchangeKind::DelayedMessage {
        return kind;
    }
    let inner = arguments.find("x-delayed-type").and_then(Value::text);
    let inner = inner.and_then(ExchangeKind::parse);
    let is_possible = |kind: &ExchangeKind| {
        *kind != ExchangeKind::DelayedMessage && kind.since() == Version::FIRST
    };
    inner.filter(is_possible).unwrap_or(ExchangeKind::Direct)
}

/// How many messages an exchange of recent history keeps.
fn history_length(arguments: &Arguments) -> u64 {
    let is_signed = |value: &&Value| {
        matches!(value, Value::I8(_) | Value::I16(_) | Value::I32(_) | Value::I64(_))
    };
    let length = arguments.find("x-recent-history-length").filter(is_signed);
    let length = length.and_then(Value::integer).filter(|length| *length > 0);
    length.map_or(HISTORY_LENGTH_DEFAULT, |length| length as u64)
}
