//! Consumers come back with what they hold: to a new leader, or to the same over a new connection.

use machine::{
    Applied, AttachError, Attached, Batch, ConsumerId, ConsumerSpec, Effect, GetReply, Outcome,
    QueueId, QueueMachine, QueueSettings, Ranges, SessionId,
};

const Q: QueueId = QueueId(1);

fn who(number: u64) -> ConsumerId {
    ConsumerId { session: SessionId(number), number: 1 }
}

fn spec(credit: u32) -> ConsumerSpec {
    ConsumerSpec { credit, ..ConsumerSpec::default() }
}

fn attached(number: u64, credit: u32, held: std::ops::Range<u64>) -> Attached {
    let held = Ranges::from(held);
    Attached { queue: Q, consumer: who(number), spec: spec(credit), is_attached: true, held }
}

fn only(numbers: &[u64]) -> impl Fn(SessionId) -> bool + '_ {
    |session| numbers.contains(&session.0)
}

fn delivery(number: u64, run: std::ops::Range<u64>, redelivered: bool) -> Effect {
    Effect::Deliver {
        queue: Q,
        consumer: who(number),
        first_seq: run.start,
        count: (run.end - run.start) as u32,
        redelivered,
        no_ack: false,
        returns: 0,
        waits: false,
    }
}

fn apply(machine: &mut QueueMachine, batch: Batch) -> Vec<Effect> {
    let at = Applied { index: machine.applied_index() + 1, time_ms: 0 };
    let mut effects = Vec::new();
    machine.apply(at, &batch.stamp(0), &mut effects).expect("our own entry");
    effects
}

/// A leader with ten messages, where sessions 1 and 2 hold three each.
fn leader(is_auto_delete: bool) -> QueueMachine {
    let mut machine = QueueMachine::new();
    machine.lead();
    machine.start_dispatch(&mut Vec::new());
    let mut batch = Batch::new();
    batch.create_queue(
        Q,
        &QueueSettings { is_durable: true, is_auto_delete, features: None, is_paused: false },
    );
    apply(&mut machine, batch);
    for number in [1, 2] {
        machine.attach(Q, who(number), spec(3), &mut Vec::new()).expect("the queue exists");
    }
    let mut batch = Batch::new();
    for _ in 0..10 {
        batch.enqueue(&[Q], &[], b"body");
    }
    apply(&mut machine, batch);
    machine
}

fn held(machine: &QueueMachine, number: u64) -> Vec<u64> {
    let found = machine.attachments().into_iter().find(|it| it.consumer == who(number));
    found.map_or(Vec::new(), |attached| attached.held.iter().collect())
}

#[test]
fn attachments_say_who_holds_what_with_the_credit_that_is_left() {
    let mut machine = leader(false);
    machine.settle(Q, who(1), &Ranges::from(1..2), Outcome::Done, &mut Vec::new());
    machine.get(Q, who(3), false, &mut Vec::new());
    machine.credit(Q, who(2), 5, &mut Vec::new());
    machine.detach(Q, who(1), &mut Vec::new());
    let all = machine.attachments();
    let of = |number: u64| all.iter().find(|it| it.consumer == who(number)).expect("a holder");
    assert_eq!((of(1).is_attached, of(1).held.len()), (false, 2));
    assert_eq!((of(2).is_attached, of(2).spec.credit, of(2).held.len()), (true, 2, 6));
    assert_eq!((of(3).is_attached, held(&machine, 3)), (false, vec![7]));
    assert_eq!(machine.attachments().len(), 3);
}

#[test]
fn a_new_leader_gives_what_is_held_to_nobody_else_and_flags_the_rest() {
    let old = leader(false);
    let held_before = [held(&old, 1), held(&old, 2)];
    let mut machine = QueueMachine::restore(&old.snapshot()).expect("our own snapshot");
    machine.lead();
    let mut effects = Vec::new();
    let all = old.attachments();
    machine.join(only(&[2]), &all, &mut effects);
    assert_eq!([held(&machine, 1), held(&machine, 2)], [vec![], held_before[1].clone()]);
    machine.attach(Q, who(3), spec(1), &mut effects).expect("the queue exists");
    machine.join(only(&[1]), &all, &mut effects);
    assert_eq!([held(&machine, 1), held(&machine, 2)], held_before);
    assert_eq!(effects, [], "nothing goes out yet");
    assert_eq!(machine.get(Q, who(9), false, &mut effects), GetReply::NotYet);
    machine.start_dispatch(&mut effects);
    assert_eq!(effects, [delivery(3, 7..8, true)]);
    // What comes back later is flagged, what was acknowledged is gone.
    machine.settle(Q, who(1), &Ranges::from(1..10), Outcome::Done, &mut effects);
    machine.join(only(&[1]), &all, &mut effects);
    assert_eq!(held(&machine, 1), [] as [u64; 0]);
}

