//! What a token has given: who its owner is, and what that may do until when.

use crate::scope::{Permission, Right, Scope};

/// What somebody may do who has shown a token that was found right. What is not allowed here is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub user: String,
    /// Nothing is allowed from this second on, since 1970.
    pub expires_s: u64,
    permissions: Vec<Permission>,
    tags: Vec<String>,
}

impl Grant {
    pub(crate) fn new(user: String, expires_s: u64, scopes: Vec<Scope>) -> Self {
        let (mut permissions, mut tags) = (Vec::new(), Vec::new());
        for scope in scopes {
            match scope {
                Scope::Permission(permission) => permissions.push(permission),
                Scope::Tag(tag) => tags.push(tag),
            }
        }
        Self { user, expires_s, permissions, tags }
    }

    /// What a token with these scopes gives, without their prefix.
    pub fn of_scopes(user: &str, expires_s: u64, scopes: &[&str]) -> Self {
        let scopes = scopes.iter().filter_map(|text| Scope::read(text)).collect();
        Self::new(user.to_owned(), expires_s, scopes)
    }

    /// Whether anything is allowed in the vhost.
    pub fn enters(&self, vhost: &str) -> bool {
        self.permissions.iter().any(|permission| permission.is_in(vhost))
    }

    /// Whether this may be done with the exchange or queue.
    pub fn allows(&self, right: Right, vhost: &str, name: &str) -> bool {
        self.permissions.iter().any(|permission| permission.allows(right, vhost, name))
    }

    /// Whether this may be done with the routing key of a topic exchange.
    pub fn allows_key(&self, right: Right, vhost: &str, exchange: &str, key: &str) -> bool {
        self.permissions.iter().any(|permission| permission.allows_key(right, vhost, exchange, key))
    }

    pub fn has_tag(&self, tag: &str) -> bool {
        self.tags.iter().any(|own| own == tag)
    }

    pub fn tags(&self) -> &[String] {
        &self.tags
    }
}
