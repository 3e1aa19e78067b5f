//! What of a store is ready for a reader, on the leader: given out, given back, expired, handed to the
//! dead-letter worker.

use std::ops::Range;

use super::gathered::Gathered;
use super::ready::Ready;
use super::{Reader, Reading};
use crate::command::Outcome;
use crate::limits::TIMED_RUNS_MAX;
use crate::queue::Effect;
use crate::queue::end::End;
use crate::queue::seqs::Seqs;
use crate::ranges::Ranges;
use crate::scheduler::budget::Budget;
use crate::scheduler::times::Times;

/// Messages that are given out together.
pub(crate) struct Popped {
    pub(crate) range: Range<u64>,
    pub(crate) was_returned: bool,
    /// How often each came back.
    pub(crate) returns: u32,
}

impl Reading<'_> {
    /// Everything open waits, and may have been seen, but for what is dead or not due.
    pub(crate) fn lead(&mut self, now_ms: u64) {
        self.reader.follow();
        self.reader.ready =
            Ready::lead(&self.reader.open, self.reader.delivered.flagged_below(self.end.0));
        let Some(attributes) = &mut self.reader.attributes else { return };
        attributes.leaving.lead();
        if let Some(dead) = attributes.leaving.union() {
            self.reader.ready.remove(&dead, self.end);
        }
        attributes.withheld.lead();
        self.reader.ready.remove_from_waiting(attributes.withheld.all(), self.end);
        let waiting = attributes.delayed.lead(now_ms);
        if let Some(sieve) = &mut self.reader.sieve {
            // Others of their keys wait for those that came back.
            let returned = waiting.ranges().flat_map(|range| attributes.returns.parts(range));
            let returned = returned.filter(|(_, returns)| returns.is_some());
            sieve.hold(&returned.map(|(part, _)| part).collect());
        }
        if !planted::is("delay_forgotten") {
            self.reader.ready.remove_from_waiting(&waiting, self.end);
        }
        attributes.ready_bytes = attributes.bytes_of(self.reader.ready.waiting(self.end));
    }

    /// The longest run at the front, at most `max` messages, that is alike for a consumer.
    #[inline]
    pub(crate) fn pop(&mut self, max: u64) -> Option<Popped> {
        let front = self.reader.ready.front(max, self.end)?;
        Some(self.pop_run(front))
    }

    /// The same of a run that waits.
    #[inline]
    pub(crate) fn pop_run(&mut self, run: Range<u64>) -> Popped {
        let Some(attributes) = &mut self.reader.attributes else {
            let (range, was_returned) = self.reader.ready.pop(run, self.end);
            return Popped { range, was_returned, returns: 0 };
        };
        let (end, returns) = attributes.returns.uniform(&run);
        let (range, was_returned) = self.reader.ready.pop(run.start..end, self.end);
        attributes.ready_bytes =
            attributes.ready_bytes.saturating_sub(attributes.sizes.sum(range.clone()));
        let returns = returns.map_or(0, |count| u32::try_from(count).unwrap_or(u32::MAX));
        Popped { range, was_returned, returns }
    }

    /// What may go to a client: where messages wait for the mark, no more than the log has heard of.
    #[inline]
    fn pop_allowed(&mut self, max: u64) -> Option<Popped> {
        let front = self.reader.ready.front(max, self.end)?;
        let run = self.allowed(front)?;
        Some(self.pop_run(run))
    }

    /// The same of what did not expire before `before_ms`; what did and is in front of it goes.
    #[inline]
    pub(crate) fn pop_fresh(&mut self, max: u64, before_ms: u64) -> Option<Popped> {
        if self.reader.attributes.as_ref().is_none_or(|attributes| attributes.expiry.is_empty()) {
            return self.pop_allowed(max);
        }
        self.expire(before_ms);
        let front = self.reader.ready.front(max, self.end)?;
        let expiry = &self.reader.attributes.as_ref()?.expiry;
        let has_expired = |time_ms: Option<u64>| time_ms.is_some_and(|ms| ms < before_ms);
        let expired = expiry.parts(front.clone()).find(|(_, time_ms)| has_expired(*time_ms));
        let end = expired.map_or(front.end, |(part, _)| part.start);
        // Only after more expired at once than one step looks at.
        if end == front.start { None } else { self.pop_allowed(end - front.start) }
    }

    /// How many of the first messages a budget lets go.
    pub(crate) fn affordable(&self, budget: &Budget) -> u64 {
        let front = self.reader.ready.front(budget.messages(), self.end);
        front.map_or(0, |front| self.affordable_of(front, budget))
    }

    /// The same of a run that waits.
    pub(crate) fn affordable_of(&self, run: Range<u64>, budget: &Budget) -> u64 {
        let messages = budget.messages();
        let sizes = self.reader.attributes.as_ref().map(|attributes| &attributes.sizes);
        let (Some(sizes), true) = (sizes, budget.counts_bytes()) else { return messages };
        let parts = sizes.parts(run.start..run.end.min(run.start.saturating_add(messages)));
        budget.of(parts.map(|(part, size)| (part.end - part.start, size.unwrap_or(0))))
    }

    /// Bytes of the body of the first message, where those are known.
    pub(crate) fn first_bytes(&self) -> u64 {
        let front = self.reader.ready.front(1, self.end);
        front.map_or(0, |front| self.bytes_of(&front))
    }

    /// Of a queue with order by key: the next messages that may go out, as far as they lie together. What has
    /// expired goes as its turn comes.
    pub(crate) fn next_turn(&mut self, times: Times) -> Option<Range<u64>> {
        loop {
            let waiting = self.reader.ready.waiting(self.end);
            let turns = self.reader.sieve.as_mut()?.turns_mut()?;
            let run = turns.next(waiting, times.now_ms)?;
            let fresh = self.fresh_of(run.clone(), times.before_ms);
            if fresh.start == run.start {
                return self.allowed(fresh);
            }
            let Popped { range, .. } = self.pop_run(run.start..fresh.start);
            self.reader.settle_given(range, Outcome::Expired);
        }
    }

    /// What of a run has not expired before `before_ms`: the first such part of it.
    fn fresh_of(&self, run: Range<u64>, before_ms: u64) -> Range<u64> {
        let expiry = self.reader.attributes.as_ref().map(|it| &it.expiry);
        let Some(expiry) = expiry.filter(|expiry| !expiry.is_empty()) else { return run };
        let mut fresh = run.end..run.end;
        for (part, time_ms) in expiry.parts(run) {
            if time_ms.is_none_or(|time_ms| time_ms >= before_ms) {
                fresh = part.start.min(fresh.start)..part.end;
            } else if fresh.start < part.start {
                break;
            }
        }
        fresh
    }

    /// What of a run that waits may go to a client now.
    #[inline]
    fn allowed(&mut self, run: Range<u64>) -> Option<Range<u64>> {
        let delivered = &mut self.reader.delivered;
        let is_free = delivered.holds_deliveries() || !delivered.is_tracked();
        if is_free { Some(run) } else { delivered.allow(run) }
    }

    /// Gives out at most `max` of a run whose turn it is.
    pub(crate) fn pop_turn(&mut self, run: Range<u64>, max: u64) -> Popped {
        let run = run.start..run.end.min(run.start.saturating_add(max));
        let popped = self.pop_run(run);
        if let Some(turns) = self.reader.sieve.as_mut().and_then(|sieve| sieve.turns_mut()) {
            turns.go(popped.range.clone());
        }
        popped
    }

    /// Whether one message of each key is out at a time.
    #[inline]
    pub(crate) fn has_turns(&self) -> bool {
        self.reader.sieve.as_ref().is_some_and(|sieve| sieve.turns().is_some())
    }

    /// Up to where messages may go out, where a filter is asked of each.
    #[inline]
    pub(crate) fn sifted_to(&self) -> Option<u64> {
        self.reader.sieve.as_ref().map(|sieve| sieve.to())
    }

    /// A budget pays for messages that go to a client.
    pub(crate) fn charge(&self, budget: &mut Budget, range: &Range<u64>) {
        budget.charge(range.end - range.start, self.bytes_of(range));
    }

    pub(crate) fn bytes_of(&self, range: &Range<u64>) -> u64 {
        let attributes = self.reader.attributes.as_ref();
        attributes.map_or(0, |attributes| attributes.sizes.sum(range.clone()))
    }

    /// What is not settled.
    #[inline]
    pub(super) fn open(&self) -> Seqs<'_> {
        self.reader.open.at(self.end)
    }

    /// What waits for a consumer.
    #[inline]
    pub(crate) fn waiting(&self) -> Seqs<'_> {
        self.reader.ready.waiting(self.end)
    }

    /// Whether its first message may not go to a client before the log has heard of it.
    pub(crate) fn is_held_up(&self) -> bool {
        self.reader.delivered.is_held_up() && !self.waiting().is_empty()
    }

    /// Back to their places, unless the log has settled them meanwhile.
    pub(crate) fn give_back(&mut self, ranges: &Ranges, was_seen: bool) {
        if ranges.is_empty() {
            return;
        }
        let mut back = self.open().intersect(ranges);
        if let Some(attributes) = &mut self.reader.attributes {
            attributes.leaving.exclude(&mut back);
            attributes.withheld.exclude(&mut back);
            attributes.ready_bytes =
                attributes.ready_bytes.saturating_add(attributes.bytes_of((&back).into()));
        }
        self.reader.ready.give_back(&back, was_seen);
        if let Some(sieve) = &mut self.reader.sieve {
            sieve.come_back(&back);
        }
    }

    /// Moves what waits of a range to somebody who holds it. What is not due here yet was due where it was
    /// given out: the time of the leader before ran a little ahead of what it had told.
    pub(crate) fn take_ready(&mut self, range: Range<u64>, into: &mut Ranges) {
        let Some(attributes) = &mut self.reader.attributes else {
            return self.reader.ready.take(range, self.end, into);
        };
        let early = attributes.delayed.take_early(range.clone());
        let early = self.reader.open.at(self.end).intersect(&early);
        into.insert_all(&early);
        self.take_waiting(range, into);
    }

    /// The same of what waits alone.
    pub(crate) fn take_waiting(&mut self, range: Range<u64>, into: &mut Ranges) {
        let mut taken = Ranges::new();
        self.reader.ready.take(range, self.end, &mut taken);
        if let Some(attributes) = &mut self.reader.attributes {
            attributes.ready_bytes =
                attributes.ready_bytes.saturating_sub(attributes.bytes_of((&taken).into()));
        }
        into.insert_all(&taken);
    }

    /// They do not wait any more, wherever they are.
    pub(crate) fn drop_ready(&mut self, ranges: &Ranges) {
        if let Some(attributes) = &mut self.reader.attributes
            && !attributes.sizes.is_empty()
        {
            let bytes = attributes
                .bytes_of((&self.reader.ready.waiting(self.end).intersect(ranges)).into());
            attributes.ready_bytes = attributes.ready_bytes.saturating_sub(bytes);
        }
        self.reader.ready.remove(ranges, self.end);
    }

    pub(crate) fn take_all_ready(&mut self) -> Ranges {
        if let Some(attributes) = &mut self.reader.attributes {
            attributes.ready_bytes = 0;
        }
        self.reader.ready.take_all(self.end)
    }

    /// Throws away from the front for a reason that the log will hear.
    pub(crate) fn drop_front(&mut self, max: u64, reason: Outcome) -> u64 {
        let Some(Popped { range, .. }) = self.pop(max) else { return 0 };
        let count = range.end - range.start;
        self.reader.settle_given(range, reason);
        count
    }

    /// Throws away from the front what expired before `before_ms`: messages expire where they would be
    /// given out next, as in RabbitMQ. So many runs at a time.
    pub(crate) fn expire(&mut self, before_ms: u64) {
        for _ in 0..TIMED_RUNS_MAX {
            let Some(attributes) =
                self.reader.attributes.as_ref().filter(|it| !it.expiry.is_empty())
            else {
                return;
            };
            let Some(front) = self.waiting().first_range() else { return };
            let (end, expires_ms) = attributes.expiry.uniform(&front);
            if expires_ms.is_none_or(|expires_ms| expires_ms >= before_ms) {
                return;
            }
            let mut left = end - front.start;
            while left > 0 {
                match self.drop_front(left, Outcome::Expired) {
                    0 => return,
                    dropped => left -= dropped,
                }
            }
        }
    }

    /// Makes ready what is due, so many messages at a time, and says when the first fell due.
    pub(crate) fn release_due(&mut self, now_ms: u64) -> Option<u64> {
        let attributes = self.reader.attributes.as_mut()?;
        let first_ms = attributes.delayed.next_due().filter(|due_ms| *due_ms <= now_ms)?;
        let due = attributes.delayed.take_due(now_ms, TIMED_RUNS_MAX);
        let (mut seen, mut fresh) = (Ranges::new(), Ranges::new());
        for range in due.ranges() {
            for (part, returns) in attributes.returns.parts(range) {
                if returns.is_some() {
                    seen.insert(part)
                } else {
                    fresh.insert(part)
                };
            }
        }
        self.give_back(&seen, true);
        self.give_back(&fresh, false);
        Some(first_ms)
    }
}

