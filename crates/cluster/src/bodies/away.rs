//! Dead messages that are with the dead-letter worker: it keeps what it is given until that is stored, so no more
//! is handed out while that is much.

use std::collections::BTreeMap;
use std::ops::Range;

use machine::{QueueId, Ranges};

use crate::limits::LEAVING_BYTES_PER_GROUP;

#[derive(Debug)]
struct Run {
    end: u64,
    /// Of its messages, so many are not settled.
    left: u64,
    /// What those take.
    bytes: usize,
}

/// Of all queues of a group.
#[derive(Debug, Default)]
pub(super) struct Away {
    /// By level and first number; disjoint.
    runs: BTreeMap<(QueueId, u64), Run>,
    bytes: usize,
    /// There is room that was not.
    has_room_again: bool,
}

impl Away {
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= LEAVING_BYTES_PER_GROUP
    }

    pub(super) fn add(&mut self, queue: QueueId, span: Range<u64>, bytes: usize) {
        let run = Run { end: span.end, left: span.end - span.start, bytes };
        self.bytes += bytes;
        self.runs.insert((queue, span.start), run);
    }

    /// Messages are settled, each for the first time.
    pub(super) fn settled(&mut self, queue: QueueId, settled: &Ranges) {
        if self.runs.is_empty() {
            return;
        }
        let was_full = self.is_full();
        for range in settled.ranges() {
            let before = self.runs.range((queue, 0)..=(queue, range.start)).next_back();
            let from = before.map_or(range.start, |(&(_, first), _)| first);
            let mut gone = Vec::new();
            for (&(_, first), run) in self.runs.range_mut((queue, from)..(queue, range.end)) {
                let count = run.end.min(range.end).saturating_sub(first.max(range.start));
                let share = run.bytes as u64 / run.left.max(1) * count;
                let freed = if count >= run.left { run.bytes } else { share as usize };
                run.left = run.left.saturating_sub(count);
                run.bytes -= freed;
                self.bytes -= freed;
                if run.left == 0 {
                    gone.push(first);
                }
            }
            for first in gone {
                self.runs.remove(&(queue, first));
            }
        }
        self.has_room_again |= was_full && !self.is_full();
    }

    /// The queue is gone.
    pub(super) fn forget(&mut self, queue: QueueId) {
        let all = self.runs.extract_if((queue, 0)..=(queue, u64::MAX), |_, _| true);
        let bytes: usize = all.map(|(_, run)| run.bytes).sum();
        let was_full = self.is_full();
        self.bytes -= bytes;
        self.has_room_again |= was_full && !self.is_full();
    }

    /// Who had them is gone.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether those who waited for room may go on: said once.
    pub(super) fn take_room(&mut self) -> bool {
        std::mem::take(&mut self.has_room_again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: QueueId = QueueId(7);
    const OTHER: QueueId = QueueId(8);

    #[test]
    fn there_is_room_again_when_enough_is_settled() {
        let mut away = Away::default();
        away.add(QUEUE, 1..5, LEAVING_BYTES_PER_GROUP - 1);
        assert!(!away.is_full());
        away.add(QUEUE, 9..11, 8);
        away.add(OTHER, 1..3, 8);
        assert!(away.is_full() && !away.take_room());
        away.settled(OTHER, &Ranges::from(0..4));
        assert!(away.is_full(), "nine bytes too many were, eight went");
        away.settled(QUEUE, &Ranges::from(4..10));
        assert!(!away.is_full() && away.take_room() && !away.take_room());
        away.settled(QUEUE, &[1..4, 10..11].into_iter().collect());
        assert_eq!((away.bytes, away.runs.len()), (0, 0));
    }

    #[test]
    fn a_queue_that_goes_gives_its_room_back() {
        let mut away = Away::default();
        away.add(QUEUE, 1..5, LEAVING_BYTES_PER_GROUP);
        away.add(OTHER, 1..5, 1);
        away.forget(QUEUE);
        assert!(away.take_room());
        assert_eq!(away.bytes, 1);
        away.clear();
        assert_eq!(away.bytes, 0);
    }
}
