//! The catalog as a client sees it: what may be declared, what is refused and how, who goes with whom.

use crate::world::World;
use machine::{
    Arguments, CatalogCommand, CatalogEffect, CatalogReply, Destination, ExchangeKind, GroupId,
    Kind, NodeId, Pattern, QueueId, Refusal, SessionOwner, Value,
};

#[test]
fn a_first_start_has_a_vhost_with_seven_exchanges_and_a_guest_who_may_do_all() {
    let world = World::new();
    let vhost = world.catalog.vhost("/").unwrap();
    let exchanges: Vec<_> = vhost
        .exchanges()
        .map(|exchange| (exchange.name.as_str(), exchange.kind().name(), exchange.internal))
        .collect();
    let expected = [
        ("", "direct", false),
        ("amq.direct", "direct", false),
        ("amq.fanout", "fanout", false),
        ("amq.headers", "headers", false),
        ("amq.match", "headers", false),
        ("amq.rabbitmq.trace", "topic", true),
        ("amq.topic", "topic", false),
    ];
    assert_eq!(exchanges, expected);
    assert!(vhost.exchanges().all(|exchange| exchange.durable));
    let guest = world.catalog.user("guest").unwrap();
    assert!(guest.has_tag("administrator"));
    assert!(guest.password_hash.starts_with("$argon2id$"));
    let permissions = world.catalog.permissions("guest", "/").unwrap();
    assert!(permissions.configure.allows("x") && permissions.write.allows(""));
}

#[test]
fn declaring_a_queue_again_finds_the_same_queue() {
    let mut world = World::new();
    let first = world.queue("q");
    let version = world.catalog.version();
    let reply = world.apply(world.declare("q"));
    let CatalogReply::QueueDeclared { queue, created: false, .. } = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(queue, first);
    assert_eq!(world.catalog.version(), version);
    assert_eq!(world.catalog.queue_by_id(first).unwrap().name, "q");
}

#[test]
fn durable_queues_are_spread_over_the_groups_and_others_live_with_their_node() {
    let mut world = World::new();
    for number in 0..9 {
        world.queue(&format!("q{number}"));
    }
    let groups: Vec<u32> = world.catalog.queues().map(|queue| queue.group.0).collect();
    assert_eq!(groups, [1, 2, 3, 4, 1, 2, 3, 4, 1]);
    world.apply(world.delete("q1"));
    world.queue("next");
    assert_eq!(world.catalog.queue("/", "next").unwrap().group, GroupId(2));
    let transient = world.with_flags(world.declare("t"), false, false, false);
    world.effects.clear();
    world.apply(transient);
    let queue = world.catalog.queue("/", "t").unwrap();
    assert_eq!((queue.group, queue.node), (GroupId::local(NodeId(1)), Some(NodeId(1))));
    let node = Some(NodeId(1));
    assert!(matches!(
        world.effects[..],
        [CatalogEffect::QueueCreated { group, node: found, .. }]
            if found == node && group.local_node() == node
    ));
}

#[test]
fn a_queue_id_is_never_used_again() {
    let mut world = World::new();
    let first = world.queue("q");
    world.apply(world.delete("q"));
    assert!(world.queue("q") > first);
}

#[test]
fn an_exclusive_queue_is_locked_for_everybody_else() {
    let mut world = World::new();
    world.apply(world.with_flags(world.declare("q"), false, false, true));
    let locked = Err(Refusal::Locked { name: "q".into(), vhost: "/".into() });
    let destination = Destination::Queue("q".into());
    let by = Some(World::owner(1));
    let bind = |is_bind, exchange, by| {
        World::binding(is_bind, exchange, destination.clone(), "k", Arguments::new(), by)
    };
    // But for what does not exist: that is told first, and what is not bound may be unbound.
    let theirs = Some(World::owner(2));
    assert_eq!(world.catalog.check(&bind(false, "amq.direct", theirs)), Ok(()));
    let missing = world.catalog.check(&bind(true, "missing", theirs));
    assert!(matches!(missing, Err(Refusal::NotFound { kind: Kind::Exchange, .. })));
    world.apply(bind(true, "amq.direct", by));
    for session in [1, 2] {
        let by = Some(World::owner(session));
        let commands = [
            CatalogCommand::DeleteQueue { vhost: "/".into(), name: "q".into(), queue: None, by },
            bind(true, "amq.direct", by),
            bind(false, "amq.direct", by),
        ];
        for command in commands {
            let expected = if session == 1 { Ok(()) } else { locked.clone() };
            assert_eq!(world.catalog.check(&command), expected, "{command:?}");
        }
    }
}

