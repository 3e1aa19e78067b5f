//! Users and vhosts that the load does not use: what there is of them, who may do what in which, and how much of it. What
//! a pattern allows is written down beside it, so that sessions are judged without the product's own matching.

use std::collections::{BTreeMap, BTreeSet};

use machine::{Catalog, CatalogCommand, UserLimits, VhostLimits};

use crate::sim::VHOST;
use crate::workload::Chance;

/// Vhosts that come and go.
pub(in crate::sim::clients) const SIDES: [&str; 2] = ["side-a", "side-b"];
/// Users that come and go.
pub(in crate::sim::clients) const USERS: [&str; 2] = ["ann", "bob"];
/// All of them log in with guest's.
pub(in crate::sim::clients) const PASSWORD: &str = "guest";
/// Queues that vhosts may have.
pub(super) const SPARES: [&str; 2] = ["spare-1", "spare-2"];
pub(in crate::sim::clients) const TOPIC: &str = "amq.topic";
const TAG: &str = "management";

/// A permission on names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim::clients) enum Grant {
    Nothing,
    Everything,
    /// What begins with `a-`.
    Own,
    /// As well, and what the broker has predeclared.
    OwnAndPredeclared,
}

/// A permission on routing keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim::clients) enum Keys {
    Nothing,
    Everything,
    /// What begins with `a.`.
    Own,
    /// What begins with the user's name.
    Named,
}

/// Configure, write and read.
pub(in crate::sim::clients) type Grants = [Grant; 3];
/// Write and read.
type Topics = [Keys; 2];

/// What a user is.
#[derive(Clone, Debug, Default)]
pub(in crate::sim::clients) struct User {
    has_tag: bool,
    pub(in crate::sim::clients) limits: UserLimits,
    pub(in crate::sim::clients) grants: BTreeMap<&'static str, Grants>,
    /// In the topic exchange of a vhost.
    pub(in crate::sim::clients) topics: BTreeMap<&'static str, Topics>,
}

/// What a vhost is, but for its policies.
#[derive(Clone, Debug, Default)]
pub(in crate::sim::clients) struct Side {
    pub(in crate::sim::clients) limits: VhostLimits,
    pub(in crate::sim::clients) queues: BTreeSet<&'static str>,
}

/// How all of it is to be in the end.
#[derive(Clone, Debug, Default)]
pub(in crate::sim::clients) struct Rights {
    pub(in crate::sim::clients) users: BTreeMap<&'static str, User>,
    pub(in crate::sim::clients) sides: BTreeMap<&'static str, Side>,
    cluster_name: &'static str,
}

impl Grant {
    const EACH: [Self; 4] = [Self::Nothing, Self::Everything, Self::Own, Self::OwnAndPredeclared];

    fn text(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Everything => ".*",
            Self::Own => "^a-",
            Self::OwnAndPredeclared => r"^(a-|amq\.)",
        }
    }

    pub(in crate::sim::clients) fn allows(self, name: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Own => name.starts_with("a-"),
            Self::OwnAndPredeclared => name.starts_with("a-") || name.starts_with("amq."),
        }
    }

    fn draw(chance: &mut Chance) -> Self {
        // Whoever may do nothing gets nowhere.
        if chance.percent(35) { Self::Everything } else { pick(&Self::EACH, chance) }
    }
}

impl Keys {
    const EACH: [Self; 4] = [Self::Nothing, Self::Everything, Self::Own, Self::Named];

    fn text(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Everything => ".*",
            Self::Own => r"^a\.",
            Self::Named => r"^{username}\.",
        }
    }

    pub(in crate::sim::clients) fn allows(self, key: &str, user: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Own => key.starts_with("a."),
            Self::Named => key.strip_prefix(user).is_some_and(|rest| rest.starts_with('.')),
        }
    }
}

fn pick<T: Copy>(of: &[T], chance: &mut Chance) -> T {
    of[chance.within(0, of.len() as u64) as usize]
}

fn user_limits(chance: &mut Chance) -> UserLimits {
    UserLimits {
        max_connections: pick(&[None, None, Some(0), Some(1), Some(2), Some(3)], chance),
        max_channels: pick(&[None, None, Some(1), Some(2)], chance),
    }
}

