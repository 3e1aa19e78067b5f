//! What is read of a node for one answer.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use cluster::shard::{GroupReport, LedQueue};
use cluster::{Resources, Tally};
use machine::{Balance, Catalog, NodeId, QueueId, QueueStatus, QueueType};

use super::family::Shown;
use super::rows::Counted;

/// Everything of it.
pub(super) struct Seen<'a> {
    pub(super) counted: Counted<'a>,
    pub(super) node: NodeId,
    /// The cluster's number, as its data directories have it.
    pub(super) cluster: u128,
    pub(super) resources: Resources,
    /// None: it could not be looked at.
    pub(super) open_files: Option<u64>,
    /// None: there is no limit.
    pub(super) open_files_max: Option<u64>,
    pub(super) uptime_ms: u64,
    pub(super) is_ready: bool,
    /// None: the groups did not say in time.
    pub(super) led: Option<Led>,
}

/// What a node leads, and how its groups stand.
#[derive(Debug, Default)]
pub(super) struct Led {
    pub(super) queues: Queues,
    pub(super) tally: Tally,
    /// The other members of the cluster.
    pub(super) others: Vec<NodeId>,
}

/// Queues of which the node leads the groups, or which are in its memory.
#[derive(Debug, Default)]
pub(super) struct Queues {
    pub(super) count: u64,
    pub(super) ready: u64,
    pub(super) unacknowledged: u64,
    pub(super) delayed: u64,
    pub(super) dead: u64,
    pub(super) consumers: u64,
    /// The books of all of them, added up.
    pub(super) books: Balance,
    /// Those whose books are wrong.
    pub(super) wrong: u64,
    /// Those that were looked for, and are not shown one by one.
    pub(super) left_out: u64,
}

/// Which queues are shown one by one: of these vhosts, those with the most messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) queues_max: usize,
    /// None: of all of them.
    pub(super) vhosts: Option<BTreeSet<String>>,
}

/// Takes queues in as they are told of, and keeps those that are shown.
#[derive(Debug)]
pub(super) struct Gathered {
    wanted: Wanted,
    queues: Queues,
    /// By how many messages they have; of several with as many the younger go first.
    kept: BTreeMap<(u64, Reverse<QueueId>), QueueStatus>,
}

impl Gathered {
    pub(super) fn new(wanted: Wanted) -> Self {
        Self { wanted, queues: Queues::default(), kept: BTreeMap::new() }
    }

    /// Some more queues. `vhost` says where a queue is; nowhere: it was deleted meanwhile.
    pub(super) fn add<'v>(
        &mut self,
        some: &[LedQueue],
        vhost: impl Fn(QueueId) -> Option<&'v str>,
    ) {
        for LedQueue { queue, status, balance, .. } in some {
            let QueueStatus { ready, unsettled, consumers, delayed, leaving, .. } = *status;
            self.queues.count += 1;
            self.queues.ready += ready;
            self.queues.unacknowledged += unsettled;
            self.queues.delayed += delayed;
            self.queues.dead += leaving;
            self.queues.consumers += u64::from(consumers);
            self.queues.wrong += u64::from(!balance.is_right());
            let books = &mut self.queues.books;
            books.came += balance.came;
            books.done += balance.done;
            books.purged += balance.purged;
            books.dropped += balance.dropped;
            books.dead_lettered += balance.dead_lettered;
            books.passed_over += balance.passed_over;
            books.open += balance.open;
            let is_wanted = match &self.wanted.vhosts {
                None => true,
                Some(vhosts) => vhost(*queue).is_some_and(|vhost| vhosts.contains(vhost)),
            };
            if !is_wanted {
                continue;
            }
            self.kept.insert((ready + unsettled, Reverse(*queue)), *status);
            if self.kept.len() > self.wanted.queues_max {
                self.kept.pop_first();
                self.queues.left_out += 1;
            }
        }
    }

    /// All of them are there: the sums, and those that are shown, with their names and in no order.
    pub(super) fn named(self, catalog: &Catalog) -> (Queues, Vec<Shown>) {
        let mut wholes: BTreeMap<QueueId, QueueStatus> = BTreeMap::new();
        for ((_, Reverse(queue)), status) in self.kept {
            // The partitions that this node leads are one queue to whoever looks.
            let whole = catalog.partitions().get(&queue).copied().unwrap_or(queue);
            match wholes.entry(whole) {
                Entry::Vacant(new) => _ = new.insert(status),
                Entry::Occupied(mut known) => known.get_mut().add_partition(&status),
            }
        }
        let named = wholes.into_iter().filter_map(|(queue, status)| {
            let queue = catalog.queue_by_id(queue)?;
            let queue_type = match queue.queue_type() {
                QueueType::Classic => "rabbit_classic_queue",
                QueueType::Quorum => "rabbit_quorum_queue",
                QueueType::Stream => "rabbit_stream_queue",
                QueueType::Subscription => "millrace_subscription",
            };
            let (vhost, queue) = (queue.vhost.clone(), queue.name.clone());
            Some(Shown { vhost, queue, queue_type, status })
        });
        (self.queues, named.collect())
    }
}

impl Led {
    /// Groups of which this node has a replica, and whether it leads them.
    pub(super) fn led_groups(&self, me: NodeId) -> impl Iterator<Item = (u32, bool)> {
        self.tally.groups.iter().map(move |it| (it.group.0, it.leader == Some(me)))
    }

    /// Groups of which this node has a replica, and knows no leader.
    pub(super) fn leaderless_count(&self) -> u64 {
        self.tally.groups.iter().filter(|it| it.leader.is_none()).count() as u64
    }

