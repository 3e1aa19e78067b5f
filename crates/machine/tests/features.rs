//! What arguments of a queue and attributes of a message promise, one promise each. A leader and a
//! follower apply the same entries and are equal after each of them.

use std::ops::Range;

use machine::{
    Applied, AttachError, Attributes, Batch, ConsumerId, ConsumerSpec, Dedup, Effect, Features,
    GetReply, Outcome, Overflow, QueueId, QueueMachine, QueueSettings, Ranges, Retry, SessionId,
};

const Q: QueueId = QueueId(1);
/// When tests begin, ms.
const START: u64 = 1_000_000;

/// A leader with one queue, and a replica that follows.
struct Group {
    leader: QueueMachine,
    follower: QueueMachine,
    now: u64,
    effects: Vec<Effect>,
}

fn who(number: u64) -> ConsumerId {
    ConsumerId { session: SessionId(number), number: 1 }
}

fn credit(credit: u32) -> ConsumerSpec {
    ConsumerSpec { credit, ..ConsumerSpec::default() }
}

fn range_of(first_seq: u64, count: u32) -> Range<u64> {
    first_seq..first_seq + u64::from(count)
}

impl Group {
    fn new(features: Features) -> Self {
        let mut group = Self {
            leader: QueueMachine::new(),
            follower: QueueMachine::new(),
            now: START,
            effects: Vec::new(),
        };
        group.lead();
        let mut batch = Batch::new();
        let features = Some(Box::new(features));
        let settings = QueueSettings { is_durable: true, is_auto_delete: false, features };
        batch.create_queue(Q, &settings);
        group.apply(batch);
        group.effects.clear();
        group
    }

    fn lead(&mut self) {
        self.leader.set_now(self.now);
        self.leader.lead();
        self.leader.start_dispatch(&mut self.effects);
    }

    /// The follower takes over; a copy of it follows.
    fn fail_over(&mut self) {
        self.leader = QueueMachine::restore(&self.follower.snapshot()).expect("our own snapshot");
        assert_eq!(self.leader.digest(), self.follower.digest());
        self.lead();
    }

    fn apply(&mut self, batch: Batch) {
        let at = Applied { index: self.leader.applied_index() + 1, time_ms: self.now };
        let entry = batch.stamp(self.now);
        self.leader.apply(at, &entry, &mut self.effects).expect("our own entry");
        self.follower.apply(at, &entry, &mut Vec::new()).expect("our own entry");
        assert_eq!(self.leader.digest(), self.follower.digest());
        let books = self.leader.status(Q).map(|status| status.counters);
        assert!(books.is_none_or(|books| books.enqueued < 1_000_000));
    }

    /// Logs what was settled.
    fn log(&mut self) {
        while self.leader.has_settles() {
            let mut batch = Batch::new();
            self.leader.take_settled(&mut batch);
            self.apply(batch);
        }
    }

    fn publish(&mut self, count: u64) {
        let mut batch = Batch::new();
        (0..count).for_each(|_| batch.enqueue(&[Q], &[], b"body"));
        self.apply(batch);
        self.log();
    }

    fn publish_with(&mut self, queue: QueueId, attributes: Attributes, body: &[u8]) {
        let mut batch = Batch::new();
        batch.enqueue_with(&[queue], &attributes, &[], body);
        self.apply(batch);
        self.log();
    }

    /// Time passes, and what falls due is done and logged.
    fn pass(&mut self, ms: u64) {
        self.now += ms;
        self.leader.set_now(self.now);
        while self.leader.deadline().is_some_and(|due| due <= self.now) {
            self.leader.tick(self.now, &mut self.effects);
            self.log();
        }
    }

    fn attach(&mut self, number: u64, spec: ConsumerSpec) -> Result<(), AttachError> {
        let attached = self.leader.attach(Q, who(number), spec, &mut self.effects);
        self.log();
        attached
    }

    fn settle(&mut self, queue: QueueId, number: u64, range: Range<u64>, outcome: Outcome) {
        let ranges = Ranges::from(range);
        self.leader.settle(queue, who(number), &ranges, outcome, &mut self.effects);
        self.log();
    }

