//! Where the messages of one queue lie, in few bytes for each place.
//!
//! Round robin over many queues leaves one place for every message, so a place is small and lies beside the next:
//! 32 bytes, and at most as much again of room to grow. New places come at the end but for a checkpoint's; what is
//! gone in the middle keeps its slot until half of all slots are such, so that forgetting costs no moving.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use super::Source;

/// Slots that are never given back one by one.
const SLOTS_KEPT: usize = 16;

/// Disjoint places, by their first sequence number.
#[derive(Debug, Default)]
pub(super) struct Extents {
    slots: VecDeque<Extent>,
    /// Slots in the middle in which nothing lies any more.
    gone: usize,
}

/// Messages that lie together.
#[derive(Debug)]
pub(super) enum Extent {
    /// As in [`Source::Entry`].
    Entry {
        first_seq: u64,
        index: u64,
        start: u32,
        end: u32,
        count: u32,
    },
    /// As in [`Source::Memory`].
    Memory {
        first_seq: u64,
        count: u64,
        bytes: Box<Bytes>,
    },
    /// As in [`Source::Segment`].
    Segment {
        first_seq: u64,
        count: u64,
        segment: u64,
    },
    Gone {
        first_seq: u64,
    },
}

const _: () = assert!(size_of::<Extent>() == 32, "a place is as small as is said above");

impl Extent {
    fn new(first_seq: u64, count: u64, source: Source) -> Self {
        match source {
            Source::Entry { index, range: Range { start, end } } => {
                let count = u32::try_from(count).expect("an entry has fewer messages than bytes");
                Self::Entry { first_seq, index, start, end, count }
            }
            Source::Memory(bytes) => Self::Memory { first_seq, count, bytes: Box::new(bytes) },
            Source::Segment { segment } => Self::Segment { first_seq, count, segment },
        }
    }

    pub(super) fn first_seq(&self) -> u64 {
        match self {
            Self::Entry { first_seq, .. }
            | Self::Memory { first_seq, .. }
            | Self::Segment { first_seq, .. }
            | Self::Gone { first_seq } => *first_seq,
        }
    }

    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Entry { count, .. } => u64::from(*count),
            Self::Memory { count, .. } | Self::Segment { count, .. } => *count,
            Self::Gone { .. } => 0,
        }
    }

    pub(super) fn span(&self) -> Range<u64> {
        self.first_seq()..self.first_seq() + self.count()
    }

    /// None: nothing lies here.
    pub(super) fn source(&self) -> Option<Source> {
        match self {
            Self::Entry { index, start, end, .. } => {
                Some(Source::Entry { index: *index, range: *start..*end })
            }
            Self::Memory { bytes, .. } => Some(Source::Memory(Bytes::clone(bytes))),
            Self::Segment { segment, .. } => Some(Source::Segment { segment: *segment }),
            Self::Gone { .. } => None,
        }
    }

    /// The log entry that it is in.
    pub(super) fn entry(&self) -> Option<u64> {
        match self {
            Self::Entry { index, .. } => Some(*index),
            Self::Memory { .. } | Self::Segment { .. } | Self::Gone { .. } => None,
        }
    }

    fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }
}

