//! A message is taken from where it lies: by whoever carries it elsewhere.

use machine::{
    Applied, Batch, ConsumerId, ConsumerSpec, Effect, Features, GetReply, Outcome, Overflow,
    PeekFilter, Position, QueueId, QueueMachine, QueueSettings, Ranges, SessionId,
};

const Q: QueueId = QueueId(1);
const CARRIER: ConsumerId = ConsumerId { session: SessionId(7), number: 0 };
const CONSUMER: ConsumerId = ConsumerId { session: SessionId(1), number: 1 };

/// A leader with one queue.
struct Leader {
    machine: QueueMachine,
    effects: Vec<Effect>,
}

impl Leader {
    fn new(features: Features, is_paused: bool) -> Self {
        let mut leader = Self { machine: QueueMachine::new(), effects: Vec::new() };
        leader.machine.set_now(1_000);
        leader.machine.lead();
        leader.machine.start_dispatch(&mut leader.effects);
        let features = (features != Features::default()).then(|| Box::new(features));
        let mut batch = Batch::new();
        let settings =
            QueueSettings { is_durable: true, is_auto_delete: false, features, is_paused };
        batch.create_queue(Q, &settings);
        batch.keep_marks(Q);
        leader.apply(batch);
        leader
    }

    fn apply(&mut self, batch: Batch) {
        let at = Applied { index: self.machine.applied_index() + 1, time_ms: 1_000 };
        self.machine.apply(at, &batch.stamp(at.time_ms), &mut self.effects).expect("our entry");
        self.machine.check();
    }

    fn publish(&mut self, level: u8, count: usize) {
        let mut batch = Batch::new();
        (0..count).for_each(|_| batch.enqueue(&[Q.level(level)], &[], b"ten bytes."));
        self.apply(batch);
    }

    /// What is taken at a place, if something is.
    fn take(&mut self, priority: u8, seq: u64) -> Option<(QueueId, u64)> {
        let at = Position { priority, seq };
        let reply = self.machine.take(Q, CARRIER, at, &mut self.effects);
        self.machine.check();
        if reply == GetReply::Empty {
            return None;
        }
        assert!(matches!(reply, GetReply::Delivered { .. }), "{reply:?}");
        let Some(Effect::Deliver { queue, consumer, first_seq, count: 1, waits, .. }) =
            self.effects.pop()
        else {
            panic!("the last effect has it")
        };
        assert_eq!((consumer, waits), (CARRIER, false));
        Some((queue, first_seq))
    }

    fn settle(&mut self, seq: u64, outcome: Outcome) {
        let ranges = Ranges::from(seq..seq + 1);
        self.machine.settle(Q, CARRIER, &ranges, outcome, &mut self.effects);
        self.machine.check();
    }

    fn log(&mut self) {
        let mut batch = Batch::new();
        while self.machine.take_settled(&mut batch) {}
        self.apply(batch);
    }

    fn ready(&self) -> Vec<u64> {
        let seen = self.machine.peek(Q, Position::FIRST, PeekFilter::Ready, 100);
        seen.expect("a queue").messages.iter().map(|it| it.position.seq).collect()
    }

    /// What a consumer with enough credit is given, each with whether it is flagged.
    fn consume(&mut self) -> Vec<(u64, bool)> {
        self.effects.clear();
        let spec = ConsumerSpec { credit: 100, ..ConsumerSpec::default() };
        self.machine.attach(Q, CONSUMER, spec, &mut self.effects).expect("a consumer");
        let given = self.effects.iter().filter_map(|effect| match effect {
            Effect::Deliver { first_seq, count, redelivered, .. } => {
                Some((*first_seq..first_seq + u64::from(*count), *redelivered))
            }
            _ => None,
        });
        given.flat_map(|(seqs, is_flagged)| seqs.map(move |seq| (seq, is_flagged))).collect()
    }
}

#[test]
fn the_message_at_a_place_is_held_by_who_takes_it_and_gone_when_it_is_done() {
    let mut leader = Leader::new(Features::default(), false);
    leader.publish(0, 5);
    assert_eq!(leader.take(0, 3), Some((Q, 3)));
    assert_eq!(leader.take(0, 3), None, "somebody has it");
    assert_eq!((leader.take(0, 6), leader.take(1, 1)), (None, None), "there is none");
    assert_eq!(leader.ready(), [1, 2, 4, 5]);
    assert_eq!(leader.machine.status(Q).expect("the queue").unsettled, 1);
    leader.settle(3, Outcome::Done);
    leader.log();
    assert_eq!(leader.consume(), [1, 2, 4, 5].map(|seq| (seq, false)));
    let status = leader.machine.status(Q).expect("the queue");
    assert_eq!((status.counters.settled, status.unsettled), (1, 4));
}

#[test]
fn what_is_given_back_undelivered_is_as_if_nobody_had_taken_it() {
    let counts = Features { counts_returns: true, delivery_limit: Some(1), ..Features::default() };
    for features in [Features::default(), counts] {
        let mut leader = Leader::new(features, false);
        leader.publish(0, 3);
        for _ in 0..3 {
            assert_eq!(leader.take(0, 2), Some((Q, 2)));
            leader.settle(2, Outcome::Undelivered);
            leader.log();
        }
        assert_eq!(leader.consume(), [1, 2, 3].map(|seq| (seq, false)));
    }
}

#[test]
fn what_a_session_held_that_ends_is_back_in_its_place() {
    let mut leader = Leader::new(Features::default(), false);
    leader.publish(0, 3);
    assert_eq!(leader.take(0, 2), Some((Q, 2)));
    leader.machine.end_session(CARRIER.session, &mut leader.effects);
    leader.machine.check();
    assert_eq!(leader.ready(), [1, 2, 3]);
}

#[test]
fn it_is_taken_by_its_priority_also_from_a_paused_queue_with_a_limit_of_bytes() {
    let features = Features {
        max_priority: 2,
        max_length_bytes: Some(60),
        overflow: Overflow::RejectPublish,
        ..Features::default()
    };
    let mut leader = Leader::new(features, true);
    leader.publish(0, 3);
    leader.publish(2, 3);
    assert_eq!(leader.take(2, 2), Some((Q.level(2), 2)));
    assert_eq!(leader.take(0, 2), Some((Q, 2)));
    // Room for the two that were taken.
    assert_eq!(leader.machine.admit(Q, &[10, 10, 10]), [2]);
    let spec = ConsumerSpec { credit: 9, ..ConsumerSpec::default() };
    leader.machine.attach(Q, CONSUMER, spec, &mut leader.effects).expect("a consumer");
    assert!(!leader.effects.iter().any(|effect| matches!(effect, Effect::Deliver { .. })));
}

#[test]
fn a_replica_that_does_not_lead_gives_nothing() {
    let mut machine = QueueMachine::new();
    let at = Position { priority: 0, seq: 1 };
    assert_eq!(machine.take(Q, CARRIER, at, &mut Vec::new()), GetReply::NoQueue);
}
