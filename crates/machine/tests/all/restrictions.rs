//! What restricts users and vhosts beside permissions: topic permissions and limits; and what operators call things.

use crate::world::World;
use machine::{
    Arguments, Catalog, CatalogCommand, CatalogReply, Kind, LimitChange, QueueHome, QueueSettings,
    QueueSpec, QueueType, Refusal, UserLimits, UserLimitsChange, Version, VhostLimits,
    VhostLimitsChange, VhostMetadata, limits,
};

const VHOST: &str = "/";
const USER: &str = "guest";

/// A catalog of a cluster that has agreed on all this.
fn world() -> World {
    let mut world = World::new();
    world.apply(CatalogCommand::RaiseVersion { to: Version::POLICIES });
    world
}

fn topic(exchange: &str, write: &str, read: &str) -> CatalogCommand {
    CatalogCommand::SetTopicPermissions {
        user: USER.to_owned(),
        vhost: VHOST.to_owned(),
        exchange: exchange.to_owned(),
        write: write.to_owned(),
        read: read.to_owned(),
    }
}

fn user_limits(max_connections: Option<u32>, max_channels: Option<u32>) -> CatalogCommand {
    let limits = UserLimits { max_connections, max_channels };
    CatalogCommand::SetUserLimits { user: USER.to_owned(), change: limits.into() }
}

fn vhost_limits(max_connections: Option<u32>, max_queues: Option<u32>) -> CatalogCommand {
    let limits = VhostLimits { max_connections, max_queues };
    CatalogCommand::SetVhostLimits { vhost: VHOST.to_owned(), change: limits.into() }
}

fn metadata(description: String, tags: Vec<String>) -> CatalogCommand {
    let default_queue_type = Some(QueueType::Quorum);
    let metadata = VhostMetadata { description, tags, default_queue_type, is_traced: true };
    CatalogCommand::SetVhostMetadata { vhost: VHOST.to_owned(), metadata }
}

fn queue(name: &str) -> CatalogCommand {
    let spec = QueueSpec {
        queue_type: QueueType::Classic,
        settings: QueueSettings { is_durable: true, ..QueueSettings::default() },
        dead_letter: None,
        consumer_timeout_ms: None,
        members: None,
        partitions: 1,
    };
    CatalogCommand::CreateQueue {
        vhost: VHOST.to_owned(),
        name: name.to_owned(),
        home: QueueHome::Group,
        spec: Box::new(spec),
        arguments: Arguments::new(),
    }
}

fn every_kind() -> Vec<CatalogCommand> {
    vec![
        topic("x", ".*", ""),
        CatalogCommand::ClearTopicPermissions {
            user: USER.to_owned(),
            vhost: VHOST.to_owned(),
            exchange: Some("x".to_owned()),
        },
        user_limits(Some(1), None),
        vhost_limits(None, Some(1)),
        metadata("a shop".to_owned(), vec!["live".to_owned()]),
        CatalogCommand::SetClusterName { name: "east".to_owned() },
    ]
}

#[test]
fn all_of_them_are_refused_until_the_cluster_has_agreed_on_them() {
    let mut world = World::new();
    world.apply(CatalogCommand::RaiseVersion { to: Version::SPECS });
    let refusal = Refusal::NotYet { since: Version::POLICIES, agreed: Version::SPECS };
    for command in every_kind() {
        assert_eq!(world.catalog.check(&command), Err(refusal.clone()), "{command:?}");
    }
}

#[test]
fn they_are_encoded_and_kept_in_snapshots() {
    let mut world = world();
    for command in every_kind() {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        assert_eq!(CatalogCommand::decode(&bytes).as_ref(), Ok(&command));
        if !matches!(command, CatalogCommand::ClearTopicPermissions { .. }) {
            assert_eq!(world.apply(command), CatalogReply::Done);
        }
    }
    let restored = Catalog::restore(&world.catalog.snapshot()).unwrap();
    assert_eq!(restored.digest(), world.catalog.digest());
    let user = restored.user(USER).unwrap();
    assert_eq!(user.limits.max_connections, Some(1));
    assert!(user.topic_permissions(VHOST, "x").unwrap().write.allows("any"));
    let vhost = restored.vhost(VHOST).unwrap();
    assert_eq!(vhost.limits.max_queues, Some(1));
    assert_eq!((vhost.metadata.description.as_str(), restored.name()), ("a shop", "east"));
}

#[test]
fn a_topic_permission_takes_names_literally() {
    let mut world = world();
    world.apply(CatalogCommand::PutUser {
        name: "a.b".to_owned(),
        password_hash: String::new(),
        tags: Vec::new(),
    });
    world.apply(CatalogCommand::SetTopicPermissions {
        user: "a.b".to_owned(),
        vhost: VHOST.to_owned(),
        exchange: "x".to_owned(),
        write: "^{username}@{vhost}$".to_owned(),
        read: String::new(),
    });
    let user = world.catalog.user("a.b").unwrap();
    let permissions = user.topic_permissions(VHOST, "x").unwrap();
    assert!(permissions.write.allows("a.b@/"));
    assert!(!permissions.write.allows("axb@/"), "a dot of a name is a dot");
    assert_eq!(permissions.write.text(), "^{username}@{vhost}$", "shown as it was given");
    assert!(permissions.read.allows("") && !permissions.read.allows("a"), "empty: nothing");
}

