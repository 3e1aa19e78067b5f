//! One node's part in one group: the `raft` crate's `RawNode` and its log, and nothing of what the
//! entries mean.
//!
//! Appending is asynchronous: what [`Replica::ready`] hands out for writing counts as persisted only
//! after [`Replica::synced`], and only then can it commit. Confirms hang on that and on nothing else.

use std::collections::VecDeque;

use machine::{GroupId, NodeId};
use raft::eraftpb::{Entry, EntryType, HardState};
use raft::{Config, RawNode, StateRole};
use wal::{CommitBatch, Item, Place};

use crate::raft_log::{RaftLog, encode_hard_state};

/// Ticks without a leader before an election; see `limits::TICK_MS`.
const ELECTION_TICKS: usize = 10;
const HEARTBEAT_TICKS: usize = 2;
/// Bytes of entries in one message to a peer.
const MESSAGE_BYTES: u64 = 1 << 20;
/// Bytes of committed entries taken in one go.
const COMMITTED_BYTES: u64 = 4 << 20;

/// One group's consensus on this node.
pub(crate) struct Replica {
    group: GroupId,
    raw: RawNode<RaftLog>,
    /// What is being written: (append number, ready number).
    unsynced: VecDeque<(u64, u64)>,
    synced_hard_state: HardState,
}

/// This node does not lead the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotLeader;

impl Replica {
    /// A replica whose log is recovered and applied up to `applied`.
    pub(crate) fn new(group: GroupId, node: NodeId, log: RaftLog, applied: u64) -> Self {
        let config = Config {
            id: node.0,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            applied,
            max_size_per_msg: MESSAGE_BYTES,
            max_inflight_msgs: 64,
            check_quorum: true,
            pre_vote: true,
            max_committed_size_per_ready: COMMITTED_BYTES,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, log, &logger).expect("a fixed and valid configuration");
        let synced_hard_state = raw.raft.hard_state();
        Self { group, raw, unsynced: VecDeque::new(), synced_hard_state }
    }

    /// Asks for leadership at once: the only voter need not wait for a timeout.
    pub(crate) fn campaign(&mut self) {
        // An error means that an election is not possible now; the next tick asks again.
        let _ = self.raw.campaign();
    }

    pub(crate) fn tick(&mut self) {
        self.raw.tick();
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    pub(crate) fn term(&self) -> u64 {
        self.raw.raft.term
    }

    /// Appends an entry, and says its index. It is committed, or lost with its leader, later.
    pub(crate) fn propose(&mut self, data: Vec<u8>) -> Result<u64, NotLeader> {
        if !self.is_leader() {
            return Err(NotLeader);
        }
        self.raw.propose(Vec::new(), data).map_err(|_| NotLeader)?;
        Ok(self.raw.raft.raft_log.last_index())
    }

    /// Moves what is to be written into `batch` (under `number`, with the indexes of the entries in
    /// `written`) and what is committed into `committed`. Says how many bytes are to be written.
    pub(crate) fn ready(
        &mut self,
        number: u64,
        batch: &mut CommitBatch,
        written: &mut Vec<(GroupId, u64)>,
        committed: &mut Vec<Entry>,
    ) -> usize {
        let mut bytes = 0;
        while self.raw.has_ready() {
            let mut ready = self.raw.ready();
            committed.append(&mut ready.take_committed_entries());
            let entries = ready.take_entries();
            self.raw.mut_store().append(&entries);
            let hard_state = self.raw.raft.hard_state();
            // A vote or term must be synced; a commit index rides along with entries.
            let voted = hard_state.term != self.synced_hard_state.term
                || hard_state.vote != self.synced_hard_state.vote;
            if voted {
                batch.add(self.group.0, Item::HardState(encode_hard_state(&hard_state)));
                self.raw.mut_store().set_hard_state(hard_state.clone());
                self.synced_hard_state = hard_state;
            }
            for entry in &entries {
                bytes += entry.data.len();
                written.push((self.group, entry.index));
                batch.add(self.group.0, item(entry));
            }
            let ready_number = ready.number();
            self.raw.advance_append_async(ready);
            if voted || !entries.is_empty() {
                match self.unsynced.back_mut() {
                    Some(last) if last.0 == number => last.1 = ready_number,
                    _ => self.unsynced.push_back((number, ready_number)),
                }
            } else if self.unsynced.is_empty() {
                self.raw.on_persist_ready(ready_number);
            }
        }
        bytes
    }

    /// Everything handed out under append `number` and before is on this node's disk.
    pub(crate) fn synced(&mut self, number: u64) {
        let mut last = None;
        while let Some(&(append, ready)) = self.unsynced.front() {
            if append > number {
                break;
            }
            last = Some(ready);
            self.unsynced.pop_front();
        }
        if let Some(ready) = last {
            self.raw.on_persist_ready(ready);
        }
    }

    /// Where the entry `index` was synced.
    pub(crate) fn placed(&mut self, index: u64, place: Place) {
        self.raw.mut_store().synced(index, place);
    }

    /// The machine has applied everything up to `index`.
    pub(crate) fn applied(&mut self, index: u64) {
        self.raw.advance_apply_to(index);
        self.raw.mut_store().applied(index);
    }

    /// A checkpoint at `index` is synced: the log below is not needed any more.
    pub(crate) fn compact(&mut self, index: u64) {
        self.raw.mut_store().compact(index);
    }

    pub(crate) fn log(&self) -> &RaftLog {
        self.raw.store()
    }
}

fn item(entry: &Entry) -> Item {
    assert_eq!(entry.get_entry_type(), EntryType::EntryNormal, "membership is fixed on one node");
    Item::Entry { index: entry.index, term: entry.term, data: entry.data.clone() }
}
