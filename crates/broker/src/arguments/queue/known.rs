//! The arguments of a queue: which are looked at, what they may be, and which are compared.
//!
//! Bounds and order are RabbitMQ's: first the type of the queue, then what its type knows, then
//! what only another type knows. Arguments that nobody knows are kept and ignored. Behind them come
//! those that RabbitMQ of that time does not have.

use machine::limits::PARTITIONS_MAX;
use machine::{Arguments, Kind, QueueType, Value, Version};

use super::super::compare;
use crate::partitions::{BY as PARTITION_BY, FALLBACK};

use super::super::error::{ArgumentProblem, DeclareError, Difference};
use super::checks::{self, ASSIGN, DEAD_LETTER_EXCHANGE, ORDER, PRIORITY};

pub(super) const TYPE: &str = "x-queue-type";
pub(super) const DEAD_LETTER_KEY: &str = "x-dead-letter-routing-key";
const STRATEGY: &str = "x-dead-letter-strategy";
pub(super) const EXPIRES: &str = "x-expires";
pub(super) const TTL: &str = "x-message-ttl";
pub(super) const LENGTH: &str = "x-max-length";
pub(super) const LENGTH_BYTES: &str = "x-max-length-bytes";
const MEMORY_LENGTH: &str = "x-max-in-memory-length";
const MEMORY_BYTES: &str = "x-max-in-memory-bytes";
pub(super) const OVERFLOW: &str = "x-overflow";
const MODE: &str = "x-queue-mode";
const QUEUE_VERSION: &str = "x-queue-version";
pub(super) const SINGLE_ACTIVE: &str = "x-single-active-consumer";
pub(super) const GROUP_SIZE: &str = "x-quorum-initial-group-size";
pub(super) const CLUSTER_SIZE: &str = "x-initial-cluster-size";
pub(super) const DELIVERY_LIMIT: &str = "x-delivery-limit";
pub(super) const MAX_AGE: &str = "x-max-age";
const SEGMENT_BYTES: &str = "x-stream-max-segment-size-bytes";
const LEADER_LOCATOR: &str = "x-queue-leader-locator";
const MASTER_LOCATOR: &str = "x-queue-master-locator";
/// Which stream a subscription reads.
pub(super) const READS: &str = "x-stream";
pub(super) const START: &str = "x-stream-offset";
pub(super) const BEHIND: &str = "x-when-behind";
/// How many partitions a stream has.
pub(super) const PARTITIONS: &str = "x-partitions";
pub(super) const FILTER: &str = "x-filter";
pub(super) const RETRY_TYPE: &str = "x-delayed-retry-type";
pub(super) const RETRY_MIN: &str = "x-delayed-retry-min";
pub(super) const RETRY_MAX: &str = "x-delayed-retry-max";
/// RabbitMQ looks at it only when it is needed.
pub(super) const CONSUMER_TIMEOUT: &str = "x-consumer-timeout";
pub(super) const RATE: &str = "x-dequeue-rate";
pub(super) const BURST: &str = "x-dequeue-burst";
pub(super) const BYTES_RATE: &str = "x-dequeue-bytes-rate";
pub(super) const ENQUEUE_RATE: &str = "x-enqueue-rate";
/// Of a queue with order by key.
pub(super) const KEY_RATE: &str = "x-dequeue-rate-per-key";
pub(super) const DEDUP: &str = "x-message-deduplication";
pub(super) const DEDUP_TTL: &str = "x-cache-ttl";
pub(super) const DEDUP_SIZE: &str = "x-cache-size";

type Check = fn(&Value, &Arguments) -> Result<(), ArgumentProblem>;

/// What is validated, in this order, where the type of the queue knows it.
const VALIDATED: &[(&str, Check)] = &[
    (EXPIRES, checks::expires),
    (TTL, checks::time),
    (DEAD_LETTER_EXCHANGE, checks::text),
    (DEAD_LETTER_KEY, checks::dead_letter_key),
    (STRATEGY, checks::strategy),
    (LENGTH, checks::not_negative),
    (LENGTH_BYTES, checks::not_negative),
    (MEMORY_LENGTH, checks::not_negative),
    (MEMORY_BYTES, checks::not_negative),
    (PRIORITY, checks::max_priority),
    (OVERFLOW, checks::overflow),
    (MODE, checks::queue_mode),
    (QUEUE_VERSION, checks::queue_version),
    (SINGLE_ACTIVE, checks::boolean),
    (GROUP_SIZE, checks::size),
    (MAX_AGE, checks::max_age),
    (SEGMENT_BYTES, checks::segment_bytes),
    (CLUSTER_SIZE, checks::size),
    (LEADER_LOCATOR, checks::leader_locator),
    (READS, checks::text),
    (START, checks::start),
    (BEHIND, checks::behind),
    (PARTITIONS, checks::partitions),
    (PARTITION_BY, checks::partition_by),
    (ASSIGN, checks::assign),
    (FALLBACK, checks::boolean),
    (FILTER, checks::filter),
    (ORDER, checks::order),
];

