//! One queue's messages in several segments, in order.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::disk::Disk;
use crate::error::Error;
use crate::limits::SEGMENT_BUFFER_BYTES;
use crate::segments::reader::Found;
use crate::segments::{Reader, Sharing};

/// Messages of one queue in some segments, which may interleave. One that is in two of them comes
/// once. A buffer is kept for each segment whose messages have begun and are not over.
pub struct Merged<D: Disk> {
    cursors: Vec<Cursor<D>>,
}

impl<D: Disk> Merged<D> {
    /// Begins with the first message that is not below `from_seq`.
    pub fn new(segments: &[Reader<D>], queue: u64, from_seq: u64) -> Self {
        let cursor = |segment: &Reader<D>| {
            let extent = segment.extents().find(|extent| extent.queue == queue)?;
            (extent.last_seq >= from_seq).then(|| Cursor {
                segment: segment.clone(),
                queue,
                next_seq: extent.first_seq.max(from_seq),
                last_seq: extent.last_seq,
                waiting: VecDeque::new(),
            })
        };
        Self { cursors: segments.iter().filter_map(cursor).collect() }
    }

    /// The next message with its sequence number.
    #[expect(clippy::should_implement_trait, reason = "it may fail")]
    pub fn next(&mut self) -> Result<Option<(u64, Bytes)>, Error> {
        Ok(self.next_found()?.map(|(found, _)| (found.seq, found.message)))
    }

    /// The next message, and what other queues may have in common with this one.
    pub(crate) fn next_found(&mut self) -> Result<Option<(Found, Option<Sharing>)>, Error> {
        loop {
            let lowest = self.cursors.iter().map(Cursor::seq_at_least).min();
            let Some(lowest) = lowest else { return Ok(None) };
            let mut found = None;
            let mut has_read = false;
            for cursor in self.cursors.iter_mut().filter(|c| c.seq_at_least() == lowest) {
                if cursor.waiting.is_empty() {
                    cursor.read()?;
                    has_read = true;
                }
            }
            if !has_read {
                // The same message twice: one is enough.
                for cursor in self.cursors.iter_mut().filter(|c| c.seq_at_least() == lowest) {
                    let next = cursor.waiting.pop_front();
                    let number = cursor.segment.number();
                    let sharing = |next: &Found| {
                        let (offset, queue_at) = next.shared?;
                        Some(Sharing { origin: (number, offset), queue_at })
                    };
                    found = next.map(|next| (sharing(&next), next)).or(found);
                }
            }
            self.cursors.retain(|cursor| !cursor.is_over());
            if let Some((sharing, found)) = found {
                return Ok(Some((found, sharing)));
            }
        }
    }
}

/// Messages of one queue in one segment, a buffer at a time.
struct Cursor<D: Disk> {
    segment: Reader<D>,
    queue: u64,
    /// Where the next read begins.
    next_seq: u64,
    last_seq: u64,
    waiting: VecDeque<Found>,
}

impl<D: Disk> Cursor<D> {
    /// Exactly the next sequence number, once it is read.
    fn seq_at_least(&self) -> u64 {
        self.waiting.front().map_or(self.next_seq, |found| found.seq)
    }

    fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.next_seq > self.last_seq
    }

    fn read(&mut self) -> Result<(), Error> {
        let bytes_max = SEGMENT_BUFFER_BYTES as u64;
        let span = self.next_seq..u64::MAX;
        let span = std::slice::from_ref(&span);
        let (found, _) = self.segment.read_found(self.queue, span, bytes_max)?;
        self.waiting = found.into();
        let last = self.waiting.back().map_or(self.last_seq, |found| found.seq);
        self.next_seq = last.saturating_add(1);
        if last == u64::MAX {
            self.last_seq = u64::MAX - 1;
        }
        Ok(())
    }
}
