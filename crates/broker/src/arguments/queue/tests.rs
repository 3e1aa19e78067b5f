use machine::{QueueType, Rate, Rates, Refusal, Retention, Value};

use super::super::error::{ArgumentProblem, Compared};
use super::super::filter::FilterProblem;
use super::super::samples::{Node, text};
use super::*;

/// A durable queue `q`.
fn declared(arguments: &[(&str, Value)]) -> Declaration {
    let named = |(name, value): &(&str, Value)| ((*name).to_owned(), value.clone());
    Declaration {
        vhost: "/".to_owned(),
        name: "q".to_owned(),
        durable: true,
        auto_delete: false,
        exclusive: false,
        server_named: false,
        arguments: Arguments(arguments.iter().map(named).collect()),
        by: Node::owner(1),
    }
}

fn with_flags(
    arguments: &[(&str, Value)],
    durable: bool,
    auto_delete: bool,
    exclusive: bool,
) -> Declaration {
    Declaration { durable, auto_delete, exclusive, ..declared(arguments) }
}

/// What the client is told.
fn told(node: &Node, declaration: &Declaration) -> Result<(), DeclareError> {
    declaration.judge(&node.catalog)
}

fn quorum() -> (&'static str, Value) {
    ("x-queue-type", text("quorum"))
}

/// Which argument is wrong, and how.
fn wrong(arguments: &[(&str, Value)]) -> (String, ArgumentProblem) {
    match told(&Node::new(), &declared(arguments)) {
        Err(DeclareError::InvalidArgument { name, vhost, argument, problem, .. }) => {
            assert_eq!((name.as_str(), vhost.as_str()), ("q", "/"));
            (argument, problem)
        }
        other => panic!("{arguments:?}: {other:?}"),
    }
}

#[test]
fn a_wrong_argument_is_refused_with_what_is_wrong() {
    use ArgumentProblem as P;
    let cases = [
        ("x-message-ttl", Value::I32(-1), P::Negative(-1)),
        ("x-message-ttl", text("1"), P::ExpectedInteger { got: text("1") }),
        ("x-message-ttl", Value::I64(315_360_000_001), P::TooLarge(315_360_000_001)),
        ("x-expires", Value::U8(0), P::Zero),
        ("x-expires", Value::I8(-5), P::Negative(-5)),
        ("x-max-priority", Value::I32(256), P::MaxExceeded(256)),
        ("x-max-priority", Value::I32(-1), P::Negative(-1)),
        ("x-max-length", Value::Bool(true), P::ExpectedInteger { got: Value::Bool(true) }),
        ("x-max-length-bytes", Value::I16(-7), P::Negative(-7)),
        ("x-overflow", text("zzz"), P::InvalidOverflow),
        ("x-overflow", Value::I8(1), P::UnacceptableType { got: Value::I8(1) }),
        ("x-queue-type", text("zzz"), P::UnsupportedQueueType("zzz".into())),
        ("x-queue-type", Value::I8(1), P::UnacceptableType { got: Value::I8(1) }),
        ("x-queue-mode", text("zzz"), P::UnsupportedQueueMode("zzz".into())),
        ("x-queue-version", Value::I32(3), P::UnsupportedVersion(3)),
        ("x-queue-version", Value::I32(-3), P::Negative(-3)),
        ("x-queue-leader-locator", text("zzz"), P::InvalidLocator),
        ("x-dead-letter-exchange", Value::I8(1), P::InvalidType { got: Value::I8(1) }),
        ("x-dead-letter-routing-key", text("k"), P::RoutingKeyWithoutExchange),
        ("x-dead-letter-routing-key", Value::Void, P::UnacceptableType { got: Value::Void }),
        ("x-single-active-consumer", text("t"), P::UnacceptableType { got: text("t") }),
        ("x-delayed-retry-type", text("zzz"), P::InvalidRetryType),
        ("x-delayed-retry-min", text("1"), P::ExpectedInteger { got: text("1") }),
        ("x-delayed-retry-max", Value::I8(-1), P::Negative(-1)),
        ("x-message-deduplication", text("t"), P::UnacceptableType { got: text("t") }),
        ("x-cache-ttl", Value::I8(0), P::Zero),
        ("x-cache-size", Value::I8(0), P::Zero),
        ("x-cache-size", Value::I32(1_000_001), P::MaxExceeded(1_000_001)),
        ("x-dequeue-rate", text("fast"), P::InvalidRate("fast".into())),
        ("x-dequeue-rate", text("0/s"), P::InvalidRate("0/s".into())),
        ("x-dequeue-rate", Value::I32(5), P::UnacceptableType { got: Value::I32(5) }),
        ("x-dequeue-burst", Value::I32(0), P::Zero),
        ("x-dequeue-burst", Value::I32(-2), P::Negative(-2)),
        ("x-dequeue-burst", text("5"), P::ExpectedInteger { got: text("5") }),
        ("x-dequeue-bytes-rate", text("5XB/s"), P::InvalidBytesRate("5XB/s".into())),
        ("x-enqueue-rate", text("2MiB/s"), P::InvalidRate("2MiB/s".into())),
    ];
    for (argument, value, problem) in cases {
        assert_eq!(wrong(&[(argument, value)]), (argument.into(), problem));
    }
    let of_quorum = [
        ("x-dead-letter-strategy", text("zzz"), P::InvalidStrategy),
        ("x-quorum-initial-group-size", Value::I32(0), P::Zero),
        ("x-max-in-memory-length", Value::I32(-1), P::Negative(-1)),
        ("x-max-in-memory-bytes", Value::I32(-1), P::Negative(-1)),
        ("x-queue-leader-locator", text("min-masters"), P::InvalidLocator),
    ];
    for (argument, value, problem) in of_quorum {
        assert_eq!(wrong(&[quorum(), (argument, value)]), (argument.into(), problem));
    }
    let stream = ("x-queue-type", text("stream"));
    for (value, problem) in [
        (text("7"), P::InvalidMaxAge),
        (text("0D"), P::InvalidMaxAge),
        (text("7W"), P::InvalidMaxAge),
        (Value::I8(7), P::UnacceptableType { got: Value::I8(7) }),
    ] {
        assert_eq!(wrong(&[stream.clone(), ("x-max-age", value)]), ("x-max-age".into(), problem));
    }
}

