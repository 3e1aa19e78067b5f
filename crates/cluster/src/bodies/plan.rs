//! What one fetch is to read.
//!
//! Messages that are due may lie scattered over a backlog: those whose delay is over, those that come
//! back after others. So a fetch names exactly the messages that are wanted. A segment is read at
//! these; a log entry can only be read whole, and only they are kept of it.

use std::collections::BTreeMap;
use std::ops::Range;

use machine::Ranges;

use super::extents::{Extent, Extents};
use super::{FetchPart, Source};
use crate::limits::{FETCH_BYTES, FETCH_ENTRIES, FETCH_PARTS};

/// What a message in a segment is taken to have: no more than a few hundred messages are planned
/// after a long run.
const GUESSED_BYTES: u64 = 1024;

#[derive(Debug)]
pub(super) struct Plan<'a> {
    extents: &'a Extents,
    parts: Vec<FetchPart>,
    /// Where in `parts` an entry's run is.
    entries: BTreeMap<u64, usize>,
    /// Of messages in entries. What a segment's take is not known before they are read: it is guessed.
    bytes: u64,
}

impl<'a> Plan<'a> {
    pub(super) fn new(extents: &'a Extents) -> Self {
        Self { extents, parts: Vec::new(), entries: BTreeMap::new(), bytes: 0 }
    }

    /// Whether one `share`th of what a fetch may read is planned.
    pub(super) fn is_full(&self, share: usize) -> bool {
        self.parts.len() * share >= FETCH_PARTS
            || self.entries.len() * share >= FETCH_ENTRIES
            || self.bytes * share as u64 >= FETCH_BYTES
    }

    /// Adds the messages of `span`, until it is full.
    pub(super) fn add(&mut self, span: Range<u64>, share: usize) {
        for extent in self.extents.overlapping(span.clone()) {
            if self.is_full(share) {
                return;
            }
            let of = extent.span();
            self.add_from(extent, of.start.max(span.start)..of.end.min(span.end));
        }
    }

    fn add_from(&mut self, extent: &Extent, wanted: Range<u64>) {
        let Some(source) = extent.source() else { return };
        let (first_seq, count) = (extent.first_seq(), wanted.end - wanted.start);
        let is_segment = match &source {
            Source::Segment { .. } => {
                self.bytes = self.bytes.saturating_add(count.saturating_mul(GUESSED_BYTES));
                true
            }
            Source::Entry { range, .. } => {
                self.bytes += u64::from(range.end - range.start) * count / extent.count().max(1);
                false
            }
            Source::Memory(_) => false,
        };
        let wanted = Ranges::from(wanted);
        if is_segment {
            let first_seq = wanted.first().unwrap_or(first_seq);
            if let Some(last) =
                self.parts.last_mut().filter(|last| last.goes_on(first_seq, &source))
            {
                last.count += count;
                last.wanted.insert_all(&wanted);
                return;
            }
            self.parts.push(FetchPart { first_seq, count, source, wanted });
            return;
        }
        if let Some(known) = self.entries.get(&first_seq) {
            self.parts[*known].wanted.insert_all(&wanted);
            return;
        }
        self.entries.insert(first_seq, self.parts.len());
        self.parts.push(FetchPart { first_seq, count: extent.count(), source, wanted });
    }

    pub(super) fn into_parts(self) -> Vec<FetchPart> {
        self.parts
    }
}

impl FetchPart {
    /// Whether it lies in this segment.
    pub(crate) fn is_of(&self, segment: u64) -> bool {
        matches!(self.source, Source::Segment { segment: of } if of == segment)
    }

    /// Whether message `seq` of the same segment comes right behind it.
    fn goes_on(&self, seq: u64, source: &Source) -> bool {
        let segment = |source: &Source| match source {
            Source::Segment { segment } => Some(*segment),
            Source::Entry { .. } | Source::Memory(_) => None,
        };
        self.first_seq + self.count == seq && segment(&self.source) == segment(source)
    }
}
