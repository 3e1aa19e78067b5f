//! What must be true of bodies between steps: the counters equal what is there, every live message lies somewhere, no
//! dead message does, and every queue that waits has something to wait for.

use machine::{QueueId, Ranges, Seqs};

use super::extents::Extent;
use super::queue::QueueBodies;
use super::store::StoreView;
use super::{Bodies, Readers};

impl Bodies {
    /// Panics if something is not as it must be. For tests: it looks at everything.
    pub(crate) fn check<'a>(&self, readers: impl Fn(QueueId) -> Option<Readers<'a>>) {
        let bytes: usize = self.queues.values().map(QueueBodies::counted_anew).sum();
        assert_eq!(bytes, self.hot_bytes, "what is in memory is not what is accounted");
        for (&queue, bodies) in &self.queues {
            let Some(readers) = readers(queue) else {
                panic!("bodies of {queue:?}, which is gone")
            };
            assert_eq!(
                self.waiting.contains(&queue),
                bodies.is_waiting(),
                "something of {queue:?} wait, or not"
            );
            let (stream, wanted) = (self.stream_of(queue), self.wanted_of(queue));
            bodies.check(queue, readers, (stream, &wanted), self.is_turn_of(queue));
        }
    }

    /// Panics if something that lives lies nowhere. For tests.
    pub(crate) fn check_places(&self, queue: QueueId, kept: Seqs<'_>) {
        let extents = self.queues.get(&queue).map(|bodies| &bodies.extents);
        let extents = extents.into_iter().flat_map(|extents| extents.iter());
        let lies: Ranges = extents.map(Extent::span).collect();
        for span in kept.ranges() {
            let placed = lies.within(span.clone()).len();
            assert_eq!(placed, span.end - span.start, "{span:?} of {queue:?} lies nowhere");
        }
    }
}

impl QueueBodies {
    fn counted_anew(&self) -> usize {
        self.window.counted_anew() + self.leaves.window.counted_anew()
    }

    fn check(
        &self,
        queue: QueueId,
        readers: Readers<'_>,
        (stream, wanted): (Option<StoreView<'_>>, &Ranges),
        is_its_turn: bool,
    ) {
        let is_unmarked = self.outbox.is_unmarked(self.marked_to);
        let is_held_up = (self.outbox.is_empty() || !is_its_turn || is_unmarked)
            && (self.leaves.is_empty() || !self.may_leave)
            && self.sifting.is_none();
        let may_wait = self.fetching || is_held_up;
        assert!(!self.is_waiting() || may_wait, "{queue:?} stalls: nothing is fetched");
        let mut end = 0;
        for (span, _) in self.window.runs() {
            assert!(end <= span.start, "runs of {queue:?} in memory overlap");
            end = span.end;
        }
        let kept = readers.kept.map(Seqs::to_ranges).unwrap_or_default();
        for span in self.leaves.spans() {
            let alive = kept.within(span.clone()).len();
            assert_eq!(alive, span.end - span.start, "{span:?} of {queue:?} leaves and is gone");
        }
        let mut lies = Ranges::new();
        let mut end = 0;
        for extent in self.extents.iter() {
            let span = extent.span();
            assert!(end <= span.start, "places of {queue:?} overlap");
            end = span.end;
            assert!(
                kept.intersects(span.clone())
                    || self.outbox.wants(span.clone())
                    || wanted.intersects(span.clone()),
                "{span:?} of {queue:?} is dead and has a place: {extent:?}"
            );
            lies.insert(span);
        }
        if let Some(stream) = stream {
            lies = stream.extents.iter().map(Extent::span).collect();
        }
        for span in kept.ranges().chain(self.outbox.spans()).chain(wanted.ranges()) {
            let placed = lies.within(span.clone()).len();
            assert_eq!(placed, span.end - span.start, "{span:?} of {queue:?} lies nowhere");
        }
    }
}
