//! Settled messages on their way into the log.
//!
//! Leader-local. A message settled by a consumer leaves the consumer's hands at once, but stays open
//! until the log says so. Settles are gathered as ranges and ride in a later entry: an
//! acknowledgement has no answer, so nothing waits for it.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::command::{Batch, Outcome, Withholding};
use crate::ids::QueueId;
use crate::queue::end::End;
use crate::ranges::Ranges;

#[derive(Clone, Debug, Default)]
pub(crate) struct Gathered {
    done: Ranges,
    /// Every other outcome that the log hears of.
    others: BTreeMap<Outcome, Ranges>,
    /// What is purged and can be brought back, comes back, or is gone for good.
    withheld: BTreeMap<Withholding, Ranges>,
    /// Done as they go out, which they do when their mark is logged.
    pub(crate) unmarked: Ranges,
}

impl Gathered {
    pub(crate) fn insert(&mut self, outcome: Outcome, range: Range<u64>) {
        self.of(outcome).insert(range);
    }

    /// Where messages with an outcome wait for the log.
    pub(crate) fn of(&mut self, outcome: Outcome) -> &mut Ranges {
        match outcome {
            Outcome::Done => &mut self.done,
            other => self.others.entry(other).or_default(),
        }
    }

    /// Where messages wait for the log to hear this of them.
    pub(crate) fn of_withheld(&mut self, step: Withholding) -> &mut Ranges {
        self.withheld.entry(step).or_default()
    }

    /// Everything that is withheld, or was.
    pub(crate) fn all_withheld(&self) -> Ranges {
        self.withheld.values().fold(Ranges::new(), |mut all, ranges| {
            all.insert_all(ranges);
            all
        })
    }

    /// What waited for its mark goes out below `to`. Which that is.
    pub(crate) fn settle_marked(&mut self, to: u64) -> Ranges {
        let mut marked = Ranges::new();
        self.unmarked.take(0..to, &mut marked);
        self.done.insert_all(&marked);
        marked
    }

    /// Takes out what of `ranges` waits for its mark.
    pub(crate) fn take_unmarked(&mut self, ranges: &Ranges) -> Ranges {
        let taken = self.unmarked.intersect(ranges);
        self.unmarked.remove_all(&taken);
        taken
    }

    pub(crate) fn is_empty(&self) -> bool {
        let mut others = self.others.values().chain(self.withheld.values());
        self.done.is_empty() && others.all(Ranges::is_empty)
    }

    /// Adds what of `ranges` is here.
    pub(crate) fn add_within(&self, ranges: &Ranges, into: &mut Ranges) {
        let others = self.others.values().chain(self.withheld.values());
        for settled in [&self.done, &self.unmarked].into_iter().chain(others) {
            into.insert_all(&settled.intersect(ranges));
        }
    }

    pub(crate) fn len(&self) -> u64 {
        let others = self.others.values().chain(self.withheld.values());
        self.done.len() + others.map(Ranges::len).sum::<u64>()
    }

    /// How many are ready again when the log has it.
    pub(crate) fn returning(&self) -> u64 {
        let of = |outcome| self.others.get(&outcome).map_or(0, Ranges::len);
        of(Outcome::Requeue) + of(Outcome::Returned)
    }

    /// Moves at most `ranges_max` ranges into the batch, of a store that ends there. Returns how many it took.
    pub(crate) fn drain(
        &mut self,
        (queue, end): (QueueId, End),
        mut ranges_max: usize,
        batch: &mut Batch,
    ) -> usize {
        let before = ranges_max;
        let all = std::iter::once((Outcome::Done, &mut self.done));
        let others = self.others.iter_mut().map(|(outcome, ranges)| (*outcome, ranges));
        for (outcome, ranges) in all.chain(others) {
            if ranges.is_empty() || ranges_max == 0 {
                continue;
            }
            let front = ranges.split_front(ranges_max);
            assert!(front.last().is_none_or(|last| last < end.0), "what the log is told has come");
            ranges_max -= front.range_count();
            batch.settle(queue, outcome, &front);
        }
        self.others.retain(|_, ranges| !ranges.is_empty());
        for (step, ranges) in &mut self.withheld {
            if ranges_max == 0 {
                break;
            }
            let front = ranges.split_front(ranges_max);
            assert!(front.last().is_none_or(|last| last < end.0), "what is withheld has come");
            ranges_max -= front.range_count();
            batch.withhold(queue, *step, &front);
        }
        self.withheld.retain(|_, ranges| !ranges.is_empty());
        before - ranges_max
    }
}
