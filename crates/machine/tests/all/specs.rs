//! Declarations of version 8 and later hold specs: the catalog stores them, and judges no argument.

use crate::world::World;
use machine::{
    Arguments, BindingChange, Catalog, CatalogCommand, CatalogEffect, CatalogReply, DeadLetter,
    Destination, ExchangeKind, ExchangeSpec, Features, HashBy, HashProperty, NoHeaders, NodeId,
    Overflow, PublishedBy, QueueHome, QueueSettings, QueueSpec, QueueType, Refusal, Value, Version,
};

/// A catalog of a cluster that has agreed on specs.
fn world() -> World {
    let mut world = World::new();
    raise(&mut world);
    world
}

fn raise(world: &mut World) {
    world.apply(CatalogCommand::RaiseVersion { to: Version::SPECS });
}

fn text(text: &str) -> Value {
    Value::LongStr(text.into())
}

/// A spec in which nothing is as in a plain queue.
fn spec(home: QueueHome) -> QueueSpec {
    let features = Features { max_length: Some(7), dead_letters: true, ..Features::default() };
    QueueSpec {
        queue_type: QueueType::Quorum,
        settings: QueueSettings {
            is_durable: home.is_durable(),
            is_auto_delete: true,
            features: Some(Box::new(features)),
            is_paused: false,
        },
        dead_letter: Some(DeadLetter { exchange: "x".into(), key: Some("k".into()) }),
        consumer_timeout_ms: Some(5_000),
        members: Some(5),
        partitions: 1,
    }
}

fn queue(name: &str, home: QueueHome, spec: QueueSpec) -> CatalogCommand {
    // Arguments that mean something else, or nothing: the catalog must not look.
    let arguments =
        Arguments::new().with("x-max-length", text("seven")).with("x-expires", text(""));
    let (vhost, name) = ("/".to_owned(), name.to_owned());
    CatalogCommand::CreateQueue { vhost, name, home, spec: Box::new(spec), arguments }
}

fn exchange(name: &str, node: Option<NodeId>, spec: ExchangeSpec) -> CatalogCommand {
    CatalogCommand::CreateExchange {
        vhost: "/".to_owned(),
        name: name.to_owned(),
        auto_delete: false,
        internal: true,
        node,
        spec: Box::new(spec),
        arguments: Arguments::new().with("hash-property", Value::Void),
    }
}

fn binding(source: &str, queue: &str, key: &str) -> CatalogCommand {
    CatalogCommand::CreateBinding(BindingChange {
        vhost: "/".to_owned(),
        source: source.to_owned(),
        destination: Destination::Queue(queue.to_owned()),
        key: key.to_owned(),
        arguments: Arguments::new().with("x-match", Value::Void),
        by: None,
    })
}

#[test]
fn specs_are_refused_until_the_cluster_has_agreed_on_them() {
    let world = World::new();
    let refusal = Refusal::NotYet { since: Version::SPECS, agreed: Version::FIRST };
    for command in [
        queue("q", QueueHome::Group, spec(QueueHome::Group)),
        exchange("x", None, ExchangeSpec::plain(ExchangeKind::Fanout)),
        binding("amq.direct", "q", "k"),
    ] {
        assert_eq!(world.catalog.check(&command), Err(refusal.clone()), "{command:?}");
    }
}

#[test]
fn a_queue_is_what_its_spec_says_whatever_its_arguments() {
    let mut world = world();
    let homes = [QueueHome::Group, QueueHome::Node(NodeId(1)), QueueHome::Session(World::owner(4))];
    for (number, home) in homes.into_iter().enumerate() {
        let name = format!("q{number}");
        let reply = world.apply(queue(&name, home, spec(home)));
        assert!(matches!(reply, CatalogReply::QueueDeclared { created: true, .. }), "{reply:?}");
        let found = world.catalog.queue("/", &name).expect("the queue");
        assert_eq!((found.home(), found.spec()), (home, &spec(home)));
        assert_eq!((found.durable, found.node), (home.is_durable(), home.node()));
        assert_eq!(found.exclusive, home.exclusive());
        assert_eq!((found.dead_letter_exchange(), found.dead_letter_key()), (Some("x"), Some("k")));
        assert_eq!(found.arguments.find("x-max-length"), Some(&text("seven")));
    }
    assert!(world.catalog.has_exclusive(World::owner(4)));
}

