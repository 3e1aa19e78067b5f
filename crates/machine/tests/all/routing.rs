//! Which queues a message comes to: tables per kind of exchange, a naive matcher for topics, and
//! the ways through exchanges behind exchanges.

use crate::world::World;
use machine::{
    Arguments, CatalogCommand, Destination, ExchangeKind, Headers, NoHeaders, RouteError, Value,
};
use proptest::prelude::*;

/// Names of the queues, sorted as they were declared.
fn route_with(world: &World, exchange: &str, key: &str, headers: &dyn Headers) -> String {
    let mut targets = Vec::new();
    let routed = world.catalog.route("/", exchange, key, headers, &mut targets);
    assert_eq!(routed, Ok(()));
    let names = targets.iter().map(|target| {
        let queue = world.catalog.queue_by_id(target.queue).expect("a queue");
        assert_eq!(queue.group, target.group);
        queue.name.as_str()
    });
    names.collect::<Vec<_>>().join(" ")
}

fn route(world: &World, exchange: &str, key: &str) -> String {
    route_with(world, exchange, key, &NoHeaders)
}

fn queue(name: &str) -> Destination {
    Destination::Queue(name.into())
}

fn exchange(name: &str) -> Destination {
    Destination::Exchange(name.into())
}

fn text(text: &str) -> Value {
    Value::LongStr(text.into())
}

/// Queues a, b, c and exchanges x, y, z of a kind.
fn world(kind: ExchangeKind) -> World {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        world.queue(name);
    }
    for name in ["x", "y", "z"] {
        world.apply(world.exchange(name, kind, true));
    }
    world
}

#[test]
fn the_default_exchange_reaches_every_queue_by_its_name() {
    let world = world(ExchangeKind::Direct);
    assert_eq!(route(&world, "", "b"), "b");
    assert_eq!(route(&world, "", "nobody"), "");
}

#[test]
fn direct_wants_the_very_key() {
    let mut world = world(ExchangeKind::Direct);
    world.apply(World::bind("x", queue("a"), "k"));
    world.apply(World::bind("x", queue("b"), "k"));
    world.apply(World::bind("x", queue("c"), ""));
    assert_eq!(route(&world, "x", "k"), "a b");
    assert_eq!(route(&world, "x", ""), "c");
    assert_eq!(route(&world, "x", "K"), "");
    world.apply(World::unbind("x", queue("a"), "k"));
    assert_eq!(route(&world, "x", "k"), "b");
}

#[test]
fn fanout_reaches_all_once_until_the_last_binding_goes() {
    let mut world = world(ExchangeKind::Fanout);
    world.apply(World::bind("x", queue("a"), "1"));
    world.apply(World::bind("x", queue("a"), "2"));
    world.apply(World::bind("x", queue("c"), ""));
    assert_eq!(route(&world, "x", "anything"), "a c");
    world.apply(World::unbind("x", queue("a"), "1"));
    assert_eq!(route(&world, "x", ""), "a c");
    world.apply(World::unbind("x", queue("a"), "2"));
    assert_eq!(route(&world, "x", ""), "c");
    world.apply(world.delete("c"));
    assert_eq!(route(&world, "x", ""), "");
}

#[test]
fn topic_matches_words() {
    let cases = [
        ("a.b", "a.b", true),
        ("a.b", "a.b.c", false),
        ("*", "a", true),
        ("*", "", false),
        ("*", "a.b", false),
        ("#", "", true),
        ("#", "a.b.c", true),
        ("", "", true),
        ("", "a", false),
        ("a.*.c", "a.b.c", true),
        ("a.*.c", "a..c", true),
        ("a.*.c", "a.c", false),
        ("a.#", "a", true),
        ("a.#", "a.b.c", true),
        ("a.#", "ab", false),
        ("#.c", "c", true),
        ("#.c", "a.b.c", true),
        ("a.#.c", "a.c", true),
        ("a.#.c", "a.b.b.c", true),
        ("a.#.c", "a.b.c.d", false),
        ("#.#.a.#.#", "a", true),
        ("#.*", "", false),
        ("*.#", "a.b", true),
        ("#.a.#.b.#", "x.a.y.b.z", true),
        ("#.a.#.b.#", "x.b.y.a.z", false),
        (".", ".", true),
        ("*.*", ".", true),
        ("a.", "a.", true),
        ("a", "a.", false),
        ("*a", "ba", false),
        ("a#", "a.b", false),
        ("*a", "*a", true),
    ];
    for (pattern, key, matches) in cases {
        let mut world = World::new();
        world.queue("a");
        world.apply(World::bind("amq.topic", queue("a"), pattern));
        assert_eq!(
            route(&world, "amq.topic", key),
            if matches { "a" } else { "" },
            "{pattern} {key}"
        );
        assert_eq!(naive(pattern, key), matches, "{pattern} {key}");
        world.apply(World::unbind("amq.topic", queue("a"), pattern));
        assert_eq!(route(&world, "amq.topic", key), "");
    }
}

