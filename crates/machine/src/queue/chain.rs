//! A checksum over what the entries of a group did, chained from entry to entry.
//!
//! Two replicas that did the same have the same value at the same index. A replica that once did something else has
//! another value from there on, however alike the two look later: so it is enough to compare now and then. The chain
//! begins with a command in the log (`Command::KeepChain`), that is, at the same entry on every replica.
//!
//! What one entry did is added up, not chained: a leader ends runs of messages in another order than a follower does.

use super::{Effect, Queue};
use crate::encoding::{Corrupt, Reader, mix, put_u64};

/// After so many entries the books of all queues go into the chain, beside what the entry did: a replica that lost
/// something without an entry, by a bad restore, is found by that.
const ENTRIES_PER_REVIEW: u64 = 4096;

/// Replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    value: u64,
    /// Applied since the chain began.
    entries: u64,
}

impl Chain {
    /// Begins with the entry at `index`.
    pub(crate) fn new(index: u64) -> Self {
        Self { value: mix(0, index), entries: 0 }
    }

    pub(crate) fn value(&self) -> u64 {
        self.value
    }

    /// The entry at `index` is applied. `checksum`: of its bytes.
    pub(crate) fn add(&mut self, index: u64, checksum: u32, effects: &[Effect]) {
        let did = effects.iter().fold(0_u64, |sum, effect| sum.wrapping_add(hash(effect)));
        self.value = mix(mix(mix(self.value, index), u64::from(checksum)), did);
        self.entries += 1;
    }

    /// Whether the books of all queues are due.
    pub(crate) fn is_review_due(&self) -> bool {
        self.entries.is_multiple_of(ENTRIES_PER_REVIEW)
    }

    /// Adds the books of a queue.
    pub(crate) fn review(&mut self, queue: &Queue) {
        for level in queue.levels() {
            let counters = level.counters();
            let numbers = [
                level.id().0,
                counters.enqueued,
                counters.enqueued_bytes,
                counters.settled,
                counters.purged,
                counters.dropped + counters.passed_over,
                counters.dead_lettered,
                counters.duplicates,
                counters.checksum,
                level.kept().len(),
            ];
            self.value = numbers.into_iter().fold(self.value, mix);
            let attributes = level.reader.attributes.as_ref();
            if let Some((by, until_ms)) = attributes.and_then(|it| it.withheld.purge()) {
                let withheld = attributes.map_or(0, |it| it.withheld.all().len());
                let numbers = [by.session.0, by.number, until_ms, withheld];
                self.value = numbers.into_iter().fold(self.value, mix);
            }
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.value);
        put_u64(out, self.entries);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(Self { value: reader.u64()?, entries: reader.u64()? })
    }
}

/// What an effect says of the replicated state. What only a leader does says nothing.
fn hash(effect: &Effect) -> u64 {
    match effect {
        Effect::Enqueued { queue, first_seq, count, bytes } => {
            let place = mix(bytes.start as u64, bytes.end as u64);
            of(1, &[queue.0, *first_seq, u64::from(*count), place])
        }
        Effect::Settled { queue, ranges } => {
            ranges.ranges().fold(of(2, &[queue.0]), |sum, range| {
                sum.wrapping_add(of(3, &[queue.0, range.start, range.end]))
            })
        }
        Effect::Created { queue } => of(4, &[queue.0]),
        Effect::Dropped { queue } => of(5, &[queue.0]),
        Effect::Deliver { .. }
        | Effect::Marked { .. }
        | Effect::Leave { .. }
        | Effect::Borrow { .. }
        | Effect::Elected { .. }
        | Effect::Locked(_)
        | Effect::Cancelled { .. }
        | Effect::Unused { .. } => 0,
    }
}

fn of(kind: u64, numbers: &[u64]) -> u64 {
    numbers.iter().fold(kind, |value, number| mix(value, *number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::QueueId;
    use crate::settings::QueueSettings;

    #[test]
    fn the_books_of_all_queues_are_looked_at_now_and_then() {
        let queue = Queue::new(QueueId(1), QueueSettings::default());
        let mut lost = queue.clone();
        lost.main.reader.books.settled += 1;
        let mut chains = [Chain::new(1), Chain::new(1)];
        let mut reviews = 0;
        for index in 2..ENTRIES_PER_REVIEW + 2 {
            chains.iter_mut().for_each(|chain| chain.add(index, 0, &[]));
            assert_eq!(chains[0], chains[1], "no entry shows what is lost");
            if chains[0].is_review_due() {
                reviews += 1;
                chains[0].review(&queue);
                chains[1].review(&lost);
            }
        }
        assert_eq!(reviews, 1);
        assert_ne!(chains[0], chains[1]);
    }

    #[test]
    fn leaders_may_end_runs_in_another_order() {
        let run = |queue| Effect::Enqueued { queue, first_seq: 1, count: 1, bytes: 16..40 };
        let (one, other) = (run(QueueId(1)), run(QueueId(2)));
        let mut chains = [Chain::new(1), Chain::new(1), Chain::new(1)];
        chains[0].add(2, 0, &[one.clone(), other.clone()]);
        chains[1].add(2, 0, &[other.clone(), one.clone()]);
        chains[2].add(2, 0, &[one.clone(), one]);
        assert_eq!(chains[0], chains[1]);
        assert_ne!(chains[0], chains[2]);
    }
}
