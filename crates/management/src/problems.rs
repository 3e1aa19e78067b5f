//! What is wrong now, and since when. Each node judges what it sees itself: its alarms, the queues that it leads, the
//! groups that it keeps, the nodes that it reaches. `words` says it in sentences, for the API and `millrace status`
//! alike.

mod gathered;
mod words;

use std::collections::BTreeMap;

use cluster::PeerStatus;
use cluster::shard::GroupReport;
use machine::{Catalog, GroupId, NodeId, Version};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use gathered::Gathered;
pub(crate) use words::{Listed, listed};

use crate::limits::PROBLEMS_OF_A_KIND_MAX;
use crate::looks::{Look, Looks};
use crate::node::Facts;

/// Messages that wait without a consumer from which on that is a problem: queues of dead letters have some for long.
const UNCONSUMED_MIN: u64 = 1000;

/// How long that lasts before it is one: consumers are restarted.
const UNCONSUMED_S: u64 = 20;

/// How long a queue with consumers grows at each look, or has messages unacked and none is acked.
const STUCK_S: u64 = 600;

/// How long dead letters wait and none is stored.
const LEAVING_S: u64 = 60;

/// How many entries a replica is behind, and how long.
const BEHIND_MIN: u64 = 10_000;
const BEHIND_S: u64 = 20;

/// How long a group has no leader: longer than an election.
const NO_LEADER_S: u64 = 5;

/// How long all members can read a version that the cluster does not write.
const VERSION_S: u64 = 60;

/// Free space below so many times the limit is little.
const DISK_TIMES: u64 = 2;

/// How long before a certificate expires somebody has to know, and has to act.
const CERTIFICATE_DAYS: i64 = 30;
const DAY_S: i64 = 24 * 60 * 60;

/// Something that is wrong. The numbers are those of the node that says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// No clients are let in.
    NotServing,
    MemoryAlarm {
        used: Option<u64>,
        limit: u64,
    },
    DiskAlarm {
        free: Option<u64>,
        limit: u64,
    },
    DiskLow {
        free: u64,
        limit: u64,
    },
    /// Seconds since 1970.
    CertificateExpires {
        at_s: i64,
    },
    Unreachable {
        node: u64,
        trouble: Option<String>,
    },
    /// Of the group where it is furthest behind.
    Behind {
        node: u64,
        entries: u64,
    },
    NoLeader {
        group: u32,
        reached: u64,
        voters: u64,
    },
    /// So many groups have no majority without the node that says so.
    QuorumCritical {
        groups: u64,
    },
    /// `held_by`: members that read no newer version.
    VersionBehind {
        agreed: u16,
        reads: u16,
        held_by: Vec<u64>,
    },
    /// `count`: the messages that it is about.
    Queue {
        queue: u64,
        is: OfQueue,
        count: u64,
    },
    /// This node's replica of the group and another node's have done different things.
    ReplicasDiffer {
        group: u32,
        node: u64,
        index: u64,
        ours: u64,
        theirs: u64,
    },
    /// Found by who asks: milliseconds by which the node's clock is ahead.
    ClockApart {
        node: u64,
        ahead_ms: i64,
    },
}

/// What is wrong with a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OfQueue {
    Unconsumed,
    Growing,
    Unacked,
    DeadLettersStuck,
}

impl OfQueue {
    const ALL: [Self; 4] = [Self::Unconsumed, Self::Growing, Self::Unacked, Self::DeadLettersStuck];

    /// How many messages it is about, and since when: seconds since 1970, or 0.
    fn of(self, look: &Look) -> (u64, u64) {
        match self {
            Self::Unconsumed if look.ready < UNCONSUMED_MIN => (look.ready, 0),
            Self::Unconsumed => (look.ready, look.since.unconsumed_s),
            Self::Growing => (look.ready, look.since.growing_s),
            Self::Unacked => (look.unacked, look.since.unacked_s),
            Self::DeadLettersStuck => (look.leaving, look.since.leaving_s),
        }
    }

    fn patience_s(self) -> u64 {
        match self {
            Self::Unconsumed => UNCONSUMED_S,
            Self::Growing | Self::Unacked => STUCK_S,
            Self::DeadLettersStuck => LEAVING_S,
        }
    }
}

/// A problem of a node, and since when it knows of it: seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Problem {
    pub(crate) what: What,
    pub(crate) since_s: u64,
}