#[test]
fn an_argument_of_another_type_of_queue_is_refused() {
    let classic = [
        "x-delivery-limit",
        "x-dead-letter-strategy",
        "x-quorum-initial-group-size",
        "x-initial-cluster-size",
        "x-max-age",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-stream-max-segment-size-bytes",
    ];
    let of_classic = ArgumentProblem::NotForType(QueueType::Classic);
    for argument in classic {
        // Whatever it is: what is not known is not looked at.
        assert_eq!(wrong(&[(argument, text("zzz"))]), (argument.into(), of_classic.clone()));
    }
    let of_quorum = ArgumentProblem::NotForType(QueueType::Quorum);
    for argument in [
        "x-max-priority",
        "x-queue-mode",
        "x-queue-version",
        "x-queue-master-locator",
        "x-initial-cluster-size",
        "x-max-age",
    ] {
        let found = wrong(&[quorum(), (argument, Value::I8(-5))]);
        assert_eq!(found, (argument.into(), of_quorum.clone()));
    }
    let stream = ("x-queue-type", text("stream"));
    let of_stream = ArgumentProblem::NotForType(QueueType::Stream);
    let found = wrong(&[stream, ("x-message-ttl", Value::I8(1))]);
    assert_eq!(found, ("x-message-ttl".into(), of_stream.clone()));
    for rate in ["x-dequeue-rate", "x-dequeue-burst", "x-enqueue-rate"] {
        let stream = ("x-queue-type", text("stream"));
        assert_eq!(wrong(&[stream, (rate, text("5/s"))]), (rate.into(), of_stream.clone()));
    }
}

