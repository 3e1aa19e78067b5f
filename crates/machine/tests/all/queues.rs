//! What a queue promises its consumers, one promise each.

use machine::{
    Applied, AttachError, Batch, CloseError, ConsumerId, ConsumerSpec, Effect, GetReply, Outcome,
    QueueId, QueueMachine, QueueSettings, Ranges, Seqs, SessionId,
};

const Q: QueueId = QueueId(1);

/// A leader with one queue.
struct Leader {
    machine: QueueMachine,
    effects: Vec<Effect>,
}

/// Who got which messages, and whether flagged.
type Delivered = Vec<(u64, std::ops::Range<u64>, bool)>;

fn who(number: u64) -> ConsumerId {
    ConsumerId { session: SessionId(number), number: 1 }
}

impl Leader {
    fn new() -> Self {
        Self::with(QueueSettings { is_durable: true, ..Default::default() })
    }

    fn with(settings: QueueSettings) -> Self {
        let mut leader = Self { machine: QueueMachine::new(), effects: Vec::new() };
        leader.machine.lead();
        leader.machine.start_dispatch(&mut leader.effects);
        let mut batch = Batch::new();
        batch.create_queue(Q, &settings);
        leader.apply(batch);
        leader.effects.clear();
        leader
    }

    fn apply(&mut self, batch: Batch) {
        let at = Applied { index: self.machine.applied_index() + 1, time_ms: 0 };
        self.machine.apply(at, &batch.stamp(0), &mut self.effects).expect("our own entry");
    }

    fn publish(&mut self, count: u64) {
        let mut batch = Batch::new();
        for _ in 0..count {
            batch.enqueue(&[Q], &[], b"body");
        }
        self.apply(batch);
    }

    fn attach(&mut self, number: u64, credit: u32) {
        self.attach_as(number, ConsumerSpec { credit, ..ConsumerSpec::default() });
    }

    fn attach_as(&mut self, number: u64, spec: ConsumerSpec) {
        let attached = self.machine.attach(Q, who(number), spec, &mut self.effects);
        assert_eq!(attached, Ok(()));
    }

    fn settle(&mut self, number: u64, range: std::ops::Range<u64>, outcome: Outcome) {
        self.machine.settle(Q, who(number), &Ranges::from(range), outcome, &mut self.effects);
    }

    fn delivered(&mut self) -> Delivered {
        let all = std::mem::take(&mut self.effects).into_iter();
        all.filter_map(|effect| match effect {
            Effect::Deliver { consumer, first_seq, count, redelivered, .. } => {
                let range = first_seq..first_seq + u64::from(count);
                Some((consumer.session.0, range, redelivered))
            }
            _ => None,
        })
        .collect()
    }

    fn ready(&self) -> u64 {
        self.machine.status(Q).expect("the queue exists").ready
    }
}

#[test]
fn one_consumer_gets_one_run_up_to_its_credit() {
    let mut leader = Leader::new();
    leader.attach(1, 200);
    leader.publish(300);
    assert_eq!(leader.delivered(), [(1, 1..201, false)]);
    leader.machine.credit(Q, who(1), 1_000, &mut leader.effects);
    assert_eq!(leader.delivered(), [(1, 201..301, false)]);
}

#[test]
fn consumers_take_turns_message_by_message() {
    let mut leader = Leader::new();
    for number in 1..=3 {
        leader.attach(number, 2);
    }
    leader.publish(7);
    let turns: Vec<_> = leader.delivered().into_iter().map(|(who, run, _)| (who, run)).collect();
    assert_eq!(turns, [(1, 1..2), (2, 2..3), (3, 3..4), (1, 4..5), (2, 5..6), (3, 6..7)]);
    assert_eq!(leader.ready(), 1);
    // The turn goes on where it stopped, with whoever has credit first.
    leader.machine.credit(Q, who(2), 1, &mut leader.effects);
    assert_eq!(leader.delivered(), [(2, 7..8, false)]);
}

