//! Who may ask what: one function, refusing by default.
//!
//! What a user may do is said by tags, as in RabbitMQ: `management`, `policymaker`, `monitoring`, `administrator`. A
//! user with the tag `read-only` is shown what its other tags show it, and changes nothing, whatever it has permission
//! for. What is in messages is private: besides administrators only users with the tag `peek` see it without taking the
//! messages, and only of queues that they may read.

use std::collections::BTreeSet;

use machine::{Catalog, User};
use oauth::Grant;

/// Who asks, as far as it says what may be done: a user of the catalog, or the owner of a token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who<'a> {
    User(&'a User),
    Token(&'a Grant),
}

impl<'a> Who<'a> {
    /// The owner of the token, if one was shown, or else the user of this name, if there is one.
    pub(crate) fn find(catalog: &'a Catalog, name: &str, grant: Option<&'a Grant>) -> Option<Self> {
        let user = || catalog.user(name).map(Self::User);
        grant.map(Self::Token).or_else(user)
    }

    pub(crate) fn name(self) -> &'a str {
        match self {
            Self::User(user) => &user.name,
            Self::Token(grant) => &grant.user,
        }
    }

    pub(crate) fn tags(self) -> &'a [String] {
        match self {
            Self::User(user) => &user.tags,
            Self::Token(grant) => grant.tags(),
        }
    }

    /// Whether the catalog knows the user.
    pub(crate) fn is_user(self) -> bool {
        match self {
            Self::User(_) => true,
            Self::Token(_) => false,
        }
    }

    fn has_tag(self, tag: &str) -> bool {
        self.tags().iter().any(|own| own == tag)
    }

    /// Whether messages of a queue of this name may be read, or the value of a lock.
    pub(crate) fn reads(self, vhost: &str, queue: &str) -> bool {
        match self {
            Self::User(user) => user.permissions(vhost).is_some_and(|it| it.read.allows(queue)),
            Self::Token(grant) => grant.allows(oauth::Right::Read, vhost, queue),
        }
    }

    /// Whether something of this name may be written to.
    pub(crate) fn writes(self, vhost: &str, name: &str) -> bool {
        match self {
            Self::User(user) => user.permissions(vhost).is_some_and(|it| it.write.allows(name)),
            Self::Token(grant) => grant.allows(oauth::Right::Write, vhost, name),
        }
    }

    /// Whether there are permissions in the vhost.
    fn enters(self, vhost: &str) -> bool {
        match self {
            Self::User(user) => user.permissions(vhost).is_some(),
            Self::Token(grant) => grant.enters(vhost),
        }
    }
}

/// What a route asks of its user. `Visible`, `Vhost` and `Policies` are about the vhost in the path; if it is not there,
/// nobody may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Any user of the API.
    User,
    /// To see a vhost: to have permissions in it, or to see all.
    Visible,
    /// To do something in a vhost: to have permissions in it, or to administrate. What exactly may be done there is
    /// asked again where it is done.
    Vhost,
    /// To see and change policies of a vhost, and to pause its queues: to make policies and have permissions in it, or to
    /// administrate.
    Policies,
    /// To see what is in messages of the queue in the path: to have the tag `peek` and permission to read from the queue,
    /// or to administrate.
    Peek,
    /// To see what is not one user's: nodes, all connections.
    Monitor,
    /// To see and change users, permissions and vhosts.
    Administrator,
}

/// What tags say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    /// May use the API at all.
    pub(crate) is_user: bool,
    /// Sees all.
    pub(crate) monitors: bool,
    pub(crate) administrates: bool,
    pub(crate) makes_policies: bool,
    /// Sees what is in messages.
    pub(crate) peeks: bool,
    /// Changes nothing.
    pub(crate) is_read_only: bool,
}

/// The tags that let a user in.
const TAGS: [&str; 5] = ["administrator", "monitoring", "policymaker", "management", PEEK];

/// A user that sees what is in messages.
const PEEK: &str = "peek";

