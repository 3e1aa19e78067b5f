//! All queues of one group: the replicated half, and what only the leader knows.
//!
//! Replicated (`apply`, in snapshots, equal on every replica): which messages of which queue are live,
//! by sequence number; settings; the books. Messages themselves stay where the log or a segment has
//! them: this machine never copies a body.
//!
//! Leader-local (everything else, begun by `lead`, lost with the leader): which live messages are
//! ready, who consumes with how much credit, who holds what, and what was settled but is not in the
//! log yet. A settled message leaves the leader's books at once and the replicated ones when its
//! `Settle` is applied.
//!
//! Sequence numbers count from 1 per queue and are never used twice. A message keeps its number
//! wherever it goes, so a requeued one is back in its place by being ready again.

pub(crate) mod consumers;
mod machine;
pub(crate) mod ready;
mod reconcile;
pub(crate) mod unsettled;

use std::ops::Range;

pub use consumers::{AttachError, ConsumerSpec};
pub use machine::{Attached, QueueMachine};
pub use reconcile::Counters;

use crate::command::Outcome;
use crate::encoding::{Corrupt, Reader, put_u64};
use crate::ids::{ConsumerId, QueueId};
use crate::ranges::Ranges;
use crate::scheduler::dispatch::dispatch;
use crate::settings::QueueSettings;
use consumers::Consumers;
use ready::Ready;
use unsettled::Gathered;

/// What follows from a command or call, in order, for whoever runs the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A run of messages came in.
    Enqueued {
        queue: QueueId,
        first_seq: u64,
        count: u32,
        /// Where they are in the entry: whole commands, with at most
        /// `limits::FOREIGN_COMMANDS_MAX` in a row that are not for this queue.
        bytes: Range<usize>,
    },
    /// Messages left a queue for good.
    Settled { queue: QueueId, ranges: Ranges },
    /// A queue came to be.
    Created { queue: QueueId },
    /// A queue and all its messages are gone.
    Dropped { queue: QueueId },
    /// Messages go to a consumer: leader only.
    Deliver {
        queue: QueueId,
        consumer: ConsumerId,
        first_seq: u64,
        count: u32,
        /// A client may have seen all of them before; otherwise none was ever seen.
        redelivered: bool,
        /// They are settled already.
        no_ack: bool,
        /// How often each of them came back before, in a queue that counts that.
        returns: u32,
    },
    /// Dead messages are to be stored elsewhere, then settled as `Outcome::DeadLettered`: leader only.
    Leave {
        queue: QueueId,
        first_seq: u64,
        count: u32,
        /// Why they are dead.
        reason: Outcome,
    },
    /// A consumer's queue is gone.
    Cancelled { queue: QueueId, consumer: ConsumerId },
    /// The last consumer of an auto-delete queue went; the queue takes no more of them.
    Unused { queue: QueueId },
}

/// What a fetch of a single message came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetReply {
    /// `Effect::Deliver` has it; `ready` are left.
    Delivered { ready: u64 },
    /// Nothing is ready.
    Empty,
    /// This replica leads, and does not know yet what others hold: ask again once
    /// `QueueMachine::is_dispatching`.
    NotYet,
    /// No such queue, or this replica does not lead.
    NoQueue,
}

/// Why a queue may not be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseError {
    NoQueue,
    /// It has consumers.
    InUse,
    /// It has ready messages.
    NotEmpty,
}

/// A queue as its leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStatus {
    pub ready: u64,
    /// Out with consumers.
    pub unsettled: u64,
    pub consumers: u32,
    /// Not due yet.
    pub delayed: u64,
    /// Dead, and not stored yet where they are to go.
    pub leaving: u64,
    pub counters: Counters,
}

/// One queue.
#[derive(Clone, Debug)]
struct Queue {
    id: QueueId,
    // Replicated.
    settings: QueueSettings,
    next_seq: u64,
    live: Ranges,
    counters: Counters,
    // The run that the entry being applied adds.
    run: Option<Run>,
    // Leader-local.
    ready: Ready,
    consumers: Consumers,
    gathered: Gathered,
    is_closing: bool,
    /// A consumer went before all that there may be had come.
    has_lost: bool,
}

/// Messages of one queue close to each other in an entry.
#[derive(Clone, Debug)]
struct Run {
    count: u32,
    /// Of heads and bodies.
    message_bytes: u64,
    span: Range<usize>,
    /// Number in the entry of the last command in it.
    last: u32,
}

impl Queue {
    fn new(id: QueueId, settings: QueueSettings) -> Self {
        Self {
            id,
            settings,
            next_seq: 1,
            live: Ranges::new(),
            counters: Counters::default(),
            run: None,
            ready: Ready::default(),
            consumers: Consumers::default(),
            gathered: Gathered::default(),
            is_closing: false,
            has_lost: false,
        }
    }

