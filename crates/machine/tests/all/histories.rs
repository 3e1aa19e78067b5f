//! Exchanges of recent history: each has a queue with its last messages, which comes and goes with it.

use crate::world::World;
use machine::{
    Arguments, CatalogCommand, CatalogEffect, CatalogReply, Destination, ExchangeKind, Headers,
    Kind, NoHeaders, NodeId, QueueId, Refusal, Target, Value,
};

const HISTORY: &str = "amq.recent-history.x";

fn text(text: &str) -> Value {
    Value::LongStr(text.into())
}

fn queue(name: &str) -> Destination {
    Destination::Queue(name.into())
}

/// Exchange `x`, durable or not, and queue `a` bound to it.
fn world_with(durable: bool) -> World {
    let mut world = World::new();
    world.apply(world.exchange("x", ExchangeKind::RecentHistory, durable));
    world.queue("a");
    world.apply(World::bind("x", queue("a"), ""));
    world
}

fn history(world: &World) -> Option<Target> {
    world.catalog.exchange("/", "x").expect("the exchange").history()
}

/// How many queues get a message, and whether the history does.
fn route(world: &World, headers: &dyn Headers) -> (usize, bool) {
    let mut targets = Vec::new();
    world.catalog.route("/", "x", "k", headers, &mut targets).expect("a known exchange");
    let kept: Vec<_> = targets.iter().filter(|target| target.is_history).collect();
    assert!(kept.iter().all(|target| Some(**target) == history(world)));
    (targets.len() - kept.len(), !kept.is_empty())
}

#[test]
fn the_length_of_a_recent_history_bounds_its_queue() {
    let mut world = World::new();
    let declare = |world: &World, value| {
        let command = world.exchange("x", ExchangeKind::RecentHistory, true);
        world.with_argument(command, "x-recent-history-length", value)
    };
    world.apply(declare(&world, Value::I16(3)));
    let length =
        |world: &World| world.catalog.queue("/", HISTORY).unwrap().features().unwrap().max_length;
    assert_eq!(length(&world), Some(3));
    world.apply(World::delete_exchange("x", false));
    world.apply(world.exchange("x", ExchangeKind::RecentHistory, true));
    assert_eq!(length(&world), Some(20));
}

#[test]
fn a_history_gets_every_message_and_is_nobody_it_was_routed_to() {
    let mut world = world_with(true);
    assert_eq!(route(&world, &NoHeaders), (1, true));
    world.apply(World::unbind("x", queue("a"), ""));
    assert_eq!(route(&world, &NoHeaders), (0, true));
    let silent = Arguments::new().with("x-recent-history-no-store", Value::Bool(true));
    assert_eq!(route(&world, &silent), (0, false));
    let other = Arguments::new().with("x-recent-history-no-store", text("true"));
    assert_eq!(route(&world, &other), (0, true));
    assert_eq!(world.catalog.exchange("/", "amq.fanout").unwrap().history(), None);
}

#[test]
fn a_message_nobody_took_is_kept_and_goes_to_the_alternate() {
    let mut world = World::new();
    let command = world.exchange("x", ExchangeKind::RecentHistory, true);
    world.apply(world.with_argument(command, "alternate-exchange", text("amq.fanout")));
    world.queue("spare");
    world.apply(World::bind("amq.fanout", queue("spare"), ""));
    assert_eq!(route(&world, &NoHeaders), (1, true));
}

#[test]
fn a_delayed_exchange_may_have_a_history_too() {
    let mut world = World::new();
    let command = world.exchange("x", ExchangeKind::DelayedMessage, true);
    world.apply(world.with_argument(command, "x-delayed-type", text("x-recent-history")));
    assert_eq!(route(&world, &NoHeaders), (0, true));
}

