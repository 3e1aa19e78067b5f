//! Random calls and entries against queues with random arguments: replicas are equal, each message is in
//! one place until it is gone, and what is given out may be given out.

use std::collections::{BTreeMap, BTreeSet};

use machine::{
    Applied, Attributes, Batch, Command, ConsumerId, ConsumerSpec, Dedup, Effect, EntryReader,
    Features, MessageState, Outcome, Overflow, PeekFilter, Position, PurgeId, QueueId,
    QueueMachine, QueueSettings, QueueStatus, Ranges, Rates, Retry, SessionId, Version, Weight,
    Withheld,
};
use proptest::prelude::*;

const QUEUES: u64 = 3;

fn features() -> impl Strategy<Value = Features> {
    let time = || prop::option::weighted(0.3, 0u64..60);
    let retry = || (any::<bool>(), any::<bool>(), 0u64..20, 0u64..40);
    (
        (time(), prop::option::weighted(0.3, 0u64..8), prop::option::weighted(0.2, 0u64..30)),
        (0u8..3, any::<bool>(), prop::sample::select(vec![0u8, 0, 0, 1, 4])),
        (any::<bool>(), prop::option::weighted(0.4, 0u32..3), any::<bool>()),
        prop::option::weighted(0.3, retry()),
        prop::option::weighted(0.3, (0u64..50, 0u32..5)),
    )
        .prop_map(|((ttl, length, bytes), (overflow, dead, priority), more, retry, dedup)| {
            let (single_active, delivery_limit, counts) = more;
            Features {
                message_ttl_ms: ttl,
                max_length: length,
                max_length_bytes: bytes,
                overflow: match overflow {
                    0 => Overflow::DropHead,
                    1 => Overflow::RejectPublish,
                    _ => Overflow::RejectPublishDlx,
                },
                dead_letters: dead,
                max_priority: priority,
                single_active,
                delivery_limit,
                counts_returns: counts || delivery_limit.is_some() || retry.is_some(),
                retry: retry
                    .map(|(failed, returned, min_ms, max_ms)| Retry {
                        failed,
                        returned,
                        min_ms,
                        max_ms,
                    })
                    .filter(|retry| retry.failed || retry.returned),
                dedup: dedup.map(|(window_ms, entries_max)| Dedup { window_ms, entries_max }),
                stream: None,
                subscription: None,
                assignment: None,
                tokens_of: None,
                order: None,
                filter: None,
                expires_ms: None,
                rates: Rates::default(),
            }
        })
}

/// What a leader that leads no longer was told of messages that do not die by it. What it decided of its
/// own, the next one decides again.
fn of_sessions(batch: Batch, features: &[Features]) -> Batch {
    let entry = batch.stamp(0);
    let mut left = Batch::new();
    for command in EntryReader::new(&entry).expect("our own entry") {
        let (_, command) = command.expect("our own entry");
        let Command::Settle { queue, outcome, ranges } = command else { continue };
        let has_limit = features[queue.base().0 as usize - 1].delivery_limit.is_some();
        match outcome {
            Outcome::Done | Outcome::DeadLettered => left.settle(queue, outcome, &ranges),
            Outcome::Requeue | Outcome::Returned if !has_limit => {
                left.settle(queue, outcome, &ranges);
            }
            _ => {}
        }
    }
    left
}

/// A leader, a follower, and what a consumer holds by what it was told.
struct World {
    leader: QueueMachine,
    follower: QueueMachine,
    features: Vec<Features>,
    now: u64,
    effects: Vec<Effect>,
    held: BTreeMap<ConsumerId, BTreeSet<(QueueId, u64)>>,
    /// Before when a message must not be given out.
    due: BTreeMap<(QueueId, u64), u64>,
    leaving: BTreeSet<(QueueId, u64)>,
    /// What was given out and waits for the log, and what left.
    unmarked: BTreeSet<(QueueId, u64)>,
    seen: BTreeSet<(QueueId, u64)>,
    last: Vec<(u64, Option<u64>)>,
    /// What queues are to be like later.
    others: Vec<Features>,
    /// What earlier leaders were told and could not log.
    late: Vec<Batch>,
}

/// Of a program that reads all commands here.
fn machine() -> QueueMachine {
    QueueMachine::new().reading(Version::CHAINED)
}

