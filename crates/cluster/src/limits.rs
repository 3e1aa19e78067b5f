//! Every bound of this crate, with its unit.

/// Bytes of one log entry that is joined from several sessions' batches. A larger batch of one
/// session (a large message, a transaction) is an entry of its own.
pub const ENTRY_BYTES: usize = 256 * 1024;

/// What fits the log: its files bound what is written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of the largest batch that a group takes, and so of the largest message.
    pub batch_bytes: usize,
    /// Bytes of proposals after which a shard hands out what it has for writing, within one step.
    pub append_bytes: usize,
}

impl Sizes {
    /// For log files of `file_bytes`: half of one for the largest batch (at most [`BATCH_BYTES_MAX`]), an
    /// eighth (at most 8 MiB) for what is gathered before it, and the rest for what rides along.
    pub fn of(file_bytes: u64) -> Self {
        let file_bytes = usize::try_from(file_bytes).unwrap_or(usize::MAX);
        let batch_bytes = (file_bytes / 2).min(BATCH_BYTES_MAX);
        Self { batch_bytes, append_bytes: (file_bytes / 8).min(8 << 20) }
    }
}

/// Bytes of the largest batch: one entry has to fit a frame between nodes, with what is around it.
pub const BATCH_BYTES_MAX: usize = 48 << 20;

const _: () = assert!(BATCH_BYTES_MAX + (1 << 20) < crate::peer::limits::FRAME_BYTES_MAX);

/// Chains of what entries did that a replica keeps for comparing: of the last entries that it applied. The others are
/// seldom so far behind or ahead, and may be compared at a later entry as well.
pub const CHAINS_KEPT: usize = 1024;

/// Milliseconds after which a leader says again what its chain is, if there is something new.
pub const DIGEST_MS: u64 = 2000;

/// Events that may wait for their publication, and their bytes. What comes above them is dropped.
pub const EVENTS_WAITING_MAX: usize = 10_000;
pub const EVENTS_WAITING_BYTES_MAX: usize = 8 << 20;

/// Bytes of proposals that may wait for their sync in one shard before it takes no more requests.
pub const UNSYNCED_BYTES: usize = 32 << 20;

/// Bytes of requests that may wait in a shard's mailbox before sessions wait.
pub const MAILBOX_BYTES: usize = 16 << 20;

/// What a request weighs in the mailbox besides its bytes.
pub const REQUEST_BYTES: usize = 256;

/// Bytes of bodies that a group keeps in memory for deliveries to come. What is due now is read and
/// kept whatever this says.
pub const HOT_BYTES_PER_GROUP: usize = 16 << 20;

/// Bytes of dead messages of a group that the dead-letter worker has and that are not stored elsewhere: past it no
/// more are handed out.
pub const LEAVING_BYTES_PER_GROUP: usize = 8 << 20;

/// The share of the bytes in memory that queues without consumers may take.
pub const HOT_BYTES_IDLE: usize = HOT_BYTES_PER_GROUP / 2;

/// Bytes of bodies kept in memory for one queue that has consumers.
pub const HOT_BYTES_PER_QUEUE: usize = 8 << 20;

/// Bytes of bodies kept in memory for one queue that has none.
pub const HOT_BYTES_IDLE_QUEUE: usize = 512 << 10;

/// What a run of messages in memory weighs besides its bytes.
pub const RUN_BYTES: usize = 128;

/// Bytes that reading ahead tries to keep in memory behind the last delivery of a queue.
pub const READ_AHEAD_BYTES: usize = 1 << 20;

/// Runs in memory that are looked at to tell whether enough is read ahead.
pub const READ_AHEAD_RUNS: usize = 64;

/// Bytes after which one fetch reads no more.
pub const FETCH_BYTES: u64 = 1 << 20;

/// Bytes of entries after which one read for a replica that is behind reads no more: what one message between nodes
/// should carry.
pub const READ_ENTRIES_BYTES: usize = 1 << 20;

/// Bytes in the buffers of all who read the streams of a group and are behind what is in memory: past it nothing is
/// read ahead, and buffers go that cannot be sent now.
pub const TAIL_BYTES_PER_GROUP: usize = 32 << 20;

/// A reader of a stream with so many bytes in its buffer, or fewer, is read ahead for.
pub const TAIL_AHEAD_BYTES: usize = 1 << 20;

/// Messages of a stream that one fetch asks for at most.
pub const TAIL_FETCH_MESSAGES: u64 = 64 * 1024;

/// Log entries that one fetch reads.
pub const FETCH_ENTRIES: usize = 64;

/// Entries, and places in segments, that one fetch reads.
pub const FETCH_PARTS: usize = 256;

/// Fetches in a row that may come back without what a delivery waits for. Each is the fault of a
/// checkpoint that moved it meanwhile, so even a few are rare.
pub const FETCHES_FRUITLESS_MAX: u32 = 10_000;

/// Settled messages that are gathered before they are logged without waiting for other entries.
pub const SETTLES_GATHERED: u64 = 1000;

/// Milliseconds that a gathered settle waits for an entry to ride in.
pub const SETTLE_WAIT_MS: u64 = 5;

/// Milliseconds of one tick of Raft's logical clock.
pub const TICK_MS: u64 = 100;

/// Log files that may hold entries before the oldest is moved to segments.
pub const LOG_FILES_KEPT: usize = 4;

/// Bytes of a new log file that are zero-filled between two looks at other work.
pub const FILL_BYTES: u64 = 4 << 20;

/// The part of its bytes in the log by which a checkpoint may be larger without counting as growth.
pub const GROWTH_IGNORED: u64 = 4;

