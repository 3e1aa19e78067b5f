//! The `raft` crate's view of one group's log.
//!
//! The log proper is on the `wal`. Here are the entries that were not applied yet (the `raft` crate
//! asks for them once they are committed) and a few more for followers, the terms, and where each
//! synced entry lies. What a follower needs and is not in memory is asked for and comes later; what
//! the log has not any more comes as a snapshot.

use std::cell::RefCell;
use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Result, Storage, StorageError};
use wal::Place;

/// Bytes of applied entries that a group with followers keeps in memory, for those a little behind.
const CACHE_BYTES: usize = 2 << 20;
/// Entries below the checkpoint whose places a group with followers keeps.
const ENTRIES_KEPT: u64 = 8192;
/// What an entry weighs in memory besides its data.
const ENTRY_WEIGHT: usize = 96;

/// One group's log, as `raft` sees it.
///
/// Its indexes stand in this order: `compacted` ≤ `checkpoint` ≤ `applied` ≤ `last_index`.
#[derive(Debug)]
pub(crate) struct RaftLog {
    /// Term, vote and commit index as they were handed out for writing last. What `raft` has may be newer only
    /// in its commit index.
    hard_state: HardState,
    /// Who votes after the last change of members that was applied.
    members: ConfState,
    /// Index and term; everything up to here is in the checkpoint.
    checkpoint: (u64, u64),
    /// Index and term; entries up to here are not asked for any more. Some below the checkpoint are, by followers a
    /// little behind, as long as they are still on the disk. A follower that needs more gets a snapshot.
    compacted: (u64, u64),
    /// The term of each entry above `compacted`, as runs: (first index, term), ascending.
    terms: VecDeque<(u64, u64)>,
    /// The last entry that was handed out for writing. It goes back when another leader's entries replace the tail, and
    /// never below `applied`.
    last_index: u64,
    /// The last entry that the machine has applied. It never goes back.
    applied: u64,
    /// The newest entries without a gap up to the last: those not applied yet, and some more.
    cached: VecDeque<Entry>,
    cached_bytes: usize,
    /// Where the synced entries above `compacted` lie, without a gap. It ends where the disk does: entries that are
    /// being written have none yet.
    places: VecDeque<Place>,
    /// What `raft` asked for and is not in memory. The shard takes it at the end of each step.
    wanted: RefCell<Vec<Wanted>>,
    /// The first entries of what is being read. A leader wants them again with every proposal.
    reading: Vec<u64>,
    /// The answer to one of these, while `raft` looks at it.
    fetched: Vec<Entry>,
    /// Followers that need more than the log has.
    behind: RefCell<Vec<u64>>,
}

