//! Policies: which counts for what, and what queues and exchanges are under them.

use crate::world::World;
use machine::{
    AppliesTo, Arguments, Catalog, CatalogCommand, CatalogEffect, CatalogReply, Corrupt,
    DeadLetter, ExchangeKind, ExchangeSpec, Features, Foreseen, Kind, Overflow, PolicyKind,
    PolicyRules, PolicySpec, QueueHome, QueueSettings, QueueSpec, QueueType, Rate, Rates, Refusal,
    Value, Version, Vhost, limits,
};

const VHOST: &str = "/";

/// A catalog of a cluster that has agreed on policies.
fn world() -> World {
    let mut world = World::new();
    world.apply(CatalogCommand::RaiseVersion { to: Version::POLICIES });
    world
}

fn features(spec: &mut QueueSpec) -> &mut Features {
    spec.settings.features.get_or_insert_default()
}

fn plain() -> QueueSpec {
    let settings = QueueSettings { is_durable: true, ..QueueSettings::default() };
    let (dead_letter, consumer_timeout_ms, members) = (None, None, None);
    QueueSpec {
        queue_type: QueueType::Classic,
        settings,
        dead_letter,
        consumer_timeout_ms,
        members,
        partitions: 1,
    }
}

fn declare(world: &mut World, name: &str, spec: QueueSpec) {
    let (vhost, name, arguments) = (VHOST.to_owned(), name.to_owned(), Arguments::new());
    let (home, spec) = (QueueHome::Group, Box::new(spec));
    world.apply(CatalogCommand::CreateQueue { vhost, name, home, spec, arguments });
}

fn put(
    name: &str,
    kind: PolicyKind,
    pattern: &str,
    priority: i32,
    rules: PolicyRules,
) -> CatalogCommand {
    let definition = Arguments::new().with("max-length", Value::I64(1));
    let (applies_to, pattern) = (AppliesTo::All, pattern.to_owned());
    let spec = Box::new(PolicySpec { pattern, applies_to, priority, rules, definition });
    CatalogCommand::PutPolicy { vhost: VHOST.to_owned(), name: name.to_owned(), kind, spec }
}

fn delete(name: &str, kind: PolicyKind) -> CatalogCommand {
    CatalogCommand::DeletePolicy { vhost: VHOST.to_owned(), name: name.to_owned(), kind }
}

fn length(max: u64) -> PolicyRules {
    PolicyRules { max_length: Some(max), ..PolicyRules::default() }
}

fn max_length(catalog: &Catalog, queue: &str) -> Option<u64> {
    catalog
        .queue(VHOST, queue)
        .expect("it was declared")
        .features()
        .and_then(|features| features.max_length)
}

/// Applies a command, and forgets the effects of those before.
fn apply(world: &mut World, command: CatalogCommand) {
    world.effects.clear();
    world.apply(command);
}

/// Of the queues that the last command has changed: their settings' lengths.
fn changed(world: &World) -> Vec<Option<u64>> {
    let changed = world.effects.iter().filter_map(|effect| match effect {
        CatalogEffect::QueueChanged { settings, .. } => {
            Some(settings.features.as_ref().and_then(|features| features.max_length))
        }
        CatalogEffect::QueueCreated { .. } | CatalogEffect::QueueDeleted { .. } => None,
    });
    changed.collect()
}

#[test]
fn policies_are_refused_until_the_cluster_has_agreed_on_them() {
    let mut world = World::new();
    world.apply(CatalogCommand::RaiseVersion { to: Version::SPECS });
    let refusal = Refusal::NotYet { since: Version::POLICIES, agreed: Version::SPECS };
    assert_eq!(world.catalog.check(&put("p", PolicyKind::User, ".*", 0, length(1))), Err(refusal));
}

