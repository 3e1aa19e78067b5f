//! Where a message goes, and what who publishes it must know.

use crate::ids::{GroupId, QueueId};

/// A queue that gets a message, and what who publishes the message must know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    pub queue: QueueId,
    pub group: GroupId,
    /// The queue has a level for each priority up to this.
    pub max_priority: u8,
    /// It refuses messages at a limit, or has a rate for what comes in: its leader is asked first.
    pub is_guarded: bool,
    /// Messages that its leader is asked about at once, at most: of a queue with a rate for what comes in. 0: that does
    /// not matter.
    pub asked_max: u32,
    /// It leaves out messages whose key came lately.
    pub dedups: bool,
    /// It is the history of an exchange: nobody to whom the message was routed.
    pub is_history: bool,
    /// It is the first of several partitions: the message goes into one of them.
    pub has_partitions: bool,
}

impl Target {
    /// A queue without features.
    pub fn plain(queue: QueueId, group: GroupId) -> Self {
        Self {
            queue,
            group,
            max_priority: 0,
            is_guarded: false,
            asked_max: 0,
            dedups: false,
            is_history: false,
            has_partitions: false,
        }
    }
}
