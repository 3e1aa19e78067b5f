//! What the leader does between entries: consumers, credit, settles on their way into the log.
//!
//! Nothing here is replicated or in snapshots. A replica that does not lead refuses consumers; the
//! other calls find nobody there and do nothing.

use super::QueueMachine;
use crate::command::{Batch, Outcome};
use crate::ids::{ConsumerId, QueueId, SessionId};
use crate::limits::SETTLED_RANGES_PER_BATCH_MAX;
use crate::queue::{AttachError, CloseError, ConsumerSpec, Effect, GetReply, Queue};
use crate::ranges::Ranges;

impl QueueMachine {
    /// This replica leads now, and has applied every entry of earlier leaders: everything live is
    /// ready, flagged as redelivered, because nobody knows who saw it. Nothing goes out before
    /// `start_dispatch`: consumers may come with what they hold, by `join`.
    pub fn lead(&mut self) {
        self.is_leading = true;
        self.is_dispatching = false;
        self.sessions.clear();
        self.unlogged.clear();
        self.slots.iter_mut().flatten().for_each(Queue::lead);
    }

    /// This replica leads no longer: consumers, and settles that are not in the log, are forgotten.
    pub fn follow(&mut self) {
        self.is_leading = false;
        self.is_dispatching = false;
        self.sessions.clear();
        self.unlogged.clear();
        self.slots.iter_mut().flatten().for_each(Queue::follow);
    }

    /// Everybody who holds something has come, or had the time to: what is ready goes out. Without
    /// effect on a machine that does not lead, or does this already.
    pub fn start_dispatch(&mut self, effects: &mut Vec<Effect>) {
        if !self.is_leading || self.is_dispatching {
            return;
        }
        self.is_dispatching = true;
        for place in self.places.values() {
            let Some(queue) = &mut self.slots[*place] else { continue };
            queue.begin(effects);
            if !queue.gathered.is_empty() {
                self.unlogged.insert(queue.id);
            }
        }
    }

    pub fn is_leading(&self) -> bool {
        self.is_leading
    }

    /// Whether ready messages go out. Until then consumers may attach and settle, but what is ready,
    /// unused or empty is not known: `get` is answered by `NotYet`, and `purge`, `close_queue` and
    /// `status` should wait.
    pub fn is_dispatching(&self) -> bool {
        self.is_dispatching
    }

    /// Lets somebody consume. Attaching again replaces spec and credit. Deliveries may follow at once.
    pub fn attach(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        spec: ConsumerSpec,
        effects: &mut Vec<Effect>,
    ) -> Result<(), AttachError> {
        if !self.is_leading {
            return Err(AttachError::NotLeading);
        }
        let is_dispatching = self.is_dispatching;
        let found = self.queue_mut(queue).filter(|queue| !queue.is_closing);
        let found = found.ok_or(AttachError::NoQueue)?;
        found.consumers.attach(consumer, spec)?;
        if is_dispatching {
            found.dispatch(effects);
        }
        self.sessions.insert((consumer.session, queue));
        self.note_unlogged(queue);
        Ok(())
    }

    /// No more deliveries. What the consumer holds stays with it until it is settled or its session ends.
    pub fn detach(&mut self, queue: QueueId, consumer: ConsumerId, effects: &mut Vec<Effect>) {
        let is_dispatching = self.is_dispatching;
        let Some(found) = self.queue_mut(queue) else { return };
        if found.consumers.detach(consumer) {
            found.close_if_unused(is_dispatching, effects);
        }
        self.forget_if_idle(queue, consumer);
    }

    /// The consumer may hold `add` more.
    pub fn credit(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        add: u32,
        effects: &mut Vec<Effect>,
    ) {
        let is_dispatching = self.is_dispatching;
        let Some(found) = self.queue_mut(queue) else { return };
        found.consumers.add_credit(consumer, add);
        if is_dispatching {
            found.dispatch(effects);
        }
        self.note_unlogged(queue);
    }

    /// Fetches the first ready message for somebody who need not be attached.
    pub fn get(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        no_ack: bool,
        effects: &mut Vec<Effect>,
    ) -> GetReply {
        if !self.is_leading {
            return GetReply::NoQueue;
        }
        let is_dispatching = self.is_dispatching;
        let Some(found) = self.queue_mut(queue) else { return GetReply::NoQueue };
        if !is_dispatching {
            return GetReply::NotYet;
        }
        let Some((run, redelivered)) = found.ready.pop(1) else { return GetReply::Empty };
        let first_seq = run.start;
        if no_ack {
            found.ready.forget_range(run.clone());
            found.gathered.insert(Outcome::Done, run);
        } else {
            found.consumers.hold(consumer, first_seq);
        }
        let ready = found.ready.len();
        effects.push(Effect::Deliver {
            queue,
            consumer,
            first_seq,
            count: 1,
            redelivered,
            no_ack,
            returns: 0,
        });
        if no_ack {
            self.unlogged.insert(queue);
        } else {
            self.sessions.insert((consumer.session, queue));
        }
        GetReply::Delivered { ready }
    }

