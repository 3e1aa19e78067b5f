//! What a group hands to the flusher so that the log below an index can go: its state, and where
//! its live messages lie.

use bytes::Bytes;
use machine::{GroupId, QueueId, Ranges};
use raft::eraftpb::ConfState;
use wal::Place;
use wal::segments::{RECORD_HEADER_BYTES, SegmentMeta};

use crate::fetch::{FetchPart, Source};
use crate::limits::{GROWTH_IGNORED, SHARED_BYTES_MIN};
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

impl Stored {
    /// What segments hold, in their order.
    pub fn of(segments: &[SegmentMeta]) -> Vec<Self> {
        let of_segment = |meta: &SegmentMeta| {
            let segment = meta.number;
            meta.extents.clone().into_iter().map(move |extent| Self {
                queue: QueueId(extent.queue),
                first_seq: extent.first_seq,
                last_seq: extent.last_seq,
                segment,
            })
        };
        segments.iter().flat_map(of_segment).collect()
    }
}

impl Job {
    pub(crate) fn new(group: GroupId, index: u64, replica: &Replica, machine: &[u8]) -> Self {
        use raft::Storage;
        let term = replica.log().term(index).expect("an applied entry has a term");
        let state = State::encode(replica.log().members(), machine);
        Self { group, index, term, state, messages: Vec::new(), live: Vec::new() }
    }

    /// About how many bytes segments take more than the log did: a message of many queues lies in the
    /// log once. In segments a large one does too, and each queue refers to it; a small one lies there
    /// once for each queue.
    pub fn growth_bytes(&self) -> u64 {
        let place = |run: &&LiveMessages| (run.place.file, run.place.offset, run.range.start);
        let mut runs: Vec<&LiveMessages> = self.messages.iter().collect();
        runs.sort_unstable_by_key(place);
        let of_same = |runs: &[&LiveMessages]| {
            let length = |run: &LiveMessages| u64::from(run.range.end - run.range.start);
            let others = 8 * (runs.len() as u64 - 1);
            let bytes_each =
                |run: &LiveMessages| (length(run) / run.count.max(1)).saturating_sub(others);
            let is_shared =
                |run: &LiveMessages| runs.len() > 1 && bytes_each(run) >= SHARED_BYTES_MIN as u64;
            let of_run = |run: &&LiveMessages| match is_shared(run) {
                true => run.live.len() * REFERRING_BYTES,
                false => run.live.len() * (bytes_each(run) + RECORD_HEADER_BYTES as u64),
            };
            let stored_once = |run: &&LiveMessages| match is_shared(run) {
                true => run.live.len() * bytes_each(run),
                false => 0,
            };
            let before = runs.iter().map(|run| length(run)).max().unwrap_or(0);
            // Each queue may have others of them left; all of them together are not more than the log has.
            let once = runs.iter().map(stored_once).sum::<u64>().min(before);
            (once + runs.iter().map(of_run).sum::<u64>(), before)
        };
        let same = runs.chunk_by(|one, next| place(one) == place(next));
        let (after, before) =
            same.map(of_same).fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        u64::saturating_sub(after, before + before / GROWTH_IGNORED)
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

/// What a queue takes in a segment for a message that it shares with others.
const REFERRING_BYTES: u64 = RECORD_HEADER_BYTES as u64 + 16;

/// Version of the encoding of [`State`]. Version 1 had voters only.
const STATE_VERSION: u8 = 2;

/// What a checkpoint says of a group besides index and term: who belongs to it, and the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub voters: Vec<u64>,
    pub learners: Vec<u64>,
    /// Voters until a change of membership that is under way is over.
    pub voters_outgoing: Vec<u64>,
    /// Learners as soon as it is over.
    pub learners_next: Vec<u64>,
    pub auto_leave: bool,
    pub machine: Bytes,
}

impl State {
    /// Version, four lists (count u16, nodes u64), whether a change ends by itself, machine.
    pub(crate) fn encode(members: &ConfState, machine: &[u8]) -> Bytes {
        let lists =
            [&members.voters, &members.learners, &members.voters_outgoing, &members.learners_next];
        let mut bytes = Vec::with_capacity(64 + machine.len());
        bytes.push(STATE_VERSION);
        for nodes in lists {
            let count = u16::try_from(nodes.len()).expect("a group has few members");
            bytes.extend_from_slice(&count.to_le_bytes());
            for node in nodes {
                bytes.extend_from_slice(&node.to_le_bytes());
            }
        }
        bytes.push(u8::from(members.auto_leave));
        bytes.extend_from_slice(machine);
        bytes.into()
    }