    fn get(&mut self) -> Option<(QueueId, u64)> {
        match self.leader.get(Q, who(99), true, &mut self.effects) {
            GetReply::Delivered { .. } => {}
            _ => return None,
        }
        self.log();
        self.effects.drain(..).find_map(|effect| match effect {
            Effect::Deliver { queue, first_seq, .. } => Some((queue, first_seq)),
            _ => None,
        })
    }

    /// Who got what.
    fn delivered(&mut self) -> Vec<(u64, Range<u64>)> {
        let all = self.effects.drain(..);
        all.filter_map(|effect| match effect {
            Effect::Deliver { consumer, first_seq, count, .. } => {
                Some((consumer.session.0, range_of(first_seq, count)))
            }
            _ => None,
        })
        .collect()
    }

    /// What left, and why.
    fn left(&mut self) -> Vec<(QueueId, Range<u64>, Outcome)> {
        let all = self.effects.drain(..);
        all.filter_map(|effect| match effect {
            Effect::Leave { queue, first_seq, count, reason } => {
                Some((queue, range_of(first_seq, count), reason))
            }
            _ => None,
        })
        .collect()
    }

    fn ready(&self) -> u64 {
        self.leader.status(Q).expect("the queue exists").ready
    }

    fn live(&self) -> u64 {
        self.leader.lanes().map(|lane| self.leader.live(lane).expect("a lane").len()).sum()
    }
}

fn ttl(ms: u64) -> Attributes {
    Attributes { ttl_ms: Some(ms), ..Attributes::default() }
}

fn delay(ms: u64) -> Attributes {
    Attributes { delay_ms: Some(ms), ..Attributes::default() }
}

#[test]
fn a_message_goes_when_its_queues_time_to_live_is_over() {
    let mut group = Group::new(Features { message_ttl_ms: Some(100), ..Features::default() });
    group.publish(3);
    group.pass(99);
    assert_eq!(group.ready(), 3);
    group.pass(1);
    assert_eq!((group.ready(), group.live()), (0, 0));
    assert_eq!(group.leader.status(Q).expect("it is there").counters.dropped, 3);
}

#[test]
fn the_shorter_of_two_times_to_live_counts() {
    let mut group = Group::new(Features { message_ttl_ms: Some(100), ..Features::default() });
    group.publish_with(Q, ttl(10), b"");
    group.publish_with(Q, ttl(1_000), b"");
    group.pass(10);
    assert_eq!(group.ready(), 1);
    group.pass(90);
    assert_eq!(group.ready(), 0);
}

#[test]
fn what_expired_behind_a_live_message_is_counted_until_that_is_gone() {
    let mut group = Group::new(Features::default());
    group.publish(1);
    group.publish_with(Q, ttl(10), b"");
    group.pass(1_000);
    assert_eq!(group.ready(), 2);
    assert_eq!(group.get(), Some((Q, 1)));
    group.pass(0);
    assert_eq!(group.ready(), 0);
    assert_eq!(group.get(), None);
}

#[test]
fn a_message_without_time_to_live_goes_to_who_waits_or_nowhere() {
    let mut group = Group::new(Features::default());
    group.attach(1, credit(1)).expect("it is there");
    group.publish_with(Q, ttl(0), b"");
    group.publish_with(Q, ttl(0), b"");
    assert_eq!(group.delivered(), [(1, 1..2)]);
    group.pass(0);
    assert_eq!(group.ready(), 0);
}

#[test]
fn a_held_message_does_not_expire_before_it_comes_back() {
    let mut group = Group::new(Features { message_ttl_ms: Some(10), ..Features::default() });
    group.attach(1, credit(1)).expect("it is there");
    group.publish(1);
    group.pass(1_000);
    assert_eq!(group.live(), 1);
    group.settle(Q, 1, 1..2, Outcome::Requeue);
    assert_eq!(group.live(), 0);
}

