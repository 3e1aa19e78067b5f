//! Which receipts of a source are in hand, and since when.

use std::collections::VecDeque;
use std::time::Instant;

use crate::job::Receipt;

/// Receipts come in batches, count up, and leave in any order.
#[derive(Debug, Default)]
pub(super) struct Held {
    batches: VecDeque<Batch>,
}

#[derive(Debug)]
struct Batch {
    taken: Instant,
    /// Ascending. Those that have left are marked.
    receipts: Vec<(Receipt, bool)>,
    left: usize,
}

impl Held {
    pub(super) fn took(&mut self, receipts: impl Iterator<Item = Receipt>, now: Instant) {
        let receipts: Vec<(Receipt, bool)> = receipts.map(|one| (one, true)).collect();
        if !receipts.is_empty() {
            let left = receipts.len();
            self.batches.push_back(Batch { taken: now, receipts, left });
        }
    }

    /// It has left. False: it was not here.
    pub(super) fn settled(&mut self, receipt: Receipt) -> bool {
        let after = self.batches.partition_point(|batch| batch.receipts[0].0 <= receipt);
        let Some(batch) = after.checked_sub(1).and_then(|at| self.batches.get_mut(at)) else {
            return false;
        };
        let Ok(at) = batch.receipts.binary_search_by_key(&receipt, |(one, _)| *one) else {
            return false;
        };
        let was_here = std::mem::replace(&mut batch.receipts[at].1, false);
        batch.left -= usize::from(was_here);
        while self.batches.front().is_some_and(|batch| batch.left == 0) {
            self.batches.pop_front();
        }
        was_here
    }

    /// When the oldest of them came.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.batches.front().map(|batch| batch.taken)
    }

    /// All of them.
    pub(super) fn receipts(&self) -> Vec<Receipt> {
        let all = self.batches.iter().flat_map(|batch| &batch.receipts);
        all.filter(|(_, is_here)| *is_here).map(|(receipt, _)| *receipt).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_left_is_not_held_and_the_oldest_is_known() {
        let now = Instant::now();
        let later = now + std::time::Duration::from_secs(1);
        let mut held = Held::default();
        held.took([1, 2].map(Receipt).into_iter(), now);
        held.took([5, 7].map(Receipt).into_iter(), later);
        assert!(held.settled(Receipt(2)));
        assert!(!held.settled(Receipt(2)), "it has left already");
        assert!(
            !held.settled(Receipt(6)) && !held.settled(Receipt(9)) && !held.settled(Receipt(0))
        );
        assert_eq!(held.oldest(), Some(now));
        assert!(held.settled(Receipt(1)));
        assert_eq!(held.oldest(), Some(later));
        assert_eq!(held.receipts(), [5, 7].map(Receipt));
        assert!(held.settled(Receipt(7)) && held.settled(Receipt(5)));
        assert_eq!(held.oldest(), None);
    }
}
