//! A queue that reads a stream: a subscription.
//!
//! It has no messages of its own. Its store is that of its stream seen from it: how far that goes the machine tells it
//! at the end of each entry (`machine::subscriptions`). All else is as in every queue: one reader, its consumers, its
//! dead letters, its books. The numbers of its messages are the stream's.
//!
//! The stream keeps what its subscriptions have not settled, but for those that would rather have a gap.

use crate::limits::HOLD_MS;

/// Who reads a stream as a subscription. It follows from the settings of those queues.
#[derive(Clone, Debug)]
pub(super) struct Subscribers {
    /// Where the machine has them.
    pub(super) places: Vec<usize>,
    /// From here on the stream keeps its messages for them, or a little before it.
    pub(super) hold: u64,
    /// Retention would have removed more: leader only.
    is_held: bool,
    /// When it was looked last how far they are, ms since 1970.
    looked_ms: u64,
}

impl Default for Subscribers {
    fn default() -> Self {
        Self { places: Vec::new(), hold: u64::MAX, is_held: false, looked_ms: 0 }
    }
}

impl Subscribers {
    /// How far retention may go that would go to `below`.
    pub(super) fn limit(&mut self, below: u64) -> u64 {
        self.is_held |= below > self.hold;
        below.min(self.hold)
    }

    /// When it is worth looking again how far they are. None: nothing waits for them.
    pub(super) fn look_at_ms(&self) -> Option<u64> {
        self.is_held.then(|| self.looked_ms.saturating_add(HOLD_MS))
    }

    /// They hold what is from `seq` on.
    pub(super) fn looked(&mut self, seq: u64, now_ms: u64) {
        (self.hold, self.is_held, self.looked_ms) = (seq, false, now_ms);
    }

    /// Nobody knows how far they are: this node begins to lead, or one of them was moved.
    pub(super) fn forget(&mut self) {
        if !self.places.is_empty() {
            (self.hold, self.is_held, self.looked_ms) = (0, false, 0);
        }
    }
}