    /// Ends the run that is being gathered: its messages are in the queue now.
    fn end_run(&mut self, is_leading: bool, effects: &mut Vec<Effect>) {
        let Some(run) = self.run.take() else { return };
        let first_seq = self.next_seq;
        self.next_seq += u64::from(run.count);
        let range = first_seq..self.next_seq;
        self.counters.enqueue(first_seq, u64::from(run.count), run.message_bytes);
        self.live.insert(range.clone());
        if is_leading {
            self.ready.push(range);
        }
        effects.push(Effect::Enqueued {
            queue: self.id,
            first_seq,
            count: run.count,
            bytes: run.span,
        });
    }

    /// A settle from the log. What is not live was settled before and is not counted again.
    fn apply_settle(&mut self, outcome: Outcome, ranges: &Ranges, effects: &mut Vec<Effect>) {
        let mut gone = Ranges::new();
        for range in ranges.ranges() {
            self.live.take(range, &mut gone);
        }
        if gone.is_empty() {
            return;
        }
        match outcome {
            Outcome::Done => self.counters.settled += gone.len(),
            Outcome::Rejected => self.counters.dropped += gone.len(),
            Outcome::Purged => self.counters.purged += gone.len(),
            _ => self.counters.dropped += gone.len(),
        }
        assert_eq!(self.counters.live(), Some(self.live.len()), "the books of a queue are wrong");
        self.ready.remove(&gone);
        effects.push(Effect::Settled { queue: self.id, ranges: gone });
    }

    fn lead(&mut self) {
        self.follow();
        self.ready = Ready::lead(&self.live, self.next_seq);
    }

    fn follow(&mut self) {
        self.ready = Ready::default();
        self.consumers = Consumers::default();
        self.gathered = Gathered::default();
        self.is_closing = false;
        self.has_lost = false;
    }

    /// All that may have come have: consumers are served, or the queue is over.
    fn begin(&mut self, effects: &mut Vec<Effect>) {
        if self.has_lost {
            self.close_if_unused(true, effects);
        }
        self.dispatch(effects);
    }

    fn dispatch(&mut self, effects: &mut Vec<Effect>) {
        dispatch(self.id, &mut self.ready, &mut self.consumers, &mut self.gathered, effects);
    }

    /// A consumer's outcome for what it holds of `ranges`.
    fn settle(&mut self, consumer: ConsumerId, ranges: &Ranges, outcome: Outcome) {
        let mut released = Ranges::new();
        self.consumers.release(consumer, ranges, &mut released);
        if outcome.is_final() {
            self.ready.forget(&released);
            self.gathered.of(outcome).insert_all(&released);
        } else {
            self.give_back(&released, outcome == Outcome::Requeue);
        }
    }

    /// Back to their places, unless the log has settled them meanwhile.
    fn give_back(&mut self, ranges: &Ranges, was_seen: bool) {
        if !ranges.is_empty() {
            self.ready.give_back(&ranges.intersect(&self.live), was_seen);
        }
    }

    /// After a consumer went: an auto-delete queue is over with its last one. Which that was is not known
    /// before all have joined, so until then it is only noted.
    fn close_if_unused(&mut self, have_all_joined: bool, effects: &mut Vec<Effect>) {
        self.has_lost = !have_all_joined;
        if self.has_lost {
            return;
        }
        if self.settings.is_auto_delete && self.consumers.attached() == 0 && !self.is_closing {
            self.is_closing = true;
            effects.push(Effect::Unused { queue: self.id });
        }
    }

    fn status(&self) -> QueueStatus {
        QueueStatus {
            ready: self.ready.len(),
            unsettled: self.consumers.held_count(),
            consumers: self.consumers.attached(),
            delayed: 0,
            leaving: 0,
            counters: self.counters,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.id.0);
        self.settings.encode(out);
        put_u64(out, self.next_seq);
        self.counters.encode(out);
        self.live.encode(out);
    }

    fn read(reader: &mut Reader<'_>, is_old: bool) -> Result<Self, Corrupt> {
        let id = QueueId(reader.u64()?);
        let mut queue = Self::new(id, QueueSettings::read(reader)?);
        queue.next_seq = reader.u64()?;
        queue.counters = Counters::read(reader, is_old)?;
        queue.live = Ranges::read(reader)?;
        let is_right = queue.counters.enqueued.checked_add(1) == Some(queue.next_seq)
            && queue.counters.live() == Some(queue.live.len())
            && queue.live.first() != Some(0)
            && queue.live.last().is_none_or(|last| last < queue.next_seq);
        if is_right { Ok(queue) } else { Err(Corrupt { what: "the books of a queue" }) }
    }
}
