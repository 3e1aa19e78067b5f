//! The terms of a group's entries, as runs: a term lasts for thousands of entries.

use std::collections::VecDeque;

/// First index and term of each run, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms(VecDeque<(u64, u64)>);

impl Terms {
    /// The entry `index` and whatever there is above it is now of `term`.
    pub(crate) fn push(&mut self, index: u64, term: u64) {
        self.truncate(index);
        if self.0.back().is_none_or(|(_, last)| *last != term) {
            self.0.push_back((index, term));
        }
    }

    /// Entries from `index` on are no more.
    pub(crate) fn truncate(&mut self, index: u64) {
        while self.0.back().is_some_and(|(first, _)| *first >= index) {
            self.0.pop_back();
        }
    }

    /// Entries up to `index` are asked for no more.
    pub(crate) fn forget_to(&mut self, index: u64) {
        while self.0.get(1).is_some_and(|(first, _)| *first <= index + 1) {
            self.0.pop_front();
        }
    }

    /// The term of the entry `index`, which is not above the last. `None`: it lies below the first.
    pub(crate) fn at(&self, index: u64) -> Option<u64> {
        let behind = self.0.partition_point(|(first, _)| *first <= index);
        behind.checked_sub(1).map(|run| self.0[run].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_follow_entries_through_conflicts_and_checkpoints() {
        let mut terms = Terms::default();
        for (index, term) in [(5, 1), (6, 1), (7, 2), (8, 2), (7, 3), (8, 4)] {
            terms.push(index, term);
        }
        let all = |terms: &Terms| (4..9).map(|index| terms.at(index)).collect::<Vec<_>>();
        assert_eq!(all(&terms), [None, Some(1), Some(1), Some(3), Some(4)]);
        terms.truncate(8);
        terms.push(8, 3);
        terms.forget_to(6);
        assert_eq!(terms.0, [(7, 3)]);
        assert_eq!(all(&terms), [None, None, None, Some(3), Some(3)]);
    }
}
