//! Where the bytes of messages are, and which of them are to be read.

use std::ops::Range;

use bytes::Bytes;
use machine::Ranges;

/// Where the bytes of a run are.
#[derive(Clone, Debug)]
pub enum Source {
    /// In the log entry `index`, at these bytes of its data.
    Entry { index: u64, range: Range<u32> },
    /// In memory: queues of this node only.
    Memory(Bytes),
    /// In a segment of the group; some of the run's messages may be gone.
    Segment { segment: u64 },
}

/// Something to be read for a queue.
#[derive(Clone, Debug)]
pub struct FetchPart {
    /// Of the run in its entry; of a segment, the first message wanted.
    pub first_seq: u64,
    pub count: u64,
    pub source: Source,
    /// More need not be kept in memory.
    pub wanted: Ranges,
}