#[test]
fn an_exchange_is_what_its_spec_says_whatever_its_arguments() {
    let mut world = world();
    let hash = ExchangeSpec {
        kind: ExchangeKind::DelayedMessage,
        routing: ExchangeKind::ConsistentHash,
        alternate: Some("amq.fanout".into()),
        hash_by: HashBy::Property(HashProperty::CorrelationId),
        history_length: None,
    };
    let history = ExchangeSpec {
        history_length: Some(3),
        ..ExchangeSpec::plain(ExchangeKind::RecentHistory)
    };
    let header = ExchangeSpec { hash_by: HashBy::Header("tenant".into()), ..hash.clone() };
    for (name, node, spec) in
        [("h", None, &hash), ("r", Some(NodeId(1)), &history), ("t", None, &header)]
    {
        let reply = world.apply(exchange(name, node, spec.clone()));
        assert_eq!(reply, CatalogReply::ExchangeDeclared { created: true });
        let found = world.catalog.exchange("/", name).expect("the exchange");
        assert_eq!((found.spec(), found.durable, found.node), (spec, node.is_none(), node));
    }
    let kept = world.catalog.queue("/", "amq.recent-history.r").expect("its history");
    assert_eq!(kept.features().and_then(|features| features.max_length), Some(3));
    assert_eq!(kept.home(), QueueHome::Node(NodeId(1)));
}

#[test]
fn a_name_that_is_taken_keeps_what_it_has() {
    let mut world = world();
    world.apply(world.declare("q"));
    let version = world.catalog.version();
    let reply = world.apply(queue("q", QueueHome::Group, spec(QueueHome::Group)));
    assert!(matches!(reply, CatalogReply::QueueDeclared { created: false, .. }), "{reply:?}");
    let reply = world.apply(exchange("amq.direct", None, ExchangeSpec::plain(ExchangeKind::Topic)));
    assert_eq!(reply, CatalogReply::ExchangeDeclared { created: false });
    assert_eq!(world.catalog.version(), version);
    assert_eq!(world.catalog.queue("/", "q").expect("the queue").features(), None);
}

#[test]
fn a_binding_that_its_exchange_cannot_route_by_is_kept_and_takes_no_message() {
    let mut world = world();
    world.apply(exchange("x", None, ExchangeSpec::plain(ExchangeKind::ConsistentHash)));
    world.queue("q");
    assert_eq!(world.apply(binding("x", "q", "no weight")), CatalogReply::Done);
    let mut targets = Vec::new();
    world
        .catalog
        .route_keys(PublishedBy::Broker, "/", "x", &["k"], &NoHeaders, &mut targets)
        .expect("an exchange");
    assert!(targets.is_empty());
    world.apply(binding("x", "q", "1"));
    world
        .catalog
        .route_keys(PublishedBy::Broker, "/", "x", &["k"], &NoHeaders, &mut targets)
        .expect("an exchange");
    assert_eq!(targets.len(), 1);
    let missing = world.catalog.check(&binding("x", "none", "1"));
    assert!(matches!(missing, Err(Refusal::NotFound { .. })), "{missing:?}");
}

#[test]
fn what_was_declared_before_keeps_its_meaning_when_the_version_is_raised() {
    let mut world = World::new();
    let arguments = [
        ("x-queue-type", text("quorum")),
        ("x-dead-letter-exchange", text("amq.fanout")),
        ("x-consumer-timeout", Value::I32(7_000)),
        ("x-max-length", Value::U8(9)),
    ];
    let with = |command, (name, value): (&str, Value)| world.with_argument(command, name, value);
    let command = arguments.into_iter().fold(world.declare("q"), with);
    world.apply(command);
    let delayed = world.exchange("d", ExchangeKind::DelayedMessage, false);
    let delayed = world.with_argument(delayed, "x-delayed-type", text("x-recent-history"));
    world.apply(delayed);
    let of = |catalog: &Catalog| {
        let queues = catalog.queues().map(|queue| (queue.home(), queue.spec().clone()));
        let exchange = catalog.exchange("/", "d").expect("the exchange");
        (queues.collect::<Vec<_>>(), exchange.spec().clone())
    };
    let before = of(&world.catalog);
    assert_eq!(world.catalog.snapshot()[0], 2);
    raise(&mut world);
    let snapshot = world.catalog.snapshot();
    assert_eq!(snapshot[0], 5);
    assert_eq!(of(&Catalog::restore(&snapshot).expect("our own snapshot")), before);
}

#[test]
fn a_spec_whose_parts_do_not_fit_together_is_not_read() {
    let plain = ExchangeSpec::plain;
    for spec in [
        ExchangeSpec { routing: ExchangeKind::Topic, ..plain(ExchangeKind::Direct) },
        plain(ExchangeKind::DelayedMessage),
        plain(ExchangeKind::RecentHistory),
        ExchangeSpec { history_length: Some(3), ..plain(ExchangeKind::Direct) },
    ] {
        let mut bytes = Vec::new();
        exchange("x", None, spec.clone()).encode(&mut bytes);
        assert!(CatalogCommand::decode(&bytes).is_err(), "{spec:?}");
    }
    let mut bytes = Vec::new();
    queue("q", QueueHome::Node(NodeId(1)), spec(QueueHome::Group)).encode(&mut bytes);
    assert!(CatalogCommand::decode(&bytes).is_err(), "a durable queue in a node's memory");
}

