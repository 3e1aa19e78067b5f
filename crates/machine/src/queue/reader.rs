//! Who reads a store: what of it is not settled yet, and how it was settled. A plain queue has one reader.
//!
//! The first half is replicated: entries settle messages, bring them back or let them die. The other half
//! is the leader's (`reading`): what of the open messages is ready, and what was settled and is on its way
//! into the log. Who holds which message, the queue's consumers know.
//!
//! A reader does not know what comes into its store: it is told where the store ends when it acts.

mod attributes;
mod delayed;
pub(crate) mod delivered;
mod gathered;
mod leaving;
mod moved;
mod reading;
mod ready;
mod values;
mod withheld;

use std::ops::Range;

pub(crate) use attributes::MessageAttributes;
pub(crate) use reading::Popped;
pub(crate) use withheld::WithheldMessages;

use super::Effect;
use super::context::Context;
use super::end::End;
use super::open::OpenEnded;
use super::reconcile::Books;
use super::sieve::Sieve;
use crate::command::{Attributes, Outcome};
use crate::ids::QueueId;
use crate::ranges::Ranges;
use crate::settings::{Features, Retry};
use delivered::Delivered;
use gathered::Gathered;
use ready::Ready;

/// What a reader knows of its store.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    pub(crate) id: QueueId,
    // Replicated.
    /// Messages that are not settled.
    pub(crate) open: OpenEnded,
    pub(crate) books: Books,
    /// What some messages have beyond their place; None while no message had anything.
    pub(crate) attributes: Option<Box<MessageAttributes>>,
    /// Which messages may have been with clients: in part leader-local.
    pub(crate) delivered: Delivered,
    // Leader-local.
    pub(crate) ready: Ready,
    pub(crate) gathered: Gathered,
    /// What is asked of messages before they go out. None: nothing is.
    pub(crate) sieve: Option<Box<Sieve>>,
}

/// A reader at its store, for as long as it acts.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    pub(crate) reader: &'a mut Reader,
    pub(crate) end: End,
}

impl Reader {
    pub(crate) fn new(id: QueueId) -> Self {
        Self {
            id,
            open: OpenEnded::all(),
            books: Books::default(),
            attributes: None,
            delivered: Delivered::default(),
            ready: Ready::default(),
            gathered: Gathered::default(),
            sieve: None,
        }
    }

    /// Messages are settled for good: others of their keys need not wait for them.
    #[inline]
    pub(super) fn free_keys(&mut self, settled: &Ranges) {
        if let Some(sieve) = &mut self.sieve {
            settled.ranges().for_each(|range| sieve.settled(range));
        }
    }

    pub(super) fn attributes_mut(&mut self) -> &mut MessageAttributes {
        self.attributes.get_or_insert_default()
    }

    /// Notes what a message that is coming has beyond its place.
    pub(super) fn note(
        &mut self,
        seq: u64,
        attributes: &Attributes,
        body_bytes: usize,
        cx: Context<'_>,
    ) {
        let Attributes { ttl_ms, delay_ms, key } = *attributes;
        let ready_ms = cx.time_ms.saturating_add(delay_ms.unwrap_or(0));
        let queue_ttl = cx.features.and_then(|features| features.message_ttl_ms);
        let ttl = [ttl_ms, queue_ttl].into_iter().flatten().min();
        let counts_bytes = cx.features.is_some_and(Features::counts_bytes);
        let is_delayed = delay_ms.is_some_and(|delay| delay > 0);
        if ttl.is_none() && !is_delayed && !counts_bytes {
            return;
        }
        let noted = self.attributes.get_or_insert_default();
        if let Some(ttl) = ttl {
            if !self.delivered.holds_deliveries() {
                // It may not have the time to wait until a mark is logged.
                self.delivered.advance(seq + 1);
            }
            noted.expiry.set(seq..seq + 1, ready_ms.saturating_add(ttl));
        }
        if is_delayed {
            noted.delayed.insert(seq, ready_ms, key, cx.is_leading);
            noted.has_delayed_in_run = true;
        }
        if counts_bytes {
            noted.sizes.set(seq..seq + 1, body_bytes as u64);
        }
    }
}

