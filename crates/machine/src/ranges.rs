//! Sets of sequence numbers as sorted, disjoint, half-open ranges.
//!
//! Queues are mostly runs: a whole backlog is one range, acknowledged from the front. What is
//! acknowledged out of order leaves holes, so a set has at most one range more than messages are out.
//! Every change costs O(log n) of the ranges it touches.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::encoding::{Corrupt, Reader, put_varint};

/// A set of sequence numbers. Ranges never touch each other: `1..3` and `3..5` become `1..5`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// Start to end.
    ends: BTreeMap<u64, u64>,
    /// How many numbers are in all ranges.
    count: u64,
}

impl Ranges {
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a range in. Returns how many of its numbers were not there before.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.start >= range.end {
            return 0;
        }
        let added = match self.ends.last_entry() {
            // The usual case: the next run of a queue, or of what a consumer holds.
            Some(mut last) if *last.get() == range.start => {
                last.insert(range.end);
                range.end - range.start
            }
            Some(last) if *last.get() > range.start => self.insert_between(range),
            Some(_) | None => {
                self.ends.insert(range.start, range.end);
                range.end - range.start
            }
        };
        self.count += added;
        added
    }

    fn insert_between(&mut self, range: Range<u64>) -> u64 {
        let Range { mut start, mut end } = range;
        let mut swallowed = 0;
        if let Some((&before, &before_end)) = self.ends.range(..=start).next_back()
            && before_end >= start
        {
            if before_end >= end {
                return 0;
            }
            swallowed += before_end - before;
            start = before;
        }
        while let Some((&next, &next_end)) = self.ends.range(start..).next()
            && next <= end
        {
            if next != start {
                swallowed += next_end - next;
            }
            end = end.max(next_end);
            self.ends.remove(&next);
        }
        self.ends.insert(start, end);
        end - start - swallowed
    }

    /// Takes a range out. Returns how many of its numbers were there.
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        self.cut(range, |_| {})
    }

    /// Moves what is there of a range into another set. Returns how many numbers that were.
    pub fn take(&mut self, range: Range<u64>, into: &mut Self) -> u64 {
        self.cut(range, |piece| {
            into.insert(piece);
        })
    }

    fn cut(&mut self, range: Range<u64>, mut removed: impl FnMut(Range<u64>)) -> u64 {
        if range.start >= range.end {
            return 0;
        }
        let mut count = 0;
        // A range that begins before: its head stays.
        if let Some((&before, before_end)) = self.ends.range_mut(..range.start).next_back()
            && *before_end > range.start
        {
            let old_end = *before_end;
            debug_assert!(before < range.start, "the head that stays is not empty");
            *before_end = range.start;
            let end = old_end.min(range.end);
            removed(range.start..end);
            count += end - range.start;
            if old_end > range.end {
                self.ends.insert(range.end, old_end);
            }
        }
        while let Some((&next, &next_end)) = self.ends.range(range.start..range.end).next() {
            self.ends.remove(&next);
            let end = next_end.min(range.end);
            removed(next..end);
            count += end - next;
            if next_end > range.end {
                self.ends.insert(range.end, next_end);
            }
        }
        self.count -= count;
        count
    }

    pub fn insert_all(&mut self, other: &Self) -> u64 {
        other.ranges().map(|range| self.insert(range)).sum()
    }

    pub fn remove_all(&mut self, other: &Self) -> u64 {
        if self.is_empty() {
            return 0;
        }
        other.ranges().map(|range| self.remove(range)).sum()
    }

    /// Takes the front of the first range, at most `max` numbers of it.
    pub fn pop_front(&mut self, max: u64) -> Option<Range<u64>> {
        if max == 0 {
            return None;
        }
        let (start, end) = self.ends.pop_first()?;
        let middle = start.saturating_add(max).min(end);
        if middle < end {
            self.ends.insert(middle, end);
        }
        self.count -= middle - start;
        Some(start..middle)
    }

    /// Takes the last range.
    pub(crate) fn pop_last(&mut self) -> Option<Range<u64>> {
        let (start, end) = self.ends.pop_last()?;
        self.count -= end - start;
        Some(start..end)
    }

    /// Takes whole ranges off the front, at most `max` of them.
    pub fn split_front(&mut self, max: usize) -> Self {
        let Some((&cut, _)) = self.ends.iter().nth(max) else {
            return std::mem::take(self);
        };
        let rest = self.ends.split_off(&cut);
        let front = std::mem::replace(&mut self.ends, rest);
        let count = front.iter().map(|(start, end)| end - start).sum();
        self.count -= count;
        Self { ends: front, count }
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn contains(&self, seq: u64) -> bool {
        self.ends.range(..=seq).next_back().is_some_and(|(_, end)| seq < *end)
    }

    /// The part of a range, counted from its start, that is wholly inside or wholly outside:
    /// its end, and which of both.
    pub(crate) fn uniform(&self, range: &Range<u64>) -> (u64, bool) {
        match self.ends.range(..=range.start).next_back() {
            Some((_, end)) if range.start < *end => (range.end.min(*end), true),
            Some(_) | None => {
                let next = self.ends.range(range.start..).next();
                (next.map_or(range.end, |(start, _)| range.end.min(*start)), false)
            }
        }
    }

    pub fn first(&self) -> Option<u64> {
        self.ends.first_key_value().map(|(start, _)| *start)
    }

    pub fn last(&self) -> Option<u64> {
        self.ends.last_key_value().map(|(_, end)| *end - 1)
    }

    pub(crate) fn first_range(&self) -> Option<Range<u64>> {
        self.ends.first_key_value().map(|(start, end)| *start..*end)
    }

    /// How many numbers, not ranges.
    pub fn len(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn range_count(&self) -> usize {
        self.ends.len()
    }

    /// In order.
    pub fn ranges(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.ends.iter().map(|(start, end)| *start..*end)
    }

    /// The parts of ranges from `seq` on, in order.
    pub(crate) fn ranges_from(&self, seq: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.ends.range(..=seq).next_back().map_or(seq, |(start, _)| *start);
        let ranges = self.ends.range(first..).map(|(start, end)| *start..*end);
        ranges
            .filter(move |range| range.end > seq)
            .map(move |range| range.start.max(seq)..range.end)
    }

    /// Every single number, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.ranges().flatten()
    }

    /// What is in both. O(k log n), k being the ranges of the smaller one and of the answer.
    pub fn intersect(&self, other: &Self) -> Self {
        let (few, many) =
            if self.ends.len() <= other.ends.len() { (self, other) } else { (other, self) };
        let mut both = Self::default();
        for range in few.ranges() {
            let mut start = range.start;
            while start < range.end {
                let (end, inside) = many.uniform(&(start..range.end));
                if inside {
                    both.insert(start..end);
                }
                start = end;
            }
        }
        both
    }

    /// Whether any number of `range` is in.
    pub fn intersects(&self, range: Range<u64>) -> bool {
        let before = self.ends.range(..range.end).next_back();
        range.start < range.end && before.is_some_and(|(_, end)| *end > range.start)
    }

    /// What of `range` is in. O(log n + k), k being the ranges of the answer.
    pub fn within(&self, range: Range<u64>) -> Self {
        let mut found = Self::default();
        let from = match self.ends.range(..=range.start).next_back() {
            Some((start, _)) => *start,
            None => range.start,
        };
        for (start, end) in self.ends.range(from..range.end.max(from)) {
            found.insert((*start).max(range.start)..(*end).min(range.end));
        }
        found
    }

    /// Count of ranges, then gap and length of each, all as varints.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.ends.len() as u64);
        let mut before = 0;
        for (start, end) in &self.ends {
            put_varint(out, start - before);
            put_varint(out, end - start);
            before = *end;
        }
    }

    /// Reads what `encode` wrote and gives the bytes behind it. Total on any bytes.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), Corrupt> {
        let mut reader = Reader::new(bytes, "ranges");
        let ranges = Self::read(&mut reader)?;
        Ok((ranges, reader.rest()))
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let range_count = reader.varint()?;
        let mut ranges = Self::default();
        let mut before = 0u64;
        for number in 0..range_count {
            let gap = reader.varint()?;
            let count = reader.varint()?;
            if count == 0 || (gap == 0 && number > 0) {
                return Err(reader.corrupt());
            }
            let start = before.checked_add(gap).ok_or(reader.corrupt())?;
            let end = start.checked_add(count).ok_or(reader.corrupt())?;
            ranges.ends.insert(start, end);
            ranges.count += count;
            before = end;
        }
        Ok(ranges)
    }
}

impl From<Range<u64>> for Ranges {
    fn from(range: Range<u64>) -> Self {
        Self::from_iter([range])
    }
}

impl FromIterator<Range<u64>> for Ranges {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut all = Self::default();
        for range in ranges {
            all.insert(range);
        }
        all
    }
}
