//! What one argument of a queue may be.

use machine::limits::{BURST_MAX, DEDUP_ENTRIES_MAX, PARTITIONS_MAX, TIME_MS_MAX};
use machine::{Arguments, KeySource, StreamOffset, Value};

use super::super::age::age_ms;
use super::super::error::ArgumentProblem;
use super::super::filter;
use super::super::offset::{offset_of, word_of};
use super::super::rate;

/// Without it there is no key for dead letters.
pub(super) const DEAD_LETTER_EXCHANGE: &str = "x-dead-letter-exchange";
/// With it a queue has levels, and no order by key.
pub(super) const PRIORITY: &str = "x-max-priority";
/// Whose a partition of a subscription is.
pub(super) const ASSIGN: &str = "x-assign";
/// By what messages keep their order where several consumers share a queue.
pub(super) const ORDER: &str = "x-order";

const PRIORITY_MAX: i64 = u8::MAX as i64;

type Judged = Result<(), ArgumentProblem>;

fn number(value: &Value) -> Result<i64, ArgumentProblem> {
    value.integer().ok_or_else(|| ArgumentProblem::ExpectedInteger { got: value.clone() })
}

pub(super) fn not_negative(value: &Value, _: &Arguments) -> Judged {
    match number(value)? {
        negative @ ..0 => Err(ArgumentProblem::Negative(negative)),
        0.. => Ok(()),
    }
}

/// Bytes of the largest segment that a stream may be asked to have.
const SEGMENT_BYTES_MAX: i64 = 3_000_000_000;

pub(super) fn segment_bytes(value: &Value, arguments: &Arguments) -> Judged {
    not_negative(value, arguments)?;
    match number(value)? {
        large if large > SEGMENT_BYTES_MAX => Err(ArgumentProblem::AboveMax),
        _ => Ok(()),
    }
}

fn not_zero(value: &Value) -> Judged {
    if number(value)? == 0 { Err(ArgumentProblem::Zero) } else { Ok(()) }
}

fn at_most(value: &Value, max: i64) -> Judged {
    match number(value)? {
        large if large > max => Err(ArgumentProblem::MaxExceeded(large)),
        _ => Ok(()),
    }
}

pub(super) fn time(value: &Value, arguments: &Arguments) -> Judged {
    not_negative(value, arguments)?;
    match number(value)? {
        large if large > TIME_MS_MAX as i64 => Err(ArgumentProblem::TooLarge(large)),
        _ => Ok(()),
    }
}

pub(super) fn expires(value: &Value, arguments: &Arguments) -> Judged {
    not_zero(value)?;
    time(value, arguments)
}

pub(super) fn size(value: &Value, arguments: &Arguments) -> Judged {
    not_zero(value)?;
    not_negative(value, arguments)
}

pub(super) fn max_priority(value: &Value, arguments: &Arguments) -> Judged {
    not_negative(value, arguments)?;
    at_most(value, PRIORITY_MAX)
}

pub(super) fn dedup_size(value: &Value, arguments: &Arguments) -> Judged {
    size(value, arguments)?;
    at_most(value, i64::from(DEDUP_ENTRIES_MAX))
}

pub(super) fn boolean(value: &Value, _: &Arguments) -> Judged {
    match value {
        Value::Bool(_) => Ok(()),
        other => Err(ArgumentProblem::UnacceptableType { got: other.clone() }),
    }
}

pub(super) fn text(value: &Value, _: &Arguments) -> Judged {
    word(value).map(|_| ())
}

