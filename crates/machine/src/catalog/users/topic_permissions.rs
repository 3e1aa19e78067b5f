//! What a user may publish to a topic exchange, and bind to it, by routing keys.

use super::Pattern;
use crate::catalog::refusal::Refusal;

/// By the routing key of a message (`write`) and of a binding (`read`), in one exchange. In a pattern,
/// `{username}` stands for the user's name and `{vhost}` for the vhost's, both taken literally.
#[derive(Clone, Debug)]
pub struct TopicPermissions {
    pub write: Pattern,
    pub read: Pattern,
}

impl TopicPermissions {
    pub(in crate::catalog) fn new(
        user: &str,
        vhost: &str,
        [write, read]: [&str; 2],
    ) -> Result<Self, Refusal> {
        let pattern = |text| Pattern::with_names(text, user, vhost);
        Ok(Self { write: pattern(write)?, read: pattern(read)? })
    }

    /// Of a snapshot: a pattern that this version does not take any more allows nothing.
    pub(in crate::catalog) fn accepted(user: &str, vhost: &str, [write, read]: [&str; 2]) -> Self {
        let pattern =
            |text| Pattern::with_names(text, user, vhost).unwrap_or_else(|_| Pattern::none(text));
        Self { write: pattern(write), read: pattern(read) }
    }
}
