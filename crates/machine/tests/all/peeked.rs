//! What a leader shows of the messages of a queue to somebody who takes none.

use machine::limits::{PEEKED_MESSAGES_MAX, PEEKED_STEPS_MAX};
use machine::{
    Applied, Attributes, Batch, ConsumerId, ConsumerSpec, Effect, Features, MessageState, Outcome,
    PeekFilter, Position, QueueId, QueueMachine, QueuePeek, QueueSettings, Ranges, SessionId,
};

const Q: QueueId = QueueId(1);
const ANN: ConsumerId = ConsumerId { session: SessionId(7), number: 1 };
const BOB: ConsumerId = ConsumerId { session: SessionId(8), number: 4 };

/// A leader with one queue.
fn leader(features: Features) -> QueueMachine {
    let (mut machine, mut effects) = (QueueMachine::new(), Vec::new());
    machine.lead();
    machine.start_dispatch(&mut effects);
    let features = Some(Box::new(features));
    let mut batch = Batch::new();
    batch.create_queue(
        Q,
        &QueueSettings { is_durable: true, is_auto_delete: false, features, is_paused: false },
    );
    apply(&mut machine, batch);
    machine
}

fn apply(machine: &mut QueueMachine, batch: Batch) {
    let at = Applied { index: machine.applied_index() + 1, time_ms: 1_000 };
    machine.apply(at, &batch.stamp(1_000), &mut Vec::new()).expect("our entry");
}

fn publish(machine: &mut QueueMachine, level: QueueId, count: usize, attributes: Attributes) {
    let mut batch = Batch::new();
    (0..count).for_each(|_| batch.enqueue_with(&[level], &attributes, &[], b"body"));
    apply(machine, batch);
}

fn attach(machine: &mut QueueMachine, consumer: ConsumerId, credit: u32) {
    let spec = ConsumerSpec { credit, ..ConsumerSpec::default() };
    let mut effects: Vec<Effect> = Vec::new();
    machine.attach(Q, consumer, spec, &mut effects).expect("it takes consumers");
}

fn settle(machine: &mut QueueMachine, by: ConsumerId, seq: u64, outcome: Outcome) {
    machine.settle(Q, by, &Ranges::from(seq..seq + 1), outcome, &mut Vec::new());
}

fn log(machine: &mut QueueMachine) {
    let mut batch = Batch::new();
    while machine.take_settled(&mut batch) {}
    apply(machine, batch);
}

/// Looks, and sees that looking has changed nothing.
fn peek(machine: &QueueMachine, from: Position, filter: PeekFilter, count: usize) -> QueuePeek {
    let before = (machine.digest(), format!("{machine:?}"));
    let found = machine.peek(Q, from, filter, count).expect("it is there");
    assert_eq!((machine.digest(), format!("{machine:?}")), before, "nothing is changed");
    found
}

fn all(machine: &QueueMachine, filter: PeekFilter) -> Vec<(u64, MessageState)> {
    let found = peek(machine, Position::FIRST, filter, 50);
    assert_eq!(found.next, None);
    found.messages.iter().map(|message| (message.position.seq, message.state)).collect()
}

#[test]
fn each_message_is_shown_with_how_it_stands() {
    let features = Features { dead_letters: true, ..Features::default() };
    let mut machine = leader(features);
    publish(&mut machine, Q, 4, Attributes::default());
    let delayed = Attributes { delay_ms: Some(500), ..Attributes::default() };
    publish(&mut machine, Q, 1, delayed);
    publish(&mut machine, Q, 1, Attributes::default());
    attach(&mut machine, ANN, 2);
    machine.get(Q, BOB, false, &mut Vec::new());
    settle(&mut machine, ANN, 1, Outcome::Rejected);
    log(&mut machine);
    let dead = (1, MessageState::Dead { reason: Outcome::Rejected });
    let held = [(2, MessageState::Held { by: ANN }), (3, MessageState::Held { by: BOB })];
    let ready = [(4, MessageState::Ready), (6, MessageState::Ready)];
    let delayed = (5, MessageState::Delayed { due_ms: 1_500 });
    assert_eq!(all(&machine, PeekFilter::Ready), ready);
    assert_eq!(all(&machine, PeekFilter::Held), held);
    assert_eq!(all(&machine, PeekFilter::Delayed), [delayed]);
    assert_eq!(all(&machine, PeekFilter::Dead), [dead]);
    let every = [dead, held[0], held[1], ready[0], delayed, ready[1]];
    assert_eq!(all(&machine, PeekFilter::All), every);
    assert_eq!(machine.peek(QueueId(9), Position::FIRST, PeekFilter::All, 1), None);
}