fn word(value: &Value) -> Result<String, ArgumentProblem> {
    match value {
        Value::LongStr(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        other => Err(ArgumentProblem::UnacceptableType { got: other.clone() }),
    }
}

fn one_of(value: &Value, words: &[&str], problem: ArgumentProblem) -> Judged {
    if words.contains(&word(value)?.as_str()) { Ok(()) } else { Err(problem) }
}

pub(super) fn dead_letter_key(value: &Value, arguments: &Arguments) -> Judged {
    text(value, arguments)?;
    match arguments.find(DEAD_LETTER_EXCHANGE) {
        Some(_) => Ok(()),
        None => Err(ArgumentProblem::RoutingKeyWithoutExchange),
    }
}

pub(super) fn strategy(value: &Value, _: &Arguments) -> Judged {
    one_of(value, &["at-most-once", "at-least-once"], ArgumentProblem::InvalidStrategy)
}

pub(super) fn overflow(value: &Value, _: &Arguments) -> Judged {
    const WORDS: &[&str] = &["drop-head", "reject-publish", "reject-publish-dlx"];
    one_of(value, WORDS, ArgumentProblem::InvalidOverflow)
}

pub(super) fn queue_mode(value: &Value, _: &Arguments) -> Judged {
    let word = word(value)?;
    match word.as_str() {
        "default" | "lazy" => Ok(()),
        _ => Err(ArgumentProblem::UnsupportedQueueMode(word)),
    }
}

pub(super) fn leader_locator(value: &Value, _: &Arguments) -> Judged {
    const WORDS: &[&str] = &["client-local", "balanced", "random", "least-leaders"];
    one_of(value, WORDS, ArgumentProblem::InvalidLocator)
}

pub(super) fn retry_type(value: &Value, _: &Arguments) -> Judged {
    const WORDS: &[&str] = &["disabled", "failed", "returned", "all"];
    one_of(value, WORDS, ArgumentProblem::InvalidRetryType)
}

pub(super) fn queue_version(value: &Value, arguments: &Arguments) -> Judged {
    not_negative(value, arguments)?;
    match number(value)? {
        1 | 2 => Ok(()),
        other => Err(ArgumentProblem::UnsupportedVersion(other)),
    }
}

pub(super) fn queue_type(value: &Value, _: &Arguments) -> Judged {
    let word = word(value)?;
    match word.as_str() {
        "classic" | "quorum" | "stream" | "subscription" => Ok(()),
        _ => Err(ArgumentProblem::UnsupportedQueueType(word)),
    }
}

/// Where a subscription begins.
pub(super) fn start(value: &Value, _: &Arguments) -> Judged {
    start_of(value).map(|_| ()).ok_or(ArgumentProblem::InvalidStart)
}

/// The same words, numbers and times as a consumer of a stream may say.
pub(super) fn start_of(value: &Value) -> Option<StreamOffset> {
    if let Some(offset) = value.integer() {
        return Some(offset_of(offset));
    }
    match value {
        Value::Timestamp(seconds) => Some(StreamOffset::Since(seconds.saturating_mul(1000))),
        _ => word_of(value.text()?),
    }
}

pub(super) fn partitions(value: &Value, arguments: &Arguments) -> Judged {
    size(value, arguments)?;
    at_most(value, i64::from(PARTITIONS_MAX))
}

pub(super) fn partition_by(value: &Value, _: &Arguments) -> Judged {
    let text = word(value)?;
    KeySource::parse(&text).map(|_| ()).ok_or(ArgumentProblem::InvalidPartitionBy(text))
}

pub(super) fn assign(value: &Value, _: &Arguments) -> Judged {
    one_of(value, &["shared", "partition", "key"], ArgumentProblem::InvalidAssign)
}

pub(super) fn order(value: &Value, arguments: &Arguments) -> Judged {
    one_of(value, &["key"], ArgumentProblem::InvalidOrder)?;
    match arguments.find(PRIORITY).and_then(Value::integer) {
        Some(1..) => Err(ArgumentProblem::OrderWithPriorities),
        Some(..1) | None => Ok(()),
    }
}

pub(super) fn behind(value: &Value, _: &Arguments) -> Judged {
    match word(value)?.as_str() {
        "hold" | "skip" => Ok(()),
        _ => Err(ArgumentProblem::InvalidBehind),
    }
}

pub(super) fn filter(value: &Value, _: &Arguments) -> Judged {
    filter::of(value).map(|_| ()).map_err(ArgumentProblem::InvalidFilter)
}

pub(super) fn rate(value: &Value, _: &Arguments) -> Judged {
    let text = word(value)?;
    rate::messages(&text).map(|_| ()).ok_or(ArgumentProblem::InvalidRate(text))
}

/// Keys are known where messages keep their order.
pub(super) fn key_rate(value: &Value, arguments: &Arguments) -> Judged {
    rate(value, arguments)?;
    let is_key = |name| arguments.find(name).and_then(Value::text) == Some("key");
    let is_ordered = is_key(ORDER) || is_key(ASSIGN);
    if is_ordered { Ok(()) } else { Err(ArgumentProblem::KeyRateWithoutOrder) }
}

pub(super) fn bytes_rate(value: &Value, _: &Arguments) -> Judged {
    let text = word(value)?;
    rate::bytes(&text).map(|_| ()).ok_or(ArgumentProblem::InvalidBytesRate(text))
}

pub(super) fn burst(value: &Value, arguments: &Arguments) -> Judged {
    size(value, arguments)?;
    at_most(value, BURST_MAX as i64)
}

pub(super) fn max_age(value: &Value, _: &Arguments) -> Judged {
    age_ms(&word(value)?).map(|_| ()).ok_or(ArgumentProblem::InvalidMaxAge)
}