/// What is said of a policy before it is put is what it does then, whichever others there are.
#[test]
fn what_a_policy_would_change_is_what_it_changes() {
    let mut world = world();
    for name in ["jobs.a", "jobs.b", "jobs.high", "other"] {
        declare(&mut world, name, plain());
    }
    apply(&mut world, put("high", PolicyKind::User, "high$", 9, length(1)));
    apply(&mut world, put("most", PolicyKind::Operator, "b$", 0, length(3)));
    let wanted = put("p", PolicyKind::User, "^jobs\\.", 0, length(5));
    let spec = spec_of(&wanted);
    let foreseen = Foreseen::of(vhost(&world), "p", PolicyKind::User, spec);
    assert_eq!(foreseen.matches, 3, "it matches the one that another governs, too");
    let named = foreseen.changes.iter().map(|it| it.queue.name.clone());
    assert_eq!(named.collect::<Vec<_>>(), ["jobs.a", "jobs.b"]);
    let after: Vec<_> = foreseen
        .changes
        .into_iter()
        .map(|change| (change.queue.name.clone(), change.after.map(|after| *after)))
        .collect();
    apply(&mut world, wanted.clone());
    for (name, after) in &after {
        let governed = world.catalog.queue(VHOST, name).unwrap().governed();
        assert_eq!(governed, after.as_ref(), "{name}");
    }
    let again = Foreseen::of(vhost(&world), "p", PolicyKind::User, spec);
    assert_eq!(again.changes.len(), 0, "it is there already");
}

fn vhost(world: &World) -> &Vhost {
    world.catalog.vhost(VHOST).expect("each catalog has it")
}

fn spec_of(command: &CatalogCommand) -> &PolicySpec {
    let CatalogCommand::PutPolicy { spec, .. } = command else { panic!("it puts a policy") };
    spec
}

#[test]
fn a_policy_acts_on_living_queues_and_on_those_that_come() {
    let mut world = world();
    declare(&mut world, "jobs.a", plain());
    declare(&mut world, "other", plain());
    apply(&mut world, put("p", PolicyKind::User, "^jobs\\.", 0, length(5)));
    assert_eq!(changed(&world), [Some(5)]);
    assert_eq!(max_length(&world.catalog, "jobs.a"), Some(5));
    assert_eq!(max_length(&world.catalog, "other"), None);
    world.effects.clear();
    declare(&mut world, "jobs.b", plain());
    let [CatalogEffect::QueueCreated { settings, .. }] = &world.effects[..] else {
        panic!("{:?}", world.effects)
    };
    assert_eq!(settings.features.as_ref().unwrap().max_length, Some(5));
    apply(&mut world, put("p", PolicyKind::User, "^jobs\\.b", 0, length(5)));
    assert_eq!(changed(&world), [None], "jobs.b stays as it was");
    apply(&mut world, delete("p", PolicyKind::User));
    assert_eq!(changed(&world), [None]);
    assert_eq!(world.catalog.queue(VHOST, "jobs.b").unwrap().features(), None, "plain again");
}

#[test]
fn the_highest_priority_counts_and_of_equal_ones_the_first_name() {
    let mut world = world();
    declare(&mut world, "q", plain());
    for (name, priority, max) in [("c", 1, 30), ("b", 2, 20), ("d", 2, 40), ("a", 0, 10)] {
        world.apply(put(name, PolicyKind::User, ".*", priority, length(max)));
    }
    let named = |world: &World| {
        let queue = world.catalog.queue(VHOST, "q").unwrap();
        (queue.governed().and_then(|it| it.policy.clone()), max_length(&world.catalog, "q"))
    };
    assert_eq!(named(&world), (Some("b".to_owned()), Some(20)));
    world.apply(delete("b", PolicyKind::User));
    assert_eq!(named(&world), (Some("d".to_owned()), Some(40)));
}

