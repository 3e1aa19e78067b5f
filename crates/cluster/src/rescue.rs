//! The way out when most voters of a group are gone for good: one node that lives goes on with the group
//! alone, by changes of members in its log that nobody else was asked about.
//!
//! ```text
//! survey of each node that lives ── plan: the same from the same surveys ──> entries for this node's log
//! ```
//!
//! Of several nodes that live only the one with the newest log goes on. That is whom Raft would elect among
//! them, so it has whatever any of them knows to be committed; the others follow it as soon as it has made
//! them members again. Decision record 14 has the argument.

mod plan;
mod survey;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use machine::{GroupId, NodeId};

pub use plan::plan;
pub(crate) use survey::{queue_names, survey};
pub(crate) use write::write;

/// What one node that lives has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    pub cluster: u128,
    pub node: NodeId,
    /// The members that its catalog names.
    pub nodes: BTreeSet<NodeId>,
    /// Numbers that its catalog will never give again.
    pub retired: BTreeSet<NodeId>,
    /// The highest term that any of its groups has met.
    pub term: u64,
    /// Of the groups of which it has anything.
    pub copies: Vec<GroupCopy>,
    /// The voters that each group began with, from the catalog's on.
    pub founders: Vec<Vec<NodeId>>,
    /// Names of the queues of each group, with their virtual hosts.
    pub queues: BTreeMap<GroupId, Vec<String>>,
}

/// A group's log on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupCopy {
    pub group: GroupId,
    /// Term and index of its last entry.
    pub last: (u64, u64),
    /// Known to be committed; what follows may be.
    pub committed: u64,
    /// Who votes by what is known to be committed, and after each change that follows.
    pub voters: Vec<Voters>,
    /// It cannot be read.
    pub is_damaged: bool,
    /// It was damaged once, and may lack what the lost nodes had.
    pub is_incomplete: bool,
}

/// Who votes in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Voters {
    pub voters: BTreeSet<NodeId>,
    /// Until a change that is under way is over, a majority of these counts, too.
    pub outgoing: BTreeSet<NodeId>,
}

impl Voters {
    /// Whether those that help are a majority.
    fn live_by(&self, helps: impl Fn(NodeId) -> bool) -> bool {
        let lives = |voters: &BTreeSet<NodeId>| {
            voters.iter().filter(|node| helps(**node)).count() * 2 > voters.len()
        };
        lives(&self.voters) && (self.outgoing.is_empty() || lives(&self.outgoing))
    }

    fn holds(&self, node: NodeId) -> bool {
        self.voters.contains(&node) || self.outgoing.contains(&node)
    }
}

/// What is to become of each group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub fates: BTreeMap<GroupId, Fate>,
    /// The term under which it is written: above all that were met.
    pub term: u64,
    /// Members that the catalog names no longer.
    pub retired: BTreeSet<NodeId>,
}

/// What is to become of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A majority lives: nothing is to be done.
    Lives,
    /// `by` goes on alone with what it has.
    Rescued { by: NodeId },
    /// No surviving node has anything of the group: node `by` begins it anew, and its messages are lost.
    BegunAnew { by: NodeId },
}

impl Plan {
    /// Whether `node` has something to write.
    pub fn is_for(&self, node: NodeId) -> bool {
        self.fates.values().any(|fate| fate.is_by(node))
    }
}

impl Fate {
    /// Whether `node` carries it out.
    pub fn is_by(self, node: NodeId) -> bool {
        match self {
            Self::Lives => false,
            Self::Rescued { by } | Self::BegunAnew { by } => by == node,
        }
    }
}

#[cfg(test)]
mod tests;
