//! Numbers of a store, to look at: some ranges, and perhaps all from a number on to the store's end.
//!
//! What is kept of a store and what is ready for a reader are asked for as this, whatever they are made
//! of: a plain queue keeps what its reader has not settled, and another store may keep all from a
//! number on.

use std::ops::Range;

use crate::encoding::put_varint;
use crate::ranges::Ranges;

/// A set of sequence numbers. Copied, it is still the same set.
#[derive(Clone, Copy, Debug)]
pub struct Seqs<'a> {
    /// Ends below `from`: nothing in it touches what follows.
    left: &'a Ranges,
    /// From here on, up to `end`, all are in.
    from: u64,
    end: u64,
}

impl<'a> Seqs<'a> {
    pub(crate) fn new(left: &'a Ranges, tail: Range<u64>) -> Self {
        Self { left, from: tail.start, end: tail.end }
    }

    fn tail(self) -> Option<Range<u64>> {
        (self.from < self.end).then_some(self.from..self.end)
    }

    /// In order.
    pub fn ranges(self) -> impl Iterator<Item = Range<u64>> + 'a {
        self.left.ranges().chain(self.tail())
    }

    /// Every single number from `seq` on, in order.
    pub(crate) fn iter_from(self, seq: u64) -> impl Iterator<Item = u64> + 'a {
        let tail = self.from.max(seq)..self.end;
        self.left.ranges_from(seq).flatten().chain(tail)
    }

    /// Every single number, in order.
    pub fn iter(self) -> impl Iterator<Item = u64> + 'a {
        self.ranges().flatten()
    }

    pub fn to_ranges(self) -> Ranges {
        let mut all = self.left.clone();
        all.insert(self.from..self.end);
        all
    }

    /// How many numbers, not ranges.
    #[inline]
    pub fn len(self) -> u64 {
        self.left.len() + self.end.saturating_sub(self.from)
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        self.left.is_empty() && self.from >= self.end
    }

    pub fn contains(self, seq: u64) -> bool {
        (self.from..self.end).contains(&seq) || self.left.contains(seq)
    }

    #[inline]
    pub fn first(self) -> Option<u64> {
        self.left.first().or_else(|| self.tail().map(|tail| tail.start))
    }

    #[inline]
    pub(crate) fn first_range(self) -> Option<Range<u64>> {
        self.left.first_range().or_else(|| self.tail())
    }

    /// The first range at or after `seq`, without what is before that.
    pub(crate) fn range_from(self, seq: u64) -> Option<Range<u64>> {
        let tail = self.from.max(seq)..self.end;
        self.left.ranges_from(seq).next().or_else(|| (tail.start < tail.end).then_some(tail))
    }

    /// The part of a range, counted from its start, that is wholly inside or wholly outside: its end, and which of both.
    pub(crate) fn uniform(self, range: &Range<u64>) -> (u64, bool) {
        if range.start >= self.from {
            let is_in = range.start < self.end;
            return (if is_in { range.end.min(self.end) } else { range.end }, is_in);
        }
        self.left.uniform(&(range.start..range.end.min(self.from)))
    }

    /// Whether any number of `range` is in.
    pub fn intersects(self, range: Range<u64>) -> bool {
        let in_tail = range.start.max(self.from) < range.end.min(self.end);
        in_tail || self.left.intersects(range)
    }

    /// What of `range` is in.
    pub fn within(self, range: Range<u64>) -> Ranges {
        let in_tail = range.start.max(self.from)..range.end.min(self.end);
        let mut found = self.left.within(range);
        found.insert(in_tail);
        found
    }

    /// What is in both.
    pub fn intersect(self, other: &Ranges) -> Ranges {
        let mut both = self.left.intersect(other);
        if self.from < self.end {
            both.insert_all(&other.within(self.from..self.end));
        }
        both
    }

    /// As `Ranges::encode` does it.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        let tail = self.tail();
        put_varint(out, self.left.range_count() as u64 + u64::from(tail.is_some()));
        let mut before = 0;
        for range in self.ranges() {
            put_varint(out, range.start - before);
            put_varint(out, range.end - range.start);
            before = range.end;
        }
    }
}

impl<'a> From<&'a Ranges> for Seqs<'a> {
    fn from(ranges: &'a Ranges) -> Self {
        Self::new(ranges, u64::MAX..u64::MAX)
    }
}
