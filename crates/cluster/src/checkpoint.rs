//! What a group hands to the flusher so that the log below an index can go: its state, and where
//! its live messages lie.

use bytes::Bytes;
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
    /// Voters and the machine's snapshot at `index`; see [`State`].
    pub state: Bytes,
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
    pub(crate) fn new(group: GroupId, index: u64, replica: &Replica, machine: &[u8]) -> Self {
        use raft::Storage;
        let term = replica.log().term(index).expect("an applied entry has a term");
        let state = State::encode(replica.log().voters(), machine);
        Self { group, index, term, state, messages: Vec::new(), live: Vec::new() }
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
            let live = live.within(span);
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

/// Version of the encoding of [`State`].
const STATE_VERSION: u8 = 1;

/// What a checkpoint says of a group besides index and term: who votes, and the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub voters: Vec<u64>,
    pub machine: Bytes,
}

impl State {
    /// Version, count of voters, voters, machine.
    pub fn encode(voters: &[u64], machine: &[u8]) -> Bytes {
        let mut bytes = Vec::with_capacity(3 + voters.len() * 8 + machine.len());
        bytes.push(STATE_VERSION);
        let count = u16::try_from(voters.len()).expect("a group has few voters");
        bytes.extend_from_slice(&count.to_le_bytes());
        for voter in voters {
            bytes.extend_from_slice(&voter.to_le_bytes());
        }
        bytes.extend_from_slice(machine);
        bytes.into()
    }

    /// `None`: of another version, or too short.
    pub fn decode(bytes: &Bytes) -> Option<Self> {
        if *bytes.first()? != STATE_VERSION {
            return None;
        }
        let count = usize::from(u16::from_le_bytes(bytes.get(1..3)?.try_into().ok()?));
        let end = 3 + count * 8;
        let voters = bytes
            .get(3..end)?
            .chunks_exact(8)
            .map(|voter| voter.try_into().map(u64::from_le_bytes))
            .collect::<Result<_, _>>()
            .ok()?;
        Some(Self { voters, machine: bytes.slice(end..) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_survives_its_encoding_and_another_version_is_refused() {
        let bytes = State::encode(&[1, 7], b"machine");
        let state = State::decode(&bytes).unwrap();
        assert_eq!(state, State { voters: vec![1, 7], machine: Bytes::from_static(b"machine") });
        let mut other = bytes.to_vec();
        other[0] = 9;
        assert_eq!(State::decode(&other.into()), None);
        assert_eq!(State::decode(&bytes.slice(..10)), None);
    }
}