#[test]
fn a_new_leader_knows_when_messages_expire() {
    let mut group = Group::new(Features { message_ttl_ms: Some(100), ..Features::default() });
    group.publish(2);
    group.pass(50);
    group.fail_over();
    group.pass(49);
    assert_eq!(group.ready(), 2);
    group.pass(1);
    assert_eq!(group.ready(), 0);
}

#[test]
fn a_delayed_message_comes_when_it_is_due_and_not_before() {
    let mut group = Group::new(Features::default());
    group.attach(1, credit(10)).expect("it is there");
    group.publish_with(Q, delay(100), b"");
    group.publish(1);
    assert_eq!(group.delivered(), [(1, 2..3)]);
    assert_eq!(group.leader.status(Q).expect("it is there").delayed, 1);
    group.pass(99);
    assert_eq!(group.delivered(), []);
    group.fail_over();
    group.attach(1, credit(10)).expect("it is there");
    // What was out is out again; what is delayed stays so.
    assert_eq!(group.delivered(), [(1, 2..3)]);
    group.pass(1);
    assert_eq!(group.delivered(), [(1, 1..2)]);
}

#[test]
fn the_time_to_live_of_a_delayed_message_begins_when_it_is_due() {
    let mut group = Group::new(Features::default());
    let both = Attributes { ttl_ms: Some(50), delay_ms: Some(100), key: None };
    group.publish_with(Q, both, b"");
    group.pass(149);
    assert_eq!(group.ready(), 1);
    group.pass(1);
    assert_eq!(group.live(), 0);
}

#[test]
fn a_delayed_message_is_cancelled_by_its_key_while_it_waits() {
    let mut group = Group::new(Features::default());
    for key in [7, 7, 8] {
        let with_key = Attributes { delay_ms: Some(100), key: Some(key), ttl_ms: None };
        group.publish_with(Q, with_key, b"");
    }
    let cancel = |group: &mut Group, key| {
        let mut batch = Batch::new();
        batch.cancel_delayed(&[Q], key);
        group.apply(batch);
    };
    cancel(&mut group, 7);
    assert_eq!(group.live(), 1);
    group.pass(100);
    cancel(&mut group, 8);
    assert_eq!(group.get(), Some((Q, 3)), "what is due is not cancelled");
}

#[test]
fn a_delayed_message_is_cancelled_by_the_entry_that_brings_it() {
    let mut group = Group::new(Features { max_priority: 2, ..Features::default() });
    let with_key = Attributes { delay_ms: Some(100), key: Some(7), ttl_ms: None };
    let mut batch = Batch::new();
    batch.enqueue_with(&[Q.lane(1)], &with_key, &[], b"before");
    batch.cancel_delayed(&[Q, Q.lane(1), Q.lane(2)], 7);
    batch.enqueue_with(&[Q.lane(1)], &with_key, &[], b"after");
    group.apply(batch);
    assert_eq!(group.live(), 1);
    group.pass(100);
    assert_eq!(group.get(), Some((Q.lane(1), 2)));
}

#[test]
fn a_second_message_with_a_key_is_left_out_within_the_window() {
    let dedup = Some(Dedup { window_ms: 1_000, entries_max: 100 });
    let mut group = Group::new(Features { dedup, ..Features::default() });
    let with_key = |key| Attributes { key: Some(key), ..Attributes::default() };
    let mut batch = Batch::new();
    for key in [1, 2, 1, 3, 1] {
        batch.enqueue_with(&[Q], &with_key(key), &[], &[key as u8]);
    }
    group.apply(batch);
    let counters = group.leader.status(Q).expect("it is there").counters;
    assert_eq!((counters.enqueued, counters.duplicates), (3, 2));
    group.fail_over();
    group.publish_with(Q, with_key(2), b"");
    assert_eq!(group.live(), 3);
    group.pass(1_000);
    group.publish_with(Q, with_key(2), b"");
    assert_eq!(group.live(), 4);
}

