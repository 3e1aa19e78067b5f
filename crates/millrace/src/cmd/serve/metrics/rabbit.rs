//! The same under RabbitMQ's names, so that its dashboards show a node.
//!
//! Sources: RabbitMQ's documentation of its Prometheus plugin, and what its Overview dashboard reads. What has no
//! meaning here is left out: `docs/operating/metrics.md` says what.

use broker::SIZE_BOUNDS;
use machine::QueueStatus;
use management::{ERLANG_VERSION, RABBITMQ_VERSION, cluster_name, name_of};

use super::family::{Family, Kind, Labels, Samples};
use super::seen::Seen;

/// What RabbitMQ's names begin with.
pub(super) const PREFIX: &str = "rabbitmq";

/// Where an answer comes from: a label of `rabbitmq_identity_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Aggregated,
    PerObject,
    Detailed,
}

impl Endpoint {
    fn name(self) -> &'static str {
        match self {
            Self::Aggregated => "aggregated",
            Self::PerObject => "per-object",
            Self::Detailed => "detailed",
        }
    }
}

/// What all answers say, but for queues.
pub(super) fn node_wide(seen: &Seen<'_>) -> Vec<Family> {
    let mut all = vec![build()];
    all.extend(totals(seen));
    all.extend(churn(PREFIX, seen));
    all.extend(coarse(PREFIX, seen));
    all.extend(limits(PREFIX, seen));
    all.extend(alarms(seen));
    all.extend(global(seen));
    all
}

/// Which node answers.
pub(super) fn identity(seen: &Seen<'_>, endpoint: Endpoint) -> Family {
    let labels = vec![
        ("rabbitmq_node", name_of(seen.node)),
        ("rabbitmq_cluster", cluster_name(seen.cluster)),
        ("rabbitmq_cluster_permanent_id", cluster_name(seen.cluster)),
        ("rabbitmq_endpoint", endpoint.name().to_owned()),
    ];
    always("identity_info", "The node and its cluster", labels)
}

