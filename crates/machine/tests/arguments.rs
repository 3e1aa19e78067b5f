//! The arguments of queues: what they may be, what is told about those that are wrong, which of them
//! tell two queues apart, and what they make of a queue.

#[path = "support/world.rs"]
mod world;

use machine::{
    ArgumentProblem, Arguments, CatalogCommand, CatalogEffect, Compared, Dedup, Features, Overflow,
    Property, QueueType, Refusal, Retry, Target, Value,
};
use world::World;

fn text(text: &str) -> Value {
    Value::LongStr(text.into())
}

/// A durable queue `q` with arguments.
fn declare(world: &World, arguments: &[(&str, Value)]) -> CatalogCommand {
    let with =
        |command, (name, value): &(&str, Value)| world.with_argument(command, name, value.clone());
    arguments.iter().fold(world.declare("q"), with)
}

fn quorum() -> (&'static str, Value) {
    ("x-queue-type", text("quorum"))
}

/// Which argument is wrong, and how.
fn wrong(arguments: &[(&str, Value)]) -> (String, ArgumentProblem) {
    let world = World::new();
    match world.catalog.check(&declare(&world, arguments)) {
        Err(Refusal::InvalidArgument { name, vhost, argument, problem, .. }) => {
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
    assert_eq!(found, ("x-message-ttl".into(), of_stream));
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
    let world = World::new();
    let property = |durable, auto_delete, exclusive| {
        let command = declare(&world, &[quorum()]);
        let command = world.with_flags(command, durable, auto_delete, exclusive);
        match world.catalog.check(&command) {
            Err(Refusal::InvalidProperty { property, .. }) => Some(property),
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
    let command = declare(&world, &[quorum(), ("x-max-priority", Value::I8(5))]);
    let command = world.with_flags(command, false, true, true);
    assert!(matches!(world.catalog.check(&command), Err(Refusal::InvalidArgument { .. })));
}

#[test]
fn only_a_classic_queue_can_be_named_by_the_broker() {
    let world = World::new();
    let mut command = declare(&world, &[quorum()]);
    let CatalogCommand::DeclareQueue { name, server_named, .. } = &mut command else {
        unreachable!()
    };
    (*name, *server_named) = ("amq.gen-abc".into(), true);
    let refusal = Refusal::ServerNamed { queue_type: QueueType::Quorum };
    assert_eq!(world.catalog.check(&command), Err(refusal));
    // One that exists is compared, whoever made up its name.
    let mut world = World::new();
    world.apply(declare(&world, &[quorum()]));
    let mut again = declare(&world, &[quorum()]);
    if let CatalogCommand::DeclareQueue { server_named, .. } = &mut again {
        *server_named = true;
    }
    assert_eq!(world.catalog.check(&again), Ok(()));
}

#[test]
fn a_stream_is_understood_and_not_made() {
    let world = World::new();
    let age = ("x-max-age", text("7D"));
    let command = declare(&world, &[("x-queue-type", text("stream")), age]);
    let refusal = Refusal::NotImplemented { argument: "x-queue-type", value: "stream".into() };
    assert_eq!(world.catalog.check(&command), Err(refusal));
}

/// What the queue's group is told of it.
fn features(arguments: &[(&str, Value)]) -> Option<Features> {
    let mut world = World::new();
    let command = declare(&world, arguments);
    world.apply(command);
    let [CatalogEffect::QueueCreated { settings, .. }] = &world.effects[..] else {
        panic!("{arguments:?}: {:?}", world.effects);
    };
    assert_eq!(world.catalog.queue("/", "q").expect("the queue").settings(), settings);
    settings.features.as_deref().cloned()
}

#[test]
fn a_queue_whose_arguments_ask_for_nothing_has_no_features() {
    for arguments in [
        &[][..],
        &[("x-queue-type", text("classic"))],
        &[("x-queue-mode", text("lazy")), ("x-queue-version", Value::I32(2))],
        &[("x-queue-leader-locator", text("balanced")), ("x-queue-master-locator", text("any"))],
        &[("x-single-active-consumer", Value::Bool(false))],
        &[("x-message-deduplication", Value::Bool(false)), ("x-cache-ttl", Value::I32(5))],
        &[("x-max-priority", Value::I32(0)), ("x-overflow", text("reject-publish"))],
        &[("x-delayed-retry-type", text("disabled")), ("x-delayed-retry-min", Value::I8(5))],
        &[("x-delayed-retry-type", text("all"))],
        &[("x-consumer-timeout", Value::I32(1000))],
        &[("x-whatever", Value::Void), ("colour", text("blue"))],
    ] {
        assert_eq!(features(arguments), None, "{arguments:?}");
    }
}

#[test]
fn arguments_make_the_features_of_a_queue() {
    let none = Features::default;
    let counts = || Features { counts_returns: true, ..none() };
    type Case<'a> = (&'a [(&'a str, Value)], Features);
    let cases: &[Case<'_>] = &[
        (&[("x-message-ttl", Value::I32(0))], Features { message_ttl_ms: Some(0), ..none() }),
        (&[("x-expires", Value::I64(1))], Features { expires_ms: Some(1), ..none() }),
        (&[("x-max-length", Value::I32(0))], Features { max_length: Some(0), ..none() }),
        (
            &[("x-max-length-bytes", Value::U8(9)), ("x-overflow", text("reject-publish"))],
            Features { max_length_bytes: Some(9), overflow: Overflow::RejectPublish, ..none() },
        ),
        (
            &[("x-max-length", Value::U8(9)), ("x-overflow", text("reject-publish-dlx"))],
            Features { max_length: Some(9), overflow: Overflow::RejectPublishDlx, ..none() },
        ),
        (
            &[("x-max-length", Value::U8(9)), ("x-overflow", text("drop-head"))],
            Features { max_length: Some(9), ..none() },
        ),
        (&[("x-dead-letter-exchange", text(""))], Features { dead_letters: true, ..none() }),
        (&[("x-max-priority", Value::U8(255))], Features { max_priority: 255, ..none() }),
        (
            &[("x-single-active-consumer", Value::Bool(true))],
            Features { single_active: true, ..none() },
        ),
        (&[quorum()], counts()),
        (
            &[quorum(), ("x-delivery-limit", Value::I32(20))],
            Features { delivery_limit: Some(20), ..counts() },
        ),
        (
            &[quorum(), ("x-delivery-limit", Value::I64(i64::MAX))],
            Features { delivery_limit: Some(u32::MAX), ..counts() },
        ),
        (&[quorum(), ("x-delivery-limit", Value::I32(-1))], counts()),
        (&[quorum(), ("x-delivery-limit", text("many"))], counts()),
        (
            &[("x-delayed-retry-type", text("failed")), ("x-delayed-retry-min", Value::I8(5))],
            Features {
                retry: Some(Retry {
                    failed: true,
                    returned: false,
                    min_ms: 5,
                    max_ms: 315_360_000_000,
                }),
                ..counts()
            },
        ),
        (
            &[
                ("x-delayed-retry-type", text("all")),
                ("x-delayed-retry-min", Value::I8(5)),
                ("x-delayed-retry-max", Value::I8(9)),
            ],
            Features {
                retry: Some(Retry { failed: true, returned: true, min_ms: 5, max_ms: 9 }),
                ..counts()
            },
        ),
        (
            &[("x-message-deduplication", Value::Bool(true))],
            Features { dedup: Some(Dedup { window_ms: 60_000, entries_max: 100_000 }), ..none() },
        ),
        (
            &[
                ("x-message-deduplication", Value::Bool(true)),
                ("x-cache-ttl", Value::I32(7)),
                ("x-cache-size", Value::I32(1_000_000)),
            ],
            Features { dedup: Some(Dedup { window_ms: 7, entries_max: 1_000_000 }), ..none() },
        ),
    ];
    for (arguments, expected) in cases {
        assert_eq!(features(arguments).as_ref(), Some(expected), "{arguments:?}");
    }
}

#[test]
fn a_queue_tells_where_its_dead_letters_go_and_how_long_a_consumer_may_hold_a_message() {
    let mut world = World::new();
    let plain = world.queue("plain");
    let plain = world.catalog.queue_by_id(plain).unwrap();
    assert_eq!((plain.dead_letter_exchange(), plain.dead_letter_key()), (None, None));
    assert_eq!(plain.consumer_timeout_ms(), None);
    let arguments = [
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text("dead")),
        ("x-consumer-timeout", Value::I32(5)),
    ];
    let command = declare(&world, &arguments);
    world.apply(command);
    let queue = world.catalog.queue("/", "q").unwrap();
    assert_eq!((queue.dead_letter_exchange(), queue.dead_letter_key()), (Some(""), Some("dead")));
    assert_eq!(queue.consumer_timeout_ms(), Some(5));
    // What is none is taken, and is as if it were not there.
    for value in [Value::I8(-1), text("soon")] {
        let mut world = World::new();
        let command = declare(&world, &[("x-consumer-timeout", value)]);
        world.apply(command);
        assert_eq!(world.catalog.queue("/", "q").unwrap().consumer_timeout_ms(), None);
    }
}

#[test]
fn who_publishes_is_told_of_lanes_of_guards_and_of_memories() {
    let target_of = |arguments: &[(&str, Value)]| -> Target {
        let mut world = World::new();
        let command = declare(&world, arguments);
        world.apply(command);
        let queue = world.catalog.queue("/", "q").unwrap();
        let (target, plain) = (queue.target(), Target::plain(queue.id, queue.group));
        assert_eq!((target.queue, target.group), (plain.queue, plain.group));
        target
    };
    let told = |arguments: &[(&str, Value)]| {
        let target = target_of(arguments);
        (target.max_priority, target.is_guarded, target.dedups)
    };
    assert_eq!(told(&[]), (0, false, false));
    assert_eq!(told(&[("x-max-priority", Value::I32(9))]), (9, false, false));
    let limit = ("x-max-length", Value::I32(9));
    assert_eq!(told(std::slice::from_ref(&limit)), (0, false, false));
    for overflow in ["reject-publish", "reject-publish-dlx"] {
        let overflow = ("x-overflow", text(overflow));
        assert_eq!(told(&[limit.clone(), overflow.clone()]), (0, true, false));
        assert_eq!(told(&[overflow]), (0, false, false));
    }
    assert_eq!(told(&[("x-message-deduplication", Value::Bool(true))]), (0, false, true));
}

#[test]
fn a_lane_leads_to_its_queue() {
    let mut world = World::new();
    let command = declare(&world, &[("x-max-priority", Value::I32(9))]);
    world.apply(command);
    let queue = world.catalog.queue("/", "q").unwrap().id;
    for priority in [0, 9, 255] {
        assert_eq!(world.catalog.queue_by_id(queue.lane(priority)).unwrap().id, queue);
    }
}

/// Declared with these, then declared again with those: what differs.
fn difference(
    one: &[(&str, Value)],
    two: &[(&str, Value)],
) -> Option<(String, Compared, Compared)> {
    let mut world = World::new();
    let command = declare(&world, one);
    world.apply(command);
    match world.catalog.check(&declare(&world, two)) {
        Ok(()) => None,
        Err(Refusal::Inequivalent { difference, .. }) => {
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
fn an_exclusive_queue_is_not_durable_whatever_was_asked_for() {
    let mut world = World::new();
    let exclusive = |world: &World, durable, auto_delete| {
        world.with_flags(world.declare("q"), durable, auto_delete, true)
    };
    world.apply(exclusive(&world, true, false));
    assert!(!world.catalog.queue("/", "q").unwrap().durable);
    assert_eq!(world.catalog.check(&exclusive(&world, false, false)), Ok(()));
    assert_eq!(world.catalog.check(&exclusive(&world, true, false)), Ok(()));
    let different = world.catalog.check(&exclusive(&world, false, true));
    assert!(matches!(different, Err(Refusal::Inequivalent { .. })));
}

#[test]
fn arguments_given_twice_count_once_and_the_first_counts() {
    let twice = [("x-max-length", Value::I32(1)), ("x-max-length", Value::I32(2))];
    assert_eq!(features(&twice).map(|features| features.max_length), Some(Some(1)));
    let mut world = World::new();
    let arguments = Arguments(twice.map(|(name, value)| (name.to_owned(), value)).into());
    let mut command = world.declare("q");
    if let CatalogCommand::DeclareQueue { arguments: all, .. } = &mut command {
        *all = arguments;
    }
    world.apply(command.clone());
    assert_eq!(world.catalog.check(&command), Ok(()));
}
