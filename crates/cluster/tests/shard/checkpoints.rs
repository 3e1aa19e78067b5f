//! Checkpoints and segments: what is written, read again, and given back to the disk.

use super::*;

/// A queue with `count` messages in a segment, on a node that has just started.
fn segment(count: u64) -> (Node, (QueueId, GroupId)) {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    for nth in 1..=count {
        node.publish(ANN, place, &[&nth.to_string()]);
    }
    node.want_checkpoint(place.1);
    node.checkpoint();
    (node.power_cut(1, 1), place)
}

#[test]
fn messages_of_a_segment_with_holes_are_read_without_asking_for_the_holes_for_ever() {
    let (mut node, place) = segment(30);
    let consumer = node.attach(BOB, place, credit(30));
    node.run_to_quiet();
    for seq in 2..30 {
        node.settle(consumer, place, seq..seq + 1, Outcome::Done);
    }
    node.run_to_quiet();
    let mut node = node.power_cut(2, 1);
    let consumer = node.attach(BOB, place, credit(1));
    node.run_to_quiet();
    assert_eq!(bodies(&node.got(BOB)), ["1"]);
    assert!(node.fetch_count < 5, "{} fetches", node.fetch_count);
    node.settle(consumer, place, 1..2, Outcome::Done);
    node.run_to_quiet();
    assert_eq!(bodies(&node.got(BOB)), ["30"]);
}

#[test]
fn a_fetch_that_is_overtaken_by_a_checkpoint_finds_its_messages_in_the_segment() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b"]);
    let filler = "x".repeat(10_000);
    let other = node.declare(ANN, "other", Kind::default());
    let mut node = node.power_cut(1, 1);
    node.attach(BOB, place, credit(5));
    assert_eq!(node.fetches.len(), 1);
    let (queue, group) = other;
    for _ in 0..20 {
        node.publish(ANN, other, &[&filler]);
        node.ask(ANN, Request::Purge { ticket: Ticket(8), group, queue });
        node.sync(usize::MAX);
    }
    for group in [GroupId::CATALOG, group] {
        node.want_checkpoint(group);
        node.checkpoint();
    }
    // The log hears of the checkpoints with its next write; then the old files may go.
    node.publish(ANN, other, &["y"]);
    node.recycle();
    node.fetch();
    assert!(node.got(BOB).is_empty(), "its place in the log is gone");
    assert_eq!(node.fetches.len(), 1, "so it is asked again");
    node.fetch();
    assert_eq!(bodies(&node.got(BOB)), ["a", "b"]);
}

#[test]
fn what_needs_no_ack_and_waits_for_the_disk_outlives_a_checkpoint() {
    let (mut node, place) = segment(3);
    let spec = ConsumerSpec { credit: 9, no_ack: true, ..ConsumerSpec::default() };
    node.attach(BOB, place, spec);
    // Its settles are logged before its bytes are here, and a checkpoint follows.
    node.ms += 10;
    node.step();
    node.sync(usize::MAX);
    assert_eq!(node.status(place).unwrap().counters.settled, 3);
    node.want_checkpoint(place.1);
    node.checkpoint();
    node.run_to_quiet();
    assert_eq!(bodies(&node.got(BOB)), ["1", "2", "3"]);
    node.publish(ANN, place, &["4"]);
    assert_eq!(bodies(&node.got(BOB)), ["4"]);
}

#[test]
fn a_checkpoint_that_is_wanted_too_early_comes_when_there_is_something_for_it() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.want_checkpoint(place.1);
    node.checkpoint();
    node.want_checkpoint(place.1);
    assert!(node.jobs.is_empty(), "nothing happened since the last one");
    node.publish(ANN, place, &["a"]);
    assert_eq!(node.jobs.len(), 1);
}

#[test]
fn a_checkpoint_without_room_can_be_wanted_again() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    let group = place.1;
    for group in [group, GroupId::CATALOG] {
        node.want_checkpoint(group);
        node.jobs.pop_front().unwrap();
        node.inputs.push(Input::CheckpointFailed { group });
        node.step();
        assert!(node.jobs.is_empty());
        node.want_checkpoint(group);
        assert_eq!(node.jobs.len(), 1);
        node.checkpoint();
    }
}

#[test]
fn a_queue_created_or_dropped_while_a_checkpoint_is_written_is_as_it_should_be() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a"]);
    node.want_checkpoint(place.1);
    let later = node.declare(ANN, "later", Kind::default());
    node.publish(ANN, later, &["b"]);
    node.inputs.push(Input::DropQueue { group: place.1, queue: place.0, then: None });
    node.step();
    node.sync(usize::MAX);
    node.checkpoint();
    let mut node = node.power_cut(1, 1);
    node.attach(BOB, later, credit(5));
    node.run_to_quiet();
    assert_eq!(bodies(&node.got(BOB)), ["b"]);
}

#[test]
fn a_drained_backlog_wants_its_space_back() {
    let (mut node, place) = segment(10);
    node.review(place.1);
    assert!(node.jobs.is_empty(), "all of it is alive");
    let consumer = node.attach(BOB, place, credit(20));
    node.run_to_quiet();
    node.settle(consumer, place, 1..8, Outcome::Done);
    node.run_to_quiet();
    node.review(place.1);
    node.checkpoint();
    let live: u64 =
        node.metas[&place.1].iter().flat_map(|meta| &meta.extents).map(|e| e.count).sum();
    assert_eq!(live, 3);
    node.review(place.1);
    assert!(node.jobs.is_empty());
    let mut node = node.power_cut(2, 1);
    node.attach(BOB, place, credit(20));
    node.run_to_quiet();
    assert_eq!(bodies(&node.got(BOB)), ["8", "9", "10"]);
}
