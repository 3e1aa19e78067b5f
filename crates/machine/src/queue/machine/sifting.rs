//! Queues whose messages are asked something before they go out: of which messages that is, and what was found. Leader
//! only.

use std::ops::Range;

use super::QueueMachine;
use crate::ids::QueueId;
use crate::queue::{Effect, Queue, Sifted};

impl QueueMachine {
    /// A queue whose filter is to be asked of these messages, or whose keys are to be known, and under which level:
    /// whoever has their bytes says by [`QueueMachine::sifted`] what it found, for as many of the first of them as it
    /// likes. Nobody else is asked meanwhile.
    pub fn sift_next(&mut self) -> Option<(QueueId, Range<u64>)> {
        while let Some(id) = self.unsifted.pop() {
            if let Some(queue) = self.queue_mut(id)
                && let Some(span) = queue.sift()
            {
                return Some((queue.main.id(), span));
            }
        }
        None
    }

    /// What was found in messages that [`QueueMachine::sift_next`] named. Who waits is given those that may go out.
    pub fn sifted(&mut self, level: QueueId, sifted: &Sifted, effects: &mut Vec<Effect>) {
        let (is_dispatching, now_ms) = (self.is_dispatching, self.now_ms);
        let Some(found) = self.queue_mut(level).filter(|_| is_dispatching) else { return };
        // It may have been set to another place since.
        if found.main.id() == level && !found.is_gone {
            found.sifted(sifted, now_ms, effects);
            self.look_after(level);
        }
    }

    /// Whether who fetches from this queue is to ask again when its filter was asked.
    pub fn is_sifting(&self, queue: QueueId) -> bool {
        self.queue(queue).is_some_and(Queue::is_sought)
    }

    /// The stream in this place waited for its subscriptions: those that hold it look further by their filters.
    pub(super) fn sift_for_retention(&mut self, place: usize) {
        let Some(stream) = self.slots[place].as_ref() else { return };
        let hold = stream.subscribers.hold;
        for other in stream.subscribers.places.clone() {
            let Some(found) = self.slots[other].as_mut() else { continue };
            if found.settings.has_filter() && found.holds_from() <= hold && found.seek_match() {
                let id = found.id;
                self.look_after(id);
            }
        }
    }
}
