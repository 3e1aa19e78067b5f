//! One shard, driven by hand: queues that keep time, limits, priorities and dead letters, step by step
//! and through power cuts.

use crate::node::{Kind, Node, bodies, credit, opened};
use cluster::exchange::Input;
use cluster::{Answer, Request, Ticket};
use machine::{
    Attributes, ConsumerId, ConsumerSpec, GroupId, Outcome, QueueId, Ranges, SessionId, Value,
};

const ANN: SessionId = SessionId(1);
const BOB: SessionId = SessionId(2);

type Place = (QueueId, GroupId);

fn text(value: &str) -> Value {
    Value::LongStr(value.as_bytes().to_vec())
}

fn dead_letters() -> (&'static str, Value) {
    ("x-dead-letter-exchange", text("dead"))
}

fn quorum() -> (&'static str, Value) {
    ("x-queue-type", text("quorum"))
}

fn level((queue, group): Place, priority: u8) -> Place {
    (queue.level(priority), group)
}

fn delayed(delay_ms: u64) -> Attributes {
    Attributes { delay_ms: Some(delay_ms), ..Attributes::default() }
}

/// Everything that the dead-letter worker was given since the last time: reason and body.
fn left(node: &mut Node) -> Vec<(Outcome, String)> {
    let left = node.left().into_iter();
    left.flat_map(|(reason, _, got)| got.into_iter().map(move |it| (reason, it.body))).collect()
}

fn names(left: &[(Outcome, String)]) -> Vec<(Outcome, &str)> {
    left.iter().map(|(reason, body)| (*reason, &body[..])).collect()
}

#[test]
fn what_expires_is_the_dead_letter_workers_until_it_is_stored_elsewhere() {
    for kind in [Kind::default(), Kind { transient: true, ..Kind::default() }] {
        let mut node = Node::new(1);
        node.open_dead_letter_worker();
        let ttl = ("x-message-ttl", Value::I32(50));
        let place = node.declare_with(ANN, "short-lived", kind, &[ttl, dead_letters()]);
        node.publish(ANN, place, &["a", "b"]);
        let published_ms = node.ms;
        assert!(node.shard.deadline_ms() <= published_ms + 50);
        node.pass(49);
        assert!(left(&mut node).is_empty());
        node.pass(1);
        assert_eq!(names(&left(&mut node)), [(Outcome::Expired, "a"), (Outcome::Expired, "b")]);
        let status = node.status(place).unwrap();
        assert_eq!((status.ready, status.leaving, status.counters.dead_lettered), (0, 2, 0));
        node.dead_lettered(place, 1..2);
        node.pass(10);
        let status = node.status(place).unwrap();
        assert_eq!((status.leaving, status.counters.dead_lettered), (1, 1));
        assert!(left(&mut node).is_empty(), "it is given out once");
        assert!(node.shard.deadline_ms() > node.ms, "nothing is due any more");
    }
}

#[test]
fn what_the_dead_letter_worker_has_not_stored_before_a_power_cut_is_given_to_the_next_one() {
    let mut node = Node::new(1);
    node.open_dead_letter_worker();
    let ttl = ("x-message-ttl", Value::I32(50));
    let place = node.declare_with(ANN, "short-lived", Kind::default(), &[ttl, dead_letters()]);
    node.publish(ANN, place, &["a", "b", "c"]);
    node.pass(50);
    assert_eq!(left(&mut node).len(), 3);
    node.dead_lettered(place, 2..3);
    node.pass(10);
    let mut node = node.power_cut(1, 1);
    node.pass(10);
    assert!(left(&mut node).is_empty(), "there is no dead-letter worker");
    node.open_dead_letter_worker();
    node.pass(1);
    assert_eq!(names(&left(&mut node)), [(Outcome::Expired, "a"), (Outcome::Expired, "c")]);
    node.inputs.push(Input::SessionGone { session: SessionId(1 << 48) });
    node.open_dead_letter_worker();
    node.pass(1);
    assert_eq!(left(&mut node).len(), 2, "another dead-letter worker is told all that is left");
}