#[test]
fn a_history_is_created_and_deleted_with_its_exchange() {
    let mut world = World::new();
    world.apply(world.exchange("x", ExchangeKind::RecentHistory, true));
    let id = history(&world).unwrap().queue;
    let [CatalogEffect::QueueCreated { queue, settings, .. }] = &world.effects[..] else {
        panic!("{:?}", world.effects);
    };
    assert_eq!((*queue, settings.is_durable), (id, true));
    // Declared again it is the same.
    world.apply(world.exchange("x", ExchangeKind::RecentHistory, true));
    assert_eq!((history(&world).unwrap().queue, world.effects.len()), (id, 1));
    world.effects.clear();
    world.apply(World::delete_exchange("x", false));
    let deleted = |world: &World| -> Vec<QueueId> {
        let ids = world.effects.iter().map(|effect| match effect {
            CatalogEffect::QueueDeleted { queue, .. } => *queue,
            other => panic!("{other:?}"),
        });
        ids.collect()
    };
    assert_eq!(deleted(&world), [id]);
    assert_eq!(world.catalog.queues().count(), 0);
}

#[test]
fn a_history_goes_however_its_exchange_goes() {
    let auto_delete = |name: &str| {
        let mut command = World::new().exchange(name, ExchangeKind::RecentHistory, true);
        if let CatalogCommand::DeclareExchange { auto_delete, .. } = &mut command {
            *auto_delete = true;
        }
        command
    };
    // With its last binding, with the queue it was bound to, and with an exchange it was bound to.
    for last in [
        World::unbind("x", queue("a"), ""),
        World::new().delete("a"),
        World::delete_exchange("y", false),
    ] {
        let mut world = World::new();
        world.queue("a");
        world.apply(auto_delete("x"));
        world.apply(world.exchange("y", ExchangeKind::Fanout, true));
        let destination = match last {
            CatalogCommand::DeleteExchange { .. } => Destination::Exchange("y".into()),
            _ => queue("a"),
        };
        world.apply(World::bind("x", destination, ""));
        world.apply(last);
        assert!(world.catalog.exchange("/", "x").is_none());
        assert!(world.catalog.queue("/", HISTORY).is_none());
    }
    // With its vhost.
    let mut world = world_with(true);
    world.apply(CatalogCommand::DeleteVhost { name: "/".into() });
    assert_eq!(world.catalog.queues().count(), 0);
}

#[test]
fn one_history_may_take_the_next_along() {
    let mut world = World::new();
    for name in ["x", "y"] {
        let mut command = world.exchange(name, ExchangeKind::RecentHistory, true);
        if let CatalogCommand::DeclareExchange { auto_delete, .. } = &mut command {
            *auto_delete = name == "y";
        }
        world.apply(command);
    }
    // The history of x is all that y leads to.
    world.apply(World::bind("y", queue(HISTORY), ""));
    world.apply(World::delete_exchange("x", false));
    assert!(world.catalog.exchange("/", "y").is_none());
    assert_eq!(world.catalog.queues().count(), 0);
}

#[test]
fn the_history_of_a_transient_exchange_lives_and_goes_with_its_node() {
    let mut world = world_with(false);
    let kept = world.catalog.queue("/", HISTORY).unwrap();
    assert_eq!((kept.node, kept.durable), (Some(NodeId(1)), false));
    assert_eq!(history(&world), Some(kept.target()));
    world.apply(CatalogCommand::NodeStarted { node: NodeId(1) });
    assert!(world.catalog.exchange("/", "x").is_none());
    assert!(world.catalog.queue("/", HISTORY).is_none());
}

#[test]
fn nobody_deletes_a_history_but_with_its_exchange() {
    let world = world_with(true);
    let reserved = Err(Refusal::Reserved { kind: Kind::Queue, name: HISTORY.into() });
    assert_eq!(world.catalog.check(&world.delete(HISTORY)), reserved);
    // That of an exchange without one is a name like another.
    assert_eq!(world.catalog.check(&world.delete("amq.recent-history.y")), Ok(()));
}

#[test]
fn a_history_counts_as_a_queue() {
    let mut world = World::new();
    let max = 100;
    let bounds = machine::Bounds { queues: max, ..machine::Bounds::default() };
    world.catalog = world.catalog.with_bounds(bounds);
    for number in 0..max {
        world.queue(&number.to_string());
    }
    let command = world.exchange("x", ExchangeKind::RecentHistory, true);
    let reply = world.apply_unchecked(command);
    let refusal = Refusal::LimitReached { kind: Kind::Queue, max };
    assert_eq!(reply, CatalogReply::Refused(refusal));
}