    /// Comparisons of this node's replicas with others, and those of them that showed a difference.
    pub(super) fn compared(&self) -> (u64, u64) {
        let all = self.tally.groups.iter().map(|it| (it.compared.count, it.compared.differed));
        all.fold((0, 0), |(count, differed), (more, of_them)| (count + more, differed + of_them))
    }

    /// Groups of which this node's replica was compared with another, and whether they differ.
    pub(super) fn differing_groups(&self) -> impl Iterator<Item = (u32, bool)> {
        let compared = self.tally.groups.iter().filter(|it| !it.compared.with.is_empty());
        compared.map(|it| (it.group.0, it.compared.with.iter().any(cluster::Comparison::differs)))
    }

    /// Groups that this node leads and that stop if one more of their replicas is lost. A group that has but one
    /// replica is none of them.
    pub(super) fn spareless_count(&self, me: NodeId) -> u64 {
        let is_there = |node: &NodeId| *node == me || self.tally.up.contains(node);
        let is_spareless = |it: &&GroupReport| {
            let alive = it.voters.iter().filter(|node| is_there(node)).count();
            it.leader == Some(me) && it.voters.len() > 1 && alive <= it.voters.len() / 2 + 1
        };
        self.tally.groups.iter().filter(is_spareless).count() as u64
    }

    /// How many committed entries other nodes do not have on their disks: the most of all groups that this node leads.
    pub(super) fn lags(&self, me: NodeId) -> BTreeMap<NodeId, u64> {
        let mut lags = BTreeMap::new();
        for report in self.tally.groups.iter().filter(|it| it.leader == Some(me)) {
            for (node, matched) in report.matched.iter().filter(|(node, _)| *node != me) {
                let lag = lags.entry(*node).or_default();
                *lag = report.committed.saturating_sub(*matched).max(*lag);
            }
        }
        lags
    }

    /// The other members, and whether they can be reached.
    pub(super) fn others(&self) -> impl Iterator<Item = (NodeId, bool)> {
        self.others.iter().map(|node| (*node, self.tally.up.contains(node)))
    }
}

#[cfg(test)]
mod tests {
    use machine::{Counters, GroupId};

    use super::*;

    fn led(queue: u64, ready: u64) -> LedQueue {
        let counters = Counters::default();
        let (unsettled, consumers, delayed, leaving) = (1, 2, 3, 4);
        let held_back = machine::HeldBack::default();
        let status =
            QueueStatus { ready, unsettled, consumers, delayed, leaving, counters, held_back };
        let balance = Balance { came: ready + 5, done: 5, open: ready, ..Balance::default() };
        let front = machine::Front::default();
        LedQueue { group: GroupId(1), queue: QueueId(queue), status, balance, front }
    }

    #[test]
    fn those_with_the_most_messages_are_shown_and_all_are_in_the_sums() {
        let vhosts = Some(BTreeSet::from(["shop".to_owned()]));
        let mut gathered = Gathered::new(Wanted { queues_max: 2, vhosts });
        let vhost = |queue: QueueId| Some(if queue.0 < 10 { "shop" } else { "else" });
        gathered.add(&[led(1, 0), led(2, 9), led(11, 99)], vhost);
        let mut lost = led(3, 0);
        lost.balance.came += 1;
        gathered.add(&[lost, led(4, 1)], vhost);
        let kept: Vec<_> = gathered.kept.keys().map(|(depth, it)| (*depth, it.0.0)).collect();
        assert_eq!(kept, [(2, 4), (10, 2)]);
        let Queues { count, ready, unacknowledged, delayed, dead, consumers, .. } = gathered.queues;
        let Queues { left_out, books, wrong, .. } = gathered.queues;
        assert_eq!((count, ready, unacknowledged), (5, 109, 5));
        assert_eq!((delayed, dead, consumers, left_out), (15, 20, 10, 2));
        assert_eq!((books.came, books.accounted(), wrong), (135, 134, 1));
    }

    fn report(group: u32, leader: Option<u64>, matched: &[(u64, u64)]) -> GroupReport {
        let nodes = |nodes: &[u64]| nodes.iter().map(|node| NodeId(*node)).collect::<Vec<_>>();
        GroupReport {
            group: GroupId(group),
            leader: leader.map(NodeId),
            term: 1,
            committed: 100,
            applied: 100,
            persisted: 100,
            voters: nodes(&[1, 2, 3]),
            counted: None,
            outgoing: Vec::new(),
            learners: Vec::new(),
            matched: matched.iter().map(|(node, index)| (NodeId(*node), *index)).collect(),
            digest: 0,
            compared: cluster::Compared::default(),
            leader_changes: Vec::new(),
        }
    }

    #[test]
    fn groups_are_judged_by_the_node_that_leads_them() {
        let groups = vec![
            report(1, Some(1), &[(1, 100), (2, 90), (3, 40)]),
            report(2, Some(1), &[(1, 100), (2, 70), (3, 101)]),
            report(3, Some(2), &[]),
            report(4, None, &[]),
        ];
        let tally = Tally { groups, up: vec![NodeId(2)], ..Tally::default() };
        let led = Led { tally, others: vec![NodeId(2), NodeId(3)], ..Led::default() };
        let me = NodeId(1);
        assert_eq!(led.lags(me), BTreeMap::from([(NodeId(2), 30), (NodeId(3), 60)]));
        assert_eq!((led.leaderless_count(), led.spareless_count(me)), (1, 2));
        let all: Vec<_> = led.led_groups(me).collect();
        assert_eq!(all, [(1, true), (2, true), (3, false), (4, false)]);
        let others: Vec<_> = led.others().collect();
        assert_eq!(others, [(NodeId(2), true), (NodeId(3), false)]);
    }
}
