//! One shard, driven by hand: what is promised to sessions, step by step.
#![allow(clippy::unwrap_used, reason = "this is test code")]

mod checkpoints;
mod filters;
#[path = "../common/node.rs"]
mod node;
mod partitions;
mod peeks;
mod queues;
mod rates;
mod streams;
mod subscriptions;
mod withheld;

use cluster::exchange::Input;
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
        assert!(got.iter().all(|got| !got.again), "nobody has seen them");
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
    // The log hears that they go out.
    node.sync(usize::MAX);
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
        at: None,
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
    node.ask(
        ANN,
        Request::Get { ticket: Ticket(3), group, queue, consumer, no_ack: false, at: None },
    );
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
    node.sync(usize::MAX);
    node.sync(usize::MAX);
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
    // The first, which is on disk, keeps the second waiting.
    let consumer = node.attach(ANN, place, credit(5));
    node.publish(BOB, place, &["b"]);
    node.told(ANN);
    let (queue, group) = place;
    node.ask(ANN, Request::Detach { ticket: Ticket(2), group, queue, consumer, takes_back: true });
    assert!(matches!(node.told(ANN)[..], [Answer::Detached { ticket: Ticket(2) }]));
    node.attach(BOB, place, credit(5));
    node.run_to_quiet();
    let got = node.got(BOB);
    let again: Vec<_> = got.iter().map(|got| (&got.body[..], got.again)).collect();
    assert_eq!(again, [("a", false), ("b", false)]);
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
    node.ask(ANN, Request::Detach { ticket: Ticket(2), group, queue, consumer, takes_back: true });
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
