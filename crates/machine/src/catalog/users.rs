//! Users, their tags, and what each may do in a vhost.

use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};

use super::refusal::{Kind, Refusal};
use super::{Catalog, check_name, not_found};
use crate::limits::{
    NAME_BYTES_MAX, PASSWORD_HASH_BYTES_MAX, PATTERN_BYTES_MAX, PATTERN_COMPILED_BYTES_MAX,
    TAGS_MAX, USERS_MAX,
};

pub(super) const GUEST: &str = "guest";
/// Of password `guest`, which everybody knows anyhow: the salt need not be chance, and must not be,
/// because every node begins with the same catalog.
const GUEST_PASSWORD_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$bWlsbHJhY2UuZGVmYXVsdA$\
                                   A2Es7pq6idSepoiSfsOAOqtyhGljYubDMEkqgQA+Nr0";

/// One user.
#[derive(Clone, Debug)]
pub struct User {
    pub name: String,
    /// The catalog keeps it as it is, and who checks passwords knows its notation. Empty: no login by password.
    pub password_hash: String,
    pub tags: Vec<String>,
    pub(super) permissions: BTreeMap<String, Permissions>,
}

impl User {
    pub(super) fn guest() -> Self {
        let all =
            Permissions { configure: Pattern::all(), write: Pattern::all(), read: Pattern::all() };
        Self {
            name: GUEST.to_owned(),
            password_hash: GUEST_PASSWORD_HASH.to_owned(),
            tags: vec!["administrator".to_owned()],
            permissions: BTreeMap::from([("/".to_owned(), all)]),
        }
    }

    pub fn has_tag(&self, tag: &str) -> bool {
        self.tags.iter().any(|own| own == tag)
    }

    /// None: the user may not even enter the vhost.
    pub fn permissions(&self, vhost: &str) -> Option<&Permissions> {
        self.permissions.get(vhost)
    }

    /// By vhost.
    pub fn all_permissions(&self) -> impl Iterator<Item = (&str, &Permissions)> {
        self.permissions.iter().map(|(vhost, permissions)| (vhost.as_str(), permissions))
    }
}

/// What a user may do in a vhost, by names of exchanges and queues. The default exchange is asked for
/// as `amq.default`.
#[derive(Clone, Debug)]
pub struct Permissions {
    pub configure: Pattern,
    pub write: Pattern,
    pub read: Pattern,
}

impl Permissions {
    pub(super) fn new(texts: [&str; 3]) -> Result<Self, Refusal> {
        let [configure, write, read] = texts;
        Ok(Self {
            configure: Pattern::new(configure)?,
            write: Pattern::new(write)?,
            read: Pattern::new(read)?,
        })
    }

    /// Of a snapshot.
    pub(super) fn accepted(texts: [&str; 3]) -> Self {
        let [configure, write, read] = texts.map(Pattern::accepted);
        Self { configure, write, read }
    }
}

/// A regular expression on names, anchored only by its own `^` and `$`. Compiled once, in linear
/// time and bounded memory.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    rule: Rule,
}

#[derive(Clone, Debug)]
enum Rule {
    /// The two that most users have.
    Nothing,
    Everything,
    Matching(Regex),
}

impl Pattern {
    fn all() -> Self {
        Self { text: ".*".to_owned(), rule: Rule::Everything }
    }

    /// The empty text allows nothing but the empty name.
    pub fn new(text: &str) -> Result<Self, Refusal> {
        let refusal = || Refusal::InvalidPattern { pattern: text.to_owned() };
        if text.len() > PATTERN_BYTES_MAX {
            return Err(refusal());
        }
        let rule = match text {
            "" | "^$" => Rule::Nothing,
            ".*" => Rule::Everything,
            other => {
                let mut builder = RegexBuilder::new(other);
                builder.size_limit(PATTERN_COMPILED_BYTES_MAX);
                builder.dfa_size_limit(PATTERN_COMPILED_BYTES_MAX);
                Rule::Matching(builder.build().map_err(|_| refusal())?)
            }
        };
        Ok(Self { text: text.to_owned(), rule })
    }

    /// One that was accepted before. Should this version not take it any more, it allows nothing:
    /// better than a catalog that cannot be read.
    pub(super) fn accepted(text: &str) -> Self {
        Self::new(text).unwrap_or_else(|_| Self { text: text.to_owned(), rule: Rule::Nothing })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn allows(&self, name: &str) -> bool {
        match &self.rule {
            Rule::Nothing => name.is_empty(),
            Rule::Everything => true,
            Rule::Matching(regex) => regex.is_match(name),
        }
    }
}

impl Catalog {
    pub(super) fn check_put_user(
        &self,
        name: &str,
        password_hash: &str,
        tags: &[String],
    ) -> Result<(), Refusal> {
        check_name(Kind::User, name)?;
        if password_hash.len() > PASSWORD_HASH_BYTES_MAX {
            let (what, max) = ("bytes of a password hash", PASSWORD_HASH_BYTES_MAX);
            return Err(Refusal::TooLarge { what, max });
        }
        if tags.len() > TAGS_MAX {
            return Err(Refusal::TooLarge { what: "tags", max: TAGS_MAX });
        }
        if tags.iter().any(|tag| tag.len() > NAME_BYTES_MAX) {
            return Err(Refusal::TooLarge { what: "bytes of a tag", max: NAME_BYTES_MAX });
        }
        if !self.users.contains_key(name) && self.users.len() >= USERS_MAX {
            return Err(Refusal::LimitReached { kind: Kind::User, max: USERS_MAX });
        }
        Ok(())
    }

    /// Permissions of an existing user stay.
    pub(super) fn put_user(
        &mut self,
        name: String,
        password_hash: String,
        tags: Vec<String>,
    ) -> bool {
        let before = self.users.remove(&name);
        let permissions = before.map(|user| user.permissions).unwrap_or_default();
        self.users.insert(name.clone(), User { name, password_hash, tags, permissions });
        true
    }

    pub(super) fn check_set_permissions(
        &self,
        user: &str,
        vhost: &str,
        texts: [&str; 3],
    ) -> Result<(), Refusal> {
        self.vhost_or_refusal(vhost)?;
        if !self.users.contains_key(user) {
            return Err(not_found(Kind::User, user, ""));
        }
        Permissions::new(texts).map(|_| ())
    }

    pub(super) fn set_permissions(&mut self, user: &str, vhost: &str, texts: [&str; 3]) -> bool {
        let Ok(permissions) = Permissions::new(texts) else { return false };
        let Some(user) = self.users.get_mut(user) else { return false };
        user.permissions.insert(vhost.to_owned(), permissions);
        true
    }

    pub(super) fn clear_permissions(&mut self, user: &str, vhost: &str) -> bool {
        self.users.get_mut(user).is_some_and(|user| user.permissions.remove(vhost).is_some())
    }
}
