//! What the leader does between entries: consumers, credit, settles on their way into the log.
//!
//! Nothing here is replicated or in snapshots. A replica that does not lead refuses consumers; the
//! other calls find nobody there and do nothing.

use super::QueueMachine;
use crate::command::{Batch, Outcome};
use crate::ids::{ConsumerId, QueueId, SessionId};
use crate::limits::SETTLED_RANGES_PER_BATCH_MAX;
use crate::queue::reader::Popped;
use crate::queue::{
    AttachError, CloseError, ConsumerChange, ConsumerSpec, Effect, GetReply, Queue,
};
use crate::ranges::Ranges;
use crate::scheduler::budget::Budget;
use crate::scheduler::loan::{Ask, Loan};
use crate::scheduler::times::Times;

impl QueueMachine {
    /// This replica leads now, and has applied every entry of earlier leaders: everything open is
    /// ready, flagged as redelivered if a client may have seen it. Nothing goes out before
    /// `start_dispatch`: consumers may come with what they hold, by `join`.
    pub fn lead(&mut self) {
        self.is_leading = true;
        self.is_dispatching = false;
        self.sessions.clear();
        self.unlogged.clear();
        self.timers.clear();
        let now_ms = self.now_ms;
        self.slots.iter_mut().flatten().for_each(|queue| queue.lead(now_ms));
    }

    /// The leader before may give out messages for so long after this one has begun to: its tokens are not given out a
    /// second time. Counts for the next `start_dispatch`.
    pub fn succeed(&mut self, for_ms: u64) {
        self.succession_ms = for_ms;
    }

    /// This replica leads no longer: consumers, and settles that are not in the log, are forgotten.
    pub fn follow(&mut self) {
        self.is_leading = false;
        self.is_dispatching = false;
        self.sessions.clear();
        self.unlogged.clear();
        self.timers.clear();
        self.slots.iter_mut().flatten().for_each(|queue| queue.follow());
    }