#[test]
fn time_goes_on_while_nobody_runs() {
    let mut node = Node::new(1);
    let ttl = ("x-message-ttl", Value::I32(5000));
    let place = node.declare_with(ANN, "short-lived", Kind::default(), &[ttl]);
    node.publish(ANN, place, &["a"]);
    node.publish_with(ANN, place, &delayed(3000), "b");
    let disk = node.disk.clone();
    drop(node);
    let mut node = Node::start_at(6000, &disk, 1);
    assert_eq!(node.status(place).unwrap().counters.dropped, 1, "it has expired meanwhile");
    node.attach(BOB, place, credit(10));
    node.pass(1);
    assert_eq!(bodies(&node.got(BOB)), ["b"]);
}

#[test]
fn a_delayed_message_comes_in_its_time_and_not_before_also_after_a_power_cut() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "later", Kind::default());
    let start_ms = node.ms;
    for (delay, body) in [(300, "c"), (100, "a"), (200, "b")] {
        node.publish_with(ANN, place, &delayed(delay), body);
    }
    node.publish(ANN, place, &["now"]);
    let consumer = node.attach(BOB, place, credit(10));
    assert_eq!(bodies(&node.got(BOB)), ["now"]);
    let status = node.status(place).unwrap();
    assert_eq!((status.ready, status.delayed), (0, 3));
    node.pass(start_ms + 99 - node.ms);
    assert!(node.got(BOB).is_empty());
    node.pass(5);
    assert_eq!(bodies(&node.got(BOB)), ["a"]);
    node.settle(consumer, place, 2..3, Outcome::Done);
    node.settle(consumer, place, 4..5, Outcome::Done);
    node.pass(10);
    let mut node = node.power_cut(1, 1);
    node.attach(BOB, place, credit(10));
    node.pass((start_ms + 199).saturating_sub(node.ms));
    assert!(node.got(BOB).is_empty());
    node.pass(10);
    assert_eq!(bodies(&node.got(BOB)), ["b"]);
    node.pass(100);
    assert_eq!(bodies(&node.got(BOB)), ["c"]);
}

#[test]
fn many_delayed_messages_come_in_the_order_of_their_times_from_wherever_they_lie() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "later", Kind::default());
    let start_ms = node.ms;
    let filler = "x".repeat(300);
    for nth in 0..400u64 {
        let due = 5000 + (nth * 7919) % 400;
        let delay = start_ms + due - node.ms;
        node.publish_with(ANN, place, &delayed(delay), &format!("{due}-{filler}"));
        if nth % 100 == 99 {
            node.want_checkpoint(place.1);
            node.checkpoint();
            node.pass(1);
        }
    }
    assert!(!node.metas[&place.1].is_empty(), "some lie in segments");
    node.attach(BOB, place, credit(1000));
    node.pass(start_ms + 5000 - node.ms);
    let mut last = None;
    for _ in 0..420 {
        node.pass(1);
        for got in node.got(BOB) {
            let due: u64 = got.body.split_once('-').unwrap().0.parse().unwrap();
            assert!(node.ms >= start_ms + due, "{due} comes early");
            assert!(node.ms <= start_ms + due + 20, "{due} comes late");
            assert!(last < Some(due));
            last = Some(due);
        }
    }
    assert_eq!(last, Some(5399));
}

