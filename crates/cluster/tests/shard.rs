//! One shard, driven by hand: what is promised to sessions, step by step.
#![allow(clippy::unwrap_used, reason = "this is test code")]

#[path = "common/node.rs"]
mod node;

use cluster::shard::Input;
use cluster::{Answer, Held, Request, Ticket};
use machine::{
    AttachError, Batch, CatalogReply, ConsumerId, ConsumerSpec, GroupId, Outcome, QueueId, Ranges,
    SessionId,
};
use node::{Kind, Node, append, bodies, credit, declare};

const ANN: SessionId = SessionId(1);
const BOB: SessionId = SessionId(2);

fn appended(answers: &[Answer]) -> Vec<u64> {
    let ticket = |answer: &Answer| match answer {
        Answer::Appended { ticket } => Some(ticket.0),
        _ => None,
    };
    answers.iter().filter_map(ticket).collect()
}

#[test]
fn a_publish_is_answered_when_it_is_synced_and_not_before() {
    let mut node = Node::new(1);
    let (queue, group) = node.declare(ANN, "orders", Kind::default());
    node.ask(ANN, append(Ticket(1), group, queue, &["a"]));
    for _ in 0..20 {
        node.ms += 50;
        node.step();
    }
    assert!(node.told(ANN).is_empty());
    node.sync(1);
    assert_eq!(appended(&node.told(ANN)), [1]);
}

#[test]
fn several_appends_are_under_way_and_answered_in_their_order() {
    let mut node = Node::new(1);
    let (queue, group) = node.declare(ANN, "orders", Kind::default());
    for ticket in 1..=4 {
        node.ask(ANN, append(Ticket(ticket), group, queue, &["a"]));
    }
    assert_eq!(node.appends.len(), 4);
    node.sync(2);
    assert_eq!(appended(&node.told(ANN)), [1, 2]);
    node.sync(1);
    assert_eq!(appended(&node.told(ANN)), [3]);
    node.sync(1);
    assert_eq!(appended(&node.told(ANN)), [4]);
}

#[test]
fn batches_of_many_sessions_become_one_entry_and_each_is_answered() {
    let mut node = Node::new(1);
    let (queue, group) = node.declare(ANN, "orders", Kind::default());
    node.submit(ANN, append(Ticket(1), group, queue, &["a"]));
    node.submit(BOB, append(Ticket(2), group, queue, &["b"]));
    node.step();
    assert_eq!(node.appends.len(), 1);
    assert_eq!(node.appends[0].2, 1, "entries");
    node.sync(1);
    assert_eq!(appended(&node.told(ANN)), [1]);
    assert_eq!(appended(&node.told(BOB)), [2]);
}

#[test]
fn a_batch_without_commands_is_answered_too() {
    let mut node = Node::new(1);
    let (_, group) = node.declare(ANN, "orders", Kind::default());
    let (ticket, batch, settles) = (Ticket(1), Batch::new(), Vec::new());
    node.ask(ANN, Request::Append { group, ticket, batch, settles });
    node.sync(1);
    assert_eq!(appended(&node.told(ANN)), [1]);
}

#[test]
fn a_batch_too_large_for_the_log_is_refused_and_those_beside_it_are_not() {
    let mut node = Node::new(1);
    let (queue, group) = node.declare(ANN, "orders", Kind::default());
    let large = "x".repeat(node::FILE_BYTES as usize / 2);
    node.submit(ANN, append(Ticket(1), group, queue, &["a"]));
    node.submit(ANN, append(Ticket(2), group, queue, &[&large]));
    node.submit(ANN, append(Ticket(3), group, queue, &["b"]));
    node.step();
    node.sync(usize::MAX);
    let told = node.told(ANN);
    assert!(matches!(told[0], Answer::AppendFailed { ticket: Ticket(2) }), "{told:?}");
    assert_eq!(appended(&told), [1, 3]);
}

#[test]
fn many_large_batches_in_one_step_are_several_appends_that_each_fit_a_file() {
    let mut node = Node::new(2);
    let first = node.declare(ANN, "orders", Kind::default());
    let second = node.declare(ANN, "other", Kind::default());
    let large = "x".repeat(node::FILE_BYTES as usize / 3);
    for nth in 0..8 {
        let (queue, group) = if nth % 2 == 0 { first } else { second };
        node.submit(ANN, append(Ticket(nth), group, queue, &[&large]));
    }
    node.step();
    assert!(node.appends.iter().all(|(_, batch, _)| batch.bytes() < node::FILE_BYTES));
    node.sync(usize::MAX);
    assert_eq!(appended(&node.told(ANN)).len(), 8);
}

