//! Bytes that outlive a process, of streams with several partitions and of what their subscriptions can be: filters, order
//! by key, assignment, one active consumer, rates that partitions share.

use crate::golden::golden;
use crate::world::World;
use machine::{
    Applied, Arguments, Assignment, Batch, Catalog, CatalogCommand, CatalogReply, Command, Dedup,
    EntryReader, Features, Filter, GroupId, KeySource, Outcome, QueueHome, QueueId, QueueMachine,
    QueueSettings, QueueSpec, QueueType, Ranges, Rate, Rates, Retention, StreamOffset,
    Subscription, TokenHome, Version,
};

fn settings(features: Features) -> QueueSettings {
    QueueSettings { is_durable: true, features: Some(Box::new(features)), ..Default::default() }
}

fn stream_features() -> Features {
    let retention = Retention { max_age_ms: Some(86_400_000), max_bytes: Some(1 << 30) };
    Features { stream: Some(retention), ..Features::default() }
}

fn reads(stream: QueueId, start: StreamOffset) -> Option<Subscription> {
    Some(Subscription { stream, start, skips: true, seeks: 3 })
}

/// Subscriptions as the catalog keeps them: with all that goes together.
fn subscriptions(stream: QueueId) -> [(&'static str, Features); 4] {
    let rates = Rates {
        dequeue: Rate::new(500, 1_000),
        dequeue_burst: Some(9),
        dequeue_bytes: Rate::new(2 << 20, 60_000),
        ..Rates::default()
    };
    let assignment = Some(Assignment { index: 0, count: 1 });
    let keys = Filter::Keys(vec!["order.#".into(), "*.eu".into()]);
    let values = vec!["a".into(), "b".into()];
    let header = Filter::Header { name: "kind".into(), values };
    let of =
        |start, features: Features| Features { subscription: reads(stream, start), ..features };
    let plain = Features::default;
    [
        (
            "filtered",
            of(StreamOffset::First, Features { filter: Some(Box::new(keys)), rates, ..plain() }),
        ),
        (
            "ordered",
            of(
                StreamOffset::Since(1_700_000_000_000),
                Features {
                    filter: Some(Box::new(header)),
                    order: Some(Box::new(KeySource::Header("customer".into()))),
                    rates: Rates { dequeue_per_key: Rate::new(1, 1_000), ..rates },
                    ..plain()
                },
            ),
        ),
        ("assigned", of(StreamOffset::At(7), Features { assignment, ..plain() })),
        (
            "single",
            of(
                StreamOffset::Ago(60_000),
                Features {
                    assignment,
                    single_active: true,
                    delivery_limit: Some(5),
                    counts_returns: true,
                    dead_letters: true,
                    ..plain()
                },
            ),
        ),
    ]
}

fn create(
    name: &str,
    queue_type: QueueType,
    features: Features,
    partitions: u16,
) -> CatalogCommand {
    let spec = QueueSpec {
        queue_type,
        settings: settings(features),
        dead_letter: None,
        consumer_timeout_ms: None,
        members: None,
        partitions,
    };
    CatalogCommand::CreateQueue {
        vhost: "/".into(),
        name: name.into(),
        home: QueueHome::Group,
        spec: Box::new(spec),
        arguments: Arguments::new(),
    }
}

fn commands(stream: QueueId) -> Vec<CatalogCommand> {
    let all = subscriptions(stream);
    let of = |(name, features): &(&str, Features)| {
        create(name, QueueType::Subscription, features.clone(), 1)
    };
    let (vhost, name) = ("/".to_owned(), "filtered".to_owned());
    let seek = CatalogCommand::SeekQueue { vhost, name, to: StreamOffset::Last };
    std::iter::once(create("events", QueueType::Stream, stream_features(), 3))
        .chain(all.iter().map(of))
        .chain([seek])
        .collect()
}

#[test]
fn commands_about_partitions_are_read() {
    let mut batch = Batch::new();
    let all = commands(QueueId(1 << 8));
    all.iter().for_each(|command| batch.catalog(command));
    let entry = golden("partitions-entry-v1.hex", &batch.stamp(0));
    let read = EntryReader::new(&entry).expect("a golden entry").map(|command| match command {
        Ok((_, Command::Catalog(command))) => *command,
        other => panic!("{other:?}"),
    });
    assert_eq!(read.collect::<Vec<_>>(), all);
}

#[test]
fn snapshots_of_the_catalog_with_partitions_are_read() {
    let mut world = World::new();
    world.apply(CatalogCommand::RaiseVersion { to: Version::STREAMS });
    world.apply(create("events", QueueType::Stream, stream_features(), 3));
    let stream = world.catalog.queue("/", "events").expect("the stream").id;
    for command in commands(stream).into_iter().skip(1) {
        let reply = world.apply(command);
        assert!(!matches!(reply, CatalogReply::Refused(_)), "{reply:?}");
    }
    let bytes = golden("catalog-partitions-v6.hex", &world.catalog.snapshot());
    let restored = Catalog::restore(&bytes).expect("a golden snapshot");
    assert_eq!(restored.digest(), world.catalog.digest());
    for (name, features) in subscriptions(stream) {
        let queue = restored.queue("/", name).expect("the subscription");
        assert_eq!(queue.partition_count(), 3);
        let limits_deliveries = features.rates.dequeue.is_some();
        for (partition, index) in queue.partitions().zip(0..) {
            let settings = queue.settings_of(partition);
            let of = settings.features.as_deref().expect("they have features");
            assert_eq!(of.assignment, features.assignment.map(|_| Assignment { index, count: 3 }));
            let home = TokenHome { group: queue.group, queue: queue.id };
            assert_eq!(of.tokens_of, limits_deliveries.then_some(home));
            assert_eq!((&of.filter, &of.order), (&features.filter, &features.order));
        }
    }
}

/// What the groups of partitions are told.
fn batch() -> Batch {
    let (stream, mut batch) = (QueueId(1 << 8), Batch::new());
    batch.create_queue(stream, &settings(stream_features()));
    let tokens_of = Some(TokenHome { group: GroupId(7), queue: QueueId(9 << 8) });
    for ((_, features), id) in subscriptions(stream).into_iter().zip(2_u64..) {
        let assignment = features.assignment.map(|_| Assignment { index: 1, count: 3 });
        let tokens_of = tokens_of.filter(|_| features.rates.dequeue.is_some());
        let features = Features { assignment, tokens_of, ..features };
        batch.create_queue(QueueId(id << 8), &settings(features));
    }
    let dedup = Some(Dedup { window_ms: 8, entries_max: 9 });
    let order = Some(Box::new(KeySource::MessageId));
    let plain = Features { order, dedup, ..Features::default() };
    batch.create_queue(QueueId(8 << 8), &settings(plain));
    (0..5).for_each(|_| batch.enqueue(&[stream], &[b"head"], b"a body"));
    batch.settle(QueueId(4 << 8), Outcome::Done, &Ranges::from(2..4));
    batch
}

#[test]
fn entries_and_snapshots_of_partitions_are_read() {
    let mut machine = QueueMachine::new().reading(Version::STREAMS);
    let at = Applied { index: 1, time_ms: 1_700_000_000_000 };
    let entry = golden("partitions-queues-entry-v1.hex", &batch().stamp(at.time_ms));
    machine.apply(at, &entry, &mut Vec::new()).expect("a golden entry");
    let bytes = golden("queues-partitions-v7.hex", &machine.snapshot());
    let restored = QueueMachine::restore(&bytes).expect("a golden snapshot");
    assert_eq!(restored.digest(), machine.digest());
    for id in [1, 2, 3, 4, 5, 8].map(|id| QueueId(id << 8)) {
        assert!(machine.settings(id).is_some());
        assert_eq!(restored.settings(id), machine.settings(id));
    }
}
