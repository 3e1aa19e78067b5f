//! The books of a queue: what came in equals what went out and what is left, on every replica.

use super::end::End;
use crate::encoding::{Corrupt, Reader, mix, put_u64};
use crate::limits::SEQ_MAX;

/// Counts since the queue was created, and a checksum over everything that came in. Equal on all
/// replicas at equal index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that came in. Of a subscription: those that it has come to, each as often as it has.
    pub enqueued: u64,
    /// Their bytes, heads included.
    pub enqueued_bytes: u64,
    /// Messages that a consumer handled.
    pub settled: u64,
    /// Messages that were purged.
    pub purged: u64,
    /// Dead messages that nobody wants, cancelled ones, those that went with their queue, and those that retention
    /// removed before a subscription had settled them.
    pub dropped: u64,
    /// Dead messages that are stored where they were to go.
    pub dead_lettered: u64,
    /// Messages left out because their key had come lately. They did not come in.
    pub duplicates: u64,
    /// Messages that the filter of a subscription does not match: nobody was given them.
    pub passed_over: u64,
    /// Chained over (first sequence number, count, bytes) of every run.
    pub checksum: u64,
}

/// The books of a queue as an equation: what came in is what went, for whichever reason, and what is open. Both sides
/// are counted apart from each other: what came by the numbers that messages got, what is open by the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Readers take nothing from a stream: its messages go by retention alone, and are counted as dropped.
    pub is_stream: bool,
    pub came: u64,
    pub came_bytes: u64,
    pub done: u64,
    pub purged: u64,
    pub dropped: u64,
    pub dead_lettered: u64,
    /// What a subscription's filter does not match.
    pub passed_over: u64,
    /// Kept: ready, out with consumers, delayed, or dead and not stored elsewhere yet.
    pub open: u64,
    /// They did not come in.
    pub duplicates: u64,
    /// Chained over what came.
    pub checksum: u64,
}

impl Balance {
    pub(crate) fn of(counters: &Counters, open: u64, is_stream: bool) -> Self {
        Self {
            is_stream,
            came: counters.enqueued,
            came_bytes: counters.enqueued_bytes,
            done: counters.settled,
            purged: counters.purged,
            dropped: counters.dropped,
            dead_lettered: counters.dead_lettered,
            passed_over: counters.passed_over,
            open,
            duplicates: counters.duplicates,
            checksum: counters.checksum,
        }
    }

    /// What went and what is open: as much as came, if the books are right.
    pub fn accounted(&self) -> u64 {
        let Self { done, purged, dropped, dead_lettered, passed_over, open, .. } = *self;
        [done, purged, dropped, dead_lettered, passed_over, open]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    pub fn is_right(&self) -> bool {
        let was_taken = self.is_stream && self.done + self.purged > 0;
        self.came == self.accounted() && !was_taken
    }
}

/// What came into a store, beside how many: that its numbers say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CameIn {
    bytes: u64,
    pub(crate) duplicates: u64,
    checksum: u64,
}

/// How a reader settled what it was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Books {
    pub(crate) settled: u64,
    pub(crate) purged: u64,
    pub(crate) dropped: u64,
    pub(crate) dead_lettered: u64,
    /// Of a subscription.
    pub(crate) moves: Moves,
}

/// What else becomes of the messages of a stream for somebody who reads it. All 0 of a queue with messages of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moves {
    /// Messages that it began behind, or was set past.
    pub(crate) passed: u64,
    /// Messages that it was done with, and was set back to.
    pub(crate) replayed: u64,
    /// Messages that retention removed before it had settled them.
    pub(crate) gaps: u64,
    /// Messages that its filter does not match.
    pub(crate) unwanted: u64,
}

impl Moves {
    /// Who has no filter has no word for what that does not match.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, has_filter: bool) {
        let Self { passed, replayed, gaps, unwanted } = *self;
        let unwanted = has_filter.then_some(unwanted);
        let numbers = [passed, replayed, gaps].into_iter().chain(unwanted);
        numbers.for_each(|number| put_u64(out, number));
    }

    pub(crate) fn read(reader: &mut Reader<'_>, has_filter: bool) -> Result<Self, Corrupt> {
        Ok(Self {
            passed: reader.u64()?,
            replayed: reader.u64()?,
            gaps: reader.u64()?,
            unwanted: if has_filter { reader.u64()? } else { 0 },
        })
    }

    /// What was lost or left, which a snapshot counts with what was dropped.
    pub(crate) fn dropped(&self) -> Option<u64> {
        self.gaps.checked_add(self.unwanted)
    }

    /// How many messages have come for whoever reads a store that ends there.
    fn came(&self, end: End) -> Option<u64> {
        end.0.checked_sub(1)?.checked_add(self.replayed)?.checked_sub(self.passed)
    }
}

impl CameIn {
    pub(crate) fn add_run(&mut self, first_seq: u64, count: u64, bytes: u64) {
        self.bytes = self.bytes.wrapping_add(bytes);
        self.checksum = mix(mix(mix(self.checksum, first_seq), count), bytes);
    }
}

