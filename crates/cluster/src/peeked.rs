//! Messages that somebody looks at and that stay as they are: what is asked of a queue's leader, and what it shows.

use bytes::Bytes;
use machine::{MessageDescription, PeekFilter, Position, Version};

/// Which messages somebody wants to see, and how much of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeekSpec {
    /// Where to begin.
    pub from: Position,
    pub filter: PeekFilter,
    /// So many messages at most.
    pub count: u32,
    /// So much of each body; never more than [`crate::limits::PEEKED_BYTES`].
    pub body_bytes_max: u32,
    /// Only messages with these bytes in their head or body. Empty: all.
    pub contains: Bytes,
}

/// A message as it lies in its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeekedMessage {
    pub is: MessageDescription,
    /// When its leader took it, ms since 1970. `None`: it is not in the log any more, and segments do not say.
    pub enqueued_ms: Option<u64>,
    pub head: Bytes,
    /// Its beginning.
    pub body: Bytes,
    /// Of the whole body.
    pub body_bytes: u64,
}

/// Messages in the order of their positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peeked {
    pub messages: Vec<PeekedMessage>,
    /// Where to go on. `None`: there are no more.
    pub next: Option<Position>,
    /// For each priority from 0 on: the number that the next message gets. All that had come are below.
    pub ends: Vec<u64>,
}

/// Why no message is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPeeked {
    /// There is no such queue.
    NoQueue,
    /// Its leader is another node, which may not be asked before every node of the cluster is upgraded: the cluster
    /// must have agreed on this version.
    NotYet { since: Version },
    /// Its group has no leader that can be reached.
    NoLeader,
    /// Its leader did not answer in time.
    Late,
    /// Its leader reads for others who look at messages: ask again.
    Busy,
    /// The leader's disk does not give the bytes of these messages.
    Unreadable,
}