/// Entries that a follower needs and that are on the disk only.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) context: GetEntriesContext,
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl RaftLog {
    /// A log whose checkpoint is at `index` and `term` (0 and 0: none), before recovered entries.
    pub(crate) fn new(hard_state: HardState, members: ConfState, index: u64, term: u64) -> Self {
        Self {
            hard_state,
            members,
            checkpoint: (index, term),
            compacted: (index, term),
            terms: VecDeque::new(),
            last_index: index,
            applied: index,
            cached: VecDeque::new(),
            cached_bytes: 0,
            places: VecDeque::new(),
            wanted: RefCell::default(),
            reading: Vec::new(),
            fetched: Vec::new(),
            behind: RefCell::default(),
        }
    }

    /// Takes back an entry that was found on disk and is already applied.
    pub(crate) fn recover(&mut self, index: u64, term: u64, place: Place) {
        assert_eq!(index, self.last_index + 1, "a recovered log has a hole");
        assert!(self.cached.is_empty(), "what is applied comes first");
        self.push_term(index, term);
        self.last_index = index;
        self.applied = index;
        self.places.push_back(place);
    }

    /// Takes back an entry that was found on disk and may be committed or not.
    pub(crate) fn recover_tail(&mut self, entry: Entry, place: Place) {
        let index = entry.index;
        self.append(&[entry]);
        self.synced(index, place);
    }

    /// Takes what `raft` hands out for writing. A conflicting suffix is replaced.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        if first.index <= self.last_index {
            assert!(first.index > self.applied, "an applied entry is replaced");
            self.truncate_from(first.index);
        }
        for entry in entries {
            assert_eq!(entry.index, self.last_index + 1, "an appended log has a hole");
            self.push_term(entry.index, entry.term);
            self.last_index = entry.index;
            self.cached_bytes += weight(entry);
            self.cached.push_back(entry.clone());
        }
    }

    /// Where the next entry was synced.
    pub(crate) fn synced(&mut self, index: u64, place: Place) {
        if index <= self.compacted.0 {
            return;
        }
        let next = self.compacted.0 + 1 + self.places.len() as u64;
        // While entries are written a new leader may replace them. Those that were replaced are heard
        // of first, so what is heard of last for an index stands.
        if index <= next {
            self.places.truncate((index - self.compacted.0 - 1) as usize);
            self.places.push_back(place);
        }
    }

    /// Entries up to `index` are applied and need not be kept in memory.
    pub(crate) fn applied(&mut self, index: u64) {
        assert!(self.applied <= index, "an entry is applied again");
        assert!(index <= self.last_index, "an entry is applied that the log does not have");
        self.applied = index;
        let keep = if self.is_alone() { 0 } else { CACHE_BYTES };
        while self.cached_bytes > keep
            && self.cached.front().is_some_and(|entry| entry.index <= index)
        {
            self.cached_bytes -= self.cached.pop_front().map_or(0, |entry| weight(&entry));
        }
    }

    /// Everything up to `index` is in a checkpoint that is synced.
    pub(crate) fn compact(&mut self, index: u64) {
        let Ok(term) = self.term(index) else { return };
        if index < self.checkpoint.0 {
            return;
        }
        self.checkpoint = (index, term);
        let keep = if self.is_alone() { 0 } else { ENTRIES_KEPT };
        self.forget_to(index.saturating_sub(keep));
    }

    /// Entries below the checkpoint that were to be read were not there any more.
    pub(crate) fn forget_what_is_covered(&mut self) {
        self.forget_to(self.checkpoint.0);
    }

    fn forget_to(&mut self, index: u64) {
        let Ok(term) = self.term(index) else { return };
        let gone = (index - self.compacted.0) as usize;
        assert!(gone <= self.places.len(), "an entry was compacted before it was synced");
        self.places.drain(..gone);
        while self.terms.get(1).is_some_and(|&(first, _)| first <= index + 1) {
            self.terms.pop_front();
        }
        self.compacted = (index, term);
    }

    pub(crate) fn set_hard_state(&mut self, hard_state: HardState) {
        self.hard_state = hard_state;
    }

    pub(crate) fn set_members(&mut self, members: ConfState) {
        self.members = members;
    }

    pub(crate) fn members(&self) -> &ConfState {
        &self.members
    }

    pub(crate) fn place(&self, index: u64) -> Option<Place> {
        let nth = index.checked_sub(self.compacted.0 + 1)?;
        self.places.get(nth as usize).copied()
    }

    /// Index and term of the checkpoint.
    pub(crate) fn checkpoint(&self) -> (u64, u64) {
        self.checkpoint
    }

    /// Index and term of the last entry that is not asked for any more.
    pub(crate) fn compacted(&self) -> (u64, u64) {
        self.compacted
    }

    /// What `raft` wants to read from the disk.
    pub(crate) fn take_wanted(&mut self) -> Vec<Wanted> {
        std::mem::take(self.wanted.get_mut())
    }

    /// Entries from `low` on are being read, or are no more.
    pub(crate) fn set_reading(&mut self, low: u64, is_reading: bool) {
        self.reading.retain(|at| *at != low);
        if is_reading {
            self.reading.push(low);
        }
    }

    /// Followers that need a snapshot.
    pub(crate) fn take_behind(&mut self) -> Vec<u64> {
        std::mem::take(self.behind.get_mut())
    }

    /// The entries that were read from disk, for `raft` to find while it asks for them.
    pub(crate) fn set_fetched(&mut self, entries: Vec<Entry>) {
        self.fetched = entries;
    }

    /// Whether this node is the only one that votes.
    pub(crate) fn is_alone(&self) -> bool {
        self.members.voters.len() == 1
            && self.members.voters_outgoing.is_empty()
            && self.members.learners.is_empty()
    }

    /// Nothing above what is applied is there any more.
    pub(crate) fn cut_tail(&mut self) {
        self.truncate_from(self.applied + 1);
        // What is applied was committed, whether or not that was written down since.
        self.hard_state.commit = self.applied;
    }

    fn truncate_from(&mut self, index: u64) {
        while self.cached.back().is_some_and(|entry| entry.index >= index) {
            self.cached_bytes -= self.cached.pop_back().map_or(0, |entry| weight(&entry));
        }
        while self.terms.back().is_some_and(|&(first, _)| first >= index) {
            self.terms.pop_back();
        }
        self.places.truncate((index - self.compacted.0 - 1) as usize);
        self.last_index = index - 1;
    }

    fn push_term(&mut self, index: u64, term: u64) {
        if self.terms.back().is_none_or(|&(_, last)| last != term) {
            self.terms.push_back((index, term));
        }
    }
}

