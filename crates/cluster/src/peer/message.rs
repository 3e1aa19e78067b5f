//! Messages between two nodes.
//!
//! For every group there is a producer (a node with sessions) and a leader. The producer joins the
//! leader under an epoch, which it counts up whenever it begins anew; everything that belongs to
//! another epoch is dropped by who receives it. Numbered batches may be repeated: machines apply each
//! once.

use bytes::Bytes;
use machine::{Ask, ConsumerId, ConsumerSpec, GroupId, Loan, NodeId, QueueId, Ranges, SessionId};

use crate::request::{Answer, Held, Request};

/// A consumer, or somebody who fetched single messages, as its own node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub queue: QueueId,
    pub consumer: ConsumerId,
    /// With the credit that is left.
    pub spec: ConsumerSpec,
    /// False: it only holds what it fetched or got before it was detached.
    pub is_attached: bool,
    /// Sequence numbers that it was given and has not settled.
    pub held: Ranges,
}

/// What one node tells another.
#[derive(Debug)]
pub enum Message {
    /// The `raft` crate's, for one group.
    Raft { group: GroupId, message: raft::eraftpb::Message },
    /// Producer to leader: from here on this epoch. All that the producer's sessions have in the group.
    Join { group: GroupId, epoch: u64, attachments: Vec<Attachment> },
    /// Producer to leader: everything but appends, catalog changes and goodbyes.
    Requests { group: GroupId, epoch: u64, session: SessionId, requests: Vec<Request> },
    /// Producer to leader: what the session held is ready again.
    SessionGone { group: GroupId, epoch: u64, session: SessionId },
    /// Producer to leader: commands as in an entry, without its head.
    NumberedBatch {
        group: GroupId,
        epoch: u64,
        boot: u64,
        seq: u64,
        commands: Bytes,
        /// What consumers let go of once it is applied.
        settles: Vec<Held>,
        /// It is answered when the leader has applied it, not as soon as it is committed.
        needs_apply: bool,
    },
    /// Leader to producer.
    Answers { group: GroupId, epoch: u64, answers: Vec<(SessionId, Answer)> },
    /// Leader to producer: numbered batches up to `seq` are on a majority's disks.
    Committed { group: GroupId, epoch: u64, boot: u64, seq: u64 },
    /// To a producer that joined: look for another leader.
    NotLeader { group: GroupId, epoch: u64 },
    /// From the leader of a group, to all, at every tick of silence and at its election: who leads,
    /// and what time it is in the group.
    Leads { group: GroupId, term: u64, time_ms: u64 },
    /// From the leader of a group, to all, with its announcement: who votes there. Left out while that changes.
    Voters { group: GroupId, term: u64, voters: Vec<NodeId> },
    /// To all: the sender's start `boot` has the number `stamp` on its disk. The connections take note of it, no
    /// shard hears it.
    Renewed { boot: u64, stamp: u64 },
    /// Follower to leader: the nodes that it reaches.
    Reaches { group: GroupId, nodes: Vec<NodeId> },
    /// What entries did up to this one, as a chained checksum: from a group's leader to its followers. A follower
    /// answers with its own. Since `Version::CHAINED`.
    Digest { group: GroupId, index: u64, chain: u64, is_answer: bool },
    /// Leader of a partition to the leader of the first one: it would give out so much of `queue`. Since `Version::RATES`.
    Borrow { group: GroupId, queue: QueueId, by: (GroupId, QueueId), ask: Ask },
    /// The answer, for `queue` of the partition's group.
    Lent { group: GroupId, queue: QueueId, number: u64, loan: Loan },
    /// A part of a snapshot on the bulk connection; the bytes are `snapshot`'s.
    Snapshot { group: GroupId, chunk: Bytes },
    /// Receiver to sender: so many bytes of the snapshot are written.
    SnapshotTaken { group: GroupId, index: u64, bytes: u64 },
    /// An operator's question to the node itself. The connections hand it on, no shard hears it.
    Question { number: u64, body: Bytes },
    /// Its answer, or the next part of it.
    Told { number: u64, part: Part },
}

/// A part of an answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    More(Bytes),
    Last(Bytes),
    /// There is no answer.
    Refused,
}
