//! What arguments of a queue and attributes of a message promise, one promise each. A leader and a
//! follower apply the same entries and are equal after each of them.

mod dead_letters;
mod delays;
mod filters;
mod keys;
mod lifetimes;
mod limits;
mod order;
mod paused_consumers;
mod rates;
mod returns;
mod shared_rates;
mod streams;
mod subscriptions;
mod withheld;

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
        let settings =
            QueueSettings { is_durable: true, is_auto_delete: false, features, is_paused: false };
        batch.keep_chain();
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
        self.leader.stores().map(|store| self.leader.kept(store).expect("a store").len()).sum()
    }
}

fn ttl(ms: u64) -> Attributes {
    Attributes { ttl_ms: Some(ms), ..Attributes::default() }
}

fn delay(ms: u64) -> Attributes {
    Attributes { delay_ms: Some(ms), ..Attributes::default() }
}
