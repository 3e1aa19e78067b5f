//! The nodes of the cluster, and which of them keep which group.
//!
//! The catalog says who should: carrying it out, one change of a Raft group's members after the
//! other, is the cluster's.

mod wide;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::placement::{Goal, NodeStatus, lead, place};
use super::refusal::{MembershipProblem, Refusal};
use super::{Catalog, CatalogCommand, CatalogEffect};
use crate::encoding::digest;
use crate::ids::{GroupId, NodeId, QueueId};
use crate::limits::{
    ADDRESS_BYTES_MAX, GROUPS_MAX, LOCK_SLOTS, NODE_ID_MAX, NODES_MAX, REPLICAS, REPLICAS_MAX,
};
pub(super) use wide::{WIDE_SINCE, Wide};

/// A node as the cluster knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    pub node: NodeId,
    /// Where its peers reach it. Empty: not told yet, a node alone.
    pub address: String,
    /// Which life of its data directory. 0: not told yet.
    pub incarnation: u64,
}

/// Who is in the cluster, and who keeps what. Replicated.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    pub(super) groups_per_node: u32,
    pub(super) nodes: BTreeMap<NodeId, NodeInfo>,
    /// Numbers of nodes that were removed.
    pub(super) retired: BTreeSet<NodeId>,
    /// By group, from the catalog's; the first is to lead.
    pub(super) voters: Vec<Vec<NodeId>>,
    /// By group: those it began with.
    pub(super) founders: Vec<Vec<NodeId>>,
    /// Which groups are wide, once the cluster has agreed on `WIDE_SINCE`. None: all are, if a group has more voters
    /// than usual.
    pub(super) wide: Option<Wide>,
}

impl Membership {
    /// A first start: groups of queues go round the nodes in order of their numbers, at most three
    /// voters each, so that each node has as many and leads as many.
    pub(super) fn genesis(nodes: &[NodeInfo], group_count: u32, groups_per_node: u32) -> Self {
        let nodes: BTreeMap<_, _> = nodes.iter().map(|it| (it.node, it.clone())).collect();
        let ids: Vec<NodeId> = nodes.keys().copied().collect();
        let replicas = REPLICAS.min(ids.len());
        let of_group = |group: usize| {
            let round = ids.iter().copied().cycle();
            round.skip(group % ids.len()).take(replicas).collect()
        };
        let mut voters = vec![ids.clone()];
        voters.extend((0..group_count as usize).map(of_group));
        let founders = voters.clone();
        Self { groups_per_node, nodes, retired: BTreeSet::new(), voters, founders, wide: None }
    }

    /// Moves what must be moved so that all groups have their voters among the nodes.
    fn repair(&mut self) {
        let statuses = self.nodes.keys().map(|node| (*node, NodeStatus::Serving)).collect();
        let replicas = self.all_replicas();
        let groups = self.voters.split_off(1);
        self.voters.extend(place(&statuses, groups, Goal::Repair, &replicas));
    }

    /// How many voters each group of queues is to have, where there are as many nodes.
    fn all_replicas(&self) -> Vec<usize> {
        let groups = 1..self.voters.len() as u32;
        match &self.wide {
            Some(wide) => groups.map(|group| wide.replicas(GroupId(group))).collect(),
            None => vec![self.replicas_of_before(); groups.len()],
        }
    }

    /// The same number for all, as before there were wide groups: more than usual if an operator has given some
    /// group more.
    fn replicas_of_before(&self) -> usize {
        let most = self.voters[1..].iter().map(Vec::len).max();
        if most > Some(REPLICAS) { REPLICAS_MAX } else { REPLICAS }
    }

    /// From now on it is held which groups are wide: as many as until now.
    pub(super) fn begin_wide(&mut self) {
        if self.wide.is_none() {
            let is_wide = self.replicas_of_before() == REPLICAS_MAX;
            self.wide = Some(Wide { per_node: 0, groups: BTreeSet::new() });
            self.set_wide(if is_wide { self.groups_per_node } else { 0 });
        }
    }

    fn set_wide(&mut self, per_node: u32) {
        let Some(wide) = &mut self.wide else { return };
        wide.per_node = per_node.min(self.groups_per_node);
        let is_all = wide.per_node == self.groups_per_node;
        let count = (wide.per_node as usize).saturating_mul(self.nodes.len());
        wide.choose(if is_all { usize::MAX } else { count }, &self.voters);
    }

    /// Whether a group of queues may have so many voters.
    fn may_have(&self, group: GroupId, voters: usize) -> bool {
        match &self.wide {
            Some(wide) => (1..=wide.replicas(group)).contains(&voters),
            None => (1..=self.replicas_of_before()).contains(&voters) || voters == REPLICAS_MAX,
        }
    }
}

