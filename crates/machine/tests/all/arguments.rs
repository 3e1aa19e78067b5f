//! What the arguments of a declaration of before version 8 make of a queue: it must never change.

use crate::world::World;
use machine::{
    Arguments, CatalogCommand, CatalogEffect, Dedup, Features, Overflow, Retry, Target, Value,
};

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
fn who_publishes_is_told_of_levels_of_guards_and_of_memories() {
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
fn a_level_leads_to_its_queue() {
    let mut world = World::new();
    let command = declare(&world, &[("x-max-priority", Value::I32(9))]);
    world.apply(command);
    let queue = world.catalog.queue("/", "q").unwrap().id;
    for priority in [0, 9, 255] {
        assert_eq!(world.catalog.queue_by_id(queue.level(priority)).unwrap().id, queue);
    }
}

#[test]
fn an_exclusive_queue_is_not_durable_whatever_was_asked_for() {
    let mut world = World::new();
    let exclusive = |world: &World, durable, auto_delete| {
        world.with_flags(world.declare("q"), durable, auto_delete, true)
    };
    world.apply(exclusive(&world, true, false));
    assert!(!world.catalog.queue("/", "q").unwrap().durable);
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
