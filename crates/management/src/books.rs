//! The books of queues, and whether replicas have done the same: what nodes tell each other, and how it is shown.

use std::collections::{BTreeMap, BTreeSet};

use cluster::Comparison;
use cluster::shard::GroupReport;
use machine::{Balance, NodeId, Queue, QueueId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::node::name_of;

/// What a node tells: the books of the queues that it leads, and the digests of its replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) queues: Vec<Row>,
    pub(crate) replicas: Vec<Replica>,
}

/// The books of a queue: its id, whether it is a stream, then the numbers of [`Balance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row(u64, bool, [u64; 10]);

/// A replica of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Replica {
    pub(crate) group: u32,
    pub(crate) leads: bool,
    /// The last entry that is in its digest, and the digest. None: none is kept.
    pub(crate) last: Option<(u64, u64)>,
    /// Its comparisons with other nodes: node, entry, this replica's digest there, that node's.
    pub(crate) with: Vec<(u64, u64, u64, u64)>,
}

impl Row {
    pub(crate) fn of(queue: QueueId, balance: &Balance) -> Self {
        let Balance { is_stream, came, came_bytes, done, purged, dropped, .. } = *balance;
        let Balance { dead_lettered, passed_over, open, duplicates, checksum, .. } = *balance;
        let numbers = [
            came,
            came_bytes,
            done,
            purged,
            dropped,
            dead_lettered,
            passed_over,
            open,
            duplicates,
            checksum,
        ];
        Self(queue.0, is_stream, numbers)
    }

    fn read(self) -> (QueueId, Balance) {
        let Self(queue, is_stream, numbers) = self;
        let [came, came_bytes, done, purged, dropped, rest @ ..] = numbers;
        let [dead_lettered, passed_over, open, duplicates, checksum] = rest;
        let balance = Balance {
            is_stream,
            came,
            came_bytes,
            done,
            purged,
            dropped,
            dead_lettered,
            passed_over,
            open,
            duplicates,
            checksum,
        };
        (QueueId(queue), balance)
    }
}

impl Replica {
    pub(crate) fn of(report: &GroupReport, me: NodeId) -> Self {
        let with = report.compared.with.iter();
        Self {
            group: report.group.0,
            leads: report.leader == Some(me),
            last: report.compared.last,
            with: with
                .map(|Comparison { node, index, ours, theirs }| (node.0, *index, *ours, *theirs))
                .collect(),
        }
    }
}

/// What all nodes told.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    queues: BTreeMap<QueueId, (NodeId, Balance)>,
    groups: BTreeMap<u32, Vec<(NodeId, Replica)>>,
}

impl Gathered {
    pub(crate) fn add(&mut self, node: NodeId, told: Told) {
        for (queue, balance) in told.queues.into_iter().map(Row::read) {
            // Two nodes may both take themselves to lead for a moment: the one with more has heard more.
            let newer = |(_, known): &(NodeId, Balance)| known.came >= balance.came;
            if !self.queues.get(&queue).is_some_and(newer) {
                self.queues.insert(queue, (node, balance));
            }
        }
        for replica in told.replicas {
            self.groups.entry(replica.group).or_default().push((node, replica));
        }
    }

    /// All queues, those first whose books are wrong.
    pub(crate) fn queues(&self) -> impl Iterator<Item = (QueueId, NodeId, &Balance)> {
        let all = || self.queues.iter().map(|(queue, (node, balance))| (*queue, *node, balance));
        let wrong = all().filter(|(_, _, balance)| !balance.is_right());
        wrong.chain(all().filter(|(_, _, balance)| balance.is_right()))
    }

    pub(crate) fn of(&self, queue: QueueId) -> Option<(NodeId, &Balance)> {
        self.queues.get(&queue).map(|(node, balance)| (*node, balance))
    }

    /// Each group with its replicas, and how many groups have replicas that differ.
    pub(crate) fn groups(&self) -> (Vec<Value>, usize) {
        let shown: Vec<(Value, bool)> =
            self.groups.iter().map(|(group, replicas)| shown_group(*group, replicas)).collect();
        let differing = shown.iter().filter(|(_, differs)| *differs).count();
        (shown.into_iter().map(|(value, _)| value).collect(), differing)
    }
}

/// A digest, as logs write it.
fn hex(digest: u64) -> String {
    format!("{digest:016x}")
}

