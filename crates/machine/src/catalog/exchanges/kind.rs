//! The kinds of exchanges: their names and their numbers.

use crate::version::Version;

/// How an exchange routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeKind {
    Direct,
    Fanout,
    Topic,
    Headers,
    /// As the kind that `x-delayed-type` names, for messages that may say when they are due.
    DelayedMessage,
    /// To one destination, by a hash; each has the share that its binding's key says.
    ConsistentHash,
    /// To one destination, by chance.
    Random,
    /// To one destination: the hash of the key, modulo the number of bindings.
    ModulusHash,
    /// To all; the last messages are kept for queues that are bound later.
    RecentHistory,
    /// To one destination by chance, of those that are at the publisher's node if there are any.
    LocalRandom,
}

/// Number in commands and snapshots, which never changes, and name.
const ALL: &[(ExchangeKind, u8, &str)] = &[
    (ExchangeKind::Direct, 1, "direct"),
    (ExchangeKind::Fanout, 2, "fanout"),
    (ExchangeKind::Topic, 3, "topic"),
    (ExchangeKind::Headers, 4, "headers"),
    (ExchangeKind::DelayedMessage, 5, "x-delayed-message"),
    (ExchangeKind::ConsistentHash, 6, "x-consistent-hash"),
    (ExchangeKind::Random, 7, "x-random"),
    (ExchangeKind::ModulusHash, 8, "x-modulus-hash"),
    (ExchangeKind::RecentHistory, 9, "x-recent-history"),
    (ExchangeKind::LocalRandom, 10, "x-local-random"),
];

impl ExchangeKind {
    /// By the name that clients use.
    pub fn parse(name: &str) -> Option<Self> {
        ALL.iter().find(|(_, _, known)| *known == name).map(|(kind, _, _)| *kind)
    }

    pub fn name(self) -> &'static str {
        self.entry().2
    }

    /// The version since which there are exchanges of it.
    pub(crate) fn since(self) -> Version {
        match self {
            Self::Direct
            | Self::Fanout
            | Self::Topic
            | Self::Headers
            | Self::DelayedMessage
            | Self::ConsistentHash
            | Self::Random
            | Self::ModulusHash
            | Self::RecentHistory => Version::FIRST,
            Self::LocalRandom => Version::LOCAL_RANDOM,
        }
    }

    pub(crate) fn number(self) -> u8 {
        self.entry().1
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        ALL.iter().find(|(_, known, _)| *known == number).map(|(kind, _, _)| *kind)
    }

    fn entry(self) -> (Self, u8, &'static str) {
        *ALL.iter().find(|(kind, _, _)| *kind == self).expect("every kind is in the table")
    }
}
