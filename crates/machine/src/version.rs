//! What the nodes of a cluster have agreed to write.
//!
//! Every program reads and writes a range of versions. The catalog holds the version that the cluster has
//! agreed on, which is at most the newest that each of its members can read. A command, an attribute and a
//! part of a snapshot exist since one version, and are not written before the cluster has agreed on it.
//! See `docs/operating/upgrades.md`.

use std::fmt;

/// A version of the cluster, and of the protocol that nodes speak with each other: one number.
///
/// | version | new in it |
/// | --- | --- |
/// | 3 | nodes say whom they reach |
/// | 4 | the first that a cluster's catalog stands for without saying so |
/// | 5 | the catalog holds the version: `RaiseVersion`, and format 3 of its snapshot |
/// | 6 | leaders say who votes in their groups; the catalog holds which groups are wide: `SetWideGroups`, and format 4 of its snapshot; a declaration gets the members that it asks for; nodes renew the stamps of their directories and say so |
/// | 7 | a queue's deliveries wait for its marks: `KeepMarks`, and format 5 of snapshots of queues |
/// | 8 | declarations hold specs in place of a client's arguments: `CreateQueue`, `CreateExchange`, `CreateBinding`, and format 5 of the catalog's snapshot; a queue can be changed: `ChangeQueue`, `SetSettings`, format 6 of snapshots of queues; a queue's leader describes it to other nodes: `Request::Describe` |
/// | 9 | policies and operator policies: `PutPolicy`, `DeletePolicy`; topic permissions, limits of users and vhosts, what operators say of vhosts, the cluster's name: `SetTopicPermissions` to `SetClusterName`; format 6 of the catalog's snapshot; a leader on another node sends a cancelled consumer what it was given before: `Request::Detach` without `takes_back`; nodes ask each other operators' questions: `Message::Question`, `Message::Told`; a queue's leader lets other nodes look at messages: `Request::Peek`; exchanges of kind `x-local-random`; the catalog remembers what operators change: `Administered`, `Note`; vhost `/` has the exchange `amq.rabbitmq.event`; a queue can be paused: `PauseQueue`, settings of queues with `is_paused`; messages are taken from where they lie: `Request::Get` with a place |
/// | 10 | streams: settings that say so, format 7 of snapshots of queues, consumers that start at an offset, policies with `max_age_ms`; subscriptions with a filter; queues with order by key; locks: `Command::Lock`, a part of format 7, `Request::Lock`; groups keep a checksum of what their entries did, and replicas compare it: `KeepChain`, `Message::Digest`; a purge can be undone: `Withhold`, a part of format 7, `Request::Withhold`; a consumer can be changed, so that it is paused or has another weight: `Request::ChangeConsumer` |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u16);

