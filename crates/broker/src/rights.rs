//! Where the permissions of a login stand: with its user in the catalog, or in the token that it has shown.

use std::sync::Arc;

use machine::Catalog;
use oauth::{Grant, Right};

/// Whose permissions count for a login. What neither allows is refused.
#[derive(Clone, Debug, Default)]
pub(crate) enum Rights {
    /// The user's, as the catalog has them at the moment.
    #[default]
    Catalog,
    /// Those that the token has brought. The catalog need not know the user.
    Token(Arc<Grant>),
}

impl Rights {
    /// Whether the login may open the vhost.
    pub(crate) fn enters(&self, catalog: &Catalog, user: &str, vhost: &str) -> bool {
        match self {
            Self::Catalog => catalog.permissions(user, vhost).is_some(),
            Self::Token(grant) => grant.enters(vhost),
        }
    }

    /// Whether the login may do this with the exchange or queue.
    pub(crate) fn allows(
        &self,
        catalog: &Catalog,
        user: &str,
        vhost: &str,
        right: Right,
        name: &str,
    ) -> bool {
        match self {
            Self::Catalog => {
                catalog.permissions(user, vhost).is_some_and(|permissions| match right {
                    Right::Configure => permissions.configure.allows(name),
                    Right::Write => permissions.write.allows(name),
                    Right::Read => permissions.read.allows(name),
                })
            }
            Self::Token(grant) => grant.allows(right, vhost, name),
        }
    }

    /// Whether the login may do this with a routing key of a topic exchange. A user without topic permissions there may
    /// with every key, as in RabbitMQ.
    pub(crate) fn allows_key(
        &self,
        catalog: &Catalog,
        user: &str,
        vhost: &str,
        right: Right,
        (exchange, key): (&str, &str),
    ) -> bool {
        match self {
            Self::Catalog => {
                let user = catalog.user(user);
                let found = user.and_then(|user| user.topic_permissions(vhost, exchange));
                found.is_none_or(|permissions| match right {
                    Right::Write => permissions.write.allows(key),
                    Right::Read => permissions.read.allows(key),
                    Right::Configure => false,
                })
            }
            Self::Token(grant) => grant.allows_key(right, vhost, exchange, key),
        }
    }

    pub(crate) fn has_tag(&self, catalog: &Catalog, user: &str, tag: &str) -> bool {
        match self {
            Self::Catalog => catalog.user(user).is_some_and(|user| user.has_tag(tag)),
            Self::Token(grant) => grant.has_tag(tag),
        }
    }

    /// Whether the login is over because its user was deleted.
    pub(crate) fn is_deleted(&self, catalog: &Catalog, user: &str) -> bool {
        match self {
            Self::Catalog => catalog.user(user).is_none(),
            Self::Token(_) => false,
        }
    }
}