#[test]
fn levels_are_served_by_priority_and_held_and_given_back_apart() {
    let mut node = Node::new(1);
    let place =
        node.declare_with(ANN, "urgent", Kind::default(), &[("x-max-priority", Value::I32(9))]);
    for (priority, body) in [(0, "low 1"), (5, "mid"), (9, "high 1"), (9, "high 2"), (0, "low 2")] {
        node.publish(ANN, level(place, priority), &[body]);
    }
    assert_eq!(node.status(place).unwrap().ready, 5);
    let consumer = node.attach(BOB, place, credit(2));
    assert_eq!(bodies(&node.got(BOB)), ["high 1", "high 2"]);
    node.settle(consumer, level(place, 9), 1..2, Outcome::Done);
    assert_eq!(bodies(&node.got(BOB)), ["mid"], "credit is the consumer's, not the level's");
    node.settle(consumer, level(place, 9), 2..3, Outcome::Requeue);
    node.fetch();
    let got = node.got(BOB);
    assert_eq!((bodies(&got), got[0].again), (vec!["high 2"], true));
    node.run_to_quiet();
    let mut node = node.power_cut(3, 1);
    let status = node.status(place).unwrap();
    assert_eq!((status.ready, status.counters.settled), (4, 1));
    node.want_checkpoint(place.1);
    node.checkpoint();
    node.recycle();
    let mut node = node.power_cut(4, 1);
    node.attach(BOB, place, credit(9));
    node.run_to_quiet();
    let mut got: Vec<String> = node.got(BOB).into_iter().map(|got| got.body).collect();
    got.sort();
    assert_eq!(got, ["high 2", "low 1", "low 2", "mid"]);
    let (queue, group) = place;
    node.inputs.push(Input::DropQueue { group, queue, then: None });
    node.run_to_quiet();
    assert!(node.status(place).is_none());
}

#[test]
fn dead_messages_of_a_level_leave_though_only_another_level_has_given_any_out() {
    let mut node = Node::new(1);
    node.open_dead_letter_worker();
    let ttl = ("x-message-ttl", Value::I32(50));
    let arguments = [("x-max-priority", Value::I32(2)), ttl, dead_letters()];
    let place = node.declare_with(ANN, "ranked", Kind::default(), &arguments);
    node.publish(ANN, level(place, 2), &["high"]);
    node.attach(BOB, place, credit(1));
    assert_eq!(bodies(&node.got(BOB)), ["high"]);
    node.publish(ANN, level(place, 1), &["low"]);
    node.pass(60);
    assert_eq!(names(&left(&mut node)), [(Outcome::Expired, "low")]);
}

#[test]
fn what_lies_in_memory_does_not_overtake_what_was_to_go_before_it() {
    for is_cold in [false, true] {
        let mut node = Node::new(1);
        let priority = ("x-max-priority", Value::I32(9));
        let place = node.declare_with(ANN, "urgent", Kind::default(), &[priority]);
        for nth in 0..40u16 {
            node.publish(ANN, level(place, (nth * 7 % 10) as u8), &[&format!("{}", nth * 7 % 10)]);
        }
        if is_cold {
            node = node.power_cut(1, 1);
            for nth in 0..20u16 {
                node.publish(
                    ANN,
                    level(place, (nth * 3 % 9) as u8),
                    &[&format!("{}", nth * 3 % 9)],
                );
            }
        }
        node.attach(BOB, place, credit(100));
        let mut got = Vec::new();
        for _ in 0..20 {
            got.extend(node.got(BOB));
            node.fetch();
        }
        let priorities = bodies(&got);
        assert_eq!(priorities.len(), if is_cold { 60 } else { 40 });
        assert!(priorities.is_sorted_by(|one, next| one >= next), "{priorities:?}");
        assert!(!is_cold || node.fetch_count > 0);
    }
}

#[test]
fn a_detach_is_answered_after_the_last_delivery_of_the_last_level() {
    let mut node = Node::new(1);
    let place =
        node.declare_with(ANN, "urgent", Kind::default(), &[("x-max-priority", Value::I32(3))]);
    for priority in [0, 1, 3] {
        node.publish(ANN, level(place, priority), &["a"]);
    }
    let mut node = node.power_cut(1, 1);
    let spec = ConsumerSpec { no_ack: true, ..credit(10) };
    let consumer = node.attach(BOB, place, spec);
    let (queue, group) = place;
    node.ask(BOB, Request::Detach { ticket: Ticket(7), group, queue, consumer, takes_back: true });
    let is_detached = |it: &Answer| matches!(it, Answer::Detached { ticket: Ticket(7) });
    let mut told = Vec::new();
    while !told.iter().any(is_detached) {
        assert!(!node.fetches.is_empty(), "it waits for the disk: {told:?}");
        node.fetch();
        told.extend(node.told(BOB));
    }
    let delivered = told.iter().filter(|it| matches!(it, Answer::Delivered(_))).count();
    assert_eq!(delivered, 3);
    assert!(is_detached(told.last().unwrap()));
}

