//! Which nodes keep which group, and which of them is to lead it.
//!
//! A policy without state: from the nodes and what is, to what should be. The first voter of a group
//! is the one that is to lead it. Moving a replica copies a log, so as few move as the goal allows;
//! moving a leader costs a blink.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::ids::NodeId;

/// How a node may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStatus {
    Serving,
    /// It may come back: it keeps its replicas, gets no others and leads nothing.
    Down,
    /// It leads nothing, and its replicas go wherever there is a node to take them.
    Draining,
}

/// How much is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// What has to: off nodes that are gone or draining, and up to as many voters as are wished.
    Repair,
    /// Also replicas and leaders of nodes that have more than others.
    Balance,
}

/// The voters of every group, as many as `replicas` says where there are as many nodes; one without any is new.
/// Those that are not among `nodes` are gone.
pub(crate) fn place(
    nodes: &BTreeMap<NodeId, NodeStatus>,
    current: Vec<Vec<NodeId>>,
    goal: Goal,
    replicas: &[usize],
) -> Vec<Vec<NodeId>> {
    let mut plan = Plan::new(nodes, current, replicas);
    plan.repair();
    if goal == Goal::Balance {
        plan.balance_replicas();
    }
    plan.name_leaders();
    if goal == Goal::Balance {
        plan.balance_leaders();
    }
    plan.groups
}

struct Plan<'a> {
    nodes: &'a BTreeMap<NodeId, NodeStatus>,
    groups: Vec<Vec<NodeId>>,
    /// How many each is to have.
    wanted: &'a [usize],
    /// Who is to lead each until now, and may go on.
    leaders: Vec<Option<NodeId>>,
    /// Of every node.
    replicas: BTreeMap<NodeId, usize>,
}

impl<'a> Plan<'a> {
    fn new(
        nodes: &'a BTreeMap<NodeId, NodeStatus>,
        mut groups: Vec<Vec<NodeId>>,
        wanted: &'a [usize],
    ) -> Self {
        assert_eq!(groups.len(), wanted.len(), "it is said of each group how many it is to have");
        let is_fit = |node: &&NodeId| nodes.get(node) == Some(&NodeStatus::Serving);
        let leaders = groups.iter().map(|voters| voters.first().filter(is_fit).copied()).collect();
        let mut replicas: BTreeMap<NodeId, usize> = nodes.keys().map(|node| (*node, 0)).collect();
        for voters in &mut groups {
            let mut seen = Vec::with_capacity(voters.len());
            voters.retain(|node| {
                let is_kept = nodes.contains_key(node) && !seen.contains(node);
                seen.push(*node);
                is_kept
            });
            for node in voters {
                count(&mut replicas, *node);
            }
        }
        Self { nodes, groups, wanted, leaders, replicas }
    }

    fn is_serving(&self, node: NodeId) -> bool {
        self.nodes.get(&node) == Some(&NodeStatus::Serving)
    }

    fn serving(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.keys().copied().filter(|node| self.is_serving(*node))
    }

    fn load(&self, node: NodeId) -> usize {
        self.replicas.get(&node).copied().unwrap_or(0)
    }

    /// Who takes one more replica of the group.
    fn taker(&self, group: usize) -> Option<NodeId> {
        let others = self.serving().filter(|node| !self.groups[group].contains(node));
        others.min_by_key(|node| (self.load(*node), *node))
    }

    /// Whose replica goes first where there are too many.
    fn giver(&self, group: usize) -> Option<NodeId> {
        let of_status = |node: &NodeId| match self.nodes.get(node) {
            Some(NodeStatus::Serving) => 0,
            Some(NodeStatus::Down) => 1,
            Some(NodeStatus::Draining) | None => 2,
        };
        let voters = self.groups[group].iter().copied();
        voters.max_by_key(|node| (of_status(node), self.load(*node), *node))
    }

    fn give(&mut self, group: usize, node: NodeId) {
        self.groups[group].push(node);
        count(&mut self.replicas, node);
    }

    fn take(&mut self, group: usize, node: NodeId) {
        self.groups[group].retain(|voter| *voter != node);
        uncount(&mut self.replicas, node);
    }

    fn repair(&mut self) {
        for group in 0..self.groups.len() {
            let wanted = self.wanted[group].min(self.nodes.len());
            while self.groups[group].len() > wanted
                && let Some(node) = self.giver(group)
            {
                self.take(group, node);
            }
            while self.groups[group].len() < wanted
                && let Some(node) = self.taker(group)
            {
                self.give(group, node);
            }
            let leaving = |node: &NodeId| self.nodes.get(node) == Some(&NodeStatus::Draining);
            let leaving: Vec<_> = self.groups[group].iter().copied().filter(leaving).collect();
            for node in leaving {
                let Some(taker) = self.taker(group) else { break };
                self.take(group, node);
                self.give(group, taker);
            }
        }
    }

