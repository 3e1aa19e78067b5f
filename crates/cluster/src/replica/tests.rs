use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType};

use super::*;
use crate::raft_log::decode_hard_state;

/// Two replicas of one group that hear each other at once, and what each has written last.
struct Pair {
    replicas: [Replica; 2],
    appends: u64,
    written: [HardState; 2],
}

impl Pair {
    fn new() -> Self {
        let members = || ConfState { voters: vec![1, 2], ..ConfState::default() };
        let log = || RaftLog::new(HardState::default(), members(), 0, 0);
        let replica = |node: u64| Replica::new(GroupId(1), NodeId(node), log(), 0, node);
        let mut pair =
            Self { replicas: [replica(1), replica(2)], appends: 0, written: Default::default() };
        pair.replicas[0].campaign();
        pair.exchange();
        assert!(pair.replicas[0].is_leader());
        pair
    }

    /// Until nobody has anything to say.
    fn exchange(&mut self) {
        loop {
            let mut said = Vec::new();
            for index in 0..2 {
                said.extend(self.step(index));
            }
            if said.is_empty() {
                return;
            }
            for message in said {
                let to = message.to as usize - 1;
                if let Some(replica) = self.replicas.get_mut(to) {
                    replica.step(message);
                }
            }
        }
    }

    /// What one has to say, once all is on its disk.
    fn step(&mut self, index: usize) -> Vec<Message> {
        self.appends += 1;
        let (mut batch, mut harvest) = (CommitBatch::new(), Harvest::default());
        let replica = &mut self.replicas[index];
        replica.ready(self.appends, &mut batch, &mut Vec::new(), &mut harvest);
        for (_, item) in batch.items() {
            if let Item::HardState(bytes) = item {
                self.written[index] = decode_hard_state(bytes).unwrap();
            }
        }
        for entry in &harvest.committed {
            if entry.entry_type != NORMAL {
                replica.apply_members(entry);
            }
            replica.applied(entry.index);
        }
        replica.synced(self.appends, &mut harvest.messages);
        harvest.messages
    }

    fn change(&mut self, change: ConfChangeV2) {
        assert!(self.replicas[0].propose_members(change));
        self.exchange();
    }

    fn heartbeat(&mut self) {
        for _ in 0..HEARTBEAT_TICKS {
            self.replicas[0].tick();
        }
        self.exchange();
    }
}

#[test]
fn that_a_change_of_members_is_over_is_written_though_nothing_follows() {
    let mut pair = Pair::new();
    let mut single = ConfChangeSingle { node_id: 3, ..ConfChangeSingle::default() };
    single.set_change_type(ConfChangeType::AddNode);
    let mut other = ConfChangeSingle { node_id: 4, ..ConfChangeSingle::default() };
    other.set_change_type(ConfChangeType::AddLearnerNode);
    let mut joint = ConfChangeV2::default();
    joint.set_changes(vec![single, other].into());
    joint.set_transition(ConfChangeTransition::Explicit);
    pair.change(joint);
    assert_eq!(pair.replicas[1].log().members().voters_outgoing.len(), 2);
    pair.change(ConfChangeV2::default());
    pair.heartbeat();
    for (replica, written) in pair.replicas.iter().zip(&pair.written) {
        assert!(replica.log().members().voters_outgoing.is_empty());
        assert_eq!(written.commit, replica.last_index(), "node {}", replica.node.0);
    }
}
