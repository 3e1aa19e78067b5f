//! The kinds of exchanges that RabbitMQ has as plugins: where they send a message. What a client may
//! ask them for is tested where the rules live: `broker::arguments`.

use std::collections::BTreeMap;

use crate::world::{KINDS, World};
use machine::{
    Arguments, Catalog, CatalogCommand, CatalogReply, Destination, ExchangeKind, ExchangeSpec,
    HashProperty, Headers, NoHeaders, NodeId, NodeInfo, PublishedBy, QueueHome, QueueSettings,
    QueueSpec, QueueType, Refusal, RouteError, SessionId, SessionOwner, Target, Value, ValueView,
    Version,
};

/// A message as routing may look at it.
#[derive(Clone, Debug, Default)]
struct Message {
    headers: Arguments,
    message_id: Option<String>,
    timestamp: Option<u64>,
    chance: u64,
    node: Option<NodeId>,
}

impl Headers for Message {
    fn find(&self, name: &str) -> Option<ValueView<'_>> {
        self.headers.find(name).map(Value::view)
    }

    fn each<'m>(&'m self, show: &mut dyn FnMut(&'m str, ValueView<'m>)) {
        self.headers.0.iter().for_each(|(name, value)| show(name, value.view()));
    }

    fn property(&self, property: HashProperty) -> Option<ValueView<'_>> {
        match property {
            HashProperty::MessageId => {
                self.message_id.as_ref().map(|id| ValueView::LongStr(id.as_bytes()))
            }
            HashProperty::Timestamp => self.timestamp.map(ValueView::Timestamp),
            HashProperty::CorrelationId => None,
        }
    }

    fn chance(&self) -> u64 {
        self.chance
    }

    fn node(&self) -> Option<NodeId> {
        self.node
    }
}

fn text(text: &str) -> Value {
    Value::LongStr(text.into())
}

fn queue(name: &str) -> Destination {
    Destination::Queue(name.into())
}

fn exchange(name: &str) -> Destination {
    Destination::Exchange(name.into())
}

fn declare(
    world: &World,
    name: &str,
    kind: ExchangeKind,
    arguments: &[(&str, Value)],
) -> CatalogCommand {
    arguments.iter().fold(world.exchange(name, kind, true), |command, (name, value)| {
        world.with_argument(command, name, value.clone())
    })
}

/// What every kind can be declared with.
fn arguments_of(kind: ExchangeKind) -> Vec<(&'static str, Value)> {
    match kind {
        ExchangeKind::DelayedMessage => vec![("x-delayed-type", text("direct"))],
        _ => Vec::new(),
    }
}

/// Exchange `x` of a kind, and queues that are bound to it with keys.
fn world_of(kind: ExchangeKind, arguments: &[(&str, Value)], bindings: &[(&str, &str)]) -> World {
    let mut world = World::new();
    world.apply(declare(&world, "x", kind, arguments));
    for (name, key) in bindings {
        if world.catalog.queue("/", name).is_none() {
            world.queue(name);
        }
        world.apply_unchecked(World::bind("x", queue(name), key));
    }
    world
}

fn names(world: &World, targets: &[Target]) -> String {
    let name =
        |target: &Target| world.catalog.queue_by_id(target.queue).expect("a queue").name.clone();
    targets.iter().map(name).collect::<Vec<_>>().join(" ")
}

/// Where a message goes, its history aside.
fn route(world: &World, key: &str, message: &dyn Headers) -> String {
    let mut targets = Vec::new();
    world.catalog.route("/", "x", key, message, &mut targets).expect("a known exchange");
    targets.retain(|target| !target.is_history);
    names(world, &targets)
}

/// Where each of the keys `0` to `count - 1` leads.
fn routes(world: &World, count: usize) -> Vec<String> {
    (0..count).map(|key| route(world, &key.to_string(), &NoHeaders)).collect()
}

fn counts(routes: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for name in routes {
        *counts.entry(name.as_str()).or_default() += 1;
    }
    counts
}

