//! A paused queue takes messages and gives none; all else goes on.

use crate::world::World;
use machine::{
    Applied, Batch, Catalog, CatalogCommand, CatalogEffect, CatalogReply, ConsumerId, ConsumerSpec,
    Effect, Features, GetReply, Kind, Outcome, Overflow, QueueId, QueueMachine, QueuePause,
    QueueSettings, Ranges, Refusal, SessionId, Version, limits,
};

const Q: QueueId = QueueId(1);
const CONSUMER: ConsumerId = ConsumerId { session: SessionId(1), number: 1 };
const GETTER: ConsumerId = ConsumerId { session: SessionId(2), number: 1 };

/// A leader with one queue.
struct Leader {
    machine: QueueMachine,
    features: Option<Box<Features>>,
    revision: u64,
    now_ms: u64,
    effects: Vec<Effect>,
}

impl Leader {
    fn new(features: Option<Features>) -> Self {
        let (machine, features) = (QueueMachine::new(), features.map(Box::new));
        let mut leader =
            Self { machine, features, revision: 0, now_ms: 1_000, effects: Vec::new() };
        leader.machine.set_now(leader.now_ms);
        leader.machine.lead();
        leader.machine.start_dispatch(&mut leader.effects);
        let mut batch = Batch::new();
        batch.create_queue(Q, &leader.settings(false));
        leader.apply(batch);
        leader
    }

    fn settings(&self, is_paused: bool) -> QueueSettings {
        let features = self.features.clone();
        QueueSettings { is_durable: true, is_auto_delete: false, features, is_paused }
    }

    fn apply(&mut self, batch: Batch) {
        let at = Applied { index: self.machine.applied_index() + 1, time_ms: self.now_ms };
        self.machine.apply(at, &batch.stamp(at.time_ms), &mut self.effects).expect("our entry");
        self.machine.check();
    }

    fn pause(&mut self, is_paused: bool) {
        self.revision += 1;
        let mut batch = Batch::new();
        batch.set_settings(Q, self.revision, &self.settings(is_paused));
        self.apply(batch);
    }

    fn publish(&mut self, count: usize) {
        let mut batch = Batch::new();
        (0..count).for_each(|_| batch.enqueue(&[Q], &[], b"ten bytes."));
        self.apply(batch);
    }

    fn consume(&mut self, credit: u32) {
        let spec = ConsumerSpec { credit, ..ConsumerSpec::default() };
        self.machine.attach(Q, CONSUMER, spec, &mut self.effects).expect("a consumer");
    }

    fn settle(&mut self, seqs: std::ops::Range<u64>, outcome: Outcome) {
        let ranges = Ranges::from(seqs);
        self.machine.settle(Q, CONSUMER, &ranges, outcome, &mut self.effects);
    }

    fn get(&mut self) -> GetReply {
        self.machine.get(Q, GETTER, false, &mut self.effects)
    }

    /// Everything that was settled goes to the log.
    fn log(&mut self) {
        let mut batch = Batch::new();
        while self.machine.take_settled(&mut batch) {}
        self.apply(batch);
    }

    fn tick_to(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.machine.set_now(now_ms);
        self.machine.tick(now_ms, &mut self.effects);
    }

    /// The messages that were given out since this was asked last.
    fn given(&mut self) -> Vec<u64> {
        let given = self.effects.drain(..).filter_map(|effect| match effect {
            Effect::Deliver { first_seq, count, .. } => {
                Some(first_seq..first_seq + u64::from(count))
            }
            _ => None,
        });
        given.flatten().collect()
    }

    fn ready(&self) -> u64 {
        self.machine.status(Q).expect("the queue").ready
    }
}

fn pause(name: &str, by: Option<&str>) -> CatalogCommand {
    let by = by.map(str::to_owned);
    CatalogCommand::PauseQueue { vhost: "/".to_owned(), name: name.to_owned(), by }
}

/// A catalog of a cluster that has agreed on pauses, with a queue.
fn world() -> World {
    let mut world = World::new();
    world.apply(CatalogCommand::RaiseVersion { to: Version::PAUSES });
    world.queue("jobs");
    world
}

