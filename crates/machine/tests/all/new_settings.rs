//! Settings of a queue that has begun are changed: what that means for what is in it, and for what comes later.

use machine::{
    Applied, Batch, ConsumerId, ConsumerSpec, Effect, Features, Outcome, Overflow, QueueId,
    QueueMachine, QueueSettings, Ranges, Retry, SessionId, Version,
};

const Q: QueueId = QueueId(1);
const CONSUMER: ConsumerId = ConsumerId { session: SessionId(1), number: 1 };

/// A leader with one queue.
struct Leader {
    machine: QueueMachine,
    revision: u64,
    now_ms: u64,
    effects: Vec<Effect>,
}

fn settings(features: Features) -> QueueSettings {
    QueueSettings {
        is_durable: true,
        is_auto_delete: false,
        features: Some(Box::new(features)),
        is_paused: false,
    }
}

/// Of a program that reads the command.
fn machine() -> QueueMachine {
    QueueMachine::new().reading(Version::CHANGED_SETTINGS)
}

impl Leader {
    fn new(features: Option<Features>) -> Self {
        let machine = machine();
        let mut leader = Self { machine, revision: 0, now_ms: 1_000, effects: Vec::new() };
        leader.machine.set_now(leader.now_ms);
        leader.machine.lead();
        leader.machine.start_dispatch(&mut leader.effects);
        let features = features.map(Box::new);
        let mut batch = Batch::new();
        batch.create_queue(
            Q,
            &QueueSettings { is_durable: true, is_auto_delete: false, features, is_paused: false },
        );
        leader.apply(batch);
        leader
    }

    fn apply(&mut self, batch: Batch) {
        self.apply_between(batch);
        self.machine.check();
    }

    /// While something is on its way to the log: where that is, the machine does not know.
    fn apply_between(&mut self, batch: Batch) {
        let at = Applied { index: self.machine.applied_index() + 1, time_ms: self.now_ms };
        self.machine.apply(at, &batch.stamp(at.time_ms), &mut self.effects).expect("our entry");
    }

    fn set(&mut self, features: Features) {
        self.revision += 1;
        self.set_as(self.revision, features);
    }

    fn set_as(&mut self, revision: u64, features: Features) {
        let mut batch = Batch::new();
        batch.set_settings(Q, revision, &settings(features));
        self.apply(batch);
    }

    fn publish(&mut self, count: usize) {
        let mut batch = Batch::new();
        (0..count).for_each(|_| batch.enqueue(&[Q], &[], b"ten bytes."));
        self.apply(batch);
    }

    /// Everything that was settled goes to the log.
    fn log(&mut self) {
        let mut batch = Batch::new();
        while self.machine.take_settled(&mut batch) {}
        self.apply(batch);
    }

    fn ready(&self) -> u64 {
        self.machine.status(Q).expect("the queue").ready
    }

    fn dropped(&self) -> u64 {
        self.machine.status(Q).expect("the queue").counters.dropped
    }

    fn tick_to(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.machine.set_now(now_ms);
        self.machine.tick(now_ms, &mut self.effects);
    }
}

#[test]
fn a_limit_that_is_new_drops_what_is_too_much_at_once() {
    let mut leader = Leader::new(None);
    leader.publish(10);
    leader.set(Features { max_length: Some(4), ..Features::default() });
    assert_eq!(leader.ready(), 4);
    leader.log();
    assert_eq!(leader.dropped(), 6);
}

#[test]
fn publishers_are_refused_from_the_moment_on_at_which_the_queue_is_to_refuse() {
    let mut leader = Leader::new(None);
    leader.publish(4);
    assert_eq!(leader.machine.admit(Q, &[10]), [0u32; 0]);
    let overflow = Overflow::RejectPublish;
    leader.set(Features { max_length: Some(4), overflow, ..Features::default() });
    assert_eq!(leader.machine.admit(Q, &[10]), [0]);
    assert_eq!(leader.ready(), 4, "what is there stays");
    leader.set(Features::default());
    assert_eq!(leader.machine.admit(Q, &[10]), [0u32; 0]);
}

#[test]
fn a_time_to_live_counts_for_what_comes_later() {
    let mut leader = Leader::new(None);
    leader.publish(3);
    leader.set(Features { message_ttl_ms: Some(50), ..Features::default() });
    leader.publish(2);
    leader.tick_to(2_000);
    assert_eq!(leader.ready(), 5, "what expires waits behind what does not");
    let spec = ConsumerSpec { credit: 3, ..ConsumerSpec::default() };
    leader.machine.attach(Q, CONSUMER, spec, &mut leader.effects).expect("a consumer");
    leader.tick_to(2_001);
    assert_eq!(leader.ready(), 0);
    leader.log();
    assert_eq!(leader.dropped(), 2);
}