#[test]
fn every_kind_has_a_name_of_its_own() {
    for kind in KINDS {
        assert_eq!(ExchangeKind::parse(kind.name()), Some(kind));
    }
    assert_eq!(ExchangeKind::parse("x-zzz"), None);
    assert_eq!(ExchangeKind::parse("x-delayed-message").unwrap().name(), "x-delayed-message");
}

#[test]
fn bindings_of_every_kind_come_and_go_and_take_an_auto_delete_exchange_along() {
    for kind in KINDS {
        let mut world = World::new();
        let mut command = declare(&world, "x", kind, &arguments_of(kind));
        if let CatalogCommand::DeclareExchange { auto_delete, .. } = &mut command {
            *auto_delete = true;
        }
        world.apply(command);
        world.queue("a");
        for _ in 0..2 {
            world.apply(World::bind("x", queue("a"), "1"));
        }
        let vhost = world.catalog.vhost("/").unwrap();
        assert_eq!(vhost.bindings_of_source("x").count(), 1);
        assert_eq!(route(&world, "1", &NoHeaders), "a", "{kind:?}");
        world.apply(World::bind("x", queue("a"), "2"));
        world.apply(World::unbind("x", queue("a"), "2"));
        assert_eq!(route(&world, "1", &NoHeaders), "a", "{kind:?}");
        world.apply(world.delete("a"));
        assert!(world.catalog.exchange("/", "x").is_none(), "{kind:?}");
    }
}

#[test]
fn every_kind_leads_on_to_exchanges_and_hands_what_it_has_no_place_for_to_its_alternate() {
    for kind in KINDS {
        let mut world = World::new();
        let mut arguments = arguments_of(kind);
        arguments.push(("alternate-exchange", text("amq.fanout")));
        world.apply(declare(&world, "x", kind, &arguments));
        for name in ["inner", "spare"] {
            world.queue(name);
        }
        world.apply(World::bind("amq.fanout", queue("spare"), ""));
        world.apply(World::bind("amq.direct", queue("inner"), "1"));
        assert_eq!(route(&world, "1", &NoHeaders), "spare", "{kind:?}");
        world.apply(World::bind("x", exchange("amq.direct"), "1"));
        assert_eq!(route(&world, "1", &NoHeaders), "inner", "{kind:?}");
        world.apply(World::unbind("x", exchange("amq.direct"), "1"));
        assert_eq!(route(&world, "1", &NoHeaders), "spare", "{kind:?}");
    }
}

#[test]
fn a_delayed_exchange_routes_as_the_kind_inside() {
    let bindings = [("a", "k.*"), ("b", "#")];
    let delayed = [("x-delayed-type", text("topic"))];
    let world = world_of(ExchangeKind::DelayedMessage, &delayed, &bindings);
    assert_eq!(route(&world, "k.1", &NoHeaders), "a b");
    assert_eq!(route(&world, "other", &NoHeaders), "b");
    assert!(world.catalog.exchange("/", "x").unwrap().delays());
    assert!(!world.catalog.exchange("/", "amq.topic").unwrap().delays());
    let hashes = [("x-delayed-type", text("x-consistent-hash"))];
    let mut world = world_of(ExchangeKind::DelayedMessage, &hashes, &[]);
    world.queue("a");
    let refusal = world.catalog.check(&World::bind("x", queue("a"), "heavy"));
    assert_eq!(refusal, Err(Refusal::ImpossibleBinding { key: "heavy".into() }));
}

#[test]
fn the_key_of_a_binding_to_a_consistent_hash_exchange_is_a_weight() {
    let mut world = world_of(ExchangeKind::ConsistentHash, &[], &[]);
    world.queue("a");
    for key in ["1", "+5", "99", "99999999999999999999"] {
        assert_eq!(world.catalog.check(&World::bind("x", queue("a"), key)), Ok(()));
    }
    for key in ["0", "-1", "", "1.5", "a"] {
        let refusal = Refusal::ImpossibleBinding { key: key.into() };
        assert_eq!(world.catalog.check(&World::bind("x", queue("a"), key)), Err(refusal));
        // There is no such binding, and that is success.
        assert_eq!(world.catalog.check(&World::unbind("x", queue("a"), key)), Ok(()));
    }
}

