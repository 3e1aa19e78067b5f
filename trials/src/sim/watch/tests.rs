use bytes::Bytes;
use machine::Batch;
use raft::eraftpb::Message as RaftMessage;
use wal::Item;

use super::*;
use crate::sim::heads::head_of;

const GROUP: GroupId = GroupId(1);

fn entry(index: u64, term: u64, ids: &[&str]) -> CommitBatch {
    let mut commands = Batch::new();
    for id in ids {
        commands.enqueue(&[QueueId(7)], &[&head_of("q", id)], b"body");
    }
    let data = Bytes::from(commands.stamp(term));
    let mut batch = CommitBatch::new();
    batch.add(GROUP.0, Item::Entry { index, term, data });
    batch
}

fn vote(term: u64, vote: u64) -> CommitBatch {
    let fields = [term, vote, 0].into_iter().flat_map(u64::to_le_bytes);
    let mut batch = CommitBatch::new();
    batch.add(GROUP.0, Item::HardState([1].into_iter().chain(fields).collect()));
    batch
}

fn write(watch: &mut Watch, node: usize, batch: &CommitBatch) {
    let marks = watch.appended(node, batch);
    watch.synced(node, marks);
}

fn status(term: u64, is_leader: bool, commit: u64) -> Status {
    Status { group: GROUP, term, is_leader, commit, applied: commit, voters: 0, digest: None }
}

fn says(watch: &mut Watch, kind: MessageType, term: u64, index: u64) -> Vec<String> {
    let mut message = RaftMessage::default();
    message.set_msg_type(kind);
    (message.term, message.index) = (term, index);
    watch.said(0, 2, &Message::Raft { group: GROUP, message });
    watch.take_violations()
}

#[test]
fn a_confirm_needs_a_majority_of_disks() {
    let mut watch = Watch::new(3);
    write(&mut watch, 0, &entry(1, 1, &["a:1", "a:2"]));
    // On its way to the second disk is not on it.
    let marks = watch.appended(1, &entry(1, 1, &["a:1", "a:2"]));
    watch.confirmed(GROUP, "a:1");
    assert_eq!(watch.take_violations(), ["a:1 was confirmed, and synced in group 1 on [1]"]);
    watch.synced(1, marks);
    watch.confirmed(GROUP, "a:1");
    assert!(watch.take_violations().is_empty());
    // Another leader's entry takes its place.
    write(&mut watch, 1, &entry(1, 2, &["b:1"]));
    watch.confirmed(GROUP, "a:2");
    assert_eq!(watch.take_violations().len(), 1);
}

#[test]
fn a_dead_letter_is_let_go_of_once_most_disks_have_it_elsewhere() {
    let mut watch = Watch::new(3);
    write(&mut watch, 0, &entry(1, 1, &["a:1"]));
    watch.sent_on(GROUP, "a:1");
    assert_eq!(watch.take_violations(), ["a:1 let go of first: it is synced in group 1 on [1]"]);
    write(&mut watch, 2, &entry(1, 1, &["a:1"]));
    watch.sent_on(GROUP, "a:1");
    assert!(watch.take_violations().is_empty());
}

#[test]
fn a_term_has_one_leader() {
    let mut watch = Watch::new(3);
    assert!(watch.stands(0, &status(4, true, 0)));
    assert!(!watch.stands(0, &status(4, true, 0)));
    watch.stands(1, &status(5, true, 0));
    assert!(watch.take_violations().is_empty());
    watch.stands(2, &status(4, true, 0));
    assert_eq!(watch.take_violations(), ["nodes 1 and 3 both lead group 1 in term 4"]);
}

#[test]
fn what_is_committed_is_the_same_everywhere() {
    let mut watch = Watch::new(3);
    for node in 0..3 {
        write(&mut watch, node, &entry(1, 1, &["a:1"]));
        write(&mut watch, node, &entry(2, 1 + node as u64, &["a:2"]));
        watch.stands(node, &status(3, false, 1));
    }
    assert!(watch.take_violations().is_empty());
    watch.stands(0, &status(3, false, 2));
    watch.stands(2, &status(3, false, 2));
    assert_eq!(
        watch.take_violations(),
        ["group 1: entry 2 is committed with term 1, on node 3 with 3"]
    );
}

#[test]
fn replicas_that_applied_the_same_are_the_same() {
    let mut watch = Watch::new(3);
    watch.stands(0, &Status { digest: Some(5), ..status(1, false, 3) });
    watch.stands(1, &Status { digest: Some(6), ..status(1, false, 4) });
    watch.stands(1, &Status { digest: Some(5), ..status(1, false, 3) });
    assert!(watch.take_violations().is_empty());
    watch.stands(2, &Status { digest: Some(7), ..status(1, false, 3) });
    assert_eq!(watch.take_violations(), ["nodes 1 and 3 differ in group 1 at 3"]);
}