#[test]
fn runs_around_a_duplicate_do_not_reach_over_its_bytes() {
    let dedup = Some(Dedup { window_ms: 1_000, entries_max: 100 });
    let mut group = Group::new(Features { dedup, ..Features::default() });
    let mut batch = Batch::new();
    for key in [1u128, 2, 1, 3] {
        let with_key = Attributes { key: Some(key), ..Attributes::default() };
        batch.enqueue_with(&[Q], &with_key, &[], &[key as u8]);
    }
    let entry = batch.clone().stamp(0);
    group.apply(batch);
    let mut bodies = Vec::new();
    for effect in group.effects.drain(..) {
        if let Effect::Enqueued { queue, count, bytes, .. } = effect {
            let messages: Vec<_> = machine::Messages::of(queue, &entry[bytes]).collect();
            assert_eq!(messages.len(), count as usize);
            bodies.extend(messages.iter().map(|(_, body)| body[0]));
        }
    }
    assert_eq!(bodies, [1, 2, 3]);
}

#[test]
fn higher_priorities_go_first_and_each_keeps_its_order() {
    let mut group = Group::new(Features { max_priority: 5, ..Features::default() });
    for priority in [0, 3, 5, 3, 0] {
        group.publish_with(Q.lane(priority), Attributes::default(), b"");
    }
    assert_eq!(group.ready(), 5);
    let order: Vec<_> = std::iter::from_fn(|| group.get()).collect();
    let expected = [(5, 1), (3, 1), (3, 2), (0, 1), (0, 2)].map(|(lane, seq)| (Q.lane(lane), seq));
    assert_eq!(order, expected);
}

#[test]
fn a_message_that_comes_back_has_its_priority_still() {
    let mut group = Group::new(Features { max_priority: 2, ..Features::default() });
    group.attach(1, credit(1)).expect("it is there");
    group.publish_with(Q.lane(2), Attributes::default(), b"");
    group.publish_with(Q.lane(1), Attributes::default(), b"");
    group.settle(Q.lane(2), 1, 1..2, Outcome::Requeue);
    assert_eq!(group.get(), Some((Q.lane(2), 1)));
    assert_eq!(group.get(), Some((Q.lane(1), 1)));
}

#[test]
fn priorities_survive_a_change_of_leader() {
    let mut group = Group::new(Features { max_priority: 9, ..Features::default() });
    for priority in 0..10 {
        group.publish_with(Q.lane(priority), Attributes::default(), b"");
    }
    group.fail_over();
    let order: Vec<_> = std::iter::from_fn(|| group.get()).map(|(lane, _)| lane).collect();
    assert_eq!(order, (0..10).rev().map(|lane| Q.lane(lane)).collect::<Vec<_>>());
}

#[test]
fn the_first_messages_go_when_there_are_too_many() {
    let mut group = Group::new(Features { max_length: Some(2), ..Features::default() });
    group.publish(5);
    assert_eq!((group.ready(), group.live()), (2, 2));
    assert_eq!(group.get(), Some((Q, 4)));
}

#[test]
fn bytes_of_bodies_are_counted_and_bounded() {
    let mut group = Group::new(Features { max_length_bytes: Some(10), ..Features::default() });
    for bytes in [4, 4, 4] {
        group.publish_with(Q, Attributes::default(), &vec![0; bytes]);
    }
    assert_eq!(group.ready(), 2);
    group.fail_over();
    group.publish_with(Q, Attributes::default(), &[0; 9]);
    assert_eq!(group.get(), Some((Q, 4)));
    group.publish_with(Q, Attributes::default(), &[0; 11]);
    assert_eq!(group.live(), 0);
}

#[test]
fn what_is_out_does_not_count_for_the_limit() {
    let mut group = Group::new(Features { max_length: Some(1), ..Features::default() });
    group.attach(1, credit(2)).expect("it is there");
    group.publish(3);
    assert_eq!((group.ready(), group.live()), (1, 3));
    // What comes back is at the front, and the front is what goes.
    group.settle(Q, 1, 1..2, Outcome::Requeue);
    assert_eq!((group.ready(), group.live()), (1, 2));
}

