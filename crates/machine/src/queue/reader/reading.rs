//! What of a level is ready, on the leader: given out, given back, expired, handed to the dead-letter worker.

use std::ops::Range;

use super::gathered::Gathered;
use super::ready::Ready;
use crate::command::Outcome;
use crate::limits::TIMED_RUNS_MAX;
use crate::queue::Effect;
use crate::queue::level::Level;
use crate::ranges::Ranges;

/// Messages that are given out together.
pub(crate) struct Popped {
    pub(crate) range: Range<u64>,
    pub(crate) was_returned: bool,
    /// How often each came back.
    pub(crate) returns: u32,
}

impl Level {
    /// Everything live waits, and may have been seen, but for what is dead or not due.
    pub(crate) fn lead(&mut self, now_ms: u64) {
        self.follow();
        self.ready = Ready::lead(&self.live, self.delivered.flagged_below(self.next_seq));
        let Some(attributes) = &mut self.attributes else { return };
        attributes.leaving.lead();
        if let Some(dead) = attributes.leaving.union() {
            self.ready.remove(&dead);
        }
        let waiting = attributes.delayed.lead(now_ms);
        if cfg!(not(bug_delay_forgotten)) {
            self.ready.remove_from_waiting(&waiting);
        }
        attributes.ready_bytes = attributes.bytes_of(self.ready.waiting());
    }

    pub(crate) fn follow(&mut self) {
        self.ready = Ready::default();
        self.delivered.lead();
        self.gathered = Gathered::default();
        if let Some(attributes) = &mut self.attributes {
            attributes.leaving.follow();
            attributes.delayed.follow();
            attributes.ready_bytes = 0;
        }
    }

    /// The longest run at the front, at most `max` messages, that is alike for a consumer.
    #[inline]
    pub(crate) fn pop(&mut self, max: u64) -> Option<Popped> {
        let Some(attributes) = &mut self.attributes else {
            let (range, was_returned) = self.ready.pop(max)?;
            return Some(Popped { range, was_returned, returns: 0 });
        };
        let front = self.ready.waiting().first_range()?;
        let front = front.start..front.end.min(front.start.saturating_add(max));
        let (end, returns) = attributes.returns.uniform(&front);
        let (range, was_returned) = self.ready.pop(end - front.start)?;
        attributes.ready_bytes =
            attributes.ready_bytes.saturating_sub(attributes.sizes.sum(range.clone()));
        let returns = returns.map_or(0, |count| u32::try_from(count).unwrap_or(u32::MAX));
        Some(Popped { range, was_returned, returns })
    }

    /// The same of what may go to a client: the log has heard that it does, or is to hear it first.
    #[inline]
    fn pop_allowed(&mut self, max: u64) -> Option<Popped> {
        if !self.delivered.is_tracked() {
            return self.pop(max);
        }
        let front = self.ready.waiting().first_range()?;
        let run = front.start..front.end.min(front.start.saturating_add(max));
        let run = self.delivered.allow(run)?;
        self.pop(run.end - run.start)
    }

    /// The same of what did not expire before `before_ms`; what did and is in front of it goes.
    #[inline]
    pub(crate) fn pop_fresh(&mut self, max: u64, before_ms: u64) -> Option<Popped> {
        if self.attributes.as_ref().is_none_or(|attributes| attributes.expiry.is_empty()) {
            return self.pop_allowed(max);
        }
        self.expire(before_ms);
        let front = self.ready.waiting().first_range()?;
        let front = front.start..front.end.min(front.start.saturating_add(max));
        let expiry = &self.attributes.as_ref()?.expiry;
        let has_expired = |time_ms: Option<u64>| time_ms.is_some_and(|ms| ms < before_ms);
        let expired = expiry.parts(front.clone()).find(|(_, time_ms)| has_expired(*time_ms));
        let end = expired.map_or(front.end, |(part, _)| part.start);
        // Only after more expired at once than one step looks at.
        if end == front.start { None } else { self.pop_allowed(end - front.start) }
    }

