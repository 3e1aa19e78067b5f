//! The messages of a queue, or of one priority of it: which are live, which are ready, their books.

use std::ops::Range;

use super::reader::delayed::DelayedMessages;
use super::reader::delivered::Delivered;
use super::reader::gathered::Gathered;
use super::reader::leaving::LeavingMessages;
use super::reader::ready::Ready;
use super::reader::values::Values;
use super::{Counters, Effect};
use crate::command::{Attributes, Outcome};
use crate::encoding::{Corrupt, Reader, put_u64};
use crate::ids::QueueId;
use crate::limits::FOREIGN_COMMANDS_MAX;
use crate::ranges::Ranges;
use crate::settings::Features;

/// Messages with sequence numbers of their own.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    pub(crate) id: QueueId,
    // Replicated.
    pub(crate) next_seq: u64,
    pub(crate) live: Ranges,
    pub(crate) counters: Counters,
    /// What some messages have beyond their place; None while no message had anything.
    pub(crate) attributes: Option<Box<MessageAttributes>>,
    /// The run that the entry being applied adds.
    pub(crate) run: Option<Run>,
    /// Which messages may have been with clients: in part leader-local.
    pub(crate) delivered: Delivered,
    // Leader-local.
    pub(crate) ready: Ready,
    pub(crate) gathered: Gathered,
}

/// What only messages of queues with arguments, or with attributes, have.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageAttributes {
    // Replicated.
    /// When they expire, ms since 1970.
    pub(crate) expiry: Values,
    /// How often they came back.
    pub(crate) returns: Values,
    /// Bytes of their bodies, where those count.
    pub(crate) sizes: Values,
    pub(crate) delayed: DelayedMessages,
    pub(crate) leaving: LeavingMessages,
    // Leader-local.
    /// Of the bodies of what is ready.
    pub(crate) ready_bytes: u64,
    /// Some of the run being gathered are not ready at once.
    has_delayed_in_run: bool,
}

/// Messages of one level close to each other in an entry.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) count: u32,
    /// Of heads and bodies.
    pub(crate) message_bytes: u64,
    pub(crate) span: Range<usize>,
    /// Number in the entry of the last command in it.
    pub(crate) last: u32,
}

impl Run {
    /// Takes a message in, if its command is near enough.
    #[inline]
    pub(crate) fn take(&mut self, number: u32, message_bytes: u64, end: usize) -> bool {
        let is_near = number <= self.last + 1 + FOREIGN_COMMANDS_MAX;
        if is_near {
            self.count += 1;
            self.message_bytes += message_bytes;
            self.span.end = end;
            self.last = number;
        }
        is_near
    }
}

/// What a level has to know of its surroundings when an entry is applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) features: Option<&'a Features>,
    /// The entry's time.
    pub(crate) time_ms: u64,
    pub(crate) is_leading: bool,
}

impl Level {
    pub(crate) fn new(id: QueueId) -> Self {
        Self {
            id,
            next_seq: 1,
            live: Ranges::new(),
            counters: Counters::default(),
            attributes: None,
            run: None,
            delivered: Delivered::default(),
            ready: Ready::default(),
            gathered: Gathered::default(),
        }
    }

    pub(crate) fn attributes_mut(&mut self) -> &mut MessageAttributes {
        self.attributes.get_or_insert_default()
    }

    /// Notes what the last message of the run has beyond its place.
    pub(crate) fn mark(&mut self, attributes: &Attributes, body_bytes: usize, cx: Context<'_>) {
        let Some(run) = &self.run else { return };
        let seq = self.next_seq + u64::from(run.count) - 1;
        let Attributes { ttl_ms, delay_ms, key } = *attributes;
        let ready_ms = cx.time_ms.saturating_add(delay_ms.unwrap_or(0));
        let queue_ttl = cx.features.and_then(|features| features.message_ttl_ms);
        let ttl = [ttl_ms, queue_ttl].into_iter().flatten().min();
        let counts_bytes = cx.features.is_some_and(|features| features.max_length_bytes.is_some());
        let is_delayed = delay_ms.is_some_and(|delay| delay > 0);
        if ttl.is_none() && !is_delayed && !counts_bytes {
            return;
        }
        let attributes = self.attributes.get_or_insert_default();
        if let Some(ttl) = ttl {
            // It may not have the time to wait until a mark is logged.
            self.delivered.advance(seq + 1);
            attributes.expiry.set(seq..seq + 1, ready_ms.saturating_add(ttl));
        }
        if is_delayed {
            attributes.delayed.insert(seq, ready_ms, key, cx.is_leading);
            attributes.has_delayed_in_run = true;
        }
        if counts_bytes {
            attributes.sizes.set(seq..seq + 1, body_bytes as u64);
        }
    }