#[test]
fn room_is_kept_for_what_was_admitted() {
    let overflow = Overflow::RejectPublish;
    let mut group = Group::new(Features { max_length: Some(3), overflow, ..Features::default() });
    assert_eq!(group.leader.admit(Q, &[1, 1]), []);
    assert_eq!(group.leader.admit(Q, &[1, 1]), [1]);
    group.publish(3);
    assert_eq!(group.ready(), 3);
    assert_eq!(group.leader.admit(Q, &[1]), [0]);
    assert_eq!(group.get(), Some((Q, 1)));
    assert_eq!(group.leader.admit(Q, &[1]), []);
}

#[test]
fn room_that_was_kept_for_a_duplicate_is_given_back() {
    let dedup = Some(Dedup { window_ms: 1_000, entries_max: 100 });
    let overflow = Overflow::RejectPublish;
    let mut group =
        Group::new(Features { max_length: Some(3), overflow, dedup, ..Features::default() });
    let with_key = Attributes { key: Some(1), ..Attributes::default() };
    for _ in 0..10 {
        assert_eq!(group.leader.admit(Q, &[4]), []);
        group.publish_with(Q, with_key, b"body");
    }
    assert_eq!(group.ready(), 1);
}

#[test]
fn one_consumer_at_a_time_is_served_of_a_single_active() {
    let mut group = Group::new(Features { single_active: true, ..Features::default() });
    let exclusive = ConsumerSpec { exclusive: true, ..credit(1) };
    assert_eq!(group.attach(9, exclusive), Err(AttachError::ExclusiveUse));
    group.attach(2, credit(2)).expect("it is there");
    group.attach(1, credit(10)).expect("it is there");
    group.publish(3);
    assert_eq!(group.delivered(), [(2, 1..3)]);
    group.leader.detach(Q, who(2), &mut group.effects);
    assert_eq!(group.delivered(), [(1, 3..4)]);
    group.settle(Q, 2, 1..3, Outcome::Requeue);
    assert_eq!(group.delivered(), [(1, 1..3)]);
}

#[test]
fn a_dead_message_leaves_before_it_is_gone() {
    let mut group = Group::new(Features { dead_letters: true, ..Features::default() });
    group.attach(1, credit(10)).expect("it is there");
    group.publish(2);
    group.settle(Q, 1, 1..2, Outcome::Rejected);
    assert_eq!(group.left(), [(Q, 1..2, Outcome::Rejected)]);
    assert_eq!(group.live(), 2);
    // Consumers have no say in it any more.
    group.settle(Q, 1, 1..2, Outcome::Done);
    assert_eq!(group.live(), 2);
    group.fail_over();
    assert_eq!(group.left(), [(Q, 1..2, Outcome::Rejected)], "a new leader begins again");
    assert_eq!(group.ready(), 1);
    group.settle(Q, 77, 1..2, Outcome::DeadLettered);
    let counters = group.leader.status(Q).expect("it is there").counters;
    assert_eq!((group.live(), counters.dead_lettered, counters.dropped), (1, 1, 0));
}

#[test]
fn what_expires_and_what_overflows_leaves_with_its_reason() {
    let mut group = Group::new(Features {
        dead_letters: true,
        message_ttl_ms: Some(10),
        max_length: Some(2),
        ..Features::default()
    });
    group.publish(3);
    assert_eq!(group.left(), [(Q, 1..2, Outcome::Overflowed)]);
    group.pass(10);
    assert_eq!(group.left(), [(Q, 2..4, Outcome::Expired)]);
    assert_eq!(group.leader.status(Q).expect("it is there").leaving, 3);
}

#[test]
fn only_so_many_are_out_with_the_porter_and_all_come_again_when_it_does() {
    let mut group = Group::new(Features {
        dead_letters: true,
        message_ttl_ms: Some(10),
        ..Features::default()
    });
    let max = machine::limits::LEAVING_OUT_MAX;
    group.publish(max + 10);
    group.pass(10);
    let out = group.left();
    assert_eq!(out.iter().map(|(_, run, _)| run.end - run.start).sum::<u64>(), max);
    group.leader.leave_again(&mut group.effects);
    assert_eq!(group.left(), out);
    group.settle(Q, 77, 1..max + 1, Outcome::DeadLettered);
    assert_eq!(group.left(), [(Q, max + 1..max + 11, Outcome::Expired)]);
}