/// What is the same wherever the store ends.
impl Reader {
    /// Settles what was given out just now: the log will hear it.
    #[inline]
    pub(crate) fn settle_given(&mut self, range: Range<u64>, outcome: Outcome) {
        self.ready.forget_range(range.clone());
        if let Some(sieve) = &mut self.sieve {
            sieve.settled(range.clone());
        }
        self.gathered.insert(outcome, range);
    }

    /// What goes to a consumer, which is settled by that if it is `no_ack`. True: the delivery waits for its
    /// mark. Until then the log must not hear that it was handled.
    #[inline]
    pub(crate) fn give(&mut self, range: &Range<u64>, no_ack: bool) -> bool {
        let waits = self.delivered.give(range);
        if no_ack && waits {
            // It may come back, flagged as it was.
            self.gathered.unmarked.insert(range.clone());
        } else if no_ack {
            self.settle_given(range.clone(), Outcome::Done);
        }
        waits
    }

    /// A mark from the log.
    pub(crate) fn mark_delivered(&mut self, to: u64) {
        self.delivered.advance(to);
        let marked = self.gathered.settle_marked(self.delivered.marked_to());
        self.ready.forget(&marked);
        self.free_keys(&marked);
    }

    /// Settles what somebody held: the log will hear it.
    pub(crate) fn settle_held(&mut self, ranges: &Ranges, outcome: Outcome) {
        self.ready.forget(ranges);
        self.free_keys(ranges);
        self.gathered.of(outcome).insert_all(ranges);
    }

