//! What `/metrics` says under Millrace's own names.

use broker::Metrics;
use cluster::Counters;
use cluster::histogram::TIME_BOUNDS_US;
use machine::NodeId;

use super::family::{Family, Kind, Labels, Samples};
use super::row::{PREFIX, families};
use super::seen::{Led, Queues, Seen};

/// All of them.
pub(super) fn own(seen: &Seen<'_>) -> Vec<Family> {
    let mut all = vec![each(
        "build_info",
        Kind::Always,
        "The program's version",
        vec![(vec![("version", env!("CARGO_PKG_VERSION").to_owned())], 1)],
    )];
    all.extend(node(seen));
    all.extend(families(&seen.counted.rows()));
    all.extend(times(seen.counted.counters, seen.counted.amqp));
    all.extend(seen.led.iter().flat_map(|led| queues(&led.queues, led)));
    all.extend(seen.led.iter().flat_map(|led| groups(led, seen.node)));
    all
}

fn each(
    name: &'static str,
    kind: Kind,
    meaning: &'static str,
    samples: Vec<(Labels, u64)>,
) -> Family {
    Family { prefix: PREFIX, name, kind, meaning, samples: Samples::Each(samples) }
}

fn one(name: &'static str, kind: Kind, meaning: &'static str, value: u64) -> Family {
    Family::one(PREFIX, name, kind, meaning, value)
}

/// No number if there is none.
fn some(name: &'static str, kind: Kind, meaning: &'static str, value: Option<u64>) -> Family {
    each(name, kind, meaning, value.into_iter().map(|value| (Labels::new(), value)).collect())
}

fn node(seen: &Seen<'_>) -> [Family; 8] {
    let resources = &seen.resources;
    [
        one("ready", Kind::Now, "1: clients may come", u64::from(seen.is_ready)),
        one("uptime", Kind::NowMillis, "Time since the node started", seen.uptime_ms),
        some("memory", Kind::NowBytes, "Memory that the process holds", resources.memory_bytes),
        one(
            "memory_limit",
            Kind::NowBytes,
            "Publishers wait while the process holds more memory",
            resources.memory_limit_bytes,
        ),
        some(
            "disk_free",
            Kind::NowBytes,
            "Free space on the file system of the data directory",
            resources.disk_free_bytes,
        ),
        one(
            "disk_free_limit",
            Kind::NowBytes,
            "Publishers wait while less space is free",
            resources.disk_free_limit_bytes,
        ),
        some("open_files", Kind::Now, "Files and sockets that are open", seen.open_files),
        some("open_files_max", Kind::Now, "Files that may be open", seen.open_files_max),
    ]
}

fn times(counters: &Counters, amqp: &Metrics) -> [Family; 2] {
    let of = |name, meaning, (counts, sum)| {
        let samples =
            Samples::Histogram { labels: Labels::new(), bounds: &TIME_BOUNDS_US, counts, sum };
        Family { prefix: PREFIX, name, kind: Kind::Times, meaning, samples }
    };
    [
        of("log_sync_duration", "How long syncs of the log took", counters.sync_times.read()),
        of(
            "commit",
            "How long it took from when a client's messages were handed to their group until a majority had synced \
             them; what one read of the socket brought for one group counts once",
            amqp.commit_times.read(),
        ),
    ]
}

fn queues(queues: &Queues, led: &Led) -> [Family; 7] {
    let states = [
        ("ready", queues.ready),
        ("unacknowledged", queues.unacknowledged),
        ("delayed", queues.delayed),
        ("dead", queues.dead),
    ];
    let states = states.map(|(state, count)| (vec![("state", state.to_owned())], count));
    let books = &queues.books;
    let parts = [
        ("came", books.came),
        ("done", books.done),
        ("purged", books.purged),
        ("dropped", books.dropped),
        ("dead_lettered", books.dead_lettered),
        ("passed_over", books.passed_over),
        ("open", books.open),
    ];
    let parts = parts.map(|(part, count)| (vec![("part", part.to_owned())], count));
    [
        one("queues", Kind::Now, "Queues that this node leads", queues.count),
        each(
            "messages",
            Kind::Now,
            "Messages in the queues that this node leads, by state; `dead`: on their way to where dead letters go",
            states.to_vec(),
        ),
        one(
            "queue_consumers",
            Kind::Now,
            "Consumers of the queues that this node leads, whichever node their clients are at",
            queues.consumers,
        ),
        one(
            "queues_created",
            Kind::Total,
            "Queues that came to be while this node led them",
            led.tally.created,
        ),
        one(
            "queues_deleted",
            Kind::Total,
            "Queues that went while this node led them: deleted by a client, expired, or gone with their last \
             consumer, their connection or their vhost",
            led.tally.deleted,
        ),
        each(
            "books_messages",
            Kind::Now,
            "The books of the queues that this node leads, added up: `came` is as much as the others together. \
             Messages that a stream's retention let go are `dropped`",
            parts.to_vec(),
        ),
        one(
            "books_wrong",
            Kind::Now,
            "Queues that this node leads and whose books are wrong: a message is unaccounted for, or counted twice",
            queues.wrong,
        ),
    ]
}

fn groups(led: &Led, me: NodeId) -> [Family; 8] {
    let by_node = |(node, value): (NodeId, u64)| (vec![("node", node.0.to_string())], value);
    let by_group =
        |(group, is_led): (u32, bool)| (vec![("group", group.to_string())], u64::from(is_led));
    let (compared, differed) = led.compared();
    let others = led.others().map(|(node, is_up)| (node, u64::from(is_up)));
    [
        each(
            "group_led",
            Kind::Now,
            "1: this node leads the group; only groups of which it has a replica. Group 0 is the catalog",
            led.led_groups(me).map(by_group).collect(),
        ),
        one(
            "groups_without_leader",
            Kind::Now,
            "Groups of which this node has a replica and knows no leader: their queues stand still",
            led.leaderless_count(),
        ),
        one(
            "groups_without_spare",
            Kind::Now,
            "Groups that this node leads and that stop if one more of their replicas is lost",
            led.spareless_count(me),
        ),
        each(
            "replication_lag_entries",
            Kind::Now,
            "Committed entries that another node does not have on its disk, the most of all groups that this node \
             leads",
            led.lags(me).into_iter().map(by_node).collect(),
        ),
        each(
            "peer_up",
            Kind::Now,
            "1: this node reaches the other node",
            others.map(by_node).collect(),
        ),
        one(
            "digests_compared",
            Kind::Total,
            "Times that a replica of this node compared with another node's what it has done",
            compared,
        ),
        one(
            "digests_differing",
            Kind::Total,
            "Those of them that showed a difference: one of the two has applied an entry wrongly, or has lost \
             something",
            differed,
        ),
        each(
            "group_differs",
            Kind::Now,
            "1: this node's replica of the group differs from another; only groups whose replicas were compared",
            led.differing_groups().map(by_group).collect(),
        ),
    ]
}