fn weight(entry: &Entry) -> usize {
    entry.data.len() + ENTRY_WEIGHT
}

fn cut(entries: impl Iterator<Item = Entry>, limit: u64) -> Vec<Entry> {
    let (mut size, mut taken) = (0u64, Vec::new());
    for entry in entries {
        size += entry.data.len() as u64;
        if size > limit && !taken.is_empty() {
            break;
        }
        taken.push(entry);
    }
    taken
}

impl Storage for RaftLog {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(RaftState { hard_state: self.hard_state.clone(), conf_state: self.members.clone() })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low <= self.compacted.0 {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last_index + 1 || low > high {
            return Err(StorageError::Unavailable.into());
        }
        let limit = max_size.into().unwrap_or(u64::MAX);
        let first = self.cached.front().map_or(self.last_index + 1, |entry| entry.index);
        if low >= first {
            let range = (low - first) as usize..(high - first) as usize;
            return Ok(cut(self.cached.range(range).cloned(), limit));
        }
        if self.fetched.first().is_some_and(|entry| entry.index == low) {
            let fetched = self.fetched.iter().take_while(|entry| entry.index < high);
            return Ok(cut(fetched.cloned(), limit));
        }
        let mut wanted = self.wanted.borrow_mut();
        let is_asked = self.reading.contains(&low) || wanted.iter().any(|it| it.low == low);
        if context.can_async() && !is_asked {
            wanted.push(Wanted { context, low, high });
        }
        Err(StorageError::LogTemporarilyUnavailable.into())
    }

    fn term(&self, index: u64) -> Result<u64> {
        if index == self.compacted.0 {
            return Ok(self.compacted.1);
        }
        if index < self.compacted.0 {
            return Err(StorageError::Compacted.into());
        }
        if index > self.last_index {
            return Err(StorageError::Unavailable.into());
        }
        let run = self.terms.iter().rev().find(|&&(first, _)| first <= index);
        run.map(|&(_, term)| term).ok_or_else(|| StorageError::Unavailable.into())
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.compacted.0 + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last_index)
    }

    fn snapshot(&self, _request_index: u64, to: u64) -> Result<Snapshot> {
        // It goes on a connection of its own; the follower tells when it has it.
        let mut behind = self.behind.borrow_mut();
        if !behind.contains(&to) {
            behind.push(to);
        }
        Err(StorageError::SnapshotTemporarilyUnavailable.into())
    }
}

/// Version of the encoding of a hard state on disk.
const HARD_STATE_VERSION: u8 = 1;

/// A hard state's own fixed encoding: version, term, vote, commit.
pub(crate) fn encode_hard_state(state: &HardState) -> Bytes {
    let mut bytes = Vec::with_capacity(25);
    bytes.push(HARD_STATE_VERSION);
    for field in [state.term, state.vote, state.commit] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.into()
}

