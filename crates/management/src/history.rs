//! How the node and the queues that it leads stood over the last two days, without Prometheus: in memory only, so a node
//! begins anew when it starts.
//!
//! Each node keeps what it sees itself. What is asked for is merged over the nodes: a queue's points are those of its
//! leaders, one after the other, and the totals are the sum of all nodes. Only so many queues are kept: those that
//! somebody asks for, and those with most going on.

mod merged;
mod ring;
pub(crate) mod samples;

use std::collections::{BTreeMap, BTreeSet};

use machine::QueueId;

pub(crate) use merged::{Merged, Told};
pub(crate) use ring::{Numbers, SPAN_S_MAX, Window};

use crate::limits::{HISTORY_QUEUES_MAX, HISTORY_WATCHED_MAX, HISTORY_WATCHED_S};
use crate::looks::{Look, Looks};
use crate::node::{Facts, Totals};

/// What a point of a queue says: heights first.
pub(crate) const QUEUE_NUMBERS: [&str; 4] =
    ["messages_ready", "messages_unacknowledged", "publish", "ack"];

/// What a point of a node says: heights first.
pub(crate) const NODE_NUMBERS: [&str; 15] = [
    "messages_ready",
    "messages_unacknowledged",
    "queues",
    "connections",
    "channels",
    "consumers",
    "memory_mib",
    "disk_free_mib",
    "publish",
    "confirm",
    "return_unroutable",
    "drop_unroutable",
    "deliver",
    "get",
    "ack",
];

pub(crate) type QueuePoint = Numbers<{ QUEUE_NUMBERS.len() }>;
pub(crate) type NodePoint = Numbers<{ NODE_NUMBERS.len() }>;
pub(crate) type QueueSeries = ring::Series<{ QUEUE_NUMBERS.len() }, 2>;
type NodeSeries = ring::Series<{ NODE_NUMBERS.len() }, 8>;

/// By how much a queue must be busier than the least busy one that is kept to take its place.
const BUSIER: u64 = 2;

/// A clock that is set back by more than this begins history again: its points would be in the future.
const BACK_S_MAX: u64 = 60;

/// What this node has seen.
#[derive(Debug, Default)]
pub(crate) struct History {
    last_s: u64,
    node: NodeSeries,
    /// Of the node at the last look.
    totals: Option<Totals>,
    queues: BTreeMap<QueueId, QueueSeries>,
    /// Queues that were asked for, and when last.
    watched: BTreeMap<QueueId, u64>,
    left_out: u64,
}

impl History {
    /// Adds what the node has seen since the last time. `is_there` says whether a queue that is not led here still exists.
    pub(crate) fn add(
        &mut self,
        now_s: u64,
        facts: &Facts,
        looks: &Looks,
        is_there: impl Fn(QueueId) -> bool,
    ) {
        if now_s + BACK_S_MAX < self.last_s {
            *self = Self::default();
        }
        self.last_s = now_s;
        let point = node_point(facts, looks, self.totals.as_ref());
        self.node.add(now_s, point);
        self.totals = Some(facts.totals);
        self.watched.retain(|_, asked_s| now_s < *asked_s + HISTORY_WATCHED_S);
        // A queue that another node leads now keeps its past here.
        self.queues.retain(|queue, _| looks.find(*queue).is_some() || is_there(*queue));
        self.choose(looks);
        for look in looks.iter() {
            if let Some(series) = self.queues.get_mut(&look.queue) {
                series.add(now_s, point_of(look));
            }
        }
    }

    /// Takes in queues with more going on than those that are kept.
    fn choose(&mut self, looks: &Looks) {
        let rank = |queue: QueueId, busy: u64| match self.watched.contains_key(&queue) {
            true => u64::MAX,
            false => busy,
        };
        let busy = |queue: &QueueId| looks.find(*queue).map_or(0, |look| look.busy);
        let mut kept: BTreeSet<(u64, QueueId)> =
            self.queues.keys().map(|queue| (rank(*queue, busy(queue)), *queue)).collect();
        let others = looks.iter().filter(|look| !self.queues.contains_key(&look.queue));
        let ranked = others.map(|look| (rank(look.queue, look.busy), look.queue));
        let mut others: Vec<(u64, QueueId)> = ranked.filter(|(rank, _)| *rank > 0).collect();
        others.sort_unstable_by(|one, other| other.cmp(one));
        let mut taken = 0;
        for (rank, queue) in &others {
            if kept.len() >= HISTORY_QUEUES_MAX {
                let least = kept.first().copied();
                let Some((least_rank, least)) = least else { break };
                if *rank <= least_rank.saturating_mul(BUSIER) {
                    break;
                }
                kept.remove(&(least_rank, least));
                self.queues.remove(&least);
            }
            kept.insert((*rank, *queue));
            self.queues.insert(*queue, QueueSeries::default());
            taken += 1;
        }
        assert!(self.queues.len() <= HISTORY_QUEUES_MAX, "so many queues are kept");
        self.left_out = (others.len() - taken) as u64;
    }