/// A user that sees and changes nothing.
const READ_ONLY: &str = "read-only";

impl Role {
    pub(crate) fn of(user: Who<'_>) -> Self {
        let administrates = user.has_tag("administrator");
        Self {
            is_user: TAGS.iter().any(|tag| user.has_tag(tag)),
            monitors: administrates || user.has_tag("monitoring"),
            administrates,
            makes_policies: administrates || user.has_tag("policymaker"),
            peeks: user.has_tag(PEEK),
            is_read_only: user.has_tag(READ_ONLY),
        }
    }
}

/// Why a user may not, in RabbitMQ's words.
pub(crate) const NOT_MANAGEMENT: &str = "Not management user";
const NOT_MONITOR: &str = "Not monitor user";
const NOT_ADMINISTRATOR: &str = "Not administrator user";
const NOT_PEEKER: &str = "Not a user that may see what is in these messages: that needs the tag peek and permission to \
                          read from the queue";
const NOT_VHOST: &str = "User not authorised to access virtual host";
const NOT_WRITER: &str = "Not a user that may change anything: it has the tag read-only";

/// What a path names.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Named<'a> {
    pub(crate) vhost: Option<&'a str>,
    pub(crate) queue: Option<&'a str>,
}

impl<'a> Named<'a> {
    pub(crate) fn vhost(vhost: &'a str) -> Self {
        Self { vhost: Some(vhost), queue: None }
    }
}

/// Whether `user` may send a request that `needs` so much and `changes` something, about what its path names.
///
/// # Errors
/// Why not.
pub(crate) fn allow(
    user: Who<'_>,
    need: Need,
    changes: bool,
    Named { vhost, queue }: Named<'_>,
) -> Result<(), &'static str> {
    let role = Role::of(user);
    if !role.is_user {
        return Err(NOT_MANAGEMENT);
    }
    if changes && role.is_read_only {
        return Err(NOT_WRITER);
    }
    let is_in = || vhost.is_some_and(|vhost| user.enters(vhost));
    let reads = || queue.zip(vhost).is_some_and(|(queue, vhost)| user.reads(vhost, queue));
    match need {
        Need::User => Ok(()),
        Need::Visible if role.monitors || is_in() => Ok(()),
        Need::Vhost if role.administrates || is_in() => Ok(()),
        Need::Policies if role.administrates || (role.makes_policies && is_in()) => Ok(()),
        Need::Visible | Need::Vhost | Need::Policies => Err(NOT_VHOST),
        Need::Peek if role.administrates || (role.peeks && reads()) => Ok(()),
        Need::Peek => Err(NOT_PEEKER),
        Need::Monitor if role.monitors => Ok(()),
        Need::Monitor => Err(NOT_MONITOR),
        Need::Administrator if role.administrates => Ok(()),
        Need::Administrator => Err(NOT_ADMINISTRATOR),
    }
}

/// Whether a list shows `user` the policies of `vhost`.
pub(crate) fn sees_policies(user: Who<'_>, vhost: &str) -> bool {
    allow(user, Need::Policies, false, Named::vhost(vhost)).is_ok()
}

/// Whether a list shows `user` what is in `vhost`.
pub(crate) fn sees(user: Who<'_>, vhost: &str) -> bool {
    Role::of(user).monitors || user.enters(vhost)
}

/// What a user sees of what is in vhosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    All,
    Vhosts(BTreeSet<String>),
}

impl Sight {
    pub(crate) fn of(user: Who<'_>, catalog: &Catalog) -> Self {
        if Role::of(user).monitors {
            return Self::All;
        }
        let vhosts = catalog.vhosts().map(|vhost| vhost.name());
        Self::Vhosts(vhosts.filter(|vhost| sees(user, vhost)).map(str::to_owned).collect())
    }

    pub(crate) fn has(&self, vhost: &str) -> bool {
        match self {
            Self::All => true,
            Self::Vhosts(vhosts) => vhosts.contains(vhost),
        }
    }
}