/// What a node says when it is asked.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) now_ms: u64,
    /// As [`Problem`]: what is not understood is of a newer version, and left out.
    pub(crate) problems: Vec<Value>,
    /// More are there.
    pub(crate) left_out: u64,
}

/// Which problem it is, wherever it is seen.
pub(crate) type Key = (u8, u64);

impl What {
    /// Problems with the same key are the same. `by`: who says so.
    pub(crate) fn key(&self, by: NodeId) -> Key {
        match self {
            Self::NotServing => (0, by.0),
            Self::MemoryAlarm { .. } => (1, by.0),
            Self::DiskAlarm { .. } => (2, by.0),
            Self::DiskLow { .. } => (3, by.0),
            Self::CertificateExpires { .. } => (4, by.0),
            Self::Unreachable { node, .. } => (5, *node),
            Self::Behind { node, .. } => (6, *node),
            Self::NoLeader { group, .. } => (7, u64::from(*group)),
            Self::QuorumCritical { .. } => (8, by.0),
            Self::VersionBehind { .. } => (9, 0),
            Self::Queue { queue, is, .. } => (10 + *is as u8, *queue),
            Self::ClockApart { node, .. } => (14, *node),
            Self::ReplicasDiffer { group, .. } => (32, u64::from(*group)),
        }
    }

    /// Seconds that it lasts before anybody is told.
    fn patience_s(&self) -> u64 {
        match self {
            Self::Queue { is, .. } => is.patience_s(),
            Self::Behind { .. } => BEHIND_S,
            Self::NoLeader { .. } => NO_LEADER_S,
            Self::VersionBehind { .. } => VERSION_S,
            Self::NotServing
            | Self::MemoryAlarm { .. }
            | Self::DiskAlarm { .. }
            | Self::DiskLow { .. }
            | Self::CertificateExpires { .. }
            | Self::Unreachable { .. }
            | Self::QuorumCritical { .. }
            | Self::ReplicasDiffer { .. }
            | Self::ClockApart { .. } => 0,
        }
    }
}

/// What a node looks at.
pub(crate) struct Around<'a> {
    pub(crate) facts: &'a Facts,
    pub(crate) catalog: &'a Catalog,
    /// Of which this node has a replica.
    pub(crate) groups: &'a [GroupReport],
    pub(crate) peers: &'a [PeerStatus],
    /// The newest version that this node reads.
    pub(crate) reads: Version,
}

impl Around<'_> {
    fn is_up(&self, node: NodeId) -> bool {
        node == self.facts.node || self.peers.iter().any(|peer| peer.node == node && peer.is_up)
    }
}

/// What a node knows to be wrong, from look to look.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Also what does not last long enough yet to be told.
    begun: BTreeMap<Key, u64>,
    problems: Vec<Problem>,
    left_out: u64,
}

impl Watch {
    /// Looks at everything.
    pub(crate) fn look(&mut self, now_s: u64, around: &Around<'_>, looks: &Looks) {
        let me = around.facts.node;
        let mut found = Vec::new();
        of_node(around, &mut found);
        of_groups(around, &mut found);
        let begun = std::mem::take(&mut self.begun);
        let since = |what: &What| begun.get(&what.key(me)).copied().unwrap_or(now_s).min(now_s);
        let mut problems: Vec<Problem> =
            found.into_iter().map(|what| Problem { since_s: since(&what), what }).collect();
        self.begun = problems.iter().map(|it| (it.what.key(me), it.since_s)).collect();
        self.left_out = of_queues(now_s, looks, &mut problems);
        let lasts = |it: &Problem| now_s.saturating_sub(it.since_s) >= it.what.patience_s();
        problems.retain(lasts);
        self.problems = problems;
    }

    pub(crate) fn told(&self, now_ms: u64) -> Told {
        let value = |problem: &Problem| serde_json::to_value(problem).ok();
        let problems = self.problems.iter().filter_map(value).collect();
        Told { now_ms, problems, left_out: self.left_out }
    }
}