/// What classic queues know, in the order it is compared in. The leader's locator is newer than the
/// rest: RabbitMQ takes it since 3.12.
const CLASSIC: &[&str] = &[
    EXPIRES,
    TTL,
    DEAD_LETTER_EXCHANGE,
    DEAD_LETTER_KEY,
    LENGTH,
    LENGTH_BYTES,
    PRIORITY,
    OVERFLOW,
    MODE,
    QUEUE_VERSION,
    SINGLE_ACTIVE,
    TYPE,
    MASTER_LOCATOR,
    LEADER_LOCATOR,
    ORDER,
    PARTITION_BY,
];

/// What quorum queues know, in the order it is compared in.
const QUORUM: &[&str] = &[
    DEAD_LETTER_EXCHANGE,
    DEAD_LETTER_KEY,
    STRATEGY,
    EXPIRES,
    LENGTH,
    LENGTH_BYTES,
    MEMORY_LENGTH,
    MEMORY_BYTES,
    OVERFLOW,
    SINGLE_ACTIVE,
    TYPE,
    GROUP_SIZE,
    DELIVERY_LIMIT,
    TTL,
    LEADER_LOCATOR,
    ORDER,
    PARTITION_BY,
];

/// What streams know.
const STREAM: &[&str] = &[
    LENGTH_BYTES,
    TYPE,
    MAX_AGE,
    SEGMENT_BYTES,
    CLUSTER_SIZE,
    LEADER_LOCATOR,
    PARTITIONS,
    PARTITION_BY,
    FALLBACK,
];

/// What subscriptions know. No other type refuses what only they do: RabbitMQ takes it for names that nobody knows.
const SUBSCRIPTION: &[&str] = &[
    DEAD_LETTER_EXCHANGE,
    DEAD_LETTER_KEY,
    EXPIRES,
    SINGLE_ACTIVE,
    TYPE,
    DELIVERY_LIMIT,
    READS,
    START,
    BEHIND,
    ASSIGN,
    FILTER,
    ORDER,
    PARTITION_BY,
];

/// What every queue knows and RabbitMQ 3.10 takes for a name that nobody knows. A consumer timeout is not
/// among it: RabbitMQ looks at it only when it is needed.
const BEYOND: &[(&str, Check)] = &[
    (RETRY_TYPE, checks::retry_type),
    (RETRY_MIN, checks::time),
    (RETRY_MAX, checks::time),
    (DEDUP, checks::boolean),
    (DEDUP_TTL, checks::expires),
    (DEDUP_SIZE, checks::dedup_size),
    (RATE, checks::rate),
    (BURST, checks::burst),
    (BYTES_RATE, checks::bytes_rate),
    (ENQUEUE_RATE, checks::rate),
    (KEY_RATE, checks::key_rate),
];

/// What makes a queue's messages wait. Streams do not take it: who reads one has its own pace.
pub(super) const RATES: &[&str] = &[RATE, BURST, BYTES_RATE, ENQUEUE_RATE, KEY_RATE];

/// Of these, what is compared: as later versions of RabbitMQ do. The plugin that knows the others does
/// not compare them.
const COMPARED_BEYOND: &[&str] =
    &[RETRY_TYPE, RETRY_MIN, RETRY_MAX, RATE, BURST, BYTES_RATE, ENQUEUE_RATE, KEY_RATE];

fn known_to(queue_type: QueueType) -> &'static [&'static str] {
    match queue_type {
        QueueType::Classic => CLASSIC,
        QueueType::Quorum => QUORUM,
        QueueType::Stream => STREAM,
        QueueType::Subscription => SUBSCRIPTION,
    }
}