#[test]
fn what_is_there_stays_as_it_is_whatever_is_declared() {
    let mut world = World::new();
    world.queue("q");
    world.apply(world.exchange("x", ExchangeKind::Direct, true));
    let before = world.catalog.version();
    world.effects.clear();
    let ttl = world.with_argument(world.declare("q"), "x-message-ttl", Value::I32(60_000));
    let exclusive = world.by(world.with_flags(world.declare("q"), false, true, true), 2);
    for command in [ttl, exclusive] {
        let reply = world.apply_unchecked(command);
        assert!(matches!(reply, CatalogReply::QueueDeclared { created: false, .. }), "{reply:?}");
    }
    let reply = world.apply_unchecked(world.exchange("x", ExchangeKind::Topic, false));
    assert_eq!(reply, CatalogReply::ExchangeDeclared { created: false });
    assert_eq!(world.catalog.version(), before);
    assert!(world.effects.is_empty());
    assert_eq!(world.catalog.queue("/", "q").unwrap().features(), None);
    assert_eq!(world.catalog.exchange("/", "x").unwrap().kind(), ExchangeKind::Direct);
}

#[test]
fn exclusive_queues_go_with_their_session_and_all_that_is_in_memory_with_its_node() {
    let mut world = World::new();
    for (name, session, durable, exclusive) in
        [("a", 1, true, true), ("b", 1, false, false), ("c", 2, false, true), ("d", 1, true, false)]
    {
        let command = world.with_flags(world.declare(name), durable, false, exclusive);
        world.apply(world.by(command, session));
    }
    let SessionOwner { node, session } = World::owner(1);
    assert!(world.catalog.has_exclusive(World::owner(1)));
    assert!(!world.catalog.has_exclusive(World::owner(9)));
    world.effects.clear();
    world.apply(CatalogCommand::SessionEnded { node, session });
    let names = |world: &World| {
        world.catalog.queues().map(|queue| queue.name.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&world), "b c d");
    assert_eq!(world.effects.len(), 1);
    world.apply(world.by(world.exchange("x", ExchangeKind::Fanout, false), 1));
    world.apply(CatalogCommand::NodeStarted { node: NodeId(2) });
    assert_eq!(names(&world), "b c d");
    world.apply(CatalogCommand::NodeStarted { node });
    assert_eq!(names(&world), "d");
    assert!(world.catalog.exchange("/", "x").is_none());
    assert!(!world.catalog.has_exclusive(World::owner(2)));
}

#[test]
fn impossible_names_are_refused() {
    let world = World::new();
    for name in ["", "a\0b", &"n".repeat(256)] {
        let refusal = Refusal::InvalidName { kind: Kind::Queue, name: name.into() };
        assert_eq!(world.catalog.check(&world.declare(name)), Err(refusal));
    }
    assert_eq!(world.catalog.check(&world.declare(&"é".repeat(127))), Ok(()));
}

#[test]
fn deleting_what_is_not_there_is_success() {
    let mut world = World::new();
    assert_eq!(world.apply(world.delete("q")), CatalogReply::Done);
    assert_eq!(world.apply(World::delete_exchange("x", true)), CatalogReply::Done);
    let unbind = World::unbind("x", Destination::Queue("q".into()), "k");
    assert_eq!(world.apply(unbind), CatalogReply::Done);
    for command in [
        CatalogCommand::DeleteVhost { name: "v".into() },
        CatalogCommand::DeleteUser { name: "u".into() },
        CatalogCommand::ClearPermissions { user: "u".into(), vhost: "v".into() },
    ] {
        assert_eq!(world.apply(command), CatalogReply::Done);
    }
}

#[test]
fn a_delete_meant_for_an_earlier_queue_spares_its_successor() {
    let mut world = World::new();
    let first = world.queue("q");
    world.apply(world.delete("q"));
    let second = world.queue("q");
    let delete = |queue| CatalogCommand::DeleteQueue {
        vhost: "/".into(),
        name: "q".into(),
        queue: Some(queue),
        by: None,
    };
    assert_eq!(world.apply(delete(first)), CatalogReply::Done);
    let group = world.catalog.queue("/", "q").unwrap().group;
    let deleted = CatalogReply::QueueDeleted { queue: second, group };
    assert_eq!(world.apply(delete(second)), deleted);
}