/// The hard state in `bytes`, unless they are of another version or length.
pub(crate) fn decode_hard_state(bytes: &[u8]) -> Option<HardState> {
    let (&version, fields) = bytes.split_first()?;
    if version != HARD_STATE_VERSION || fields.len() != 24 {
        return None;
    }
    let field = |nth: usize| fields[nth * 8..nth * 8 + 8].try_into().ok().map(u64::from_le_bytes);
    let mut state = HardState::default();
    (state.term, state.vote, state.commit) = (field(0)?, field(1)?, field(2)?);
    Some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hard_state_survives_its_encoding() {
        let mut state = HardState::default();
        (state.term, state.vote, state.commit) = (3, 1, u64::MAX);
        assert_eq!(decode_hard_state(&encode_hard_state(&state)), Some(state));
    }

    #[test]
    fn a_hard_state_of_another_version_is_refused() {
        let mut bytes = encode_hard_state(&HardState::default()).to_vec();
        bytes[0] = 2;
        assert_eq!(decode_hard_state(&bytes), None);
    }

    fn voters(voters: &[u64]) -> ConfState {
        ConfState { voters: voters.to_vec(), ..ConfState::default() }
    }

    fn entry(index: u64, term: u64) -> Entry {
        let mut entry = Entry::default();
        (entry.index, entry.term) = (index, term);
        entry
    }

    #[test]
    fn terms_are_known_from_the_checkpoint_to_the_last_entry() {
        let mut log = RaftLog::new(HardState::default(), voters(&[1]), 4, 2);
        log.append(&[entry(5, 2), entry(6, 3), entry(7, 3)]);
        let terms: Vec<_> = (4..8).map(|index| log.term(index).unwrap()).collect();
        assert_eq!(terms, [2, 2, 3, 3]);
        assert!(log.term(3).is_err());
        assert!(log.term(8).is_err());
    }

    #[test]
    fn a_conflicting_suffix_is_replaced() {
        let mut log = RaftLog::new(HardState::default(), voters(&[1]), 0, 0);
        log.append(&[entry(1, 1), entry(2, 1), entry(3, 1)]);
        log.append(&[entry(2, 2)]);
        assert_eq!(log.last_index().unwrap(), 2);
        assert_eq!(log.term(2).unwrap(), 2);
    }

    fn place(offset: u64) -> Place {
        Place { file: 1, offset, bytes: 1, checksum: 0 }
    }

    #[test]
    fn entries_that_are_not_there_are_refused_and_not_a_panic() {
        let mut log = RaftLog::new(HardState::default(), voters(&[1]), 4, 1);
        log.append(&[entry(5, 1), entry(6, 1), entry(7, 1)]);
        log.applied(5);
        let context = || GetEntriesContext::empty(false);
        assert_eq!(log.entries(6, 8, None, context()).unwrap().len(), 2);
        assert!(log.entries(6, 6, None, context()).unwrap().is_empty());
        assert!(log.entries(8, 8, None, context()).unwrap().is_empty());
        assert!(log.entries(5, 7, None, context()).is_err(), "it is applied and forgotten");
        assert!(log.entries(6, 9, None, context()).is_err());
        assert!(log.entries(9, 10, None, context()).is_err());
    }

    #[test]
    fn entries_that_are_being_read_are_not_asked_for_again() {
        let mut log = RaftLog::new(HardState::default(), voters(&[1]), 0, 0);
        log.append(&[entry(1, 1), entry(2, 1)]);
        log.applied(2);
        let ask = |log: &RaftLog| {
            assert!(log.entries(1, 3, None, GetEntriesContext::empty(true)).is_err());
        };
        ask(&log);
        ask(&log);
        assert_eq!(log.take_wanted().len(), 1);
        log.set_reading(1, true);
        ask(&log);
        assert!(log.take_wanted().is_empty());
        log.set_reading(1, false);
        ask(&log);
        assert_eq!(log.take_wanted().len(), 1);
    }

    #[test]
    fn a_size_limit_lets_at_least_one_entry_through() {
        let mut log = RaftLog::new(HardState::default(), voters(&[1]), 0, 0);
        let mut large = entry(1, 1);
        large.data = vec![0; 100].into();
        log.append(&[large, entry(2, 1)]);
        let found = log.entries(1, 3, Some(10), GetEntriesContext::empty(false)).unwrap();
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn places_follow_entries_through_truncation_and_compaction() {
        let mut log = RaftLog::new(HardState::default(), voters(&[1]), 0, 0);
        log.append(&[entry(1, 1), entry(2, 1), entry(3, 1)]);
        log.synced(1, place(10));
        log.synced(2, place(20));
        // A new leader replaces 2 and 3 while 3 is being written.
        log.append(&[entry(2, 2)]);
        log.synced(3, place(30));
        log.synced(2, place(21));
        assert_eq!(log.place(2), Some(place(21)));
        assert_eq!(log.place(3), None);
        log.compact(1);
        assert_eq!((log.place(1), log.place(2)), (None, Some(place(21))));
        assert_eq!(log.term(2).unwrap(), 2);
        // What was compacted and is heard of late changes nothing.
        log.synced(1, place(99));
        assert_eq!(log.place(2), Some(place(21)));
        log.compact(2);
        assert_eq!((log.first_index().unwrap(), log.last_index().unwrap()), (3, 2));
        log.append(&[entry(3, 2)]);
        log.synced(3, place(40));
        assert_eq!((log.place(3), log.term(3).unwrap()), (Some(place(40)), 2));
        // Twice the same checkpoint, and an older one.
        log.compact(2);
        log.compact(1);
        assert_eq!(log.compacted(), (2, 2));
    }

    #[test]
    fn a_log_that_is_cut_ends_with_what_is_applied_and_that_is_committed() {
        let mut hard_state = HardState::default();
        (hard_state.term, hard_state.commit) = (1, 1);
        let mut log = RaftLog::new(hard_state, voters(&[1, 2]), 0, 0);
        log.append(&[entry(1, 1), entry(2, 1), entry(3, 1)]);
        (1..4).for_each(|index| log.synced(index, place(index)));
        log.applied(2);
        log.cut_tail();
        assert_eq!((log.last_index().unwrap(), log.place(3)), (2, None));
        assert_eq!(log.initial_state().unwrap().hard_state.commit, 2);
        log.append(&[entry(3, 2)]);
        assert_eq!(log.term(3).unwrap(), 2);
    }

    #[test]
    fn a_recovered_log_goes_on_where_its_checkpoint_ends() {
        let mut log = RaftLog::new(HardState::default(), voters(&[1]), 7, 3);
        log.recover(8, 3, place(1));
        log.recover(9, 4, place(2));
        assert_eq!(
            (log.place(7), log.place(8), log.place(9)),
            (None, Some(place(1)), Some(place(2)))
        );
        log.compact(8);
        assert_eq!((log.term(8).unwrap(), log.term(9).unwrap()), (3, 4));
    }

    #[test]
    fn followers_a_little_behind_need_no_snapshot_while_the_entries_are_there() {
        let mut log = RaftLog::new(HardState::default(), voters(&[1, 2]), 0, 0);
        for index in 1..=20 {
            log.append(&[entry(index, 1 + index / 10)]);
            log.synced(index, place(index));
        }
        log.applied(20);
        log.compact(15);
        assert_eq!((log.checkpoint(), log.compacted()), ((15, 2), (0, 0)));
        assert_eq!((log.place(3), log.term(3).unwrap()), (Some(place(3)), 1));
        log.compact(14);
        assert_eq!(log.checkpoint(), (15, 2), "checkpoints go forward");
        log.forget_what_is_covered();
        assert_eq!((log.checkpoint(), log.compacted()), ((15, 2), (15, 2)));
        assert_eq!((log.place(15), log.place(16)), (None, Some(place(16))));
    }
}
