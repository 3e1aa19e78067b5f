//! What a client's arguments make of a queue.

use super::super::queues::{DeadLetter, QueueSpec, QueueType};
use crate::limits::{DEDUP_ENTRIES_DEFAULT, DEDUP_ENTRIES_MAX, DEDUP_MS_DEFAULT, TIME_MS_MAX};
use crate::settings::{Dedup, Features, Overflow, QueueSettings, Rates, Retry};
use crate::value::{Arguments, Value};

/// Total: what is not valid is as if it were not there.
pub(in crate::catalog) fn queue_spec(
    durable: bool,
    auto_delete: bool,
    arguments: &Arguments,
) -> QueueSpec {
    let text = |name| arguments.find(name).and_then(Value::text).map(str::to_owned);
    let dead_letter = text("x-dead-letter-exchange")
        .map(|exchange| DeadLetter { exchange, key: text("x-dead-letter-routing-key") });
    let members = number(arguments, "x-quorum-initial-group-size");
    QueueSpec {
        queue_type: type_of(arguments),
        settings: QueueSettings {
            is_durable: durable,
            is_auto_delete: auto_delete,
            features: features(arguments, dead_letter.is_some()),
            is_paused: false,
        },
        dead_letter,
        consumer_timeout_ms: number(arguments, "x-consumer-timeout"),
        members: members.map(|count| u8::try_from(count).unwrap_or(u8::MAX)),
        partitions: 1,
    }
}

fn number(arguments: &Arguments, name: &str) -> Option<u64> {
    u64::try_from(arguments.find(name)?.integer()?).ok()
}

/// Which type the arguments ask for. What is no type is a classic queue.
fn type_of(arguments: &Arguments) -> QueueType {
    match arguments.find("x-queue-type").and_then(Value::text) {
        Some("quorum") => QueueType::Quorum,
        Some("stream") => QueueType::Stream,
        Some(_) | None => QueueType::Classic,
    }
}

/// None where the arguments ask for nothing.
fn features(arguments: &Arguments, dead_letters: bool) -> Option<Box<Features>> {
    let number = |name| number(arguments, name);
    let is_true = |name: &str| arguments.find(name) == Some(&Value::Bool(true));
    let (max_length, max_length_bytes) = (number("x-max-length"), number("x-max-length-bytes"));
    let has_limit = max_length.is_some() || max_length_bytes.is_some();
    // None is the default, and one below 0 says so: nothing is dropped that nobody asked to drop.
    let delivery_limit =
        number("x-delivery-limit").map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
    let retry = retry(arguments, number("x-delayed-retry-min"), number("x-delayed-retry-max"));
    let is_quorum = type_of(arguments) == QueueType::Quorum;
    let dedup = || dedup(number("x-cache-ttl"), number("x-cache-size"));
    let features = Features {
        message_ttl_ms: number("x-message-ttl"),
        expires_ms: number("x-expires"),
        max_length,
        max_length_bytes,
        overflow: if has_limit { overflow(arguments) } else { Overflow::DropHead },
        dead_letters,
        max_priority: number("x-max-priority")
            .map_or(0, |max| u8::try_from(max).unwrap_or(u8::MAX)),
        single_active: is_true("x-single-active-consumer"),
        delivery_limit,
        counts_returns: is_quorum || delivery_limit.is_some() || retry.is_some(),
        retry,
        dedup: is_true("x-message-deduplication").then(dedup),
        stream: None,
        subscription: None,
        assignment: None,
        tokens_of: None,
        filter: None,
        order: None,
        rates: Rates::default(),
    };
    (features != Features::default()).then(|| Box::new(features))
}

fn overflow(arguments: &Arguments) -> Overflow {
    match arguments.find("x-overflow").and_then(Value::text) {
        Some("reject-publish") => Overflow::RejectPublish,
        Some("reject-publish-dlx") => Overflow::RejectPublishDlx,
        Some(_) | None => Overflow::DropHead,
    }
}

/// Without a shortest delay nothing waits; without a longest there is none.
fn retry(arguments: &Arguments, min_ms: Option<u64>, max_ms: Option<u64>) -> Option<Retry> {
    let word = arguments.find("x-delayed-retry-type").and_then(Value::text)?;
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