#[test]
fn limits_are_the_smallest_and_the_rest_is_said_by_the_queue_first() {
    let mut world = world();
    let mut own = plain();
    features(&mut own).max_length = Some(100);
    features(&mut own).message_ttl_ms = Some(1000);
    features(&mut own).dead_letters = true;
    own.dead_letter = Some(DeadLetter { exchange: "mine".into(), key: None });
    declare(&mut world, "q", own);
    let rules = PolicyRules {
        max_length: Some(50),
        message_ttl_ms: Some(5000),
        expires_ms: Some(70),
        overflow: Some(Overflow::RejectPublish),
        dead_letter_exchange: Some("theirs".into()),
        dead_letter_key: Some("key".into()),
        delivery_limit: Some(3),
        ..PolicyRules::default()
    };
    world.apply(put("p", PolicyKind::User, ".*", 0, rules));
    world.apply(put("o", PolicyKind::Operator, ".*", 0, length(7)));
    let queue = world.catalog.queue(VHOST, "q").unwrap();
    let features = queue.features().unwrap();
    assert_eq!((features.max_length, features.message_ttl_ms), (Some(7), Some(1000)));
    assert_eq!((features.expires_ms, features.overflow), (Some(70), Overflow::RejectPublish));
    assert_eq!(features.delivery_limit, None, "of quorum queues alone");
    assert_eq!(
        (queue.dead_letter_exchange(), queue.dead_letter_key()),
        (Some("mine"), Some("key"))
    );
    assert!(queue.target().is_guarded);
    let governed = queue.governed().unwrap();
    assert_eq!(governed.operator_policy.as_deref(), Some("o"));
}

#[test]
fn of_rates_the_slowest_counts_whoever_says_it() {
    let mut world = world();
    let rate = |count, per_ms| Rate::new(count, per_ms);
    let rules = |rates| PolicyRules { rates, ..PolicyRules::default() };
    let fast = Rates { dequeue: rate(500, 1_000), enqueue: rate(60, 60_000), ..Rates::default() };
    let policy = put("p", PolicyKind::User, ".*", 0, rules(fast));
    let early = world.catalog.check(&policy);
    assert!(matches!(early, Err(Refusal::NotYet { since: Version::RATES, .. })), "{early:?}");
    world.apply(CatalogCommand::RaiseVersion { to: Version::RATES });
    let mut own = plain();
    features(&mut own).rates = Rates { dequeue_burst: Some(7), ..Rates::default() };
    declare(&mut world, "q", own);
    world.apply(policy);
    let rates = |world: &World| {
        let queue = world.catalog.queue(VHOST, "q").unwrap();
        (queue.features().unwrap().rates, queue.target().is_guarded)
    };
    assert_eq!(rates(&world), (Rates { dequeue_burst: Some(7), ..fast }, true));
    let slow = Rates { dequeue: rate(1_000, 60_000), enqueue: rate(5, 1_000), ..Rates::default() };
    world.apply(put("o", PolicyKind::Operator, ".*", 0, rules(slow)));
    let both = Rates { dequeue: slow.dequeue, dequeue_burst: Some(7), ..fast };
    assert_eq!(rates(&world), (both, true), "a message a second is slower than five");
    world.apply(delete("p", PolicyKind::User));
    world.apply(delete("o", PolicyKind::Operator));
    let own = Rates { dequeue_burst: Some(7), ..Rates::default() };
    assert_eq!(rates(&world), (own, false));
}

#[test]
fn an_overflow_without_a_limit_waits_for_one() {
    let mut world = world();
    let mut own = plain();
    features(&mut own).overflow = Overflow::RejectPublish;
    declare(&mut world, "q", own);
    assert!(!world.catalog.queue(VHOST, "q").unwrap().target().is_guarded);
    world.apply(put("p", PolicyKind::User, ".*", 0, length(5)));
    assert!(world.catalog.queue(VHOST, "q").unwrap().target().is_guarded);
}

