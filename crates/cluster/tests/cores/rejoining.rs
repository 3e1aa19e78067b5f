//! A replica whose files were damaged and quarantined comes back by what the others have.

use super::*;
use crate::cores::Core;

/// What each node has applied of each group.
fn applied(cluster: &Cluster) -> BTreeMap<GroupId, BTreeMap<NodeId, u64>> {
    let mut applied: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for core in &cluster.cores {
        for report in core.shards.iter().flat_map(|shard| shard.report_groups(false)) {
            applied.entry(report.group).or_default().insert(core.id, report.applied);
        }
    }
    applied
}

/// A bit flips in every message on a node's disk that begins with `text`. How many there were.
fn damage(core: &Core, text: &[u8]) -> usize {
    let mut count = 0;
    for path in core.disk.paths().into_iter().filter(|path| path.starts_with("wal/")) {
        let contents = core.disk.contents(&path).unwrap();
        for (at, _) in contents.windows(text.len()).enumerate().filter(|(_, part)| *part == text) {
            core.disk.flip_bit(&path, at as u64 * 8);
            count += 1;
        }
    }
    count
}

/// Three nodes, of which one follows in a group with so many messages: its log is quarantined when it starts again.
struct Damaged {
    cluster: Cluster,
    place: (QueueId, GroupId),
    leader: NodeId,
    follower: NodeId,
}

impl Damaged {
    fn new(count: u64, bytes: usize) -> Self {
        let mut cluster = Cluster::new(3, 1);
        let ann = session(NodeId(1));
        let place = cluster.declare(ann, "quiet", (true, false));
        let body = [&b"damaged"[..], &vec![b'x'; bytes]].concat();
        for ticket in 0..count {
            cluster.ask(ann, append(ticket, place, &body));
        }
        cluster.run(2000);
        assert_eq!(appended(&cluster.told(ann)).len() as u64, count);
        // Of the last record on a disk nobody can tell whether it was ever written.
        let after = cluster.declare(ann, "after", (true, false));
        cluster.ask(ann, append(count, after, b"whole"));
        cluster.run(2000);
        cluster.told(ann);

        let leader = cluster.leader(place.1);
        let follower = cluster.cores.iter().map(|core| core.id).find(|id| *id != leader).unwrap();
        assert!(damage(cluster.core(follower), b"damaged") as u64 >= count);
        Self { cluster, place, leader, follower }
    }

    fn is_behind(&self) -> bool {
        let applied = applied(&self.cluster);
        applied.values().any(|nodes| nodes.values().collect::<BTreeSet<_>>().len() > 1)
    }
}

#[test]
fn a_replica_whose_log_was_set_aside_catches_up_though_nothing_else_happens() {
    for (count, bytes) in [(3, 10), (60, 100 << 10)] {
        let mut it = Damaged::new(count, bytes);
        it.cluster.restart(it.follower);
        it.cluster.run(1);
        assert_eq!(applied(&it.cluster)[&it.place.1][&it.follower], 0, "its log was quarantined");
        it.cluster.run(3000);
        assert!(!it.is_behind(), "{count} messages: {:?}", applied(&it.cluster));
        // It may vote again: with the leader gone, the two that are left go on.
        for other in [1, 2, 3].map(NodeId).into_iter().filter(|id| *id != it.leader) {
            it.cluster.cut(it.leader, other);
        }
        it.cluster.run(5000);
        let by = session(it.follower);
        it.cluster.ask(by, append(1, it.place, b"behind"));
        it.cluster.run(1000);
        assert_eq!(appended(&it.cluster.told(by)), [1]);
    }
}

/// The answer to it tells the leader where the log ends, but not that entries are gone that it counts as acknowledged.
/// A leader that was not asked to forget them sends one message of entries for each heartbeat.
#[test]
fn a_replica_whose_log_was_set_aside_catches_up_at_once_though_an_append_comes_as_it_starts() {
    let mut it = Damaged::new(150, 100 << 10);
    it.cluster.restart(it.follower);
    let by = session(it.leader);
    it.cluster.ask(by, append(1, it.place, b"at once"));
    it.cluster.run(1000);
    assert_eq!(appended(&it.cluster.told(by)), [1]);
    assert!(!it.is_behind(), "{:?}", applied(&it.cluster));
}
