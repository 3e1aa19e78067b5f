//! What arguments make of a queue.

use super::super::kind::QueueType;
use super::{
    DEAD_LETTER_EXCHANGE, DEDUP, DEDUP_SIZE, DEDUP_TTL, DELIVERY_LIMIT, EXPIRES, LENGTH,
    LENGTH_BYTES, OVERFLOW, PRIORITY, RETRY_MAX, RETRY_MIN, RETRY_TYPE, SINGLE_ACTIVE, TTL,
    type_of,
};
use crate::limits::{DEDUP_ENTRIES_DEFAULT, DEDUP_ENTRIES_MAX, DEDUP_MS_DEFAULT, TIME_MS_MAX};
use crate::settings::{Dedup, Features, Overflow, Retry};
use crate::value::{Arguments, Value};

/// None where the arguments ask for nothing. Total: what is not valid is as if it were not there.
pub(in crate::catalog) fn features(arguments: &Arguments) -> Option<Box<Features>> {
    let number = |name: &str| {
        let value = arguments.find(name).and_then(Value::integer)?;
        u64::try_from(value).ok()
    };
    let is_true = |name: &str| arguments.find(name) == Some(&Value::Bool(true));
    let (max_length, max_length_bytes) = (number(LENGTH), number(LENGTH_BYTES));
    let has_limit = max_length.is_some() || max_length_bytes.is_some();
    // None is the default, and one below 0 says so: nothing is dropped that nobody asked to drop.
    let delivery_limit =
        number(DELIVERY_LIMIT).map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
    let retry = retry(arguments, number(RETRY_MIN), number(RETRY_MAX));
    let is_quorum = type_of(arguments) == QueueType::Quorum;
    let features = Features {
        message_ttl_ms: number(TTL),
        expires_ms: number(EXPIRES),
        max_length,
        max_length_bytes,
        overflow: if has_limit { overflow(arguments) } else { Overflow::DropHead },
        dead_letters: arguments.find(DEAD_LETTER_EXCHANGE).and_then(Value::text).is_some(),
        max_priority: number(PRIORITY).map_or(0, |max| u8::try_from(max).unwrap_or(u8::MAX)),
        single_active: is_true(SINGLE_ACTIVE),
        delivery_limit,
        counts_returns: is_quorum || delivery_limit.is_some() || retry.is_some(),
        retry,
        dedup: is_true(DEDUP).then(|| dedup(number(DEDUP_TTL), number(DEDUP_SIZE))),
    };
    (features != Features::default()).then(|| Box::new(features))
}

fn overflow(arguments: &Arguments) -> Overflow {
    match arguments.find(OVERFLOW).and_then(Value::text) {
        Some("reject-publish") => Overflow::RejectPublish,
        Some("reject-publish-dlx") => Overflow::RejectPublishDlx,
        Some(_) | None => Overflow::DropHead,
    }
}

/// Without a shortest delay nothing waits; without a longest there is none.
fn retry(arguments: &Arguments, min_ms: Option<u64>, max_ms: Option<u64>) -> Option<Retry> {
    let word = arguments.find(RETRY_TYPE).and_then(Value::text)?;
    let (failed, returned) = match word {
        "failed" => (true, false),
        "returned" => (false, true),
        "all" => (true, true),
        _ => return None,
    };
    let min_ms = min_ms.filter(|min| *min > 0)?;
    Some(Retry { failed, returned, min_ms, max_ms: max_ms.unwrap_or(TIME_MS_MAX) })
}

fn dedup(window_ms: Option<u64>, entries: Option<u64>) -> Dedup {
    let entries = entries.map_or(DEDUP_ENTRIES_DEFAULT, |count| {
        u32::try_from(count).map_or(DEDUP_ENTRIES_MAX, |count| count.clamp(1, DEDUP_ENTRIES_MAX))
    });
    Dedup { window_ms: window_ms.unwrap_or(DEDUP_MS_DEFAULT), entries_max: entries }
}
