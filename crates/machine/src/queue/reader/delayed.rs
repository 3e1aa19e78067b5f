//! Messages that wait for their time, and the keys by which they are cancelled.
//!
//! When each is due is replicated. The order in which they fall due is the leader's affair: an index
//! that is made anew when it begins to lead.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::encoding::{Corrupt, Reader, put_u64, put_varint};
use crate::ranges::Ranges;

/// Messages that are not ready before their time.
#[derive(Clone, Debug, Default)]
pub(crate) struct DelayedMessages {
    // Replicated.
    all: BTreeMap<u64, Delayed>,
    /// Short keys and their messages.
    keys: BTreeSet<(u64, u64)>,
    // Leader-local.
    /// Those that were not made ready yet, in the order in which they fall due.
    due: BTreeSet<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Delayed {
    due_ms: u64,
    /// 0: it has none.
    key: u64,
}

/// What is kept of a key: another one with the same is not to be expected.
fn short(key: u128) -> u64 {
    (key as u64 ^ (key >> 64) as u64).max(1)
}

impl DelayedMessages {
    pub(crate) fn insert(&mut self, seq: u64, due_ms: u64, key: Option<u128>, is_leading: bool) {
        let key = key.map_or(0, short);
        self.forget(seq..seq + 1);
        self.all.insert(seq, Delayed { due_ms, key });
        if key != 0 {
            self.keys.insert((key, seq));
        }
        if is_leading {
            self.due.insert((due_ms, seq));
        }
    }

    /// All wait that are not due at `now_ms`; the others are not waited for any more.
    pub(crate) fn lead(&mut self, now_ms: u64) -> Ranges {
        let waiting = self.all.iter().filter(|(_, delayed)| delayed.due_ms > now_ms);
        self.due = waiting.map(|(seq, delayed)| (delayed.due_ms, *seq)).collect();
        self.due.iter().map(|(_, seq)| *seq..*seq + 1).collect()
    }

    pub(crate) fn follow(&mut self) {
        self.due = BTreeSet::new();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// From a number on, each that waits or waited: when it was or is due, and whether it waits. Leader only.
    pub(crate) fn from(&self, seq: u64) -> impl Iterator<Item = (u64, u64, bool)> {
        self.all.range(seq..).map(|(seq, Delayed { due_ms, .. })| {
            (*seq, *due_ms, self.due.contains(&(*due_ms, *seq)))
        })
    }

    /// Which of a range wait or waited.
    pub(crate) fn within(&self, range: Range<u64>) -> Ranges {
        self.all.range(range).map(|(seq, _)| *seq..*seq + 1).collect()
    }

    /// Which of `ranges` wait or waited.
    pub(crate) fn within_all(&self, ranges: &Ranges) -> Ranges {
        let mut found = Ranges::new();
        for range in ranges.ranges() {
            found.insert_all(&self.within(range));
        }
        found
    }

    /// Those that were not made ready yet: leader only.
    pub(crate) fn not_due(&self) -> Ranges {
        let mut all: Vec<u64> = self.due.iter().map(|(_, seq)| *seq).collect();
        all.sort_unstable();
        all.into_iter().map(|seq| seq..seq + 1).collect()
    }

    /// When the next one falls due: leader only.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    /// How many wait: leader only.
    pub(crate) fn waiting(&self) -> u64 {
        self.due.len() as u64
    }

    /// Those that are due, at most `max`. They stay known until they are settled.
    pub(crate) fn take_due(&mut self, now_ms: u64, max: usize) -> Ranges {
        let mut taken = Ranges::new();
        for _ in 0..max {
            match self.due.first() {
                Some(&(due_ms, seq)) if due_ms <= now_ms => {
                    self.due.pop_first();
                    taken.insert(seq..seq + 1);
                }
                Some(_) | None => break,
            }
        }
        taken
    }

    /// Those of a range that were not made ready yet, and are not to be any more: somebody holds them.
    pub(crate) fn take_early(&mut self, range: Range<u64>) -> Ranges {
        if self.due.is_empty() {
            return Ranges::new();
        }
        let early = self.all.range(range).filter(|(seq, it)| self.due.remove(&(it.due_ms, **seq)));
        early.map(|(seq, _)| *seq..*seq + 1).collect()
    }

    /// The messages with a key that are not due at `now_ms`.
    pub(crate) fn with_key(&self, key: u128, now_ms: u64) -> Ranges {
        let key = short(key);
        let with_key = self.keys.range((key, 0)..=(key, u64::MAX)).map(|(_, seq)| *seq);
        let is_waiting =
            |seq: &u64| self.all.get(seq).is_some_and(|delayed| delayed.due_ms > now_ms);
        with_key.filter(is_waiting).map(|seq| seq..seq + 1).collect()
    }

    pub(crate) fn forget_all(&mut self, ranges: &Ranges) {
        if !self.all.is_empty() {
            ranges.ranges().for_each(|range| self.forget(range));
        }
    }

    fn forget(&mut self, range: Range<u64>) {
        while let Some((&seq, &Delayed { due_ms, key })) = self.all.range(range.clone()).next() {
            self.all.remove(&seq);
            self.due.remove(&(due_ms, seq));
            if key != 0 {
                self.keys.remove(&(key, seq));
            }
        }
    }

    /// Count, then gap, time and key of each.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.all.len() as u64);
        let mut before = 0;
        for (seq, delayed) in &self.all {
            put_varint(out, seq - before);
            put_varint(out, delayed.due_ms);
            put_u64(out, delayed.key);
            before = *seq;
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let mut delayed = Self::default();
        let mut before = 0u64;
        for number in 0..reader.varint()? {
            let gap = reader.varint()?;
            let seq = before.checked_add(gap).filter(|_| gap > 0 || number == 0);
            let seq = seq.ok_or(reader.corrupt())?;
            let (due_ms, key) = (reader.varint()?, reader.u64()?);
            delayed.all.insert(seq, Delayed { due_ms, key });
            if key != 0 {
                delayed.keys.insert((key, seq));
            }
            before = seq;
        }
        Ok(delayed)
    }
}
