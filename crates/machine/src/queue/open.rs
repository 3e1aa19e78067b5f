//! Messages of a store that a reader is not done with: what is left of those it began with, and all from a
//! number on.
//!
//! What comes into the store is in at once and without being told, so a publish costs no reader anything;
//! what leaves in order moves one number.

use std::ops::Range;

use super::end::End;
use super::seqs::Seqs;
use crate::ranges::Ranges;

/// A set of sequence numbers that has no end of its own. Whoever asks says where the store ends.
#[derive(Clone, Debug)]
pub(crate) struct OpenEnded {
    /// What is left below `fresh`. Nothing in it touches `fresh`.
    left: Ranges,
    /// From here on all are in.
    fresh: u64,
}

impl OpenEnded {
    /// All that ever comes.
    pub(crate) fn all() -> Self {
        Self { left: Ranges::new(), fresh: 1 }
    }

    /// All from `seq` on, of a store that goes at least so far.
    pub(crate) fn from(seq: u64) -> Self {
        Self { left: Ranges::new(), fresh: seq }
    }

    /// Nothing, whatever comes.
    pub(crate) fn none() -> Self {
        Self { left: Ranges::new(), fresh: u64::MAX }
    }

    /// These of what has come, and all that comes.
    pub(crate) fn of(mut left: Ranges, end: End) -> Self {
        left.remove(end.0..u64::MAX);
        let mut all = Self { left, fresh: end.0 };
        all.join();
        all
    }

    /// What is in of a store that ends there.
    #[inline]
    pub(crate) fn at(&self, end: End) -> Seqs<'_> {
        Seqs::new(&self.left, self.fresh..end.0)
    }

    /// Puts in what is not: it came before and was taken out.
    pub(crate) fn insert_all(&mut self, ranges: &Ranges) {
        for range in ranges.ranges() {
            self.left.insert(range.start..range.end.min(self.fresh));
        }
        self.join();
        let last = self.left.last();
        assert!(
            last.is_none_or(|last| last < self.fresh),
            "what is left came before what is fresh"
        );
    }

    /// What is left and reaches up to `fresh` is not left behind.
    fn join(&mut self) {
        if self.left.last().is_some_and(|last| last + 1 == self.fresh)
            && let Some(range) = self.left.pop_last()
        {
            self.fresh = range.start;
        }
    }

    /// Takes out what is in of a range.
    #[inline]
    pub(crate) fn take(&mut self, range: Range<u64>, end: End, into: &mut Ranges) {
        let below = range.start..range.end.min(self.fresh);
        if !self.left.is_empty() {
            self.left.take(below, into);
        }
        into.insert(self.cut_tail(range, end));
    }

    /// Takes a range out.
    #[inline]
    pub(crate) fn remove(&mut self, range: Range<u64>, end: End) {
        if !self.left.is_empty() {
            self.left.remove(range.start..range.end.min(self.fresh));
        }
        self.cut_tail(range, end);
    }

    pub(crate) fn remove_all(&mut self, ranges: &Ranges, end: End) {
        for range in ranges.ranges() {
            self.remove(range, end);
        }
    }

    /// Takes a range out of what is from `fresh` on. Which of it was there.
    #[inline]
    fn cut_tail(&mut self, range: Range<u64>, end: End) -> Range<u64> {
        let cut = range.start.max(self.fresh)..range.end.min(end.0);
        if cut.start >= cut.end {
            return self.fresh..self.fresh;
        }
        if self.fresh < cut.start {
            self.left.insert(self.fresh..cut.start);
        }
        self.fresh = cut.end;
        cut
    }

    /// Takes out all there is.
    pub(crate) fn take_all(&mut self, end: End) -> Ranges {
        let all = self.at(end).to_ranges();
        self.left.clear();
        self.fresh = self.fresh.max(end.0);
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same set as an explicit one, beside it.
    struct Both {
        open: OpenEnded,
        explicit: Ranges,
        end: u64,
    }

    impl Both {
        fn new() -> Self {
            Self { open: OpenEnded::all(), explicit: Ranges::new(), end: 1 }
        }

        fn step(&mut self, (what, start, count): (u8, u64, u64)) {
            let (end, range) = (End(self.end), start..start + count);
            match what % 6 {
                0 => {
                    self.explicit.insert(self.end..self.end + count);
                    self.end += count;
                }
                1 => {
                    let (mut one, mut other) = (Ranges::new(), Ranges::new());
                    self.open.take(range.clone(), end, &mut one);
                    self.explicit.take(range, &mut other);
                    assert_eq!(one, other, "what was taken");
                }
                2 => {
                    self.open.remove_all(&Ranges::from(range.clone()), end);
                    self.explicit.remove(range);
                }
                3 => {
                    if let Some(front) = self.explicit.pop_front(count) {
                        self.open.remove(front, end);
                    }
                }
                4 => {
                    let came = range.start..range.end.min(self.end);
                    self.open.insert_all(&Ranges::from(came.clone()));
                    self.explicit.insert(came);
                }
                _ if start == 1 => {
                    assert_eq!(self.open.take_all(end), std::mem::take(&mut self.explicit));
                }
                _ => self.open = OpenEnded::of(self.explicit.clone(), end),
            }
        }

        fn agree(&self, probe: Range<u64>) {
            let (seqs, explicit) = (self.open.at(End(self.end)), &self.explicit);
            assert_eq!(&seqs.to_ranges(), explicit);
            assert!(seqs.ranges().eq(explicit.ranges()), "runs are as long as they can be");
            assert_eq!((seqs.len(), seqs.is_empty()), (explicit.len(), explicit.is_empty()));
            assert_eq!(seqs.first_range(), explicit.first_range());
            assert_eq!(seqs.first(), explicit.first());
            assert_eq!(seqs.contains(probe.start), explicit.contains(probe.start));
            assert_eq!(seqs.intersects(probe.clone()), explicit.intersects(probe.clone()));
            assert_eq!(seqs.within(probe.clone()), explicit.within(probe.clone()));
            let other = [probe.clone(), probe.end + 2..probe.end + 9].into_iter().collect();
            assert_eq!(seqs.intersect(&other), explicit.intersect(&other));
            let (mut one, mut two) = (Vec::new(), Vec::new());
            seqs.encode(&mut one);
            explicit.encode(&mut two);
            assert_eq!(one, two, "their bytes");
        }
    }

    proptest! {
        #[test]
        fn a_set_without_end_does_what_one_does_that_is_told_of_each_message(
            steps in proptest::collection::vec((0u8..6, 1u64..40, 1u64..12), 1..80)
        ) {
            let mut both = Both::new();
            for step in steps {
                both.step(step);
                both.agree(step.1..step.1 + step.2);
            }
        }
    }

    #[test]
    fn what_comes_in_and_leaves_in_order_keeps_no_ranges() {
        let mut open = OpenEnded::all();
        for end in (11..1_000).step_by(10).map(End) {
            open.take(end.0 - 10..end.0, end, &mut Ranges::new());
            assert_eq!((open.left.range_count(), open.at(end).len()), (0, 0));
        }
    }

    #[test]
    fn nothing_is_nothing_whatever_comes() {
        let none = OpenEnded::none();
        assert!(none.at(End(1)).is_empty() && none.at(End(1_000)).first().is_none());
    }
}
