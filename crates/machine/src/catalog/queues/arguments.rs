//! The arguments of a queue: which are looked at, what they may be, and which are compared.
//!
//! Arguments that nobody knows are kept and ignored. Those that change behaviour which does not exist
//! yet are validated first and then refused, so that a client learns of its own mistake before ours.

use super::super::exchanges::compare_argument;
use super::super::refusal::{ArgumentProblem, Difference, Kind, Refusal};
use super::QueueType;
use crate::value::{Arguments, Value};

pub(super) const TYPE: &str = "x-queue-type";
const DEAD_LETTER_EXCHANGE: &str = "x-dead-letter-exchange";
const SINGLE_ACTIVE: &str = "x-single-active-consumer";

/// Longest time, ms: what fits a timer of 32 bits.
const TIME_MS_MAX: i64 = 4_294_967_295;
const PRIORITY_MAX: i64 = 255;

type Check = fn(&Value, &Arguments) -> Result<(), ArgumentProblem>;

/// What is validated, in this order.
const VALIDATED: &[(&str, Check)] = &[
    ("x-expires", expires),
    ("x-message-ttl", message_ttl),
    (DEAD_LETTER_EXCHANGE, text),
    ("x-dead-letter-routing-key", dead_letter_routing_key),
    ("x-dead-letter-strategy", dead_letter_strategy),
    ("x-max-length", not_negative),
    ("x-max-length-bytes", not_negative),
    ("x-max-in-memory-length", not_negative),
    ("x-max-in-memory-bytes", not_negative),
    ("x-max-priority", max_priority),
    ("x-delivery-limit", integer),
    ("x-overflow", overflow),
    ("x-queue-mode", queue_mode),
    ("x-queue-version", queue_version),
    (SINGLE_ACTIVE, boolean),
    (TYPE, queue_type),
    ("x-quorum-initial-group-size", cluster_size),
    ("x-max-age", text),
    ("x-stream-max-segment-size-bytes", not_negative),
    ("x-initial-cluster-size", cluster_size),
    ("x-queue-leader-locator", leader_locator),
];

/// What must agree when a queue is declared again. Its type is compared apart.
const COMPARED: &[&str] = &[
    "x-expires",
    "x-message-ttl",
    DEAD_LETTER_EXCHANGE,
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-queue-mode",
    SINGLE_ACTIVE,
];

/// What quorum queues refuse to be told.
const NOT_FOR_QUORUM: &[&str] = &["x-max-priority", "x-queue-mode", "x-queue-version"];

/// What changes behaviour and does not yet.
const NOT_IMPLEMENTED: &[&str] = &[
    "x-expires",
    "x-message-ttl",
    DEAD_LETTER_EXCHANGE,
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-delivery-limit",
    "x-overflow",
    "x-message-deduplication",
    "x-cache-size",
    "x-cache-ttl",
];

/// Whether the arguments of a new queue are valid, and which type they ask for. A stream is valid.
pub(super) fn validate(
    vhost: &str,
    name: &str,
    arguments: &Arguments,
) -> Result<QueueType, Refusal> {
    let invalid = |argument: &str, problem| Refusal::InvalidArgument {
        kind: Kind::Queue,
        name: name.to_owned(),
        vhost: vhost.to_owned(),
        argument: argument.to_owned(),
        problem,
    };
    for (argument, check) in VALIDATED {
        if let Some(value) = arguments.find(argument) {
            check(value, arguments).map_err(|problem| invalid(argument, problem))?;
        }
    }
    let is_quorum = arguments.find(TYPE).and_then(Value::text) == Some("quorum");
    if !is_quorum {
        return Ok(QueueType::Classic);
    }
    for argument in NOT_FOR_QUORUM {
        if arguments.find(argument).is_some() {
            return Err(invalid(argument, ArgumentProblem::NotForQuorum));
        }
    }
    Ok(QueueType::Quorum)
}

/// Refuses what would be promised and not kept.
pub(super) fn check_implemented(arguments: &Arguments) -> Result<(), Refusal> {
    let refuse = |argument: &str| Err(Refusal::NotImplemented { argument: argument.to_owned() });
    for argument in NOT_IMPLEMENTED {
        if arguments.find(argument).is_some() {
            return refuse(argument);
        }
    }
    if arguments.find(SINGLE_ACTIVE) == Some(&Value::Bool(true)) {
        return refuse(SINGLE_ACTIVE);
    }
    if arguments.find(TYPE).and_then(Value::text) == Some("stream") {
        return refuse(TYPE);
    }
    Ok(())
}

