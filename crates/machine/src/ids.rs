//! The names of things: groups, queues, nodes, sessions, consumers, and the place of an entry in the log.

/// A group: what is led by one node at a time. 0 is the catalog, 1 and up hold queues; the upper half
/// of the numbers is the nodes' own memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl GroupId {
    /// The catalog's group: vhosts, users, exchanges, bindings, queues.
    pub const CATALOG: Self = Self(0);

    /// Not replicated: queues in the memory of this node only (transient or exclusive). A node above
    /// `limits::NODE_ID_MAX` has none of its own.
    pub fn local(node: NodeId) -> Self {
        Self(LOCAL | (node.0 as u32 & !LOCAL))
    }

    pub fn is_local(self) -> bool {
        self.0 & LOCAL != 0
    }

    /// Whose memory it is.
    pub fn local_node(self) -> Option<NodeId> {
        self.is_local().then_some(NodeId(u64::from(self.0 & !LOCAL)))
    }
}

/// Says that a group is a node's memory; the rest of the number is the node's.
const LOCAL: u32 = 1 << 31;

/// A queue, for ever: the catalog counts them and never uses a number twice.
///
/// The top byte names a priority level of it. A queue with priorities has one level for each; for messages
/// a level is a queue of its own, with sequence numbers, bytes and books of its own. Every other queue has
/// level 0 alone, and its id is that of the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

impl QueueId {
    /// The level of this queue that messages of a priority are in.
    pub fn level(self, priority: u8) -> Self {
        Self(self.base().0 | u64::from(priority) << LEVEL_SHIFT)
    }

    /// The queue that this is a level of.
    pub fn base(self) -> Self {
        Self(self.0 & !(u64::MAX << LEVEL_SHIFT))
    }

    /// Which level of its queue this is.
    pub fn priority(self) -> u8 {
        (self.0 >> LEVEL_SHIFT) as u8
    }
}

const LEVEL_SHIFT: u32 = 56;

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

/// One life of a node, as a sender of numbered batches: see `Batch::numbered`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId {
    pub node: NodeId,
    /// Greater with every start of the node's process.
    pub boot: u64,
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