#[test]
fn rates_are_taken_when_all_nodes_know_them() {
    let rated = [
        ("x-dequeue-rate", text("1000/m")),
        ("x-dequeue-burst", Value::I32(20)),
        ("x-dequeue-bytes-rate", text("2MiB/s")),
        ("x-enqueue-rate", text("10/h")),
    ];
    let refusal = |argument, value: &str| {
        Err(DeclareError::NotImplemented { argument, value: value.to_owned() })
    };
    let mut node = Node::new();
    assert_eq!(told(&node, &declared(&rated)), refusal("x-dequeue-rate", "1000/m"));
    assert_eq!(told(&node, &declared(&rated[1..2])), refusal("x-dequeue-burst", "20"));
    node.apply(CatalogCommand::RaiseVersion { to: Version::RATES });
    assert_eq!(told(&node, &declared(&rated)), Ok(()));
    let of_key = [("x-dequeue-rate-per-key", text("5/s")), ("x-order", text("key"))];
    let Err(DeclareError::InvalidArgument { problem, .. }) = told(&node, &declared(&of_key[..1]))
    else {
        panic!("it was taken")
    };
    assert_eq!(problem, ArgumentProblem::KeyRateWithoutOrder);
    let by_key = declared(&of_key);
    assert_eq!(told(&node, &by_key), Ok(()));
    let spec = spec::of(by_key.home(), false, &by_key.arguments, None);
    let rates = spec.settings.features.map(|features| features.rates);
    assert_eq!(rates.and_then(|rates| rates.dequeue_per_key), Rate::new(5, 1_000));
    node.apply(declared(&rated).into_command(Version::RATES));
    let queue = node.catalog.queue("/", "q").expect("it was declared");
    let rates = Rates {
        dequeue: Rate::new(1_000, 60_000),
        dequeue_burst: Some(20),
        dequeue_bytes: Rate::new(2 << 20, 1_000),
        enqueue: Rate::new(10, 3_600_000),
        dequeue_per_key: None,
    };
    assert_eq!(queue.features().map(|features| features.rates), Some(rates));
    let target = queue.target();
    assert_eq!((target.is_guarded, target.asked_max), (true, 1), "its leader is asked first");
    assert_eq!(told(&node, &declared(&rated)), Ok(()), "it is the same");
    let refusal = told(&node, &declared(&rated[..3]));
    let Err(DeclareError::Inequivalent { difference, .. }) = refusal else { panic!("{refusal:?}") };
    assert_eq!(difference.argument, "x-enqueue-rate");
}

#[test]
fn of_several_wrong_arguments_the_one_is_told_that_rabbitmq_tells() {
    let negative = |name| (name, Value::I8(-1));
    // The name of the exchange, then the type, then RabbitMQ's own order, then what is not for the type
    // in the client's order, then what RabbitMQ does not know.
    let all = [
        negative("x-cache-ttl"),
        negative("x-max-age"),
        negative("x-delivery-limit"),
        negative("x-max-length"),
        negative("x-expires"),
        negative("x-queue-type"),
        negative("x-dead-letter-exchange"),
    ];
    let told: Vec<String> = (1..=all.len()).rev().map(|count| wrong(&all[..count]).0).collect();
    let expected = [
        "x-dead-letter-exchange",
        "x-queue-type",
        "x-expires",
        "x-max-length",
        "x-max-age",
        "x-max-age",
        "x-cache-ttl",
    ];
    assert_eq!(told, expected);
    assert_eq!(wrong(&[all[2].clone(), all[1].clone()]).0, "x-delivery-limit");
}

#[test]
fn a_quorum_queue_is_durable_shared_and_stays() {
    let property = |durable, auto_delete, exclusive| {
        let declaration = with_flags(&[quorum()], durable, auto_delete, exclusive);
        match told(&Node::new(), &declaration) {
            Err(DeclareError::InvalidProperty { property, .. }) => Some(property),
            other => {
                assert_eq!(other, Ok(()));
                None
            }
        }
    };
    assert_eq!(property(true, false, false), None);
    assert_eq!(property(false, false, false), Some(Property::NonDurable));
    assert_eq!(property(false, true, true), Some(Property::AutoDelete));
    assert_eq!(property(false, false, true), Some(Property::Exclusive));
    // An argument is judged before them.
    let arguments = [quorum(), ("x-max-priority", Value::I8(5))];
    let refusal = told(&Node::new(), &with_flags(&arguments, false, true, true));
    assert!(matches!(refusal, Err(DeclareError::InvalidArgument { .. })));
}

#[test]
fn only_a_classic_queue_can_be_named_by_the_broker() {
    let named = |name: &str| Declaration {
        name: name.to_owned(),
        server_named: true,
        ..declared(&[quorum()])
    };
    let refusal = DeclareError::ServerNamed { queue_type: QueueType::Quorum };
    assert_eq!(told(&Node::new(), &named("amq.gen-abc")), Err(refusal));
    // One that exists is compared, whoever made up its name.
    let mut node = Node::new();
    node.apply(declared(&[quorum()]).into_command(Version::SPECS));
    assert_eq!(told(&node, &named("q")), Ok(()));
}

