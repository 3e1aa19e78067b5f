//! Events: what the catalog tells of its changes, and to whom.

use crate::world::World;
use machine::{Applied, CatalogCommand, Destination, SessionOwner, Version};

fn queue(name: &str) -> Destination {
    Destination::Queue(name.into())
}

#[test]
fn events_are_told_only_if_a_queue_is_bound_to_their_exchange() {
    let mut world = World::new();
    world.apply(CatalogCommand::RaiseVersion { to: Version::EVENTS });
    assert!(!world.catalog.has_listeners());
    let told = |world: &mut World, command| {
        let (at, mut told) = (Applied { index: 50, time_ms: 7 }, Vec::new());
        world.catalog.apply_and_tell(at, command, &mut Vec::new(), &mut told);
        told.into_iter().map(|it| (it.event.name, it.event.object)).collect::<Vec<_>>()
    };
    let create = |name: &str| CatalogCommand::CreateVhost { name: name.into() };
    assert_eq!(told(&mut world, create("unheard")), []);
    world.queue("events");
    world.apply(World::bind("amq.rabbitmq.event", queue("events"), "#"));
    assert!(world.catalog.has_listeners());
    let pair = |name: &str, object: &str| (name.to_owned(), object.to_owned());
    assert_eq!(told(&mut world, create("heard")), [pair("vhost.created", "heard")]);
    assert_eq!(told(&mut world, create("heard")), [], "nothing has changed");
    // What goes with something else is told, too.
    let mine = world.with_flags(world.declare("mine"), false, false, true);
    assert_eq!(told(&mut world, mine), [pair("queue.created", "mine")]);
    let SessionOwner { node, session } = World::owner(1);
    let ended = CatalogCommand::SessionEnded { node, session };
    assert_eq!(told(&mut world, ended), [pair("queue.deleted", "mine")]);
    let deleted = world.delete("events");
    assert_eq!(told(&mut world, deleted), [pair("queue.deleted", "events")]);
    assert!(!world.catalog.has_listeners());
}

#[test]
fn the_exchange_of_events_is_there_from_its_version_on_in_one_vhost() {
    let mut world = World::new();
    let has = |world: &World, vhost| world.catalog.exchange(vhost, "amq.rabbitmq.event").is_some();
    world.apply(CatalogCommand::RaiseVersion { to: Version::SPECS });
    assert!(!has(&world, "/"));
    world.apply(CatalogCommand::RaiseVersion { to: Version::EVENTS });
    world.apply(CatalogCommand::CreateVhost { name: "v".into() });
    assert!(has(&world, "/") && !has(&world, "v"));
    assert!(world.catalog.exchange("/", "amq.rabbitmq.event").is_some_and(|it| it.internal));
    world.apply(CatalogCommand::DeleteVhost { name: "/".into() });
    world.apply(CatalogCommand::CreateVhost { name: "/".into() });
    assert!(has(&world, "/"), "it comes back with its vhost");
}