    /// Ends the run that is being gathered: its messages are in the queue now.
    pub(crate) fn end_run(&mut self, cx: Context<'_>, effects: &mut Vec<Effect>) {
        let Some(run) = self.run.take() else { return };
        let first_seq = self.next_seq;
        self.next_seq += u64::from(run.count);
        let range = first_seq..self.next_seq;
        self.counters.enqueue(first_seq, u64::from(run.count), run.message_bytes);
        self.live.insert(range.clone());
        if cx.is_leading {
            self.ready.push(range.clone());
            if let Some(attributes) = &mut self.attributes {
                if std::mem::take(&mut attributes.has_delayed_in_run) {
                    self.ready.remove_from_waiting(&attributes.delayed.within(range.clone()));
                }
                if !attributes.sizes.is_empty() {
                    let added = self.ready.waiting().within(range);
                    let added = attributes.bytes_of(&added);
                    attributes.ready_bytes = attributes.ready_bytes.saturating_add(added);
                }
            }
        }
        effects.push(Effect::Enqueued {
            queue: self.id,
            first_seq,
            count: run.count,
            bytes: run.span,
        });
    }

    /// A settle from the log. What is not live was settled before and is not counted again.
    pub(crate) fn apply_settle(
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
        let gone = match (&mut self.attributes, outcome) {
            (None, Outcome::DeadLettered) => return,
            (Some(attributes), Outcome::DeadLettered) => attributes.leaving.take(ranges),
            (Some(attributes), _) if !attributes.leaving.is_empty() => {
                let mut gone = ranges.intersect(&self.live);
                attributes.leaving.exclude(&mut gone);
                gone
            }
            (Some(_) | None, _) => {
                let mut gone = Ranges::new();
                for range in ranges.ranges() {
                    self.live.take(range, &mut gone);
                }
                gone
            }
        };
        if gone.is_empty() {
            return;
        }
        self.live.remove_all(&gone);
        match outcome {
            Outcome::Done => self.counters.settled += gone.len(),
            Outcome::Purged => self.counters.purged += gone.len(),
            Outcome::DeadLettered => self.counters.dead_lettered += gone.len(),
            Outcome::Rejected
            | Outcome::Requeue
            | Outcome::Undelivered
            | Outcome::Expired
            | Outcome::Overflowed
            | Outcome::Exhausted
            | Outcome::Returned => self.counters.dropped += gone.len(),
        }
        self.gone(gone, effects);
    }

    /// Messages that are not live any more.
    fn gone(&mut self, gone: Ranges, effects: &mut Vec<Effect>) {
        assert_eq!(self.counters.live(), Some(self.live.len()), "the books of a queue are wrong");
        self.drop_ready(&gone);
        if let Some(attributes) = &mut self.attributes {
            attributes.forget(&gone);
        }
        effects.push(Effect::Settled { queue: self.id, ranges: gone });
    }

    /// Its queue was deleted: everything goes but what is dead.
    pub(crate) fn bequeath(&mut self, effects: &mut Vec<Effect>) {
        let stored = std::mem::take(self.gathered.of(Outcome::DeadLettered));
        self.gathered = Gathered::default();
        *self.gathered.of(Outcome::DeadLettered) = stored;
        let mut gone = self.live.clone();
        if let Some(attributes) = &self.attributes {
            attributes.leaving.exclude(&mut gone);
        }
        if !gone.is_empty() {
            self.live.remove_all(&gone);
            self.counters.dropped += gone.len();
            self.gone(gone, effects);
        }
    }