fn counting(delivery_limit: Option<u32>) -> Features {
    Features { delivery_limit, counts_returns: true, ..Features::default() }
}

#[test]
fn a_message_that_comes_back_too_often_leaves_even_without_dead_letters() {
    let mut group = Group::new(counting(Some(1)));
    group.attach(1, credit(10)).expect("it is there");
    group.publish(1);
    group.settle(Q, 1, 1..2, Outcome::Requeue);
    let again = Effect::Deliver {
        queue: Q,
        consumer: who(1),
        first_seq: 1,
        count: 1,
        redelivered: true,
        no_ack: false,
        returns: 1,
    };
    assert!(group.effects.contains(&again), "{:?}", group.effects);
    group.leader.end_session(SessionId(1), &mut group.effects);
    group.log();
    assert_eq!(group.left(), [(Q, 1..2, Outcome::Exhausted)]);
    assert_eq!(group.ready(), 0);
}

#[test]
fn returns_are_counted_across_a_change_of_leader() {
    let mut group = Group::new(counting(None));
    group.attach(1, credit(10)).expect("it is there");
    group.publish(2);
    group.settle(Q, 1, 1..2, Outcome::Requeue);
    group.settle(Q, 1, 1..2, Outcome::Requeue);
    group.fail_over();
    group.effects.clear();
    group.attach(2, credit(10)).expect("it is there");
    let returns: Vec<_> = group
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Deliver { first_seq, count, returns, .. } => {
                Some((range_of(*first_seq, *count), *returns))
            }
            _ => None,
        })
        .collect();
    assert_eq!(returns, [(1..2, 2), (2..3, 0)]);
}

#[test]
fn a_requeue_in_a_transaction_is_counted_and_delivered_again_once() {
    let mut group = Group::new(counting(Some(5)));
    group.attach(1, credit(10)).expect("it is there");
    group.publish(1);
    group.effects.clear();
    let ranges = Ranges::from(1..2);
    group.leader.settle_committed(Q, who(1), &ranges, Outcome::Requeue, &mut group.effects);
    let mut batch = Batch::new();
    batch.settle(Q, Outcome::Requeue, &ranges);
    group.apply(batch);
    assert_eq!(group.delivered(), [(1, 1..2)]);
    group.settle(Q, 1, 1..2, Outcome::Done);
    assert_eq!(group.live(), 0);
}

#[test]
fn a_retry_waits_longer_each_time_up_to_a_bound() {
    let retry = Some(Retry { failed: true, returned: false, min_ms: 100, max_ms: 150 });
    let mut group = Group::new(Features { retry, ..counting(None) });
    group.attach(1, credit(10)).expect("it is there");
    group.publish(1);
    for wait in [100, 150, 150] {
        group.effects.clear();
        group.settle(Q, 1, 1..2, Outcome::Requeue);
        group.pass(wait - 1);
        assert_eq!(group.delivered(), []);
        group.pass(1);
        assert_eq!(group.delivered(), [(1, 1..2)]);
    }
    // Who went did not fail.
    group.attach(2, credit(10)).expect("it is there");
    group.leader.end_session(SessionId(1), &mut group.effects);
    group.log();
    assert_eq!(group.delivered(), [(2, 1..2)]);
}

#[test]
fn a_return_that_is_logged_late_takes_nothing_from_who_holds_the_message() {
    let retry = Retry { failed: true, returned: true, min_ms: 10, max_ms: 100 };
    let mut group = Group::new(Features { retry: Some(retry), ..counting(None) });
    group.attach(1, credit(5)).expect("it is there");
    group.publish(1);
    assert_eq!(group.delivered(), [(1, 1..2)]);
    group.attach(2, credit(5)).expect("it is there");
    // An earlier leader was told of it, and could not log it.
    let mut batch = Batch::new();
    batch.settle(Q, Outcome::Returned, &Ranges::from(1..2));
    group.apply(batch);
    group.pass(1_000);
    assert_eq!(group.delivered(), []);
    group.leader.check();
    group.settle(Q, 1, 1..2, Outcome::Done);
    assert_eq!(group.live(), 0);
}

