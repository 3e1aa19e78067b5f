//! Streams with several partitions, as the catalog has them: where they are, who reads them, how they grow and go.

use std::collections::BTreeSet;

use crate::world::World;
use machine::{
    Applied, AppliesTo, Arguments, Assignment, Batch, Bounds, Catalog, CatalogCommand,
    CatalogEffect, CatalogReply, ConsumerId, ConsumerSpec, Effect, Features, GroupId, Outcome,
    Partition, PolicyKind, PolicyRules, PolicySpec, Queue, QueueHome, QueueId, QueueMachine,
    QueueSettings, QueueSpec, QueueType, Ranges, Rate, Rates, Refusal, Retention, SessionId,
    StreamOffset, Subscription, TokenHome, Value, Version, limits,
};

fn spec(queue_type: QueueType, features: Features, partitions: u16) -> QueueSpec {
    QueueSpec {
        queue_type,
        settings: QueueSettings {
            is_durable: true,
            is_auto_delete: false,
            features: Some(Box::new(features)),
            is_paused: false,
        },
        dead_letter: None,
        consumer_timeout_ms: None,
        members: None,
        partitions,
    }
}

fn agreed() -> World {
    let mut world = World::new();
    world.apply(CatalogCommand::RaiseVersion { to: Version::STREAMS });
    world
}

/// Seven queues at most, for the next change: a catalog that is restored has the usual bounds.
fn bound(world: &mut World) {
    let catalog = std::mem::replace(&mut world.catalog, Catalog::new(1));
    world.catalog = catalog.with_bounds(Bounds { queues: 7, ..Bounds::default() });
}

fn create(world: &mut World, name: &str, spec: QueueSpec) -> CatalogReply {
    world.apply(CatalogCommand::CreateQueue {
        vhost: "/".to_owned(),
        name: name.to_owned(),
        home: QueueHome::Group,
        spec: Box::new(spec),
        arguments: Arguments::new(),
    })
}

fn stream(world: &mut World, name: &str, partitions: u16) -> QueueId {
    let features = Features { stream: Some(Retention::default()), ..Features::default() };
    let reply = create(world, name, spec(QueueType::Stream, features, partitions));
    assert!(matches!(reply, CatalogReply::QueueDeclared { .. }), "{reply:?}");
    world.catalog.queue("/", name).expect("the stream").id
}

fn subscription(world: &mut World, name: &str, stream: QueueId) {
    let start = StreamOffset::First;
    let subscription = Some(Subscription { stream, start, skips: false, seeks: 0 });
    let features = Features { subscription, ..Features::default() };
    create(world, name, spec(QueueType::Subscription, features, 1));
}

fn queue<'w>(world: &'w World, name: &str) -> &'w Queue {
    world.catalog.queue("/", name).expect("the queue")
}

fn places(queue: &Queue) -> Vec<(QueueId, GroupId)> {
    queue.partitions().map(|partition| (partition.queue, partition.group)).collect()
}

/// Which stream each of the queues reads that were made just now.
fn created(world: &mut World) -> Vec<(QueueId, GroupId, Option<QueueId>)> {
    let one = |effect: &CatalogEffect| match effect {
        CatalogEffect::QueueCreated { queue, group, settings, .. } => {
            Some((*queue, *group, settings.subscription().map(|it| it.stream)))
        }
        CatalogEffect::QueueDeleted { .. } | CatalogEffect::QueueChanged { .. } => None,
    };
    let created = world.effects.iter().filter_map(one).collect();
    world.effects.clear();
    created
}

fn is_restored(world: &World) {
    let bytes = world.catalog.snapshot();
    let restored = Catalog::restore(&bytes).expect("a snapshot");
    assert_eq!(restored.snapshot(), bytes);
    for queue in world.catalog.queues() {
        let again = restored.queue("/", &queue.name).expect("the queue");
        assert_eq!(places(again), places(queue));
        assert_eq!(again.target(), queue.target());
        let settings = |of: &Queue| -> Vec<QueueSettings> {
            of.partitions().map(|partition| of.settings_of(partition)).collect()
        };
        assert_eq!(settings(again), settings(queue));
    }
    assert_eq!(restored.partitions(), world.catalog.partitions());
}

