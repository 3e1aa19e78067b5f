//! Messages that somebody looks at: where their bytes are found, and that nothing else comes of it.

use bytes::Bytes;
use cluster::limits::PEEKS_AT_ONCE;
use cluster::{NotPeeked, PeekSpec, Peeked};
use machine::{Attributes, MessageState, PeekFilter, Position, Value};

use super::*;

/// Who looks.
const CAT: SessionId = SessionId(9);

fn everything() -> PeekSpec {
    PeekSpec {
        from: Position::FIRST,
        filter: PeekFilter::All,
        count: 50,
        body_bytes_max: 100,
        contains: Bytes::new(),
    }
}

fn request((queue, group): (QueueId, GroupId), spec: PeekSpec) -> Request {
    Request::Peek { ticket: Ticket(5), group, queue, spec: Box::new(spec) }
}

fn answer(node: &mut Node) -> Result<Peeked, NotPeeked> {
    match node.told(CAT).pop() {
        Some(Answer::Peeked { ticket: Ticket(5), result }) => result.map(|peeked| *peeked),
        other => panic!("nothing is shown: {other:?}"),
    }
}

fn peek(node: &mut Node, place: (QueueId, GroupId), spec: PeekSpec) -> Peeked {
    node.ask(CAT, request(place, spec));
    node.look();
    answer(node).unwrap()
}

fn shown(peeked: &Peeked) -> Vec<&str> {
    peeked.messages.iter().map(|it| std::str::from_utf8(&it.body).unwrap()).collect()
}

/// A consumer gets these in this order, and none counts as seen before.
fn comes_as_if_nobody_had_looked(node: &mut Node, place: (QueueId, GroupId), expected: &[&str]) {
    node.attach(BOB, place, credit(50));
    node.run_to_quiet();
    let got = node.got(BOB);
    assert_eq!(bodies(&got), expected);
    assert!(got.iter().all(|got| !got.again));
}

#[test]
fn a_message_is_shown_from_the_log_with_the_time_at_which_it_came() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b"]);
    let came_ms = node.now().wall_ms;
    for is_in_memory in [true, false] {
        let peeked = peek(&mut node, place, everything());
        assert_eq!((shown(&peeked), peeked.next), (vec!["a", "b"], None), "{is_in_memory}");
        for message in &peeked.messages {
            assert_eq!(message.is.state, MessageState::Ready);
            let told_ms = message.enqueued_ms.unwrap();
            assert!(told_ms <= came_ms && told_ms + 1_000 > came_ms, "{told_ms}");
        }
        node = node.power_cut(1, 1);
    }
    comes_as_if_nobody_had_looked(&mut node, place, &["a", "b"]);
}

#[test]
fn a_message_is_shown_from_a_segment() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b", "c"]);
    node.want_checkpoint(place.1);
    node.checkpoint();
    node.publish(ANN, place, &["d"]);
    for _ in 0..2 {
        let peeked = peek(&mut node, place, everything());
        assert_eq!(shown(&peeked), ["a", "b", "c", "d"]);
        let times: Vec<bool> =
            peeked.messages.iter().map(|message| message.enqueued_ms.is_some()).collect();
        assert_eq!(times, [false, false, false, true], "segments do not say");
        node = node.power_cut(1, 1);
    }
    comes_as_if_nobody_had_looked(&mut node, place, &["a", "b", "c", "d"]);
}

#[test]
fn a_message_is_shown_from_the_memory_of_a_node() {
    let mut node = Node::new(1);
    let kind = Kind { transient: true, ..Kind::default() };
    let place = node.declare(ANN, "scratch", kind);
    node.publish(ANN, place, &["a", "b"]);
    assert!(place.1.is_local());
    assert_eq!(shown(&peek(&mut node, place, everything())), ["a", "b"]);
    comes_as_if_nobody_had_looked(&mut node, place, &["a", "b"]);
}

#[test]
fn a_look_that_is_overtaken_by_a_checkpoint_is_shorter_and_the_next_shows_the_rest() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b"]);
    let filler = "x".repeat(10_000);
    let other = node.declare(ANN, "other", Kind::default());
    node.ask(CAT, request(place, everything()));
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
    node.publish(ANN, other, &["y"]);
    node.recycle();
    node.look();
    let first = Position { priority: 0, seq: 1 };
    let overtaken = Peeked { messages: Vec::new(), next: Some(first), ends: vec![3] };
    assert_eq!(answer(&mut node), Ok(overtaken), "its place in the log is gone");
    assert_eq!(shown(&peek(&mut node, place, everything())), ["a", "b"]);
    comes_as_if_nobody_had_looked(&mut node, place, &["a", "b"]);
}

