//! Which nodes other members reach, so that a link that is cut between two of them keeps nobody from a leader.
//!
//! A follower tells the leader of each group whom it reaches. A leader that cannot reach a member for a while, whom
//! a replica of its group can, hands over to that replica if it reaches more nodes than the leader itself does. Each
//! such move goes to a node that reaches more, so they end. Nor does leadership go back to a node that reaches
//! fewer, or has reached as many for a moment only: a link that comes and goes does not move it each time.

use std::collections::{BTreeMap, BTreeSet};

use machine::{GroupId, NodeId};

use super::Shard;
use crate::exchange::{Now, Output};
use crate::limits::{CUT_MS, HANDED_MS, SETTLED_IN_MS};
use crate::peer::message::Message;

/// What a shard knows of who reaches whom.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// Since when a node that was reached cannot be, in `Now::mono_ms`.
    down: BTreeMap<NodeId, u64>,
    /// By group that this node leads, and follower: whom it reaches, and since when it says so.
    reached_by: BTreeMap<(GroupId, NodeId), BTreeMap<NodeId, u64>>,
    /// What was last reported to the leader of a group: to which node, and in which term. A leader that lost the lead has forgotten it.
    reported: BTreeMap<GroupId, (NodeId, u64, BTreeSet<NodeId>)>,
    /// Groups that this node leads: in which term, and since when.
    leading: BTreeMap<GroupId, (u64, u64)>,
    /// When this node last handed a group over to one that reaches more.
    handed: BTreeMap<GroupId, u64>,
}

impl Reach {
    pub(super) fn peer_up(&mut self, node: NodeId) {
        self.down.remove(&node);
    }

    pub(super) fn peer_down(&mut self, node: NodeId, now_ms: u64) {
        self.down.insert(node, now_ms);
        self.reached_by.retain(|(_, by), _| *by != node);
        // It has to hear it again.
        self.reported.retain(|_, (to, _, _)| *to != node);
    }

    /// Whether this list of reached nodes is news for the leader of that term. Marks it as sent.
    fn is_news(
        &mut self,
        group: GroupId,
        leader: NodeId,
        term: u64,
        reached: &BTreeSet<NodeId>,
    ) -> bool {
        let is_said = |(to, in_term, nodes): &(NodeId, u64, BTreeSet<NodeId>)| {
            *to == leader && *in_term == term && nodes == reached
        };
        if self.reported.get(&group).is_some_and(is_said) {
            return false;
        }
        self.reported.insert(group, (leader, term, reached.clone()));
        true
    }

    fn hears(&mut self, group: GroupId, from: NodeId, nodes: &[NodeId], now_ms: u64) {
        let before = self.reached_by.remove(&(group, from)).unwrap_or_default();
        let since = |node: &NodeId| before.get(node).copied().unwrap_or(now_ms);
        let nodes = nodes.iter().map(|node| (*node, since(node))).collect();
        self.reached_by.insert((group, from), nodes);
    }

    /// The group is handed over to a node that reaches more.
    pub(super) fn hands_over(&mut self, group: GroupId, now_ms: u64) {
        self.handed.insert(group, now_ms);
    }

    fn may_hand_over(&self, group: GroupId, now_ms: u64) -> bool {
        self.handed.get(&group).is_none_or(|at| now_ms >= at + HANDED_MS)
    }

    /// For how long this node has led the group in this term, in milliseconds. None: somebody else leads.
    pub(super) fn leads(&mut self, group: GroupId, term: Option<u64>, now_ms: u64) -> Option<u64> {
        let Some(term) = term else {
            if self.leading.remove(&group).is_some() {
                self.reached_by.retain(|(of, _), _| *of != group);
            }
            return None;
        };
        let (known, since) = self.leading.entry(group).or_insert((term, now_ms));
        if *known != term {
            (*known, *since) = (term, now_ms);
        }
        Some(now_ms - *since)
    }
}

impl Shard {
    /// A follower says whom it reaches.
    pub(super) fn hears_reach(&mut self, now: Now, from: NodeId, group: GroupId, nodes: &[NodeId]) {
        let known: Vec<NodeId> = nodes
            .iter()
            .copied()
            .filter(|node| self.members.nodes().any(|it| it == *node))
            .collect();
        if self.replica(group).is_some_and(|replica| replica.is_leader()) {
            self.reach.hears(group, from, &known, now.mono_ms);
        }
    }