#[test]
fn a_message_that_comes_back_too_often_is_kept_aside_and_each_return_survives_power_cuts() {
    let mut node = Node::new(1);
    let limit = ("x-delivery-limit", Value::I32(2));
    let place = node.declare_with(ANN, "tried", Kind::default(), &[quorum(), limit]);
    node.publish(ANN, place, &["poison", "fine"]);
    for round in 0..3 {
        let consumer = node.attach(BOB, place, credit(1));
        node.pass(5);
        let told = node.told(BOB);
        let returns = told.iter().find_map(|it| match it {
            Answer::Delivered(delivery) => Some((delivery.first_seq, delivery.returns)),
            _ => None,
        });
        assert_eq!(returns, Some((1, round)));
        node.settle(consumer, place, 1..2, Outcome::Requeue);
        node.pass(1);
        assert!(left(&mut node).is_empty());
        node = node.power_cut(u64::from(round), 1);
    }
    node.open_dead_letter_worker();
    node.pass(5);
    assert_eq!(names(&left(&mut node)), [(Outcome::Exhausted, "poison")]);
    let status = node.status(place).unwrap();
    assert_eq!((status.ready, status.leaving), (1, 1));
}

#[test]
fn who_gives_back_and_asks_again_finds_it_where_returns_are_counted() {
    for is_one_step in [true, false] {
        let mut node = Node::new(1);
        let place = node.declare_with(ANN, "counted", Kind::default(), &[quorum()]);
        let (queue, group) = place;
        node.publish(ANN, place, &["a", "b"]);
        let consumer = ConsumerId { session: BOB, number: 1 };
        let get = |ticket| Request::Get { ticket, group, queue, consumer, no_ack: false, at: None };
        node.ask(BOB, get(Ticket(1)));
        node.run_to_quiet();
        assert_eq!(got(&node.told(BOB)), [(1, 0)]);
        for returns in 1..4 {
            let (ranges, outcome) = (Ranges::from(1..2), Outcome::Requeue);
            let settle = Request::Settle { group, queue, consumer, ranges, outcome, credit: 0 };
            node.submit(BOB, settle);
            if !is_one_step {
                node.step();
            }
            node.ask(BOB, get(Ticket(returns)));
            assert_eq!(got(&node.told(BOB)), [], "the log does not have it yet");
            node.run_to_quiet();
            assert_eq!(got(&node.told(BOB)), [(1, returns as u32)]);
        }
        node.settle(consumer, place, 1..2, Outcome::Requeue);
        assert_eq!(node.status(place).unwrap().ready, 2, "it has come back");
    }
}

#[test]
fn what_a_get_gives_to_a_consumer_on_its_way_is_no_answer_to_the_get() {
    let mut node = Node::new(1);
    let place = node.declare(ANN, "orders", Kind::default());
    let (queue, group) = place;
    node.attach(BOB, place, credit(1));
    for body in ["to the consumer", "to who fetches"] {
        node.publish_with(ANN, place, &delayed(50), body);
    }
    node.told(BOB);
    node.ms += 60;
    let consumer = ConsumerId { session: ANN, number: 7 };
    node.ask(
        ANN,
        Request::Get { ticket: Ticket(9), group, queue, consumer, no_ack: false, at: None },
    );
    node.run_to_quiet();
    let delivered = node.told(BOB);
    let [Answer::Delivered(delivered)] = &delivered[..] else { panic!("{delivered:?}") };
    assert_eq!(bodies(&opened(delivered)), ["to the consumer"]);
    assert_eq!(got(&node.told(ANN)), [(2, 0)]);
}

/// What `basic.get` gave: number and returns.
fn got(told: &[Answer]) -> Vec<(u64, u32)> {
    let delivery = |answer: &Answer| match answer {
        Answer::Got { delivery, .. } => delivery.as_ref().map(|it| (it.first_seq, it.returns)),
        other => panic!("{other:?}"),
    };
    told.iter().map(|answer| delivery(answer).unwrap_or_default()).collect()
}

