//! Which messages a new leader flags as redelivered: those alone that a client may have seen, and a few
//! that the mark had run ahead of.

use machine::limits::{DELIVERED_CREDIT_MAX, DELIVERED_WINDOW_MAX};
use machine::{
    Applied, Attributes, Batch, ConsumerId, ConsumerSpec, Effect, Features, GetReply, Outcome,
    Overflow, QueueId, QueueMachine, QueueSettings, Ranges, SessionId,
};

const Q: QueueId = QueueId(1);

/// A leader and its log.
struct Leader {
    machine: QueueMachine,
    index: u64,
    time_ms: u64,
    effects: Vec<Effect>,
}

impl Leader {
    fn new(features: Option<Features>) -> Self {
        let machine = QueueMachine::new();
        let mut leader = Self { machine, index: 0, time_ms: 1_000_000, effects: Vec::new() };
        let features = features.map(Box::new);
        let mut batch = Batch::new();
        batch.create_queue(Q, &QueueSettings { is_durable: true, is_auto_delete: false, features });
        batch.mark_delivered(Q, 1);
        leader.apply(batch);
        leader.lead();
        leader
    }

    fn apply(&mut self, batch: Batch) {
        self.index += 1;
        let at = Applied { index: self.index, time_ms: self.time_ms };
        self.machine.apply(at, &batch.stamp(at.time_ms), &mut self.effects).expect("our own entry");
        self.machine.check();
    }

    /// A change of leader, by way of a snapshot: what was not logged is gone.
    fn lead(&mut self) {
        self.machine = QueueMachine::restore(&self.machine.snapshot()).expect("our own snapshot");
        self.effects.clear();
        self.machine.set_now(self.time_ms);
        self.machine.lead();
        self.machine.start_dispatch(&mut self.effects);
    }

    fn publish(&mut self, queue: QueueId, count: usize) {
        let mut batch = Batch::new();
        (0..count).for_each(|_| batch.enqueue(&[queue], &[], b"body"));
        self.apply(batch);
    }

    /// Logs what waits for it. True: there was something.
    fn log(&mut self) -> bool {
        let mut batch = Batch::new();
        let has_some = self.machine.take_settled(&mut batch);
        if has_some {
            self.apply(batch);
        }
        has_some
    }

    fn log_all(&mut self) {
        while self.log() {}
    }

    fn consume(&mut self, number: u64, credit: u32) {
        let spec = ConsumerSpec { credit, ..ConsumerSpec::default() };
        self.machine.attach(Q, who(number), spec, &mut self.effects).expect("a queue");
    }

    /// What went out since the last time: how many unflagged, how many flagged.
    fn delivered(&mut self) -> (u64, u64) {
        let mut counts = (0, 0);
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Deliver { count, redelivered: false, .. } => counts.0 += u64::from(count),
                Effect::Deliver { count, redelivered: true, .. } => counts.1 += u64::from(count),
                _ => {}
            }
        }
        counts
    }
}

fn who(number: u64) -> ConsumerId {
    ConsumerId { session: SessionId(number), number: 1 }
}

#[test]
fn messages_that_nobody_was_given_come_unflagged_from_the_next_leader() {
    let mut leader = Leader::new(None);
    leader.publish(Q, 100);
    leader.lead();
    leader.consume(1, 200);
    leader.log_all();
    assert_eq!(leader.delivered(), (100, 0));
}

#[test]
fn what_was_delivered_is_flagged_by_the_next_leader_and_little_more() {
    let mut leader = Leader::new(None);
    leader.publish(Q, 1_000);
    leader.consume(1, 10);
    leader.log_all();
    assert_eq!(leader.delivered(), (10, 0));
    leader.lead();
    leader.consume(2, 10_000);
    leader.log_all();
    let (fresh, flagged) = leader.delivered();
    assert_eq!(fresh + flagged, 1_000);
    assert!((10..=30).contains(&flagged), "{flagged} are flagged, 10 were delivered");
}

#[test]
fn nothing_goes_out_for_the_first_time_before_the_log_has_heard_of_it() {
    let mut leader = Leader::new(None);
    leader.publish(Q, 5);
    leader.consume(1, 5);
    assert_eq!(leader.delivered(), (0, 0));
    assert!(leader.machine.take_awaited(), "somebody waits for the log");
    assert!(leader.log());
    assert_eq!(leader.delivered(), (5, 0));
}

#[test]
fn an_idle_consumer_has_its_mark_before_a_message_comes() {
    let mut leader = Leader::new(None);
    leader.consume(1, 100);
    leader.log_all();
    for _ in 0..40 {
        leader.publish(Q, 1);
        assert_eq!(leader.delivered(), (1, 0));
        assert!(!leader.machine.take_awaited(), "nobody waits");
        leader.log_all();
    }
}

