//! What a group's leader is asked about locks, and why it does not answer.

use std::fmt;

use machine::{LockCommand, LockReply, Version};

/// A question about locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockSpec {
    pub what: LockQuestion,
    /// How long the leader may keep it, ms: an acquire until the lock is free, a read until the value is another. A new
    /// leader begins to count anew.
    pub wait_ms: u32,
    /// A leader of before may have done it: see [`NotLocked::Unknown`]. Who asks leaves it `false`.
    pub is_again: bool,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockQuestion {
    Do(LockCommand),
    /// How a name stands.
    Read {
        vhost: String,
        name: String,
        /// Only when the version of its value is another than this, or the time is over.
        unlike: Option<u64>,
    },
    /// The names of a vhost in this group behind this one, so many at most.
    List {
        vhost: String,
        behind: String,
        count: u32,
    },
}

/// What a leader answers.
pub type LockResult = Result<Box<LockReply>, NotLocked>;

/// Why a question about locks has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLocked {
    /// There are locks once all nodes have agreed on this version of the cluster.
    NotYet { since: Version },
    /// The leader has too many such questions: it was not asked.
    Busy,
    /// The leader changed while a value was written, and the value is another now: it may have been written, and written
    /// over.
    Unknown,
    /// The group has no leader that can be reached, or lost it before it answered: the command may be done, or not.
    NoLeader,
    /// It was not answered in time: the same.
    Late,
}

/// Who waits for a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockLine {
    /// The first of them, in the order in which they get it.
    pub first: Vec<LockWaiter>,
    /// All of them.
    pub count: usize,
}

/// Somebody who waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWaiter {
    pub owner: String,
    /// Since the leader of the group heard of it: a new leader begins to count anew.
    pub waited_ms: u64,
}

impl LockSpec {
    pub fn now(what: LockQuestion) -> Self {
        Self { what, wait_ms: 0, is_again: false }
    }

    /// What it weighs while it waits, in bytes, besides what every question weighs.
    pub(crate) fn bytes(&self) -> usize {
        match &self.what {
            LockQuestion::Do(LockCommand::Put { name, value, .. }) => {
                name.len() + value.as_ref().map_or(0, |value| value.len())
            }
            LockQuestion::Do(command) => command.of().map_or(0, |(_, name)| name.len()),
            LockQuestion::Read { name, .. } => name.len(),
            LockQuestion::List { behind, .. } => behind.len(),
        }
    }

    /// The vhost and the name that it is about, if it is about one.
    pub(crate) fn of(&self) -> Option<(&str, &str)> {
        match &self.what {
            LockQuestion::Do(command) => command.of(),
            LockQuestion::Read { vhost, name, .. } => Some((vhost, name)),
            LockQuestion::List { .. } => None,
        }
    }
}

impl fmt::Display for NotLocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotYet { since } => write!(
                f,
                "there are locks once all nodes have agreed on version {since} of the cluster: upgrade all of them"
            ),
            Self::Busy => f.write_str(
                "the leader of the lock's group has too many questions about locks: ask again later",
            ),
            Self::Unknown => f.write_str(
                "the group of the lock changed its leader meanwhile, and the value is another now: yours may have been \
                 written, and written over. Read it",
            ),
            Self::NoLeader => f.write_str(
                "the group of the lock has no leader: see millrace cluster status. What was asked may have been done: \
                 ask again, as the same owner",
            ),
            Self::Late => f.write_str(
                "the leader of the lock's group did not answer in time. What was asked may have been done: ask again, as \
                 the same owner",
            ),
        }
    }
}