#[test]
fn partitions_are_in_as_many_groups_as_there_are() {
    let mut world = agreed();
    stream(&mut world, "s", 4);
    let told = created(&mut world).len();
    let found = queue(&world, "s");
    let groups: BTreeSet<GroupId> = found.partitions().map(|partition| partition.group).collect();
    assert_eq!((found.partition_count(), groups.len()), (4, 4));
    assert_eq!(told, 4, "each group is told of its own");
    assert!(found.target().has_partitions);
    for (index, Partition { queue: id, .. }) in found.partitions().enumerate() {
        assert_eq!(world.catalog.queue_by_id(id).map(|it| &*it.name), Some("s"));
        assert_eq!(found.partition_index(id), Some(index));
    }
    assert_eq!(world.catalog.queues().count(), 1, "to who lists queues it is one");
    stream(&mut world, "many", 9);
    let groups: Vec<GroupId> = queue(&world, "many").partitions().map(|it| it.group).collect();
    for group in (1..=4).map(GroupId) {
        let here = groups.iter().filter(|it| **it == group).count();
        assert!((2..=3).contains(&here), "{groups:?}");
    }
    is_restored(&world);
}

#[test]
fn a_subscription_has_the_partitions_of_its_stream_where_they_are() {
    let mut world = agreed();
    let id = stream(&mut world, "s", 3);
    world.effects.clear();
    subscription(&mut world, "s.a", id);
    let of_stream = places(queue(&world, "s"));
    let told = created(&mut world);
    assert_eq!(told.len(), 3);
    for ((reads, group), (_, told_group, told_reads)) in of_stream.iter().zip(&told) {
        assert_eq!((told_group, told_reads), (group, &Some(*reads)));
    }
    is_restored(&world);
}

#[test]
fn partitions_count_against_the_limit_of_queues() {
    let mut world = agreed();
    bound(&mut world);
    let id = stream(&mut world, "s", 3);
    bound(&mut world);
    let features = Features { stream: Some(Retention::default()), ..Features::default() };
    let refused = create(&mut world, "five", spec(QueueType::Stream, features, 5));
    assert!(matches!(refused, CatalogReply::Refused(Refusal::LimitReached { .. })), "{refused:?}");
    bound(&mut world);
    subscription(&mut world, "s.a", id);
    assert_eq!(queue(&world, "s.a").partition_count(), 3);
    bound(&mut world);
    subscription(&mut world, "s.b", id);
    assert!(world.catalog.queue("/", "s.b").is_none(), "it would bring three");
    bound(&mut world);
    let more = QueueSpec { partitions: 4, ..queue(&world, "s").declared().clone() };
    let refused = world.apply(CatalogCommand::ChangeQueue {
        vhost: "/".to_owned(),
        name: "s".to_owned(),
        queue: id,
        spec: Box::new(more),
    });
    assert!(matches!(refused, CatalogReply::Refused(Refusal::LimitReached { .. })), "{refused:?}");
}

#[test]
fn a_stream_grows_with_its_subscriptions_and_never_shrinks() {
    let mut world = agreed();
    let id = stream(&mut world, "s", 1);
    subscription(&mut world, "s.a", id);
    assert!(!queue(&world, "s").target().has_partitions);
    let before = places(queue(&world, "s.a"));
    world.effects.clear();
    let grow = |world: &mut World, partitions| {
        let spec = QueueSpec { partitions, ..queue(world, "s").declared().clone() };
        world.apply(CatalogCommand::ChangeQueue {
            vhost: "/".to_owned(),
            name: "s".to_owned(),
            queue: id,
            spec: Box::new(spec),
        });
        created(world)
    };
    let told = grow(&mut world, 4);
    let (of_stream, of_reader) = (places(queue(&world, "s")), places(queue(&world, "s.a")));
    assert_eq!((of_stream.len(), of_reader.len()), (4, 4));
    assert_eq!((of_stream[0].0, of_reader[0]), (id, before[0]), "what was there stays there");
    let reads: Vec<_> = told.iter().filter_map(|(_, _, reads)| *reads).collect();
    let streams: Vec<_> = of_stream.iter().skip(1).map(|(queue, _)| *queue).collect();
    assert_eq!((told.len(), reads), (6, streams));
    assert!(queue(&world, "s").target().has_partitions);
    is_restored(&world);
    assert_eq!(grow(&mut world, 2), [], "it keeps what is in them");
    assert_eq!(queue(&world, "s").partition_count(), 4);
}

