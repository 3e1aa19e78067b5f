//! Users, their tags, and what each may do in a vhost.

mod topic_permissions;

use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};

use super::limits::{UserLimits, UserLimitsChange};
use super::refusal::{Kind, Refusal};
use super::{Catalog, check_name, not_found};
use crate::limits::{
    NAME_BYTES_MAX, PASSWORD_HASH_BYTES_MAX, PATTERN_BYTES_MAX, PATTERN_COMPILED_BYTES_MAX,
    TAGS_MAX, TOPIC_PERMISSIONS_MAX, USERS_MAX,
};
pub use topic_permissions::TopicPermissions;

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
    pub limits: UserLimits,
    pub(super) permissions: BTreeMap<String, Permissions>,
    /// By vhost and exchange.
    pub(super) topic_permissions: BTreeMap<String, BTreeMap<String, TopicPermissions>>,
}

impl User {
    /// One that may do nothing yet.
    pub(super) fn new(name: String, password_hash: String, tags: Vec<String>) -> Self {
        Self {
            name,
            password_hash,
            tags,
            limits: UserLimits::default(),
            permissions: BTreeMap::new(),
            topic_permissions: BTreeMap::new(),
        }
    }

    pub(super) fn guest() -> Self {
        let all =
            Permissions { configure: Pattern::all(), write: Pattern::all(), read: Pattern::all() };
        let tags = vec!["administrator".to_owned()];
        let mut guest = Self::new(GUEST.to_owned(), GUEST_PASSWORD_HASH.to_owned(), tags);
        guest.permissions.insert("/".to_owned(), all);
        guest
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

    /// None: every routing key of the exchange is allowed.
    pub fn topic_permissions(&self, vhost: &str, exchange: &str) -> Option<&TopicPermissions> {
        self.topic_permissions.get(vhost)?.get(exchange)
    }

    /// By vhost and exchange.
    pub fn all_topic_permissions(&self) -> impl Iterator<Item = (&str, &str, &TopicPermissions)> {
        self.topic_permissions.iter().flat_map(|(vhost, exchanges)| {
            exchanges.iter().map(|(exchange, found)| (vhost.as_str(), exchange.as_str(), found))
        })
    }

    /// A vhost went, with all that was said of it.
    pub(super) fn forget_vhost(&mut self, vhost: &str) {
        self.permissions.remove(vhost);
        self.topic_permissions.remove(vhost);
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
        Self::meaning(text, text)
    }

    /// One in which `{username}` and `{vhost}` stand for names.
    fn with_names(text: &str, user: &str, vhost: &str) -> Result<Self, Refusal> {
        // An escaped name has no `{` without a backslash, so it is not taken for another place holder.
        let meaning = text.replace("{username}", &regex::escape(user));
        Self::meaning(text, &meaning.replace("{vhost}", &regex::escape(vhost)))
    }

    /// One that stands as `text` and is obeyed as `meaning`.
    fn meaning(text: &str, meaning: &str) -> Result<Self, Refusal> {
        let refusal = || Refusal::InvalidPattern { pattern: text.to_owned() };
        if text.len() > PATTERN_BYTES_MAX {
            return Err(refusal());
        }
        let rule = match meaning {
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
        Self::new(text).unwrap_or_else(|_| Self::none(text))
    }

    fn none(text: &str) -> Self {
        Self { text: text.to_owned(), rule: Rule::Nothing }
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
        check_tags(tags)?;
        if !self.users.contains_key(name) && self.users.len() >= USERS_MAX {
            return Err(Refusal::LimitReached { kind: Kind::User, max: USERS_MAX });
        }
        Ok(())
    }

    /// Permissions and limits of an existing user stay.
    pub(super) fn put_user(
        &mut self,
        name: String,
        password_hash: String,
        tags: Vec<String>,
    ) -> bool {
        let user = match self.users.remove(&name) {
            Some(before) => User { password_hash, tags, ..before },
            None => User::new(name.clone(), password_hash, tags),
        };
        self.users.insert(name, user);
        true
    }

    pub(super) fn check_set_permissions(
        &self,
        user: &str,
        vhost: &str,
        texts: [&str; 3],
    ) -> Result<(), Refusal> {
        self.vhost_or_refusal(vhost)?;
        self.user_or_refusal(user)?;
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

    pub(super) fn user_or_refusal(&self, name: &str) -> Result<&User, Refusal> {
        self.users.get(name).ok_or_else(|| not_found(Kind::User, name, ""))
    }

    /// The exchange need not be there yet.
    pub(super) fn check_set_topic_permissions(
        &self,
        user: &str,
        vhost: &str,
        exchange: &str,
        texts: [&str; 2],
    ) -> Result<(), Refusal> {
        self.vhost_or_refusal(vhost)?;
        let found = self.user_or_refusal(user)?;
        check_name(Kind::Exchange, exchange)?;
        TopicPermissions::new(user, vhost, texts)?;
        let is_new = found.topic_permissions(vhost, exchange).is_none();
        if is_new && found.all_topic_permissions().count() >= TOPIC_PERMISSIONS_MAX {
            let (what, max) = ("topic permissions of a user", TOPIC_PERMISSIONS_MAX);
            return Err(Refusal::TooLarge { what, max });
        }
        Ok(())
    }

    pub(super) fn set_topic_permissions(
        &mut self,
        user: &str,
        vhost: &str,
        exchange: String,
        texts: [&str; 2],
    ) -> bool {
        let Ok(permissions) = TopicPermissions::new(user, vhost, texts) else { return false };
        let Some(user) = self.users.get_mut(user) else { return false };
        user.topic_permissions.entry(vhost.to_owned()).or_default().insert(exchange, permissions);
        true
    }

    pub(super) fn clear_topic_permissions(
        &mut self,
        user: &str,
        vhost: &str,
        exchange: Option<&str>,
    ) -> bool {
        let Some(user) = self.users.get_mut(user) else { return false };
        let Some(exchange) = exchange else {
            return user.topic_permissions.remove(vhost).is_some();
        };
        let Some(exchanges) = user.topic_permissions.get_mut(vhost) else { return false };
        let has_changed = exchanges.remove(exchange).is_some();
        if exchanges.is_empty() {
            user.topic_permissions.remove(vhost);
        }
        has_changed
    }

    pub(super) fn set_user_limits(&mut self, user: &str, change: UserLimitsChange) -> bool {
        let Some(user) = self.users.get_mut(user) else { return false };
        let before = user.limits;
        user.limits = before.changed(change);
        before != user.limits
    }
}

/// Of a user or vhost.
pub(super) fn check_tags(tags: &[String]) -> Result<(), Refusal> {
    if tags.len() > TAGS_MAX {
        return Err(Refusal::TooLarge { what: "tags", max: TAGS_MAX });
    }
    if tags.iter().any(|tag| tag.len() > NAME_BYTES_MAX) {
        return Err(Refusal::TooLarge { what: "bytes of a tag", max: NAME_BYTES_MAX });
    }
    Ok(())
}