    /// A consumer's outcome. Only what it holds of `ranges` counts. Final outcomes leave its hands
    /// now and are gathered for the log; the others go back to their place and out again. Credit is
    /// not given back here.
    pub fn settle(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        ranges: &Ranges,
        outcome: Outcome,
        effects: &mut Vec<Effect>,
    ) {
        let is_dispatching = self.is_dispatching;
        let Some(found) = self.queue_mut(queue) else { return };
        found.settle(consumer, ranges, outcome);
        if is_dispatching && !outcome.is_final() {
            found.dispatch(effects);
        }
        self.note_unlogged(queue);
        self.forget_if_idle(queue, consumer);
    }

    /// The same for an outcome that a committed entry brought (a transaction): call it after `apply`.
    /// Nothing is gathered.
    pub fn settle_committed(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        ranges: &Ranges,
        outcome: Outcome,
        effects: &mut Vec<Effect>,
    ) {
        if !outcome.is_final() {
            self.settle(queue, consumer, ranges, outcome, effects);
            return;
        }
        let Some(found) = self.queue_mut(queue) else { return };
        found.consumers.release(consumer, ranges, &mut Ranges::new());
        self.forget_if_idle(queue, consumer);
    }

    /// Moves settles gathered since the last time into a batch, as ranges; false: there were none.
    /// At most `limits::SETTLED_RANGES_PER_BATCH_MAX` ranges at a time, so call it until it is false
    /// where all must go.
    pub fn take_settled(&mut self, batch: &mut Batch) -> bool {
        let mut left = SETTLED_RANGES_PER_BATCH_MAX;
        let mut taken = false;
        while left > 0
            && let Some(id) = self.unlogged.first().copied()
        {
            let Some(queue) = self.queue_mut(id) else {
                self.unlogged.pop_first();
                continue;
            };
            let count = queue.gathered.drain(id, left, batch);
            if queue.gathered.is_empty() {
                self.unlogged.pop_first();
            }
            taken |= count > 0;
            left -= count;
        }
        taken
    }

    /// Messages settled but not yet taken for the log.
    pub fn settled_waiting(&self) -> u64 {
        self.unlogged
            .iter()
            .filter_map(|id| self.queue(*id))
            .map(|queue| queue.gathered.len())
            .sum()
    }

    /// A session is over: its consumers are gone, and what they held is back in place, flagged.
    pub fn end_session(&mut self, session: SessionId, effects: &mut Vec<Effect>) {
        let first = (session, QueueId(0));
        let last = (session, QueueId(u64::MAX));
        let queues: Vec<QueueId> = self.sessions.range(first..=last).map(|(_, id)| *id).collect();
        let is_dispatching = self.is_dispatching;
        for id in queues {
            self.sessions.remove(&(session, id));
            let Some(queue) = self.queue_mut(id) else { continue };
            let (held, was_attached) = queue.consumers.end_session(session);
            queue.give_back(&held, true);
            if was_attached {
                queue.close_if_unused(is_dispatching, effects);
            }
            if is_dispatching {
                queue.dispatch(effects);
            }
            self.note_unlogged(id);
        }
    }

    /// Throws away what is ready; what is out stays out. The count, or None without the queue.
    pub fn purge(&mut self, queue: QueueId) -> Option<u64> {
        let found = self.queue_mut(queue)?;
        let all = found.ready.take_all();
        found.gathered.of(Outcome::Purged).insert_all(&all);
        self.note_unlogged(queue);
        Some(all.len())
    }

    /// Which of messages with bodies of so many bytes a queue at its limit refuses, by their place. For
    /// the others room is kept until they come.
    pub fn admit(&mut self, _queue: QueueId, _sizes: &[u32]) -> Vec<u32> {
        Vec::new()
    }

    /// Asks whether a queue may be deleted, and if so lets nobody attach any more. The ready count.
    pub fn close_queue(
        &mut self,
        queue: QueueId,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<u64, CloseError> {
        let queue = self.queue_mut(queue).ok_or(CloseError::NoQueue)?;
        if if_unused && queue.consumers.attached() > 0 {
            return Err(CloseError::InUse);
        }
        if if_empty && !queue.ready.is_empty() {
            return Err(CloseError::NotEmpty);
        }
        queue.is_closing = true;
        Ok(queue.ready.len())
    }

    /// The deletion was refused after all.
    pub fn reopen_queue(&mut self, queue: QueueId) {
        if let Some(queue) = self.queue_mut(queue) {
            queue.is_closing = false;
        }
    }

    pub(super) fn note_unlogged(&mut self, id: QueueId) {
        if self.queue_mut(id).is_some_and(|queue| !queue.gathered.is_empty()) {
            self.unlogged.insert(id);
        }
    }

    fn forget_if_idle(&mut self, id: QueueId, consumer: ConsumerId) {
        let Some(queue) = self.queue_mut(id) else { return };
        if queue.consumers.forget_if_idle(consumer)
            && !queue.consumers.has_session(consumer.session)
        {
            self.sessions.remove(&(consumer.session, id));
        }
    }
}