#[test]
fn topic_permissions_go_with_their_vhost_and_user_and_stay_with_a_new_password() {
    let mut world = world();
    world.apply(topic("x", "a", "b"));
    world.apply(topic("y", "a", "b"));
    let put = |tag: &str| CatalogCommand::PutUser {
        name: USER.to_owned(),
        password_hash: "other".to_owned(),
        tags: vec![tag.to_owned()],
    };
    world.apply(user_limits(Some(3), None));
    world.apply(put("monitoring"));
    let count = |world: &World| {
        world.catalog.user(USER).map_or(0, |user| user.all_topic_permissions().count())
    };
    assert_eq!(count(&world), 2);
    assert_eq!(world.catalog.user(USER).unwrap().limits.max_connections, Some(3));
    let clear = |exchange: Option<&str>| CatalogCommand::ClearTopicPermissions {
        user: USER.to_owned(),
        vhost: VHOST.to_owned(),
        exchange: exchange.map(str::to_owned),
    };
    world.apply(clear(Some("x")));
    assert_eq!(count(&world), 1);
    world.apply(clear(None));
    assert_eq!(count(&world), 0);
    world.apply(topic("x", "a", "b"));
    world.apply(CatalogCommand::DeleteVhost { name: VHOST.to_owned() });
    world.apply(CatalogCommand::CreateVhost { name: VHOST.to_owned() });
    assert_eq!(count(&world), 0, "a new vhost of the name begins without");
}

#[test]
fn a_vhost_has_as_many_queues_as_its_limit_allows() {
    let mut world = world();
    world.apply(vhost_limits(None, Some(2)));
    for name in ["one", "two", "one"] {
        assert!(!matches!(world.apply(queue(name)), CatalogReply::Refused(_)), "{name}");
    }
    let (queue_name, vhost) = ("three".to_owned(), VHOST.to_owned());
    let refusal = Refusal::QueueLimit { queue: queue_name, vhost, max: 2 };
    assert_eq!(world.apply(queue("three")), CatalogReply::Refused(refusal));
    world.apply(vhost_limits(None, None));
    assert!(!matches!(world.apply(queue("three")), CatalogReply::Refused(_)));
    world.apply(vhost_limits(None, Some(0)));
    assert!(matches!(world.apply(queue("four")), CatalogReply::Refused(_)));
}

#[test]
fn a_change_of_one_limit_leaves_the_other() {
    let mut world = world();
    let one = |max_connections, max_channels| CatalogCommand::SetUserLimits {
        user: USER.to_owned(),
        change: UserLimitsChange { max_connections, max_channels },
    };
    world.apply(one(LimitChange::To(Some(3)), LimitChange::Stays));
    world.apply(one(LimitChange::Stays, LimitChange::To(Some(7))));
    let limits = |world: &World| world.catalog.user(USER).unwrap().limits;
    let both = UserLimits { max_connections: Some(3), max_channels: Some(7) };
    assert_eq!(limits(&world), both);
    world.apply(one(LimitChange::To(None), LimitChange::Stays));
    assert_eq!(limits(&world), UserLimits { max_connections: None, ..both });
    let of_vhost = |max_connections, max_queues| CatalogCommand::SetVhostLimits {
        vhost: VHOST.to_owned(),
        change: VhostLimitsChange { max_connections, max_queues },
    };
    world.apply(of_vhost(LimitChange::To(Some(3)), LimitChange::Stays));
    world.apply(of_vhost(LimitChange::Stays, LimitChange::To(Some(7))));
    let limits = world.catalog.vhost(VHOST).unwrap().limits;
    assert_eq!(limits, VhostLimits { max_connections: Some(3), max_queues: Some(7) });
}

#[test]
fn what_is_too_much_or_about_nobody_is_refused() {
    let mut world = world();
    let nobody = CatalogCommand::SetUserLimits {
        user: "nobody".to_owned(),
        change: UserLimitsChange::default(),
    };
    let refused = |world: &World, command: &CatalogCommand| world.catalog.check(command);
    assert!(matches!(refused(&world, &nobody), Err(Refusal::NotFound { kind: Kind::User, .. })));
    assert!(matches!(refused(&world, &topic("", "a", "b")), Err(Refusal::InvalidName { .. })));
    assert!(matches!(refused(&world, &topic("x", "(", "b")), Err(Refusal::InvalidPattern { .. })));
    let long = "d".repeat(limits::VHOST_DESCRIPTION_BYTES_MAX + 1);
    assert!(matches!(refused(&world, &metadata(long, Vec::new())), Err(Refusal::TooLarge { .. })));
    let tags = vec!["t".to_owned(); limits::TAGS_MAX + 1];
    let tagged = metadata(String::new(), tags);
    assert!(matches!(refused(&world, &tagged), Err(Refusal::TooLarge { .. })));
    let name = CatalogCommand::SetClusterName { name: "c".repeat(limits::NAME_BYTES_MAX + 1) };
    assert!(matches!(
        refused(&world, &name),
        Err(Refusal::InvalidName { kind: Kind::Cluster, .. })
    ));
    for number in 0..limits::TOPIC_PERMISSIONS_MAX {
        assert_eq!(world.apply(topic(&format!("x{number}"), "a", "b")), CatalogReply::Done);
    }
    assert!(matches!(refused(&world, &topic("more", "a", "b")), Err(Refusal::TooLarge { .. })));
    assert_eq!(refused(&world, &topic("x0", "c", "d")), Ok(()), "one that is there can change");
}