#[test]
fn a_paused_queue_gives_nothing_to_consumers_nor_to_who_gets() {
    for features in [None, Some(Features { max_priority: 1, ..Features::default() })] {
        let mut leader = Leader::new(features);
        leader.consume(100);
        leader.publish(2);
        assert_eq!(leader.given(), [1, 2]);
        leader.pause(true);
        leader.publish(3);
        leader.machine.credit(Q, CONSUMER, 5, &mut leader.effects);
        leader.consume(100);
        assert_eq!(leader.get(), GetReply::Empty);
        assert_eq!((leader.given(), leader.ready()), (Vec::new(), 3));
        // What is out is settled, or comes back and waits.
        leader.settle(1..2, Outcome::Done);
        leader.settle(2..3, Outcome::Requeue);
        leader.log();
        assert_eq!((leader.given(), leader.ready()), (Vec::new(), 4));
        leader.pause(false);
        assert_eq!(leader.given(), [2, 3, 4, 5], "consumers go on by themselves");
    }
}

#[test]
fn it_stays_paused_under_another_leader_and_from_a_snapshot() {
    let mut leader = Leader::new(None);
    leader.publish(2);
    leader.pause(true);
    let mut restored = QueueMachine::restore(&leader.machine.snapshot()).expect("our snapshot");
    assert_eq!(restored.digest(), leader.machine.digest());
    assert!(restored.settings(Q).expect("the queue").is_paused);
    restored.set_now(leader.now_ms);
    restored.lead();
    leader.machine = restored;
    leader.consume(9);
    leader.machine.start_dispatch(&mut leader.effects);
    assert_eq!(leader.given(), [0u64; 0]);
    leader.pause(false);
    assert_eq!(leader.given(), [1, 2]);
}

#[test]
fn messages_expire_and_die_in_a_paused_queue() {
    let mut leader = Leader::new(Some(Features {
        message_ttl_ms: Some(50),
        dead_letters: true,
        ..Features::default()
    }));
    leader.pause(true);
    leader.consume(9);
    leader.publish(3);
    leader.tick_to(1_051);
    leader.log();
    let left = leader.effects.iter().filter_map(|effect| match effect {
        Effect::Leave { count, reason, .. } => Some((*count, *reason)),
        _ => None,
    });
    assert_eq!(left.collect::<Vec<_>>(), [(3, Outcome::Expired)]);
    assert_eq!((leader.given(), leader.ready()), (Vec::new(), 0));
}

#[test]
fn delayed_messages_fall_due_in_a_paused_queue_and_wait() {
    let mut leader = Leader::new(None);
    leader.pause(true);
    leader.consume(9);
    let mut batch = Batch::new();
    let attributes = machine::Attributes { delay_ms: Some(100), ..Default::default() };
    batch.enqueue_with(&[Q], &attributes, &[], b"later");
    leader.apply(batch);
    assert_eq!(leader.ready(), 0);
    leader.tick_to(1_100);
    assert_eq!((leader.given(), leader.ready()), (Vec::new(), 1));
    leader.pause(false);
    assert_eq!(leader.given(), [1]);
}

#[test]
fn limits_of_a_paused_queue_count_what_its_consumers_do_not_take() {
    let bounded = |overflow| Features { max_length: Some(2), overflow, ..Features::default() };
    let mut leader = Leader::new(Some(bounded(Overflow::DropHead)));
    leader.pause(true);
    leader.consume(9);
    leader.publish(5);
    leader.log();
    assert_eq!(leader.ready(), 2);
    assert_eq!(leader.machine.status(Q).expect("the queue").counters.dropped, 3);

    let mut leader = Leader::new(Some(bounded(Overflow::RejectPublish)));
    leader.consume(9);
    assert_eq!(leader.machine.admit(Q, &[1, 1, 1]), [0u32; 0], "its consumer has credit");
    leader.tick_to(1_000 + limits::ADMITTED_MS_MAX);
    leader.pause(true);
    assert_eq!(leader.machine.admit(Q, &[1, 1, 1]), [2]);
}

