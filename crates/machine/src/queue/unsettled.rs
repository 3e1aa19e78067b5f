//! Settled messages on their way into the log.
//!
//! Leader-local. A message settled by a consumer leaves the consumer's hands at once, but stays live
//! until the log says so. Settles are gathered as ranges and ride in a later entry: an
//! acknowledgement has no answer, so nothing waits for it.

use std::ops::Range;

use crate::command::{Batch, Outcome};
use crate::ids::QueueId;
use crate::ranges::Ranges;

#[derive(Clone, Debug, Default)]
pub(crate) struct Gathered {
    done: Ranges,
    rejected: Ranges,
    purged: Ranges,
}

impl Gathered {
    pub(crate) fn insert(&mut self, outcome: Outcome, range: Range<u64>) {
        self.of(outcome).insert(range);
    }

    /// Where messages of a final outcome wait for the log.
    pub(crate) fn of(&mut self, outcome: Outcome) -> &mut Ranges {
        match outcome {
            Outcome::Done => &mut self.done,
            Outcome::Rejected => &mut self.rejected,
            Outcome::Purged => &mut self.purged,
            _ => unreachable!("what goes back to its place is not gathered for the log"),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.done.is_empty() && self.rejected.is_empty() && self.purged.is_empty()
    }

    pub(crate) fn len(&self) -> u64 {
        self.done.len() + self.rejected.len() + self.purged.len()
    }

    /// Moves at most `ranges_max` ranges into the batch. Returns how many it took.
    pub(crate) fn drain(
        &mut self,
        queue: QueueId,
        mut ranges_max: usize,
        batch: &mut Batch,
    ) -> usize {
        let before = ranges_max;
        for outcome in [Outcome::Done, Outcome::Rejected, Outcome::Purged] {
            let ranges = self.of(outcome);
            if ranges.is_empty() || ranges_max == 0 {
                continue;
            }
            let front = ranges.split_front(ranges_max);
            ranges_max -= front.range_count();
            batch.settle(queue, outcome, &front);
        }
        before - ranges_max
    }
}
