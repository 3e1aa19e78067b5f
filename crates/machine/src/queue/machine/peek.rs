//! Messages of a queue as its leader has them, for somebody who looks at them and takes none: read, bounded, and nothing
//! is changed by it. Where their bytes are, the cluster knows.

use std::collections::BTreeMap;

use super::QueueMachine;
use crate::command::Outcome;
use crate::ids::{ConsumerId, QueueId};
use crate::limits::{PEEKED_MESSAGES_MAX, PEEKED_STEPS_MAX};
use crate::queue::Queue;
use crate::queue::level::Level;

/// A place in a queue. Messages of the highest priority come first, those of one priority by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub priority: u8,
    pub seq: u64,
}

impl Position {
    /// In front of all messages, whatever priorities a queue has.
    pub const FIRST: Self = Self { priority: u8::MAX, seq: 0 };
}

/// Which messages are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeekFilter {
    All,
    Ready,
    Held,
    Delayed,
    Dead,
}

/// How a message stands that is not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageState {
    /// It waits for a consumer.
    Ready,
    /// This one was given it, or is about to be sent it.
    Held { by: ConsumerId },
    /// It is ready at this time, ms since 1970.
    Delayed { due_ms: u64 },
    /// It is about to be stored where dead letters go, for this reason.
    Dead { reason: Outcome },
}

/// A message without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageDescription {
    pub position: Position,
    pub state: MessageState,
    /// ms since 1970; it goes when it is the next to be given out.
    pub expires_ms: Option<u64>,
    /// How often it came back; always 0 in a queue that does not count that.
    pub returns: u64,
}

/// Messages of one level of a queue, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePeek {
    pub level: QueueId,
    /// Whose messages they are: of a subscription its stream, else `level`.
    pub store: QueueId,
    pub messages: Vec<MessageDescription>,
    /// Where others may be. `None`: there are no more.
    pub next: Option<Position>,
    /// For each priority from 0 on: the number that the next message gets. All that have come are below.
    pub ends: Vec<u64>,
}

impl QueueMachine {
    /// The first messages from `from` on: those of one level, at most `count` and never more than
    /// [`PEEKED_MESSAGES_MAX`]. Leader only. `None`: there is no such queue.
    pub fn peek(
        &self,
        queue: QueueId,
        from: Position,
        filter: PeekFilter,
        count: usize,
    ) -> Option<QueuePeek> {
        let queue = self.queue(queue).filter(|queue| !queue.is_gone)?;
        let levels = queue.levels().filter(|level| level.id().priority() <= from.priority);
        let levels: Vec<&Level> = levels.collect();
        let ends = || [&queue.main].into_iter().chain(&queue.levels).map(|it| it.store.next_seq);
        for (nth, level) in levels.iter().enumerate() {
            let priority = level.id().priority();
            let seq = if priority == from.priority { from.seq } else { 0 };
            let mut look = Look::new(count.clamp(1, PEEKED_MESSAGES_MAX));
            look.over(queue, level, seq, filter);
            let Look { found, end, .. } = look;
            // A level without any is passed over, unless there was too much to look at.
            if found.is_empty() && end == ALL {
                continue;
            }
            let next_level = levels.get(nth + 1).map(|level| level.id().priority());
            let next = match end {
                ALL => next_level.map(|priority| Position { priority, seq: 0 }),
                seq => Some(Position { priority, seq }),
            };
            let messages = found.into_iter().map(|(seq, state)| describe(level, seq, state));
            let (messages, ends) = (messages.collect(), ends().collect());
            let store = queue.subscription().map_or(level.id(), |it| it.stream);
            return Some(QueuePeek { level: level.id(), store, messages, next, ends });
        }
        Some(QueuePeek {
            level: queue.id,
            store: queue.id,
            messages: Vec::new(),
            next: None,
            ends: ends().collect(),
        })
    }
}

fn describe(level: &Level, seq: u64, state: MessageState) -> MessageDescription {
    let attributes = level.reader.attributes.as_ref();
    let only = seq..seq + 1;
    MessageDescription {
        position: Position { priority: level.id().priority(), seq },
        state,
        expires_ms: attributes.and_then(|it| it.expiry.uniform(&only).1),
        returns: attributes.and_then(|it| it.returns.uniform(&only).1).unwrap_or(0),
    }
}

/// The first messages of a level that were found so far, wherever they are kept.
struct Look {
    found: BTreeMap<u64, MessageState>,
    count_max: usize,
    /// Every message below that was looked for is found.
    end: u64,
}

/// All messages are below.
const ALL: u64 = u64::MAX;

impl Look {
    fn new(count_max: usize) -> Self {
        Self { found: BTreeMap::new(), count_max, end: ALL }
    }

    fn over(&mut self, queue: &Queue, level: &Level, from: u64, filter: PeekFilter) {
        match filter {
            PeekFilter::All => {
                self.over_ready(level, from);
                self.over_held(queue, level, from);
                self.over_delayed(level, from);
                self.over_dead(level, from);
            }
            PeekFilter::Ready => self.over_ready(level, from),
            PeekFilter::Held => self.over_held(queue, level, from),
            PeekFilter::Delayed => self.over_delayed(level, from),
            PeekFilter::Dead => self.over_dead(level, from),
        }
    }

    fn over_ready(&mut self, level: &Level, from: u64) {
        let ready = level.waiting().iter_from(from).map(|seq| (seq, MessageState::Ready));
        self.add(ready);
    }

    fn over_held(&mut self, queue: &Queue, level: &Level, from: u64) {
        for (by, holder, _) in queue.consumers.holders() {
            let held = holder.held.at(level.id().priority()).into_iter();
            let held = held.flat_map(|held| held.ranges_from(from)).flatten();
            self.add(held.map(|seq| (seq, MessageState::Held { by })));
        }
    }

    fn over_delayed(&mut self, level: &Level, from: u64) {
        let Some(attributes) = &level.reader.attributes else { return };
        let mut steps = 0;
        for (seq, due_ms, waits) in attributes.delayed.from(from) {
            steps += 1;
            if steps > PEEKED_STEPS_MAX {
                return self.end_at(seq);
            }
            if waits && !self.insert(seq, MessageState::Delayed { due_ms }) {
                return;
            }
        }
    }

    fn over_dead(&mut self, level: &Level, from: u64) {
        let Some(attributes) = &level.reader.attributes else { return };
        for (reason, dead) in attributes.leaving.by_reason() {
            let dead = dead.ranges_from(from).flatten();
            self.add(dead.map(|seq| (seq, MessageState::Dead { reason })));
        }
    }

    /// Messages by their numbers, as far as they are among the first.
    fn add(&mut self, all: impl Iterator<Item = (u64, MessageState)>) {
        for (seq, state) in all {
            if !self.insert(seq, state) {
                return;
            }
        }
    }

    /// False: it is not among the first, nor is any behind it.
    fn insert(&mut self, seq: u64, state: MessageState) -> bool {
        if seq >= self.end {
            return false;
        }
        self.found.insert(seq, state);
        if self.found.len() > self.count_max
            && let Some((last, _)) = self.found.pop_last()
        {
            self.end = last;
        }
        true
    }

    /// What is behind was not looked at.
    fn end_at(&mut self, seq: u64) {
        self.end = self.end.min(seq);
        self.found.split_off(&self.end);
    }
}