#[test]
fn the_catalog_says_by_whom_and_since_when_and_tells_the_queues_group() {
    let mut world = world();
    world.effects.clear();
    let at = Applied { index: 77, time_ms: 1_234 };
    let reply = world.catalog.apply(at, pause("jobs", Some("ann")), &mut world.effects);
    assert_eq!(reply, CatalogReply::Done);
    let is_told = |effects: &[CatalogEffect]| match effects {
        [CatalogEffect::QueueChanged { settings, revision, .. }] => {
            Some((settings.is_paused, *revision))
        }
        _ => None,
    };
    let revision = world.catalog.version();
    assert_eq!(is_told(&world.effects), Some((true, revision)));
    let by_ann = QueuePause { by: "ann".to_owned(), since_ms: 1_234 };
    let paused = |catalog: &Catalog| catalog.queue("/", "jobs").unwrap().pause().cloned();
    assert_eq!(paused(&world.catalog), Some(by_ann.clone()));
    let restored = Catalog::restore(&world.catalog.snapshot()).expect("our snapshot");
    assert_eq!(paused(&restored), Some(by_ann.clone()));
    assert!(restored.queue("/", "jobs").unwrap().settings().is_paused);
    assert_eq!(restored.digest(), world.catalog.digest());

    // Who comes second changes nothing.
    world.effects.clear();
    assert_eq!(world.apply(pause("jobs", Some("bob"))), CatalogReply::Done);
    assert_eq!((paused(&world.catalog), world.effects.len()), (Some(by_ann), 0));
    assert_eq!(world.catalog.version(), revision);

    assert_eq!(world.apply(pause("jobs", None)), CatalogReply::Done);
    assert_eq!(is_told(&world.effects), Some((false, revision + 1)));
    assert_eq!(paused(&world.catalog), None);
}

#[test]
fn neither_a_policy_nor_a_change_of_the_declaration_ends_or_begins_a_pause() {
    let mut world = world();
    world.apply(pause("jobs", Some("ann")));
    let queue = world.catalog.queue("/", "jobs").unwrap();
    let spec = Box::new(queue.spec().clone());
    assert!(spec.settings.is_paused, "as it is now");
    let change = |queue, spec| CatalogCommand::ChangeQueue {
        vhost: "/".to_owned(),
        name: "jobs".to_owned(),
        queue,
        spec,
    };
    let id = queue.id;
    world.apply(change(id, spec.clone()));
    assert!(world.catalog.queue("/", "jobs").unwrap().settings().is_paused);
    world.apply(pause("jobs", None));
    assert!(!world.catalog.queue("/", "jobs").unwrap().settings().is_paused);
    world.apply(change(id, spec));
    assert!(!world.catalog.queue("/", "jobs").unwrap().settings().is_paused);
}

#[test]
fn a_pause_is_refused_before_its_version_and_without_a_queue() {
    let mut world = World::new();
    world.apply(CatalogCommand::RaiseVersion { to: Version::CHANGED_SETTINGS });
    world.queue("jobs");
    let refusal = Refusal::NotYet { since: Version::PAUSES, agreed: Version::CHANGED_SETTINGS };
    assert_eq!(world.catalog.check(&pause("jobs", Some("ann"))), Err(refusal));
    world.apply(CatalogCommand::RaiseVersion { to: Version::PAUSES });
    let (kind, name, vhost) = (Kind::Queue, "none".to_owned(), "/".to_owned());
    let refusal = Refusal::NotFound { kind, name, vhost };
    assert_eq!(world.catalog.check(&pause("none", None)), Err(refusal));
    let long = "u".repeat(limits::NAME_BYTES_MAX + 1);
    let refused = world.catalog.check(&pause("jobs", Some(&long)));
    assert!(matches!(refused, Err(Refusal::InvalidName { kind: Kind::User, .. })), "{refused:?}");
}

#[test]
fn a_program_of_before_does_not_read_that_a_queue_is_paused() {
    let mut leader = Leader::new(None);
    leader.machine = QueueMachine::new().reading(Version::CHANGED_SETTINGS);
    let mut batch = Batch::new();
    batch.create_queue(Q, &leader.settings(false));
    batch.set_settings(Q, 1, &leader.settings(true));
    let at = Applied { index: 1, time_ms: 0 };
    let refused = leader.machine.apply(at, &batch.stamp(0), &mut Vec::new());
    assert!(refused.expect_err("it is of a newer version").is_newer);
}