/// Ten thousand keys, and a tenth of the share to err by.
fn assert_shares(routes: &[String], expected: &[(&str, usize)]) {
    let counts = counts(routes);
    let all: usize = expected.iter().map(|(_, weight)| weight).sum();
    assert_eq!(counts.len(), expected.len());
    for (name, weight) in expected {
        let due = routes.len() * weight / all;
        let got = counts[name];
        assert!(got.abs_diff(due) <= due / 10, "{name}: {got} instead of {due}");
    }
}

#[test]
fn every_destination_of_a_consistent_hash_has_its_weights_share() {
    let even: Vec<String> = (0..10).map(|number| format!("q{number}")).collect();
    let even: Vec<(&str, &str)> = even.iter().map(|name| (name.as_str(), "1")).collect();
    let world = world_of(ExchangeKind::ConsistentHash, &[], &even);
    let expected: Vec<(&str, usize)> = even.iter().map(|(name, _)| (*name, 1)).collect();
    assert_shares(&routes(&world, 20_000), &expected);

    let weighed = [("a", "1"), ("b", "2"), ("c", "5"), ("d", "2"), ("e", "10")];
    let world = world_of(ExchangeKind::ConsistentHash, &[], &weighed);
    let expected = [("a", 1), ("b", 2), ("c", 5), ("d", 2), ("e", 10)];
    assert_shares(&routes(&world, 20_000), &expected);

    let far_apart = [("a", "4000000000"), ("b", "1000000000")];
    let world = world_of(ExchangeKind::ConsistentHash, &[], &far_apart);
    assert_shares(&routes(&world, 20_000), &[("a", 4), ("b", 1)]);
}

#[test]
fn a_destination_that_goes_gives_up_its_own_share_and_gets_it_back_when_it_returns() {
    let weighed = [("a", "1"), ("b", "2"), ("c", "5"), ("d", "2")];
    let mut world = world_of(ExchangeKind::ConsistentHash, &[], &weighed);
    let before = routes(&world, 5_000);
    world.apply(world.delete("b"));
    let without = routes(&world, 5_000);
    for (before, after) in before.iter().zip(&without) {
        assert!(if before == "b" { after != "b" } else { before == after });
    }
    // Made again it is another queue of the same name.
    world.queue("b");
    world.apply(World::bind("x", queue("b"), "2"));
    assert_eq!(routes(&world, 5_000), before);
    // One more takes its share and moves nothing between the others.
    world.queue("e");
    world.apply(World::bind("x", queue("e"), "3"));
    let with = routes(&world, 5_000);
    let moved = before.iter().zip(&with).filter(|(before, after)| before != after);
    assert!(moved.into_iter().all(|(_, after)| after == "e"));
    assert!(counts(&with).contains_key("e"));
}

#[test]
fn the_order_in_which_bindings_came_does_not_matter() {
    let mut weighed = vec![("a", "1"), ("b", "2"), ("c", "2"), ("d", "2")];
    let one = routes(&world_of(ExchangeKind::ConsistentHash, &[], &weighed), 500);
    weighed.reverse();
    assert_eq!(routes(&world_of(ExchangeKind::ConsistentHash, &[], &weighed), 500), one);
}

#[test]
fn of_several_weights_of_a_destination_the_heaviest_counts() {
    let once = [("a", "1"), ("b", "3")];
    let expected = routes(&world_of(ExchangeKind::ConsistentHash, &[], &once), 1_000);
    let twice = [("a", "1"), ("b", "1"), ("b", "3"), ("b", "2"), ("b", "03")];
    let mut world = world_of(ExchangeKind::ConsistentHash, &[], &twice);
    assert_eq!(routes(&world, 1_000), expected);
    world.apply(World::unbind("x", queue("b"), "3"));
    assert_eq!(routes(&world, 1_000), expected);
    world.apply(World::unbind("x", queue("b"), "03"));
    let lighter = [("a", "1"), ("b", "2")];
    let expected = routes(&world_of(ExchangeKind::ConsistentHash, &[], &lighter), 1_000);
    assert_eq!(routes(&world, 1_000), expected);
    for key in ["1", "2"] {
        world.apply(World::unbind("x", queue("b"), key));
    }
    assert_eq!(counts(&routes(&world, 1_000)).into_keys().collect::<Vec<_>>(), ["a"]);
}