impl Version {
    /// The oldest that this program speaks.
    pub const OLDEST: Self = Self(3);
    /// What a catalog stands at that holds no version.
    pub const FIRST: Self = Self(4);
    /// The newest that this program reads and writes.
    pub const NEWEST: Self = Self(10);
    /// Stands for the version after the newest, in trials of upgrades: `CatalogCommand::Remark` is new in it. A program
    /// reads it only where it is told to, and no cluster agrees on it outside trials.
    pub const TRIAL: Self = Self(Self::NEWEST.0 + 1);
    /// Since when queues are created with `KeepMarks`.
    pub const KEPT_MARKS: Self = Self(7);
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Since when there is what: one name for each thing that more than one place asks about.
impl Version {
    /// Leaders say who votes in their groups.
    pub const VOTERS_SAID: Self = Self(6);
    /// The catalog holds which groups are wide.
    pub const WIDE_GROUPS: Self = Self(6);
    /// Nodes renew the stamps of their directories, and say so.
    pub const STAMPS_RENEWED: Self = Self(6);
    /// Declarations hold specs in place of a client's arguments: `CreateQueue`, `CreateExchange`, `CreateBinding`, and
    /// format 5 of the catalog's snapshot.
    pub const SPECS: Self = Self(8);
    /// Settings of a queue can be changed: `CatalogCommand::ChangeQueue`, `Command::SetSettings`.
    pub const CHANGED_SETTINGS: Self = Self(8);
    /// Policies, topic permissions, limits: `PutPolicy` to `SetClusterName`, and format 6 of the catalog's snapshot.
    pub const POLICIES: Self = Self(9);
    /// A consumer of another node can be told to end after what it was given.
    pub const CANCELS: Self = Self(9);
    /// Nodes ask each other what operators ask them.
    pub const QUESTIONS: Self = Self(9);
    /// A queue's leader describes it to other nodes.
    pub const DESCRIBED: Self = Self(8);
    /// A queue can be paused: `CatalogCommand::PauseQueue`, and settings that say so.
    pub const PAUSES: Self = Self(9);
    /// A queue's leader lets other nodes take a message from where it lies: `Request::Get` with a place.
    pub const TAKES: Self = Self(9);
    /// The catalog remembers what operators change: `Administered`, `Note`.
    pub const AUDITED: Self = Self(9);
    /// The vhost `/` has an exchange of events.
    pub const EVENTS: Self = Self(9);
    /// There are exchanges of kind `x-local-random`.
    pub const LOCAL_RANDOM: Self = Self(9);
    /// A queue's leader lets other nodes look at its messages.
    pub const PEEKED: Self = Self(9);
    /// There are locks: `Command::Lock`, a part of format 7 of the snapshot of queues, and `Request::Lock`.
    pub const LOCKS: Self = Self(10);
    /// There are streams: settings that say so, format 7 of the snapshot of queues, consumers that start at an offset.
    pub const STREAMS: Self = Self(10);
    /// Groups keep a checksum of what their entries did, and replicas compare it: `Command::KeepChain`, format 7 of the
    /// snapshot of queues, `Message::Digest`.
    pub const CHAINED: Self = Self(10);
    /// Queues have rates: settings and policies that say so.
    pub const RATES: Self = Self(10);
    /// Queues keep the order of messages with the same key.
    pub const KEY_ORDER: Self = Self(10);
    /// A consumer can be changed: `Request::ChangeConsumer`, and consumers that say that they are paused.
    pub const CONSUMER_CHANGES: Self = Self(10);
    /// A purge can be undone: `Command::Withhold`, a part of format 7 of the snapshot of queues, `Request::Withhold`.
    pub const UNDO: Self = Self(10);
}

#[cfg(test)]
mod tests {
    use crate::{Applied, Catalog, CatalogCommand, CatalogReply, Refusal, Version};

    #[test]
    fn a_command_is_refused_until_the_cluster_has_agreed_on_its_version() {
        let mut catalog = Catalog::new(1);
        let command = CatalogCommand::Remark { text: "from the next version".into() };
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        assert_eq!(CatalogCommand::decode(&bytes).as_ref(), Ok(&command));

        let refusal = Refusal::NotYet { since: Version::TRIAL, agreed: Version::FIRST };
        assert_eq!(catalog.check(&command), Err(refusal.clone()));
        let (mut effects, before) = (Vec::new(), catalog.version());
        let at = |index| Applied { index, time_ms: 0 };
        let reply = catalog.apply(at(1), command.clone(), &mut effects);
        assert_eq!(reply, CatalogReply::Refused(refusal));
        assert_eq!((catalog.version(), effects.len()), (before, 0), "nothing is changed");

        let raise = CatalogCommand::RaiseVersion { to: Version::TRIAL };
        assert_eq!(catalog.apply(at(2), raise, &mut effects), CatalogReply::Done);
        assert_eq!(catalog.check(&command), Ok(()));
        assert_eq!(catalog.apply(at(3), command, &mut effects), CatalogReply::Done);
    }
}
