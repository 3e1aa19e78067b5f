//! Which nodes the groups of this node count on: those that vote in them, until a change of members is over.
//!
//! The catalog says at once that a node is removed. A group may need its vote to let it go: of two voters both have
//! to agree that there is one. So a node that was removed is talked to until no group here counts on it.

use std::collections::BTreeSet;

use machine::{Catalog, NodeId};
use raft::eraftpb::ConfState;

/// What the shards of a node said.
#[derive(Debug)]
pub struct Counted(Vec<Option<BTreeSet<NodeId>>>);

impl Counted {
    pub fn new(shards: usize) -> Self {
        Self(vec![None; shards])
    }

    /// A shard's groups count on these.
    pub fn set(&mut self, shard: usize, nodes: BTreeSet<NodeId>) {
        self.0[shard] = Some(nodes);
    }

    /// Whether some group may count on `node`: a shard that has said nothing yet may have one that does.
    pub fn is_on(&self, node: NodeId) -> bool {
        self.0.iter().any(|nodes| nodes.as_ref().is_none_or(|nodes| nodes.contains(&node)))
    }

    /// All of them. None: a shard has said nothing yet.
    pub(crate) fn all(&self) -> Option<BTreeSet<NodeId>> {
        let sets: Option<Vec<&BTreeSet<NodeId>>> = self.0.iter().map(Option::as_ref).collect();
        Some(sets?.into_iter().flatten().copied().collect())
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

    #[test]
    fn a_node_is_counted_on_until_every_shard_says_otherwise() {
        let mut counted = Counted::new(2);
        assert!(counted.is_on(NodeId(3)), "nobody has said anything");
        counted.set(0, BTreeSet::from([1, 2].map(NodeId)));
        assert!(counted.is_on(NodeId(3)), "the other shard may have a group that does");
        assert_eq!(counted.all(), None);
        counted.set(1, BTreeSet::from([1, 3].map(NodeId)));
        assert!(counted.is_on(NodeId(3)));
        assert_eq!(counted.all(), Some(BTreeSet::from([1, 2, 3].map(NodeId))));
        counted.set(1, BTreeSet::from([1, 2].map(NodeId)));
        assert!(!counted.is_on(NodeId(3)));
        assert!(counted.is_on(NodeId(1)) && counted.is_on(NodeId(2)));
    }
}