fn restored(other: &QueueMachine) -> QueueMachine {
    let machine = QueueMachine::restore(&other.snapshot()).expect("our own snapshot");
    machine.reading(Version::CHAINED)
}

fn consumer(number: u8) -> ConsumerId {
    ConsumerId { session: SessionId(u64::from(number % 4)), number: u64::from(number % 8) }
}

impl World {
    fn new(features: Vec<Features>, others: Vec<Features>, keeps_marks: bool) -> Self {
        let mut world = Self {
            leader: machine(),
            follower: machine(),
            features,
            now: 1_000,
            effects: Vec::new(),
            held: BTreeMap::new(),
            due: BTreeMap::new(),
            leaving: BTreeSet::new(),
            unmarked: BTreeSet::new(),
            seen: BTreeSet::new(),
            last: Vec::new(),
            others,
            late: Vec::new(),
        };
        world.leader.set_now(world.now);
        world.leader.lead();
        world.leader.start_dispatch(&mut world.effects);
        let mut batch = Batch::new();
        batch.keep_chain();
        for (id, features) in (1..).zip(&world.features) {
            let features = Some(Box::new(features.clone()));
            let settings = QueueSettings {
                is_durable: true,
                is_auto_delete: false,
                features,
                is_paused: false,
            };
            batch.create_queue(QueueId(id), &settings);
            if keeps_marks {
                batch.keep_marks(QueueId(id));
            }
        }
        world.apply(batch);
        world
    }

    fn apply(&mut self, batch: Batch) {
        let at = Applied { index: self.leader.applied_index() + 1, time_ms: self.now };
        let entry = batch.stamp(self.now);
        self.leader.apply(at, &entry, &mut self.effects).expect("our own entry");
        self.follower.apply(at, &entry, &mut Vec::new()).expect("our own entry");
        assert_eq!(self.leader.snapshot(), self.follower.snapshot());
        self.hear();
    }

    fn log(&mut self) {
        let mut batch = Batch::new();
        while self.leader.take_settled(&mut batch) {}
        assert!(!self.leader.has_settles());
        if !batch.is_empty() {
            self.apply(batch);
        }
    }