fn of_node(around: &Around<'_>, found: &mut Vec<What>) {
    let Around { facts, catalog, peers, reads, .. } = around;
    let resources = &facts.resources;
    if facts.amqp.is_none() {
        found.push(What::NotServing);
    }
    if facts.alarms.memory {
        let (used, limit) = (resources.memory_bytes, resources.memory_limit_bytes);
        found.push(What::MemoryAlarm { used, limit });
    }
    let (free, limit) = (resources.disk_free_bytes, resources.disk_free_limit_bytes);
    match free {
        _ if facts.alarms.disk => found.push(What::DiskAlarm { free, limit }),
        Some(free) if free < limit.saturating_mul(DISK_TIMES) => {
            found.push(What::DiskLow { free, limit });
        }
        Some(_) | None => {}
    }
    let soon = facts.now_s.saturating_add(CERTIFICATE_DAYS * DAY_S);
    if let Some(at_s) = facts.certificate_expires_s.filter(|at_s| *at_s <= soon) {
        found.push(What::CertificateExpires { at_s });
    }
    for peer in peers.iter().filter(|peer| !peer.is_up) {
        let trouble = peer.trouble.clone();
        found.push(What::Unreachable { node: peer.node.0, trouble });
    }
    let agreed = catalog.agreed();
    if *reads > agreed {
        let held = peers.iter().filter(|peer| peer.speaks.is_none_or(|it| it <= agreed));
        let held_by = held.map(|peer| peer.node.0).collect();
        found.push(What::VersionBehind { agreed: agreed.0, reads: reads.0, held_by });
    }
}

fn of_groups(around: &Around<'_>, found: &mut Vec<What>) {
    let mut behind = BTreeMap::<NodeId, u64>::new();
    for group in around.groups {
        let reached = group.voters.iter().filter(|voter| around.is_up(**voter)).count();
        if group.leader.is_none_or(|leader| !around.is_up(leader)) {
            let (reached, voters) = (reached as u64, group.voters.len() as u64);
            found.push(What::NoLeader { group: group.group.0, reached, voters });
        }
        if let Some(it) = group.compared.with.iter().find(|it| it.differs()) {
            found.push(What::ReplicasDiffer {
                group: group.group.0,
                node: it.node.0,
                index: it.index,
                ours: it.ours,
                theirs: it.theirs,
            });
        }
        for (node, matched) in &group.matched {
            let entries = group.persisted.saturating_sub(*matched);
            let most = behind.entry(*node).or_default();
            *most = entries.max(*most);
        }
    }
    let late = behind.into_iter().filter(|(_, entries)| *entries >= BEHIND_MIN);
    found.extend(late.map(|(node, entries)| What::Behind { node: node.0, entries }));
    let up = |node| around.is_up(node);
    let critical = critical_groups(around.catalog, around.facts.node, up).len();
    if critical > 0 {
        found.push(What::QuorumCritical { groups: critical as u64 });
    }
}

/// Groups that have no majority without `me`, of the nodes that are up.
pub(crate) fn critical_groups(
    catalog: &Catalog,
    me: NodeId,
    is_up: impl Fn(NodeId) -> bool,
) -> Vec<u32> {
    let is_critical = |voters: &[NodeId]| {
        let others = voters.iter().filter(|voter| **voter != me && is_up(**voter)).count();
        voters.len() > 1 && voters.contains(&me) && others < voters.len() / 2 + 1
    };
    let groups = (1..=catalog.group_count()).map(GroupId).chain([GroupId::CATALOG]);
    groups.filter(|group| is_critical(catalog.voters(*group))).map(|group| group.0).collect()
}

/// Adds the worst of each kind. How many more there are.
fn of_queues(now_s: u64, looks: &Looks, problems: &mut Vec<Problem>) -> u64 {
    let mut left_out = 0;
    for is in OfQueue::ALL {
        let all = looks.iter().filter_map(|look| {
            let (count, since_s) = is.of(look);
            let lasts = since_s > 0 && now_s.saturating_sub(since_s) >= is.patience_s();
            let what = What::Queue { queue: look.queue.0, is, count };
            lasts.then_some((count, Problem { what, since_s }))
        });
        let mut all: Vec<(u64, Problem)> = all.collect();
        all.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        left_out += all.len().saturating_sub(PROBLEMS_OF_A_KIND_MAX) as u64;
        all.truncate(PROBLEMS_OF_A_KIND_MAX);
        problems.extend(all.into_iter().map(|(_, problem)| problem));
    }
    left_out
}

#[cfg(test)]
pub(crate) mod tests;