    /// Notes that somebody asked for a queue: it is kept before others.
    pub(crate) fn watch(&mut self, queue: QueueId, now_s: u64) {
        self.watched.insert(queue, now_s);
        while self.watched.len() > HISTORY_WATCHED_MAX {
            let oldest = self.watched.iter().min_by_key(|(_, asked_s)| **asked_s);
            let Some((oldest, _)) = oldest.map(|(queue, asked_s)| (*queue, *asked_s)) else {
                break;
            };
            self.watched.remove(&oldest);
        }
    }

    pub(crate) fn node(&self, window: Window) -> Vec<Option<NodePoint>> {
        self.node.read(window)
    }

    /// `None`: nothing is kept of it.
    pub(crate) fn queue(&self, queue: QueueId, window: Window) -> Option<Vec<Option<QueuePoint>>> {
        self.queues.get(&queue).map(|series| series.read(window))
    }

    /// Bytes that points take.
    pub(crate) fn bytes(&self) -> usize {
        self.node.bytes() + self.queues.values().map(QueueSeries::bytes).sum::<usize>()
    }

    pub(crate) fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// Queues in which something goes on, and that are not kept.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }
}

fn number(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn point_of(look: &Look) -> QueuePoint {
    [number(look.ready), number(look.unacked), look.published, look.acked]
}

fn node_point(facts: &Facts, looks: &Looks, before: Option<&Totals>) -> NodePoint {
    let (mut ready, mut unacked, mut queues) = (0, 0, 0);
    for look in looks.iter() {
        ready += look.ready;
        unacked += look.unacked;
        queues += 1;
    }
    let mib = |bytes: Option<u64>| bytes.unwrap_or_default() >> 20;
    let totals = &facts.totals;
    let since = |count: fn(&Totals) -> u64| {
        before.map_or(0, |before| count(totals).saturating_sub(count(before)))
    };
    [
        ready,
        unacked,
        queues,
        totals.connections,
        totals.channels,
        totals.consumers,
        mib(facts.resources.memory_bytes),
        mib(facts.resources.disk_free_bytes),
        since(|it| it.published),
        since(|it| it.confirmed),
        since(|it| it.returned),
        since(|it| it.dropped),
        since(|it| it.delivered),
        since(|it| it.got),
        since(|it| it.acked),
    ]
    .map(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::looks::tests::status;
    use crate::node::tests::facts;

    fn seen(history: &mut History, looks: &mut Looks, now_s: u64, queues: &[(u64, u64)]) {
        let led = queues.iter().map(|(id, count)| (QueueId(*id), status(*count, 0, *count, 0)));
        looks.look(now_s, led.collect());
        let facts = facts();
        history.add(now_s, &facts, looks, |queue| queue == QueueId(7));
    }

    #[test]
    fn queues_in_which_nothing_goes_on_take_no_memory() {
        let (mut history, mut looks) = Default::default();
        for round in 0..3 {
            let idle = (0..5000).map(|id| (id, 9)).chain([(9_000, round * 10)]);
            seen(&mut history, &mut looks, 100 + round * 10, &idle.collect::<Vec<_>>());
        }
        assert_eq!((history.queue_count(), history.left_out()), (1, 0));
        let window = Window { step_s: 10, first: 10, count: 3 };
        let points = history.queue(QueueId(9_000), window).unwrap();
        assert_eq!(points, [None, Some([10, 0, 10, 0]), Some([20, 0, 10, 0])]);
        assert_eq!(history.node(window)[2].unwrap()[..3], [45_020, 0, 5001]);
    }

    #[test]
    fn so_many_queues_are_kept_and_they_are_the_busiest_and_those_asked_for() {
        let (mut history, mut looks) = Default::default();
        let queues_max = HISTORY_QUEUES_MAX as u64;
        let at = |round: u64, busy: u64| -> Vec<(u64, u64)> {
            let all = (0..queues_max + 10).map(|id| (id, round * (100 + id)));
            all.chain([(900_000, busy), (900_001, 0)]).collect()
        };
        seen(&mut history, &mut looks, 10, &at(0, 0));
        seen(&mut history, &mut looks, 20, &at(1, 0));
        assert_eq!((history.queue_count(), history.left_out()), (HISTORY_QUEUES_MAX, 10));
        let window = Window { step_s: 10, first: 2, count: 1 };
        assert!(history.queue(QueueId(0), window).is_none(), "the least busy has no place");
        history.watch(QueueId(900_001), 20);
        seen(&mut history, &mut looks, 30, &at(2, 1_000_000));
        assert!(history.queue(QueueId(900_000), window).is_some(), "a busy one takes a place");
        assert!(history.queue(QueueId(900_001), window).is_some(), "so does one that is asked for");
        assert_eq!(history.queue_count(), HISTORY_QUEUES_MAX);
        // Young rings are small.
        assert!(history.bytes() < 2_000 * HISTORY_QUEUES_MAX + 10_000, "{}", history.bytes());
    }

    /// The busiest broker takes as much memory as the bounds say, and no more: see `HISTORY_QUEUES_MAX`.
    #[test]
    fn ten_thousand_busy_queues_take_no_more_than_26_mib_in_two_days() {
        const QUEUE_BYTES_MAX: usize = 26 << 10;
        let (mut history, mut looks) = Default::default();
        // Far enough apart for 48 hours, and near enough for each ring to keep all its points.
        for round in 0..=SPAN_S_MAX / 3_000 {
            let all = (0..10_000).map(|id| (id, round * (100 + id))).collect::<Vec<_>>();
            seen(&mut history, &mut looks, 3_000 + round * 3_000, &all);
        }
        assert_eq!((history.queue_count(), history.left_out()), (HISTORY_QUEUES_MAX, 9_000));
        let one = history.queues.values().map(QueueSeries::bytes).max().unwrap();
        assert!((25 << 10..=QUEUE_BYTES_MAX).contains(&one), "{one} bytes: the rings are full");
        let all = history.bytes() - history.node.bytes();
        assert!(all <= HISTORY_QUEUES_MAX * QUEUE_BYTES_MAX, "{all}");
        assert!(history.bytes() < 27 << 20, "{} with those of the node", history.bytes());
    }

    #[test]
    fn a_queue_that_moved_keeps_its_past_and_one_that_is_gone_has_none() {
        let (mut history, mut looks) = Default::default();
        for round in 0..3 {
            seen(&mut history, &mut looks, 10 + round * 10, &[(7, round), (8, round)]);
        }
        seen(&mut history, &mut looks, 40, &[]);
        let window = Window { step_s: 10, first: 3, count: 2 };
        assert_eq!(history.queue(QueueId(7), window).unwrap(), [Some([2, 0, 1, 0]), None]);
        assert!(history.queue(QueueId(8), window).is_none());
        history.watch(QueueId(7), 40);
        seen(&mut history, &mut looks, 40 - BACK_S_MAX.min(39), &[]);
        assert_eq!(history.queue_count(), 1, "a clock that goes back a little");
    }

    #[test]
    fn a_clock_that_is_set_back_begins_history_again() {
        let (mut history, mut looks) = Default::default();
        seen(&mut history, &mut looks, 10_000, &[(1, 0)]);
        seen(&mut history, &mut looks, 10_010, &[(1, 5)]);
        assert_eq!(history.queue_count(), 1);
        seen(&mut history, &mut looks, 1_000, &[(1, 5)]);
        let window = Window { step_s: 10, first: 100, count: 1 };
        assert!(history.node(window)[0].is_some());
    }

    #[test]
    fn only_so_many_queues_are_remembered_as_asked_for() {
        let mut history = History::default();
        for queue in 0..=HISTORY_WATCHED_MAX as u64 {
            history.watch(QueueId(queue), 10 + queue);
        }
        assert_eq!(history.watched.len(), HISTORY_WATCHED_MAX);
        assert!(!history.watched.contains_key(&QueueId(0)));
    }
}
