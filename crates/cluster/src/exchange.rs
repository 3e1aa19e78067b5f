//! The inputs and outputs of a shard: what has happened, and what the shard wants done.

use bytes::Bytes;
use machine::{
    Applied, Catalog, CatalogReply, GroupId, NodeId, QueueId, QueuePeek, QueueSettings, SessionId,
    Version,
};
use raft::eraftpb::Entry;
use wal::{CommitBatch, EntryAt, Place};

use crate::bodies::{FetchPart, Run};
use crate::checkpoint::{Job, State, Stored};
use crate::counted::Voting;
use crate::peeked::{NotPeeked, PeekSpec, Peeked};
use crate::peer::message::Message;
use crate::request::{Answer, Request, Ticket};

/// The time, as a shard is told it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Milliseconds that only grow: for deadlines.
    pub mono_ms: u64,
    /// The wall clock, for what is stamped on entries.
    pub wall_ms: u64,
}

/// What happens to a shard.
#[derive(Debug)]
pub enum Input {
    Requests {
        session: SessionId,
        requests: Vec<Request>,
    },
    /// The session's task is gone without a word.
    SessionGone {
        session: SessionId,
    },
    /// The node's dead-letter worker is there from now on: it is given what leaves the queues that are led here.
    /// It goes as any session does.
    DeadLetterWorkerOpened,
    /// Everything appended up to `number` is synced; the places of the entries of that append.
    Synced {
        number: u64,
        places: Vec<Place>,
    },
    /// Answers [`Output::Fetch`].
    Fetched {
        group: GroupId,
        queue: QueueId,
        reader: QueueId,
        runs: Vec<Run>,
    },
    /// Answers [`Output::Peek`].
    Peeked {
        group: GroupId,
        session: SessionId,
        ticket: Ticket,
        result: Result<Box<Peeked>, NotPeeked>,
    },
    /// The log wants entries up to `index` of `group` moved to segments.
    WantCheckpoint {
        group: GroupId,
    },
    /// A backup wants the group as it is: to be answered with [`Output::Cut`]. A question that is asked again takes the
    /// place of the one before, which is not answered then.
    WantCut {
        group: GroupId,
        number: u64,
    },
    Checkpointed {
        group: GroupId,
        index: u64,
        stored: Vec<Stored>,
    },
    /// There was no room for the checkpoint of `group`, and nothing came of it.
    CheckpointFailed {
        group: GroupId,
    },
    /// What the segments of `group` hold, to be compared with what is alive.
    ReviewSegments {
        group: GroupId,
        held: Vec<SegmentExtent>,
    },
    /// From the catalog's shard: `group` is to have this queue.
    CreateQueue {
        group: GroupId,
        queue: QueueId,
        settings: QueueSettings,
        /// The version that the cluster has agreed on.
        agreed: Version,
        then: Option<Then>,
    },
    /// From the catalog's shard: the queue was changed.
    ChangeQueue {
        wanted: WantedQueue,
        then: Option<Then>,
    },
    /// From the catalog's shard: the queue is deleted.
    DropQueue {
        group: GroupId,
        queue: QueueId,
        then: Option<Then>,
    },
    /// From any shard: the nodes that vote in its groups.
    Counted {
        shard: usize,
        voting: Voting,
    },
    /// From any shard: the last consumer of an auto-delete queue is gone, by a detach that is answered
    /// once the queue is, too.
    DeleteUnused {
        queue: QueueId,
        detached: Option<(SessionId, Ticket)>,
    },
    /// A session says goodbye to every shard.
    EndSession {
        session: SessionId,
        ticket: Ticket,
    },
    /// From every shard: the session is over there, and these queues lost their last consumer.
    SessionEnded {
        session: SessionId,
        ticket: Option<Ticket>,
        unused: Vec<QueueId>,
    },
    /// At the start: these are the queues that the catalog has in this shard's groups.
    Reconcile {
        queues: Vec<WantedQueue>,
        /// Queues from this one on are not known to the catalog yet.
        next_queue: u64,
        agreed: Version,
    },
    /// From the catalog's shard: the nodes there are, who is to keep this shard's groups, and what may be said.
    Membership {
        nodes: Vec<NodeId>,
        groups: Vec<Placement>,
        /// The version that the cluster has agreed on.
        agreed: Version,
    },
    /// A node can be reached, over a connection that is new.
    PeerUp {
        node: NodeId,
        /// The newest version that it reads.
        speaks: Version,
    },
    /// A node's connection is closed, or it was silent for too long.
    PeerDown {
        node: NodeId,
    },
    /// What one read from a node's connection brought for this shard, in order.
    Peers {
        from: NodeId,
        messages: Vec<Message>,
    },
    /// Entries that [`Output::ReadEntries`] asked for: from the first on as many as were still there.
    EntriesRead {
        group: GroupId,
        number: u64,
        entries: Vec<Entry>,
    },
    /// What came of [`Output::SendSnapshot`]: the receiver has installed it, or it broke off.
    SnapshotSent {
        group: GroupId,
        to: NodeId,
        index: u64,
        term: u64,
        done: bool,
    },
    /// Everything of a snapshot is in segments here, and nothing is installed yet: to be answered with
    /// [`Output::InstallSnapshot`].
    SnapshotArrived {
        group: GroupId,
        from: NodeId,
        index: u64,
        term: u64,
    },
    /// A snapshot that was accepted is the group's checkpoint now, and its log is void.
    SnapshotInstalled {
        group: GroupId,
        index: u64,
        term: u64,
        state: State,
        stored: Vec<Stored>,
    },
    /// Nothing but time.
    TimePassed,
}

