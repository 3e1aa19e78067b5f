//! What a shard has handed out for writing and does not know to be synced.

use std::collections::VecDeque;

use machine::GroupId;

/// The appends that are being written, in their order.
///
/// The log syncs them in that order. No append is lost alone: a write that fails ends the node.
#[derive(Debug, Default)]
pub(super) struct Appends {
    /// The number of the last append that was handed out; 0: none was. There is no gap.
    last: u64,
    /// Those that are not synced, the oldest first.
    writing: VecDeque<Append>,
    /// Bytes proposed since one was last handed out.
    gathered_bytes: usize,
    /// The next one is being put together: a step within must not begin another one.
    is_begun: bool,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) number: u64,
    /// Group and index of each entry that it holds.
    pub(super) entries: Vec<(GroupId, u64)>,
    bytes: usize,
}

impl Appends {
    /// So many more bytes are proposed. Says how many wait for the next append; 0: it is being put together.
    pub(super) fn gather(&mut self, bytes: usize) -> usize {
        self.gathered_bytes += bytes;
        if self.is_begun { 0 } else { self.gathered_bytes }
    }

    /// The next append is put together, of all that is gathered.
    pub(super) fn begin(&mut self) {
        self.gathered_bytes = 0;
        self.is_begun = true;
    }

    /// It was handed out.
    pub(super) fn end(&mut self) {
        self.is_begun = false;
    }

    /// The number of the append that is handed out next.
    pub(super) fn next_number(&self) -> u64 {
        self.last + 1
    }

    /// An append is handed out. Says its number.
    pub(super) fn hand_out(&mut self, entries: Vec<(GroupId, u64)>, bytes: usize) -> u64 {
        self.last += 1;
        let number = self.last;
        self.writing.push_back(Append { number, entries, bytes });
        number
    }

    /// The oldest one, if `number` is synced and it is not above that.
    pub(super) fn pop_synced(&mut self, number: u64) -> Option<Append> {
        let is_synced = self.writing.front().is_some_and(|append| append.number <= number);
        if is_synced { self.writing.pop_front() } else { None }
    }

    /// Whether all are synced.
    pub(super) fn is_empty(&self) -> bool {
        self.writing.is_empty()
    }

    /// Whether an entry of `group` is being written.
    pub(super) fn has(&self, group: GroupId) -> bool {
        self.writing.iter().any(|append| append.entries.iter().any(|(of, _)| *of == group))
    }

    /// Bytes that are being written.
    pub(super) fn bytes(&self) -> usize {
        self.writing.iter().map(|append| append.bytes).sum()
    }
}