#[test]
fn a_transaction_that_gives_back_counts_it_once_and_leaves_nothing_in_the_consumers_hands() {
    let mut node = Node::new(1);
    let limit = ("x-delivery-limit", Value::I32(5));
    let place = node.declare_with(ANN, "tried", Kind::default(), &[quorum(), limit]);
    node.publish(ANN, place, &["a"]);
    let consumer = node.attach(BOB, place, credit(1));
    node.got(BOB);
    let (queue, group) = place;
    let ranges = Ranges::from(1..2);
    let mut batch = machine::Batch::new();
    batch.settle(queue, Outcome::Requeue, &ranges);
    let held = cluster::Held { queue, consumer, ranges, outcome: Outcome::Requeue, credit: 1 };
    let ticket = Ticket(3);
    node.ask(BOB, Request::Append { group, ticket, batch, settles: vec![held] });
    node.pass(5);
    let returns = node.told(BOB).iter().find_map(|it| match it {
        Answer::Delivered(delivery) => Some((delivery.redelivered, delivery.returns)),
        _ => None,
    });
    assert_eq!(returns, Some((true, 1)));
    let status = node.status(place).unwrap();
    assert_eq!((status.ready, status.unsettled), (0, 1));
}

#[test]
fn the_first_messages_go_when_there_is_no_room_and_that_is_logged_though_nobody_asks() {
    let mut node = Node::new(1);
    node.open_dead_letter_worker();
    let length = ("x-max-length", Value::I32(2));
    let place = node.declare_with(ANN, "short", Kind::default(), &[length, dead_letters()]);
    node.publish(ANN, place, &["a", "b", "c", "d"]);
    assert_eq!(node.status(place).unwrap().ready, 2);
    node.pass(10);
    assert_eq!(names(&left(&mut node)), [(Outcome::Overflowed, "a"), (Outcome::Overflowed, "b")]);
    let mut node = node.power_cut(2, 1);
    node.attach(BOB, place, credit(9));
    node.run_to_quiet();
    assert_eq!(bodies(&node.got(BOB)), ["c", "d"]);
}

#[test]
fn a_full_queue_that_refuses_says_which_messages_it_has_no_room_for() {
    let mut node = Node::new(1);
    let arguments = [("x-max-length", Value::I32(2)), ("x-overflow", text("reject-publish"))];
    let (queue, group) = node.declare_with(ANN, "short", Kind::default(), &arguments);
    let ask = |node: &mut Node| {
        let sizes = vec![10, 10, 10];
        node.ask(BOB, Request::Admit { ticket: Ticket(4), group, queue, sizes });
        match node.told(BOB).pop() {
            Some(Answer::Admitted { ticket: Ticket(4), refused }) => refused,
            other => panic!("not answered: {other:?}"),
        }
    };
    assert_eq!(ask(&mut node), [2]);
    assert_eq!(ask(&mut node), [0, 1, 2], "room is kept for what was admitted");
    node.publish(ANN, (queue, group), &["a", "b"]);
    assert_eq!(node.status((queue, group)).unwrap().ready, 2);
    assert_eq!(ask(&mut node), [0, 1, 2]);
}

#[test]
fn a_queue_that_nobody_uses_goes_and_one_that_is_asked_for_stays() {
    for kind in [Kind::default(), Kind { transient: true, ..Kind::default() }] {
        let mut node = Node::new(1);
        let expires = ("x-expires", Value::I32(300));
        let used = node.declare_with(ANN, "used", kind, std::slice::from_ref(&expires));
        let consumed = node.declare_with(ANN, "consumed", kind, std::slice::from_ref(&expires));
        let unused = node.declare_with(ANN, "unused", kind, &[expires]);
        let consumer = node.attach(BOB, consumed, credit(1));
        for _ in 0..3 {
            node.pass(200);
            assert!(node.status(used).is_some());
        }
        let catalog = node.shard.catalog().unwrap();
        assert!(catalog.queue("/", "unused").is_none(), "it is gone from the catalog, too");
        assert!(node.status(unused).is_none());
        assert!(node.status(consumed).is_some());
        let (queue, group) = consumed;
        node.ask(
            BOB,
            Request::Detach { ticket: Ticket(7), group, queue, consumer, takes_back: true },
        );
        node.pass(290);
        assert!(node.shard.catalog().unwrap().queue("/", "consumed").is_some());
        node.pass(20);
        assert!(node.shard.catalog().unwrap().queue("/", "consumed").is_none());
    }
}

