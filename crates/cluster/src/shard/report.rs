//! How a shard's groups and their queues stand, for people and for tools.

use machine::{Attached, GroupId, NodeId, QueueId};

use super::Shard;
use crate::counted::who_votes;
use crate::described::DescribedQueue;
use crate::digests::Compared;
use crate::group::Group;
use crate::leadership::LeaderChange;

/// How one node sees its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Nodes that can be reached.
    pub up: Vec<NodeId>,
    pub groups: Vec<GroupReport>,
    /// Of groups that have no replica here: by whom they are led, as was last heard, and their voters.
    pub elsewhere: Vec<Elsewhere>,
}

/// A group without a replica on the node that reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    pub group: GroupId,
    pub leader: Option<NodeId>,
    /// As the catalog wants.
    pub voters: Vec<NodeId>,
    /// As the leader says, those included who vote until a change is over. None: it has not said it yet, or there is
    /// none in reach.
    pub counted: Option<Vec<NodeId>>,
}

/// How one replica of a group stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupReport {
    pub group: GroupId,
    /// As far as this replica knows.
    pub leader: Option<NodeId>,
    pub term: u64,
    /// On a majority's disks, as far as this replica knows.
    pub committed: u64,
    pub applied: u64,
    /// On this node's disk.
    pub persisted: u64,
    /// Who votes, as far as this replica knows: one that is behind, or is built anew, may know of older ones.
    pub voters: Vec<NodeId>,
    /// Who votes, as the leader says. None: there is no leader in reach, or a change of members is going on.
    pub counted: Option<Vec<NodeId>>,
    /// Those of them that voted before a change that is not over: all that is committed is on a majority of theirs.
    pub outgoing: Vec<NodeId>,
    pub learners: Vec<NodeId>,
    /// What each replica has on its disk: known to the leader only.
    pub matched: Vec<(NodeId, u64)>,
    /// Of the machine's replicated state at `applied`.
    pub digest: u64,
    /// How this replica compares with the others'. The catalog's does not.
    pub compared: Compared,
    /// Other nodes that took the group up lately, the oldest first: at most
    /// [`LEADER_CHANGES_KEPT`](crate::limits::LEADER_CHANGES_KEPT).
    pub leader_changes: Vec<LeaderChange>,
}

impl Shard {
    /// How the groups stand now. Digests cost a walk over everything the machines know.
    pub fn report(&self) -> Report {
        Report {
            up: self.peers.up().collect(),
            groups: self.report_groups(true),
            elsewhere: self.report_elsewhere(),
        }
    }

    /// The groups that this node keeps no replica of.
    pub fn report_elsewhere(&self) -> Vec<Elsewhere> {
        let is_here = |group: &GroupId| {
            *group == GroupId::CATALOG
                || self.groups.get(group).is_some_and(|found| !found.is_dismissed)
        };
        let wanted = self.members.wanted().filter(|(group, _)| !is_here(group));
        let report = |(group, voters): (GroupId, &[NodeId])| {
            let leader = self.peers.leader(group).map(|(_, node)| node);
            let leader = leader.filter(|node| self.peers.is_up(*node));
            let counted = self.peers.voters(group, self.clock.now.mono_ms).map(<[NodeId]>::to_vec);
            Elsewhere { group, leader, voters: voters.to_vec(), counted }
        };
        wanted.map(report).collect()
    }

    /// The same without other nodes; digests are 0 unless they are wanted.
    pub fn report_groups(&self, with_digests: bool) -> Vec<GroupReport> {
        let mut groups = Vec::new();
        if let Some(catalog) = &self.catalog {
            let digest = if with_digests { catalog.catalog().digest() } else { 0 };
            groups.push(self.report_group(&catalog.group, digest, Compared::default()));
        }
        for found in self.groups.values().filter(|found| !found.is_dismissed) {
            let digest = if with_digests { found.queues.machine().digest() } else { 0 };
            let compared = found.digests.compared();
            groups.push(self.report_group(&found.group, digest, compared));
        }
        groups
    }

    /// Who votes in a group, as its leader says.
    pub(super) fn counted(&self, group: &Group) -> Option<Vec<NodeId>> {
        let replica = &group.replica;
        // Who knows that a node was removed by the catalog's own log knows from there who votes in it.
        if replica.is_leader() || group.id == GroupId::CATALOG {
            return Some(who_votes(replica.log().members()));
        }
        self.peers.voters(group.id, self.clock.now.mono_ms).map(<[NodeId]>::to_vec)
    }

    fn report_group(&self, group: &Group, digest: u64, compared: Compared) -> GroupReport {
        let nodes = |nodes: &[u64]| nodes.iter().map(|node| NodeId(*node)).collect::<Vec<_>>();
        let replica = &group.replica;
        let members = replica.log().members();
        let learners = nodes(&members.learners);
        let voters = who_votes(members);
        let matched = voters
            .iter()
            .chain(&learners)
            .filter(|_| replica.is_leader())
            .filter_map(|node| Some((*node, replica.matched(*node)?)))
            .collect();
        GroupReport {
            group: group.id,
            leader: replica.leader(),
            term: replica.term(),
            committed: replica.committed(),
            applied: group.applied(),
            persisted: replica.persisted(),
            voters,
            counted: self.counted(group),
            outgoing: nodes(&members.voters_outgoing),
            learners,
            matched,
            digest,
            compared,
            leader_changes: group.leadership.changes(),
        }
    }

    /// Who consumes from queues of the groups that are led here, with what credit, and who holds what.
    pub fn attachments(&self) -> Vec<Attached> {
        let led = self.groups.values().filter(|found| found.group.serves());
        led.flat_map(|found| found.queues.machine().attachments()).collect()
    }

    /// The groups that are led here: their term, and what time it was there at the last step.
    pub fn group_times(&self) -> impl Iterator<Item = (GroupId, u64, u64)> + '_ {
        let led = self.groups.iter().filter(|(_, found)| found.group.serves());
        led.map(|(group, found)| {
            (*group, found.group.replica.term(), found.time.at(self.clock.now))
        })
    }

    /// The node that this shard is of.
    pub fn node(&self) -> NodeId {
        self.me.node
    }

    /// What a queue that is led here is like.
    pub(super) fn describe(&mut self, group: GroupId, queue: QueueId) -> Option<DescribedQueue> {
        let queue = self.queues(group)?.describe(queue)?;
        let described = DescribedQueue {
            queue,
            leader: self.me.node,
            term: 0,
            voters: Vec::new(),
            learners: Vec::new(),
        };
        let Some(replica) = self.replica(group).filter(|_| !group.is_local()) else {
            return Some(described);
        };
        let members = replica.log().members();
        let nodes = |ids: &[u64]| ids.iter().map(|id| NodeId(*id)).collect();
        let (voters, learners) = (nodes(&members.voters), nodes(&members.learners));
        Some(DescribedQueue { term: replica.term(), voters, learners, ..described })
    }
}
