//! Numbers that messages of a queue are marked with: when they expire, how often they came back, how
//! large they are.
//!
//! Runs of messages with the same number are kept as one, so that a queue whose messages are alike
//! pays for its entries, not for its messages.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::encoding::{Corrupt, Reader, put_varint};
use crate::ranges::Ranges;

/// Sequence numbers to values. Most have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Values {
    /// Start to end and value.
    runs: BTreeMap<u64, (u64, u64)>,
}

impl Values {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Values a range, whatever it was marked with before.
    pub(crate) fn set(&mut self, range: Range<u64>, value: u64) {
        if range.start >= range.end {
            return;
        }
        match self.runs.last_entry() {
            // The usual case: the next message of a queue.
            Some(mut last) if last.get().0 <= range.start => {
                let (end, of_last) = last.get_mut();
                if *end == range.start && *of_last == value {
                    *end = range.end;
                    return;
                }
            }
            Some(_) => self.remove(range.clone()),
            None => {}
        }
        self.runs.insert(range.start, (range.end, value));
    }

    /// The part of a range, counted from its start, that has one value or none: its end, and which.
    pub(crate) fn uniform(&self, range: &Range<u64>) -> (u64, Option<u64>) {
        match self.runs.range(..=range.start).next_back() {
            Some((_, (end, value))) if range.start < *end => (range.end.min(*end), Some(*value)),
            Some(_) | None => {
                let next = self.runs.range(range.start..).next();
                (next.map_or(range.end, |(start, _)| range.end.min(*start)), None)
            }
        }
    }

    /// The parts of a range, in order, each with its value or none.
    pub(crate) fn parts(
        &self,
        range: Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, Option<u64>)> + '_ {
        let mut rest = range;
        std::iter::from_fn(move || {
            if rest.start >= rest.end {
                return None;
            }
            let (end, value) = self.uniform(&rest);
            let part = rest.start..end;
            rest.start = end;
            Some((part, value))
        })
    }

    /// What the values of a range add up to.
    pub(crate) fn sum(&self, range: Range<u64>) -> u64 {
        self.parts(range).fold(0, |sum, (part, value)| {
            let more = (part.end - part.start).saturating_mul(value.unwrap_or(0));
            sum.saturating_add(more)
        })
    }

    pub(crate) fn remove(&mut self, range: Range<u64>) {
        if self.runs.is_empty() || range.start >= range.end {
            return;
        }
        if let Some((_, (before_end, value))) = self.runs.range_mut(..range.start).next_back()
            && *before_end > range.start
        {
            let (end, value) = (*before_end, *value);
            *before_end = range.start;
            if end > range.end {
                self.runs.insert(range.end, (end, value));
            }
        }
        while let Some((&start, &(end, value))) = self.runs.range(range.start..range.end).next() {
            self.runs.remove(&start);
            if end > range.end {
                self.runs.insert(range.end, (end, value));
            }
        }
    }

    pub(crate) fn remove_all(&mut self, ranges: &Ranges) {
        if !self.runs.is_empty() {
            ranges.ranges().for_each(|range| self.remove(range));
        }
    }

    /// Count of runs, then gap, length and value of each, all as varints.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.runs.len() as u64);
        let mut before = 0;
        for (start, (end, value)) in &self.runs {
            put_varint(out, start - before);
            put_varint(out, end - start);
            put_varint(out, *value);
            before = *end;
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let mut marks = Self::default();
        let mut before = 0u64;
        for _ in 0..reader.varint()? {
            let start = before.checked_add(reader.varint()?).ok_or(reader.corrupt())?;
            let count = reader.varint()?;
            let end = start.checked_add(count).filter(|_| count > 0).ok_or(reader.corrupt())?;
            marks.runs.insert(start, (end, reader.varint()?));
            before = end;
        }
        Ok(marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(marks: &Values, range: Range<u64>) -> Vec<(Range<u64>, Option<u64>)> {
        marks.parts(range).collect()
    }

    #[test]
    fn messages_that_follow_each_other_with_one_value_are_one_run() {
        let mut marks = Values::default();
        marks.set(1..4, 7);
        marks.set(4..6, 7);
        marks.set(6..7, 8);
        assert_eq!(marks.runs.len(), 2);
        assert_eq!(
            of(&marks, 0..9),
            [(0..1, None), (1..6, Some(7)), (6..7, Some(8)), (7..9, None)]
        );
        assert_eq!(marks.sum(0..9), 43);
    }

    #[test]
    fn a_hole_in_a_run_leaves_its_ends() {
        let mut marks = Values::default();
        marks.set(1..10, 7);
        marks.remove(3..5);
        marks.set(4..5, 9);
        assert_eq!(
            of(&marks, 1..10),
            [(1..3, Some(7)), (3..4, None), (4..5, Some(9)), (5..10, Some(7))]
        );
        marks.remove(2..9);
        assert_eq!(of(&marks, 1..10), [(1..2, Some(7)), (2..9, None), (9..10, Some(7))]);
    }

    #[test]
    fn marks_come_back_from_their_bytes() {
        let mut marks = Values::default();
        marks.set(5..9, 1);
        marks.set(9..11, u64::MAX);
        marks.set(200..201, 0);
        let mut out = Vec::new();
        marks.encode(&mut out);
        let mut reader = Reader::new(&out, "test");
        assert_eq!(Values::read(&mut reader).as_ref(), Ok(&marks));
        assert_eq!(reader.end(), Ok(()));
    }
}