    /// Whether its first message may not go to a client before the log has heard of it.
    pub(crate) fn is_held_up(&self) -> bool {
        self.delivered.is_held_up() && !self.ready.is_empty()
    }

    /// Back to their places, unless the log has settled them meanwhile.
    pub(crate) fn give_back(&mut self, ranges: &Ranges, was_seen: bool) {
        if ranges.is_empty() {
            return;
        }
        let mut back = ranges.intersect(&self.live);
        if let Some(attributes) = &mut self.attributes {
            attributes.leaving.exclude(&mut back);
            attributes.ready_bytes =
                attributes.ready_bytes.saturating_add(attributes.bytes_of(&back));
        }
        self.ready.give_back(&back, was_seen);
    }

    /// Moves what waits of a range to somebody who holds it. What is not due here yet was due where it was
    /// given out: the time of the leader before ran a little ahead of what it had told.
    pub(crate) fn take_ready(&mut self, range: Range<u64>, into: &mut Ranges) {
        let Some(attributes) = &mut self.attributes else { return self.ready.take(range, into) };
        let early = attributes.delayed.take_early(range.clone());
        let early = early.intersect(&self.live);
        into.insert_all(&early);
        let mut taken = Ranges::new();
        self.ready.take(range, &mut taken);
        attributes.ready_bytes = attributes.ready_bytes.saturating_sub(attributes.bytes_of(&taken));
        into.insert_all(&taken);
    }

    /// They do not wait any more, wherever they are.
    pub(crate) fn drop_ready(&mut self, ranges: &Ranges) {
        if let Some(attributes) = &mut self.attributes
            && !attributes.sizes.is_empty()
        {
            let bytes = attributes.bytes_of(&self.ready.waiting().intersect(ranges));
            attributes.ready_bytes = attributes.ready_bytes.saturating_sub(bytes);
        }
        self.ready.remove(ranges);
    }

    pub(crate) fn take_all_ready(&mut self) -> Ranges {
        if let Some(attributes) = &mut self.attributes {
            attributes.ready_bytes = 0;
        }
        self.ready.take_all()
    }

    pub(crate) fn ready_bytes(&self) -> u64 {
        self.attributes.as_ref().map_or(0, |attributes| attributes.ready_bytes)
    }

    /// Throws away from the front for a reason that the log will hear.
    pub(crate) fn drop_front(&mut self, max: u64, reason: Outcome) -> u64 {
        let Some(Popped { range, .. }) = self.pop(max) else { return 0 };
        let count = range.end - range.start;
        self.ready.forget_range(range.clone());
        self.gathered.insert(reason, range);
        count
    }

    /// Throws away from the front what expired before `before_ms`: messages expire where they would be
    /// given out next, as in RabbitMQ. So many runs at a time.
    pub(crate) fn expire(&mut self, before_ms: u64) {
        for _ in 0..TIMED_RUNS_MAX {
            let Some(attributes) = self.attributes.as_ref().filter(|it| !it.expiry.is_empty())
            else {
                return;
            };
            let Some(front) = self.ready.waiting().first_range() else { return };
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
        let attributes = self.attributes.as_mut()?;
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

    /// When something falls due next.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let attributes = self.attributes.as_ref()?;
        let expires_ms = (!attributes.expiry.is_empty())
            .then(|| self.ready.waiting().first_range())
            .flatten()
            .and_then(|front| attributes.expiry.uniform(&front).1);
        [expires_ms, attributes.delayed.next_due()].into_iter().flatten().min()
    }

    /// Gives the dead-letter worker what it may have.
    pub(crate) fn hand_out(&mut self, effects: &mut Vec<Effect>) {
        let Some(attributes) = &mut self.attributes else { return };
        while let Some((reason, first_seq, count)) = attributes.leaving.next() {
            effects.push(Effect::Leave { queue: self.id, first_seq, count, reason });
        }
    }
}
