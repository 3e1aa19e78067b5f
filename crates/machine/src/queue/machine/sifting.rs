//! Subscriptions with a filter: of which messages it is to be asked, and what it said. Leader only.

use std::ops::Range;

use super::QueueMachine;
use crate::ids::QueueId;
use crate::queue::{Effect, Queue};
use crate::ranges::Ranges;

impl QueueMachine {
    /// A subscription whose filter is to be asked of these messages, and under which level: whoever has their bytes says
    /// by [`QueueMachine::sifted`] what it does not match, for as
    /// many of the first of them as it likes. Nobody else is asked meanwhile.
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

    /// The filter of a subscription was asked of `span`: it does not match `unwanted`. Who waits is given the others.
    pub fn sifted(
        &mut self,
        level: QueueId,
        span: Range<u64>,
        unwanted: &Ranges,
        effects: &mut Vec<Effect>,
    ) {
        let (is_dispatching, now_ms) = (self.is_dispatching, self.now_ms);
        let Some(found) = self.queue_mut(level).filter(|_| is_dispatching) else { return };
        // It may have been set to another place since.
        if found.main.id() == level && !found.is_gone {
            found.sifted(span, unwanted, now_ms, effects);
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
            if found.sieve.is_some() && found.holds_from() <= hold && found.seek_match() {
                let id = found.id;
                self.look_after(id);
            }
        }
    }
}