#[test]
fn the_default_exchange_and_the_systems_exchanges_cannot_be_touched() {
    let mut world = World::new();
    world.queue("q");
    let queue = || Destination::Queue("q".into());
    for command in [
        World::delete_exchange("", false),
        World::bind("", queue(), "q"),
        World::unbind("", queue(), "q"),
        World::bind("amq.direct", Destination::Exchange("".into()), "q"),
    ] {
        assert_eq!(world.catalog.check(&command), Err(Refusal::DefaultExchange), "{command:?}");
    }
    let refusal = Refusal::SystemExchange { name: "amq.direct".into(), vhost: "/".into() };
    assert_eq!(world.catalog.check(&World::delete_exchange("amq.direct", false)), Err(refusal));
}

#[test]
fn an_exchange_in_use_is_not_deleted_if_unused() {
    let mut world = World::new();
    world.apply(world.exchange("x", ExchangeKind::Direct, true));
    world.queue("q");
    world.apply(World::bind("x", Destination::Queue("q".into()), "k"));
    let refusal = Refusal::InUse { kind: Kind::Exchange, name: "x".into(), vhost: "/".into() };
    assert_eq!(world.catalog.check(&World::delete_exchange("x", true)), Err(refusal));
    // Being a destination is no use.
    world.apply(world.exchange("y", ExchangeKind::Direct, true));
    world.apply(World::bind("x", Destination::Exchange("y".into()), "k"));
    assert_eq!(world.catalog.check(&World::delete_exchange("y", true)), Ok(()));
    world.apply(World::delete_exchange("x", false));
    assert!(world.catalog.exchange("/", "x").is_none());
    assert_eq!(world.catalog.vhost("/").unwrap().bindings().count(), 0);
}

#[test]
fn binding_what_is_not_there_is_refused_source_first() {
    let mut world = World::new();
    let missing = |world: &World, source: &str, destination| match world
        .catalog
        .check(&World::bind(source, destination, "k"))
    {
        Err(Refusal::NotFound { kind, name, .. }) => (kind, name),
        other => panic!("{other:?}"),
    };
    let queue = || Destination::Queue("q".into());
    assert_eq!(missing(&world, "x", queue()), (Kind::Exchange, "x".into()));
    assert_eq!(missing(&world, "amq.direct", queue()), (Kind::Queue, "q".into()));
    let exchange = Destination::Exchange("y".into());
    assert_eq!(missing(&world, "amq.direct", exchange), (Kind::Exchange, "y".into()));
    let mut command = world.declare("q");
    if let CatalogCommand::DeclareQueue { vhost, .. } = &mut command {
        *vhost = "nowhere".into();
    }
    let reply = world.apply(command);
    let CatalogReply::Refused(Refusal::NotFound { kind: Kind::Vhost, .. }) = reply else {
        panic!("{reply:?}");
    };
}

#[test]
fn equal_bindings_are_one_and_durable_if_both_ends_are() {
    let mut world = World::new();
    world.queue("q");
    world.apply(world.with_flags(world.declare("t"), false, false, false));
    let (one, two) = (("a".to_owned(), Value::I8(1)), ("b".to_owned(), Value::I8(2)));
    for pairs in [vec![one.clone(), two.clone()], vec![two, one]] {
        let destination = Destination::Queue("q".into());
        let arguments = Arguments(pairs);
        world.apply(World::binding(true, "amq.headers", destination, "", arguments, None));
    }
    world.apply(World::bind("amq.headers", Destination::Queue("t".into()), ""));
    let vhost = world.catalog.vhost("/").unwrap();
    let durable: Vec<bool> = vhost.bindings().map(|binding| vhost.is_durable(binding)).collect();
    assert_eq!(durable, [true, false]);
    assert_eq!(vhost.bindings_of_source("amq.headers").count(), 2);
    assert_eq!(vhost.bindings_of_destination(&Destination::Queue("q".into())).count(), 1);
}

