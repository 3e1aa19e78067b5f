//! Streams with several partitions, as the catalog has them: where they are, who reads them, how they grow and go.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::world::World;
use machine::{
    Applied, AppliesTo, Arguments, Assignment, Batch, Bounds, Capacity, Catalog, CatalogCommand,
    CatalogEffect, CatalogReply, ConsumerChange, ConsumerId, ConsumerSpec, Effect, Features,
    GroupId, Outcome, Partition, PolicyKind, PolicyRules, PolicySpec, Queue, QueueHome, QueueId,
    QueueMachine, QueueSettings, QueueSpec, QueueType, Ranges, Rate, Rates, Refusal, Retention,
    SessionId, StreamOffset, Subscription, TokenHome, Value, Version, Weight, limits,
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
fn each_partition_keeps_as_much_as_its_stream_says() {
    let mut world = agreed();
    let kept = Retention { max_bytes: Some(500), ..Retention::default() };
    let features = Features { stream: Some(kept), ..Features::default() };
    create(&mut world, "s", spec(QueueType::Stream, features, 4));
    let found = queue(&world, "s");
    let each = found.partitions().map(|partition| found.settings_of(partition).features);
    let each: Vec<_> = each.map(|features| features.and_then(|features| features.stream)).collect();
    assert_eq!(each, [Some(kept); 4]);
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
    /// Which partition it is.
    partition: u16,
    index: u64,
    effects: Vec<Effect>,
}

const Q: QueueId = QueueId(1);

impl Leader {
    fn new() -> Self {
        Self::of(2)
    }

    fn of(index: u16) -> Self {
        let assignment = Some(Assignment { index, count: 4 });
        let features = Some(Box::new(Features { assignment, ..Features::default() }));
        Self::with(index, &QueueSettings { is_durable: true, features, ..Default::default() })
    }

    fn of_all(index: u16) -> Self {
        Self::with(index, &one_of_all(index, 3))
    }

    fn with(partition: u16, settings: &QueueSettings) -> Self {
        let mut machine = QueueMachine::new();
        machine.set_now(1_000);
        machine.lead();
        let mut effects = Vec::new();
        machine.start_dispatch(&mut effects);
        let mut leader = Self { machine, partition, index: 0, effects };
        let mut batch = Batch::new();
        batch.create_queue(Q, settings);
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
        self.machine
            .attach(Q, of(session, self.partition), spec, &mut self.effects)
            .expect("a queue");
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
        self.machine.settle(Q, of(session, self.partition), &ranges, outcome, &mut self.effects);
        self.machine.check();
    }
}

fn consumer(session: u64) -> ConsumerId {
    of(session, 2)
}

/// The consumer of a partition.
fn of(session: u64, partition: u16) -> ConsumerId {
    ConsumerId { session: SessionId(session), number: 1 + u64::from(partition) }
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

#[test]
fn a_partition_goes_to_who_can_do_more_once_what_is_held_is_settled() {
    // Two of four partitions are each consumer's. One of the two goes, whichever of the consumers is the slow one.
    let capacity = |settled| Capacity::of(settled, Duration::from_secs(1)).expect("something");
    let mut moved = 0;
    for index in 0..4 {
        let mut leader = Leader::of(index);
        for session in [1, 2] {
            leader.attach(session);
        }
        leader.publish(1);
        let [(slow, 1, 1)] = leader.given()[..] else { panic!("it serves one of them") };
        let fast = 3 - slow;
        for (session, can) in [(slow, 10), (fast, 80)] {
            let change = ConsumerChange::Weigh(Weight::Measured(capacity(can)));
            let id = of(session, index);
            leader.machine.change_consumer(Q, id, change, &mut leader.effects);
            leader.machine.check();
        }
        leader.publish(1);
        if leader.given() == [(slow, 2, 1)] {
            continue;
        }
        moved += 1;
        leader.settle(slow, 1..2, Outcome::Done);
        assert_eq!(leader.given(), [(fast, 2, 1)]);
    }
    assert_eq!(moved, 2);
}

/// A leader of one of three partitions that have one active consumer together.
impl Leader {
    fn attach_with(&mut self, session: u64, generation: u64, credit: u32) {
        let spec = ConsumerSpec { credit, generation, ..ConsumerSpec::default() };
        self.attach_as(session, spec);
    }

    fn attach_as(&mut self, session: u64, spec: ConsumerSpec) {
        self.machine
            .attach(Q, of(session, self.partition), spec, &mut self.effects)
            .expect("a queue");
        self.machine.check();
    }

    /// Who was told which generation since this was asked last. What was given out is forgotten.
    fn elected(&mut self) -> Vec<(u64, u64)> {
        let one = |effect: Effect| match effect {
            Effect::Elected { consumer, generation, .. } => Some((consumer.session.0, generation)),
            _ => None,
        };
        std::mem::take(&mut self.effects).into_iter().filter_map(one).collect()
    }

    fn active(&self) -> Vec<u64> {
        let described = self.machine.describe(Q).expect("a queue");
        let active = described.holders.iter().filter(|holder| holder.is_active);
        active.map(|holder| holder.consumer.session.0).collect()
    }
}

fn one_of_all(index: u16, count: u16) -> QueueSettings {
    let assignment = Some(Assignment { index, count });
    let features = Features { assignment, single_active: true, ..Features::default() };
    let features = Some(Box::new(features));
    QueueSettings { is_durable: true, features, ..Default::default() }
}

#[test]
fn the_first_partition_elects_who_came_first_and_serves_it_once_all_others_know() {
    let mut first = Leader::of_all(0);
    first.publish(2);
    first.attach_with(1, 0, 10);
    first.attach_with(2, 0, 10);
    let told = first.elected();
    let [(1, generation)] = told[..] else { panic!("{told:?}") };
    assert!(generation > 1_000, "above the group's time");
    assert_eq!((first.given(), first.active()), (vec![], vec![]));
    // It says so last of all.
    first.attach_with(1, generation, 10);
    assert_eq!((first.given(), first.active()), (vec![(1, 1, 2)], vec![1]));
    // A third one changes nothing, whatever its priority.
    let spec = ConsumerSpec { priority: 5, ..ConsumerSpec::default() };
    first.attach_as(3, spec);
    assert_eq!(first.elected(), []);
    // The next one is who has the highest priority.
    first.machine.end_session(SessionId(1), &mut first.effects);
    let told = first.elected();
    assert!(matches!(told[..], [(3, next)] if next > generation), "{told:?}");
}

#[test]
fn another_partition_serves_whom_it_heard_elected_last() {
    let mut other = Leader::of_all(1);
    other.publish(1);
    other.attach_with(1, 0, 10);
    other.attach_with(2, 0, 10);
    assert_eq!((other.elected(), other.active()), (vec![], vec![]));
    other.attach_with(2, 7, 10);
    assert_eq!((other.given(), other.active()), (vec![(2, 1, 1)], vec![2]));
    // The next one waits for what that holds.
    other.attach_with(1, 8, 10);
    other.publish(1);
    assert_eq!(other.given(), []);
    other.settle(2, 1..2, Outcome::Done);
    assert_eq!((other.given(), other.active()), (vec![(1, 2, 1)], vec![1]));
    // Nobody is active without a generation, however it comes.
    other.attach_with(1, 0, 10);
    other.attach_with(2, 0, 10);
    other.publish(1);
    assert_eq!(other.given(), []);
}

#[test]
fn who_is_cancelled_keeps_what_it_holds_and_the_next_goes_on_behind_it() {
    let mut other = Leader::of_all(2);
    other.publish(1);
    other.attach_with(1, 7, 10);
    other.attach_with(2, 0, 10);
    assert_eq!(other.given(), [(1, 1, 1)]);
    other.machine.detach(Q, consumer(1), &mut other.effects);
    other.attach_with(2, 8, 10);
    other.publish(1);
    assert_eq!(other.given(), [(2, 2, 1)]);
    other.settle(1, 1..2, Outcome::Requeue);
    assert_eq!(other.given(), [(2, 1, 1)]);
}

#[test]
fn what_a_cut_off_consumer_held_comes_first_to_the_elected_one() {
    let mut other = Leader::of_all(1);
    other.publish(2);
    other.attach_with(1, 7, 10);
    assert_eq!(other.given(), [(1, 1, 2)]);
    other.attach_with(2, 8, 10);
    other.publish(1);
    assert_eq!(other.given(), []);
    let due = other.machine.deadline().expect("it waits for the first consumer");
    assert_eq!(due, 1_000 + limits::DRAIN_MS_MAX);
    other.machine.tick(due, &mut other.effects);
    let given: Vec<_> = other.given();
    assert_eq!(given, [(2, 1, 2), (2, 3, 1)]);
}

#[test]
fn a_new_leader_elects_who_was_and_with_a_greater_generation() {
    let mut first = Leader::of_all(0);
    first.attach_with(1, 0, 10);
    let told = first.elected();
    let [(1, before)] = told[..] else { panic!("{told:?}") };
    first.machine.follow();
    first.machine.lead();
    first.machine.set_now(1_000);
    // Another one comes first, and a third says an older generation.
    first.attach_with(2, 0, 10);
    first.attach_with(1, before, 10);
    first.attach_with(3, before - 500, 10);
    first.effects.clear();
    first.machine.start_dispatch(&mut first.effects);
    let told: Vec<_> = first.elected();
    let of = |session| told.iter().find(|(it, _)| *it == session).map(|(_, it)| *it);
    assert!(of(1).is_some_and(|it| it > before), "{told:?}");
    assert_eq!((of(2), of(3)), (None, Some(0)), "who believes to be it hears that it is not");
}

#[test]
fn the_active_consumer_of_one_partition_stays_it_when_there_are_several() {
    let mut leader = Leader::new();
    let mut batch = Batch::new();
    const SINGLE: QueueId = QueueId(5);
    batch.create_queue(SINGLE, &one_of_all(0, 1));
    leader.apply(batch);
    let attach = |leader: &mut Leader, session, generation| {
        let spec = ConsumerSpec { credit: 10, generation, ..ConsumerSpec::default() };
        let attached = leader.machine.attach(SINGLE, consumer(session), spec, &mut leader.effects);
        attached.expect("a queue");
    };
    let publish = |leader: &mut Leader| {
        let mut batch = Batch::new();
        batch.enqueue(&[SINGLE], &[], b"body");
        leader.apply(batch);
    };
    attach(&mut leader, 2, 0);
    attach(&mut leader, 1, 0);
    publish(&mut leader);
    assert_eq!(leader.given(), [(2, 1, 1)]);
    let mut batch = Batch::new();
    batch.set_settings(SINGLE, 1, &one_of_all(0, 2));
    leader.apply(batch);
    publish(&mut leader);
    let told = leader.elected();
    let [(2, generation)] = told[..] else { panic!("{told:?}") };
    attach(&mut leader, 2, generation);
    assert_eq!(leader.given(), [(2, 2, 1)]);
}

#[test]
fn a_subscription_that_is_to_begin_beyond_its_stream_begins_at_its_end() {
    let mut leader = Leader::new();
    let (stream, subscription) = (QueueId(5), QueueId(6));
    let features = Features { stream: Some(Retention::default()), ..Features::default() };
    let reads = Subscription { stream, start: StreamOffset::At(9), skips: false, seeks: 0 };
    let reading = Features { subscription: Some(reads), ..Features::default() };
    let of = |features| QueueSettings {
        is_durable: true,
        features: Some(Box::new(features)),
        ..Default::default()
    };
    let mut batch = Batch::new();
    batch.create_queue(stream, &of(features));
    batch.enqueue(&[stream], &[], b"before");
    leader.apply(batch);
    let mut batch = Batch::new();
    batch.create_queue(subscription, &of(reading));
    batch.enqueue(&[stream], &[], b"behind");
    leader.apply(batch);
    let spec = ConsumerSpec { credit: 10, ..ConsumerSpec::default() };
    let attached = leader.machine.attach(subscription, consumer(1), spec, &mut leader.effects);
    attached.expect("a queue");
    assert_eq!(leader.given(), [(1, 2, 1)]);
}
