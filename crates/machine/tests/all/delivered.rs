//! Which messages a new leader flags as redelivered: those alone that a client may have seen, and a few
//! that the mark had run ahead of.

use std::collections::VecDeque;

use machine::limits::{DELIVERED_CREDIT_MAX, DELIVERED_WINDOW_MAX};
use machine::{
    Applied, Attributes, Batch, ConsumerId, ConsumerSpec, Effect, Features, GetReply, Outcome,
    Overflow, QueueId, QueueMachine, QueueSettings, Ranges, SessionId,
};

const Q: QueueId = QueueId(1);

/// What waits for the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    Deliveries,
    /// In queues declared before version 7.
    Messages,
}

const BOTH: [Waits; 2] = [Waits::Deliveries, Waits::Messages];

struct Unmarked {
    first_seq: u64,
    count: u64,
    redelivered: bool,
    waits: bool,
}

/// A leader and its log.
struct Leader {
    machine: QueueMachine,
    index: u64,
    time_ms: u64,
    effects: Vec<Effect>,
    /// Deliveries in order, those of which the log has not heard.
    unmarked: VecDeque<Unmarked>,
    marked_to: u64,
}

impl Leader {
    fn new(waits: Waits, features: Option<Features>) -> Self {
        let mut leader = Self {
            machine: QueueMachine::new(),
            index: 0,
            time_ms: 1_000_000,
            effects: Vec::new(),
            unmarked: VecDeque::new(),
            marked_to: 0,
        };
        let features = features.map(Box::new);
        let mut batch = Batch::new();
        batch.create_queue(
            Q,
            &QueueSettings { is_durable: true, is_auto_delete: false, features, is_paused: false },
        );
        match waits {
            Waits::Deliveries => batch.keep_marks(Q),
            Waits::Messages => batch.mark_delivered(Q, 1),
        }
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
        self.unmarked.clear();
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

    /// What left since the last time: how many unflagged, how many flagged.
    fn delivered(&mut self) -> (u64, u64) {
        let (mut fresh, mut flagged) = (0, 0);
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Deliver { first_seq, count, redelivered, waits, .. } => {
                    let count = u64::from(count);
                    self.unmarked.push_back(Unmarked { first_seq, count, redelivered, waits });
                }
                Effect::Marked { to, .. } => self.marked_to = to,
                _ => {}
            }
            while let Some(front) = self.unmarked.front_mut() {
                let heard = self.marked_to.saturating_sub(front.first_seq);
                let leaves = if front.waits { heard.min(front.count) } else { front.count };
                *(if front.redelivered { &mut flagged } else { &mut fresh }) += leaves;
                front.first_seq += leaves;
                front.count -= leaves;
                if front.count > 0 {
                    break;
                }
                self.unmarked.pop_front();
            }
        }
        (fresh, flagged)
    }

    fn ready(&self) -> u64 {
        self.machine.status(Q).expect("a queue").ready
    }
}

fn who(number: u64) -> ConsumerId {
    ConsumerId { session: SessionId(number), number: 1 }
}

#[test]
fn messages_that_nobody_was_given_come_unflagged_from_the_next_leader() {
    for waits in BOTH {
        let mut leader = Leader::new(waits, None);
        leader.publish(Q, 100);
        leader.lead();
        leader.consume(1, 200);
        leader.log_all();
        assert_eq!(leader.delivered(), (100, 0));
    }
}