#[test]
fn a_queue_that_nobody_uses_is_over() {
    let mut group = Group::new(Features { expires_ms: Some(100), ..Features::default() });
    group.publish(1);
    group.pass(60);
    group.leader.touch(Q);
    group.pass(60);
    group.attach(1, credit(0)).expect("it is there");
    group.pass(1_000);
    assert!(!group.effects.contains(&Effect::Unused { queue: Q }));
    group.leader.end_session(SessionId(1), &mut group.effects);
    group.pass(99);
    assert!(!group.effects.contains(&Effect::Unused { queue: Q }));
    group.pass(1);
    assert!(group.effects.contains(&Effect::Unused { queue: Q }));
    assert_eq!(group.attach(2, credit(0)), Err(AttachError::NoQueue));
}

#[test]
fn a_clock_that_goes_back_changes_nothing() {
    let mut group = Group::new(Features { message_ttl_ms: Some(100), ..Features::default() });
    group.publish(1);
    group.now -= 500;
    group.publish(1);
    group.now += 599;
    group.pass(0);
    assert_eq!(group.ready(), 2);
    group.pass(1);
    assert_eq!(group.ready(), 0);
}

#[test]
fn a_message_for_a_lane_that_is_not_there_is_ignored_and_counted() {
    let mut group = Group::new(Features { max_priority: 2, ..Features::default() });
    group.publish_with(Q.lane(3), Attributes::default(), b"");
    assert_eq!((group.live(), group.leader.ignored()), (0, 1));
}

#[test]
fn what_expired_behind_a_live_message_goes_as_it_comes_to_the_front() {
    let mut group = Group::new(Features::default());
    for attributes in [Attributes::default(), ttl(0), Attributes::default(), ttl(0)] {
        group.publish_with(Q, attributes, b"");
    }
    assert_eq!(group.ready(), 4);
    group.attach(1, credit(1)).expect("it is there");
    assert_eq!((group.delivered(), group.ready()), (vec![(1, 1..2)], 2));
    group.leader.credit(Q, who(1), 5, &mut group.effects);
    group.log();
    assert_eq!((group.delivered(), group.live()), (vec![(1, 3..4)], 2));
}

#[test]
fn a_fetch_leaves_no_expired_message_at_the_front() {
    let mut group = Group::new(Features::default());
    group.publish(1);
    group.publish_with(Q, ttl(0), b"");
    assert_eq!(group.get(), Some((Q, 1)));
    assert_eq!(group.live(), 0);
}

#[test]
fn who_has_credit_takes_what_there_is_no_room_for() {
    let overflow = Overflow::RejectPublish;
    let mut group = Group::new(Features { max_length: Some(1), overflow, ..Features::default() });
    group.attach(1, credit(2)).expect("it is there");
    assert_eq!(group.leader.admit(Q, &[1, 1, 1, 1]), [3]);
    group.publish(3);
    assert_eq!((group.delivered(), group.ready()), (vec![(1, 1..3)], 1));
    assert_eq!(group.leader.admit(Q, &[1]), [0]);
    let none = Features { max_length: Some(0), overflow, ..Features::default() };
    let mut group = Group::new(none);
    group.attach(1, credit(2)).expect("it is there");
    assert_eq!(group.leader.admit(Q, &[1]), [0], "as in RabbitMQ");
}

#[test]
fn what_comes_back_goes_out_before_what_is_behind_it() {
    let mut group = Group::new(counting(Some(9)));
    group.attach(1, credit(1)).expect("it is there");
    group.publish(2);
    group.effects.clear();
    let (ranges, what) = (Ranges::from(1..2), (Outcome::Requeue, 1));
    group.leader.settle_for_credit(Q, who(1), &ranges, what, &mut group.effects);
    group.log();
    assert_eq!(group.delivered(), [(1, 1..2)]);
    let what = (Outcome::Done, 1);
    group.leader.settle_for_credit(Q, who(1), &ranges, what, &mut group.effects);
    assert_eq!(group.delivered(), [(1, 2..3)]);
}