#[test]
fn a_backlog_is_dealt_in_chunks_and_still_evenly() {
    let mut leader = Leader::new();
    leader.publish(10_000);
    leader.effects.clear();
    leader.attach(1, 0);
    leader.attach(2, 0);
    // Both come into line before anything can go: the first has its credit while the second asks.
    leader.machine.credit(Q, who(1), 1, &mut leader.effects);
    assert_eq!(leader.delivered().len(), 1);
    let mut leader = Leader::new();
    leader.attach(1, 5_000);
    leader.attach(2, 5_000);
    leader.publish(10_000);
    let delivered = leader.delivered();
    assert!(delivered.len() < 3_000, "{} deliveries", delivered.len());
    let of = |number| -> u64 {
        let own = delivered.iter().filter(|(who, _, _)| *who == number);
        own.map(|(_, run, _)| run.end - run.start).sum()
    };
    assert_eq!((of(1), of(2)), (5_000, 5_000));
}

#[test]
fn a_higher_priority_is_served_while_it_has_credit() {
    let mut leader = Leader::new();
    leader.attach_as(1, ConsumerSpec { credit: 5, ..ConsumerSpec::default() });
    leader.attach_as(2, ConsumerSpec { credit: 2, priority: 1, ..ConsumerSpec::default() });
    leader.publish(4);
    assert_eq!(leader.delivered(), [(2, 1..3, false), (1, 3..5, false)]);
}

#[test]
fn a_requeued_message_goes_back_to_its_place_and_is_flagged() {
    let mut leader = Leader::new();
    leader.attach(1, 3);
    leader.publish(5);
    leader.effects.clear();
    leader.settle(1, 2..3, Outcome::Requeue);
    assert_eq!(leader.delivered(), []);
    leader.machine.credit(Q, who(1), 2, &mut leader.effects);
    assert_eq!(leader.delivered(), [(1, 2..3, true), (1, 4..5, false)]);
}

#[test]
fn what_never_reached_a_client_comes_back_unflagged() {
    let mut leader = Leader::new();
    leader.attach(1, 3);
    leader.publish(3);
    leader.effects.clear();
    leader.settle(1, 3..4, Outcome::Requeue);
    leader.settle(1, 1..4, Outcome::Undelivered);
    leader.attach(2, 3);
    assert_eq!(leader.delivered(), [(2, 1..3, false), (2, 3..4, true)]);
}

#[test]
fn a_session_that_ends_gives_back_what_it_held_in_order_and_flagged() {
    let mut leader = Leader::new();
    leader.attach(1, 2);
    leader.publish(4);
    assert!(matches!(
        leader.machine.get(Q, who(1), false, &mut leader.effects),
        GetReply::Delivered { ready: 1 }
    ));
    leader.attach(2, 1);
    leader.effects.clear();
    leader.machine.end_session(SessionId(1), &mut leader.effects);
    leader.machine.credit(Q, who(2), 9, &mut leader.effects);
    assert_eq!(leader.delivered(), [(2, 1..4, true)]);
    let status = leader.machine.status(Q).expect("the queue exists");
    assert_eq!((status.consumers, status.unsettled), (1, 4));
}

#[test]
fn what_a_session_settled_does_not_come_back_with_its_end() {
    let mut leader = Leader::new();
    leader.attach(1, 3);
    leader.publish(3);
    leader.settle(1, 1..3, Outcome::Done);
    leader.machine.end_session(SessionId(1), &mut leader.effects);
    assert_eq!(leader.ready(), 1);
    leader.effects.clear();
    leader.attach(2, 9);
    assert_eq!(leader.delivered(), [(2, 3..4, true)]);
}

#[test]
fn a_settle_counts_only_for_what_the_consumer_holds() {
    let mut leader = Leader::new();
    leader.attach(1, 2);
    leader.publish(4);
    leader.settle(2, 1..5, Outcome::Done);
    leader.settle(1, 2..100, Outcome::Done);
    leader.settle(1, 2..3, Outcome::Requeue);
    assert_eq!(leader.machine.settled_waiting(), 1);
    let status = leader.machine.status(Q).expect("the queue exists");
    assert_eq!((status.ready, status.unsettled), (2, 1));
}

