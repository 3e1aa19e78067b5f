//! Who led a group, one after the other, as this replica has seen it: for people who ask what happened at night. Nothing
//! here decides anything.

use std::collections::VecDeque;

use machine::NodeId;

use crate::limits::LEADER_CHANGES_KEPT;

/// Another node took up a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderChange {
    /// The term that the new leader leads in: there is one leader in a term.
    pub term: u64,
    /// Who led before, as far as this replica knows.
    pub from: NodeId,
    pub to: NodeId,
    /// When this replica heard of it, in milliseconds since 1970.
    pub at_ms: u64,
}

/// The last leader of a group, and the last changes. What happened before the node started is not known.
#[derive(Debug, Default)]
pub(crate) struct Leadership {
    last: Option<NodeId>,
    /// The oldest first.
    changes: VecDeque<LeaderChange>,
}

impl Leadership {
    /// Takes what is known after a step. A group without a leader is still that of its last one, so who was elected
    /// again is no change.
    pub(crate) fn look(&mut self, leader: Option<NodeId>, term: u64, wall_ms: u64) {
        if leader.is_none() || leader == self.last {
            return;
        }
        if let (Some(from), Some(to)) = (self.last, leader) {
            if self.changes.len() == LEADER_CHANGES_KEPT {
                self.changes.pop_front();
            }
            self.changes.push_back(LeaderChange { term, from, to, at_ms: wall_ms });
        }
        self.last = leader;
    }

    /// The oldest first.
    pub(crate) fn changes(&self) -> Vec<LeaderChange> {
        self.changes.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_leader_is_a_change_and_the_last_ones_are_kept() {
        let mut leadership = Leadership::default();
        let node = |number| Some(NodeId(number));
        leadership.look(None, 0, 10);
        leadership.look(node(1), 1, 20);
        assert_eq!(leadership.changes(), [], "who led before is not known");
        leadership.look(None, 1, 30);
        leadership.look(node(1), 2, 40);
        assert_eq!(leadership.changes(), [], "the same node was elected again");
        leadership.look(None, 2, 50);
        leadership.look(node(3), 3, 60);
        leadership.look(node(3), 3, 70);
        let change = LeaderChange { term: 3, from: NodeId(1), to: NodeId(3), at_ms: 60 };
        assert_eq!(leadership.changes(), [change]);
        for term in 4..=4 + LEADER_CHANGES_KEPT as u64 {
            leadership.look(node(term), term, 100 + term);
        }
        let changes = leadership.changes();
        assert_eq!(changes.len(), LEADER_CHANGES_KEPT);
        assert_eq!((changes[0].from, changes[0].to), (NodeId(4), NodeId(5)));
    }
}
