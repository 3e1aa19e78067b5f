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

/// A follower of node 1 that has five entries of term 1, of which it knows three to be committed.
fn follower() -> Replica {
    let members = ConfState { voters: vec![1, 2, 3], ..ConfState::default() };
    let log = RaftLog::new(HardState::default(), members, 0, 0);
    let mut replica = Replica::new(GroupId(1), NodeId(2), log, 0, 2);
    let entry = |index| {
        let mut entry = Entry::default();
        (entry.index, entry.term) = (index, 1);
        entry.data = vec![1].into();
        entry
    };
    let mut append = from_leader(MessageType::MsgAppend, 1);
    append.commit = 3;
    append.entries = (1..=5).map(entry).collect::<Vec<_>>().into();
    replica.step(append);
    let (mut batch, mut harvest) = (CommitBatch::new(), Harvest::default());
    replica.ready(1, &mut batch, &mut Vec::new(), &mut harvest);
    replica.synced(1, &mut Vec::new());
    (1..=3).for_each(|index| replica.applied(index));
    assert_eq!((replica.last_index(), replica.committed()), (5, 3));
    replica
}

fn from_leader(kind: MessageType, term: u64) -> Message {
    let mut message = Message::default();
    message.set_msg_type(kind);
    (message.from, message.to, message.term) = (1, 2, term);
    message
}

fn heartbeat(commit: u64, commit_term: u64) -> Message {
    let mut message = from_leader(MessageType::MsgHeartbeat, 2);
    (message.commit, message.commit_term) = (commit, commit_term);
    message
}

#[test]
fn who_came_back_older_than_it_was_commits_nothing_that_a_leader_before_could_not() {
    // It had acknowledged entries of term 2: more than it has now, and as many.
    for forgotten in [heartbeat(9, 2), heartbeat(5, 2)] {
        let mut replica = follower();
        replica.step(forgotten);
        assert_eq!(replica.committed(), 3, "entries 4 and 5 may be others in term 2");
        assert!(replica.questions.iter().any(rejoining::is_question), "it asks for them");
    }
    for known in [heartbeat(5, 1), heartbeat(5, 0)] {
        let mut replica = follower();
        replica.step(known);
        assert_eq!(replica.committed(), 5);
        assert!(replica.questions.is_empty() && replica.rejoining.is_none());
    }
}

#[test]
fn a_leader_that_counts_again_on_what_is_missing_is_asked_again() {
    let mut replica = follower();
    replica.step(heartbeat(9, 2));
    let question = replica.questions.pop().expect("it asks");
    replica.step(rejoining::answer(&question));
    replica.step(heartbeat(5, 1));
    assert!(replica.questions.is_empty(), "it was answered");
    replica.step(heartbeat(9, 2));
    assert!(replica.questions.iter().any(rejoining::is_question));
}

#[test]
fn a_leader_forgets_what_it_knew_of_a_log_that_is_gone_and_says_so() {
    let mut pair = Pair::new();
    let leader = &mut pair.replicas[0];
    let heartbeat = from_leader(MessageType::MsgHeartbeat, leader.term());
    let mut asking = Rejoining::new(LostState { log: true, vote: false }).expect("it forgot");
    let (node, term, voters) = (2, leader.term(), [1, 2]);
    let own = ReplicaStatus { node, term, last_index: 0, voters: &voters };
    let question = asking.question(&heartbeat, own).expect("a question");

    leader.step(question);
    let progress = leader.raw.raft.prs().get(2).expect("node 2 is a member");
    assert_eq!((progress.matched, progress.next_idx), (0, 1));
    let answer = leader.questions.pop().expect("an answer");
    asking.see(&answer, own);
    assert!(asking.question(&answer, own).is_none(), "it asks no more");
}

#[test]
fn a_leader_says_of_which_term_is_what_it_knows_to_be_committed() {
    let mut pair = Pair::new();
    (0..HEARTBEAT_TICKS).for_each(|_| pair.replicas[0].tick());
    let said = pair.step(0);
    let is_heartbeat = |it: &&Message| it.get_msg_type() == MessageType::MsgHeartbeat;
    let heartbeat = said.iter().find(is_heartbeat).expect("a heartbeat");
    assert!(heartbeat.commit > 0);
    assert_eq!(heartbeat.commit_term, 1);
}

#[test]
fn the_bound_of_messages_stays_where_another_log_takes_the_place_of_the_one_before() {
    let members = || ConfState { voters: vec![1, 2], ..ConfState::default() };
    let log = RaftLog::new(HardState::default(), members(), 0, 0);
    let mut replica = Replica::new(GroupId(1), NodeId(1), log, 0, 1);
    replica.bound_messages(6 << 10);

    replica.cut_tail(0);
    assert_eq!(replica.raw.raft.max_msg_size, 6 << 10, "after its tail was cut");

    replica.restore(5, 1, members());
    assert_eq!(replica.raw.raft.max_msg_size, 6 << 10, "after a snapshot");
}

#[test]
fn a_leader_that_went_while_it_wrote_gives_way_when_that_is_synced() {
    let mut pair = Pair::new();
    let mut gone = ConfChangeSingle { node_id: 1, ..ConfChangeSingle::default() };
    gone.set_change_type(ConfChangeType::RemoveNode);
    let mut change = ConfChangeV2::default();
    change.set_changes(vec![gone].into());
    assert!(pair.replicas[0].propose_members(change));
    // The other has it, the leader hears so, and has proposed something more before it looks again.
    for message in pair.step(0) {
        pair.replicas[1].step(message);
    }
    for message in pair.step(1) {
        pair.replicas[0].step(message);
    }
    let leader = &mut pair.replicas[0];
    let last = leader.propose(vec![1].into()).unwrap();
    let (mut batch, mut harvest) = (CommitBatch::new(), Harvest::default());
    leader.ready(9, &mut batch, &mut Vec::new(), &mut harvest);
    let change = harvest.committed.iter().find(|entry| entry.entry_type != NORMAL);
    leader.apply_members(change.expect("both have it"));
    assert!(leader.is_leader() && leader.log().members().voters == [2]);
    leader.synced(9, &mut harvest.messages);
    assert!(!leader.is_leader() && leader.persisted() == last);
}