/// Whose tokens each partition gives out, as the groups were told last.
fn tokens_of(world: &mut World, name: &str) -> Vec<Option<TokenHome>> {
    let effects = std::mem::take(&mut world.effects);
    let found = queue(world, name);
    let told = |id: QueueId| {
        let of = effects.iter().rev().find_map(|effect| match effect {
            CatalogEffect::QueueCreated { queue, settings, .. }
            | CatalogEffect::QueueChanged { queue, settings, .. } => {
                (*queue == id).then_some(settings)
            }
            CatalogEffect::QueueDeleted { .. } => None,
        });
        of.expect("it was told").features.as_ref().and_then(|features| features.tokens_of)
    };
    found.partitions().map(|partition| told(partition.queue)).collect()
}

#[test]
fn partitions_are_told_whose_tokens_they_share_as_soon_as_they_are_several() {
    let mut world = agreed();
    let id = stream(&mut world, "s", 1);
    let subscription =
        Some(Subscription { stream: id, start: StreamOffset::First, skips: false, seeks: 0 });
    let rates = Rates { dequeue: Rate::new(5, 1_000), ..Rates::default() };
    let features = Features { subscription, rates, ..Features::default() };
    create(&mut world, "s.a", spec(QueueType::Subscription, features, 1));
    assert_eq!(tokens_of(&mut world, "s.a"), [None], "it has a bucket of its own");
    let more = QueueSpec { partitions: 3, ..queue(&world, "s").declared().clone() };
    world.apply(CatalogCommand::ChangeQueue {
        vhost: "/".to_owned(),
        name: "s".to_owned(),
        queue: id,
        spec: Box::new(more),
    });
    let (first, group) = places(queue(&world, "s.a"))[0];
    let home = Some(TokenHome { group, queue: first });
    assert_eq!(tokens_of(&mut world, "s.a"), [home, home, home]);
    is_restored(&world);
    // A policy may bring the rate.
    create(
        &mut world,
        "s.b",
        spec(QueueType::Subscription, Features { subscription, ..Features::default() }, 1),
    );
    assert_eq!(tokens_of(&mut world, "s.b"), [None, None, None]);
    let spec = PolicySpec {
        pattern: "b$".to_owned(),
        applies_to: AppliesTo::All,
        priority: 0,
        rules: PolicyRules { rates, ..PolicyRules::default() },
        definition: Arguments::new().with("dequeue-rate", Value::LongStr(b"5/s".to_vec())),
    };
    world.apply(CatalogCommand::PutPolicy {
        vhost: "/".to_owned(),
        name: "slow".to_owned(),
        kind: PolicyKind::User,
        spec: Box::new(spec),
    });
    let (first, group) = places(queue(&world, "s.b"))[0];
    let home = Some(TokenHome { group, queue: first });
    assert_eq!(tokens_of(&mut world, "s.b"), [home, home, home]);
}

#[test]
fn all_partitions_go_with_their_queue() {
    let mut world = agreed();
    let id = stream(&mut world, "s", 4);
    world.apply(CatalogCommand::ChangeQueue {
        vhost: "/".to_owned(),
        name: "s".to_owned(),
        queue: id,
        spec: Box::new(QueueSpec { partitions: 6, ..queue(&world, "s").declared().clone() }),
    });
    let there: BTreeSet<QueueId> = queue(&world, "s").partitions().map(|it| it.queue).collect();
    world.apply(world.delete("s"));
    let gone: BTreeSet<QueueId> = world
        .effects
        .iter()
        .filter_map(|effect| match effect {
            CatalogEffect::QueueDeleted { queue, .. } => Some(*queue),
            CatalogEffect::QueueCreated { .. } | CatalogEffect::QueueChanged { .. } => None,
        })
        .collect();
    assert_eq!((gone.len(), &gone), (6, &there));
    assert!(there.iter().all(|id| world.catalog.queue_by_id(*id).is_none()));
    assert!(world.catalog.partitions().is_empty());
    stream(&mut world, "again", 4);
    let groups: BTreeSet<GroupId> =
        queue(&world, "again").partitions().map(|it| it.group).collect();
    assert_eq!(groups.len(), 4, "the groups count what is in them");
}

/// A leader of one of four partitions, each of which serves the consumer that it is assigned to.
struct Leader {
    machine: QueueMachine,
    index: u64,
    effects: Vec<Effect>,
}

const Q: QueueId = QueueId(1);

impl Leader {
    fn new() -> Self {
        let mut machine = QueueMachine::new();
        machine.set_now(1_000);
        machine.lead();
        let mut effects = Vec::new();
        machine.start_dispatch(&mut effects);
        let mut leader = Self { machine, index: 0, effects };
        let assignment = Some(Assignment { index: 2, count: 4 });
        let features = Some(Box::new(Features { assignment, ..Features::default() }));
        let mut batch = Batch::new();
        batch.create_queue(Q, &QueueSettings { is_durable: true, features, ..Default::default() });
        leader.apply(batch);
        leader
    }