#[test]
fn what_is_settled_is_not_shown_though_the_log_has_not_heard_of_it() {
    let mut machine = leader(Features::default());
    publish(&mut machine, Q, 3, Attributes::default());
    attach(&mut machine, ANN, 1);
    settle(&mut machine, ANN, 1, Outcome::Done);
    assert_eq!(machine.settled_waiting(), 1);
    let ready = [2, 3].map(|seq| (seq, MessageState::Ready));
    assert_eq!(all(&machine, PeekFilter::All), ready);
    machine.purge(Q);
    assert_eq!(all(&machine, PeekFilter::All), []);
}

#[test]
fn the_highest_priority_comes_first_one_level_at_a_time() {
    let mut machine = leader(Features { max_priority: 9, ..Features::default() });
    publish(&mut machine, Q, 2, Attributes::default());
    publish(&mut machine, Q.level(9), 2, Attributes::default());
    publish(&mut machine, Q.level(4), 1, Attributes::default());
    let mut from = Some(Position::FIRST);
    let mut seen = Vec::new();
    while let Some(position) = from {
        let found = peek(&machine, position, PeekFilter::All, 50);
        let levels = found.messages.iter().map(|message| message.position.priority);
        assert!(levels.clone().all(|priority| Q.level(priority) == found.level));
        seen.push(levels.collect::<Vec<_>>());
        from = found.next;
    }
    assert_eq!(seen, [vec![9, 9], vec![4], vec![0, 0]]);
    let inside = Position { priority: 9, seq: 2 };
    let found = peek(&machine, inside, PeekFilter::Ready, 50);
    assert_eq!(found.messages.len(), 1);
    // A priority that the queue has not.
    let between = Position { priority: 5, seq: 77 };
    assert_eq!(peek(&machine, between, PeekFilter::Ready, 50).level, Q.level(4));
}

#[test]
fn a_look_is_bounded_and_says_where_to_go_on() {
    let mut machine = leader(Features::default());
    publish(&mut machine, Q, 3 * PEEKED_MESSAGES_MAX, Attributes::default());
    // Those who hold are many, and their messages lie among each other.
    let holders = (1..=60).map(|session| ConsumerId { session: SessionId(session), number: 1 });
    holders.for_each(|holder| attach(&mut machine, holder, 3));
    let mut seqs = Vec::new();
    let mut from = Position::FIRST;
    loop {
        let found = peek(&machine, from, PeekFilter::All, usize::MAX);
        assert!(found.messages.len() <= PEEKED_MESSAGES_MAX);
        seqs.extend(found.messages.iter().map(|message| message.position.seq));
        match found.next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert!(seqs.iter().copied().eq(1..=3 * PEEKED_MESSAGES_MAX as u64), "{seqs:?}");
}

#[test]
fn messages_whose_delay_is_over_are_passed_over_so_many_at_a_time() {
    let mut machine = leader(Features::default());
    let delayed = |delay_ms| Attributes { delay_ms: Some(delay_ms), ..Attributes::default() };
    publish(&mut machine, Q, PEEKED_STEPS_MAX + 5, delayed(10));
    publish(&mut machine, Q, 1, delayed(1_000_000));
    machine.set_now(2_000);
    while machine.deadline().is_some_and(|due_ms| due_ms <= 2_000) {
        machine.tick(2_000, &mut Vec::new());
    }
    let first = peek(&machine, Position::FIRST, PeekFilter::Delayed, 10);
    assert!(first.messages.is_empty());
    let second = peek(&machine, first.next.expect("there is more"), PeekFilter::Delayed, 10);
    let seqs: Vec<u64> = second.messages.iter().map(|message| message.position.seq).collect();
    assert_eq!((seqs, second.next), (vec![PEEKED_STEPS_MAX as u64 + 6], None));
}

#[test]
fn it_is_said_when_a_message_expires_and_how_often_it_came_back() {
    let mut machine = leader(Features { counts_returns: true, ..Features::default() });
    let ttl = Attributes { ttl_ms: Some(60_000), ..Attributes::default() };
    publish(&mut machine, Q, 2, ttl);
    attach(&mut machine, ANN, 1);
    settle(&mut machine, ANN, 1, Outcome::Requeue);
    log(&mut machine);
    let found = peek(&machine, Position::FIRST, PeekFilter::All, 10);
    let told = found.messages.iter().map(|message| (message.expires_ms, message.returns));
    assert_eq!(told.collect::<Vec<_>>(), [(Some(61_000), 1), (Some(61_000), 0)]);
}
