//! What must be true of bodies between steps: accounts equal what is there, what lives lies somewhere
//! and what is dead nowhere, and nobody waits for nothing.

use machine::{QueueId, Ranges};

use super::{Bodies, QueueBodies, Readers};

impl Bodies {
    /// Panics if something is not as it must be. For tests: it looks at everything.
    pub(crate) fn check<'a>(&self, readers: impl Fn(QueueId) -> Option<Readers<'a>>) {
        let bytes: usize = self.queues.values().map(|bodies| bodies.window.counted_anew()).sum();
        assert_eq!(bytes, self.hot_bytes, "what is in memory is not what is accounted");
        for (&queue, bodies) in &self.queues {
            let Some(readers) = readers(queue) else {
                panic!("bodies of {queue:?}, which is gone")
            };
            assert_eq!(
                self.waiting.contains(&queue),
                !bodies.outbox.is_empty(),
                "deliveries of {queue:?} wait, or not"
            );
            bodies.check(queue, readers);
        }
    }
}

impl QueueBodies {
    fn check(&self, queue: QueueId, readers: Readers<'_>) {
        assert!(self.outbox.is_empty() || self.fetching, "{queue:?} stalls: nothing is fetched");
        let mut end = 0;
        for (span, _) in self.window.runs() {
            assert!(end <= span.start, "runs of {queue:?} in memory overlap");
            end = span.end;
        }
        let live = readers.live.cloned().unwrap_or_default();
        let mut lies = Ranges::new();
        let mut end = 0;
        for (&first, extent) in &self.extents {
            let span = first..first + extent.count;
            assert!(end <= first, "places of {queue:?} overlap");
            end = span.end;
            assert!(
                live.intersects(span.clone()) || self.outbox.wants(span.clone()),
                "{span:?} of {queue:?} is dead and has a place: {extent:?}"
            );
            lies.insert(span);
        }
        for span in live.ranges().chain(self.outbox.spans()) {
            let placed = lies.within(span.clone()).len();
            assert_eq!(placed, span.end - span.start, "{span:?} of {queue:?} lies nowhere");
        }
    }
}