    fn hear(&mut self) {
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Deliver {
                    queue,
                    consumer,
                    first_seq,
                    count,
                    no_ack,
                    redelivered,
                    waits,
                    ..
                } => {
                    for seq in first_seq..first_seq + u64::from(count) {
                        let due = self.due.get(&(queue, seq)).copied().unwrap_or(0);
                        assert!(due <= self.now, "{seq} of {queue:?} came before {due}");
                        assert!(!self.leaving.contains(&(queue, seq)), "it was dead");
                        let was_seen = self.seen.contains(&(queue, seq));
                        assert!(redelivered || !was_seen, "{seq} of {queue:?} is not flagged");
                        let left = if waits { &mut self.unmarked } else { &mut self.seen };
                        left.insert((queue, seq));
                        if !no_ack {
                            self.held.entry(consumer).or_default().insert((queue, seq));
                        }
                    }
                }
                Effect::Marked { queue, to } => {
                    let left = self.unmarked.extract_if((queue, 0)..(queue, to), |_| true);
                    self.seen.extend(left);
                }
                Effect::Leave { queue, first_seq, count, .. } => {
                    let all = first_seq..first_seq + u64::from(count);
                    self.leaving.extend(all.map(|seq| (queue, seq)));
                }
                _ => {}
            }
        }
    }

    fn publish(&mut self, [a, b, c]: [u8; 3]) {
        let mut batch = Batch::new();
        for nth in 0..u64::from(c % 5) + 1 {
            let id = 1 + (u64::from(a) + nth * u64::from(b % 2)) % QUEUES;
            let features = &self.features[id as usize - 1];
            let level = QueueId(id).level(b % (features.max_priority + 1));
            let pick =
                |from: u8, of: u8, to: u64| from.is_multiple_of(of).then_some(u64::from(c) % to);
            let attributes = Attributes {
                ttl_ms: pick(b, 4, 30),
                delay_ms: pick(b, 5, 30),
                key: (a % 2 == 0).then_some(u128::from(c % 7)),
            };
            if attributes.delay_ms.is_some_and(|delay| delay > 0) && features.dedup.is_none() {
                // Without duplicates its number is known beforehand.
                let before = self.last.iter().filter(|(queue, _)| *queue == level.0).count() as u64;
                let seq = self.leader.next_seq(level).expect("a level") + before;
                let due = self.now + attributes.delay_ms.unwrap_or(0);
                self.due.insert((level, seq), due);
            }
            self.last.push((level.0, attributes.delay_ms));
            batch.enqueue_with(&[level], &attributes, &[], &vec![0; usize::from(a % 9)]);
        }
        self.last.clear();
        self.apply(batch);
    }

    fn settle(&mut self, [a, b, c]: [u8; 3]) {
        let who = consumer(a);
        let held: Vec<_> = self.held.entry(who).or_default().iter().copied().collect();
        let Some(&(queue, seq)) = held.get(usize::from(b) % held.len().max(1)) else { return };
        self.held.entry(who).or_default().remove(&(queue, seq));
        let ranges = Ranges::from(seq..seq + 1);
        self.unmarked.remove(&(queue, seq));
        let outcome = match c % 5 {
            0 | 1 => Outcome::Done,
            2 => Outcome::Rejected,
            3 => Outcome::Requeue,
            _ => Outcome::Undelivered,
        };
        if outcome == Outcome::Undelivered {
            self.seen.remove(&(queue, seq));
        }
        if c >= 128 && outcome != Outcome::Undelivered {
            self.leader.settle_committed(queue, who, &ranges, outcome, &mut self.effects);
            let mut batch = Batch::new();
            batch.settle(queue, outcome, &ranges);
            self.hear();
            self.apply(batch);
        } else {
            self.leader.settle(queue, who, &ranges, outcome, &mut self.effects);
        }
    }

    /// A queue gets other settings; what it is made of stays.
    fn change(&mut self, queue: QueueId, which: usize) {
        let Features { max_priority, single_active, dedup, .. } =
            self.features[queue.0 as usize - 1];
        let asked = self.others[which % self.others.len()].clone();
        let features = Some(Box::new(asked.clone()));
        let mut batch = Batch::new();
        let settings =
            QueueSettings { is_durable: false, is_auto_delete: true, features, is_paused: false };
        let revision = self.leader.revision(queue).expect("a queue") + 1;
        batch.set_settings(queue, revision, &settings);
        self.apply(batch);
        let now = Features { max_priority, single_active, dedup, ..asked };
        let settings = self.leader.settings(queue).expect("a queue");
        assert!(settings.is_durable && !settings.is_auto_delete);
        assert_eq!(settings.features.clone().map_or_else(Features::default, |it| *it), now);
        self.features[queue.0 as usize - 1] = now;
    }

    /// The dead-letter worker has stored some of what leaves.
    fn store(&mut self, count: u8) {
        for (queue, seq) in self.leaving.iter().take(usize::from(count)).copied() {
            let ranges = Ranges::from(seq..seq + 1);
            let outcome = Outcome::DeadLettered;
            self.leader.settle(queue, consumer(99), &ranges, outcome, &mut self.effects);
        }
    }

    fn fail_over(&mut self) {
        self.leader = restored(&self.follower);
        assert_eq!(self.leader.snapshot(), self.follower.snapshot());
        self.held.clear();
        self.leaving.clear();
        self.unmarked.clear();
        self.leader.set_now(self.now);
        self.leader.lead();
        self.leader.start_dispatch(&mut self.effects);
    }

    /// Another leads; consumers come with what they hold, and what they said is logged later.
    fn hand_over(&mut self) {
        let mut batch = Batch::new();
        while self.leader.take_settled(&mut batch) {
            self.late.push(of_sessions(std::mem::take(&mut batch), &self.features));
        }
        let attached = self.leader.attachments();
        self.leader = restored(&self.follower);
        self.leader.set_now(self.now);
        self.leader.lead();
        self.leader.join(|_| true, &attached, &mut self.effects);
        self.leader.check();
        self.unmarked.clear();
        self.held.clear();
        for attached in self.leader.attachments() {
            let held = self.held.entry(attached.consumer).or_default();
            held.extend(attached.held.iter().map(|seq| (attached.queue, seq)));
        }
        self.leaving.clear();
        self.leader.start_dispatch(&mut self.effects);
    }

    fn step(&mut self, [op, a, b, c]: [u8; 4]) {
        self.leader.set_now(self.now);
        let queue = QueueId(1 + u64::from(a) % QUEUES);
        match op % 16 {
            0..=4 => self.publish([a, b, c]),
            5 => {
                let spec = ConsumerSpec {
                    credit: u32::from(c % 6),
                    no_ack: c % 7 == 0,
                    exclusive: false,
                    priority: i32::from(c % 2),
                    start: None,
                    weight: Weight::Unknown,
                    generation: 0,
                    is_paused: false,
                };
                let _ = self.leader.attach(queue, consumer(b), spec, &mut self.effects);
            }
            6 => self.leader.credit(queue, consumer(b), u32::from(c % 4), &mut self.effects),
            7 => self.leader.detach(queue, consumer(b), &mut self.effects),
            8 => {
                let _ = self.leader.get(queue, consumer(b), c % 2 == 0, &mut self.effects);
            }
            9 | 10 => self.settle([a, b, c]),
            11 => {
                self.now += u64::from(b % 40);
                while self.leader.deadline().is_some_and(|due| due <= self.now) {
                    self.leader.tick(self.now, &mut self.effects);
                    self.hear();
                    self.log();
                }
            }
            12 => self.store(b % 8),
            14 if c % 8 == 0 => self.fail_over(),
            14 if c % 8 == 4 => self.hand_over(),
            13 if c % 4 == 0 => {
                if let Some(batch) = self.late.pop() {
                    self.apply(batch);
                }
            }
            13 => self.log(),
            14 => {
                let session = SessionId(u64::from(b % 4));
                self.leader.end_session(session, &mut self.effects);
                self.held.retain(|who, _| who.session != session);
            }
            _ if c % 3 == 0 => self.purge(queue, c),
            _ if c % 3 == 1 => self.change(queue, usize::from(b)),
            _ => {
                let mut batch = Batch::new();
                batch.cancel_delayed(&[queue], u128::from(c % 7));
                self.apply(batch);
            }
        }
        self.hear();
        self.leader.check();
        self.look(queue);
    }

    /// Some purges can be undone, and some of these are.
    fn purge(&mut self, queue: QueueId, c: u8) {
        let by = PurgeId { session: SessionId(9), number: self.leader.applied_index() };
        match c % 4 {
            0 => {
                self.leader.purge(queue);
            }
            1 | 2 => {
                let reply = self.leader.withhold(queue, by, 10 * u64::from(c));
                assert_ne!(reply, Withheld::NoQueue);
            }
            _ => {
                let reply = self.leader.bring_back(queue, by);
                assert_ne!(reply, Withheld::NoQueue);
            }
        }
    }

    /// Whoever looks at a queue sees each of its messages once, and as it is counted.
    fn look(&self, queue: QueueId) {
        let (mut from, mut seen) = (Some(Position::FIRST), BTreeMap::new());
        while let Some(position) = from {
            let found = self.leader.peek(queue, position, PeekFilter::All, 7).expect("a queue");
            for message in found.messages {
                let Position { priority, seq } = message.position;
                let before = seen.insert((queue.level(priority), seq), message.state);
                assert_eq!(before, None, "{seq} of {queue:?} is shown twice");
            }
            from = found.next;
        }
        let count =
            |is: fn(&MessageState) -> bool| seen.values().filter(|it| is(it)).count() as u64;
        let status = self.leader.status(queue).expect("a queue");
        let counted = [
            count(|state| *state == MessageState::Ready),
            count(|state| matches!(state, MessageState::Held { .. })),
            count(|state| matches!(state, MessageState::Delayed { .. })),
            count(|state| matches!(state, MessageState::Dead { .. })),
        ];
        let QueueStatus { ready, unsettled, delayed, leaving, .. } = status;
        assert_eq!(counted, [ready, unsettled, delayed, leaving]);
        for ((level, seq), state) in seen {
            let MessageState::Held { by } = state else { continue };
            let held = self.held.get(&by).is_some_and(|held| held.contains(&(level, seq)));
            assert!(held, "{seq} of {level:?} is not with {by:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_message_is_in_one_place_until_it_is_gone(
        features in prop::collection::vec(features(), QUEUES as usize),
        others in prop::collection::vec(features(), 1..4),
        keeps_marks: bool,
        steps in prop::collection::vec(any::<[u8; 4]>(), 1..200),
    ) {
        let mut world = World::new(features, others, keeps_marks);
        for step in steps {
            world.step(step);
        }
        world.log();
        world.leader.check();
    }
}