#[test]
fn a_new_leader_flags_all_it_finds_and_nothing_that_comes_later() {
    let mut leader = Leader::new();
    leader.publish(3);
    let snapshot = leader.machine.snapshot();
    leader.machine = QueueMachine::restore(&snapshot).expect("our own snapshot");
    let spec = ConsumerSpec::default();
    let attached = leader.machine.attach(Q, who(1), spec, &mut leader.effects);
    assert_eq!(attached, Err(AttachError::NotLeading));
    assert_eq!(leader.machine.get(Q, who(1), true, &mut leader.effects), GetReply::NoQueue);
    leader.machine.lead();
    leader.publish(2);
    leader.effects.clear();
    leader.attach(1, 9);
    assert_eq!(leader.machine.get(Q, who(2), true, &mut leader.effects), GetReply::NotYet);
    assert_eq!(leader.effects, []);
    leader.machine.start_dispatch(&mut leader.effects);
    assert!(leader.machine.is_dispatching());
    assert_eq!(leader.delivered(), [(1, 1..4, true), (1, 4..6, false)]);
}

#[test]
fn a_message_without_acknowledgement_is_settled_as_it_goes() {
    let mut leader = Leader::new();
    leader.attach_as(1, ConsumerSpec { credit: 9, no_ack: true, ..ConsumerSpec::default() });
    leader.publish(2);
    leader.machine.end_session(SessionId(1), &mut leader.effects);
    assert_eq!((leader.ready(), leader.machine.settled_waiting()), (0, 2));
    assert_eq!(leader.machine.kept(Q).map(Seqs::to_ranges), Some(Ranges::from(1..3)));
    let mut batch = Batch::new();
    assert!(leader.machine.take_settled(&mut batch));
    leader.apply(batch);
    assert_eq!(leader.machine.kept(Q).map(Seqs::to_ranges), Some(Ranges::new()));
    let settled = Effect::Settled { queue: Q, ranges: Ranges::from(1..3) };
    assert_eq!(leader.effects.last(), Some(&settled));
}

#[test]
fn an_exclusive_consumer_is_the_only_one() {
    let mut leader = Leader::new();
    let exclusive = ConsumerSpec { exclusive: true, ..ConsumerSpec::default() };
    let mut attach = |number, spec| {
        let mut effects = Vec::new();
        leader.machine.attach(Q, who(number), spec, &mut effects)
    };
    assert_eq!(attach(1, ConsumerSpec::default()), Ok(()));
    assert_eq!(attach(2, exclusive), Err(AttachError::ExclusiveUse));
    leader.machine.detach(Q, who(1), &mut leader.effects);
    let mut attach = |number, spec| {
        let mut effects = Vec::new();
        leader.machine.attach(Q, who(number), spec, &mut effects)
    };
    assert_eq!(attach(2, exclusive), Ok(()));
    assert_eq!(attach(1, ConsumerSpec::default()), Err(AttachError::ExclusiveUse));
}

#[test]
fn a_detached_consumer_gets_nothing_more_and_keeps_what_it_holds() {
    let mut leader = Leader::new();
    leader.attach(1, 9);
    leader.publish(1);
    leader.machine.detach(Q, who(1), &mut leader.effects);
    leader.effects.clear();
    leader.publish(1);
    leader.machine.credit(Q, who(1), 9, &mut leader.effects);
    assert_eq!(leader.delivered(), []);
    let status = leader.machine.status(Q).expect("the queue exists");
    assert_eq!((status.ready, status.unsettled, status.consumers), (1, 1, 0));
    leader.settle(1, 1..2, Outcome::Done);
    assert_eq!(leader.machine.settled_waiting(), 1);
}

#[test]
fn a_purge_takes_what_is_ready_and_leaves_what_is_out() {
    let mut leader = Leader::new();
    leader.attach(1, 2);
    leader.publish(5);
    assert_eq!(leader.machine.purge(Q), Some(3));
    assert_eq!(leader.machine.purge(Q), Some(0));
    assert_eq!(leader.machine.purge(QueueId(9)), None);
    let mut batch = Batch::new();
    leader.machine.take_settled(&mut batch);
    leader.apply(batch);
    let status = leader.machine.status(Q).expect("the queue exists");
    assert_eq!((status.ready, status.unsettled, status.counters.purged), (0, 2, 3));
}

