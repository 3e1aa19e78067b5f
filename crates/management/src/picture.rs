//! How all queues of the cluster stand at one time: what lists, totals and the history read.

use std::collections::BTreeMap;

use machine::{HeldBack, NodeId, QueueId, QueueStatus};
use serde::{Deserialize, Serialize};

use crate::fronts::Front;
use crate::limits::RATE_SPAN_MAX_MS;
use crate::rates::{PerSecond, Totals};

/// All queues, as their leaders have said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Picture {
    /// Milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) queues: BTreeMap<QueueId, QueueStanding>,
}

/// How one queue stands.
#[derive(Clone, Debug)]
pub(crate) struct QueueStanding {
    /// Who leads it.
    pub(crate) node: NodeId,
    pub(crate) status: QueueStatus,
    /// Since the picture before.
    pub(crate) rates: PerSecond,
}

/// A queue's status as nodes tell it each other: its id, then the numbers of [`QueueStatus`], then what rates hold back
/// and filters passed over, where they do. Nodes older than both read rows without that alone, and in a cluster of such
/// nodes there is neither.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row(
    u64,
    [u64; 12],
    #[serde(default, skip_serializing_if = "Beside::is_none")] Beside,
);

/// Messages, their wait in milliseconds, and publishes that rates hold back; messages that a filter passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Beside([u64; 4]);

impl Beside {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Row {
    pub(crate) fn of(queue: QueueId, status: &QueueStatus) -> Self {
        let QueueStatus { ready, unsettled, consumers, delayed, leaving, counters, held_back } =
            status;
        let HeldBack { messages, wait_ms, publishes } = *held_back;
        let numbers = [
            *ready,
            *unsettled,
            u64::from(*consumers),
            *delayed,
            *leaving,
            counters.enqueued,
            counters.enqueued_bytes,
            counters.settled,
            counters.purged,
            counters.dropped,
            counters.dead_lettered,
            counters.duplicates,
        ];
        Self(queue.0, numbers, Beside([messages, wait_ms, publishes, counters.passed_over]))
    }