#[test]
fn a_fetch_is_asked_again_when_its_mark_is_logged() {
    let mut leader = Leader::new(None);
    leader.publish(Q, 3);
    assert_eq!(leader.machine.get(Q, who(1), false, &mut leader.effects), GetReply::NotYet);
    assert!(leader.machine.take_awaited() && leader.log());
    let reply = leader.machine.get(Q, who(1), false, &mut leader.effects);
    assert_eq!(reply, GetReply::Delivered { ready: 2 });
    assert_eq!(leader.delivered(), (1, 0));
    leader.lead();
    leader.consume(2, 10);
    leader.log_all();
    assert_eq!(leader.delivered(), (2, 1));
}

#[test]
fn what_comes_back_is_flagged_and_needs_no_mark() {
    let mut leader = Leader::new(None);
    leader.publish(Q, 2);
    leader.consume(1, 1);
    leader.log_all();
    assert_eq!(leader.delivered(), (1, 0));
    let first = Ranges::from(1..2);
    let what = (Outcome::Requeue, 1);
    leader.machine.settle_for_credit(Q, who(1), &first, what, &mut leader.effects);
    assert_eq!(leader.delivered(), (0, 1));
}

#[test]
fn the_window_grows_while_deliveries_wait_and_shrinks_when_they_do_not() {
    let mut leader = Leader::new(None);
    leader.consume(1, u32::MAX);
    leader.log_all();
    let mut waits = 0;
    for _ in 0..100 {
        leader.publish(Q, 5_000);
        while leader.log() {
            waits += u64::from(leader.machine.take_awaited());
        }
    }
    assert_eq!(leader.delivered().0, 500_000);
    assert!(waits < 10, "deliveries waited {waits} times");
    for _ in 0..100 {
        leader.time_ms += 10_000;
        leader.machine.set_now(leader.time_ms);
        leader.publish(Q, 5_000);
        leader.log_all();
    }
    assert_eq!(leader.delivered().0, 500_000);
    // All that nobody will be given.
    leader.machine.end_session(SessionId(1), &mut leader.effects);
    leader.publish(Q, DELIVERED_WINDOW_MAX as usize);
    leader.lead();
    leader.consume(2, u32::MAX);
    leader.log_all();
    let (fresh, _) = leader.delivered();
    assert!(fresh >= DELIVERED_WINDOW_MAX - 16 * DELIVERED_CREDIT_MAX, "{fresh} came unflagged");
}

#[test]
fn a_backlog_goes_out_in_few_entries_also_where_each_takes_seconds() {
    let mut leader = Leader::new(None);
    leader.publish(Q, 50_000);
    leader.consume(1, 1);
    let (mut entries, mut delivered, mut settled) = (0, 0, 0);
    while delivered < 50_000 {
        assert!(leader.log(), "{delivered} are out, and the next waits for nothing");
        entries += 1;
        leader.time_ms += 3_000;
        leader.machine.set_now(leader.time_ms);
        delivered += leader.delivered().0;
        // The consumer is faster than the log.
        while settled < delivered {
            let ranges = Ranges::from(settled + 1..delivered + 1);
            let what = (Outcome::Done, (delivered - settled) as u32);
            settled = delivered;
            leader.machine.settle_for_credit(Q, who(1), &ranges, what, &mut leader.effects);
            delivered += leader.delivered().0;
        }
    }
    assert!(entries < 40, "{entries} entries");
}

#[test]
fn a_message_that_waits_for_its_mark_is_not_overtaken_by_lower_priority() {
    let mut leader = Leader::new(Some(Features { max_priority: 1, ..Features::default() }));
    leader.publish(Q, 2);
    leader.machine.get(Q, who(2), false, &mut leader.effects);
    leader.log_all();
    leader.publish(Q.lane(1), 1);
    assert_eq!(leader.machine.get(Q, who(2), false, &mut leader.effects), GetReply::NotYet);
    leader.log_all();
    leader.machine.get(Q, who(2), false, &mut leader.effects);
    let is_high = |effect: &Effect| match effect {
        Effect::Deliver { queue, .. } => *queue == Q.lane(1),
        _ => false,
    };
    assert!(leader.effects.iter().any(is_high), "{:?}", leader.effects);
}

#[test]
fn a_message_that_may_not_wait_reaches_a_consumer_that_waits() {
    let mut leader = Leader::new(None);
    leader.consume(1, 1_000);
    let mut batch = Batch::new();
    let at_once = Attributes { ttl_ms: Some(0), ..Attributes::default() };
    (0..1_000).for_each(|_| batch.enqueue_with(&[Q], &at_once, &[], b"body"));
    leader.apply(batch);
    assert_eq!(leader.delivered(), (1_000, 0));
    leader.lead();
    assert_eq!(leader.delivered(), (0, 0));
}

#[test]
fn a_queue_with_a_length_limit_drops_nothing_that_a_consumer_has_room_for() {
    let overflow = Overflow::DropHead;
    let features = Features { max_length: Some(1), overflow, ..Features::default() };
    let mut leader = Leader::new(Some(features));
    leader.consume(1, 100);
    leader.publish(Q, 100);
    assert_eq!(leader.delivered(), (100, 0));
}