fn vhost_limits(chance: &mut Chance) -> VhostLimits {
    VhostLimits {
        max_connections: pick(&[None, None, Some(0), Some(1), Some(2)], chance),
        max_queues: pick(&[None, Some(2), Some(3)], chance),
    }
}

fn vhosts() -> impl Iterator<Item = &'static str> {
    [VHOST].into_iter().chain(SIDES)
}

impl Rights {
    pub(super) fn draw(chance: &mut Chance) -> Self {
        let mut rights = Self { cluster_name: pick(&["east", "west"], chance), ..Self::default() };
        for side in SIDES {
            if chance.percent(80) {
                let queues = SPARES.into_iter().filter(|_| chance.percent(70)).collect();
                rights.sides.insert(side, Side { limits: vhost_limits(chance), queues });
            }
        }
        for name in USERS {
            if !chance.percent(85) {
                continue;
            }
            let limits = user_limits(chance);
            let mut user = User { has_tag: chance.percent(50), limits, ..User::default() };
            for vhost in vhosts() {
                if vhost != VHOST && !rights.sides.contains_key(vhost) {
                    continue;
                }
                if chance.percent(75) {
                    user.grants.insert(vhost, [(); 3].map(|()| Grant::draw(chance)));
                }
                if chance.percent(50) {
                    user.topics.insert(vhost, [(); 2].map(|()| pick(&Keys::EACH, chance)));
                }
            }
            rights.users.insert(name, user);
        }
        rights
    }

    /// Some change or other. `password_hash` is that of all users.
    pub(super) fn any_change(password_hash: &str, chance: &mut Chance) -> CatalogCommand {
        let (user, side) = (pick(&USERS, chance), pick(&SIDES, chance));
        let vhost = if chance.percent(40) { VHOST } else { side };
        match chance.within(0, 12) {
            0 | 1 => CatalogCommand::CreateVhost { name: side.to_owned() },
            2 if chance.percent(50) => CatalogCommand::DeleteVhost { name: side.to_owned() },
            3 | 4 => put_user(user, password_hash, chance.percent(50)),
            5 if chance.percent(50) => CatalogCommand::DeleteUser { name: user.to_owned() },
            6 => {
                CatalogCommand::ClearPermissions { user: user.to_owned(), vhost: vhost.to_owned() }
            }
            7 => set_topics(user, vhost, [(); 2].map(|()| pick(&Keys::EACH, chance))),
            8 => CatalogCommand::ClearTopicPermissions {
                user: user.to_owned(),
                vhost: vhost.to_owned(),
                exchange: chance.percent(50).then(|| TOPIC.to_owned()),
            },
            9 => set_user_limits(user, user_limits(chance)),
            10 => set_vhost_limits(side, vhost_limits(chance)),
            11 => CatalogCommand::SetClusterName { name: pick(&["", "north"], chance).to_owned() },
            _ => set_grants(user, vhost, [(); 3].map(|()| Grant::draw(chance))),
        }
    }

    /// The first thing that is otherwise in a catalog than it is to be, and what makes it so.
    pub(super) fn difference(&self, catalog: &Catalog) -> Option<CatalogCommand> {
        self.vhosts_differ(catalog)
            .or_else(|| self.users_differ(catalog))
            .or_else(|| self.grants_differ(catalog))
            .or_else(|| self.limits_differ(catalog))
    }

    fn vhosts_differ(&self, catalog: &Catalog) -> Option<CatalogCommand> {
        let surplus = catalog
            .vhosts()
            .find(|vhost| vhost.name() != VHOST && !self.sides.contains_key(vhost.name()));
        if let Some(vhost) = surplus {
            return Some(CatalogCommand::DeleteVhost { name: vhost.name().to_owned() });
        }
        let missing = self.sides.keys().find(|side| catalog.vhost(side).is_none());
        missing.map(|side| CatalogCommand::CreateVhost { name: (*side).to_owned() })
    }

    fn users_differ(&self, catalog: &Catalog) -> Option<CatalogCommand> {
        let is_known = |name: &str| name == "guest" || self.users.contains_key(name);
        if let Some(user) = catalog.users().find(|user| !is_known(&user.name)) {
            return Some(CatalogCommand::DeleteUser { name: user.name.clone() });
        }
        let password_hash = &catalog.user("guest")?.password_hash;
        self.users.iter().find_map(|(name, user)| {
            let is_right = catalog.user(name).is_some_and(|found| {
                found.has_tag(TAG) == user.has_tag && found.password_hash == *password_hash
            });
            (!is_right).then(|| put_user(name, password_hash, user.has_tag))
        })
    }