    /// Everybody who holds something has come, or had the time to: what is ready goes out. Without
    /// effect on a machine that does not lead, or does this already.
    pub fn start_dispatch(&mut self, effects: &mut Vec<Effect>) {
        if !self.is_leading || self.is_dispatching {
            return;
        }
        self.is_dispatching = true;
        let queues: Vec<QueueId> = self.places.keys().copied().collect();
        let now_ms = self.now_ms;
        let tokens_from_ms = now_ms.saturating_add(std::mem::take(&mut self.succession_ms));
        for id in queues {
            let Some(queue) = self.queue_mut(id) else { continue };
            queue.begin(now_ms, tokens_from_ms, effects);
            self.look_after(id);
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

    /// Lets somebody consume. Attaching again replaces spec and credit. Deliveries may follow at once. Who reads a
    /// stream is no consumer here: to them it is as if there were no such queue.
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
        let (is_dispatching, now_ms) = (self.is_dispatching, self.now_ms);
        let takes_any =
            |queue: &&mut Queue| !queue.is_closing && !queue.is_gone && !queue.settings.is_stream();
        let found = self.queue_mut(queue).filter(takes_any).ok_or(AttachError::NoQueue)?;
        found.consumers.attach(consumer, spec)?;
        // It says itself what credit it has.
        found.owed.retain(|(by, _)| *by != consumer);
        found.touch(now_ms);
        if is_dispatching {
            found.consumers.decide_active();
            found.serve(now_ms, effects);
        }
        self.sessions.insert((consumer.session, queue));
        self.look_after(queue);
        Ok(())
    }

    /// No more deliveries. What the consumer holds stays with it until it is settled or its session ends.
    pub fn detach(&mut self, queue: QueueId, consumer: ConsumerId, effects: &mut Vec<Effect>) {
        let (is_dispatching, now_ms) = (self.is_dispatching, self.now_ms);
        let Some(found) = self.queue_mut(queue) else { return };
        if found.consumers.detach(consumer) {
            found.touch(now_ms);
            found.close_if_unused(is_dispatching, effects);
            if is_dispatching {
                // Another may be the active one now.
                found.serve(now_ms, effects);
            }
            self.look_after(queue);
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
        let (is_dispatching, now_ms) = (self.is_dispatching, self.now_ms);
        let Some(found) = self.queue_mut(queue) else { return };
        found.consumers.add_credit(consumer, add);
        if is_dispatching {
            found.serve(now_ms, effects);
        }
        self.look_after(queue);
    }

    /// The queue, in use, for who fetches from it: who consumes has been served first, and what has expired at the front
    /// is not ready any more.
    pub(super) fn ready_to_give(
        &mut self,
        queue: QueueId,
        effects: &mut Vec<Effect>,
    ) -> Result<&mut Queue, GetReply> {
        if !self.is_leading {
            return Err(GetReply::NoQueue);
        }
        let (is_dispatching, now_ms) = (self.is_dispatching, self.now_ms);
        let found = self.queue_mut(queue).filter(|found| !found.is_gone);
        let found = found.ok_or(GetReply::NoQueue)?;
        if !is_dispatching {
            return Err(GetReply::NotYet);
        }
        found.touch(now_ms);
        found.serve(now_ms, effects);
        Ok(found)
    }

    /// Fetches the first ready message for somebody who need not be attached.
    pub fn get(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        no_ack: bool,
        effects: &mut Vec<Effect>,
    ) -> GetReply {
        let now_ms = self.now_ms;
        let found = match self.ready_to_give(queue, effects) {
            Ok(found) => found,
            Err(reply) => return reply,
        };
        if found.settings.is_stream() {
            return GetReply::Empty;
        }
        if found.settings.is_paused && !planted::is("get_from_paused") {
            self.look_after(queue);
            return GetReply::Empty;
        }
        let before_ms = now_ms.saturating_add(1);
        let (mut popped, mut is_held_up, mut waits) = (None, false, false);
        // Who consumes has been served, so the budget is of now.
        let mut pace = found.pace.take();
        let mut budget = pace.as_mut().and_then(|pace| pace.out.as_mut());
        for level in found.levels_mut() {
            let id = level.id();
            let mut reading = level.reading();
            let has_turns = reading.has_turns();
            let turn =
                if has_turns { reading.next_turn(Times { now_ms, before_ms }) } else { None };
            let first = reading.waiting().first().filter(|_| !has_turns);
            if let (Some(to), Some(first)) = (reading.sifted_to(), first)
                && first >= to
            {
                break;
            }
            let affordable = |budget: &Budget| match &turn {
                Some(run) => reading.affordable_of(run.clone(), budget),
                None => reading.affordable(budget),
            };
            let has_ready = first.is_some() || turn.is_some();
            if has_ready && budget.as_deref().is_some_and(|budget| affordable(budget) == 0) {
                // It waits for a token, and who fetches does not wait, but for the answer of who has tokens.
                let bytes = match &turn {
                    Some(run) => reading.bytes_of(&(run.start..run.start + 1)),
                    None => reading.first_bytes(),
                };
                is_held_up = budget.as_deref_mut().is_some_and(|budget| budget.fetch(bytes));
                break;
            }
            let next = match turn {
                Some(run) => Some(reading.pop_turn(run, 1)),
                None if has_turns => None,
                None => reading.pop_fresh(1, before_ms),
            };
            popped = next.map(|popped| (id, popped));
            if let Some((_, popped)) = &popped {
                waits = reading.reader.give(&popped.range, no_ack);
                if let Some(budget) = budget.as_deref_mut() {
                    reading.charge(budget, &popped.range);
                }
                reading.expire(before_ms);
                break;
            }
            is_held_up = reading.is_held_up();
            if is_held_up {
                break;
            }
        }
        found.pace = pace;
        let Some((level, Popped { range, was_returned, returns })) = popped else {
            is_held_up |= found.seek_match();
            found.borrow(effects);
            self.look_after(queue);
            return if is_held_up { GetReply::NotYet } else { GetReply::Empty };
        };
        let first_seq = range.start;
        if !no_ack {
            found.consumers.hold(consumer, level.priority(), first_seq);
        }
        let ready = found.ready_len();
        effects.push(Effect::Deliver {
            queue: level,
            consumer,
            first_seq,
            count: 1,
            redelivered: was_returned,
            no_ack,
            returns,
            waits,
        });
        if !no_ack {
            self.sessions.insert((consumer.session, queue));
        }
        self.look_after(queue);
        GetReply::Delivered { ready }
    }

    /// A consumer is paused or goes on, or its weight is another. It stays attached, with its credit and what it holds;
    /// where one consumer is served at a time and it is paused, nobody is served meanwhile.
    pub fn change_consumer(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        change: ConsumerChange,
        effects: &mut Vec<Effect>,
    ) {
        let (is_dispatching, now_ms) = (self.is_dispatching, self.now_ms);
        let Some(found) = self.queue_mut(queue) else { return };
        found.consumers.change(consumer, change);
        if is_dispatching {
            found.serve(now_ms, effects);
        }
        self.look_after(queue);
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
        let (is_dispatching, now_ms) = (self.is_dispatching, self.now_ms);
        let Some(found) = self.queue_mut(queue) else { return };
        found.settle(queue.priority(), consumer, ranges, outcome);
        if is_dispatching && !outcome.is_final() {
            // As in RabbitMQ: what comes back may be too much before anybody takes it.
            found.trim();
            found.serve(now_ms, effects);
        } else if is_dispatching && (found.consumers.hands_over() || found.has_free_keys()) {
            found.serve(now_ms, effects);
        }
        self.look_after(queue);
        self.forget_if_idle(queue, consumer);
    }

    /// The same, and `credit` comes back to the consumer: in a queue that counts returns when what came
    /// back is ready again, so that the first message goes out first.
    pub fn settle_for_credit(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        ranges: &Ranges,
        (outcome, credit): (Outcome, u32),
        effects: &mut Vec<Effect>,
    ) {
        if outcome.is_final() || credit == 0 {
            self.settle(queue, consumer, ranges, outcome, effects);
            if credit > 0 {
                self.credit(queue.base(), consumer, credit, effects);
            }
            return;
        }
        let (is_dispatching, now_ms) = (self.is_dispatching, self.now_ms);
        let Some(found) = self.queue_mut(queue) else { return };
        let returning = |found: &Queue| {
            found.level(queue.priority()).map_or(0, |level| level.reader.gathered.returning())
        };
        let before = returning(found);
        found.settle(queue.priority(), consumer, ranges, outcome);
        if returning(found) > before {
            // What does come back by the log brings the credit along.
            found.owed.push((consumer, credit));
        } else {
            // As in RabbitMQ: who gives back has room again before it is decided who gets it.
            found.consumers.add_credit(consumer, credit);
        }
        if is_dispatching {
            found.trim();
            found.serve(now_ms, effects);
        }
        self.look_after(queue);
        self.forget_if_idle(queue, consumer);
    }

    /// The same for an outcome that a committed entry brings (a transaction): call it before `apply`,
    /// so that nobody holds what the entry gives back or takes away. Nothing is gathered.
    pub fn settle_committed(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        ranges: &Ranges,
        outcome: Outcome,
        effects: &mut Vec<Effect>,
    ) {
        let Some(found) = self.queue_mut(queue) else { return };
        let counts = found.features().is_some_and(|features| features.counts_returns);
        if !outcome.is_final() && !counts {
            self.settle(queue, consumer, ranges, outcome, effects);
            return;
        }
        found.consumers.release(consumer, queue.priority(), ranges, &mut Ranges::new());
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
            for level in queue.levels_mut() {
                let (id, end, reader) = (level.id(), level.store.end(), &mut level.reader);
                if let Some(to) = reader.delivered.take_wanted() {
                    batch.mark_delivered(id, to);
                    taken = true;
                }
                let count = reader.gathered.drain((id, end), left, batch);
                taken |= count > 0;
                left -= count;
            }
            if !queue.has_settles() {
                self.unlogged.pop_first();
            }
        }
        taken
    }

    /// Whether, since this was asked last, a client began to wait for what `take_settled` gives.
    pub fn take_awaited(&mut self) -> bool {
        std::mem::take(&mut self.is_awaited)
    }

    /// Messages settled but not yet taken for the log.
    pub fn settled_waiting(&self) -> u64 {
        self.unlogged
            .iter()
            .filter_map(|id| self.queue(*id))
            .map(|queue| queue.levels().map(|level| level.reader.gathered.len()).sum::<u64>())
            .sum()
    }

    /// Whether anything is settled but not yet taken for the log.
    pub fn has_settles(&self) -> bool {
        !self.unlogged.is_empty()
    }

    /// A session is over: its consumers are gone, and what they held is back in place, flagged.
    pub fn end_session(&mut self, session: SessionId, effects: &mut Vec<Effect>) {
        let first = (session, QueueId(0));
        let last = (session, QueueId(u64::MAX));
        let queues: Vec<QueueId> = self.sessions.range(first..=last).map(|(_, id)| *id).collect();
        let (is_dispatching, now_ms) = (self.is_dispatching, self.now_ms);
        for id in queues {
            self.sessions.remove(&(session, id));
            let Some(queue) = self.queue_mut(id) else { continue };
            let (held, was_attached) = queue.consumers.end_session(session);
            queue.owed.retain(|(consumer, _)| consumer.session != session);
            for (level, held) in held.all() {
                queue.let_go(level, held, Outcome::Returned);
            }
            if was_attached {
                queue.touch(now_ms);
                queue.close_if_unused(is_dispatching, effects);
            }
            if is_dispatching {
                queue.trim();
                queue.serve(now_ms, effects);
            }
            self.look_after(id);
        }
    }

    /// What was given to a session that is over, is settled by that, and waits for its mark has not left: it is
    /// ready again, unflagged.
    pub fn take_back(&mut self, queue: QueueId, ranges: &Ranges, effects: &mut Vec<Effect>) {
        let (is_dispatching, now_ms) = (self.is_dispatching, self.now_ms);
        let Some(found) = self.queue_mut(queue) else { return };
        let Some(level) = found.level_mut(queue.priority()) else { return };
        let back = level.reader.gathered.take_unmarked(ranges);
        level.reading().give_back(&back, false);
        if is_dispatching {
            found.trim();
            found.serve(now_ms, effects);
        }
        self.look_after(queue);
    }

    /// Throws away what is ready; what is out stays out. The count, or None without the queue. Nothing of a stream. What
    /// a purge before it has withheld is gone for good.
    pub fn purge(&mut self, queue: QueueId) -> Option<u64> {
        let found = self.queue_mut(queue)?;
        if found.settings.is_stream() {
            return Some(0);
        }
        found.forget_withheld();
        let mut count = 0;
        for level in found.levels_mut() {
            let all = level.reading().take_all_ready();
            if !all.is_empty() {
                level.reader.gathered.of(Outcome::Purged).insert_all(&all);
            }
            count += all.len();
        }
        self.look_after(queue);
        Some(count)
    }

    /// Which of messages with bodies of so many bytes a queue at its limit refuses, by their place. For
    /// the others room is kept until they come.
    pub fn admit(&mut self, queue: QueueId, sizes: &[u32]) -> Vec<u32> {
        let now_ms = self.now_ms;
        self.queue_mut(queue).map(|queue| queue.admit(sizes, now_ms)).unwrap_or_default()
    }

    /// Lets so many messages come in by the queue's rate. `Err`: not before this time, ms since 1970. A queue without such
    /// a rate, and one that is not there, let all come.
    pub fn let_in(&mut self, queue: QueueId, count: usize) -> Result<(), u64> {
        let now_ms = self.now_ms;
        let pace = self.queue_mut(queue).and_then(|queue| queue.pace.as_mut());
        pace.map_or(Ok(()), |pace| pace.let_in(count as u64, now_ms))
    }

    /// Lends tokens of a queue with several partitions to one of these. None: it has none to lend, or this replica does not
    /// serve it.
    pub fn lend(&mut self, queue: QueueId, ask: &Ask) -> Option<Loan> {
        let now_ms = self.now_ms;
        self.queue_mut(queue)?.pace.as_mut()?.lend(ask, now_ms)
    }

    /// The answer to a question of `Effect::Borrow`.
    pub fn lent(&mut self, queue: QueueId, number: u64, loan: Loan, effects: &mut Vec<Effect>) {
        let now_ms = self.now_ms;
        let Some(found) = self.queue_mut(queue) else { return };
        let Some(budget) = found.pace.as_mut().and_then(|pace| pace.out.as_mut()) else { return };
        budget.lent(number, loan, now_ms);
        found.serve(now_ms, effects);
        self.look_after(queue);
    }

    /// Whether who fetches from this queue is to ask again when it was lent tokens.
    pub fn is_borrowing(&self, queue: QueueId) -> bool {
        let pace = self.queue(queue).and_then(|queue| queue.pace.as_ref());
        pace.is_some_and(|pace| pace.out.as_ref().is_some_and(Budget::is_asking))
    }

    /// Asks whether a queue may be deleted, and if so lets nobody attach any more. The ready count.
    pub fn close_queue(
        &mut self,
        queue: QueueId,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<u64, CloseError> {
        let queue = self.queue_mut(queue).filter(|queue| !queue.is_gone);
        let queue = queue.ok_or(CloseError::NoQueue)?;
        let ready = queue.ready_len();
        // RabbitMQ names this one if both are in the way.
        if if_empty && ready > 0 {
            return Err(CloseError::NotEmpty);
        }
        if if_unused && queue.consumers.attached() > 0 {
            return Err(CloseError::InUse);
        }
        queue.is_closing = true;
        Ok(ready)
    }

    /// The deletion was refused after all.
    pub fn reopen_queue(&mut self, queue: QueueId) {
        if let Some(found) = self.queue_mut(queue) {
            found.is_closing = false;
        }
        self.look_after(queue);
    }

    fn forget_if_idle(&mut self, id: QueueId, consumer: ConsumerId) {
        let Some(queue) = self.queue_mut(id) else { return };
        if queue.consumers.forget_if_idle(consumer)
            && !queue.consumers.has_session(consumer.session)
        {
            self.sessions.remove(&(consumer.session, id.base()));
        }
    }
}