#[test]
fn no_delivery_waits_for_a_look_and_what_is_held_is_shown_with_its_holder() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a", "b"]);
    let mut node = node.power_cut(1, 1);
    node.ask(CAT, request(place, everything()));
    let consumer = node.attach(BOB, place, credit(1));
    node.run_to_quiet();
    assert_eq!(bodies(&node.got(BOB)), ["a"], "nobody has read for the look yet");
    node.look();
    assert_eq!(shown(&answer(&mut node).unwrap()), ["a", "b"]);
    let states = |node: &mut Node, filter| -> Vec<MessageState> {
        let peeked = peek(node, place, PeekSpec { filter, ..everything() });
        peeked.messages.iter().map(|message| message.is.state).collect()
    };
    let held = MessageState::Held { by: consumer };
    assert_eq!(states(&mut node, PeekFilter::All), [held, MessageState::Ready]);
    assert_eq!(states(&mut node, PeekFilter::Held), [held]);
    node.settle(consumer, place, 1..2, Outcome::Done);
    assert_eq!(shown(&peek(&mut node, place, everything())), ["b"], "the other is settled");
}

#[test]
fn what_is_dead_and_what_is_delayed_is_shown() {
    let mut node = Node::new(1);
    let dead = [("x-dead-letter-exchange", Value::LongStr(b"dead".to_vec()))];
    let place = node.declare_with(ANN, "orders", Kind::default(), &dead);
    node.publish(ANN, place, &["a", "b"]);
    let consumer = node.attach(BOB, place, credit(1));
    node.settle(consumer, place, 1..2, Outcome::Rejected);
    node.sync(usize::MAX);
    node.ms += 10;
    node.step();
    node.sync(usize::MAX);
    let later = Attributes { delay_ms: Some(60_000), ..Attributes::default() };
    node.publish_with(ANN, place, &later, "later");
    let peeked = peek(&mut node, place, PeekSpec { filter: PeekFilter::Dead, ..everything() });
    assert_eq!(shown(&peeked), ["a"]);
    let reason = Outcome::Rejected;
    assert_eq!(peeked.messages[0].is.state, MessageState::Dead { reason });
    let delayed = PeekSpec { filter: PeekFilter::Delayed, ..everything() };
    let peeked = peek(&mut node, place, delayed);
    assert_eq!(shown(&peeked), ["later"]);
    let MessageState::Delayed { due_ms } = peeked.messages[0].is.state else { panic!("delayed") };
    assert!(due_ms > node.now().wall_ms + 50_000);
}

#[test]
fn a_look_shows_as_much_as_is_wanted_and_says_where_to_go_on() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    let all: Vec<String> = (0..250).map(|nth| format!("message {nth}")).collect();
    for some in all.chunks(3) {
        let some: Vec<&str> = some.iter().map(String::as_str).collect();
        node.publish(ANN, place, &some);
    }
    let seen = |node: &mut Node, spec: PeekSpec| {
        let (mut seen, mut from) = (Vec::new(), Some(spec.from));
        while let Some(position) = from {
            let peeked = peek(node, place, PeekSpec { from: position, ..spec.clone() });
            assert!(peeked.messages.len() <= spec.count as usize);
            seen.extend(shown(&peeked).into_iter().map(str::to_owned));
            from = peeked.next;
        }
        seen
    };
    assert_eq!(seen(&mut node, PeekSpec { count: 7, ..everything() }), all);
    assert_eq!(seen(&mut node, PeekSpec { count: u32::MAX, ..everything() }), all);
    let from = Position { priority: 0, seq: 248 };
    assert_eq!(seen(&mut node, PeekSpec { from, ..everything() }), all[247..]);
    let contains = Bytes::from_static(b"e 24");
    let expected: Vec<_> = all.iter().filter(|body| body.contains("e 24")).cloned().collect();
    assert_eq!(seen(&mut node, PeekSpec { contains, count: 2, ..everything() }), expected);
    let peeked = peek(&mut node, place, PeekSpec { body_bytes_max: 3, ..everything() });
    assert_eq!((shown(&peeked)[0], peeked.messages[0].body_bytes), ("mes", 9));
}

#[test]
fn so_many_look_at_a_time_and_who_comes_later_is_told_to_ask_again() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    node.publish(ANN, place, &["a"]);
    for _ in 0..PEEKS_AT_ONCE {
        node.ask(CAT, request(place, everything()));
    }
    assert_eq!(node.peeks.len(), PEEKS_AT_ONCE);
    node.ask(CAT, request(place, everything()));
    assert_eq!(answer(&mut node), Err(NotPeeked::Busy));
    node.look();
    assert_eq!(shown(&answer(&mut node).unwrap()), ["a"]);
    node.ask(CAT, request(place, everything()));
    assert_eq!(node.peeks.len(), PEEKS_AT_ONCE);
    let nothing = PeekSpec { filter: PeekFilter::Dead, ..everything() };
    let other = node.declare(ANN, "other", Kind::default());
    node.ask(CAT, request((QueueId(999), place.1), nothing));
    assert_eq!(answer(&mut node), Err(NotPeeked::NoQueue));
    while !node.peeks.is_empty() {
        node.look();
    }
    let nothing = Peeked { ends: vec![1], ..Peeked::default() };
    assert_eq!(peek(&mut node, other, everything()), nothing, "the first message is still to come");
}