    /// Until no serving node has two replicas more than another.
    fn balance_replicas(&mut self) {
        while let Some(most) = self.serving().max_by_key(|node| (self.load(*node), Reverse(*node)))
            && let Some(least) = self.serving().min_by_key(|node| (self.load(*node), *node))
            && self.load(most) > self.load(least) + 1
        {
            let voters = self.groups.iter().enumerate();
            let movable = voters.filter(|(_, it)| it.contains(&most) && !it.contains(&least));
            let Some((group, _)) = movable.min_by_key(|(_, it)| it.first() == Some(&most)) else {
                unreachable!("who has more replicas has one that the other has not")
            };
            self.take(group, most);
            self.give(group, least);
        }
    }

    /// Who is no voter any more, or cannot lead, is not to. Who leads the fewest takes over.
    fn name_leaders(&mut self) {
        let mut leads: BTreeMap<NodeId, usize> = BTreeMap::new();
        for (voters, leader) in self.groups.iter_mut().zip(&mut self.leaders) {
            match leader.filter(|node| voters.contains(node)) {
                Some(node) => {
                    lead(voters, node);
                    count(&mut leads, node);
                }
                None => *leader = None,
            }
        }
        for group in 0..self.groups.len() {
            if self.leaders[group].is_some() {
                continue;
            }
            let voters = &self.groups[group];
            let fit = voters.iter().copied().filter(|node| self.is_serving(*node));
            let fewest = fit.min_by_key(|node| (leads.get(node).copied().unwrap_or(0), *node));
            if let Some(node) = fewest {
                lead(&mut self.groups[group], node);
                count(&mut leads, node);
            }
        }
    }

    /// How many groups each serving node is to lead.
    fn leads(&self) -> BTreeMap<NodeId, usize> {
        let mut leads: BTreeMap<NodeId, usize> = self.serving().map(|node| (node, 0)).collect();
        for first in self.groups.iter().filter_map(|voters| voters.first()) {
            if self.is_serving(*first) {
                count(&mut leads, *first);
            }
        }
        leads
    }

    /// Until no node leads two groups more than another that could lead one of them, or one of a
    /// third's that takes one in its turn, and so on.
    fn balance_leaders(&mut self) {
        let mut leads = self.leads();
        loop {
            let mut from: Vec<NodeId> = leads.keys().copied().collect();
            from.sort_by_key(|node| (Reverse(leads[node]), *node));
            let Some(path) = from.iter().find_map(|node| self.path_down(*node, &leads)) else {
                return;
            };
            if let (Some((most, _, _)), Some((_, _, least))) = (path.first(), path.last()) {
                uncount(&mut leads, *most);
                count(&mut leads, *least);
            }
            for (_, group, to) in path {
                lead(&mut self.groups[group], to);
            }
        }
    }

    /// Groups to hand on, each by its leader to another voter, so that in the end `from` leads one
    /// less and somebody who leads at least two less one more. The shortest such way.
    fn path_down(
        &self,
        from: NodeId,
        leads: &BTreeMap<NodeId, usize>,
    ) -> Option<Vec<(NodeId, usize, NodeId)>> {
        let mut came: BTreeMap<NodeId, (NodeId, usize)> = BTreeMap::new();
        let mut reached = vec![from];
        let mut next = 0;
        while let Some(&node) = reached.get(next) {
            next += 1;
            if leads[&node] + 2 <= leads[&from] {
                let mut path = Vec::new();
                let mut at = node;
                while at != from
                    && let Some(&(before, group)) = came.get(&at)
                {
                    path.push((before, group, at));
                    at = before;
                }
                path.reverse();
                return Some(path);
            }
            for (group, voters) in self.groups.iter().enumerate() {
                if voters.first() != Some(&node) {
                    continue;
                }
                for voter in &voters[1..] {
                    if self.is_serving(*voter) && !reached.contains(voter) {
                        reached.push(*voter);
                        came.insert(*voter, (node, group));
                    }
                }
            }
        }
        None
    }
}

/// Puts a voter first; the others keep their order.
pub(crate) fn lead(voters: &mut [NodeId], node: NodeId) {
    if let Some(index) = voters.iter().position(|voter| *voter == node) {
        voters[..=index].rotate_right(1);
    }
}

fn count(counts: &mut BTreeMap<NodeId, usize>, node: NodeId) {
    *counts.entry(node).or_default() += 1;
}

fn uncount(counts: &mut BTreeMap<NodeId, usize>, node: NodeId) {
    if let Some(count) = counts.get_mut(&node) {
        *count -= 1;
    }
}

#[cfg(test)]
mod tests;