/// AMQP's definition, by trying everything: a table of prefixes.
fn naive(pattern: &str, key: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        if text.is_empty() { Vec::new() } else { text.split('.').map(str::to_owned).collect() }
    };
    let key = words(key);
    let mut reached = vec![false; key.len() + 1];
    reached[0] = true;
    for word in words(pattern) {
        let mut next = vec![false; key.len() + 1];
        for at in 0..=key.len() {
            match word.as_str() {
                "#" => next[at] = reached[..=at].contains(&true),
                "*" => next[at] = at > 0 && reached[at - 1],
                word => next[at] = at > 0 && reached[at - 1] && key[at - 1] == word,
            }
        }
        reached = next;
    }
    reached[key.len()]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn topics_match_as_the_definition_says_while_bindings_come_and_go(
        patterns in proptest::collection::vec("([ab*#](\\.[ab*#]){0,5})?", 1..6),
        keys in proptest::collection::vec("([ab](\\.[ab]?){0,6})?", 1..6),
        removed in 0usize..6,
    ) {
        let mut world = World::new();
        for (number, pattern) in patterns.iter().enumerate() {
            world.queue(&number.to_string());
            let bind = World::bind("amq.topic", queue(&number.to_string()), pattern);
            world.apply_unchecked(bind);
        }
        if let Some(pattern) = patterns.get(removed) {
            let unbind = World::unbind("amq.topic", queue(&removed.to_string()), pattern);
            world.apply_unchecked(unbind);
        }
        for key in keys {
            let expected = patterns.iter().enumerate().filter(|(number, pattern)| {
                *number != removed && naive(pattern, &key)
            });
            let expected: Vec<_> = expected.map(|(number, _)| number.to_string()).collect();
            prop_assert_eq!(route(&world, "amq.topic", &key), expected.join(" "));
        }
    }
}

#[test]
fn headers_are_compared_by_name_type_and_value() {
    let message = Arguments::new()
        .with("name", text("x"))
        .with("count", Value::I64(5))
        .with("flag", Value::Bool(true))
        .with("x-own", text("y"))
        .with("list", Value::Array(vec![Value::I8(1)]))
        .with("when", Value::Timestamp(9));
    type Case<'a> = (Option<&'a str>, &'a [(&'a str, Value)], bool);
    let cases: &[Case<'_>] = &[
        (None, &[], true),
        (Some("any"), &[], false),
        (None, &[("name", text("x")), ("count", Value::U8(5))], true),
        (Some("all"), &[("name", text("x")), ("count", Value::I32(6))], false),
        (Some("any"), &[("name", text("z")), ("count", Value::I32(5))], true),
        (Some("any"), &[("name", text("z")), ("nothing", Value::Void)], false),
        (Some("all"), &[("name", Value::Void)], true),
        (Some("all"), &[("name", Value::Bytes(b"x".to_vec()))], false),
        (Some("all"), &[("when", Value::I64(9))], false),
        (Some("all"), &[("when", Value::Timestamp(9))], true),
        (Some("all"), &[("flag", Value::Bool(false))], false),
        (Some("all"), &[("list", Value::Array(vec![Value::I8(1)]))], true),
        (Some("all"), &[("list", Value::Array(vec![]))], false),
        (Some("all"), &[("x-own", text("n"))], true),
        (Some("any"), &[("x-own", text("y"))], false),
        (Some("all-with-x"), &[("x-own", text("n"))], false),
        (Some("any-with-x"), &[("x-own", text("y"))], true),
    ];
    for (kind, pairs, matches) in cases {
        let mut world = World::new();
        world.queue("a");
        let mut arguments = Arguments::new();
        if let Some(kind) = kind {
            arguments = arguments.with("x-match", text(kind));
        }
        for (name, value) in *pairs {
            arguments = arguments.with(*name, value.clone());
        }
        let command =
            |is_bind| World::binding(is_bind, "amq.match", queue("a"), "", arguments.clone(), None);
        world.apply(command(true));
        let expected = if *matches { "a" } else { "" };
        assert_eq!(route_with(&world, "amq.match", "", &message), expected, "{arguments:?}");
        world.apply(command(false));
        assert_eq!(route_with(&world, "amq.match", "", &message), "");
    }
}

