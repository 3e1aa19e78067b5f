//! The messages that wait for a consumer, in order, and which of them were out before.
//!
//! Leader-local. A message that comes back goes to its old place, because the place is its number.

use std::ops::Range;

use crate::queue::end::End;
use crate::queue::open::OpenEnded;
use crate::queue::seqs::Seqs;
use crate::ranges::Ranges;

#[derive(Clone, Debug)]
pub(crate) struct Ready {
    waiting: OpenEnded,
    /// Unsettled or waiting messages that may have been seen by a client. Those below `led_from`
    /// need not be in it.
    returned: Ranges,
    /// An earlier leader may have delivered what is below.
    led_from: u64,
}

impl Default for Ready {
    /// Nothing is ready where nobody leads.
    fn default() -> Self {
        Self { waiting: OpenEnded::none(), returned: Ranges::new(), led_from: 0 }
    }
}

impl Ready {
    /// Everything open waits, and what is below `led_from` may have been seen.
    pub(crate) fn lead(open: &OpenEnded, led_from: u64) -> Self {
        Self { waiting: open.clone(), returned: Ranges::new(), led_from }
    }

    /// Back to their places. `was_seen`: a client may have seen them.
    pub(crate) fn give_back(&mut self, ranges: &Ranges, was_seen: bool) {
        self.waiting.insert_all(ranges);
        if was_seen && !planted::is("requeue_unflagged") {
            self.returned.insert_all(ranges);
        }
    }

    /// Those of them that wait may have been seen by a client.
    pub(crate) fn flag_waiting(&mut self, ranges: &Ranges, end: End) {
        if !planted::is("requeue_unflagged") {
            self.returned.insert_all(&self.waiting(end).intersect(ranges));
        }
    }

    /// Moves what waits of a range to somebody who holds it.
    pub(crate) fn take(&mut self, range: Range<u64>, end: End, into: &mut Ranges) {
        self.waiting.take(range, end, into);
    }

    /// The run at the front, as far as it has at most `max` messages.
    pub(crate) fn front(&self, max: u64, end: End) -> Option<Range<u64>> {
        let front = self.waiting(end).first_range()?;
        Some(front.start..front.end.min(front.start.saturating_add(max)))
    }

    /// Takes the longest run at the front of `run`, which waits, that is all flagged or all not.
    #[inline]
    pub(crate) fn pop(&mut self, mut run: Range<u64>, end: End) -> (Range<u64>, bool) {
        let was_returned = if run.start < self.led_from {
            run.end = run.end.min(self.led_from);
            true
        } else if self.returned.is_empty() {
            false
        } else {
            let (end, inside) = self.returned.uniform(&run);
            run.end = end;
            inside
        };
        self.waiting.remove(run.clone(), end);
        (run, was_returned)
    }

    /// Settled: nobody will ask about its flag again.
    pub(crate) fn forget(&mut self, ranges: &Ranges) {
        self.returned.remove_all(ranges);
    }

    /// The same for one range.
    pub(crate) fn forget_range(&mut self, range: Range<u64>) {
        if !self.returned.is_empty() {
            self.returned.remove(range);
        }
    }

    /// They do not wait, for now.
    pub(crate) fn remove_from_waiting(&mut self, ranges: &Ranges, end: End) {
        self.waiting.remove_all(ranges, end);
    }

    /// Settled by the log, wherever they are.
    pub(crate) fn remove(&mut self, ranges: &Ranges, end: End) {
        self.waiting.remove_all(ranges, end);
        self.returned.remove_all(ranges);
    }

    pub(crate) fn take_all(&mut self, end: End) -> Ranges {
        let all = self.waiting.take_all(end);
        self.returned.remove_all(&all);
        all
    }

    #[inline]
    pub(crate) fn waiting(&self, end: End) -> Seqs<'_> {
        self.waiting.at(end)
    }
}