#[test]
fn a_power_cut_before_the_sync_loses_nothing_that_was_answered() {
    for seed in 0..20 {
        let mut node = Node::new(1);
        let place = node.declare(ANN, "orders", Kind::default());
        node.publish(ANN, place, &["a", "b"]);
        node.ask(ANN, append(Ticket(2), place.1, place.0, &["c"]));
        assert!(node.told(ANN).is_empty());
        let mut node = node.power_cut(seed, 1);
        node.attach(BOB, place, credit(10));
        node.run_to_quiet();
        let got = node.got(BOB);
        assert_eq!(bodies(&got), ["a", "b"]);
        assert!(got.iter().all(|got| got.again), "nobody knows who saw them");
    }
}

#[test]
fn settles_ride_in_the_next_entry() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b"]);
    let consumer = node.attach(BOB, place, credit(10));
    node.settle(consumer, place, 1..2, Outcome::Done);
    assert!(node.appends.is_empty(), "it waits for company");
    node.ask(ANN, append(Ticket(1), place.1, place.0, &["c"]));
    assert_eq!(node.appends.len(), 1);
    node.sync(1);
    let status = node.status(place).unwrap();
    assert_eq!((status.counters.settled, status.counters.enqueued), (1, 3));
    node.ms += 100;
    node.step();
    assert!(node.appends.is_empty(), "it is logged once");
}

#[test]
fn settles_go_alone_after_five_milliseconds() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b"]);
    let consumer = node.attach(BOB, place, credit(10));
    let before = node.ms;
    node.settle(consumer, place, 1..2, Outcome::Done);
    assert_eq!(node.shard.deadline_ms(), before + 5);
    node.ms += 4;
    node.step();
    assert!(node.appends.is_empty());
    node.ms += 1;
    node.step();
    assert_eq!(node.appends.len(), 1);
    node.sync(1);
    let mut node = node.power_cut(1, 1);
    node.attach(BOB, place, credit(10));
    node.run_to_quiet();
    assert_eq!(bodies(&node.got(BOB)), ["b"]);
}

#[test]
fn deliveries_leave_in_order_when_the_first_must_be_read_from_the_disk() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b"]);
    let mut node = node.power_cut(1, 1);
    node.attach(BOB, place, credit(10));
    node.publish(ANN, place, &["c"]);
    assert!(node.got(BOB).is_empty(), "c is in memory, and waits for a and b");
    node.fetch();
    assert_eq!(bodies(&node.got(BOB)), ["a", "b", "c"]);
}

#[test]
fn a_requeued_message_comes_again_flagged_before_those_behind_it() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b", "c", "d"]);
    let consumer = node.attach(BOB, place, credit(2));
    assert_eq!(bodies(&node.got(BOB)), ["a", "b"]);
    // The rest of their entry is in memory, they are not.
    node.settle(consumer, place, 1..2, Outcome::Requeue);
    node.fetch();
    let got = node.got(BOB);
    assert_eq!((bodies(&got), got[0].again), (vec!["a"], true));
    node.settle(consumer, place, 1..3, Outcome::Done);
    let got = node.got(BOB);
    assert_eq!((bodies(&got), got[0].again), (vec!["c", "d"], false));
    assert!(node.fetch_count <= 2);
}

#[test]
fn a_get_gives_one_message_and_counts_those_behind_it() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b", "c"]);
    let mut node = node.power_cut(1, 1);
    let (queue, group) = place;
    let get = |number, no_ack| Request::Get {
        ticket: Ticket(number),
        group,
        queue,
        consumer: ConsumerId { session: ANN, number: 1 },
        no_ack,
    };
    node.ask(ANN, get(1, false));
    node.ask(BOB, get(2, true));
    assert!(node.told(ANN).is_empty(), "it waits for the disk, and the other for it");
    node.fetch();
    let told: Vec<_> = [node.told(ANN), node.told(BOB)].into_iter().flatten().collect();
    for (nth, answer) in told.iter().enumerate() {
        let Answer::Got { ticket, delivery: Some(delivery), ready } = answer else {
            panic!("{answer:?}");
        };
        assert_eq!((ticket.0, *ready), (nth as u64 + 1, 2 - nth as u64));
        assert_eq!(node::opened(delivery)[0].seq, nth as u64 + 1);
    }
    node.run_to_quiet();
    let status = node.status(place).unwrap();
    assert_eq!((status.ready, status.unsettled, status.counters.settled), (1, 1, 1));
}