impl Catalog {
    /// The nodes, by number.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.membership.nodes.values()
    }

    pub fn node(&self, node: NodeId) -> Option<&NodeInfo> {
        self.membership.nodes.get(&node)
    }

    /// Whether a node of that number was removed: it is never given again.
    pub fn is_retired(&self, node: NodeId) -> bool {
        self.membership.retired.contains(&node)
    }

    /// The nodes that have queues in memory.
    pub fn nodes_with_memory(&self) -> impl Iterator<Item = NodeId> {
        let after = |node: Option<NodeId>| match node {
            Some(node) => {
                let last = Bound::Excluded((node, QueueId(u64::MAX)));
                self.local.range((last, Bound::Unbounded)).next()
            }
            None => self.local.first(),
        };
        let node = move |node| after(node).map(|(node, _)| *node);
        std::iter::successors(node(None), move |last| node(Some(*last)))
    }

    /// The numbers of all nodes that were removed.
    pub fn retired(&self) -> impl Iterator<Item = NodeId> {
        self.membership.retired.iter().copied()
    }

    /// The nodes that are to keep a group, the one first that is to lead it. Empty: no such group, or
    /// one of a node's memory.
    pub fn voters(&self, group: GroupId) -> &[NodeId] {
        self.membership.voters.get(group.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// The voters that a group began with, on every node the same: a log that is read from its first
    /// entry on is read with these.
    pub fn founders(&self, group: GroupId) -> &[NodeId] {
        self.membership.founders.get(group.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// The voter that is to lead a group while it can.
    pub fn preferred_leader(&self, group: GroupId) -> Option<NodeId> {
        self.voters(group).first().copied()
    }

    /// How many voters a group of queues is to have, where there are as many nodes.
    pub fn replicas(&self, group: GroupId) -> usize {
        match &self.membership.wide {
            Some(wide) => wide.replicas(group),
            None => self.membership.replicas_of_before(),
        }
    }

    /// Grows when nodes, groups or voters change.
    pub fn membership_version(&self) -> u64 {
        self.membership_version
    }

    /// How many groups of queues each node brings with it.
    pub fn groups_per_node(&self) -> u32 {
        self.membership.groups_per_node
    }

    /// The group that keeps a lock: one of those that the cluster's first node brought. There are as many of these for
    /// as long as there is the cluster, so a lock stays where it is when nodes and groups come and go.
    pub fn lock_group(&self, vhost: &str, name: &str) -> GroupId {
        let bytes = [vhost.as_bytes(), &[0], name.as_bytes()].concat();
        let slot = (digest(&bytes) >> 32) as u32 % LOCK_SLOTS;
        GroupId(1 + slot % self.membership.groups_per_node)
    }

    /// The groups that keep locks.
    pub fn lock_groups(&self) -> impl Iterator<Item = GroupId> + use<> {
        (1..=self.membership.groups_per_node.min(LOCK_SLOTS)).map(GroupId)
    }

    /// The commands that bring the groups where they should be, the nodes standing as they do. Each
    /// is for one group and holds for itself.
    pub fn placement_changes(
        &self,
        status: impl Fn(NodeId) -> NodeStatus,
        goal: Goal,
    ) -> Vec<CatalogCommand> {
        self.changes(status, goal, &self.membership.all_replicas())
    }

    /// The same, and every group gets `replicas` voters, or as many as there are nodes: `limits::REPLICAS` or
    /// `limits::REPLICAS_MAX`. Groups that are made later get as many. Only before the cluster holds which groups
    /// are wide: from then on `SetWideGroups` says so.
    pub fn replica_changes(
        &self,
        status: impl Fn(NodeId) -> NodeStatus,
        replicas: usize,
    ) -> Vec<CatalogCommand> {
        self.changes(status, Goal::Balance, &vec![replicas; self.group_count as usize])
    }

    fn changes(
        &self,
        status: impl Fn(NodeId) -> NodeStatus,
        goal: Goal,
        replicas: &[usize],
    ) -> Vec<CatalogCommand> {
        let nodes: BTreeMap<_, _> =
            self.membership.nodes.keys().map(|node| (*node, status(*node))).collect();
        let current = &self.membership.voters;
        let mut catalog = current[0].clone();
        let can_lead = |node: &NodeId| nodes.get(node) == Some(&NodeStatus::Serving);
        if !catalog.first().is_some_and(can_lead)
            && let Some(fit) = catalog.iter().copied().find(can_lead)
        {
            lead(&mut catalog, fit);
        }
        let mut wanted = vec![catalog];
        wanted.extend(place(&nodes, current[1..].to_vec(), goal, replicas));
        let groups = (0..).map(GroupId).zip(wanted).zip(current);
        let changed = groups.filter(|((_, wanted), current)| wanted != *current);
        changed.map(|((group, voters), _)| CatalogCommand::SetVoters { group, voters }).collect()
    }

    pub(super) fn check_add_node(
        &self,
        node: NodeId,
        address: &str,
        incarnation: u64,
    ) -> Result<(), Refusal> {
        let refuse = |problem| Err(Refusal::Membership(problem));
        if !(1..=NODE_ID_MAX).contains(&node.0) {
            return refuse(MembershipProblem::InvalidNode { node });
        }
        if address.is_empty() || address.len() > ADDRESS_BYTES_MAX {
            return refuse(MembershipProblem::InvalidAddress { address: address.to_owned() });
        }
        match self.node(node) {
            Some(&NodeInfo { incarnation: known, .. }) if known != 0 && known != incarnation => {
                return refuse(MembershipProblem::OtherIncarnation { node, known });
            }
            None if self.membership.retired.contains(&node) => {
                return refuse(MembershipProblem::Retired { node });
            }
            None if self.membership.nodes.len() >= NODES_MAX => {
                return refuse(MembershipProblem::TooManyNodes { max: NODES_MAX });
            }
            Some(_) | None => {}
        }
        match self.nodes().find(|other| other.address == address && other.node != node) {
            Some(other) => {
                let (address, by) = (address.to_owned(), other.node);
                refuse(MembershipProblem::AddressInUse { address, by })
            }
            None => Ok(()),
        }
    }

    /// A node that is known may have moved, or tell its incarnation at last. A new one brings groups.
    pub(super) fn add_node(&mut self, added: NodeInfo) -> bool {
        let node = added.node;
        let membership = &mut self.membership;
        let before = membership.nodes.insert(node, added);
        if let Some(before) = before {
            return self.node(node) != Some(&before);
        }
        membership.voters[0].push(node);
        let grown = membership.groups_per_node.saturating_mul(membership.nodes.len() as u32);
        self.group_count = self.group_count.max(grown.min(GROUPS_MAX));
        let first_new = membership.voters.len() as u32;
        membership.voters.resize(self.group_count as usize + 1, Vec::new());
        if let Some(wide) = &mut membership.wide {
            wide.take_new(first_new..=self.group_count);
        }
        membership.repair();
        let begun = membership.founders.len();
        membership.founders.extend_from_slice(&membership.voters[begun..]);
        self.group_queues.resize(self.group_count as usize, 0);
        true
    }

    pub(super) fn check_remove_node(&self, node: NodeId) -> Result<(), Refusal> {
        if self.membership.nodes.len() == 1 && self.node(node).is_some() {
            return Err(Refusal::Membership(MembershipProblem::LastNode { node }));
        }
        Ok(())
    }

    /// What lives in its memory goes with it. Its groups stay, with other voters.
    pub(super) fn remove_node(&mut self, node: NodeId, effects: &mut Vec<CatalogEffect>) -> bool {
        if self.membership.nodes.remove(&node).is_none() {
            return false;
        }
        self.membership.retired.insert(node);
        self.membership.voters[0].retain(|voter| *voter != node);
        self.membership.repair();
        self.start_node(node, effects);
        true
    }

    pub(super) fn check_set_voters(
        &self,
        group: GroupId,
        voters: &[NodeId],
    ) -> Result<(), Refusal> {
        let refuse = |problem| Err(Refusal::Membership(problem));
        if self.voters(group).is_empty() {
            return refuse(MembershipProblem::NoGroup { group });
        }
        let mut distinct = voters.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let is_whole = match group {
            GroupId::CATALOG => distinct.len() == self.membership.nodes.len(),
            _ => self.membership.may_have(group, voters.len()),
        };
        let are_nodes = distinct.iter().all(|node| self.node(*node).is_some());
        if !is_whole || !are_nodes || distinct.len() != voters.len() {
            return refuse(MembershipProblem::InvalidVoters { group });
        }
        Ok(())
    }

    /// Makes this the catalog of another cluster, which has these nodes and no others: for a restore from a backup, never
    /// on a cluster that runs. Groups stay, and with them queues and their numbers. What was in the memory of the
    /// cluster's former nodes is gone with them.
    pub fn refound(&mut self, nodes: &[NodeInfo]) {
        assert!(!nodes.is_empty(), "a cluster has nodes");
        let former: BTreeSet<NodeId> =
            self.membership.nodes.keys().copied().chain(self.nodes_with_memory()).collect();
        for node in former {
            self.start_node(node, &mut Vec::new());
        }
        let (groups_per_node, wide) =
            (self.membership.groups_per_node, self.membership.wide.take());
        self.membership = Membership::genesis(nodes, self.group_count, groups_per_node);
        if wide.is_some() {
            self.membership.wide = wide;
            // Wide groups get as many voters as they are to have.
            self.membership.repair();
            self.membership.founders = self.membership.voters.clone();
        }
        self.version += 1;
        self.membership_version = self.version;
    }

    /// Who votes in them is not changed: that is for whoever knows how the nodes are.
    pub(super) fn set_wide_groups(&mut self, per_node: u32) -> bool {
        let before = self.membership.wide.clone();
        self.membership.set_wide(per_node);
        self.membership.wide != before
    }

    pub(super) fn set_voters(&mut self, group: GroupId, voters: Vec<NodeId>) -> bool {
        let Some(current) = self.membership.voters.get_mut(group.0 as usize) else { return false };
        let has_changed = *current != voters;
        *current = voters;
        has_changed
    }
}