#[test]
fn only_four_words_say_how_headers_match() {
    let mut world = World::new();
    world.queue("a");
    let bind = |value| {
        let arguments = Arguments::new().with("x-match", value);
        World::binding(true, "amq.headers", queue("a"), "", arguments, None)
    };
    for word in ["all", "any", "all-with-x", "any-with-x"] {
        assert_eq!(world.catalog.check(&bind(text(word))), Ok(()));
    }
    for value in [text("some"), Value::I8(1), Value::Bytes(b"all".to_vec())] {
        let refusal = machine::Refusal::ImpossibleBinding { key: String::new() };
        assert_eq!(world.catalog.check(&bind(value)), Err(refusal));
    }
}

#[test]
fn a_queue_gets_a_message_once_however_many_ways_lead_there_and_cycles_end() {
    let mut world = world(ExchangeKind::Fanout);
    for (from, to) in [("x", "y"), ("y", "z"), ("z", "x"), ("x", "z"), ("x", "x")] {
        world.apply(World::bind(from, exchange(to), ""));
    }
    for name in ["x", "y", "z"] {
        world.apply(World::bind(name, queue("b"), ""));
    }
    world.apply(World::bind("z", queue("a"), ""));
    assert_eq!(route(&world, "x", ""), "a b");
    assert_eq!(route(&world, "y", ""), "a b");
    world.apply(World::delete_exchange("z", false));
    assert_eq!(route(&world, "x", ""), "b");
}

#[test]
fn the_key_is_judged_again_by_every_exchange_on_the_way() {
    let mut world = world(ExchangeKind::Topic);
    world.apply(World::bind("x", exchange("y"), "order.#"));
    world.apply(World::bind("y", queue("a"), "*.new"));
    world.apply(World::bind("y", exchange("amq.direct"), "#"));
    world.apply(World::bind("amq.direct", queue("c"), "order.old"));
    assert_eq!(route(&world, "x", "order.new"), "a");
    assert_eq!(route(&world, "x", "order.old"), "c");
    assert_eq!(route(&world, "x", "invoice.new"), "");
}

fn with_alternate(world: &World, name: &str, alternate: &str) -> CatalogCommand {
    let command = world.exchange(name, ExchangeKind::Direct, true);
    world.with_argument(command, "alternate-exchange", text(alternate))
}

#[test]
fn an_exchange_that_finds_nothing_hands_the_message_to_its_alternate() {
    let mut world = World::new();
    world.queue("a");
    world.queue("b");
    for (name, alternate) in [("one", "two"), ("two", "amq.fanout"), ("lost", "nowhere")] {
        world.apply(with_alternate(&world, name, alternate));
    }
    world.apply(World::bind("one", queue("a"), "k"));
    world.apply(World::bind("amq.fanout", queue("b"), ""));
    assert_eq!(route(&world, "one", "k"), "a");
    assert_eq!(route(&world, "one", "other"), "b");
    assert_eq!(route(&world, "lost", "k"), "");
    // An exchange as a destination is one, though nothing comes of it.
    world.apply(World::bind("one", exchange("amq.direct"), "e"));
    assert_eq!(route(&world, "one", "e"), "");
}

#[test]
fn alternates_in_a_circle_end_and_the_default_exchange_may_be_one() {
    let mut world = World::new();
    world.queue("a");
    for (name, alternate) in [("one", "two"), ("two", "one"), ("last", "")] {
        world.apply(with_alternate(&world, name, alternate));
    }
    assert_eq!(route(&world, "one", "k"), "");
    assert_eq!(route(&world, "last", "a"), "a");
}

#[test]
fn clients_cannot_publish_to_what_is_missing_or_internal_but_exchanges_can() {
    let mut world = world(ExchangeKind::Fanout);
    let mut targets = Vec::new();
    let mut route_of = |world: &World, vhost: &str, exchange: &str| {
        world.catalog.route(vhost, exchange, "", &NoHeaders, &mut targets)
    };
    assert_eq!(route_of(&world, "/", "missing"), Err(RouteError::NoExchange));
    assert_eq!(route_of(&world, "v", "x"), Err(RouteError::NoVhost));
    assert_eq!(route_of(&world, "/", "amq.rabbitmq.trace"), Err(RouteError::Internal));
    world.apply(World::bind("x", exchange("amq.rabbitmq.trace"), ""));
    world.apply(World::bind("amq.rabbitmq.trace", queue("a"), "#"));
    assert_eq!(route(&world, "x", "k"), "a");
}

#[test]
fn wildcards_cost_words_times_branches_and_never_a_product() {
    let mut world = World::new();
    world.queue("a");
    world.apply(World::bind("amq.topic", queue("a"), &["#.a"; 20].join(".")));
    world.apply(World::bind("amq.topic", queue("a"), &["*.#"; 20].join(".")));
    let key = ["a"; 127].join(".");
    assert_eq!(route(&world, "amq.topic", &key), "a");
}