#[test]
fn a_get_whose_queue_is_dropped_while_it_waits_for_the_disk_is_answered() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a"]);
    let mut node = node.power_cut(1, 1);
    let (queue, group) = place;
    let consumer = ConsumerId { session: ANN, number: 1 };
    node.ask(ANN, Request::Get { ticket: Ticket(3), group, queue, consumer, no_ack: false });
    node.inputs.push(Input::DropQueue { group, queue, then: None });
    node.step();
    node.sync(usize::MAX);
    assert!(matches!(node.told(ANN)[..], [Answer::Got { ticket: Ticket(3), delivery: None, .. }]));
    node.fetch();
    assert!(node.told(ANN).is_empty());
}

#[test]
fn a_purge_is_answered_once_it_is_logged_and_takes_nothing_that_is_out() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b", "c"]);
    node.attach(BOB, place, credit(1));
    let (queue, group) = place;
    node.ask(ANN, Request::Purge { ticket: Ticket(4), group, queue });
    assert!(node.told(ANN).is_empty());
    node.sync(1);
    assert!(matches!(node.told(ANN)[..], [Answer::Purged { ticket: Ticket(4), count: 2 }]));
    let mut node = node.power_cut(1, 1);
    node.attach(BOB, place, credit(9));
    node.run_to_quiet();
    assert_eq!(bodies(&node.got(BOB)), ["a"]);
    node.ask(ANN, Request::Purge { ticket: Ticket(5), group, queue });
    node.sync(1);
    assert!(matches!(node.told(ANN)[..], [Answer::Purged { ticket: Ticket(5), count: 0 }]));
}

#[test]
fn an_auto_delete_queue_goes_with_its_last_consumer_and_then_the_detach_is_answered() {
    let mut node = Node::new(1);
    let kind = Kind { auto_delete: true, ..Kind::default() };
    let place = node.declare(ANN, "temporary", kind);
    let consumer = node.attach(BOB, place, credit(1));
    node.told(BOB);
    let (queue, group) = place;
    node.ask(BOB, Request::Detach { ticket: Ticket(2), group, queue, consumer });
    assert!(node.told(BOB).is_empty());
    node.run_to_quiet();
    assert!(matches!(node.told(BOB)[..], [Answer::Detached { ticket: Ticket(2) }]));
    assert!(node.status(place).is_none());
}

#[test]
fn a_queue_that_is_of_no_use_before_the_catalog_has_heard_of_it_goes_when_it_has() {
    let mut node = Node::new(1);
    let first = node.declare(ANN, "first", Kind::default());
    let next = QueueId(first.0.0 + 1);
    // Its group had it from another node, and its time was over at once.
    node.inputs.push(Input::DeleteUnused { queue: next, detached: None });
    node.run_to_quiet();
    let place = node.declare(ANN, "second", Kind::default());
    assert_eq!(place.0, next);
    node.run_to_quiet();
    assert!(node.status(place).is_none(), "nobody else will ever delete it");
    assert!(node.status(first).is_some());
}

#[test]
fn an_exclusive_queue_goes_with_its_session() {
    let mut node = Node::new(1);
    let kind = Kind { exclusive: true, ..Kind::default() };
    let place = node.declare(ANN, "mine", kind);
    node.ask(BOB, declare(BOB, "mine", kind));
    node.run_to_quiet();
    let told = node.told(BOB);
    assert!(matches!(told[..], [Answer::Catalog { reply: CatalogReply::Refused(_), .. }]));
    node.ask(ANN, Request::EndSession { ticket: Ticket(3) });
    node.run_to_quiet();
    assert!(matches!(node.told(ANN)[..], [Answer::SessionEnded { ticket: Ticket(3) }]));
    assert!(node.status(place).is_none());
}

#[test]
fn an_exclusive_queue_goes_even_if_its_session_ended_while_it_was_declared() {
    let mut node = Node::new(1);
    let kind = Kind { exclusive: true, ..Kind::default() };
    node.ask(ANN, declare(ANN, "mine", kind));
    node.inputs.push(Input::SessionGone { session: ANN });
    node.run_to_quiet();
    assert!(node.shard.catalog().unwrap().queue("/", "mine").is_none());
    node.declare(BOB, "mine", kind);
}

