//! Purges that can be undone: leader only.

use super::QueueMachine;
use crate::command::PurgeId;
use crate::ids::QueueId;
use crate::limits::UNDO_MS_MAX;
use crate::queue::Withheld;

impl QueueMachine {
    /// Throws away what is ready as `purge` does, but so that `bring_back` can undo it for so long, at most
    /// [`UNDO_MS_MAX`]. What an earlier purge has withheld is gone for good by that. Nobody but who asks for the same `by`
    /// is told what it came to.
    pub fn withhold(&mut self, queue: QueueId, by: PurgeId, undo_ms: u64) -> Withheld {
        let until_ms = self.now_ms.saturating_add(undo_ms.min(UNDO_MS_MAX));
        let Some(found) = self.queue_mut(queue).filter(|found| found.can_withhold()) else {
            return Withheld::NoQueue;
        };
        let reply = found.withhold(by, until_ms);
        self.is_awaited |= reply == Withheld::NotYet;
        self.look_after(queue);
        reply
    }

    /// Brings back what the last purge that could be undone has withheld: in its places, flagged as it was. No message
    /// comes back of a purge whose time is over, or that another one came after.
    pub fn bring_back(&mut self, queue: QueueId, by: PurgeId) -> Withheld {
        let Some(found) = self.queue_mut(queue).filter(|found| found.can_withhold()) else {
            return Withheld::NoQueue;
        };
        let reply = found.bring_back(by);
        self.is_awaited |= reply == Withheld::NotYet;
        self.look_after(queue);
        reply
    }

    /// How many messages of the queue are withheld, and until when they can be brought back, ms since 1970.
    pub fn withheld(&self, queue: QueueId) -> Option<(u64, u64)> {
        self.queue(queue)?.withheld().map(|(count, _, until_ms)| (count, until_ms))
    }
}