fn build() -> Family {
    let labels = vec![
        ("rabbitmq_version", RABBITMQ_VERSION.to_owned()),
        ("erlang_version", ERLANG_VERSION.to_owned()),
        ("product_name", "Millrace".to_owned()),
        ("product_version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let meaning = "The release of RabbitMQ whose names these are, and the program";
    always("build_info", meaning, labels)
}

fn always(name: &'static str, meaning: &'static str, labels: Labels) -> Family {
    let samples = Samples::Each(vec![(labels, 1)]);
    Family { prefix: PREFIX, name, kind: Kind::Always, meaning, samples }
}

/// No number if there is none.
fn some(
    prefix: &'static str,
    name: &'static str,
    kind: Kind,
    meaning: &'static str,
    value: Option<u64>,
) -> Family {
    let samples = value.into_iter().map(|value| (Labels::new(), value)).collect();
    Family { prefix, name, kind, meaning, samples: Samples::Each(samples) }
}

fn read(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(std::sync::atomic::Ordering::Relaxed)
}

fn totals(seen: &Seen<'_>) -> Vec<Family> {
    let amqp = seen.counted.amqp;
    let now = |name, meaning, value| Family::one(PREFIX, name, Kind::Now, meaning, value);
    let connections = u64::try_from(seen.counted.connection_count).unwrap_or(u64::MAX);
    let mut all = vec![
        now("connections", "Connections that are open now", connections),
        now("channels", "Channels that are open now", read(&amqp.channels)),
        now("consumers", "Consumers of clients of this node", read(&amqp.consumers)),
    ];
    if let Some(led) = &seen.led {
        all.push(now("queues", "Queues that this node leads", led.queues.count));
    }
    all
}

/// `connection_churn_metrics`
pub(super) fn churn(prefix: &'static str, seen: &Seen<'_>) -> Vec<Family> {
    let amqp = seen.counted.amqp;
    let total = |name, meaning, value| Family::one(prefix, name, Kind::Total, meaning, value);
    let mut all = vec![
        total("connections_opened", "Connections opened", read(&amqp.connections_opened)),
        total("connections_closed", "Connections closed", read(&amqp.connections_closed)),
        total("channels_opened", "Channels opened", read(&amqp.channels_opened)),
        total("channels_closed", "Channels closed", read(&amqp.channels_closed)),
        total(
            "queues_declared",
            "Declarations of queues, those of existing queues included",
            read(&amqp.queues_declared),
        ),
    ];
    if let Some(led) = &seen.led {
        let (created, deleted) = (led.tally.created, led.tally.deleted);
        all.push(total("queues_created", "Queues that came to be at this leader", created));
        all.push(total("queues_deleted", "Queues that went at this leader", deleted));
    }
    all
}

/// `node_coarse_metrics`
pub(super) fn coarse(prefix: &'static str, seen: &Seen<'_>) -> Vec<Family> {
    let resources = &seen.resources;
    let now = |name, kind, meaning, value| some(prefix, name, kind, meaning, value);
    vec![
        now("process_open_fds", Kind::Now, "Files and sockets that are open", seen.open_files),
        now(
            "process_resident_memory",
            Kind::NowBytes,
            "Memory that the process holds",
            resources.memory_bytes,
        ),
        now(
            "disk_space_available",
            Kind::NowBytes,
            "Free space on the file system of the data directory",
            resources.disk_free_bytes,
        ),
    ]
}

/// `node_metrics`
pub(super) fn limits(prefix: &'static str, seen: &Seen<'_>) -> Vec<Family> {
    let resources = &seen.resources;
    let now = |name, kind, meaning, value| some(prefix, name, kind, meaning, value);
    vec![
        now("process_max_fds", Kind::Now, "Files that may be open", seen.open_files_max),
        now(
            "resident_memory_limit",
            Kind::NowBytes,
            "Publishers wait while the process holds more memory",
            Some(resources.memory_limit_bytes),
        ),
        now(
            "disk_space_available_limit",
            Kind::NowBytes,
            "Publishers wait while less space is free",
            Some(resources.disk_free_limit_bytes),
        ),
        now("erlang_uptime", Kind::NowMillis, "Time since the node started", Some(seen.uptime_ms)),
    ]
}

fn alarms(seen: &Seen<'_>) -> [Family; 2] {
    let alarms = seen.counted.alarms;
    let now = |name, meaning, is_raised| {
        Family::one(PREFIX, name, Kind::Now, meaning, u64::from(is_raised))
    };
    [
        now("alarms_memory_used_watermark", "1: publishers wait, memory is low", alarms.memory),
        now("alarms_free_disk_space_watermark", "1: publishers wait, the disk is low", alarms.disk),
    ]
}

/// What clients of this node did.
fn global(seen: &Seen<'_>) -> Vec<Family> {
    let amqp = seen.counted.amqp;
    let of = |kind, name, meaning, value| Family::one(PREFIX, name, kind, meaning, value);
    let total = |name, meaning, counter| of(Kind::Total, name, meaning, read(counter));
    let (counts, sum) = amqp.sizes.read();
    let samples = Samples::Histogram { labels: Labels::new(), bounds: &SIZE_BOUNDS, counts, sum };
    let all = vec![
        of(
            Kind::Now,
            "global_publishers",
            "Open channels that have published",
            read(&amqp.publishers),
        ),
        of(
            Kind::Now,
            "global_consumers",
            "Consumers of clients of this node",
            read(&amqp.consumers),
        ),
        total("global_messages_received", "Messages that publishers sent", &amqp.published),
        total(
            "global_messages_received_confirm",
            "Messages that publishers sent on channels with confirms",
            &amqp.published_confirm,
        ),
        total("global_messages_confirmed", "Messages confirmed with an ack", &amqp.confirmed),
        total(
            "global_messages_routed",
            "Queues that messages were routed to; a message for two queues counts twice",
            &amqp.routed,
        ),
        total(
            "global_messages_unroutable_returned",
            "Messages that no queue took, returned to their publisher",
            &amqp.returned,
        ),
        total(
            "global_messages_unroutable_dropped",
            "Messages that no queue took and whose publisher did not want them back",
            &amqp.unroutable_dropped,
        ),
        of(
            Kind::Total,
            "global_messages_delivered",
            "Messages sent to consumers and in answer to `basic.get`",
            read(&amqp.delivered) + read(&amqp.got),
        ),
        total(
            "global_messages_delivered_consume_manual_ack",
            "Messages sent to consumers that acknowledge",
            &amqp.delivered_manual_ack,
        ),
        total(
            "global_messages_delivered_consume_auto_ack",
            "Messages sent to consumers that do not acknowledge",
            &amqp.delivered_auto_ack,
        ),
        total(
            "global_messages_delivered_get_manual_ack",
            "Messages sent in answer to `basic.get`, to be acknowledged",
            &amqp.got_manual_ack,
        ),
        total(
            "global_messages_delivered_get_auto_ack",
            "Messages sent in answer to `basic.get`, not to be acknowledged",
            &amqp.got_auto_ack,
        ),
        total(
            "global_messages_get_empty",
            "Answers to `basic.get` without a message",
            &amqp.got_none,
        ),
        total(
            "global_messages_redelivered",
            "Messages sent to clients with the flag `redelivered`",
            &amqp.redelivered,
        ),
        total("global_messages_acknowledged", "Deliveries acked", &amqp.acked),
        Family {
            prefix: PREFIX,
            name: "message_size",
            kind: Kind::Sizes,
            meaning: "How large the bodies of published messages were",
            samples,
        },
    ];
    let protocol = vec![("protocol", "amqp091".to_owned())];
    all.into_iter().map(|family| family.with(&protocol)).collect()
}

const READY: &str = "Messages ready for consumers";
const UNACKED: &str = "Messages that consumers have and did not acknowledge";
const MESSAGES: &str = "Messages ready or not acknowledged";
const CONSUMERS: &str = "Consumers";

/// The queues that the node leads, together.
pub(super) fn queues_together(seen: &Seen<'_>) -> Vec<Family> {
    let Some(led) = &seen.led else { return Vec::new() };
    let queues = &led.queues;
    let (ready, unacked) = (queues.ready, queues.unacknowledged);
    let now = |name, meaning, value| Family::one(PREFIX, name, Kind::Now, meaning, value);
    vec![
        now("queue_messages_ready", READY, ready),
        now("queue_messages_unacked", UNACKED, unacked),
        now("queue_messages", MESSAGES, ready + unacked),
        now("queue_consumers", CONSUMERS, queues.consumers),
    ]
}

fn of_queues(
    prefix: &'static str,
    name: &'static str,
    meaning: &'static str,
    value: fn(&QueueStatus) -> u64,
) -> Family {
    Family { prefix, name, kind: Kind::Now, meaning, samples: Samples::Queues(value) }
}

/// `queue_coarse_metrics`, of each queue.
pub(super) fn queue_messages(prefix: &'static str, _: &Seen<'_>) -> Vec<Family> {
    vec![
        of_queues(prefix, "queue_messages_ready", READY, |it| it.ready),
        of_queues(prefix, "queue_messages_unacked", UNACKED, |it| it.unsettled),
        of_queues(prefix, "queue_messages", MESSAGES, |it| it.ready + it.unsettled),
    ]
}

/// `queue_consumer_count`, and what there is of `queue_metrics`, of each queue.
pub(super) fn queue_consumers(prefix: &'static str, _: &Seen<'_>) -> Vec<Family> {
    vec![of_queues(prefix, "queue_consumers", CONSUMERS, |it| u64::from(it.consumers))]
}

/// What each queue is.
pub(super) fn queue_info(prefix: &'static str) -> Family {
    let meaning = "The queue's type";
    let (name, kind, samples) = ("queue_info", Kind::Always, Samples::QueueInfo);
    Family { prefix, name, kind, meaning, samples }
}
