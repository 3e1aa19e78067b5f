//! Streams and the subscriptions that read them: the one place where one queue's end is another's.

use super::QueueMachine;
use crate::ids::QueueId;
use crate::queue::level::Level;
use crate::queue::{Effect, Queue, stream};
use crate::settings::Subscription;

impl QueueMachine {
    /// Whose messages `queue` is given out of: those of its stream, if it is a subscription, else its own.
    pub fn store_of(&self, queue: QueueId) -> QueueId {
        let subscription = self.queue(queue).and_then(Queue::subscription);
        subscription.map_or(queue, |subscription| subscription.stream)
    }

    /// All subscriptions, and the stream that each reads.
    pub fn subscriptions(&self) -> impl Iterator<Item = (QueueId, QueueId)> + '_ {
        let all = self.slots.iter().flatten();
        all.filter_map(|queue| Some((queue.id, queue.subscription()?.stream)))
    }

    /// The levels of a queue: what its messages are given out by.
    pub fn levels_of(&self, queue: QueueId) -> impl Iterator<Item = QueueId> + '_ {
        let found = self.queue(queue).into_iter();
        found.flat_map(|queue| queue.levels().map(Level::id))
    }

    /// A subscription comes to be. False: there is no such stream here.
    pub(super) fn subscribe(&mut self, queue: &mut Queue, subscription: Subscription) -> bool {
        let now_ms = self.time_ms;
        let Some(stream) = self.queue(subscription.stream).filter(|stream| !stream.is_gone) else {
            return false;
        };
        let Some(seq) = stream::seq_at(&stream.main, subscription.start, now_ms) else {
            return false;
        };
        // An offset may be beyond what there is: of several partitions, of the shorter ones.
        let end = stream.main.store.next_seq;
        queue.subscribe(seq.min(end), end);
        true
    }

    /// The stream of the subscription in this place knows of it from here on.
    pub(super) fn link(&mut self, place: usize) {
        let subscription = self.slots[place].as_ref().and_then(Queue::subscription);
        let stream = subscription.and_then(|it| self.queue_mut(it.stream));
        if let Some(stream) = stream {
            stream.subscribers.places.push(place);
            stream.subscribers.forget();
        }
    }

    /// The subscription that was in this place is gone.
    pub(super) fn unlink(&mut self, place: usize, subscription: Subscription) {
        if let Some(stream) = self.queue_mut(subscription.stream) {
            stream.subscribers.places.retain(|other| *other != place);
            if stream.subscribers.places.is_empty() {
                stream.subscribers = Default::default();
            } else {
                stream.subscribers.forget();
            }
        }
    }

    /// The subscriptions of the stream in this place, by id.
    pub(super) fn subscribers_of(&self, place: usize) -> Vec<QueueId> {
        let places = self.slots[place].as_ref().map(|stream| stream.subscribers.places.as_slice());
        let places = places.unwrap_or_default().iter();
        let mut all: Vec<QueueId> =
            places.filter_map(|place| Some(self.slots[*place].as_ref()?.id)).collect();
        all.sort_unstable();
        all
    }

    /// Looks how far the subscriptions of the stream in this place are.
    pub(super) fn look_at_subscribers(&mut self, place: usize) {
        let Some(stream) = self.slots[place].as_ref() else { return };
        if stream.subscribers.places.is_empty() {
            return;
        }
        let places = stream.subscribers.places.iter();
        let held = places.filter_map(|place| Some(self.slots[*place].as_ref()?.holds_from()));
        let hold = held.min().unwrap_or(u64::MAX);
        let now_ms = self.now_ms;
        if let Some(stream) = self.slots[place].as_mut() {
            let hold = if planted::is("subscription_not_held") { u64::MAX } else { hold };
            stream.subscribers.looked(hold, now_ms);
        }
    }

    /// The same, if retention waits for that.
    pub(super) fn look_if_held(&mut self, place: usize) {
        let subscribers = self.slots[place].as_ref().map(|stream| &stream.subscribers);
        let Some(subscribers) = subscribers.filter(|it| !it.places.is_empty()) else { return };
        let is_due = subscribers.look_at_ms().is_some_and(|at_ms| at_ms <= self.now_ms);
        if is_due || subscribers.hold == 0 {
            self.look_at_subscribers(place);
        }
        if is_due {
            self.sift_for_retention(place);
        }
    }

    /// After retention: those that would rather have a gap have one.
    pub(super) fn tell_of_gaps(&mut self, place: usize, effects: &mut Vec<Effect>) {
        let Some(stream) = self.slots[place].as_ref() else { return };
        let kept_from = stream.main.kept().first().unwrap_or(stream.main.store.next_seq);
        for other in stream.subscribers.places.clone() {
            if let Some(subscription) = self.slots[other].as_mut()
                && subscription.subscription().is_some_and(|it| it.skips)
            {
                subscription.main.reading().lose_below(kept_from, effects);
            }
        }
    }

    /// The streams that an entry brought something go further, also for who reads them. Those who wait are served with
    /// it.
    pub(super) fn reach_subscribers(&mut self) {
        let mut hungry = Vec::new();
        for index in 0..self.touched.len() {
            let Some(stream) = self.slots[self.touched[index]].as_mut() else { continue };
            if stream.subscribers.places.is_empty() {
                continue;
            }
            let end = stream.main.store.next_seq;
            let places = std::mem::take(&mut stream.subscribers.places);
            for place in &places {
                let Some(subscription) = self.slots[*place].as_mut() else { continue };
                subscription.main.store.next_seq = end;
                if subscription.consumers.waiting() > 0 {
                    hungry.push(*place);
                }
            }
            if let Some(stream) = self.slots[self.touched[index]].as_mut() {
                stream.subscribers.places = places;
            }
        }
        self.touched.append(&mut hungry);
    }

    /// A subscription was set to another place by its settings.
    pub(super) fn set_to(&mut self, place: usize, before: Subscription) {
        let (now_ms, is_leading) = (self.time_ms, self.is_leading);
        let Some(found) = self.slots[place].as_ref() else { return };
        let Some(after) = found.subscription().filter(|after| after.seeks > before.seeks) else {
            return;
        };
        let stream = self.queue(after.stream);
        let Some(seq) = stream.and_then(|it| stream::seq_at(&it.main, after.start, now_ms)) else {
            return;
        };
        if let Some(found) = self.slots[place].as_mut() {
            found.set_to(seq, is_leading);
        }
        if let Some(stream) = self.queue_mut(after.stream) {
            stream.subscribers.forget();
        }
    }
}
