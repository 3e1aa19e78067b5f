//! The audit trail: every change that an operator makes is remembered with who, whence and when, within bounds.

use crate::world::World;
use machine::{
    Actor, Applied, Arguments, AuditRecord, Catalog, CatalogCommand, CatalogReply, Event, Refusal,
    UserLimits, Value, Version, limits,
};

/// A catalog of a cluster that has agreed on the trail.
fn world() -> World {
    let mut world = World::new();
    world.apply(CatalogCommand::RaiseVersion { to: Version::AUDITED });
    world
}

fn ann() -> Actor {
    Actor::new("ann", "10.0.0.7:4711")
}

fn create(name: &str) -> CatalogCommand {
    CatalogCommand::CreateVhost { name: name.to_owned() }
}

fn put_user(password_hash: &str, tags: &[&str]) -> CatalogCommand {
    CatalogCommand::PutUser {
        name: "bob".to_owned(),
        password_hash: password_hash.to_owned(),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
    }
}

fn note(event: Event) -> CatalogCommand {
    CatalogCommand::Note { by: ann(), event: Box::new(event) }
}

fn records(world: &World) -> Vec<&AuditRecord> {
    world.catalog.audit().collect()
}

fn names(world: &World) -> Vec<&str> {
    world.catalog.audit().map(|record| record.event.name.as_str()).collect()
}

#[test]
fn a_change_is_remembered_with_who_whence_and_when() {
    let mut world = world();
    let (at, mut effects) = (Applied { index: 90, time_ms: 1_700_000_000_123 }, Vec::new());
    let reply = world.catalog.apply(at, create("shop").by(ann()), &mut effects);
    assert_eq!(reply, CatalogReply::Done);
    assert!(world.catalog.vhost("shop").is_some(), "the change itself is made");
    let event = Event::new("vhost.created", "shop", "shop");
    let expected = AuditRecord { number: 1, at_ms: at.time_ms, by: ann(), event };
    assert_eq!(records(&world), [&expected]);
    let restored = Catalog::restore(&world.catalog.snapshot()).expect("our own snapshot");
    assert_eq!(restored.audit().collect::<Vec<_>>(), [&expected]);
}

#[test]
fn what_is_refused_or_changes_nothing_is_not_remembered_nor_is_what_nobody_administers() {
    let mut world = world();
    assert_eq!(world.apply(create("shop")), CatalogReply::Done);
    assert_eq!(world.apply(create("shop").by(ann())), CatalogReply::Done);
    let refused = world.apply(create("").by(ann()));
    assert!(matches!(refused, CatalogReply::Refused(Refusal::InvalidName { .. })));
    let limits = UserLimits { max_connections: Some(1), max_channels: None };
    let of_nobody =
        CatalogCommand::SetUserLimits { user: "nobody".to_owned(), change: limits.into() };
    let refused = world.apply(of_nobody.by(ann()));
    assert!(matches!(refused, CatalogReply::Refused(Refusal::NotFound { .. })));
    assert_eq!(records(&world), Vec::<&AuditRecord>::new());
}

#[test]
fn a_password_is_never_in_it_and_its_change_is() {
    let mut world = world();
    for (hash, tags) in
        [("canary-1", &["management"][..]), ("canary-1", &[]), ("canary-2", &[]), ("", &[])]
    {
        world.apply(put_user(hash, tags).by(ann()));
    }
    let expected =
        ["user.created", "user.tags.set", "user.password.changed", "user.password.cleared"];
    assert_eq!(names(&world), expected);
    for record in records(&world) {
        assert!(!format!("{record:?}").contains("canary"), "{record:?}");
        // Texts of tables are bytes.
        let mut bytes = Vec::new();
        record.event.details.encode(&mut bytes);
        assert!(!String::from_utf8_lossy(&bytes).contains("canary"), "{record:?}");
    }
}