#[test]
fn a_queue_closes_only_as_asked_and_then_takes_no_consumers() {
    let mut leader = Leader::new();
    leader.attach(1, 0);
    leader.publish(2);
    assert_eq!(leader.machine.close_queue(Q, true, false), Err(CloseError::InUse));
    assert_eq!(leader.machine.close_queue(Q, false, true), Err(CloseError::NotEmpty));
    assert_eq!(leader.machine.close_queue(Q, true, true), Err(CloseError::NotEmpty));
    assert_eq!(leader.machine.close_queue(Q, false, false), Ok(2));
    let spec = ConsumerSpec::default();
    let attached = leader.machine.attach(Q, who(2), spec, &mut leader.effects);
    assert_eq!(attached, Err(AttachError::NoQueue));
    leader.machine.reopen_queue(Q);
    leader.attach(2, 0);
}

#[test]
fn an_auto_delete_queue_is_unused_with_its_last_consumer_and_not_by_a_fetch() {
    let mut leader = Leader::with(QueueSettings { is_auto_delete: true, ..Default::default() });
    leader.publish(1);
    leader.machine.get(Q, who(1), false, &mut leader.effects);
    leader.machine.end_session(SessionId(1), &mut leader.effects);
    leader.attach(1, 0);
    leader.attach(2, 0);
    leader.machine.detach(Q, who(1), &mut leader.effects);
    let unused = Effect::Unused { queue: Q };
    assert!(!leader.effects.contains(&unused));
    leader.machine.end_session(SessionId(2), &mut leader.effects);
    assert_eq!(leader.effects.last(), Some(&unused));
}

#[test]
fn a_dropped_queue_cancels_its_consumers_and_ignores_what_comes_late() {
    let mut leader = Leader::new();
    leader.attach(1, 9);
    leader.publish(2);
    leader.effects.clear();
    let mut batch = Batch::new();
    batch.drop_queue(Q);
    batch.enqueue(&[Q], &[], b"late");
    batch.settle(Q, Outcome::Done, &Ranges::from(1..3));
    leader.apply(batch);
    let cancelled = Effect::Cancelled { queue: Q, consumer: who(1) };
    assert_eq!(leader.effects, [cancelled, Effect::Dropped { queue: Q }]);
    assert_eq!(leader.machine.ignored(), 1);
    let retired = leader.machine.retired();
    assert_eq!((retired.enqueued, retired.dropped), (2, 2));
    leader.settle(1, 1..3, Outcome::Done);
    leader.machine.end_session(SessionId(1), &mut leader.effects);
    assert_eq!(leader.machine.settled_waiting(), 0);
}

#[test]
fn a_transaction_that_commits_after_its_session_ended_still_settles_once() {
    let mut leader = Leader::new();
    leader.attach(1, 1);
    leader.publish(1);
    let mut batch = Batch::new();
    batch.settle(Q, Outcome::Done, &Ranges::from(1..2));
    // The entry is on its way when the session ends: the message goes to somebody else.
    leader.machine.end_session(SessionId(1), &mut leader.effects);
    leader.attach(2, 1);
    leader.machine.settle_committed(
        Q,
        who(1),
        &Ranges::from(1..2),
        Outcome::Done,
        &mut leader.effects,
    );
    leader.apply(batch);
    leader.settle(2, 1..2, Outcome::Requeue);
    let status = leader.machine.status(Q).expect("the queue exists");
    assert_eq!((status.ready, status.unsettled, status.counters.settled), (0, 0, 1));
}

#[test]
fn a_batch_joined_to_another_is_the_same_as_one_batch() {
    let commands = |batch: &mut Batch, from: u64| {
        batch.enqueue(&[Q], &[b"h"], &from.to_le_bytes());
        batch.settle(Q, Outcome::Done, &Ranges::from(from..from + 3));
    };
    let (mut one, mut other, mut all) = (Batch::new(), Batch::new(), Batch::new());
    commands(&mut one, 1);
    commands(&mut other, 9);
    commands(&mut all, 1);
    commands(&mut all, 9);
    one.join(Batch::new());
    one.join(other);
    let mut empty = Batch::new();
    empty.join(one);
    assert_eq!((empty.commands(), empty.bytes()), (all.commands(), all.bytes()));
    assert_eq!(empty.stamp(7), all.stamp(7));
    assert!(Batch::new().is_empty() && Batch::new().stamp(0).len() == machine::ENTRY_HEAD_BYTES);
}