/// Messages of a queue that a segment holds, alive or not.
#[derive(Clone, Copy, Debug)]
pub struct SegmentExtent {
    pub queue: QueueId,
    pub first_seq: u64,
    pub last_seq: u64,
    pub count: u64,
}

/// A queue as the catalog has it, and as its group is to have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedQueue {
    pub group: GroupId,
    pub queue: QueueId,
    pub settings: QueueSettings,
    /// Which change of the catalog the settings are from. 0: they are as declared.
    pub revision: u64,
}

/// The nodes that are to keep a group, and those that it began with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub group: GroupId,
    /// The first is to lead.
    pub voters: Vec<NodeId>,
    pub founders: Vec<NodeId>,
}

/// The answer to a declaration, once the queue exists in its group.
#[derive(Debug)]
pub struct Then {
    pub session: SessionId,
    pub ticket: Ticket,
    pub reply: CatalogReply,
}

/// What a shard wants done. In order.
#[derive(Debug)]
pub enum Output {
    /// `entries` places are to come back with [`Input::Synced`].
    Append {
        number: u64,
        batch: CommitBatch,
        entries: usize,
    },
    Answer {
        session: SessionId,
        answer: Answer,
    },
    Fetch(Fetch),
    /// To be answered with [`Input::Peeked`], whatever the disk says.
    Peek(Box<Peek>),
    Forward {
        shard: usize,
        input: Input,
    },
    /// Let sessions route by this entry of the catalog, and hand `forwards` to the other shards while no session can
    /// look at the catalog. A group then knows a queue before a message for the queue can come. And when a shard answers
    /// the client that declared something, every session routes by it already.
    CatalogApplied {
        /// Whether this node leads the catalog: it tells what has happened.
        leads: bool,
        at: Applied,
        entry: Bytes,
        forwards: Vec<(usize, Input)>,
    },
    /// A snapshot took the catalog's place: sessions route by this one.
    CatalogReplaced {
        catalog: Box<Catalog>,
    },
    Checkpoint(Job),
    /// Answers [`Input::WantCut`].
    Cut {
        group: GroupId,
        number: u64,
        cut: Result<Cut, NotCut>,
    },
    /// The log holds what this program is too old to read: the node is to end, with these words. The shard does
    /// nothing any more.
    Outdated {
        why: String,
    },
    /// The groups agree with the catalog: the node may accept sessions.
    Reconciled,
    /// The nodes that vote in the groups of this shard, whether or not this node keeps them, if that is new.
    CountsOn {
        voting: Voting,
    },
    /// All messages of one step to one node are one write, in order.
    Send {
        to: NodeId,
        message: Message,
    },
    /// The newest checkpoint of a group that is led here, for a replica that the log cannot help.
    SendSnapshot {
        group: GroupId,
        to: NodeId,
    },
    /// Answers [`Input::SnapshotArrived`]. What is accepted is installed, and the group is not touched
    /// until [`Input::SnapshotInstalled`].
    InstallSnapshot {
        group: GroupId,
        index: u64,
        accept: bool,
    },
    /// Entries for a replica that is behind: index, term and place of each. To be answered with
    /// [`Input::EntriesRead`], if with nothing.
    ReadEntries {
        group: GroupId,
        number: u64,
        entries: Vec<EntryAt>,
    },
}

/// A group as it is at an index, for a backup.
#[derive(Debug)]
pub struct Cut {
    pub index: u64,
    pub term: u64,
    /// The checkpoint to be written for it. `None`: the newest checkpoint of the group is this one.
    pub job: Option<Job>,
}

/// Why a group is not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCut {
    /// It is not led here, or not any more.
    NotLeader,
}

/// Messages of a queue to be read for deliveries.
#[derive(Debug)]
pub struct Fetch {
    pub group: GroupId,
    /// Whose messages they are.
    pub queue: QueueId,
    /// For whom: the queue itself, or a subscription that reads it.
    pub reader: QueueId,
    pub parts: Vec<Located>,
}

/// Messages that somebody looks at, to be read beside deliveries. No delivery waits for them.
#[derive(Debug)]
pub struct Peek {
    pub group: GroupId,
    pub session: SessionId,
    pub ticket: Ticket,
    pub spec: PeekSpec,
    pub found: QueuePeek,
    pub parts: Vec<Located>,
}

/// A part of a fetch, with the place of its entry.
#[derive(Clone, Debug)]
pub struct Located {
    pub part: FetchPart,
    pub place: Option<Place>,
}