#[test]
fn messages_that_die_later_go_to_the_dead_letter_worker() {
    let mut leader = Leader::new(Some(Features { max_length: Some(9), ..Features::default() }));
    leader.publish(9);
    leader.set(Features { max_length: Some(8), dead_letters: true, ..Features::default() });
    leader.log();
    let leaves = |effect: &Effect| matches!(effect, Effect::Leave { first_seq: 1, count: 1, .. });
    assert!(leader.effects.iter().any(leaves), "{:?}", leader.effects);
    assert_eq!(leader.machine.status(Q).expect("the queue").leaving, 1);
}

#[test]
fn a_queue_that_is_to_expire_counts_as_used_at_that_moment() {
    let mut leader = Leader::new(None);
    leader.tick_to(5_000);
    leader.set(Features { expires_ms: Some(100), ..Features::default() });
    assert_eq!(leader.machine.deadline(), Some(5_100));
    leader.tick_to(5_099);
    assert!(!leader.effects.contains(&Effect::Unused { queue: Q }));
    leader.tick_to(5_100);
    assert!(leader.effects.contains(&Effect::Unused { queue: Q }));
}

#[test]
fn what_a_queue_is_made_of_stays() {
    let made = Features { max_priority: 3, single_active: true, ..Features::default() };
    let mut leader = Leader::new(Some(made.clone()));
    leader.set(Features { max_priority: 7, max_length: Some(5), ..Features::default() });
    let found = leader.machine.settings(Q).expect("the queue");
    let wanted = Features { max_length: Some(5), ..made.clone() };
    assert_eq!(found, &settings(wanted));
    leader.set(Features::default());
    assert_eq!(leader.machine.settings(Q), Some(&settings(made)));
}

#[test]
fn a_queue_that_has_lost_its_policy_is_a_plain_one_again() {
    let mut leader = Leader::new(None);
    leader.set(Features { max_length: Some(5), ..Features::default() });
    leader.set(Features::default());
    assert_eq!(leader.machine.settings(Q).expect("the queue").features, None);
    leader.publish(10);
    assert_eq!(leader.ready(), 10);
}

#[test]
fn what_came_back_while_returns_were_counted_is_ready_again_when_they_are_not() {
    let retry = Retry { failed: true, returned: true, min_ms: 100, max_ms: 100 };
    let counting = Features { counts_returns: true, retry: Some(retry), ..Features::default() };
    let mut leader = Leader::new(Some(counting));
    leader.publish(1);
    let spec = ConsumerSpec { credit: 1, ..ConsumerSpec::default() };
    leader.machine.attach(Q, CONSUMER, spec, &mut leader.effects).expect("a consumer");
    let back = Ranges::from(1..2);
    leader.machine.settle(Q, CONSUMER, &back, Outcome::Requeue, &mut leader.effects);
    // It is on its way to the log, and the change is there before it.
    let mut late = Batch::new();
    while leader.machine.take_settled(&mut late) {}
    let mut change = Batch::new();
    change.set_settings(Q, 1, &settings(Features::default()));
    leader.apply_between(change);
    leader.apply(late);
    assert_eq!(leader.ready(), 1);
}

#[test]
fn a_queue_that_is_not_there_stays_so() {
    let mut leader = Leader::new(None);
    let mut batch = Batch::new();
    batch.set_settings(QueueId(2), 1, &settings(Features::default()));
    leader.apply(batch);
    assert_eq!(leader.machine.queues().collect::<Vec<_>>(), [Q]);
}

#[test]
fn a_change_that_comes_late_or_again_changes_nothing() {
    let mut leader = Leader::new(None);
    let limit = |max| Features { max_length: Some(max), ..Features::default() };
    leader.set_as(7, limit(5));
    for late in [3, 7] {
        leader.set_as(late, limit(1));
        assert_eq!(leader.machine.settings(Q), Some(&settings(limit(5))));
    }
    assert_eq!(leader.machine.revision(Q), Some(7));
    leader.set_as(8, limit(6));
    assert_eq!(leader.machine.settings(Q), Some(&settings(limit(6))));
}

#[test]
fn a_snapshot_says_which_change_the_settings_are_from_once_there_was_one() {
    let mut leader = Leader::new(None);
    let before = leader.machine.snapshot()[0];
    leader.set_as(7, Features { max_length: Some(5), ..Features::default() });
    let snapshot = leader.machine.snapshot();
    assert!(snapshot[0] > before, "a member of before would not know what this is");
    let restored = QueueMachine::restore(&snapshot).expect("our own snapshot");
    assert_eq!((restored.revision(Q), restored.digest()), (Some(7), leader.machine.digest()));
}