impl Extents {
    /// Puts a place where its messages belong; one that began with the same message gives way.
    pub(super) fn insert(&mut self, first_seq: u64, count: u64, source: Source) {
        let extent = Extent::new(first_seq, count, source);
        if self.slots.back().is_none_or(|last| last.first_seq() < first_seq) {
            return self.slots.push_back(extent);
        }
        let nth = self.slots.partition_point(|slot| slot.first_seq() < first_seq);
        match self.slots.get_mut(nth).filter(|slot| slot.first_seq() == first_seq) {
            Some(slot) => {
                self.gone -= usize::from(slot.is_gone());
                *slot = extent;
            }
            None => self.slots.insert(nth, extent),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.slots.iter().filter(|slot| !slot.is_gone())
    }

    /// Those that hold something of `span`, in order.
    pub(super) fn overlapping(&self, span: Range<u64>) -> impl Iterator<Item = &Extent> {
        let Range { start, end } = self.slots_of(&span);
        let slots = self.slots.range(start..end);
        slots.filter(move |slot| !slot.is_gone() && slot.span().end > span.start)
    }

    /// Behind the last message that lies somewhere.
    pub(super) fn end(&self) -> Option<u64> {
        self.slots.back().map(|last| last.span().end)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Forgets those that hold something of `span` and are dead.
    pub(super) fn forget(&mut self, span: Range<u64>, is_dead: impl Fn(Range<u64>) -> bool) {
        let Range { start, end } = self.slots_of(&span);
        let mut gone = 0;
        for slot in self.slots.range_mut(start..end) {
            let of = slot.span();
            if !slot.is_gone() && of.end > span.start && is_dead(of.clone()) {
                *slot = Extent::Gone { first_seq: of.start };
                gone += 1;
            }
        }
        if gone > 0 {
            self.gone += gone;
            self.tidy();
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Extent) -> bool) {
        self.slots.retain(|slot| !slot.is_gone() && keep(slot));
        self.gone = 0;
        self.shrink();
    }

    /// The slots that can hold something of `span`.
    fn slots_of(&self, span: &Range<u64>) -> Range<usize> {
        let behind = self.slots.partition_point(|slot| slot.first_seq() <= span.start);
        let end = self.slots.partition_point(|slot| slot.first_seq() < span.end);
        // The one before may reach into it. None before that does: places never reach over a slot, gone or not.
        let start = behind.saturating_sub(1);
        start..end.max(start)
    }

    /// Gives back slots in which nothing lies: at both ends at once, in the middle when they are many.
    fn tidy(&mut self) {
        while self.slots.front().is_some_and(Extent::is_gone) {
            self.slots.pop_front();
            self.gone -= 1;
        }
        while self.slots.back().is_some_and(Extent::is_gone) {
            self.slots.pop_back();
            self.gone -= 1;
        }
        if self.gone > self.slots.len() / 2 {
            self.slots.retain(|slot| !slot.is_gone());
            self.gone = 0;
        }
        self.shrink();
    }

    fn shrink(&mut self) {
        let len = self.slots.len();
        if self.slots.capacity() > 4 * len.max(SLOTS_KEPT) {
            self.slots.shrink_to(2 * len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64) -> Source {
        Source::Entry { index, range: 0..10 }
    }

    fn with(count: u64) -> Extents {
        let mut extents = Extents::default();
        (0..count).for_each(|seq| extents.insert(2 * seq, 2, entry(seq)));
        extents
    }

    fn firsts(extents: &Extents) -> Vec<u64> {
        extents.iter().map(Extent::first_seq).collect()
    }

    #[test]
    fn what_is_gone_in_the_middle_is_found_no_more_and_its_neighbours_are() {
        let mut extents = with(5);
        extents.forget(3..7, |span| span.start != 6);
        assert_eq!(firsts(&extents), [0, 6, 8]);
        let found = |span| extents.overlapping(span).map(Extent::first_seq).collect::<Vec<_>>();
        assert_eq!(found(1..7), [0, 6]);
        assert_eq!(found(5..6), []);
        assert_eq!(found(7..8), [6], "one that begins before");
        assert_eq!(extents.end(), Some(10));
    }

    #[test]
    fn slots_come_back_from_both_ends_and_from_the_middle_when_half_are_gone() {
        let mut extents = with(1000);
        extents.forget(0..2, |_| true);
        extents.forget(1998..2000, |_| true);
        assert_eq!((extents.slots.len(), extents.gone), (998, 0));
        // Everything but the first and the last, from the middle on.
        extents.forget(1000..1996, |_| true);
        assert_eq!((extents.slots.len(), extents.gone), (998, 498));
        extents.forget(4..1000, |_| true);
        assert_eq!(firsts(&extents), [2, 1996]);
        assert_eq!((extents.slots.len(), extents.gone), (2, 0));
        assert!(extents.slots.capacity() <= 4 * SLOTS_KEPT, "memory goes back");
    }

    #[test]
    fn a_checkpoint_s_places_come_before_those_of_later_entries() {
        let mut extents = with(4);
        extents.retain(|extent| extent.entry().is_some_and(|index| index > 1));
        assert_eq!(firsts(&extents), [4, 6]);
        extents.insert(0, 4, Source::Segment { segment: 7 });
        assert_eq!(firsts(&extents), [0, 4, 6]);
        extents.insert(4, 2, entry(9));
        let again = extents.overlapping(4..5).next().and_then(Extent::entry);
        assert_eq!(again, Some(9), "one that begins with the same message gives way");
    }
}