    fn status(self) -> (QueueId, QueueStatus) {
        let [
            ready,
            unsettled,
            consumers,
            delayed,
            leaving,
            enqueued,
            bytes,
            settled,
            purged,
            dropped,
            dead,
            twice,
        ] = self.1;
        let Beside([messages, wait_ms, publishes, passed_over]) = self.2;
        let counters = machine::Counters {
            enqueued,
            enqueued_bytes: bytes,
            settled,
            purged,
            dropped,
            dead_lettered: dead,
            duplicates: twice,
            passed_over,
            ..machine::Counters::default()
        };
        let consumers = u32::try_from(consumers).unwrap_or(u32::MAX);
        let held_back = HeldBack { messages, wait_ms, publishes };
        let status =
            QueueStatus { ready, unsettled, consumers, delayed, leaving, counters, held_back };
        (QueueId(self.0), status)
    }
}

impl Picture {
    /// What the nodes have said, with rates since the picture before. `partitions` says which queues some are of that
    /// nodes tell of: those stand as one.
    pub(crate) fn new(
        at_ms: u64,
        told: impl IntoIterator<Item = (NodeId, Vec<Row>)>,
        partitions: &BTreeMap<QueueId, QueueId>,
        before: Option<&Self>,
    ) -> Self {
        let before = before.filter(|before| at_ms.saturating_sub(before.at_ms) < RATE_SPAN_MAX_MS);
        let mut queues = BTreeMap::new();
        for (node, rows) in told {
            for (queue, status) in rows.into_iter().map(Row::status) {
                let rates = PerSecond::default();
                // Two nodes may both take themselves to lead for a moment: the one with more has heard more.
                let newer = |known: &QueueStanding| {
                    known.status.counters.enqueued >= status.counters.enqueued
                };
                if !queues.get(&queue).is_some_and(newer) {
                    queues.insert(queue, QueueStanding { node, status, rates });
                }
            }
        }
        for (partition, whole) in partitions {
            if let Some(standing) = queues.remove(partition)
                && let Some(whole) = queues.get_mut(whole)
            {
                whole.status.add_partition(&standing.status);
            }
        }
        if let Some(before) = before {
            let span_ms = at_ms.saturating_sub(before.at_ms);
            for (queue, standing) in &mut queues {
                let Some(known) = before.queues.get(queue) else { continue };
                let (from, to) = (totals(&known.status), totals(&standing.status));
                standing.rates = PerSecond::between(from, to, span_ms);
            }
        }
        Self { at_ms, queues }
    }
}

/// What a queue's rates are made of.
pub(crate) fn totals(status: &QueueStatus) -> Totals {
    let counters = &status.counters;
    let given = counters.settled.saturating_add(status.unsettled);
    Totals { published: counters.enqueued, acked: counters.settled, given }
}

/// What queues can be put in an order by without making their JSON. `None`: another column.
pub(crate) fn sort_key(path: &[String], standing: &QueueStanding, front: Front) -> Option<f64> {
    let status = &standing.status;
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let number = match path[..] {
        ["messages"] => status.ready + status.unsettled,
        ["messages_ready"] => status.ready,
        ["messages_unacknowledged"] => status.unsettled,
        ["consumers"] => u64::from(status.consumers),
        ["oldest_ready_at"] => front.oldest_ready_ms?,
        ["message_bytes_ready"] => front.ready_bytes?,
        ["message_stats", "publish"] => status.counters.enqueued,
        ["message_stats", "ack"] => status.counters.settled,
        ["message_stats", "publish_details", "rate"] => return Some(standing.rates.published),
        ["message_stats", "ack_details", "rate"] => return Some(standing.rates.acked),
        ["message_stats", "deliver_get_details", "rate"] => return Some(standing.rates.given),
        ["millrace", "delayed"] => status.delayed,
        ["millrace", "leaving"] => status.leaving,
        ["millrace", "held_back"] => status.held_back.messages,
        ["millrace", "held_back_ms"] => status.held_back.wait_ms,
        ["millrace", "held_back_publishes"] => status.held_back.publishes,
        _ => return None,
    };
    // Above 2^53 neighbours may change places.
    Some(number as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(enqueued: u64, ready: u64) -> QueueStatus {
        let counters = machine::Counters { enqueued, settled: 7, ..Default::default() };
        let held_back = HeldBack::default();
        QueueStatus {
            ready,
            unsettled: 2,
            consumers: 3,
            delayed: 4,
            leaving: 5,
            counters,
            held_back,
        }
    }

    #[test]
    fn a_row_says_all_of_a_status() {
        let row = Row::of(QueueId(9), &status(10, 1));
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(text, "[9,[1,2,3,4,5,10,0,7,0,0,0,0]]");
        let read: Row = serde_json::from_str(&text).unwrap();
        assert_eq!(read.status(), (QueueId(9), status(10, 1)));
        // Of a queue whose rate holds something back it says more.
        let held_back = HeldBack { messages: 7, wait_ms: 20, publishes: 3 };
        let held = QueueStatus { held_back, ..status(10, 1) };
        let text = serde_json::to_string(&Row::of(QueueId(9), &held)).unwrap();
        assert_eq!(text, "[9,[1,2,3,4,5,10,0,7,0,0,0,0],[7,20,3,0]]");
        let read: Row = serde_json::from_str(&text).unwrap();
        assert_eq!(read.status(), (QueueId(9), held));
    }

    #[test]
    fn rates_are_since_the_picture_before_and_the_newer_of_two_leaders_counts() {
        let told = |enqueued| vec![Row::of(QueueId(1), &status(enqueued, 1))];
        let first = Picture::new(1_000, [(NodeId(1), told(100))], &BTreeMap::new(), None);
        assert_eq!(first.queues[&QueueId(1)].rates.published, 0.0);
        let both = [(NodeId(1), told(100)), (NodeId(2), told(120)), (NodeId(3), told(90))];
        let second = Picture::new(3_000, both, &BTreeMap::new(), Some(&first));
        let standing = &second.queues[&QueueId(1)];
        assert_eq!((standing.node, standing.rates.published), (NodeId(2), 10.0));
        let late = Picture::new(
            3_000 + RATE_SPAN_MAX_MS,
            [(NodeId(1), told(900))],
            &BTreeMap::new(),
            Some(&second),
        );
        assert_eq!(late.queues[&QueueId(1)].rates.published, 0.0, "nobody looked for long");
    }

    #[test]
    fn the_partitions_of_a_queue_stand_as_one() {
        let row = |queue, enqueued| Row::of(QueueId(queue), &status(enqueued, 1));
        let partitions = BTreeMap::from([(QueueId(2), QueueId(1)), (QueueId(3), QueueId(1))]);
        let told = |more: u64| {
            [(NodeId(1), vec![row(1, 10)]), (NodeId(2), vec![row(2, 20 + more), row(4, 5)])]
        };
        let first = Picture::new(1_000, told(0), &partitions, None);
        let second = Picture::new(2_000, told(7), &partitions, Some(&first));
        assert_eq!(second.queues.keys().map(|id| id.0).collect::<Vec<_>>(), [1, 4]);
        let whole = &second.queues[&QueueId(1)];
        assert_eq!((whole.node, whole.status.counters.enqueued), (NodeId(1), 37));
        assert_eq!((whole.status.ready, whole.status.unsettled, whole.status.consumers), (2, 4, 3));
        assert_eq!(whole.rates.published, 7.0);
    }

    #[test]
    fn columns_with_numbers_have_keys() {
        let told = vec![Row::of(QueueId(1), &status(10, 6))];
        let picture = Picture::new(1, [(NodeId(1), told)], &BTreeMap::new(), None);
        let key = |path: &str| {
            let path: Vec<String> = path.split('.').map(str::to_owned).collect();
            let front = Front { oldest_ready_ms: Some(70), ready_bytes: None };
            sort_key(&path, &picture.queues[&QueueId(1)], front)
        };
        assert_eq!(key("messages"), Some(8.0));
        assert_eq!(key("message_stats.publish"), Some(10.0));
        assert_eq!(key("message_stats.publish_details.rate"), Some(0.0));
        assert_eq!(key("message_stats.deliver_get_details.rate"), Some(0.0));
        assert_eq!((key("oldest_ready_at"), key("message_bytes_ready")), (Some(70.0), None));
        assert_eq!(key("policy"), None);
    }

    #[test]
    fn what_is_acknowledged_and_what_is_out_was_given_to_consumers() {
        assert_eq!(totals(&status(10, 1)), Totals { published: 10, acked: 7, given: 9 });
    }
}
