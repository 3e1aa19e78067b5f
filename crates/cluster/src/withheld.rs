//! A purge that can be undone: what is asked of a queue's leader, and what it says.

use std::fmt;

use machine::Version;

/// What is to be done with messages of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithholdStep {
    /// What is ready is purged, and can be brought back for so long, at most `machine::limits::UNDO_MS_MAX`. What an
    /// earlier purge has withheld is gone for good by that, unless nothing is ready.
    Purge { undo_ms: u32 },
    /// What the last purge has withheld is brought back to its place.
    Undo,
}

/// So many messages are withheld, or are back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithheldCount {
    pub count: u64,
    /// They can be brought back before this time, ms since 1970. 0: they are back.
    pub until_ms: u64,
}

/// Why a purge that can be undone, or its undoing, was not done, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotWithheld {
    /// There is no such queue, or it has no messages of its own: a stream, a subscription.
    NoQueue,
    /// Purges can be undone once all nodes have agreed on this version of the cluster.
    NotYet { since: Version },
    /// The group has no leader that can be reached, or lost it before it answered: it may be done, or not.
    NoLeader,
    /// It was not answered in time: the same.
    Late,
}

impl fmt::Display for NotWithheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoQueue => f.write_str("the queue is not there, or has no messages of its own"),
            Self::NotYet { since } => write!(
                f,
                "a purge can be undone once all nodes have agreed on version {since} of the cluster: upgrade all of them"
            ),
            Self::NoLeader => f.write_str(
                "the queue's group has no leader: see millrace cluster status. The queue says what was purged and can be \
                 brought back",
            ),
            Self::Late => f.write_str(
                "the queue's leader did not answer in time. The queue says what was purged and can be brought back",
            ),
        }
    }
}
