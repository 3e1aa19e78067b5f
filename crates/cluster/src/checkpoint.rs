//! What a group hands to the flusher so that the log below an index can go: its state, and where
//! its live messages lie.

use machine::{GroupId, QueueId, Ranges};
use wal::Place;

use crate::bodies::{FetchPart, Source};
use crate::raft_log::RaftLog;
use crate::replica::Replica;

/// A checkpoint to be written.
#[derive(Debug)]
pub struct Job {
    pub group: GroupId,
    pub index: u64,
    pub term: u64,
    pub voters: Vec<u64>,
    /// The machine's snapshot at `index`.
    pub state: Vec<u8>,
    /// Messages that lie in the log up to `index` and are alive: to be copied to a segment.
    pub messages: Vec<LiveMessages>,
    /// Everything alive at `index`, to tell how much of each segment still is.
    pub live: Vec<(QueueId, Ranges)>,
}

/// The live messages of a queue in one log entry.
#[derive(Debug)]
pub struct LiveMessages {
    pub queue: QueueId,
    pub first_seq: u64,
    pub count: u64,
    pub place: Place,
    /// The entry's bytes that hold them.
    pub range: std::ops::Range<u32>,
    /// Which of them are alive.
    pub live: Ranges,
}

/// A stretch of a queue that a segment holds.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    pub queue: QueueId,
    pub first_seq: u64,
    pub last_seq: u64,
    pub segment: u64,
}

impl Job {
    pub(crate) fn new(group: GroupId, index: u64, replica: &Replica, state: Vec<u8>) -> Self {
        use raft::Storage;
        let term = replica.log().term(index).expect("an applied entry has a term");
        let voters = replica.log().voters().to_vec();
        Self { group, index, term, voters, state, messages: Vec::new(), live: Vec::new() }
    }

    pub(crate) fn add(
        &mut self,
        queue: QueueId,
        live: &Ranges,
        parts: Vec<FetchPart>,
        log: &RaftLog,
    ) {
        for part in parts {
            let span = part.first_seq..part.first_seq + part.count;
            let live = live.intersection(span);
            let Source::Entry { index, range } = part.source else { continue };
            if live.is_empty() {
                continue;
            }
            let place = log.place(index).expect("an applied entry has a place");
            let (first_seq, count) = (part.first_seq, part.count);
            self.messages.push(LiveMessages { queue, first_seq, count, place, range, live });
        }
    }
}
