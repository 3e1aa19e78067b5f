//! The names of things: groups, queues, nodes, sessions, consumers, and the place of an entry in the log.

/// A Raft group. 0 is the catalog, 1 and up hold queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl GroupId {
    /// The catalog's group: vhosts, users, exchanges, bindings, queues.
    pub const CATALOG: Self = Self(0);
    /// Not replicated: queues in the memory of one node only (transient or exclusive).
    pub const LOCAL: Self = Self(u32::MAX);
}

/// A queue, for ever: the catalog counts them and never uses a number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

/// A node of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// One client connection of a node, unique while the node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A session of a node: who declared a thing, who owns an exclusive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionOwner {
    pub node: NodeId,
    pub session: SessionId,
}

/// Somebody who may hold messages of a queue: a consumer, or a single fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerId {
    pub session: SessionId,
    /// The session's own number, not used twice by it.
    pub number: u64,
}

/// Where an entry stands in its group's log, and when its leader proposed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    pub index: u64,
    /// The leader's clock when it proposed the entry, milliseconds since 1970.
    pub time_ms: u64,
}