fn shown_group(group: u32, replicas: &[(NodeId, Replica)]) -> (Value, bool) {
    // What the leader found is newer than what its followers found, and a follower may have heard nothing yet.
    let found = replicas.iter().flat_map(|(node, replica)| {
        replica.with.iter().map(move |with| (*node, replica.leads, *with))
    });
    let mut seen = BTreeSet::new();
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|(_, leads, _)| !leads);
    let mut comparisons = Vec::new();
    let mut group_differs = false;
    for (node, _, (other, index, ours, theirs)) in found {
        let differs = ours != theirs;
        group_differs |= differs;
        if seen.insert((node.0.min(other), node.0.max(other))) {
            comparisons.push(json!({
                "node": name_of(node),
                "with": name_of(NodeId(other)),
                "index": index,
                "digest": hex(ours),
                "digest_with": hex(theirs),
                "differs": differs,
            }));
        }
    }
    let replicas = replicas.iter().map(|(node, replica)| {
        json!({
            "node": name_of(*node),
            "leads": replica.leads,
            "index": replica.last.map(|(index, _)| index),
            "digest": replica.last.map(|(_, digest)| hex(digest)),
        })
    });
    let value = json!({
        "group": group,
        "differs": group_differs,
        "replicas": replicas.collect::<Vec<Value>>(),
        "comparisons": comparisons,
    });
    (value, group_differs)
}

/// The books of a queue with both sides.
pub(crate) fn shown_queue(
    (queue, id): (&Queue, QueueId),
    node: NodeId,
    balance: &Balance,
) -> Value {
    let mut value = json!({
        "vhost": queue.vhost,
        "name": queue.name,
        "node": name_of(node),
        "kind": if balance.is_stream { "stream" } else { "queue" },
        "came": balance.came,
        "accounted": balance.accounted(),
        "is_right": balance.is_right(),
        "bytes": balance.came_bytes,
        "checksum": hex(balance.checksum),
    });
    let parts = match balance.is_stream {
        true => {
            vec![("trimmed", balance.dropped + balance.dead_lettered), ("kept", balance.open)]
        }
        false => vec![
            ("done", balance.done),
            ("purged", balance.purged),
            ("dropped", balance.dropped),
            ("dead_lettered", balance.dead_lettered),
            ("passed_over", balance.passed_over),
            ("open", balance.open),
            ("duplicates", balance.duplicates),
        ],
    };
    if let Value::Object(fields) = &mut value {
        if queue.partition_count() > 1 {
            fields.insert("partition".to_owned(), queue.partition_index(id).into());
        }
        fields.extend(parts.into_iter().map(|(name, count)| (name.to_owned(), count.into())));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balance(came: u64, open: u64) -> Balance {
        Balance { came, done: came - open, open, checksum: 7, ..Balance::default() }
    }

    #[test]
    fn a_row_says_all_of_the_books() {
        let balance = Balance { is_stream: true, came_bytes: 9, ..balance(10, 4) };
        let row = Row::of(QueueId(3), &balance);
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(text, "[3,true,[10,9,6,0,0,0,0,4,0,7]]");
        let read: Row = serde_json::from_str(&text).unwrap();
        assert_eq!(read.read(), (QueueId(3), balance));
    }

    #[test]
    fn the_newer_of_two_leaders_counts_and_wrong_books_come_first() {
        let told = |rows: &[(u64, Balance)]| Told {
            queues: rows.iter().map(|(queue, it)| Row::of(QueueId(*queue), it)).collect(),
            replicas: Vec::new(),
        };
        let wrong = Balance { done: 5, ..balance(10, 4) };
        let mut gathered = Gathered::default();
        gathered.add(NodeId(1), told(&[(1, balance(10, 2)), (2, wrong)]));
        gathered.add(NodeId(2), told(&[(1, balance(12, 2))]));
        gathered.add(NodeId(3), told(&[(1, balance(11, 2))]));
        let order: Vec<_> = gathered.queues().map(|(queue, node, _)| (queue.0, node.0)).collect();
        assert_eq!(order, [(2, 1), (1, 2)]);
        assert_eq!(gathered.of(QueueId(2)).map(|(_, it)| it.is_right()), Some(false));
        assert_eq!(gathered.of(QueueId(9)), None);
    }

    #[test]
    fn a_group_differs_if_any_replica_has_found_so() {
        let replica = |leads, with: &[(u64, u64, u64, u64)]| Replica {
            group: 4,
            leads,
            last: Some((9, 0xab)),
            with: with.to_vec(),
        };
        let told = |replica| Told { queues: Vec::new(), replicas: vec![replica] };
        let mut gathered = Gathered::default();
        gathered.add(NodeId(2), told(replica(false, &[(1, 7, 5, 5)])));
        gathered.add(NodeId(1), told(replica(true, &[(2, 9, 6, 6), (3, 9, 6, 6)])));
        let (groups, differing) = gathered.groups();
        assert_eq!(differing, 0);
        let group = &groups[0];
        assert_eq!((&group["group"], &group["differs"]), (&json!(4), &json!(false)));
        let first = &group["comparisons"][0];
        let (index, with) = (&first["index"], &first["with"]);
        assert_eq!((index, with), (&json!(9), &json!("millrace@2")), "the leader's is newer");
        assert_eq!(group["comparisons"].as_array().map(Vec::len), Some(2), "each pair once");
        assert_eq!(group["replicas"][0]["digest"], "00000000000000ab");

        gathered.add(NodeId(3), told(replica(false, &[(1, 9, 7, 6)])));
        let (groups, differing) = gathered.groups();
        assert_eq!((differing, &groups[0]["differs"]), (1, &json!(true)));
    }
}
