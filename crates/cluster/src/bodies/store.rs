//! The bytes of a stream, as a subscription sees them: it has none of its own but what was read for it alone.
//!
//! Young messages stay with the stream, and every subscription takes a copy of the slice. Older ones are read for each
//! subscription by itself. Places are the stream's. What waits for its bytes here may be settled already, and retention
//! may have removed it: the stream keeps its places until it has left.

use std::ops::Range;

use machine::{QueueId, Ranges, Seqs};

use super::Bodies;
use super::extents::Extents;
use super::window::Window;

/// A stream that a subscription reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreView<'a> {
    pub(super) queue: QueueId,
    pub(super) extents: &'a Extents,
    pub(super) window: &'a Window,
}

impl Bodies {
    /// `subscription` reads `stream` from here on.
    pub(crate) fn subscribed(&mut self, subscription: QueueId, stream: QueueId) {
        self.streams.insert(subscription.base(), stream);
        self.queues.entry(stream).or_default().is_read = true;
    }

    /// Whose messages `queue` is given: those of its stream, or its own.
    pub(crate) fn store_of(&self, queue: QueueId) -> QueueId {
        self.streams.get(&queue.base()).copied().unwrap_or(queue)
    }

    /// What `queue` reads, if it is a subscription.
    pub(super) fn stream_of(&self, queue: QueueId) -> Option<StoreView<'_>> {
        let stream = *self.streams.get(&queue.base())?;
        let bodies = self.queues.get(&stream)?;
        Some(StoreView { queue: stream, extents: &bodies.extents, window: &bodies.window })
    }

    /// What of a stream waits for its bytes on its way out of subscriptions.
    pub(super) fn wanted_of(&self, stream: QueueId) -> Ranges {
        // Plain queues beside streams pay nothing for those.
        if !self.queues.get(&stream).is_some_and(|bodies| bodies.is_read) {
            return Ranges::new();
        }
        let waiting = self
            .waiting
            .iter()
            .filter(|queue| **queue != stream && self.streams.get(&queue.base()) == Some(&stream));
        let bodies = waiting.filter_map(|queue| self.queues.get(queue));
        bodies.flat_map(|bodies| bodies.outbox.spans()).collect()
    }

    /// These do not wait any more in a subscription: what of them its stream does not keep has no place any more.
    pub(super) fn left_stream(
        &mut self,
        subscription: QueueId,
        spans: &[Range<u64>],
        kept: Option<Seqs<'_>>,
    ) {
        let Some(&stream) = self.streams.get(&subscription.base()) else { return };
        let from = kept.and_then(Seqs::first).unwrap_or(u64::MAX);
        if spans.iter().all(|span| span.start >= from) {
            return;
        }
        let wanted = self.wanted_of(stream);
        if let Some(bodies) = self.queues.get_mut(&stream) {
            for span in spans {
                bodies.forget_dead_but(span.clone(), kept, &wanted);
            }
        }
    }
}