/// Whether a second declaration means the same queue. No type means classic.
pub(super) fn compare(received: &Arguments, current: &Arguments) -> Result<(), Difference> {
    for argument in COMPARED {
        compare_argument(argument, received, current)?;
    }
    let type_of = |arguments: &Arguments| {
        arguments.find(TYPE).cloned().unwrap_or_else(|| Value::LongStr(b"classic".to_vec()))
    };
    if type_of(received) == type_of(current) {
        return Ok(());
    }
    compare_argument(TYPE, received, current)
}

fn integer(value: &Value, _: &Arguments) -> Result<(), ArgumentProblem> {
    number(value).map(|_| ())
}

fn number(value: &Value) -> Result<i64, ArgumentProblem> {
    value.integer().ok_or_else(|| ArgumentProblem::ExpectedInteger { got: value.clone() })
}

fn not_negative(value: &Value, _: &Arguments) -> Result<(), ArgumentProblem> {
    match number(value)? {
        negative @ ..0 => Err(ArgumentProblem::Negative(negative)),
        0.. => Ok(()),
    }
}

fn message_ttl(value: &Value, arguments: &Arguments) -> Result<(), ArgumentProblem> {
    not_negative(value, arguments)?;
    match number(value)? {
        large if large > TIME_MS_MAX => Err(ArgumentProblem::TooLarge(large)),
        _ => Ok(()),
    }
}

fn expires(value: &Value, arguments: &Arguments) -> Result<(), ArgumentProblem> {
    if number(value)? == 0 {
        return Err(ArgumentProblem::Zero);
    }
    message_ttl(value, arguments)
}

fn cluster_size(value: &Value, arguments: &Arguments) -> Result<(), ArgumentProblem> {
    if number(value)? == 0 {
        return Err(ArgumentProblem::Zero);
    }
    not_negative(value, arguments)
}

fn max_priority(value: &Value, arguments: &Arguments) -> Result<(), ArgumentProblem> {
    not_negative(value, arguments)?;
    match number(value)? {
        large if large > PRIORITY_MAX => Err(ArgumentProblem::MaxExceeded(large)),
        _ => Ok(()),
    }
}

fn boolean(value: &Value, _: &Arguments) -> Result<(), ArgumentProblem> {
    match value {
        Value::Bool(_) => Ok(()),
        other => Err(ArgumentProblem::UnacceptableType { got: other.clone() }),
    }
}

fn text(value: &Value, _: &Arguments) -> Result<(), ArgumentProblem> {
    word(value).map(|_| ())
}

fn word(value: &Value) -> Result<String, ArgumentProblem> {
    match value {
        Value::LongStr(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        other => Err(ArgumentProblem::UnacceptableType { got: other.clone() }),
    }
}

fn one_of(value: &Value, words: &[&str], problem: ArgumentProblem) -> Result<(), ArgumentProblem> {
    if words.contains(&word(value)?.as_str()) { Ok(()) } else { Err(problem) }
}

fn dead_letter_routing_key(value: &Value, arguments: &Arguments) -> Result<(), ArgumentProblem> {
    text(value, arguments)?;
    match arguments.find(DEAD_LETTER_EXCHANGE) {
        Some(_) => Ok(()),
        None => Err(ArgumentProblem::RoutingKeyWithoutExchange),
    }
}

fn dead_letter_strategy(value: &Value, _: &Arguments) -> Result<(), ArgumentProblem> {
    one_of(value, &["at-most-once", "at-least-once"], ArgumentProblem::InvalidStrategy)
}

fn overflow(value: &Value, _: &Arguments) -> Result<(), ArgumentProblem> {
    const WORDS: &[&str] = &["drop-head", "reject-publish", "reject-publish-dlx"];
    one_of(value, WORDS, ArgumentProblem::InvalidOverflow)
}

fn queue_mode(value: &Value, _: &Arguments) -> Result<(), ArgumentProblem> {
    one_of(value, &["default", "lazy"], ArgumentProblem::InvalidQueueMode)
}

fn leader_locator(value: &Value, _: &Arguments) -> Result<(), ArgumentProblem> {
    const WORDS: &[&str] = &["client-local", "balanced", "random", "least-leaders", "min-masters"];
    one_of(value, WORDS, ArgumentProblem::InvalidLocator)
}

fn queue_version(value: &Value, arguments: &Arguments) -> Result<(), ArgumentProblem> {
    not_negative(value, arguments)?;
    match number(value)? {
        1 | 2 => Ok(()),
        other => Err(ArgumentProblem::UnsupportedVersion(other)),
    }
}

fn queue_type(value: &Value, _: &Arguments) -> Result<(), ArgumentProblem> {
    let word = word(value)?;
    match word.as_str() {
        "classic" | "quorum" | "stream" => Ok(()),
        _ => Err(ArgumentProblem::UnsupportedQueueType(word)),
    }
}