    /// Consumers see these no more; the dead-letter worker does.
    fn begin_to_leave(&mut self, reason: Outcome, ranges: &Ranges, is_leading: bool) {
        let mut dead = ranges.intersect(&self.live);
        if let Some(attributes) = &self.attributes {
            attributes.leaving.exclude(&mut dead);
        }
        if dead.is_empty() {
            return;
        }
        self.drop_ready(&dead);
        let attributes = self.attributes_mut();
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
        let Some(features) = cx.features.filter(|features| features.counts_returns) else { return };
        let mut found = ranges.intersect(&self.live);
        let attributes = self.attributes.get_or_insert_default();
        attributes.leaving.exclude(&mut found);
        let retry = features.retry.filter(|retry| match outcome {
            Outcome::Requeue => retry.failed,
            Outcome::Done
            | Outcome::Rejected
            | Outcome::Purged
            | Outcome::Undelivered
            | Outcome::Expired
            | Outcome::Overflowed
            | Outcome::Exhausted
            | Outcome::DeadLettered
            | Outcome::Returned => retry.returned,
        });
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
                self.attributes_mut().delayed.insert(seq, due_ms, None, waits_here);
            }
            self.drop_ready(&Ranges::from(part));
        }
        if cx.is_leading {
            ready.remove_all(taken);
            ready.remove_all(&self.ready.waiting().intersect(&ready));
            self.give_back(&ready, true);
        }
        self.begin_to_leave(Outcome::Exhausted, &exhausted, cx.is_leading);
    }

    /// Delayed messages with a key that are not due are dropped.
    pub(crate) fn cancel(&mut self, key: u128, time_ms: u64, effects: &mut Vec<Effect>) {
        let Some(attributes) = &self.attributes else { return };
        let mut gone = attributes.delayed.with_key(key, time_ms).intersect(&self.live);
        attributes.leaving.exclude(&mut gone);
        if gone.is_empty() {
            return;
        }
        self.live.remove_all(&gone);
        self.counters.dropped += gone.len();
        self.gone(gone, effects);
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.next_seq);
        self.counters.encode(out);
        self.live.encode(out);
        out.push(u8::from(self.attributes.is_some()));
        if let Some(attributes) = &self.attributes {
            attributes.encode(out);
        }
        self.delivered.encode(out);
    }

    /// As a snapshot of this version has it: 3 knows attributes, 4 what was delivered.
    pub(crate) fn read(id: QueueId, reader: &mut Reader<'_>, version: u8) -> Result<Self, Corrupt> {
        let mut level = Self::new(id);
        level.next_seq = reader.u64()?;
        level.counters = Counters::read(reader, version < 3)?;
        level.live = Ranges::read(reader)?;
        if version >= 3 && reader.bool()? {
            level.attributes = Some(Box::new(MessageAttributes::read(reader)?));
        }
        if version >= 4 {
            level.delivered = Delivered::read(reader)?;
        }
        let is_right = level.counters.enqueued.checked_add(1) == Some(level.next_seq)
            && level.counters.live() == Some(level.live.len())
            && level.live.first() != Some(0)
            && level.live.last().is_none_or(|last| last < level.next_seq)
            && level.attributes.as_ref().is_none_or(|attributes| attributes.is_of(&level.live));
        if is_right { Ok(level) } else { Err(Corrupt::new("the books of a queue")) }
    }
}

impl MessageAttributes {
    pub(crate) fn bytes_of(&self, ranges: &Ranges) -> u64 {
        if self.sizes.is_empty() {
            return 0;
        }
        ranges.ranges().fold(0, |sum, range| sum.saturating_add(self.sizes.sum(range)))
    }

    fn forget(&mut self, gone: &Ranges) {
        self.expiry.remove_all(gone);
        self.returns.remove_all(gone);
        self.sizes.remove_all(gone);
        self.delayed.forget_all(gone);
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.expiry.encode(out);
        self.returns.encode(out);
        self.sizes.encode(out);
        self.delayed.encode(out);
        self.leaving.encode(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(Self {
            expiry: Values::read(reader)?,
            returns: Values::read(reader)?,
            sizes: Values::read(reader)?,
            delayed: DelayedMessages::read(reader)?,
            leaving: LeavingMessages::read(reader)?,
            ..Self::default()
        })
    }

    /// Whether what is dead is live, and dead once.
    fn is_of(&self, live: &Ranges) -> bool {
        self.leaving.union().is_some_and(|dead| dead.intersect(live).len() == dead.len())
    }
}