#[test]
fn what_was_delivered_is_flagged_by_the_next_leader_and_little_more() {
    for waits in BOTH {
        let mut leader = Leader::new(waits, None);
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
}

#[test]
fn nothing_goes_out_for_the_first_time_before_the_log_has_heard_of_it() {
    for waits in BOTH {
        let mut leader = Leader::new(waits, None);
        leader.publish(Q, 5);
        leader.consume(1, 5);
        assert_eq!(leader.delivered(), (0, 0));
        assert!(leader.machine.take_awaited(), "somebody waits for the log");
        assert!(leader.log());
        assert_eq!(leader.delivered(), (5, 0));
    }
}

#[test]
fn an_idle_consumer_has_its_mark_before_a_message_comes() {
    for waits in BOTH {
        let mut leader = Leader::new(waits, None);
        leader.consume(1, 100);
        leader.log_all();
        for _ in 0..40 {
            leader.publish(Q, 1);
            assert_eq!(leader.delivered(), (1, 0));
            assert!(!leader.machine.take_awaited(), "nobody waits");
            leader.log_all();
        }
    }
}

#[test]
fn a_fetch_is_asked_again_when_its_mark_is_logged_where_messages_wait() {
    let mut leader = Leader::new(Waits::Messages, None);
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
    for waits in BOTH {
        let mut leader = Leader::new(waits, None);
        leader.publish(Q, 2);
        leader.consume(1, 1);
        leader.log_all();
        assert_eq!(leader.delivered(), (1, 0));
        let first = Ranges::from(1..2);
        let what = (Outcome::Requeue, 1);
        leader.machine.settle_for_credit(Q, who(1), &first, what, &mut leader.effects);
        assert_eq!(leader.delivered(), (0, 1));
    }
}

#[test]
fn the_window_grows_while_deliveries_wait_and_shrinks_when_they_do_not() {
    for waits in BOTH {
        let mut leader = Leader::new(waits, None);
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
        assert!(
            fresh >= DELIVERED_WINDOW_MAX - 16 * DELIVERED_CREDIT_MAX,
            "{fresh} came unflagged"
        );
    }
}

#[test]
fn a_backlog_goes_out_in_few_entries_also_where_each_takes_seconds() {
    for waits in BOTH {
        let mut leader = Leader::new(waits, None);
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
}

#[test]
fn a_message_that_waits_for_its_mark_is_not_overtaken_by_lower_priority() {
    let mut leader =
        Leader::new(Waits::Messages, Some(Features { max_priority: 1, ..Features::default() }));
    leader.publish(Q, 2);
    leader.machine.get(Q, who(2), false, &mut leader.effects);
    leader.log_all();
    leader.publish(Q.level(1), 1);
    assert_eq!(leader.machine.get(Q, who(2), false, &mut leader.effects), GetReply::NotYet);
    leader.log_all();
    leader.machine.get(Q, who(2), false, &mut leader.effects);
    let is_high = |effect: &Effect| match effect {
        Effect::Deliver { queue, .. } => *queue == Q.level(1),
        _ => false,
    };
    assert!(leader.effects.iter().any(is_high), "{:?}", leader.effects);
}

#[test]
fn a_message_that_may_not_wait_reaches_a_consumer_where_messages_wait() {
    let mut leader = Leader::new(Waits::Messages, None);
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
    for waits in BOTH {
        let mut leader = Leader::new(waits, Some(max_length(1, Overflow::DropHead)));
        leader.consume(1, 100);
        leader.publish(Q, 100);
        leader.log_all();
        assert_eq!(leader.delivered(), (100, 0));
    }
}

fn max_length(max: u64, overflow: Overflow) -> Features {
    Features { max_length: Some(max), overflow, ..Features::default() }
}

/// Queues whose messages may be thrown away, may fill the queue, or may expire, at `max` messages.
fn limited(max: u64) -> [Features; 4] {
    let max_length_bytes = Some(max * 4);
    [
        max_length(max, Overflow::DropHead),
        max_length(max, Overflow::RejectPublish),
        Features { max_length_bytes, overflow: Overflow::DropHead, ..Features::default() },
        Features { message_ttl_ms: Some(60_000), ..Features::default() },
    ]
}

#[test]
fn limits_and_times_to_live_flag_no_more_than_was_delivered() {
    for features in limited(1_000) {
        let mut leader = Leader::new(Waits::Deliveries, Some(features.clone()));
        leader.publish(Q, 1_000);
        leader.consume(1, 10);
        leader.log_all();
        assert_eq!(leader.delivered(), (10, 0), "{features:?}");
        leader.lead();
        leader.consume(2, 10_000);
        leader.log_all();
        let (fresh, flagged) = leader.delivered();
        assert_eq!(fresh + flagged, 1_000, "{features:?}");
        assert!((10..=30).contains(&flagged), "{flagged} are flagged of {features:?}");
    }
}

#[test]
fn a_message_with_a_time_to_live_flags_nothing_below_it() {
    let mut leader = Leader::new(Waits::Deliveries, None);
    leader.publish(Q, 100);
    let mut batch = Batch::new();
    let soon = Attributes { ttl_ms: Some(1_000), ..Attributes::default() };
    batch.enqueue_with(&[Q], &soon, &[], b"body");
    leader.apply(batch);
    leader.lead();
    leader.consume(1, 200);
    leader.log_all();
    assert_eq!(leader.delivered(), (101, 0));
}

#[test]
fn what_waits_for_its_mark_is_with_its_consumer_whatever_the_limits() {
    for features in limited(1) {
        let mut leader = Leader::new(Waits::Deliveries, Some(features.clone()));
        leader.consume(1, 3);
        leader.publish(Q, 3);
        // The mark that is asked for when a consumer comes is on its way, and these are beyond it.
        assert_eq!(leader.delivered(), (0, 0), "{features:?}");
        assert_eq!(leader.ready(), 0, "{features:?}");
        assert_eq!(leader.machine.admit(Q, &[4]), Vec::<u32>::new(), "{features:?}");
        leader.time_ms += 120_000;
        leader.machine.tick(leader.time_ms, &mut leader.effects);
        leader.publish(Q, 1);
        leader.log_all();
        assert_eq!(leader.delivered(), (3, 0), "{features:?}");
    }
}

#[test]
fn a_message_that_may_not_wait_reaches_a_consumer_before_its_mark_is_logged() {
    let mut leader = Leader::new(Waits::Deliveries, None);
    leader.consume(1, 1_000);
    let mut batch = Batch::new();
    let at_once = Attributes { ttl_ms: Some(0), ..Attributes::default() };
    (0..1_000).for_each(|_| batch.enqueue_with(&[Q], &at_once, &[], b"body"));
    leader.apply(batch);
    assert_eq!(leader.delivered(), (0, 0));
    leader.time_ms += 5_000;
    leader.log_all();
    assert_eq!(leader.delivered(), (1_000, 0));
}

#[test]
fn a_fetch_is_answered_at_once_and_leaves_when_its_mark_is_logged() {
    let mut leader = Leader::new(Waits::Deliveries, None);
    leader.publish(Q, 3);
    let reply = leader.machine.get(Q, who(1), false, &mut leader.effects);
    assert_eq!(reply, GetReply::Delivered { ready: 2 });
    assert_eq!(leader.delivered(), (0, 0));
    assert!(leader.machine.take_awaited() && leader.log());
    assert_eq!(leader.delivered(), (1, 0));
}

#[test]
fn a_delivery_that_is_withdrawn_before_its_mark_is_logged_goes_back_unflagged() {
    let mut leader = Leader::new(Waits::Deliveries, None);
    leader.publish(Q, 3);
    leader.consume(1, 3);
    leader.machine.detach(Q, who(1), &mut leader.effects);
    let all = Ranges::from(1..4);
    leader.machine.settle(Q, who(1), &all, Outcome::Undelivered, &mut leader.effects);
    assert_eq!((leader.delivered(), leader.ready()), ((0, 0), 3));
    leader.unmarked.clear();
    leader.consume(2, 3);
    leader.log_all();
    assert_eq!(leader.delivered(), (3, 0));
}

#[test]
fn what_nobody_acknowledges_is_settled_by_the_log_after_its_mark() {
    let mut leader = Leader::new(Waits::Deliveries, None);
    leader.publish(Q, 10);
    let spec = ConsumerSpec { credit: 4, no_ack: true, ..ConsumerSpec::default() };
    leader.machine.attach(Q, who(1), spec, &mut leader.effects).expect("a queue");
    assert_eq!((leader.machine.settled_waiting(), leader.ready()), (0, 6));
    leader.machine.end_session(SessionId(1), &mut leader.effects);
    leader.machine.take_back(Q, &Ranges::from(1..5), &mut leader.effects);
    assert_eq!(leader.ready(), 10);
    leader.machine.attach(Q, who(1), spec, &mut leader.effects).expect("a queue");
    // The mark is not logged: nobody has seen anything.
    leader.lead();
    assert_eq!(leader.ready(), 10);
    leader.machine.attach(Q, who(1), spec, &mut leader.effects).expect("a queue");
    assert!(leader.log());
    assert_eq!((leader.delivered(), leader.machine.settled_waiting()), ((4, 0), 4));
    leader.log_all();
    leader.lead();
    assert_eq!(leader.ready(), 6);
}

#[test]
fn marks_that_deliveries_wait_for_are_kept_only_from_the_first_message_on() {
    let mut leader = Leader::new(Waits::Messages, Some(max_length(9, Overflow::DropHead)));
    leader.publish(Q, 1);
    let mut batch = Batch::new();
    batch.keep_marks(Q);
    leader.apply(batch);
    leader.lead();
    leader.consume(1, 9);
    leader.log_all();
    assert_eq!(leader.delivered(), (0, 1), "nothing is known of what came before");
}

#[test]
fn a_snapshot_is_in_a_new_format_only_where_deliveries_wait_for_marks() {
    for (waits, format) in [(Waits::Messages, 4), (Waits::Deliveries, 5)] {
        let mut leader = Leader::new(waits, None);
        leader.publish(Q, 3);
        let snapshot = leader.machine.snapshot();
        assert_eq!(snapshot[0], format, "{waits:?}");
        let restored = QueueMachine::restore(&snapshot).expect("our own snapshot");
        assert_eq!(restored.snapshot(), snapshot);
    }
}