/// A change of queue `q`.
fn change(world: &World, spec: QueueSpec) -> CatalogCommand {
    CatalogCommand::ChangeQueue {
        vhost: "/".to_owned(),
        name: "q".to_owned(),
        queue: world.catalog.queue("/", "q").expect("the queue").id,
        spec: Box::new(spec),
    }
}

#[test]
fn a_changed_queue_keeps_what_it_is_made_of_and_what_its_client_asked_for() {
    let mut world = world();
    let made = Features { max_priority: 3, single_active: true, ..Features::default() };
    let mut declared = spec(QueueHome::Group);
    declared.settings.features = Some(Box::new(made.clone()));
    world.apply(queue("q", QueueHome::Group, declared.clone()));
    let arguments = world.catalog.queue("/", "q").expect("the queue").arguments.clone();
    world.effects.clear();
    let asked = Features { max_length: Some(5), max_priority: 9, ..Features::default() };
    let new = QueueSpec {
        queue_type: QueueType::Classic,
        settings: QueueSettings { features: Some(Box::new(asked)), ..Default::default() },
        dead_letter: None,
        consumer_timeout_ms: None,
        members: None,
        partitions: 1,
    };
    let version = world.catalog.version();
    assert_eq!(world.apply(change(&world, new.clone())), CatalogReply::Done);
    let found = world.catalog.queue("/", "q").expect("the queue");
    let wanted = Features { max_length: Some(5), ..made };
    let settings = QueueSettings { features: Some(Box::new(wanted)), ..declared.settings.clone() };
    let expected = QueueSpec { settings, dead_letter: None, consumer_timeout_ms: None, ..declared };
    assert_eq!((found.spec(), &found.arguments), (&expected, &arguments));
    assert_eq!(found.revision, version + 1);
    let [CatalogEffect::QueueChanged { queue, settings, revision, .. }] = &world.effects[..] else {
        panic!("{:?}", world.effects);
    };
    assert_eq!((*queue, settings, *revision), (found.id, found.settings(), version + 1));
    // The same again is no change.
    world.effects.clear();
    world.apply(change(&world, new));
    assert_eq!((world.catalog.version(), world.effects.len()), (version + 1, 0));
}

#[test]
fn who_publishes_by_any_exchange_is_told_of_a_change() {
    let mut world = world();
    world.queue("q");
    for (source, key) in [("amq.direct", "k"), ("amq.fanout", ""), ("amq.topic", "#")] {
        world.apply(binding(source, "q", key));
    }
    let hash = exchange("hash", None, ExchangeSpec::plain(ExchangeKind::ConsistentHash));
    world.apply(hash);
    world.apply(binding("hash", "q", "1"));
    let mut new = world.catalog.queue("/", "q").expect("the queue").spec().clone();
    let overflow = Overflow::RejectPublish;
    let features = Features { max_length: Some(1), overflow, ..Features::default() };
    new.settings.features = Some(Box::new(features));
    world.apply_unchecked(change(&world, new));
    let target = world.catalog.queue("/", "q").expect("the queue").target();
    assert!(target.is_guarded);
    for (exchange, key) in
        [("", "q"), ("amq.direct", "k"), ("amq.fanout", "k"), ("amq.topic", "k"), ("hash", "k")]
    {
        let mut targets = Vec::new();
        let routed = world.catalog.route_keys(
            PublishedBy::Broker,
            "/",
            exchange,
            &[key],
            &NoHeaders,
            &mut targets,
        );
        assert_eq!((routed, &targets[..]), (Ok(()), &[target][..]), "{exchange}");
    }
    // The routes know it by what it is now: it can be taken out of them.
    world.apply_unchecked(world.delete("q"));
    let mut targets = Vec::new();
    world
        .catalog
        .route_keys(PublishedBy::Broker, "/", "hash", &["k"], &NoHeaders, &mut targets)
        .expect("an exchange");
    assert!(targets.is_empty());
}

#[test]
fn a_queue_that_is_another_now_is_not_changed() {
    let mut world = world();
    world.queue("q");
    let late = change(&world, spec(QueueHome::Group));
    world.apply(world.delete("q"));
    assert!(matches!(world.catalog.check(&late), Err(Refusal::NotFound { .. })));
    world.queue("q");
    world.effects.clear();
    assert_eq!(world.apply(late), CatalogReply::Done);
    assert_eq!(world.catalog.queue("/", "q").expect("the queue").features(), None);
    assert!(world.effects.is_empty());
}

#[test]
fn a_changed_queue_that_is_deleted_is_known_for_a_while_for_its_dead_letters() {
    let mut world = world();
    world.queue("q");
    let plain = world.catalog.queue("/", "q").expect("the queue").spec().clone();
    let id = world.catalog.queue("/", "q").expect("the queue").id;
    // It had a dead-letter exchange for a while, and messages died then.
    world.apply_unchecked(change(&world, spec(QueueHome::Group)));
    world.apply_unchecked(change(&world, plain));
    world.apply_unchecked(world.delete("q"));
    assert!(world.catalog.departed(id).is_some());
}
