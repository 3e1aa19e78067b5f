//! An explanation says what routing does: the same queues, and the bindings by which they are found.

use std::collections::BTreeSet;

use crate::world::World;
use machine::{
    Arguments, Catalog, Destination, ExchangeKind, Explanation, Hop, NoHeaders, PublishedBy,
    RouteError, Target, Value, limits,
};

const CLIENT: PublishedBy = PublishedBy::Client;

fn queue(name: &str) -> Destination {
    Destination::Queue(name.into())
}

fn explain(catalog: &Catalog, exchange: &str, key: &str) -> Explanation {
    let explained = machine::explain(catalog, CLIENT, "/", exchange, &[key], &NoHeaders);
    let explained = explained.expect("a known exchange");
    let mut targets = Vec::new();
    catalog.route("/", exchange, key, &NoHeaders, &mut targets).expect("a known exchange");
    assert_eq!(explained.targets, targets, "it is where the message goes");
    explained
}

fn names(catalog: &Catalog, targets: &[Target]) -> Vec<String> {
    let name = |target: &Target| catalog.queue_by_id(target.queue).expect("a queue").name.clone();
    targets.iter().map(name).collect()
}

/// Destination, key, whether it matches, whether it is taken.
fn bindings(hop: &Hop) -> Vec<(&str, &str, bool, bool)> {
    let shown = hop.bindings.iter();
    let shown = shown.map(|it| {
        (it.binding.destination.name(), it.binding.key.as_str(), it.matches, it.is_taken)
    });
    shown.collect()
}

#[test]
fn each_binding_says_whether_it_matches_through_exchanges_and_alternates() {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        world.queue(name);
    }
    let spare = world.exchange("spare", ExchangeKind::Fanout, true);
    world.apply(spare);
    let inner = world.exchange("inner", ExchangeKind::Direct, true);
    let alternate = Value::LongStr(b"spare".to_vec());
    world.apply(world.with_argument(inner, "alternate-exchange", alternate));
    let bind = |world: &mut World, source: &str, destination, key: &str| {
        world.apply(World::bind(source, destination, key));
    };
    bind(&mut world, "amq.topic", queue("a"), "eu.#");
    bind(&mut world, "amq.topic", queue("b"), "us.#");
    bind(&mut world, "amq.topic", Destination::Exchange("inner".into()), "eu.*");
    bind(&mut world, "inner", queue("b"), "eu.de");
    bind(&mut world, "spare", queue("c"), "");

    let found = explain(&world.catalog, "amq.topic", "eu.fr");
    assert_eq!(names(&world.catalog, &found.targets), ["a", "c"]);
    let [topic, inner, spare] = &found.hops[..] else { panic!("{found:?}") };
    let of_topic = BTreeSet::from_iter(bindings(topic));
    let expected =
        [("a", "eu.#", true, true), ("b", "us.#", false, false), ("inner", "eu.*", true, true)];
    assert_eq!(of_topic, BTreeSet::from(expected));
    assert_eq!(bindings(inner), [("b", "eu.de", false, false)]);
    assert_eq!(inner.alternate.as_deref(), Some("spare"));
    assert_eq!(bindings(spare), [("c", "", true, true)]);
    let found = explain(&world.catalog, "amq.topic", "eu.de");
    assert_eq!(found.hops.len(), 2, "the alternate is not asked");
    assert_eq!(explain(&world.catalog, "amq.topic", "none").hops[0].alternate, None);
}

#[test]
fn of_several_that_match_one_is_taken_where_an_exchange_takes_one() {
    for kind in [ExchangeKind::Random, ExchangeKind::ModulusHash, ExchangeKind::ConsistentHash] {
        let mut world = World::new();
        world.apply(world.exchange("x", kind, true));
        for name in ["a", "b", "c"] {
            world.queue(name);
            world.apply(World::bind("x", queue(name), "1"));
        }
        let found = explain(&world.catalog, "x", "k");
        let bindings = bindings(&found.hops[0]);
        assert!(bindings.iter().all(|(_, _, matches, _)| *matches), "{bindings:?}");
        let taken = bindings.iter().filter(|(_, _, _, is_taken)| *is_taken);
        let taken: Vec<&str> = taken.map(|(name, ..)| *name).collect();
        assert_eq!(taken, names(&world.catalog, &found.targets));
    }
}

#[test]
fn headers_are_looked_at_as_routing_does() {
    let mut world = World::new();
    world.queue("a");
    let text = |text: &str| Value::LongStr(text.into());
    let arguments = Arguments::new().with("x-match", text("all")).with("kind", text("order"));
    let command = World::binding(true, "amq.headers", queue("a"), "", arguments, None);
    world.apply(command);
    let explained = |headers: &Arguments| {
        machine::explain(&world.catalog, CLIENT, "/", "amq.headers", &[""], headers)
            .expect("an exchange")
    };
    let found = explained(&Arguments::new().with("kind", text("order")));
    assert!(found.hops[0].bindings[0].matches && found.targets.len() == 1);
    let found = explained(&Arguments::new().with("kind", text("other")));
    assert!(!found.hops[0].bindings[0].matches && found.targets.is_empty());
}

#[test]
fn the_default_exchange_finds_a_queue_by_its_name() {
    let mut world = World::new();
    world.queue("a");
    let found = explain(&world.catalog, "", "a");
    assert_eq!(found.hops[0].targets, found.targets);
    assert_eq!(names(&world.catalog, &found.targets), ["a"]);
    assert_eq!(explain(&world.catalog, "", "none").targets, []);
}

#[test]
fn what_routing_refuses_is_not_explained() {
    let world = World::new();
    let explained = |vhost, exchange| {
        machine::explain(&world.catalog, CLIENT, vhost, exchange, &["k"], &NoHeaders)
    };
    assert_eq!(explained("none", "amq.topic"), Err(RouteError::NoVhost));
    assert_eq!(explained("/", "none"), Err(RouteError::NoExchange));
    assert_eq!(explained("/", "amq.rabbitmq.trace"), Err(RouteError::Internal));
}

#[test]
fn no_more_is_shown_and_looked_at_than_the_bounds() {
    let mut world = World::new();
    world.queue("a");
    let count = limits::EXPLAINED_LOOKS_MAX + 10;
    for key in 0..count {
        world.apply_unchecked(World::bind("amq.direct", queue("a"), &format!("k{key}")));
    }
    let found = explain(&world.catalog, "amq.direct", "k3");
    let hop = &found.hops[0];
    assert_eq!(hop.bindings.len(), limits::EXPLAINED_BINDINGS_MAX);
    assert_eq!(hop.bindings_left_out, count - limits::EXPLAINED_BINDINGS_MAX);
    assert_eq!(bindings(hop)[0], ("a", "k3", true, true), "what matches comes first");

    // A long way.
    let mut world = World::new();
    let hops = limits::EXPLAINED_HOPS_MAX + 5;
    for number in 0..hops {
        let exchange = world.exchange(&format!("x{number}"), ExchangeKind::Fanout, true);
        world.apply_unchecked(exchange);
    }
    for number in 1..hops {
        let next = Destination::Exchange(format!("x{number}"));
        world.apply_unchecked(World::bind(&format!("x{}", number - 1), next, ""));
    }
    let found = explain(&world.catalog, "x0", "");
    assert_eq!((found.hops.len(), found.hops_left_out), (limits::EXPLAINED_HOPS_MAX, 5));
}