    /// Whether it has something for the log.
    pub(crate) fn has_wanted(&self) -> bool {
        !self.gathered.is_empty() || self.delivered.has_wanted()
    }

    pub(crate) fn follow(&mut self) {
        self.ready = Ready::default();
        self.delivered.lead();
        self.gathered = Gathered::default();
        if let Some(sieve) = &mut self.sieve {
            sieve.begin_again();
        }
        if let Some(attributes) = &mut self.attributes {
            attributes.leaving.follow();
            attributes.withheld.follow();
            attributes.delayed.follow();
            attributes.ready_bytes = 0;
        }
    }

    pub(crate) fn ready_bytes(&self) -> u64 {
        self.attributes.as_ref().map_or(0, |attributes| attributes.ready_bytes)
    }

    /// Gives the dead-letter worker what it may have.
    pub(crate) fn hand_out(&mut self, effects: &mut Vec<Effect>) {
        let Some(attributes) = &mut self.attributes else { return };
        while let Some((reason, first_seq, count)) = attributes.leaving.next() {
            effects.push(Effect::Leave { queue: self.id, first_seq, count, reason });
        }
    }

    /// When something falls due next.
    pub(crate) fn next_due(&self, end: End) -> Option<u64> {
        let attributes = self.attributes.as_ref()?;
        let expires_ms = (!attributes.expiry.is_empty())
            .then(|| self.ready.waiting(end).first_range())
            .flatten()
            .and_then(|front| attributes.expiry.uniform(&front).1);
        let withheld_ms = attributes.withheld.next_due();
        [expires_ms, attributes.delayed.next_due(), withheld_ms].into_iter().flatten().min()
    }
}
