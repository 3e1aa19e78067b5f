//! Messages that are asked something before they go out: their bytes are found as those of a delivery are.
//!
//! A queue asks of one span at a time, and as much of its front is answered as lies together in memory. What a filter
//! matches is given out next, so its bytes stay, each run for itself where others lay between.

use std::ops::Range;

use machine::{QueueId, Ranges};

use super::queue::QueueBodies;
use super::store::StoreView;
use super::{Bodies, Readers, Run, pick};
use crate::limits::{HOT_BYTES_IDLE, HOT_BYTES_IDLE_QUEUE};

/// The front of what is to be asked.
#[derive(Debug)]
pub(crate) enum Sift {
    /// Its bytes, and whether they are this reader's own: of a plain queue, or read for this subscription alone.
    Read { run: Run, is_own: bool },
    /// It was settled meanwhile.
    Settled(Range<u64>),
}

impl Bodies {
    /// The messages of `span` are to be asked.
    pub(crate) fn sift(&mut self, queue: QueueId, span: Range<u64>) {
        self.note_level(queue);
        let bodies = self.queues.entry(queue).or_default();
        bodies.is_dry = false;
        bodies.sifting = Some(span);
    }

    /// `run`, which [`Sift::Read`] has given, was asked: all may go out but the `unwanted`.
    pub(crate) fn sifted(&mut self, queue: QueueId, run: Run, is_own: bool, unwanted: &Ranges) {
        let store = self.store_of(queue);
        let is_all = unwanted.is_empty();
        let Some(bodies) = self.queues.get_mut(&queue) else { return };
        if unwanted.len() == u64::from(run.count) || (is_all && !is_own) {
            // Nothing is given out, or all of it from where it lies in the stream.
            return;
        }
        let before = bodies.hot_bytes();
        let mut wanted = Ranges::from(run.span());
        wanted.remove_all(unwanted);
        for run in pick(store, run, &wanted, false) {
            bodies.window.fill(store, run);
        }
        let after = bodies.hot_bytes();
        self.hot_bytes = self.hot_bytes - before + after;
        if after > HOT_BYTES_IDLE_QUEUE || self.hot_bytes > HOT_BYTES_IDLE {
            self.overfull.push(queue);
        }
    }
}

impl QueueBodies {
    /// The front of what is to be asked, if its bytes are here or nobody needs them.
    pub(super) fn sift<'a>(
        &mut self,
        store: QueueId,
        stream: Option<StoreView<'_>>,
        readers: &impl Fn() -> Readers<'a>,
    ) -> Option<Sift> {
        let span = self.sifting.clone()?;
        let (first, count) = (span.start, u32::try_from(span.end - span.start).unwrap_or(u32::MAX));
        let open = readers().kept.map(|kept| kept.within(span.clone())).unwrap_or_default();
        let found = match open.first() {
            Some(at) if at == first => {
                let own = self.window.take(store, first, count).map(|run| (run, true));
                let read = || Some((stream?.window.copy(store, first, count)?, false));
                let (run, is_own) = own.or_else(read)?;
                self.fruitless = 0;
                self.sent_to = self.sent_to.max(run.end());
                Sift::Read { run, is_own }
            }
            Some(at) => Sift::Settled(first..at),
            None => Sift::Settled(span),
        };
        self.sifting = None;
        Some(found)
    }
}
