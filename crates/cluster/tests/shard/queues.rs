//! Queues that come and go: with their consumers, their sessions, or by the catalog.

use super::*;

#[test]
fn an_auto_delete_queue_goes_with_its_last_consumer_and_then_the_detach_is_answered() {
    let mut node = Node::new(1);
    let kind = Kind { auto_delete: true, ..Kind::default() };
    let place = node.declare(ANN, "temporary", kind);
    let consumer = node.attach(BOB, place, credit(1));
    node.told(BOB);
    let (queue, group) = place;
    node.ask(BOB, Request::Detach { ticket: Ticket(2), group, queue, consumer, takes_back: true });
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
    // The broker that asked compares: it finds that the queue is another session's.
    let told = node.told(BOB);
    let is_there = |it: &Answer| {
        let Answer::Catalog { reply, .. } = it else { return false };
        matches!(reply, CatalogReply::QueueDeclared { created: false, .. })
    };
    assert!(told.iter().all(is_there) && told.len() == 1, "{told:?}");
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
    let agreed = machine::Version::NEWEST;
    node.inputs.push(Input::CreateQueue { group, queue, settings, agreed, then: None });
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
fn a_delivery_does_not_leave_before_the_log_has_heard_of_it() {
    let mut node = Node::new(1);
    assert_eq!(node.shard.catalog().unwrap().agreed(), machine::Version::NEWEST);
    let max_length = ("x-max-length", machine::Value::I32(1));
    let plain = node.declare(ANN, "plain", Kind::default());
    let limited = node.declare_with(ANN, "limited", Kind::default(), &[max_length]);
    for place in [plain, limited] {
        node.publish(ANN, place, &["a"]);
        let consumer = ConsumerId { session: BOB, number: 1 };
        let (queue, group) = place;
        let (ticket, spec) = (Ticket(9), credit(1));
        node.ask(BOB, Request::Attach { ticket, group, queue, consumer, spec });
        assert!(node.got(BOB).is_empty(), "its mark is not in the log");
        assert!(!node.appends.is_empty(), "its mark is on its way at once");
        let status = node.status(place).unwrap();
        assert_eq!((status.ready, status.unsettled), (0, 1), "its consumer holds it");
        node.sync(usize::MAX);
        let got = node.got(BOB);
        assert_eq!((bodies(&got), got[0].again), (vec!["a"], false));
        node.settle(consumer, place, 1..2, Outcome::Done);
        node.ask(BOB, Request::Detach { ticket, group, queue, consumer, takes_back: true });
    }
}

#[test]
fn a_fetch_is_answered_when_the_log_has_heard_of_it() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b"]);
    let (queue, group) = place;
    let consumer = ConsumerId { session: BOB, number: 1 };
    node.ask(
        BOB,
        Request::Get { ticket: Ticket(1), group, queue, consumer, no_ack: true, at: None },
    );
    assert!(node.told(BOB).is_empty() && !node.appends.is_empty());
    node.sync(usize::MAX);
    assert_eq!(bodies(&node.got(BOB)), ["a"]);
}

#[test]
fn what_is_withdrawn_before_the_log_has_heard_of_it_comes_unflagged_to_the_next() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b"]);
    let (queue, group) = place;
    let consumer = ConsumerId { session: BOB, number: 1 };
    let (ticket, spec) = (Ticket(9), credit(2));
    node.ask(BOB, Request::Attach { ticket, group, queue, consumer, spec });
    node.ask(BOB, Request::Detach { ticket, group, queue, consumer, takes_back: true });
    node.sync(usize::MAX);
    assert!(node.got(BOB).is_empty());
    node.attach(ANN, place, credit(2));
    let got = node.got(ANN);
    assert_eq!(bodies(&got), ["a", "b"]);
    assert!(got.iter().all(|got| !got.again));
}

#[test]
fn a_consumer_that_cancels_is_sent_first_what_it_was_given_before() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b"]);
    let (queue, group) = place;
    let consumer = ConsumerId { session: BOB, number: 1 };
    let spec = credit(2);
    node.ask(BOB, Request::Attach { ticket: Ticket(8), group, queue, consumer, spec });
    node.told(BOB);
    let (ticket, takes_back) = (Ticket(9), false);
    node.ask(BOB, Request::Detach { ticket, group, queue, consumer, takes_back });
    assert!(node.told(BOB).is_empty(), "their mark is not in the log");
    node.sync(usize::MAX);
    let told = node.told(BOB);
    let is_end = |answer: &Answer| matches!(answer, Answer::Detached { ticket: Ticket(9) });
    assert!(told.last().is_some_and(is_end), "{told:?}");
    let delivered = told.iter().filter_map(|answer| match answer {
        Answer::Delivered(delivery) => Some(delivery.count),
        _ => None,
    });
    assert_eq!(delivered.sum::<u32>(), 2);
    node.settle(consumer, place, 1..3, Outcome::Done);
}

#[test]
fn what_needs_no_ack_is_not_lost_with_a_session_that_was_not_sent_it() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b"]);
    let (queue, group) = place;
    let consumer = ConsumerId { session: BOB, number: 1 };
    let (ticket, spec) = (Ticket(9), ConsumerSpec { no_ack: true, ..credit(2) });
    node.ask(BOB, Request::Attach { ticket, group, queue, consumer, spec });
    node.inputs.push(Input::SessionGone { session: BOB });
    node.step();
    node.sync(usize::MAX);
    node.pass(20);
    assert!(node.got(BOB).is_empty());
    node.attach(ANN, place, credit(2));
    let got = node.got(ANN);
    assert_eq!(bodies(&got), ["a", "b"]);
    assert!(got.iter().all(|got| !got.again));
}

#[test]
fn what_a_shard_leads_is_told_in_pieces_and_each_queue_once() {
    let mut node = Node::new(3);
    let mut declared: Vec<QueueId> =
        ["a", "b", "c", "d"].map(|name| node.declare(ANN, name, Kind::default()).0).to_vec();
    let kind = Kind { exclusive: true, ..Kind::default() };
    declared.push(node.declare(ANN, "mine", kind).0);
    declared.sort_unstable();
    let (mut told, mut behind) = (Vec::new(), None);
    loop {
        let piece = node.shard.tally(behind, 2);
        assert!(piece.queues.len() <= 2 && piece.groups.is_empty() == behind.is_some());
        told.extend(piece.queues.iter().map(|led| led.queue));
        if !piece.is_cut {
            break;
        }
        behind = piece.queues.last().map(|led| (led.group, led.queue));
    }
    told.sort_unstable();
    assert_eq!(told, declared);

    let all = node.shard.tally(None, 100);
    assert_eq!((all.created, all.deleted, all.queues.len()), (5, 0, 5));
    node.ask(ANN, Request::EndSession { ticket: Ticket(3) });
    node.run_to_quiet();
    let all = node.shard.tally(None, 100);
    assert_eq!((all.created, all.deleted, all.queues.len()), (5, 1, 4));
}