#[test]
fn a_name_is_judged_after_what_exists_and_before_the_arguments() {
    let named = |name: &str, server_named| Declaration {
        name: name.to_owned(),
        server_named,
        ..declared(&[("x-expires", Value::I8(0))])
    };
    let reserved = DeclareError::Reserved { kind: Kind::Queue, name: "amq.q".to_owned() };
    assert_eq!(told(&Node::new(), &named("amq.q", false)), Err(reserved));
    for name in ["", "a\0b", &"x".repeat(256)] {
        let refusal = told(&Node::new(), &named(name, false));
        assert!(matches!(
            refusal,
            Err(DeclareError::Catalog(Refusal::InvalidName { kind: Kind::Queue, .. }))
        ));
    }
    let refusal = told(&Node::new(), &named("amq.q", true));
    assert!(matches!(refusal, Err(DeclareError::InvalidArgument { .. })));
    let mut node = Node::new();
    node.apply(declared(&[]).into_command(Version::SPECS));
    let refusal = told(&node, &named("q", false));
    assert!(matches!(refusal, Err(DeclareError::Inequivalent { .. })));
}

#[test]
fn order_by_key_is_kept_where_all_nodes_know_it_by_the_key_that_is_named() {
    let mut node = Node::new();
    let by_key = ("x-order", text("key"));
    let refused = told(&node, &declared(std::slice::from_ref(&by_key)));
    assert!(matches!(refused, Err(DeclareError::NotImplemented { argument: "x-order", .. })));
    node.apply(CatalogCommand::RaiseVersion { to: Version::KEY_ORDER });
    let problem = |arguments: &[(&str, Value)]| match told(&node, &declared(arguments)) {
        Err(DeclareError::InvalidArgument { problem, .. }) => problem,
        other => panic!("{arguments:?}: {other:?}"),
    };
    assert_eq!(problem(&[("x-order", text("queue"))]), ArgumentProblem::InvalidOrder);
    let with_levels = [by_key.clone(), ("x-max-priority", Value::I8(2))];
    assert_eq!(problem(&with_levels), ArgumentProblem::OrderWithPriorities);
    let of_stream = [by_key.clone(), ("x-queue-type", text("stream"))];
    assert_eq!(problem(&of_stream), ArgumentProblem::NotForType(QueueType::Stream));

    let mut key_of = |name: &str, arguments: &[(&str, Value)]| {
        let declaration = Declaration { name: name.into(), ..declared(arguments) };
        assert_eq!(told(&node, &declaration), Ok(()), "{arguments:?}");
        node.apply(declaration.into_command_for(&node.catalog));
        let made = node.catalog.queue("/", name).expect("it was made");
        made.settings().order().map(ToString::to_string)
    };
    let by = |place: &str| ("x-partition-by", text(place));
    assert_eq!(
        key_of("a", std::slice::from_ref(&by_key)).as_deref(),
        Some("header:x-partition-key")
    );
    let quorum = [quorum(), by_key.clone(), by("user-id")];
    assert_eq!(key_of("b", &quorum).as_deref(), Some("user-id"));
    assert_eq!(key_of("c", &[by("user-id")]), None, "nobody asked for order");
    // A subscription goes by the key of its stream, if it names no other.
    key_of("events", &[("x-queue-type", text("stream")), by("routing-key")]);
    let reads = [("x-queue-type", text("subscription")), ("x-stream", text("events"))];
    let with = |more: &[(&'static str, Value)]| [&reads[..], more].concat();
    assert_eq!(key_of("d", &with(std::slice::from_ref(&by_key))).as_deref(), Some("routing-key"));
    assert_eq!(key_of("e", &with(&[("x-assign", text("key"))])).as_deref(), Some("routing-key"));
    let named = with(&[by_key, by("header:customer")]);
    assert_eq!(key_of("f", &named).as_deref(), Some("header:customer"));
    assert_eq!(key_of("g", &with(&[])), None);
}

#[test]
fn a_filter_is_judged_kept_and_part_of_what_a_subscription_is() {
    let mut node = Node::new();
    node.apply(CatalogCommand::RaiseVersion { to: Version::STREAMS });
    let stream =
        Declaration { name: "events".into(), ..declared(&[("x-queue-type", text("stream"))]) };
    node.apply(stream.into_command_for(&node.catalog));
    let with = |filter: Option<Value>| {
        let mut arguments =
            vec![("x-queue-type", text("subscription")), ("x-stream", text("events"))];
        arguments.extend(filter.map(|filter| ("x-filter", filter)));
        declared(&arguments)
    };
    for (wrong, problem) in [
        (text(""), FilterProblem::Form),
        (Value::I32(1), FilterProblem::Form),
        (text(&"a ".repeat(65)), FilterProblem::TooLarge),
    ] {
        let Err(DeclareError::InvalidArgument { argument, problem: found, .. }) =
            told(&node, &with(Some(wrong)))
        else {
            panic!("it was taken")
        };
        assert_eq!(
            (argument.as_str(), found),
            ("x-filter", ArgumentProblem::InvalidFilter(problem))
        );
    }
    let filtered = with(Some(text("orders.#, refunds")));
    assert_eq!(told(&node, &filtered), Ok(()));
    node.apply(filtered.clone().into_command_for(&node.catalog));
    let made = node.catalog.queue("/", &filtered.name).expect("it was made");
    let filter = made.settings().features.as_ref().and_then(|it| it.filter.as_deref()).cloned();
    let keys = ["orders.#", "refunds"].map(str::to_owned).into();
    assert_eq!(filter, Some(machine::Filter::Keys(keys)));
    assert_eq!(told(&node, &filtered), Ok(()));
    for other in [None, Some(text("orders.#")), Some(text("orders.#,refunds"))] {
        let refused = told(&node, &with(other));
        assert!(matches!(refused, Err(DeclareError::Inequivalent { .. })), "{refused:?}");
    }
}

#[test]
fn a_stream_is_made_when_all_nodes_know_streams() {
    let stream = [
        ("x-queue-type", text("stream")),
        ("x-max-age", text("7D")),
        ("x-max-length-bytes", Value::I64(5_000)),
    ];
    let refusal = DeclareError::NotImplemented { argument: "x-queue-type", value: "stream".into() };
    let mut node = Node::new();
    assert_eq!(told(&node, &declared(&stream)), Err(refusal));
    node.apply(CatalogCommand::RaiseVersion { to: Version::STREAMS });
    assert_eq!(told(&node, &declared(&stream)), Ok(()));
    for (durable, auto_delete, exclusive) in
        [(false, false, false), (true, true, false), (true, false, true)]
    {
        let refusal = told(&node, &with_flags(&stream, durable, auto_delete, exclusive));
        assert!(matches!(refusal, Err(DeclareError::InvalidProperty { .. })));
    }
    node.apply(declared(&stream).into_command(Version::STREAMS));
    let queue = node.catalog.queue("/", "q").expect("it was declared");
    let retention = Retention { max_age_ms: Some(7 * 86_400_000), max_bytes: Some(5_000) };
    assert_eq!(queue.features().and_then(|features| features.stream), Some(retention));
}

/// Declared with these, then declared again with those: what differs.
fn difference(
    one: &[(&str, Value)],
    two: &[(&str, Value)],
) -> Option<(String, Compared, Compared)> {
    let mut node = Node::new();
    node.apply(declared(one).into_command(Version::SPECS));
    match told(&node, &declared(two)) {
        Ok(()) => None,
        Err(DeclareError::Inequivalent { difference, .. }) => {
            Some((difference.argument, difference.received, difference.current))
        }
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn no_queue_type_and_classic_are_the_same_and_quorum_is_another() {
    let classic = ("x-queue-type", text("classic"));
    assert_eq!(difference(&[], std::slice::from_ref(&classic)), None);
    assert_eq!(difference(std::slice::from_ref(&classic), &[]), None);
    let typed = |name| Compared::Typed(text(name));
    let differs = |received, current| Some(("x-queue-type".to_owned(), received, current));
    assert_eq!(difference(&[], &[quorum()]), differs(typed("quorum"), Compared::Absent));
    assert_eq!(difference(&[quorum()], &[]), differs(Compared::Absent, typed("quorum")));
    let (plain_quorum, plain_classic) =
        (Compared::Plain(text("quorum")), Compared::Plain(text("classic")));
    let expected = differs(plain_quorum, plain_classic);
    assert_eq!(difference(&[classic], &[quorum()]), expected);
    // What is no type at all is no other queue either: it is only compared.
    let nonsense = ("x-queue-type", text("zzz"));
    assert_eq!(difference(&[], &[nonsense]), differs(typed("zzz"), Compared::Absent));
}

#[test]
fn arguments_both_sides_have_are_equal_by_number_whatever_the_width() {
    let length = |value| [("x-max-length", value)];
    assert_eq!(difference(&length(Value::I8(5)), &length(Value::I64(5))), None);
    let expected =
        ("x-max-length".to_owned(), Compared::Plain(Value::I32(6)), Compared::Plain(Value::I8(5)));
    assert_eq!(difference(&length(Value::I8(5)), &length(Value::I32(6))), Some(expected));
    assert!(Value::I8(5).is_same(&Value::I64(5)) && !Value::I8(5).is_same(&Value::Bool(true)));
}

#[test]
fn what_the_type_of_a_queue_knows_tells_two_queues_apart_in_rabbitmqs_order() {
    let of_classic = [
        ("x-expires", Value::I32(900_000)),
        ("x-message-ttl", Value::I32(1)),
        ("x-dead-letter-exchange", text("x")),
        ("x-dead-letter-routing-key", text("k")),
        ("x-max-length", Value::I32(1)),
        ("x-max-length-bytes", Value::I32(1)),
        ("x-max-priority", Value::I32(1)),
        ("x-overflow", text("drop-head")),
        ("x-queue-mode", text("lazy")),
        ("x-queue-version", Value::I32(2)),
        ("x-single-active-consumer", Value::Bool(true)),
        ("x-queue-master-locator", text("min-masters")),
        ("x-queue-leader-locator", text("balanced")),
        ("x-delayed-retry-type", text("all")),
        ("x-delayed-retry-min", Value::I32(1)),
        ("x-delayed-retry-max", Value::I32(1)),
    ];
    let of_quorum = [
        quorum(),
        ("x-dead-letter-exchange", text("x")),
        ("x-dead-letter-routing-key", text("k")),
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-expires", Value::I32(900_000)),
        ("x-max-length", Value::I32(1)),
        ("x-max-length-bytes", Value::I32(1)),
        ("x-max-in-memory-length", Value::I32(1)),
        ("x-max-in-memory-bytes", Value::I32(1)),
        ("x-overflow", text("drop-head")),
        ("x-single-active-consumer", Value::Bool(true)),
        ("x-quorum-initial-group-size", Value::I32(3)),
        ("x-delivery-limit", Value::I32(3)),
        ("x-message-ttl", Value::I32(1)),
        ("x-queue-leader-locator", text("balanced")),
    ];
    for (all, kept) in [(&of_classic[..], 0), (&of_quorum[..], 1)] {
        assert_eq!(difference(all, all), None);
        for first in kept..all.len() {
            // The first of all that are missing is told.
            let (argument, _, _) =
                difference(all, [&all[..kept], &all[kept..first]].concat().as_slice())
                    .expect("one is missing");
            assert_eq!(argument, all[first].0);
        }
    }
    for unknown in ["x-message-deduplication", "x-consumer-timeout", "x-cache-ttl", "x-colour"] {
        assert_eq!(difference(&[], &[(unknown, Value::Bool(true))]), None);
    }
    // On a classic queue nobody asks what only another type knows, or whether it is valid.
    assert_eq!(difference(&[], &[("x-delivery-limit", Value::I32(5))]), None);
}

#[test]
fn an_exclusive_queue_is_not_durable_whatever_was_asked_for_and_locked_for_others() {
    let mut node = Node::new();
    let exclusive = |durable, auto_delete| with_flags(&[], durable, auto_delete, true);
    node.apply(exclusive(true, false).into_command(Version::SPECS));
    assert_eq!(told(&node, &exclusive(false, false)), Ok(()));
    assert_eq!(told(&node, &exclusive(true, false)), Ok(()));
    let different = told(&node, &exclusive(false, true));
    assert!(matches!(different, Err(DeclareError::Inequivalent { .. })));
    // Whose it is comes before what differs.
    let of_another = Declaration { by: Node::owner(2), ..exclusive(false, true) };
    for declaration in [of_another, with_flags(&[], false, true, false)] {
        assert!(matches!(
            told(&node, &declaration),
            Err(DeclareError::Catalog(Refusal::Locked { .. }))
        ));
    }
}

#[test]
fn a_vhost_that_is_missing_and_room_that_is_short_are_the_catalogs_to_tell() {
    let node = Node::new();
    let elsewhere =
        Declaration { vhost: "none".to_owned(), ..declared(&[("x-expires", text(""))]) };
    assert_eq!(elsewhere.judge(&node.catalog), Ok(()));
    let bounds = machine::Bounds { queues: 0, ..machine::Bounds::default() };
    let full = Node::new().catalog.with_bounds(bounds);
    assert_eq!(declared(&[]).judge(&full), Ok(()));
    assert!(full.check(&declared(&[]).into_command(Version::SPECS)).is_err());
}