const FOUR: [(&str, &str); 4] = [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")];

#[test]
fn a_consistent_hash_goes_by_the_header_or_property_that_it_was_told() {
    type Make = fn(u64) -> Message;
    let cases: [(&str, &str, Make); 4] = [
        ("hash-header", "tenant", |number| Message {
            headers: Arguments::new().with("tenant", Value::LongStr(number.to_string().into())),
            ..Message::default()
        }),
        ("hash-header", "tenant", |number| Message {
            headers: Arguments::new().with("tenant", Value::I64(number as i64)),
            ..Message::default()
        }),
        ("hash-property", "message_id", |number| Message {
            message_id: Some(number.to_string()),
            ..Message::default()
        }),
        ("hash-property", "timestamp", |number| Message {
            timestamp: Some(number),
            ..Message::default()
        }),
    ];
    for (argument, value, make) in cases {
        let world = world_of(ExchangeKind::ConsistentHash, &[(argument, text(value))], &FOUR);
        let by = |key: &str| -> Vec<String> {
            (0..500).map(|number| route(&world, key, &make(number))).collect()
        };
        let routed = by("k");
        assert_eq!(counts(&routed).len(), 4, "{argument} {value}");
        // The key does not matter, and without the header all go to the same.
        assert_eq!(by("another"), routed);
        assert_eq!(counts(&routes(&world, 50)).len(), 1);
    }
}

#[test]
fn headers_of_every_type_can_be_hashed() {
    let world = world_of(ExchangeKind::ConsistentHash, &[("hash-header", text("h"))], &FOUR);
    for value in [
        Value::Void,
        Value::Bool(true),
        Value::U8(3),
        Value::F32(1),
        Value::F64(1),
        Value::Decimal { scale: 1, value: 2 },
        Value::Timestamp(5),
        Value::Bytes(vec![0, 255]),
        Value::Array(vec![Value::I8(1)]),
        Value::Table(Arguments::new().with("a", Value::Void)),
    ] {
        let headers = Arguments::new().with("h", value);
        let message = Message { headers, ..Message::default() };
        assert_eq!(route(&world, "", &message).len(), 1);
    }
}

#[test]
fn a_random_exchange_uses_all_destinations_alike_and_only_one_for_a_message() {
    let world = world_of(ExchangeKind::Random, &[], &FOUR);
    let by_chance = |chance: u64| route(&world, "k", &Message { chance, ..Message::default() });
    let routed: Vec<String> =
        (0..1_000u64).map(|seed| by_chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    assert_shares(&routed, &[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
    assert_eq!(by_chance(7), by_chance(7));
    assert_eq!(by_chance(u64::MAX).len(), 1);
    // Bound twice is twice as likely.
    let twice = [("a", "1"), ("b", "1"), ("b", "2")];
    let world = world_of(ExchangeKind::Random, &[], &twice);
    let routed: Vec<String> = (0..300)
        .map(|chance| route(&world, "k", &Message { chance, ..Message::default() }))
        .collect();
    assert_eq!(counts(&routed), BTreeMap::from([("a", 100), ("b", 200)]));
}

/// Queues of a cluster of three: in the memory of node 2, and in the group of each node.
fn local_world() -> World {
    let node = |number| NodeInfo {
        node: NodeId(number),
        address: format!("node-{number}:5680"),
        incarnation: number,
    };
    let mut world = World::new();
    world.catalog = Catalog::genesis(&[node(1), node(2), node(3)], 1);
    world.apply(CatalogCommand::RaiseVersion { to: Version::LOCAL_RANDOM });
    let create = |name: &str, home| CatalogCommand::CreateQueue {
        vhost: "/".to_owned(),
        name: name.to_owned(),
        home,
        spec: Box::new(plain(home)),
        arguments: Arguments::new(),
    };
    world.apply(create_exchange(ExchangeKind::LocalRandom));
    let mine = SessionOwner { node: NodeId(2), session: SessionId(7) };
    let homes = [
        ("m", QueueHome::Session(mine)),
        ("one", QueueHome::Group),
        ("two", QueueHome::Group),
        ("three", QueueHome::Group),
    ];
    for (name, home) in homes {
        world.apply(create(name, home));
        world.apply(World::bind("x", queue(name), ""));
    }
    world
}

fn plain(home: QueueHome) -> QueueSpec {
    QueueSpec {
        queue_type: QueueType::Classic,
        settings: QueueSettings {
            is_durable: home.is_durable(),
            is_auto_delete: false,
            features: None,
            is_paused: false,
        },
        dead_letter: None,
        consumer_timeout_ms: None,
        members: None,
        partitions: 1,
    }
}

fn create_exchange(kind: ExchangeKind) -> CatalogCommand {
    CatalogCommand::CreateExchange {
        vhost: "/".to_owned(),
        name: "x".to_owned(),
        auto_delete: false,
        internal: false,
        node: None,
        spec: Box::new(ExchangeSpec::plain(kind)),
        arguments: Arguments::new(),
    }
}

/// Where messages that are published at a node go, each with its chance.
fn published_at(world: &World, node: Option<u64>) -> Vec<String> {
    let node = node.map(NodeId);
    let message = |chance| Message { chance, node, ..Message::default() };
    (0..1_200).map(|chance| route(world, "k", &message(chance))).collect()
}

#[test]
fn a_local_random_exchange_uses_the_queues_of_the_publishers_node_and_others_only_if_it_has_none() {
    let mut world = local_world();
    let led_by = |world: &World, name: &str| {
        let group = world.catalog.queue("/", name).expect("a queue").group;
        world.catalog.preferred_leader(group).expect("a durable queue").0
    };
    let durable = ["one", "two", "three"];
    let mut nodes = durable.map(|name| led_by(&world, name));
    let of_node = |nodes: &[u64; 3], node| {
        let place = nodes.iter().position(|led| *led == node);
        durable[place.expect("each node leads one")]
    };
    assert_eq!(counts(&published_at(&world, Some(1))), [(of_node(&nodes, 1), 1_200)].into());
    let at_two = [(of_node(&nodes, 2), 600), ("m", 600)].into();
    assert_eq!(counts(&published_at(&world, Some(2))), at_two);
    // Nobody's, and of a node that has none: any queue will do.
    let all = BTreeMap::from([("m", 300), ("one", 300), ("two", 300), ("three", 300)]);
    assert_eq!(counts(&published_at(&world, None)), all);
    assert_eq!(counts(&published_at(&world, Some(9))), all);
    // Who leads a group is asked for each message.
    let group = world.catalog.queue("/", of_node(&nodes, 1)).expect("a queue").group;
    let voters = vec![NodeId(3), NodeId(1), NodeId(2)];
    world.apply(CatalogCommand::SetVoters { group, voters });
    assert_eq!(counts(&published_at(&world, Some(1))), all);
    nodes = durable.map(|name| led_by(&world, name));
    assert_eq!(nodes.iter().filter(|node| **node == 3).count(), 2);
    assert_eq!(counts(&published_at(&world, Some(3))).len(), 2);
}

#[test]
fn a_local_random_exchange_is_refused_before_its_version() {
    let mut world = World::new();
    world.apply(CatalogCommand::RaiseVersion { to: Version::SPECS });
    let refusal = Refusal::NotYet { since: Version::LOCAL_RANDOM, agreed: Version::SPECS };
    let delayed = ExchangeSpec {
        kind: ExchangeKind::DelayedMessage,
        ..ExchangeSpec::plain(ExchangeKind::LocalRandom)
    };
    let mut inside = create_exchange(ExchangeKind::LocalRandom);
    if let CatalogCommand::CreateExchange { spec, .. } = &mut inside {
        **spec = delayed;
    }
    for command in [
        declare(&world, "x", ExchangeKind::LocalRandom, &[]),
        create_exchange(ExchangeKind::LocalRandom),
        inside,
    ] {
        assert_eq!(world.apply(command), CatalogReply::Refused(refusal.clone()));
    }
    // What a log of before version 8 says of it means what it meant then.
    let of_old = [("x-delayed-type", text("x-local-random"))];
    world.apply(declare(&world, "x", ExchangeKind::DelayedMessage, &of_old));
    let exchange = world.catalog.exchange("/", "x").expect("an exchange");
    assert_eq!(exchange.routing(), ExchangeKind::Direct);
}

#[test]
fn a_modulus_hash_sends_a_key_to_one_destination_always_and_uses_all() {
    let mut world = world_of(ExchangeKind::ModulusHash, &[], &FOUR);
    let routed = routes(&world, 4_000);
    assert_shares(&routed, &[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
    assert_eq!(routes(&world, 4_000), routed);
    world.apply(World::unbind("x", queue("d"), "1"));
    assert_shares(&routes(&world, 4_000), &[("a", 1), ("b", 1), ("c", 1)]);
    for name in ["a", "b", "c"] {
        world.apply(World::unbind("x", queue(name), "1"));
    }
    assert_eq!(route(&world, "k", &NoHeaders), "");
}

/// Of a message with several keys.
fn route_keys(world: &World, exchange: &str, keys: &[&str]) -> String {
    let mut targets = Vec::new();
    let routed = world.catalog.route_keys(
        PublishedBy::Client,
        "/",
        exchange,
        keys,
        &NoHeaders,
        &mut targets,
    );
    assert_eq!(routed, Ok(()));
    names(world, &targets)
}

#[test]
fn a_message_with_several_keys_is_hashed_by_the_first_and_goes_to_one() {
    for kind in [ExchangeKind::ConsistentHash, ExchangeKind::ModulusHash, ExchangeKind::Random] {
        let world = world_of(kind, &[], &FOUR);
        for number in 0..50 {
            let keys = ["first", &number.to_string()];
            assert_eq!(route_keys(&world, "x", &keys), route(&world, "first", &NoHeaders));
        }
    }
}

#[test]
fn a_message_with_several_keys_has_no_route_only_if_none_of_them_has_one() {
    for kind in [ExchangeKind::Direct, ExchangeKind::Topic, ExchangeKind::Headers] {
        let alternate = [("alternate-exchange", text("amq.fanout"))];
        let mut world = world_of(kind, &alternate, &[("a", "one"), ("b", "two")]);
        world.queue("spare");
        world.apply(World::bind("amq.fanout", queue("spare"), ""));
        assert_eq!(route_keys(&world, "x", &["one", "two"]), "a b");
        if kind != ExchangeKind::Headers {
            assert_eq!(route_keys(&world, "x", &["none", "two"]), "b");
            assert_eq!(route_keys(&world, "x", &["none", "neither"]), "spare");
        }
    }
    let world = world_of(ExchangeKind::Direct, &[], &FOUR);
    assert_eq!(route_keys(&world, "", &["d", "a", "none", "a"]), "a d");
    assert_eq!(route_keys(&world, "", &[]), "");
}

#[test]
fn the_broker_itself_may_publish_to_an_internal_exchange() {
    let mut world = World::new();
    world.queue("a");
    world.apply(World::bind("amq.rabbitmq.trace", queue("a"), "#"));
    let mut targets = Vec::new();
    let mut route = |by, exchange| {
        world.catalog.route_keys(by, "/", exchange, &["k"], &NoHeaders, &mut targets)
    };
    let internal = "amq.rabbitmq.trace";
    assert_eq!(route(PublishedBy::Client, internal), Err(RouteError::Internal));
    assert_eq!(route(PublishedBy::Broker, "none"), Err(RouteError::NoExchange));
    assert_eq!(route(PublishedBy::Broker, internal), Ok(()));
    assert_eq!(names(&world, &targets), "a");
}

#[test]
fn a_hash_never_changes() {
    // Whoever changes these moves everybody's messages.
    let world = world_of(ExchangeKind::ConsistentHash, &[], &FOUR);
    assert_eq!(routes(&world, 24).concat(), "dbdcddadacaabcdbbdcabbbd");
    let world = world_of(ExchangeKind::ModulusHash, &[], &FOUR);
    assert_eq!(routes(&world, 24).concat(), "dcbabbdadcbaabdbddbccbdd");
}
