//! Whether an exchange can route by a binding with this key and these arguments.

use super::super::exchanges::ExchangeKind;
use super::super::refusal::Refusal;
use super::super::routing::consistent_hash::weight;
use crate::value::{Arguments, Value};

/// Of an exchange that routes like `routing`.
pub(in crate::catalog) fn check_binding(
    routing: ExchangeKind,
    key: &str,
    arguments: &Arguments,
) -> Result<(), Refusal> {
    let is_possible = match routing {
        ExchangeKind::Headers => arguments.find("x-match").is_none_or(is_known_match),
        ExchangeKind::ConsistentHash => weight(key).is_some(),
        ExchangeKind::Direct
        | ExchangeKind::Fanout
        | ExchangeKind::Topic
        | ExchangeKind::DelayedMessage
        | ExchangeKind::Random
        | ExchangeKind::ModulusHash
        | ExchangeKind::RecentHistory
        | ExchangeKind::LocalRandom => true,
    };
    if is_possible { Ok(()) } else { Err(Refusal::ImpossibleBinding { key: key.to_owned() }) }
}

fn is_known_match(value: &Value) -> bool {
    matches!(value.text(), Some("all" | "any" | "all-with-x" | "any-with-x"))
}