#[test]
fn what_is_rejected_leaves_in_its_order_while_deliveries_go_on() {
    let mut node = Node::new(1);
    node.open_dead_letter_worker();
    let place = node.declare_with(ANN, "orders", Kind::default(), &[dead_letters()]);
    let all: Vec<String> = (0..600).map(|nth| format!("{nth}")).collect();
    let all: Vec<&str> = all.iter().map(|body| &body[..]).collect();
    node.publish(ANN, place, &all);
    let consumer = node.attach(BOB, place, credit(1000));
    assert_eq!(node.got(BOB).len(), 600);
    node.settle(consumer, place, 1..501, Outcome::Rejected);
    node.sync(usize::MAX);
    node.publish(ANN, place, &["young"]);
    assert_eq!(bodies(&node.got(BOB)), ["young"], "the dead ones wait for the disk, it does not");
    node.pass(5);
    let gone = left(&mut node);
    assert!(gone.iter().all(|(reason, _)| *reason == Outcome::Rejected));
    let gone: Vec<&str> = gone.iter().map(|(_, body)| &body[..]).collect();
    assert_eq!(gone, all[..500]);
    node.dead_lettered(place, 1..501);
    node.run_to_quiet();
    let status = node.status(place).unwrap();
    assert_eq!((status.counters.dead_lettered, status.leaving, status.unsettled), (500, 0, 101));
}

#[test]
fn a_session_that_ends_counts_as_a_return_where_that_is_counted() {
    let mut node = Node::new(1);
    let limit = ("x-delivery-limit", Value::I32(1));
    let place = node.declare_with(ANN, "tried", Kind::default(), &[quorum(), limit]);
    node.publish(ANN, place, &["a"]);
    let mut returns = Vec::new();
    for number in 10..12 {
        let session = SessionId(number);
        node.attach(session, place, credit(1));
        node.pass(3);
        returns.extend(node.told(session).iter().filter_map(|it| match it {
            Answer::Delivered(delivery) => Some(delivery.returns),
            _ => None,
        }));
        node.inputs.push(Input::SessionGone { session });
        node.pass(3);
    }
    assert_eq!(returns, [0, 1]);
    node.open_dead_letter_worker();
    node.pass(3);
    assert_eq!(names(&left(&mut node)), [(Outcome::Exhausted, "a")]);
}

#[test]
fn a_deleted_queue_delivers_nothing_more_and_its_dead_messages_are_the_dead_letter_workers_still() {
    let mut node = Node::new(1);
    let place = node.declare_with(ANN, "orders", Kind::default(), &[dead_letters()]);
    node.publish(ANN, place, &["dead", "alive"]);
    let consumer = node.attach(BOB, place, credit(1));
    node.settle(consumer, place, 1..2, Outcome::Rejected);
    node.run_to_quiet();
    let mut node = node.power_cut(1, 1);
    node.attach(BOB, place, credit(5));
    node.told(BOB);
    assert!(!node.fetches.is_empty(), "a delivery waits for the disk");
    let (queue, group) = place;
    node.inputs.push(Input::DropQueue { group, queue, then: None });
    node.step();
    node.sync(usize::MAX);
    assert!(matches!(node.told(BOB)[..], [Answer::Cancelled { .. }]));
    node.run_to_quiet();
    assert!(node.told(BOB).is_empty(), "nothing comes after that");
    assert!(node.status(place).is_none());
    let mut node = node.power_cut(2, 1);
    node.want_checkpoint(group);
    node.checkpoint();
    node.open_dead_letter_worker();
    node.pass(5);
    assert_eq!(names(&left(&mut node)), [(Outcome::Rejected, "dead")]);
    node.dead_lettered(place, 1..2);
    node.run_to_quiet();
    node.open_dead_letter_worker();
    node.pass(5);
    assert!(left(&mut node).is_empty());
}
