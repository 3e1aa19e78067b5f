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
    /// For log files of `file_bytes`: half of one for the largest batch, an eighth (at most 8 MiB) for
    /// what is gathered before it, and the rest for what rides along.
    pub fn of(file_bytes: u64) -> Self {
        let file_bytes = usize::try_from(file_bytes).unwrap_or(usize::MAX);
        Self { batch_bytes: file_bytes / 2, append_bytes: (file_bytes / 8).min(8 << 20) }
    }
}

/// Bytes of proposals that may wait for their sync in one shard before it takes no more requests.
pub const UNSYNCED_BYTES: usize = 32 << 20;

/// Bytes of requests that may wait in a shard's mailbox before sessions wait.
pub const MAILBOX_BYTES: usize = 16 << 20;

/// What a request weighs in the mailbox besides its bytes.
pub const REQUEST_BYTES: usize = 256;

/// Bytes of bodies that a group keeps in memory for deliveries to come. What is due now is read and
/// kept whatever this says.
pub const HOT_BYTES_PER_GROUP: usize = 16 << 20;

/// The share of these that queues without consumers may take.
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

/// Log entries that one fetch reads.
pub const FETCH_PARTS: usize = 64;

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

/// Queues up to which the flusher copies one after the other: each may read the log's entries again.
pub const QUEUES_STREAMED: usize = 4;

/// Bytes of messages of more queues that it gathers in memory for one segment.
pub const GATHERED_BYTES: usize = 32 << 20;

/// Bytes of segments from which a group is asked how much of them is alive.
pub const SEGMENT_BYTES_REVIEWED: u64 = 1 << 20;