#[test]
fn what_is_no_change_of_the_catalog_is_remembered_and_spoils_no_route() {
    let mut world = world();
    let version = world.catalog.version();
    let details = Arguments::new().with("messages", Value::I64(3));
    let event = Event::new("queue.purged", "/", "orders").with(details);
    assert_eq!(world.apply(note(event.clone())), CatalogReply::Done);
    assert_eq!(records(&world)[0].event, event);
    assert_eq!(world.catalog.version(), version);
}

#[test]
fn the_newest_records_are_kept_as_many_as_may_be() {
    let mut world = world();
    let more = 5;
    for number in 0..limits::AUDIT_RECORDS_MAX + more {
        world.apply_unchecked(note(Event::new("queue.purged", "/", &number.to_string())));
    }
    let found = records(&world);
    assert_eq!(found.len(), limits::AUDIT_RECORDS_MAX);
    assert_eq!((found[0].number, &*found[0].event.object), (1 + more as u64, "5"));
    // Where the numbers stand comes back, too.
    world.apply(note(Event::new("queue.purged", "/", "last")));
    let last = records(&world).pop().expect("a record");
    assert_eq!(last.number as usize, limits::AUDIT_RECORDS_MAX + more + 1);
}

#[test]
fn records_together_take_no_more_bytes_than_they_may() {
    let mut world = world();
    let text = Value::LongStr(vec![b'x'; limits::EVENT_DETAILS_BYTES_MAX - 64]);
    let event = Event::new("policy.set", "/", "p").with(Arguments::new().with("long", text));
    assert!(event.details.find("long").is_some(), "it fits");
    for _ in 0..3_000 {
        world.apply_unchecked(note(event.clone()));
    }
    let count = records(&world).len();
    let bytes = count * limits::EVENT_DETAILS_BYTES_MAX;
    let max = limits::AUDIT_BYTES_MAX;
    assert!(bytes > max * 9 / 10 && bytes < max + max / 10, "{count} records");
    assert!(world.catalog.snapshot().len() < max + 64 * 1024);
    world.apply(note(event));
}

#[test]
fn an_event_that_says_too_much_is_cut_or_refused() {
    let long = |bytes| Value::LongStr(vec![b'x'; bytes]);
    let much = Arguments::new().with("long", long(limits::EVENT_DETAILS_BYTES_MAX));
    let event = Event::new("policy.set", "/", "p").with(much.clone());
    assert_eq!(event.details.find("details_left_out"), Some(&Value::Bool(true)));
    let mut world = world();
    let uncut = Event { details: much, ..event };
    let refused = CatalogReply::Refused(Refusal::ArgumentsTooLarge);
    assert_eq!(world.apply(note(uncut)), refused);
    let long = "x".repeat(limits::NAME_BYTES_MAX + 1);
    for command in [
        note(Event::new("queue.purged", "/", &long)),
        create("shop").by(Actor::new(long.clone(), "")),
    ] {
        let refused = world.apply(command);
        assert!(matches!(refused, CatalogReply::Refused(Refusal::InvalidName { .. })));
    }
    assert_eq!(records(&world), Vec::<&AuditRecord>::new());
}

#[test]
fn before_its_version_nothing_is_wrapped() {
    let mut world = World::new();
    world.apply(CatalogCommand::RaiseVersion { to: Version::SPECS });
    let refusal = Refusal::NotYet { since: Version::AUDITED, agreed: Version::SPECS };
    for command in [create("shop").by(ann()), note(Event::new("queue.purged", "/", "q"))] {
        assert_eq!(world.apply(command), CatalogReply::Refused(refusal.clone()));
    }
}

#[test]
fn one_change_has_one_actor() {
    let mut bytes = Vec::new();
    create("shop").by(ann()).encode(&mut bytes);
    let inner = bytes.clone();
    // The number and the actor, then what is inside.
    let mut plain = Vec::new();
    create("shop").encode(&mut plain);
    bytes.truncate(bytes.len() - plain.len());
    bytes.extend(inner);
    assert!(CatalogCommand::decode(&bytes).is_err());
}
