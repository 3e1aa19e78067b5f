//! Streams with several partitions, as the catalog has them: where they are, who reads them, how they grow and go.

use std::collections::BTreeSet;

use crate::world::World;
use machine::{
    Arguments, Catalog, CatalogCommand, CatalogEffect, CatalogReply, Features, GroupId, Partition,
    Queue, QueueHome, QueueId, QueueSettings, QueueSpec, QueueType, Retention, StreamOffset,
    Subscription, Version,
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
