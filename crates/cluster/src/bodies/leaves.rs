//! Dead messages of one queue on their way to the dead-letter worker, their bytes to be found.
//!
//! They go beside the deliveries: what a consumer waits for is not held up by them. Whatever is settled
//! meanwhile does not leave any more, so all that waits here is alive.

use std::collections::VecDeque;
use std::ops::Range;

use machine::{Outcome, Ranges};

use super::window::Window;

/// A run of dead messages that the machine handed out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leave {
    pub(crate) first_seq: u64,
    pub(crate) count: u32,
    pub(crate) reason: Outcome,
}

impl Leave {
    pub(super) fn span(&self) -> Range<u64> {
        self.first_seq..self.first_seq + u64::from(self.count)
    }
}

#[derive(Debug, Default)]
pub(super) struct Leaves {
    all: VecDeque<Leave>,
    /// Their numbers.
    wanted: Ranges,
    /// What was read for them.
    pub(super) window: Window,
}

impl Leaves {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn front(&self) -> Option<(u64, u32)> {
        self.all.front().map(|leave| (leave.first_seq, leave.count))
    }

    pub(super) fn spans(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.all.iter().map(Leave::span)
    }

    pub(super) fn wants(&self, span: &Range<u64>) -> bool {
        self.wanted.intersects(span.clone())
    }

    pub(super) fn push(&mut self, leave: Leave) {
        self.wanted.insert(leave.span());
        self.all.push_back(leave);
    }

    /// The first `count` messages of the front leave: what is told of them.
    pub(super) fn sent(&mut self, count: u32) -> Leave {
        let front = self.all.front_mut().expect("something was to leave");
        assert!(count <= front.count, "no more leaves than was to");
        let sent = Leave { count, ..*front };
        self.wanted.remove(sent.span());
        front.first_seq += u64::from(count);
        front.count -= count;
        if front.count == 0 {
            self.all.pop_front();
        }
        if self.all.is_empty() {
            self.window = Window::default();
        }
        sent
    }

    /// These are settled. Says whether that matters.
    pub(super) fn forget(&mut self, settled: &Ranges) -> bool {
        let gone = settled.intersect(&self.wanted);
        if gone.is_empty() {
            return false;
        }
        self.wanted.remove_all(&gone);
        let mut left = VecDeque::new();
        for leave in &self.all {
            let mut span = Ranges::from(leave.span());
            span.remove_all(&gone.intersect(&span));
            let part = |range: Range<u64>| Leave {
                first_seq: range.start,
                count: (range.end - range.start) as u32,
                reason: leave.reason,
            };
            left.extend(span.ranges().map(part));
        }
        self.all = left;
        if self.all.is_empty() {
            self.window = Window::default();
        }
        true
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
