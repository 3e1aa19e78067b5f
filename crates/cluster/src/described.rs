//! What is said to whoever looks after a node: by a queue's leader of the queue, by the node of itself.

use machine::{NodeId, QueueDescription, Version};

/// A queue as its leader has it, and where the queue is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedQueue {
    pub queue: QueueDescription,
    /// Who says so. For a queue in a node's memory: that node.
    pub leader: NodeId,
    /// In which term it leads; 0 without a log.
    pub term: u64,
    /// The nodes that keep the queue; none but the leader for a queue in a node's memory.
    pub voters: Vec<NodeId>,
    /// Nodes that are on their way to be voters, or to be none.
    pub learners: Vec<NodeId>,
}

/// Why a queue is not described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDescribed {
    /// There is no such queue.
    NoQueue,
    /// Its leader is another node, which may not be asked before every node of the cluster is upgraded: the cluster
    /// must have agreed on this version.
    NotYet { since: Version },
    /// Its group has no leader that can be reached.
    NoLeader,
    /// Its leader did not answer in time.
    Late,
}

/// What a node has and may use, as its alarms saw it last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// What the process holds. `None`: it could not be looked at.
    pub memory_bytes: Option<u64>,
    /// Publishers wait while it holds more.
    pub memory_limit_bytes: u64,
    /// What is free on the file system of the data directory. `None`: it could not be looked at.
    pub disk_free_bytes: Option<u64>,
    /// Publishers wait while less is free.
    pub disk_free_limit_bytes: u64,
}