#[test]
fn nobody_says_yes_before_the_sync() {
    let mut watch = Watch::new(3);
    let marks = watch.appended(0, &entry(1, 1, &["a:1"]));
    assert_eq!(says(&mut watch, MessageType::MsgAppendResponse, 1, 1).len(), 1);
    watch.synced(0, marks);
    assert!(says(&mut watch, MessageType::MsgAppendResponse, 1, 1).is_empty());
    assert_eq!(says(&mut watch, MessageType::MsgRequestVoteResponse, 2, 0).len(), 1);
    write(&mut watch, 0, &vote(2, 3));
    assert_eq!(says(&mut watch, MessageType::MsgRequestVoteResponse, 2, 0).len(), 1, "for another");
    write(&mut watch, 0, &vote(2, 2));
    assert!(says(&mut watch, MessageType::MsgRequestVoteResponse, 2, 0).is_empty());
}

#[test]
fn what_is_said_of_a_term_that_is_over_comes_late() {
    let mut watch = Watch::new(3);
    write(&mut watch, 0, &vote(1, 1));
    write(&mut watch, 0, &entry(1, 1, &["a:1"]));
    assert_eq!(says(&mut watch, MessageType::MsgAppendResponse, 1, 3).len(), 1);
    // Entries 2 and 3 of term 1 were never written: an entry of term 2 took their place before.
    write(&mut watch, 0, &vote(2, 0));
    write(&mut watch, 0, &entry(2, 2, &["b:1"]));
    assert!(says(&mut watch, MessageType::MsgAppendResponse, 1, 3).is_empty());
    assert!(says(&mut watch, MessageType::MsgAppendResponse, 2, 2).is_empty());
    assert_eq!(says(&mut watch, MessageType::MsgAppendResponse, 2, 3).len(), 1);
}

#[test]
fn what_was_synced_is_there_after_a_start() {
    let mut watch = Watch::new(3);
    write(&mut watch, 0, &entry(1, 1, &["a:1"]));
    write(&mut watch, 0, &entry(2, 1, &["a:2"]));
    let data = |ids: &[&str]| match &entry(1, 1, ids).items()[0].1 {
        Item::Entry { data, .. } => data.clone(),
        other => panic!("{other:?}"),
    };
    let log = |checkpoint, entries| node::Log { checkpoint, entries, hard_state: None };
    let whole = log(0, vec![(1, 1, data(&["a:1"])), (2, 1, data(&["a:2"]))]);
    watch.recovered(0, &Logs::from([(1, whole)]));
    assert!(watch.take_violations().is_empty());
    let checkpointed = log(1, vec![(2, 1, data(&["a:2"]))]);
    watch.recovered(0, &Logs::from([(1, checkpointed)]));
    assert!(watch.take_violations().is_empty());
    watch.recovered(0, &Logs::from([(1, log(0, vec![(1, 1, data(&["a:1"]))]))]));
    assert_eq!(watch.take_violations().len(), 1);
}

#[test]
fn what_was_being_written_may_have_taken_the_place_of_what_was_synced() {
    let data = |ids: &[&str]| match &entry(1, 2, ids).items()[0].1 {
        Item::Entry { data, .. } => data.clone(),
        other => panic!("{other:?}"),
    };
    let is_lost = |is_written: bool| {
        let mut watch = Watch::new(3);
        write(&mut watch, 0, &entry(1, 1, &["a:1"]));
        write(&mut watch, 0, &entry(2, 1, &["a:2"]));
        if is_written {
            watch.appended(0, &entry(1, 2, &["b:1"]));
            watch.appended(0, &entry(2, 2, &["b:2"]));
        }
        // The second of them did not get that far.
        let entries = vec![(1, 2, data(&["b:1"]))];
        let found = node::Log { checkpoint: 0, entries, hard_state: None };
        watch.recovered(0, &Logs::from([(1, found)]));
        !watch.take_violations().is_empty()
    };
    assert!(!is_lost(true));
    assert!(is_lost(false));
}

#[test]
fn a_synced_vote_is_there_after_a_start() {
    let found = |term, voted| {
        let state = match &vote(term, voted).items()[0].1 {
            Item::HardState(state) => state.clone(),
            other => panic!("{other:?}"),
        };
        Logs::from([(1, node::Log { hard_state: Some(state), ..node::Log::default() })])
    };
    let mut watch = Watch::new(3);
    write(&mut watch, 0, &vote(4, 2));
    watch.recovered(0, &found(4, 2));
    watch.appended(0, &vote(5, 1));
    watch.recovered(0, &found(5, 1));
    assert!(watch.take_violations().is_empty(), "it was being written");
    watch.recovered(0, &found(4, 2));
    watch.recovered(0, &found(4, 3));
    assert_eq!(watch.take_violations().len(), 2);
}

#[test]
fn a_message_has_one_place_in_its_queue() {
    let mut watch = Watch::new(3);
    watch.delivered(QueueId(7), 3, "a:1", false);
    watch.delivered(QueueId(7), 3, "a:1", false);
    watch.delivered(QueueId(8), 4, "a:1", false);
    assert!(watch.take_violations().is_empty());
    watch.delivered(QueueId(7), 4, "a:1", false);
    watch.delivered(QueueId(7), 3, "a:2", false);
    assert_eq!(
        watch.take_violations(),
        ["a:1 is in queue 7 twice: 3 and 4", "queue 7 has a:1 and a:2 at 3"]
    );
}