    /// Tells the leaders of this node's groups whom it reaches, where they do not know yet.
    pub(super) fn say_reach(&mut self, outputs: &mut Vec<Output>) {
        let reached = self.reachable();
        let me = self.me.node;
        for group in self.with_replicas() {
            let Some(replica) = self.replica(group) else { continue };
            let (leader, term) = (replica.leader(), replica.term());
            let Some(leader) = leader.filter(|leader| *leader != me) else {
                self.reach.reported.remove(&group);
                continue;
            };
            if !self.peers.is_up(leader) || !self.reach.is_news(group, leader, term, &reached) {
                continue;
            }
            let nodes = reached.iter().copied().collect();
            self.send(leader, Message::Reaches { group, nodes }, outputs);
        }
    }

    /// How many members `other` reaches that this leader does not, and the other way round: what `other` has not
    /// reached for `settled_ms` yet counts as not reached. None: it is not known, for this node has not led the group
    /// for long enough to be told, or `other` does not tell.
    pub(super) fn compare_reach(
        &self,
        now: Now,
        group: GroupId,
        other: NodeId,
        settled_ms: u64,
    ) -> Option<(usize, usize)> {
        let told = self.reach.reached_by.get(&(group, other))?;
        let is_old = |since: u64| now.mono_ms >= since + CUT_MS;
        let started_ms = self.clock.started_ms().unwrap_or(now.mono_ms);
        let is_down = |node: &NodeId| {
            let since = self.reach.down.get(node).copied().unwrap_or(started_ms);
            !self.peers.is_up(*node) && is_old(since)
        };
        let others = || {
            let me = self.me.node;
            self.members.nodes().filter(move |node| *node != me && *node != other)
        };
        let gains = others().filter(is_down).filter(|node| {
            let since = told.get(node);
            since.is_some_and(|since| is_old(*since))
        });
        let has_settled =
            |node: &NodeId| told.get(node).is_some_and(|since| now.mono_ms >= since + settled_ms);
        let losses = others().filter(|node| self.peers.is_up(*node) && !has_settled(node));
        Some((gains.count(), losses.count()))
    }

    /// Whether leadership would be better there: more nodes are reached.
    pub(super) fn reaches_more(&self, now: Now, group: GroupId, other: NodeId) -> bool {
        self.reach.may_hand_over(group, now.mono_ms)
            && self
                .compare_reach(now, group, other, 0)
                .is_some_and(|(gains, losses)| gains > losses)
    }

    /// Whether leadership may go there although nothing is wrong here: no fewer nodes are reached, and that for a
    /// while. Whoever does not tell in time is of an earlier version, and taken to reach all.
    pub(super) fn reaches_no_less(
        &self,
        now: Now,
        group: GroupId,
        other: NodeId,
        leading_ms: u64,
    ) -> bool {
        match self.compare_reach(now, group, other, SETTLED_IN_MS) {
            Some((gains, losses)) => losses <= gains,
            None => leading_ms >= SETTLED_IN_MS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_handed_over_again_after_a_while_only_and_others_at_once() {
        let mut reach = Reach::default();
        let (group, other) = (GroupId(1), GroupId(2));
        assert!(reach.may_hand_over(group, 10));
        reach.hands_over(group, 10);
        assert!(!reach.may_hand_over(group, 9 + HANDED_MS));
        assert!(reach.may_hand_over(group, 10 + HANDED_MS));
        assert!(reach.may_hand_over(other, 11));
    }

    #[test]
    fn a_leader_is_told_again_when_it_leads_again_though_this_node_never_saw_it_gone() {
        let mut reach = Reach::default();
        let (group, leader, reached) = (GroupId(1), NodeId(2), BTreeSet::from([NodeId(3)]));
        assert!(reach.is_news(group, leader, 4, &reached));
        assert!(!reach.is_news(group, leader, 4, &reached));
        assert!(reach.is_news(group, leader, 4, &BTreeSet::new()));
        assert!(reach.is_news(group, leader, 5, &BTreeSet::new()));
        reach.peer_down(leader, 100);
        assert!(reach.is_news(group, leader, 5, &BTreeSet::new()));
    }

    #[test]
    fn what_followers_said_is_forgotten_with_the_lead_and_with_them() {
        let mut reach = Reach::default();
        let (group, from) = (GroupId(1), NodeId(2));
        assert_eq!(reach.leads(group, Some(3), 100), Some(0));
        reach.hears(group, from, &[NodeId(1), NodeId(3)], 200);
        reach.hears(group, from, &[NodeId(3)], 900);
        assert_eq!(
            reach.reached_by[&(group, from)],
            [(NodeId(3), 200)].into(),
            "since when it says so"
        );
        assert_eq!(reach.leads(group, Some(4), 1000), Some(0), "in another term");
        assert_eq!(reach.leads(group, None, 1100), None);
        assert!(reach.reached_by.is_empty());
        reach.hears(group, from, &[NodeId(3)], 1200);
        reach.peer_down(from, 1300);
        assert!(reach.reached_by.is_empty());
    }
}