    fn apply(&mut self, batch: Batch) {
        self.index += 1;
        let at = Applied { index: self.index, time_ms: 1_000 };
        self.machine.apply(at, &batch.stamp(at.time_ms), &mut self.effects).expect("our entry");
        self.machine.check();
    }

    fn publish(&mut self, count: usize) {
        let mut batch = Batch::new();
        (0..count).for_each(|_| batch.enqueue(&[Q], &[], b"body"));
        self.apply(batch);
    }

    fn attach(&mut self, session: u64) {
        let spec = ConsumerSpec { credit: 1_000, ..ConsumerSpec::default() };
        self.machine.attach(Q, consumer(session), spec, &mut self.effects).expect("a queue");
    }

    /// Whom messages were given to since this was asked last, and how many.
    fn given(&mut self) -> Vec<(u64, u64, u32)> {
        let one = |effect: Effect| match effect {
            Effect::Deliver { consumer, first_seq, count, .. } => {
                Some((consumer.session.0, first_seq, count))
            }
            _ => None,
        };
        std::mem::take(&mut self.effects).into_iter().filter_map(one).collect()
    }

    fn settle(&mut self, session: u64, seqs: std::ops::Range<u64>, outcome: Outcome) {
        let ranges = Ranges::from(seqs);
        self.machine.settle(Q, consumer(session), &ranges, outcome, &mut self.effects);
        self.machine.check();
    }
}

fn consumer(session: u64) -> ConsumerId {
    ConsumerId { session: SessionId(session), number: 3 }
}

#[test]
fn a_partition_is_handed_over_once_what_its_consumer_holds_is_settled() {
    let mut leader = Leader::new();
    leader.attach(1);
    leader.publish(4);
    assert_eq!(leader.given(), [(1, 1, 4)]);
    // Others come until it is one of theirs.
    let (mut last, mut session) = (4, 1);
    loop {
        session += 1;
        leader.attach(session);
        leader.publish(1);
        last += 1;
        if leader.given().is_empty() {
            break;
        }
        assert!(session < 100, "it is never another's");
    }
    leader.settle(1, 1..last - 1, Outcome::Done);
    assert_eq!(leader.given(), [], "the first consumer holds a message still");
    leader.settle(1, last - 1..last, Outcome::Done);
    let given = leader.given();
    assert!(matches!(given[..], [(to, seq, 1)] if to != 1 && seq == last), "{given:?}");
}

#[test]
fn what_a_dead_consumer_held_comes_first_to_the_next() {
    let mut leader = Leader::new();
    leader.attach(1);
    leader.publish(3);
    leader.attach(2);
    assert_eq!(leader.given(), [(1, 1, 3)]);
    leader.publish(2);
    leader.given();
    leader.machine.end_session(SessionId(1), &mut leader.effects);
    leader.machine.check();
    let mut next: Vec<u64> = Vec::new();
    for (to, first_seq, count) in leader.given() {
        assert_eq!(to, 2);
        next.extend(first_seq..first_seq + u64::from(count));
    }
    assert_eq!(next, [1, 2, 3, 4, 5]);
}

#[test]
fn what_is_never_settled_holds_a_partition_up_for_ten_seconds() {
    let mut leader = Leader::new();
    leader.attach(1);
    leader.publish(2);
    assert_eq!(leader.given(), [(1, 1, 2)]);
    for session in 2.. {
        leader.attach(session);
        leader.publish(1);
        if leader.given().is_empty() {
            break;
        }
        leader.settle(1, session + 1..session + 2, Outcome::Done);
    }
    let due = leader.machine.deadline().expect("it waits for the first consumer");
    assert_eq!(due, 1_000 + limits::DRAIN_MS_MAX);
    leader.machine.tick(due - 1, &mut leader.effects);
    assert_eq!(leader.given(), []);
    leader.machine.tick(due, &mut leader.effects);
    leader.machine.check();
    let given = leader.given();
    assert!(matches!(given[0], (to, 1, 2) if to != 1), "{given:?}");
    // Late, and nobody's business any more.
    leader.settle(1, 1..3, Outcome::Done);
    assert_eq!((leader.given(), leader.machine.deadline()), (Vec::new(), None));
}
