//! Which nodes the groups of this node count on: those that vote in them, until a change of members is over.
//!
//! The catalog says at once that a node is removed. A group may need its vote to let it go: of two voters both have
//! to agree that there is one. So a node that was removed is talked to until no group here counts on it.

use std::collections::BTreeSet;

use machine::{Catalog, NodeId};
use raft::eraftpb::ConfState;

/// The voters that each shard of a node has reported. `None`: that shard has not reported yet.
#[derive(Debug)]
pub struct Counted(Vec<Option<Voting>>);

/// Who votes in the groups that a shard knows of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Voting {
    pub nodes: BTreeSet<NodeId>,
    /// The voters of some group are not known now: its leader cannot be reached, or the group is changing its
    /// members. Nodes that are not in `nodes` may vote in it.
    pub is_partial: bool,
}

impl Voting {
    /// What the leader of a group says of its voters, if it does. A leader that is `silent` never does.
    pub(crate) fn add(&mut self, counted: Option<Vec<NodeId>>, is_silent: bool) {
        self.is_partial |= counted.is_none() && !is_silent;
        self.nodes.extend(counted.into_iter().flatten());
    }
}

impl Counted {
    pub fn new(shards: usize) -> Self {
        Self(vec![None; shards])
    }

    /// A shard's groups count on these.
    pub fn set(&mut self, shard: usize, voting: Voting) {
        self.0[shard] = Some(voting);
    }

    /// Whether some group may count on `node`: a shard that has not said of all its groups who votes may have one that
    /// does.
    pub fn is_on(&self, node: NodeId) -> bool {
        let may_be_on = |voting: &Voting| voting.is_partial || voting.nodes.contains(&node);
        self.0.iter().any(|voting| voting.as_ref().is_none_or(may_be_on))
    }

    /// All that are known. None: a shard has said nothing yet.
    pub(crate) fn all(&self) -> Option<BTreeSet<NodeId>> {
        let all: Option<Vec<&Voting>> = self.0.iter().map(Option::as_ref).collect();
        Some(all?.into_iter().flat_map(|voting| &voting.nodes).copied().collect())
    }

    /// Whether `node` was removed, and no group counts on it any more.
    pub fn is_gone(&self, catalog: &Catalog, node: NodeId) -> bool {
        catalog.is_retired(node) && !self.is_on(node)
    }
}

/// The voters, and until a change is over those before it.
pub(crate) fn who_votes(members: &ConfState) -> Vec<NodeId> {
    let all = members.voters.iter().chain(&members.voters_outgoing);
    all.map(|node| NodeId(*node)).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<const N: usize>(nodes: [u64; N]) -> Voting {
        Voting { nodes: BTreeSet::from(nodes.map(NodeId)), is_partial: false }
    }

    #[test]
    fn a_node_is_counted_on_as_long_as_nobody_says_who_votes_in_a_group() {
        let mut counted = Counted::new(1);
        counted.set(0, Voting { is_partial: true, ..of([1, 2]) });
        assert!(counted.is_on(NodeId(3)));
        assert_eq!(counted.all(), Some(BTreeSet::from([1, 2].map(NodeId))));
        counted.set(0, of([1, 2]));
        assert!(!counted.is_on(NodeId(3)));
    }

    #[test]
    fn a_node_is_counted_on_until_every_shard_says_otherwise() {
        let mut counted = Counted::new(2);
        assert!(counted.is_on(NodeId(3)), "nobody has said anything");
        counted.set(0, of([1, 2]));
        assert!(counted.is_on(NodeId(3)), "the other shard may have a group that does");
        assert_eq!(counted.all(), None);
        counted.set(1, of([1, 3]));
        assert!(counted.is_on(NodeId(3)));
        assert_eq!(counted.all(), Some(BTreeSet::from([1, 2, 3].map(NodeId))));
        counted.set(1, of([1, 2]));
        assert!(!counted.is_on(NodeId(3)));
        assert!(counted.is_on(NodeId(1)) && counted.is_on(NodeId(2)));
    }
}