#[test]
fn an_exchange_has_the_alternate_that_a_policy_says() {
    let mut world = world();
    let spec = Box::new(ExchangeSpec::plain(ExchangeKind::Fanout));
    let (vhost, name, arguments) = (VHOST.to_owned(), "x".to_owned(), Arguments::new());
    let (auto_delete, internal, node) = (false, false, None);
    let create = CatalogCommand::CreateExchange {
        vhost,
        name,
        auto_delete,
        internal,
        node,
        spec,
        arguments,
    };
    let rules = PolicyRules { alternate: Some("spare".into()), ..PolicyRules::default() };
    world.apply(put("p", PolicyKind::User, "^x$", 0, rules));
    world.apply(create);
    let alternate =
        |world: &World| world.catalog.exchange(VHOST, "x").unwrap().alternate().map(str::to_owned);
    assert_eq!(alternate(&world).as_deref(), Some("spare"));
    world.apply(delete("p", PolicyKind::User));
    assert_eq!(alternate(&world), None);
}

#[test]
fn policies_come_back_from_a_snapshot_with_what_follows_from_them() {
    let mut world = world();
    declare(&mut world, "jobs", plain());
    world.apply(put("p", PolicyKind::User, "jobs", -3, length(5)));
    world.apply(put(
        "o",
        PolicyKind::Operator,
        "^j",
        7,
        PolicyRules {
            overflow: Some(Overflow::RejectPublishDlx),
            delivery_limit: Some(9),
            consumer_timeout_ms: Some(8),
            max_length_bytes: Some(4),
            ..length(6)
        },
    ));
    let bytes = world.catalog.snapshot();
    let restored = Catalog::restore(&bytes).unwrap();
    assert_eq!(restored.snapshot(), bytes);
    let (before, after) = (world.catalog.queue(VHOST, "jobs"), restored.queue(VHOST, "jobs"));
    let (before, after) = (before.unwrap(), after.unwrap());
    assert_eq!((before.spec(), before.governed()), (after.spec(), after.governed()));
    assert_eq!(before.target(), after.target());
    for end in 0..bytes.len() {
        assert!(Catalog::restore(&bytes[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn what_cannot_be_a_policy_is_refused() {
    let mut world = world();
    let check = |world: &World, command: &CatalogCommand| world.catalog.check(command);
    let wrong = check(&world, &put("p", PolicyKind::User, "(", 0, length(1)));
    assert!(matches!(wrong, Err(Refusal::InvalidPattern { .. })), "{wrong:?}");
    let wrong = check(&world, &put("", PolicyKind::User, ".*", 0, length(1)));
    assert!(matches!(wrong, Err(Refusal::InvalidName { kind: Kind::Policy, .. })), "{wrong:?}");
    let wrong = check(&world, &delete("none", PolicyKind::User));
    assert!(matches!(wrong, Err(Refusal::NotFound { kind: Kind::Policy, .. })), "{wrong:?}");
    for number in 0..limits::POLICIES_MAX {
        let reply = world.apply(put(&number.to_string(), PolicyKind::User, "none", 0, length(1)));
        assert_eq!(reply, CatalogReply::Done);
    }
    let one_more = check(&world, &put("one more", PolicyKind::User, "none", 0, length(1)));
    assert!(matches!(one_more, Err(Refusal::LimitReached { .. })), "{one_more:?}");
    assert_eq!(check(&world, &put("0", PolicyKind::User, "x", 0, length(1))), Ok(()));
    assert_eq!(check(&world, &put("o", PolicyKind::Operator, "x", 0, length(1))), Ok(()));
}

#[test]
fn a_command_that_says_more_than_is_known_is_of_another_version() {
    let mut bytes = Vec::new();
    put("p", PolicyKind::User, "x", 0, PolicyRules::default()).encode(&mut bytes);
    assert!(CatalogCommand::decode(&bytes).is_ok());
    // The bits of the rules lie behind the pattern, what it is about and the priority.
    let at = bytes.iter().position(|byte| *byte == b'x').unwrap() + 1 + 1 + 4;
    let mut newer = bytes.clone();
    newer[at + 1] = 0x40;
    let wrong: Result<_, Corrupt> = CatalogCommand::decode(&newer);
    assert!(wrong.unwrap_err().is_newer);
}