impl Books {
    /// How many messages must be open of all that came into a store that ends there. None: the books
    /// cannot be right.
    pub(crate) fn open(&self, end: End) -> Option<u64> {
        let out = self.settled.checked_add(self.purged)?.checked_add(self.dropped)?;
        let out = out.checked_add(self.dead_lettered)?.checked_add(self.moves.dropped()?)?;
        self.moves.came(end)?.checked_sub(out)
    }
}

impl Counters {
    /// The books of a store and its one reader.
    pub(crate) fn of(end: End, came_in: &CameIn, books: &Books) -> Self {
        let CameIn { bytes: enqueued_bytes, duplicates, checksum } = *came_in;
        let Books { settled, purged, dropped, dead_lettered, moves } = *books;
        Self {
            enqueued: moves.came(end).expect("nobody is set past what has not come"),
            enqueued_bytes,
            settled,
            purged,
            dropped: dropped + moves.gaps,
            dead_lettered,
            duplicates,
            passed_over: moves.unwanted,
            checksum,
        }
    }

    /// How many are open, if the books are right. None: they cannot be.
    pub(crate) fn open(&self) -> Option<u64> {
        let (_, books) = self.parts();
        books.open(End(self.enqueued.checked_add(1)?))
    }

    /// What of it is the store's, and what the reader's. Of a subscription: but for how it was moved.
    pub(crate) fn parts(&self) -> (CameIn, Books) {
        let Self { enqueued_bytes: bytes, settled, purged, dead_lettered, .. } = *self;
        let dropped = self.dropped.saturating_add(self.passed_over);
        let Self { duplicates, checksum, .. } = *self;
        let moves = Moves::default();
        let books = Books { settled, purged, dropped, dead_lettered, moves };
        (CameIn { bytes, duplicates, checksum }, books)
    }

    /// Adds the books of a queue that is gone.
    pub(crate) fn add(&mut self, gone: &Self) {
        self.enqueued = self.enqueued.wrapping_add(gone.enqueued);
        self.enqueued_bytes = self.enqueued_bytes.wrapping_add(gone.enqueued_bytes);
        self.settled = self.settled.wrapping_add(gone.settled);
        self.purged = self.purged.wrapping_add(gone.purged);
        self.dropped = self.dropped.wrapping_add(gone.dropped);
        self.dead_lettered = self.dead_lettered.wrapping_add(gone.dead_lettered);
        self.duplicates = self.duplicates.wrapping_add(gone.duplicates);
        self.passed_over = self.passed_over.wrapping_add(gone.passed_over);
        self.checksum = mix(self.checksum, gone.checksum);
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let Self { enqueued, enqueued_bytes, settled, purged, checksum, .. } = *self;
        // How much of it was passed over stands with how a subscription was moved.
        let dropped = self.dropped.wrapping_add(self.passed_over);
        for value in [enqueued, enqueued_bytes, settled, purged, dropped, checksum] {
            put_u64(out, value);
        }
        put_u64(out, self.dead_lettered);
        put_u64(out, self.duplicates);
    }

    /// `is_old`: as they were before there were dead letters.
    pub(crate) fn read(reader: &mut Reader<'_>, is_old: bool) -> Result<Self, Corrupt> {
        let mut counters = Self {
            enqueued: reader.u64()?,
            enqueued_bytes: reader.u64()?,
            settled: reader.u64()?,
            purged: reader.u64()?,
            dropped: reader.u64()?,
            checksum: reader.u64()?,
            ..Self::default()
        };
        if !is_old {
            counters.dead_lettered = reader.u64()?;
            counters.duplicates = reader.u64()?;
        }
        let is_right = counters.enqueued <= SEQ_MAX && counters.open().is_some();
        if !is_right {
            return Err(Corrupt::new("the counters of a queue"));
        }
        Ok(counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters() -> Counters {
        Counters {
            enqueued: 20,
            settled: 7,
            purged: 1,
            dropped: 2,
            dead_lettered: 4,
            ..Counters::default()
        }
    }

    #[test]
    fn books_are_right_if_all_that_came_is_somewhere() {
        let right = Balance::of(&counters(), 6, false);
        assert_eq!((right.came, right.accounted(), right.is_right()), (20, 20, true));
        for open in [5, 7, u64::MAX] {
            assert!(!Balance::of(&counters(), open, false).is_right(), "{open} are open");
        }
    }

    #[test]
    fn a_stream_lets_nothing_go_but_by_retention() {
        let trimmed = Counters { enqueued: 20, dropped: 14, ..Counters::default() };
        assert!(Balance::of(&trimmed, 6, true).is_right());
        let taken = Counters { settled: 1, dropped: 13, ..trimmed };
        assert!(!Balance::of(&taken, 6, true).is_right(), "a reader took one");
        assert!(Balance::of(&taken, 6, false).is_right());
    }
}