#[test]
fn a_queue_that_its_session_closed_and_did_not_delete_is_open_again() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    let (queue, group) = place;
    let (if_unused, if_empty) = (false, false);
    let ticket = Ticket(1);
    node.ask(ANN, Request::CloseQueue { ticket, group, queue, if_unused, if_empty });
    node.attach(BOB, place, credit(1));
    let refused = Err(AttachError::NoQueue);
    assert!(matches!(node.told(BOB)[..], [Answer::Attached { result, .. }] if result == refused));
    node.inputs.push(Input::SessionGone { session: ANN });
    node.step();
    node.attach(BOB, place, credit(1));
    assert!(matches!(node.told(BOB)[..], [Answer::Attached { result: Ok(()), .. }]));
}

#[test]
fn a_queue_in_memory_needs_no_log() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "scratch", Kind { transient: true, ..Kind::default() });
    assert!(place.1.is_local());
    node.ask(ANN, append(Ticket(1), place.1, place.0, &["a", "b", "c"]));
    assert_eq!(appended(&node.told(ANN)), [1]);
    let consumer = node.attach(BOB, place, credit(2));
    assert_eq!(bodies(&node.got(BOB)), ["a", "b"]);
    node.settle(consumer, place, 1..2, Outcome::Done);
    node.settle(consumer, place, 2..3, Outcome::Requeue);
    let got = node.got(BOB);
    assert_eq!(bodies(&got), ["c", "b"]);
    let status = node.status(place).unwrap();
    assert_eq!((status.counters.settled, status.unsettled), (1, 2));
    assert!(node.appends.is_empty() && node.fetches.is_empty());
}

#[test]
fn a_queue_that_the_catalog_has_and_its_group_has_not_is_created_at_the_start() {
    let mut node = Node::new(1);
    node.ask(ANN, declare(ANN, "orders", Kind::default()));
    // The catalog's entry is synced; the group's, which follows, is not.
    node.sync(1);
    assert_eq!(node.appends.len(), 1);
    assert!(node.told(ANN).is_empty());
    let mut node = node.power_cut(1, 1);
    let queue = node.shard.catalog().unwrap().queue("/", "orders").unwrap();
    let place = (queue.id, queue.group);
    node.publish(ANN, place, &["a"]);
    assert_eq!(node.status(place).unwrap().ready, 1);
}

#[test]
fn a_queue_that_its_group_has_and_the_catalog_has_not_is_dropped_at_the_start() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind { exclusive: true, ..Kind::default() });
    let durable = node.declare(ANN, "kept", Kind::default());
    // A number that the catalog has given away, and to no queue that outlives its session.
    let stray = (place.0, GroupId(1));
    let settings = machine::QueueSettings::default();
    let (queue, group) = stray;
    node.inputs.push(Input::CreateQueue { group, queue, settings, then: None });
    node.step();
    node.sync(usize::MAX);
    node.publish(ANN, stray, &["a"]);
    assert!(node.status(stray).is_some());
    let mut node = node.power_cut(1, 1);
    assert!(node.status(stray).is_none());
    assert!(node.status(place).is_none(), "the session of an exclusive queue is over, too");
    assert!(node.status(durable).is_some());
}

#[test]
fn a_transaction_settles_with_its_entry_and_then_lets_go() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b", "c"]);
    let consumer = node.attach(BOB, place, credit(3));
    let (queue, group) = place;
    let mut batch = Batch::new();
    let ranges = Ranges::from(1..3);
    batch.settle(queue, Outcome::Done, &ranges);
    batch.enqueue(&[queue], &[], b"d");
    let held = Held { queue, consumer, ranges, outcome: Outcome::Done, credit: 2 };
    let again = Ranges::from(3..4);
    let outcome = Outcome::Requeue;
    let back = Held { queue, consumer, ranges: again, outcome, credit: 1 };
    node.got(BOB);
    let ticket = Ticket(6);
    node.ask(BOB, Request::Append { group, ticket, batch, settles: vec![held, back] });
    assert_eq!(node.status(place).unwrap().unsettled, 3);
    node.sync(1);
    node.fetch();
    let status = node.status(place).unwrap();
    assert_eq!((status.unsettled, status.counters.settled, status.ready), (2, 2, 0));
    let got = node.got(BOB);
    let again: Vec<_> = got.iter().map(|got| (&got.body[..], got.again)).collect();
    assert_eq!(again.len(), 2);
    assert!(again.contains(&("c", true)) && again.contains(&("d", false)), "{again:?}");
    node.run_to_quiet();
    assert_eq!(node.status(place).unwrap().counters.settled, 2, "nothing is settled twice");
}