    fn grants_differ(&self, catalog: &Catalog) -> Option<CatalogCommand> {
        for (name, user) in &self.users {
            let found = catalog.user(name)?;
            for (vhost, grants) in &user.grants {
                let texts = found.permissions(vhost).map(|permissions| {
                    let machine::Permissions { configure, write, read } = permissions;
                    [configure, write, read].map(|pattern| pattern.text().to_owned())
                });
                if texts != Some(grants.map(|grant| grant.text().to_owned())) {
                    return Some(set_grants(name, vhost, *grants));
                }
            }
            for (vhost, topics) in &user.topics {
                let texts = found.topic_permissions(vhost, TOPIC).map(|permissions| {
                    [&permissions.write, &permissions.read].map(|pattern| pattern.text().to_owned())
                });
                if texts != Some(topics.map(|keys| keys.text().to_owned())) {
                    return Some(set_topics(name, vhost, *topics));
                }
            }
            let mut all = found.all_permissions().map(|(vhost, _)| vhost);
            if let Some(vhost) = all.find(|vhost| !user.grants.contains_key(*vhost)) {
                let (user, vhost) = ((*name).to_owned(), vhost.to_owned());
                return Some(CatalogCommand::ClearPermissions { user, vhost });
            }
            let mut all =
                found.all_topic_permissions().map(|(vhost, exchange, _)| (vhost, exchange));
            let is_surplus = |(vhost, exchange): &(&str, &str)| {
                *exchange != TOPIC || !user.topics.contains_key(*vhost)
            };
            if let Some((vhost, exchange)) = all.find(is_surplus) {
                return Some(CatalogCommand::ClearTopicPermissions {
                    user: (*name).to_owned(),
                    vhost: vhost.to_owned(),
                    exchange: Some(exchange.to_owned()),
                });
            }
        }
        None
    }

    fn limits_differ(&self, catalog: &Catalog) -> Option<CatalogCommand> {
        let user = self.users.iter().find_map(|(name, user)| {
            let is_right = catalog.user(name).is_some_and(|found| found.limits == user.limits);
            (!is_right).then(|| set_user_limits(name, user.limits))
        });
        let vhost = || {
            self.sides.iter().find_map(|(name, side)| {
                let is_right = catalog.vhost(name).is_some_and(|found| found.limits == side.limits);
                (!is_right).then(|| set_vhost_limits(name, side.limits))
            })
        };
        let name = || {
            let name = self.cluster_name.to_owned();
            (catalog.name() != name).then_some(CatalogCommand::SetClusterName { name })
        };
        user.or_else(vhost).or_else(name)
    }
}

fn put_user(name: &str, password_hash: &str, has_tag: bool) -> CatalogCommand {
    let tags = has_tag.then(|| TAG.to_owned()).into_iter().collect();
    let (name, password_hash) = (name.to_owned(), password_hash.to_owned());
    CatalogCommand::PutUser { name, password_hash, tags }
}

fn set_grants(user: &str, vhost: &str, grants: Grants) -> CatalogCommand {
    let (user, vhost) = (user.to_owned(), vhost.to_owned());
    let [configure, write, read] = grants.map(|grant| grant.text().to_owned());
    CatalogCommand::SetPermissions { user, vhost, configure, write, read }
}

fn set_topics(user: &str, vhost: &str, topics: Topics) -> CatalogCommand {
    let (user, vhost, exchange) = (user.to_owned(), vhost.to_owned(), TOPIC.to_owned());
    let [write, read] = topics.map(|keys| keys.text().to_owned());
    CatalogCommand::SetTopicPermissions { user, vhost, exchange, write, read }
}

fn set_user_limits(user: &str, limits: UserLimits) -> CatalogCommand {
    CatalogCommand::SetUserLimits { user: user.to_owned(), change: limits.into() }
}

fn set_vhost_limits(vhost: &str, limits: VhostLimits) -> CatalogCommand {
    CatalogCommand::SetVhostLimits { vhost: vhost.to_owned(), change: limits.into() }
}