/// Which type the arguments ask for. What is no type is a classic queue.
pub(super) fn type_of(arguments: &Arguments) -> QueueType {
    match arguments.find(TYPE).and_then(Value::text) {
        Some("quorum") => QueueType::Quorum,
        Some("stream") => QueueType::Stream,
        Some("subscription") => QueueType::Subscription,
        Some(_) | None => QueueType::Classic,
    }
}

/// Whether the arguments of a new queue are valid. A stream is valid.
pub(super) fn validate(vhost: &str, name: &str, arguments: &Arguments) -> Result<(), DeclareError> {
    let invalid = |argument: &str, problem| DeclareError::InvalidArgument {
        kind: Kind::Queue,
        name: name.to_owned(),
        vhost: vhost.to_owned(),
        argument: argument.to_owned(),
        problem,
    };
    let judge = |argument: &str, check: Check| match arguments.find(argument) {
        Some(value) => check(value, arguments).map_err(|problem| invalid(argument, problem)),
        None => Ok(()),
    };
    if let Some(got) = arguments.find(DEAD_LETTER_EXCHANGE).filter(|value| !is_text(value)) {
        let problem = ArgumentProblem::InvalidType { got: got.clone() };
        return Err(invalid(DEAD_LETTER_EXCHANGE, problem));
    }
    judge(TYPE, checks::queue_type)?;
    let queue_type = type_of(arguments);
    let known = known_to(queue_type);
    for (argument, check) in VALIDATED.iter().filter(|(argument, _)| known.contains(argument)) {
        judge(argument, *check)?;
    }
    let is_of_another = |argument: &str| {
        let known_to_any = [CLASSIC, QUORUM, STREAM].iter().any(|all| all.contains(&argument));
        known_to_any && !known.contains(&argument)
    };
    if let Some((argument, _)) = arguments.0.iter().find(|(argument, _)| is_of_another(argument)) {
        return Err(invalid(argument, ArgumentProblem::NotForType(queue_type)));
    }
    if queue_type == QueueType::Subscription && arguments.find(READS).is_none() {
        return Err(invalid(READS, ArgumentProblem::NoStream));
    }
    // Of what a subscription gives out nobody counts the bytes, and nothing comes into it.
    let is_rate = |argument: &str| match queue_type {
        QueueType::Stream => RATES.contains(&argument),
        QueueType::Subscription => [BYTES_RATE, ENQUEUE_RATE].contains(&argument),
        QueueType::Classic | QueueType::Quorum => false,
    };
    if let Some((argument, _)) = arguments.0.iter().find(|(argument, _)| is_rate(argument)) {
        return Err(invalid(argument, ArgumentProblem::NotForType(queue_type)));
    }
    BEYOND.iter().try_for_each(|(argument, check)| judge(argument, *check))
}

/// The argument that asks for what the cluster has not, and its value. A cluster of some older nodes has neither rates nor
/// order by key.
pub(super) fn not_there(arguments: &Arguments, agreed: Version) -> Option<(&'static str, String)> {
    let absent = if agreed >= Version::RATES { &[][..] } else { RATES };
    let order = if agreed >= Version::KEY_ORDER { &[][..] } else { &[ORDER] };
    absent.iter().chain(order).find_map(|name| {
        let value = arguments.find(name)?;
        let text = value.text().map(str::to_owned);
        Some((*name, text.or(value.integer().map(|it| it.to_string())).unwrap_or_default()))
    })
}

fn is_text(value: &Value) -> bool {
    matches!(value, Value::LongStr(_))
}

/// Whether a second declaration means the same queue. No type means classic.
pub(super) fn compare(received: &Arguments, current: &Arguments) -> Result<(), Difference> {
    let is_classic = |arguments: &Arguments| {
        arguments.find(TYPE).is_none_or(|value| value.text() == Some("classic"))
    };
    for argument in known_to(type_of(current)).iter().chain(COMPARED_BEYOND) {
        if *argument == TYPE && is_classic(received) && is_classic(current) {
            continue;
        }
        if *argument == PARTITIONS && partitions_of(received) <= partitions_of(current) {
            // It has more now: who declares it as it was before means the same.
            continue;
        }
        compare::argument(argument, received, current)?;
    }
    Ok(())
}

/// How many partitions are asked for. What is no such number is one.
pub(super) fn partitions_of(arguments: &Arguments) -> u16 {
    let asked = arguments.find(PARTITIONS).and_then(Value::integer);
    asked.and_then(|count| u16::try_from(count).ok()).unwrap_or(1).clamp(1, PARTITIONS_MAX)
}