/// What entries do.
impl Reading<'_> {
    /// A run came into the store: what some of its messages have is seen to. That they are there needs no
    /// telling.
    pub(super) fn take_in(&mut self, range: Range<u64>, is_leading: bool) {
        let Some(attributes) = self.reader.attributes.as_mut().filter(|_| is_leading) else {
            return;
        };
        let (ready, end) = (&mut self.reader.ready, self.end);
        if std::mem::take(&mut attributes.has_delayed_in_run) {
            ready.remove_from_waiting(&attributes.delayed.within(range.clone()), end);
        }
        if !attributes.sizes.is_empty() {
            let added = ready.waiting(end).within(range);
            let added = attributes.bytes_of((&added).into());
            attributes.ready_bytes = attributes.ready_bytes.saturating_add(added);
        }
    }

    /// What of `ranges` is open and not dead.
    fn alive_of(&self, ranges: &Ranges) -> Ranges {
        let mut alive = self.open().intersect(ranges);
        if let Some(attributes) = &self.reader.attributes {
            attributes.leaving.exclude(&mut alive);
        }
        alive
    }

    /// Takes out what of `ranges` is open.
    fn take_open(&mut self, ranges: &Ranges) -> Ranges {
        let mut taken = Ranges::new();
        for range in ranges.ranges() {
            self.reader.open.take(range, self.end, &mut taken);
        }
        taken
    }

    /// A settle from the log. What is not open was settled before and is not counted again.
    pub(crate) fn settle(
        &mut self,
        outcome: Outcome,
        ranges: &Ranges,
        cx: Context<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let keeps_dead = cx.features.is_some_and(|features| features.dead_letters);
        if outcome == Outcome::Exhausted || (outcome.is_dead() && keeps_dead) {
            return self.begin_to_leave(outcome, ranges, cx.is_leading);
        }
        let has_dead = self.reader.attributes.as_ref().is_some_and(|it| !it.leaving.is_empty());
        let gone = if outcome == Outcome::DeadLettered {
            let Some(attributes) = &mut self.reader.attributes else { return };
            attributes.leaving.take(ranges)
        } else if has_dead {
            self.alive_of(ranges)
        } else {
            self.take_open(ranges)
        };
        if gone.is_empty() {
            return;
        }
        self.reader.open.remove_all(&gone, self.end);
        let has_filter = cx.features.is_some_and(|features| features.filter.is_some());
        let books = &mut self.reader.books;
        match outcome {
            Outcome::Done => books.settled += gone.len(),
            Outcome::Purged => books.purged += gone.len(),
            Outcome::PassedOver if has_filter => books.moves.unwanted += gone.len(),
            Outcome::DeadLettered => books.dead_lettered += gone.len(),
            Outcome::Rejected
            | Outcome::Requeue
            | Outcome::Undelivered
            | Outcome::Expired
            | Outcome::Overflowed
            | Outcome::Exhausted
            | Outcome::Returned
            | Outcome::PassedOver => books.dropped += gone.len(),
        }
        self.gone(gone, effects);
    }

    /// Messages that are not open any more.
    fn gone(&mut self, gone: Ranges, effects: &mut Vec<Effect>) {
        let end = self.end.0;
        assert!(gone.last().is_none_or(|last| last < end), "what is settled has come");
        let open = self.reader.books.open(self.end);
        assert_eq!(open, Some(self.open().len()), "the books of a queue are wrong");
        self.drop_ready(&gone);
        self.reader.free_keys(&gone);
        if let Some(attributes) = &mut self.reader.attributes {
            attributes.forget(&gone);
        }
        effects.push(Effect::Settled { queue: self.reader.id, ranges: gone });
    }

    /// Drops open messages for good.
    fn discard(&mut self, gone: Ranges, effects: &mut Vec<Effect>) {
        if gone.is_empty() {
            return;
        }
        self.reader.open.remove_all(&gone, self.end);
        self.reader.books.dropped += gone.len();
        self.gone(gone, effects);
    }

    /// Its queue was deleted: everything goes but what is dead.
    pub(crate) fn retain_dead_only(&mut self, effects: &mut Vec<Effect>) {
        let reader = &mut *self.reader;
        let stored = std::mem::take(reader.gathered.of(Outcome::DeadLettered));
        reader.gathered = Gathered::default();
        *reader.gathered.of(Outcome::DeadLettered) = stored;
        let mut gone = self.open().to_ranges();
        if let Some(attributes) = &self.reader.attributes {
            attributes.leaving.exclude(&mut gone);
        }
        self.discard(gone, effects);
    }

    /// Consumers see these no more; the dead-letter worker does.
    fn begin_to_leave(&mut self, reason: Outcome, ranges: &Ranges, is_leading: bool) {
        let dead = self.alive_of(ranges);
        if dead.is_empty() {
            return;
        }
        self.drop_ready(&dead);
        self.reader.free_keys(&dead);
        let attributes = self.reader.attributes_mut();
        attributes.withheld.forget(&dead);
        attributes.delayed.forget_all(&dead);
        attributes.leaving.insert(reason, &dead, is_leading);
    }

    /// Messages that came back, in a queue that counts that: ready again, later, or for the last time.
    /// `taken` are those that somebody has or settled again, though they came back once.
    pub(crate) fn come_back(
        &mut self,
        outcome: Outcome,
        ranges: &Ranges,
        taken: &Ranges,
        cx: Context<'_>,
    ) {
        let mut found = self.alive_of(ranges);
        if let Some(attributes) = &self.reader.attributes {
            attributes.withheld.exclude(&mut found);
        }
        let Some(features) = cx.features.filter(|features| features.counts_returns) else {
            // It was given back when it was said, unless returns were counted then.
            return self.give_back_once(found, taken, cx.is_leading);
        };
        let attributes = self.reader.attributes_mut();
        let retry = retry_after(outcome, features);
        let (mut exhausted, mut ready, mut later) = (Ranges::new(), Ranges::new(), Vec::new());
        for range in found.ranges() {
            let parts: Vec<_> = attributes.returns.parts(range).collect();
            for (part, before) in parts {
                let count = before.unwrap_or(0) + 1;
                if features.delivery_limit.is_some_and(|limit| count > u64::from(limit)) {
                    exhausted.insert(part);
                    continue;
                }
                attributes.returns.set(part.clone(), count);
                match retry {
                    Some(retry) => {
                        let wait = count.saturating_mul(retry.min_ms).min(retry.max_ms);
                        later.push((part, cx.time_ms.saturating_add(wait)));
                    }
                    None => {
                        ready.insert(part);
                    }
                }
            }
        }
        for (part, due_ms) in later {
            for seq in part.clone() {
                let waits_here = cx.is_leading && !taken.contains(seq);
                self.reader.attributes_mut().delayed.insert(seq, due_ms, None, waits_here);
            }
            self.drop_ready(&Ranges::from(part));
        }
        self.give_back_once(ready, taken, cx.is_leading);
        self.begin_to_leave(Outcome::Exhausted, &exhausted, cx.is_leading);
    }

    /// Makes messages ready that came back, but for those that are ready, are not due, or were `taken`.
    fn give_back_once(&mut self, mut back: Ranges, taken: &Ranges, is_leading: bool) {
        if !is_leading || back.is_empty() {
            return;
        }
        back.remove_all(taken);
        back.remove_all(&self.waiting().intersect(&back));
        if let Some(attributes) = &self.reader.attributes {
            back.remove_all(&attributes.delayed.not_due());
        }
        self.give_back(&back, true);
    }

    /// Delayed messages with a key that are not due are dropped.
    pub(crate) fn cancel(&mut self, key: u128, time_ms: u64, effects: &mut Vec<Effect>) {
        let Some(attributes) = &self.reader.attributes else { return };
        let gone = self.alive_of(&attributes.delayed.with_key(key, time_ms));
        self.discard(gone, effects);
    }
}

/// How long messages wait that came back like this, if they do.
fn retry_after(outcome: Outcome, features: &Features) -> Option<Retry> {
    features.retry.filter(|retry| match outcome {
        Outcome::Requeue => retry.failed,
        Outcome::Done
        | Outcome::Rejected
        | Outcome::Purged
        | Outcome::Undelivered
        | Outcome::Expired
        | Outcome::Overflowed
        | Outcome::Exhausted
        | Outcome::DeadLettered
        | Outcome::PassedOver
        | Outcome::Returned => retry.returned,
    })
}