#[test]
fn an_auto_delete_exchange_goes_with_its_last_binding_and_takes_others_along() {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        world.apply(world.auto_delete_exchange(name));
    }
    world.queue("q");
    // a -> b -> c -> q, and a second way out of a.
    world.apply(World::bind("a", Destination::Exchange("b".into()), ""));
    world.apply(World::bind("b", Destination::Exchange("c".into()), ""));
    world.apply(World::bind("c", Destination::Queue("q".into()), ""));
    world.apply(World::bind("a", Destination::Queue("q".into()), ""));
    let exists =
        |world: &World| ["a", "b", "c"].map(|name| world.catalog.exchange("/", name).is_some());
    world.apply(World::unbind("a", Destination::Queue("q".into()), ""));
    assert_eq!(exists(&world), [true, true, true]);
    world.apply(world.delete("q"));
    assert_eq!(exists(&world), [false, false, false]);
    assert_eq!(world.catalog.vhost("/").unwrap().bindings().count(), 0);
    // One that never had a binding stays; an unbind ends one as well.
    world.apply(world.auto_delete_exchange("d"));
    world.queue("q");
    world.apply(World::unbind("d", Destination::Queue("q".into()), ""));
    assert!(world.catalog.exchange("/", "d").is_some());
    world.apply(World::bind("d", Destination::Queue("q".into()), ""));
    world.apply(World::unbind("d", Destination::Queue("q".into()), ""));
    assert!(world.catalog.exchange("/", "d").is_none());
}

#[test]
fn a_vhost_goes_with_all_that_is_in_it() {
    let mut world = World::new();
    world.apply(CatalogCommand::CreateVhost { name: "v".into() });
    world.apply(World::permissions("guest", "v", [".*"; 3]));
    let mut command = world.declare("q");
    if let CatalogCommand::DeclareQueue { vhost, .. } = &mut command {
        *vhost = "v".into();
    }
    world.apply(command);
    assert!(world.catalog.queue("v", "q").is_some() && world.catalog.queue("/", "q").is_none());
    assert!(world.catalog.permissions("guest", "v").is_some());
    world.effects.clear();
    world.apply(CatalogCommand::DeleteVhost { name: "v".into() });
    assert!(matches!(world.effects[..], [CatalogEffect::QueueDeleted { queue: QueueId(1), .. }]));
    assert!(world.catalog.vhost("v").is_none() && world.catalog.queues().count() == 0);
    assert!(world.catalog.permissions("guest", "v").is_none());
}

#[test]
fn permissions_are_anchored_by_their_own_words_only() {
    let cases = [
        ("", "", true),
        ("", "a", false),
        ("^$", "a", false),
        (".*", "anything", true),
        ("^team-", "team-a", true),
        ("^team-", "my-team-a", false),
        ("team", "my-team-a", true),
        ("^(a|b)$", "b", true),
        ("^(a|b)$", "bb", false),
    ];
    for (pattern, name, allowed) in cases {
        assert_eq!(Pattern::new(pattern).unwrap().allows(name), allowed, "{pattern} {name}");
    }
    let mut world = World::new();
    for bad in ["(", "(?=x)", "\\1", "(a{1000}){1000}"] {
        let reply = world.apply(World::permissions("guest", "/", [bad, "", ""]));
        let refusal = Refusal::InvalidPattern { pattern: bad.into() };
        assert_eq!(reply, CatalogReply::Refused(refusal));
    }
    let reply = world.apply(World::permissions("nobody", "/", [""; 3]));
    let CatalogReply::Refused(Refusal::NotFound { kind: Kind::User, .. }) = reply else {
        panic!("{reply:?}");
    };
}

#[test]
fn changing_a_user_keeps_permissions_and_deleting_one_does_not() {
    let mut world = World::new();
    let put = || CatalogCommand::PutUser {
        name: "ann".into(),
        password_hash: String::new(),
        tags: vec!["monitoring".into()],
    };
    world.apply(put());
    assert!(world.catalog.permissions("ann", "/").is_none());
    world.apply(World::permissions("ann", "/", ["^a", "^b", "^c"]));
    world.apply(put());
    let permissions = world.catalog.permissions("ann", "/").unwrap();
    assert!(permissions.configure.allows("a") && !permissions.write.allows("a"));
    assert_eq!(permissions.read.text(), "^c");
    world.apply(CatalogCommand::DeleteUser { name: "ann".into() });
    world.apply(put());
    assert!(world.catalog.permissions("ann", "/").is_none());
    assert_eq!(world.catalog.user("ann").unwrap().password_hash, "");
}

#[test]
fn a_refused_command_changes_nothing() {
    let mut world = World::new();
    let (digest, version) = (world.catalog.digest(), world.catalog.version());
    let at = world.catalog.applied_index();
    let reply = world.catalog.apply(
        machine::Applied { index: at, time_ms: 0 },
        World::bind("x", Destination::Queue("q".into()), ""),
        &mut world.effects,
    );
    assert!(matches!(reply, CatalogReply::Refused(_)));
    assert_eq!((world.catalog.digest(), world.catalog.version()), (digest, version));
    assert!(world.effects.is_empty());
}