#[test]
fn what_a_detached_consumer_was_not_sent_goes_to_others_unflagged() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a"]);
    let mut node = node.power_cut(1, 1);
    // Led now, so new messages are not flagged; the first keeps the second waiting.
    let consumer = node.attach(ANN, place, credit(5));
    node.publish(BOB, place, &["b"]);
    node.told(ANN);
    let (queue, group) = place;
    node.ask(ANN, Request::Detach { ticket: Ticket(2), group, queue, consumer });
    assert!(matches!(node.told(ANN)[..], [Answer::Detached { ticket: Ticket(2) }]));
    node.attach(BOB, place, credit(5));
    node.run_to_quiet();
    let got = node.got(BOB);
    let again: Vec<_> = got.iter().map(|got| (&got.body[..], got.again)).collect();
    assert_eq!(again, [("a", true), ("b", false)]);
    assert!(node.got(ANN).is_empty());
}

#[test]
fn what_needs_no_ack_and_waits_for_the_disk_leaves_before_the_detach_is_answered() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b"]);
    let mut node = node.power_cut(1, 1);
    let spec = ConsumerSpec { credit: 5, no_ack: true, ..ConsumerSpec::default() };
    let consumer = node.attach(ANN, place, spec);
    node.told(ANN);
    let (queue, group) = place;
    node.ask(ANN, Request::Detach { ticket: Ticket(2), group, queue, consumer });
    assert!(node.told(ANN).is_empty());
    node.run_to_quiet();
    let told = node.told(ANN);
    assert!(
        matches!(&told[..], [Answer::Delivered(all), Answer::Detached { .. }] if all.count == 2),
        "{told:?}"
    );
}

#[test]
fn a_session_that_ends_gives_back_what_it_held_and_others_go_on() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b", "c"]);
    let mut node = node.power_cut(1, 1);
    node.attach(ANN, place, credit(2));
    node.attach(BOB, place, credit(5));
    // Both wait for the same read; the first goes away meanwhile.
    node.inputs.push(Input::SessionGone { session: ANN });
    node.run_to_quiet();
    assert!(node.got(ANN).is_empty(), "nothing is sent to a session that is over");
    let mut got: Vec<u64> = node.got(BOB).iter().map(|got| got.seq).collect();
    got.sort_unstable();
    assert_eq!(got, [1, 2, 3]);
}

#[test]
fn a_consumer_of_an_ended_session_is_gone_from_every_queue() {
    let mut node = Node::new(2);
    let first = node.declare(ANN, "one", Kind::default());
    let second = node.declare(ANN, "two", Kind::default());
    for place in [first, second] {
        node.attach(BOB, place, credit(5));
    }
    node.ask(BOB, Request::EndSession { ticket: Ticket(7) });
    for place in [first, second] {
        assert_eq!(node.status(place).unwrap().consumers, 0);
    }
}

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

#[test]
fn a_node_that_stops_logs_what_was_settled_and_answers_what_it_took() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b"]);
    let consumer = node.attach(BOB, place, credit(5));
    node.told(BOB);
    node.settle(consumer, place, 1..2, Outcome::Done);
    node.shard.close(node.now());
    node.ask(ANN, append(Ticket(1), place.1, place.0, &["c"]));
    assert!(!node.shard.is_idle(node.now()));
    node.sync(usize::MAX);
    assert_eq!(appended(&node.told(ANN)), [1]);
    let ranges = Ranges::from(2..3);
    let (queue, group) = place;
    let (outcome, credit) = (Outcome::Done, 0);
    node.ask(BOB, Request::Settle { group, queue, consumer, ranges, outcome, credit });
    node.sync(usize::MAX);
    assert!(node.shard.is_idle(node.now()));
    let mut node = node.power_cut(1, 1);
    node.attach(BOB, place, node::credit(5));
    node.run_to_quiet();
    assert_eq!(bodies(&node.got(BOB)), ["c"]);
}

#[test]
fn two_thousand_declarations_in_one_step_fit_the_log_and_are_all_there_after_a_power_cut() {
    let mut node = Node::new(1);
    for nth in 0..2_000 {
        node.submit(ANN, declare(ANN, &format!("queue-{nth}"), Kind::default()));
    }
    node.run_to_quiet();
    let node = node.power_cut(1, 1);
    assert_eq!(node.shard.catalog().unwrap().queues().count(), 2_000);
}