/// Milliseconds after which writing beside the log is tried again on a disk that was full.
pub const FULL_PAUSE_MS: u64 = 5000;

/// Bytes that more must be free for it to be tried at once.
pub const ROOM_GROWN_BYTES: u64 = 1 << 20;

/// Milliseconds between two lines that say that the disk is full.
pub const FULL_TOLD_MS: u64 = 60_000;

/// Queues up to which the flusher copies one after the other: each may read the log's entries again.
pub const QUEUES_STREAMED: usize = 4;

/// Bytes of messages of more queues that it gathers in memory for one segment.
pub const GATHERED_BYTES: usize = 32 << 20;

/// What each of them weighs besides.
pub const GATHERED_MESSAGE_BYTES: usize = 64;

/// Bytes from which a message that several queues have is in a segment once. A smaller one is there once
/// for each of them: a reference would save little, and cost a read of its own.
pub const SHARED_BYTES_MIN: usize = 256;

/// Bytes of segments from which a group is asked how much of them is alive.
pub const SEGMENT_BYTES_REVIEWED: u64 = 1 << 20;

/// Entries that one read for a replica that is behind looks for.
pub const ENTRIES_READ: u64 = 256;

/// Milliseconds after which a running node writes down a newer stamp and tells its peers: as young a copy of its
/// directory cannot be told from the directory.
pub const RENEWAL_MS: u64 = 10_000;

/// Milliseconds that a new leader waits for nodes that can be reached to say what their sessions hold.
pub const JOIN_WAIT_MS: u64 = 1000;

/// Milliseconds that a new leader waits for a node whose connection has just broken: it comes back soon, or is gone.
pub const RELINK_MS: u64 = 300;

/// Milliseconds that a leader which is cut off may go on to deliver, at most: Raft finds out within two of its election
/// timeouts. For so long a new leader lets rates give out nothing.
pub const SUCCESSION_MS: u64 = 2000;

/// Milliseconds after which a node that cannot be reached holds nothing any more.
pub const LOST_MS: u64 = 2000;

/// Longest change of a group's members that is read, in bytes: hundreds of nodes.
pub const CHANGE_BYTES_MAX: usize = 4096;

/// Milliseconds without a majority in reach after which publishers are told so. With the second after which a
/// silent link counts as cut, and what ticks add, that is less than two seconds.
pub const MINORITY_MS: u64 = 500;

/// Milliseconds that something waits for a leader although a majority is in reach: many elections, or a
/// leader to which this node's link is cut, while others reach it.
pub const LEADERLESS_MS: u64 = 10_000;

/// Milliseconds that a leader cannot reach a node, and another replica can, before it hands over to that one: longer
/// than a node that starts takes to be reached by all. Well below [`LEADERLESS_MS`].
pub const CUT_MS: u64 = 1_500;

/// Milliseconds after such a hand-over before the group is handed over so again: one that fails holds its publishers up
/// until Raft gives it up.
pub const HANDED_MS: u64 = 5_000;

/// Milliseconds after a refused join before the next.
pub const REJOIN_MS: u64 = 100;

/// Milliseconds after which what lives in the memory of a node that cannot be reached is deleted.
pub const GONE_MS: u64 = 6000;

/// Entries that a replica may lack and still be given leadership.
pub const LAG_NEAR: u64 = 8;

/// Milliseconds that a node can be reached before leadership goes back to it.
pub const SETTLED_IN_MS: u64 = 3000;

/// Ticks, more or less in a row, that a leader's disk is behind the majority's before it hands over.
pub const SLOW_TICKS: u32 = 40;

/// Milliseconds without a step after which a shard leads nothing any more that has other replicas: the
/// process stood still, and others may lead. Less than the silence after which they look for another.
pub const AWAY_MS: u64 = 700;

/// Bytes of a question from node to node.
pub const QUESTION_BYTES_MAX: usize = 64 << 10;
/// Bytes of the answer to one.
pub const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Bytes of a part of an answer.
pub const ANSWER_PART_BYTES: usize = 256 << 10;
/// Questions of other nodes that wait to be taken.
pub const QUESTIONS_UNREAD_MAX: usize = 32;
/// Questions of this node that wait for their answers.
pub const QUESTIONS_WAITING_MAX: usize = 256;

/// Bytes of heads and bodies after which messages that somebody looks at are answered; and of one body at most.
pub const PEEKED_BYTES: usize = 1 << 20;
/// Bytes of a body that are searched for what somebody looks for.
pub const SEARCHED_BYTES: usize = 1 << 20;
/// Bytes that somebody may look for.
pub const SOUGHT_BYTES_MAX: usize = 256;
/// Looks at messages that one shard has read at a time.
pub const PEEKS_AT_ONCE: usize = 4;

/// Questions about locks that the leader of a group keeps: on their way through the log, and waiting.
pub const LOCK_QUESTIONS_MAX: usize = 20_000;
/// Questions about locks that one entry answers.
pub const LOCKS_PER_ENTRY: usize = 1_000;

/// Of those who wait for a lock so many are told, the first ones.
pub const LOCK_WAITERS_TOLD: usize = 100;

/// Queues that are described by one question of an operator.
pub const DESCRIBED_QUEUES_MAX: usize = 100;

/// Queues that a shard tells of in one step, for metrics: a few hundred microseconds.
pub const TALLIED_QUEUES_MAX: usize = 2048;

/// Changes of a group's leader that each of its replicas remembers: 32 bytes each. Who shows them asks every ten seconds.
pub const LEADER_CHANGES_KEPT: usize = 8;
