//! Settles that were sent to a leader elsewhere, until they are surely in the log.
//!
//! A leader gathers the settles it hears of and logs them a little later. If another leads before that, the
//! messages would be delivered again, though nothing has failed and their consumer is long done with
//! them. So their producer remembers for a while, and appends them when it joins another leader:
//! settling twice changes nothing.

use std::collections::BTreeMap;

use machine::{Batch, Outcome, QueueId, Ranges};

/// A leader that has lost its followers is known for one by then.
const TURN_MS: u64 = 5000;
/// Ranges in one command.
const RANGES_MAX: usize = 4096;

/// Final settles of this turn and of the one before.
#[derive(Debug, Default)]
pub(crate) struct UnloggedSettles {
    turns: [BTreeMap<(QueueId, Outcome), Ranges>; 2],
    turned_ms: u64,
}

impl UnloggedSettles {
    /// The leader was sent word that `ranges` are settled.
    pub(crate) fn note(&mut self, now_ms: u64, queue: QueueId, outcome: Outcome, ranges: &Ranges) {
        if !outcome.is_final() {
            return;
        }
        self.turn(now_ms);
        let known = self.turns[0].entry((queue, outcome)).or_default();
        for range in ranges.ranges() {
            known.insert(range);
        }
    }

    /// All that may not be in the log yet, as commands of a few pages each. It is not sent again.
    pub(crate) fn take(&mut self, now_ms: u64) -> Vec<Batch> {
        self.turn(now_ms);
        let mut batches = Vec::new();
        for ((queue, outcome), ranges) in self.turns.iter_mut().rev().flat_map(std::mem::take) {
            let ranges: Vec<_> = ranges.ranges().collect();
            for some in ranges.chunks(RANGES_MAX) {
                let mut batch = Batch::new();
                batch.settle(queue, outcome, &some.iter().cloned().collect());
                batches.push(batch);
            }
        }
        batches
    }

    fn turn(&mut self, now_ms: u64) {
        if now_ms < self.turned_ms + TURN_MS {
            return;
        }
        let was_long = now_ms >= self.turned_ms + 2 * TURN_MS;
        let old = std::mem::take(&mut self.turns[0]);
        self.turns[1] = if was_long { BTreeMap::new() } else { old };
        self.turned_ms = now_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: QueueId = QueueId(7);

    fn sent(settles: &mut UnloggedSettles, now_ms: u64, range: std::ops::Range<u64>) {
        settles.note(now_ms, QUEUE, Outcome::Done, &Ranges::from(range));
    }

    #[test]
    fn what_was_sent_lately_is_logged_by_the_next_leader_once() {
        let mut settles = UnloggedSettles::default();
        sent(&mut settles, 10_000, 1..3);
        sent(&mut settles, 13_000, 3..9);
        assert_eq!(settles.take(14_000).len(), 1);
        assert!(settles.take(14_000).is_empty());
    }

    #[test]
    fn what_was_sent_long_ago_is_in_the_log() {
        let mut settles = UnloggedSettles::default();
        sent(&mut settles, 10_000, 1..3);
        assert!(settles.take(20_000).is_empty());
        sent(&mut settles, 30_000, 1..3);
        sent(&mut settles, 36_000, 3..4);
        assert_eq!(settles.take(36_000).len(), 2);
    }

    #[test]
    fn many_ranges_become_several_commands() {
        let mut settles = UnloggedSettles::default();
        (0..2 * RANGES_MAX as u64)
            .for_each(|number| sent(&mut settles, 1, number * 2..number * 2 + 1));
        assert_eq!(settles.take(1).len(), 2);
    }

    #[test]
    fn what_goes_back_to_its_queue_is_not_repeated() {
        let mut settles = UnloggedSettles::default();
        settles.note(10_000, QUEUE, Outcome::Requeue, &Ranges::from(1..3));
        assert!(settles.take(10_000).is_empty());
    }
}
