//! The messages that wait for a consumer, in order, and which of them were out before.
//!
//! Leader-local. A message that comes back goes to its old place, because the place is its number.

use std::ops::Range;

use crate::ranges::Ranges;

#[derive(Clone, Debug, Default)]
pub(crate) struct Ready {
    waiting: Ranges,
    /// Unsettled or waiting messages that may have been seen by a client. Those below `led_from`
    /// need not be in it.
    returned: Ranges,
    /// An earlier leader may have delivered what is below.
    led_from: u64,
}

impl Ready {
    /// Everything open waits, and what is below `led_from` may have been seen.
    pub(crate) fn lead(open: &Ranges, led_from: u64) -> Self {
        Self { waiting: open.clone(), returned: Ranges::new(), led_from }
    }

    pub(crate) fn push(&mut self, range: Range<u64>) {
        self.waiting.insert(range);
    }

    /// Back to their places. `was_seen`: a client may have seen them.
    pub(crate) fn give_back(&mut self, ranges: &Ranges, was_seen: bool) {
        self.waiting.insert_all(ranges);
        if was_seen && cfg!(not(bug_requeue_unflagged)) {
            self.returned.insert_all(ranges);
        }
    }

    /// Those of them that wait may have been seen by a client.
    pub(crate) fn flag_waiting(&mut self, ranges: &Ranges) {
        if cfg!(not(bug_requeue_unflagged)) {
            self.returned.insert_all(&ranges.intersect(&self.waiting));
        }
    }

    /// Moves what waits of a range to somebody who holds it.
    pub(crate) fn take(&mut self, range: Range<u64>, into: &mut Ranges) {
        self.waiting.take(range, into);
    }

    /// The run at the front, as far as it has at most `max` messages.
    pub(crate) fn front(&self, max: u64) -> Option<Range<u64>> {
        let front = self.waiting.first_range()?;
        Some(front.start..front.end.min(front.start.saturating_add(max)))
    }

    /// Takes the longest run at the front, at most `max` messages, that is all flagged or all not.
    pub(crate) fn pop(&mut self, max: u64) -> Option<(Range<u64>, bool)> {
        let mut run = self.front(max)?;
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
        self.waiting.pop_front(run.end - run.start);
        Some((run, was_returned))
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
    pub(crate) fn remove_from_waiting(&mut self, ranges: &Ranges) {
        self.waiting.remove_all(ranges);
    }

    /// Settled by the log, wherever they are.
    pub(crate) fn remove(&mut self, ranges: &Ranges) {
        self.waiting.remove_all(ranges);
        self.returned.remove_all(ranges);
    }

    pub(crate) fn take_all(&mut self) -> Ranges {
        let all = std::mem::take(&mut self.waiting);
        self.returned.remove_all(&all);
        all
    }

    pub(crate) fn len(&self) -> u64 {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn waiting(&self) -> &Ranges {
        &self.waiting
    }
}
