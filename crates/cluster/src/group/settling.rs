//! Settles that this leader has proposed, until they are applied.
//!
//! A session's settle has no answer, and the leader forgets it once it is proposed. If another leads before the entry
//! is committed, the entry may be in no log any more, and its messages would be delivered again, though no node has
//! failed. So a leader that is deposed hands these settles to its node's numbered batches, which go to the next leader:
//! settling twice changes nothing. Settles that came from other nodes need no such care: those nodes remember them
//! (`unlogged_settles`).

use std::collections::VecDeque;

use bytes::Bytes;
use machine::{Batch, Outcome};

use crate::queues::outcomes_of_sessions;

/// The entries of one leader's term. A leader has few that are not committed, so there are few here.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    proposed: VecDeque<Proposed>,
}

#[derive(Debug)]
struct Proposed {
    index: u64,
    term: u64,
    entry: Bytes,
}

impl Settling {
    /// The leader of `term` has proposed settles at `index`.
    pub(crate) fn proposed(&mut self, index: u64, term: u64, entry: Bytes) {
        let last = self.proposed.back().map_or(0, |last| last.index);
        assert!(last < index, "settles were proposed below earlier ones");
        self.proposed.push_back(Proposed { index, term, entry });
    }

    /// The entry at `index` is applied. If it is of another term, it took the place of the one that was proposed.
    pub(crate) fn applied(&mut self, index: u64, term: u64) {
        let is_it = |first: &Proposed| (first.index, first.term) == (index, term);
        if self.proposed.front().is_some_and(is_it) {
            self.proposed.pop_front();
        }
    }

    /// What sessions settled for good and may be in no log. What comes back to its queue is ready with the next leader
    /// anyway, and would be counted twice.
    pub(crate) fn take(&mut self) -> Vec<Batch> {
        let entries = std::mem::take(&mut self.proposed).into_iter();
        let batches = entries.map(|it| outcomes_of_sessions(&it.entry, Outcome::is_final));
        batches.filter(|batch| !batch.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use machine::{Command, EntryReader, QueueId, Ranges};

    use super::*;

    fn entry(outcome: Outcome, seq: u64) -> Bytes {
        let mut batch = Batch::new();
        batch.settle(QueueId(7), outcome, &Ranges::from(seq..seq + 1));
        Bytes::from(batch.stamp(1))
    }

    /// The first message of each settle that is left.
    fn left(settling: &mut Settling) -> Vec<Option<u64>> {
        let first = |batch: Batch| {
            let entry = batch.stamp(1);
            let mut commands = EntryReader::new(&entry).unwrap();
            let (_, command) = commands.next().unwrap().unwrap();
            let Command::Settle { ranges, .. } = command else { panic!("it is {command:?}") };
            ranges.first()
        };
        settling.take().into_iter().map(first).collect()
    }

    #[test]
    fn what_is_not_applied_is_left_once() {
        let mut settling = Settling::default();
        settling.proposed(3, 1, entry(Outcome::Done, 30));
        settling.proposed(5, 1, entry(Outcome::Rejected, 50));
        (1..=4).for_each(|index| settling.applied(index, 1));
        assert_eq!(left(&mut settling), [Some(50)]);
        assert_eq!(left(&mut settling), []);
    }

    #[test]
    fn an_entry_of_the_next_leader_in_the_same_place_is_another_one() {
        let mut settling = Settling::default();
        settling.proposed(3, 1, entry(Outcome::Done, 30));
        settling.proposed(4, 1, entry(Outcome::Done, 40));
        settling.applied(3, 2);
        settling.applied(4, 2);
        assert_eq!(left(&mut settling), [Some(30), Some(40)]);
    }

    #[test]
    fn what_comes_back_and_what_the_leader_decided_is_not_repeated() {
        let mut settling = Settling::default();
        let outcomes = [Outcome::Requeue, Outcome::Returned, Outcome::Expired, Outcome::Overflowed];
        (1..).zip(outcomes).for_each(|(at, outcome)| settling.proposed(at, 1, entry(outcome, at)));
        assert_eq!(left(&mut settling), []);
    }
}