    /// `None`: of another version, or too short.
    pub fn decode(bytes: &Bytes) -> Option<Self> {
        let version = *bytes.first()?;
        let mut at = 1;
        let mut list = || {
            let count = usize::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
            let end = at + 2 + count * 8;
            let nodes = bytes
                .get(at + 2..end)?
                .chunks_exact(8)
                .map(|node| node.try_into().map(u64::from_le_bytes))
                .collect::<Result<Vec<u64>, _>>()
                .ok()?;
            at = end;
            Some(nodes)
        };
        let voters = list()?;
        let (mut learners, mut voters_outgoing, mut learners_next) =
            (Vec::new(), Vec::new(), Vec::new());
        let mut auto_leave = false;
        match version {
            1 => {}
            STATE_VERSION => {
                (learners, voters_outgoing, learners_next) = (list()?, list()?, list()?);
                auto_leave = *bytes.get(at)? != 0;
                at += 1;
            }
            _ => return None,
        }
        let machine = bytes.slice(at..);
        Some(Self { voters, learners, voters_outgoing, learners_next, auto_leave, machine })
    }

    /// Who belongs to the group.
    pub(crate) fn members(&self) -> ConfState {
        let mut members = ConfState::default();
        members.voters.clone_from(&self.voters);
        members.learners.clone_from(&self.learners);
        members.voters_outgoing.clone_from(&self.voters_outgoing);
        members.learners_next.clone_from(&self.learners_next);
        members.auto_leave = self.auto_leave;
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One message of `length` bytes in the log, for so many queues.
    fn fan_out(queues: u64, length: u32) -> Job {
        let place = Place { file: 1, offset: 4096, bytes: length, checksum: 0 };
        let run = |queue| LiveMessages {
            queue: QueueId(queue),
            first_seq: 1,
            count: 1,
            place,
            range: 0..length,
            live: Ranges::from(1..2),
        };
        let messages = (1..=queues).map(run).collect();
        let (state, live) = (Bytes::new(), Vec::new());
        Job { group: GroupId(1), index: 1, term: 1, state, messages, live }
    }

    #[test]
    fn what_many_queues_share_grows_when_it_leaves_the_log_and_what_one_has_does_not() {
        assert_eq!(fan_out(1, 1000).growth_bytes(), 0);
        assert_eq!(fan_out(20, 10_400).growth_bytes(), 0);
        // Of a small message the log holds little more than the names of its queues.
        let growth = fan_out(100, 840).growth_bytes();
        assert!((6000..8000).contains(&growth), "{growth}");
        let growth = fan_out(100, 1840).growth_bytes();
        assert!((2500..4000).contains(&growth), "{growth}");
    }

    #[test]
    fn a_state_survives_its_encoding_and_another_version_is_refused() {
        let (voters, learners) = (vec![1, 7], vec![9]);
        let members = ConfState { voters, learners, ..ConfState::default() };
        let bytes = State::encode(&members, b"machine");
        let state = State::decode(&bytes).unwrap();
        assert_eq!(state.members(), members);
        assert_eq!(state.machine, b"machine"[..]);
        let mut other = bytes.to_vec();
        other[0] = 9;
        assert_eq!(State::decode(&other.into()), None);
        assert_eq!(State::decode(&bytes.slice(..10)), None);
    }

    #[test]
    fn any_bytes_are_a_state_or_refused() {
        let members = ConfState { voters: vec![1, 7], learners: vec![9], ..ConfState::default() };
        let machine = machine::QueueMachine::new().snapshot();
        let whole = State::encode(&members, &machine);
        let mut state = 7_u64;
        for _ in 0..100_000 {
            let mut bytes = whole.to_vec();
            for _ in 0..4 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (state >> 33) as usize % bytes.len();
                bytes[at] = (state >> 24) as u8;
            }
            bytes.truncate(bytes.len().min((state >> 40) as usize % (2 * bytes.len())));
            if let Some(state) = State::decode(&bytes.into()) {
                let _ = state.members();
                let _ = machine::QueueMachine::restore(&state.machine);
            }
        }
    }
}