#[test]
fn the_first_to_come_is_the_active_one_whatever_its_priority() {
    let mut group = Group::new(Features { single_active: true, ..Features::default() });
    group.attach(2, credit(9)).expect("it is there");
    group.attach(1, ConsumerSpec { priority: 10, ..credit(9) }).expect("it is there");
    group.publish(1);
    assert_eq!(group.delivered(), [(2, 1..2)]);
}

#[test]
fn a_deleted_queue_stays_until_its_dead_messages_are_stored() {
    let mut group = Group::new(Features { dead_letters: true, ..Features::default() });
    group.attach(1, credit(1)).expect("it is there");
    group.publish(3);
    group.settle(Q, 1, 1..2, Outcome::Rejected);
    let mut batch = Batch::new();
    batch.drop_queue(Q);
    group.apply(batch.clone());
    assert!(group.effects.contains(&Effect::Cancelled { queue: Q, consumer: who(1) }));
    assert_eq!((group.live(), group.leader.status(Q)), (1, None));
    assert_eq!(group.leader.queues().count(), 0);
    assert_eq!(group.attach(2, credit(1)), Err(AttachError::NoQueue));
    group.publish(1);
    assert_eq!((group.live(), group.leader.ignored()), (1, 1));
    group.effects.clear();
    group.fail_over();
    group.apply(batch);
    assert_eq!(group.left(), [(Q, 1..2, Outcome::Rejected)]);
    group.settle(Q, 77, 1..2, Outcome::DeadLettered);
    assert!(group.effects.contains(&Effect::Dropped { queue: Q }));
    assert_eq!(group.leader.lanes().count(), 0);
    let retired = group.leader.retired();
    assert_eq!((retired.enqueued, retired.dead_lettered, retired.dropped), (3, 1, 2));
}

#[test]
fn a_delayed_message_that_may_not_wait_goes_to_who_does() {
    let mut group = Group::new(Features::default());
    group.attach(1, credit(1)).expect("it is there");
    let both = Attributes { ttl_ms: Some(0), delay_ms: Some(100), key: None };
    group.publish_with(Q, both, b"");
    group.publish_with(Q, both, b"");
    group.pass(105);
    assert_eq!(group.delivered(), [(1, 1..2)]);
    assert_eq!(group.live(), 1);
}

#[test]
fn what_may_not_wait_takes_up_no_room() {
    let features = Features { max_length: Some(1), dead_letters: true, ..Features::default() };
    let mut group = Group::new(features);
    let mut batch = Batch::new();
    (0..3).for_each(|_| batch.enqueue_with(&[Q], &ttl(0), &[], b""));
    group.apply(batch);
    group.log();
    assert_eq!(group.left(), [(Q, 1..4, Outcome::Expired)]);
}

#[test]
fn what_expired_before_a_delayed_message_was_due_goes_to_nobody() {
    let mut group = Group::new(Features::default());
    group.publish_with(Q, ttl(50), b"");
    group.publish_with(Q, delay(100), b"");
    group.now += 101;
    group.fail_over();
    group.attach(1, credit(2)).expect("it is there");
    assert_eq!(group.delivered(), [(1, 2..3)]);
    group.publish_with(Q, ttl(50), b"");
    group.publish_with(Q, delay(100), b"");
    assert_eq!(group.delivered(), [(1, 3..4)]);
    group.publish_with(Q, ttl(50), b"");
    group.now += 101;
    group.leader.set_now(group.now);
    group.leader.credit(Q, who(1), 2, &mut group.effects);
    assert_eq!(group.delivered(), [(1, 4..5)], "5 had expired when 4 was due");
}

#[test]
fn credit_does_not_wait_for_what_overflowed() {
    let mut group = Group::new(Features { max_length: Some(1), ..Features::default() });
    group.attach(1, credit(1)).expect("it is there");
    group.publish(2);
    group.effects.clear();
    let (ranges, what) = (Ranges::from(1..2), (Outcome::Requeue, 1));
    group.leader.settle_for_credit(Q, who(1), &ranges, what, &mut group.effects);
    assert_eq!(group.delivered(), [(1, 2..3)], "the first went, because there is room for one");
}