#[test]
fn what_a_delivery_lost_on_its_way_goes_out_again_flagged() {
    let mut machine = leader(false);
    assert_eq!(held(&machine, 1), [1, 3, 5]);
    let mut effects = Vec::new();
    machine.join(only(&[1]), &[attached(1, 3, 3..6)], &mut effects);
    // 3 and 5 are its own, 4 is the other's, 1 never came.
    assert_eq!(held(&machine, 2), [2, 4, 6]);
    assert_eq!(effects, [delivery(1, 1..2, true), delivery(1, 7..9, false)]);
    assert_eq!(held(&machine, 1), [1, 3, 5, 7, 8]);
}

#[test]
fn an_auto_delete_queue_is_unused_if_its_consumers_do_not_come_back() {
    let mut machine = leader(true);
    let mut effects = Vec::new();
    machine.join(only(&[1, 2]), &[attached(2, 0, 2..3)], &mut effects);
    assert_eq!(effects, []);
    machine.join(only(&[2]), &[attached(2, 0, 2..3)], &mut effects);
    assert_eq!(effects, [], "it lost its last consumer and has it again");
    let holder = Attached { is_attached: false, ..attached(2, 0, 2..3) };
    machine.join(only(&[2]), &[holder], &mut effects);
    assert_eq!(effects, [Effect::Unused { queue: Q }]);
    let refused = machine.attach(Q, who(3), spec(1), &mut effects);
    assert_eq!(refused, Err(AttachError::NoQueue));
}

#[test]
fn a_consumer_that_did_not_hear_that_it_is_attached_keeps_its_auto_delete_queue() {
    let mut machine = leader(true);
    let mut effects = Vec::new();
    let asking =
        |number| Attached { is_attached: false, held: Ranges::new(), ..attached(number, 5, 1..2) };
    machine.join(only(&[1, 2]), &[asking(1), asking(3)], &mut effects);
    assert_eq!(effects, [], "nothing is delivered to it before it asks again");
    let there = machine.attachments();
    assert_eq!(there.len(), 1, "node 3 asks for the first time: {there:?}");
    assert!(there[0].is_attached && there[0].consumer == who(1) && there[0].spec.credit == 0);
    machine.attach(Q, who(1), spec(1), &mut effects).expect("the queue exists");
    assert_eq!(effects, [delivery(1, 1..2, true)]);
}

#[test]
fn a_fresh_auto_delete_queue_waits_for_its_first_consumer() {
    let old = leader(true);
    let mut machine = QueueMachine::restore(&old.snapshot()).expect("our own snapshot");
    machine.lead();
    let mut effects = Vec::new();
    machine.join(only(&[1, 2]), &[], &mut effects);
    machine.start_dispatch(&mut effects);
    assert_eq!(effects, []);
}

#[test]
fn who_cannot_be_attached_is_cancelled_and_keeps_what_it_holds() {
    let mut machine = leader(false);
    let mut effects = Vec::new();
    let gone = Attached { queue: QueueId(9), ..attached(1, 1, 1..2) };
    let holder = Attached { is_attached: false, ..gone.clone() };
    machine.join(only(&[1]), &[gone, holder], &mut effects);
    assert_eq!(effects[0], Effect::Cancelled { queue: QueueId(9), consumer: who(1) });
    assert_eq!(effects.len(), 1, "who only held has nothing to lose: {effects:?}");
    machine.detach(Q, who(2), &mut effects);
    let exclusive = ConsumerSpec { exclusive: true, ..spec(0) };
    machine.attach(Q, who(3), exclusive, &mut effects).expect("nobody else consumes");
    effects.clear();
    machine.join(only(&[1]), &[attached(1, 1, 1..2)], &mut effects);
    assert_eq!(effects, [Effect::Cancelled { queue: Q, consumer: who(1) }]);
    assert_eq!(held(&machine, 1), [1]);
}

#[test]
fn a_node_speaks_for_its_own_sessions_only_and_to_leaders() {
    let mut machine = leader(false);
    let mut effects = Vec::new();
    machine.join(only(&[1]), &[attached(1, 0, 1..2), attached(2, 9, 2..3)], &mut effects);
    assert_eq!(effects, []);
    assert_eq!(held(&machine, 2), [2, 4, 6]);
    machine.follow();
    machine.join(only(&[1]), &[attached(1, 0, 1..2)], &mut effects);
    assert_eq!((effects.len(), machine.attachments().len()), (0, 0));
}

#[test]
fn an_auto_delete_queue_is_not_over_before_all_its_consumers_had_the_time_to_come() {
    let unused = Effect::Unused { queue: Q };
    for (comes_back, expected) in [(true, vec![]), (false, vec![unused])] {
        let mut machine = leader(true);
        // Another leads from here on, and the first to come back goes at once.
        machine.lead();
        let mut effects = Vec::new();
        machine.join(only(&[1]), &[attached(1, 0, 1..4)], &mut effects);
        machine.end_session(SessionId(1), &mut effects);
        assert_eq!(effects, [], "nobody knows who else consumes");
        if comes_back {
            machine.join(only(&[2]), &[attached(2, 0, 4..7)], &mut effects);
        }
        machine.start_dispatch(&mut effects);
        assert_eq!(effects, expected);
        let again = machine.attach(Q, who(3), spec(0), &mut effects);
        assert_eq!(again.is_ok(), comes_back);
    }
}
