//! What a session asks of the cluster, and what it is told.
//!
//! A session numbers its questions with tickets of its own; every ticket is answered exactly once.
//! Requests without a ticket have no answer. Requests of one session for one group are carried out
//! in the order in which they were submitted.

use bytes::Bytes;
use machine::{
    AttachError, Batch, CatalogCommand, CatalogReply, CloseError, ConsumerChange, ConsumerId,
    ConsumerSpec, GroupId, Outcome, Position, QueueId, QueueStatus, Ranges, Version,
};

use crate::limits::REQUEST_BYTES;

use crate::described::{DescribedQueue, NotDescribed};
use crate::locked::{LockResult, LockSpec, NotLocked};
use crate::peeked::{NotPeeked, PeekSpec, Peeked};
use crate::withheld::{NotWithheld, WithheldCount, WithholdStep};

/// The session's own number for a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Messages of one queue that one consumer holds, and what a transaction makes of them.
#[derive(Clone, Debug)]
pub struct Held {
    pub queue: QueueId,
    pub consumer: ConsumerId,
    pub ranges: Ranges,
    pub outcome: Outcome,
    /// Given back to the consumer with them.
    pub credit: u32,
}

/// What a session asks.
#[derive(Clone, Debug)]
pub enum Request {
    /// Log `batch` in `group`: [`Answer::Appended`] once a majority has synced it. `settles` says which
    /// consumers hold the messages that settle commands inside the batch (a transaction's acks) name.
    Append { group: GroupId, ticket: Ticket, batch: Batch, settles: Vec<Held> },
    /// Change the catalog: [`Answer::Catalog`] once this node routes by the change.
    Catalog { ticket: Ticket, command: CatalogCommand },
    /// Start a consumer: [`Answer::Attached`], then its deliveries.
    Attach {
        ticket: Ticket,
        group: GroupId,
        queue: QueueId,
        consumer: ConsumerId,
        spec: ConsumerSpec,
    },
    /// Stop a consumer: no delivery follows [`Answer::Detached`]. What it holds stays held. What its queue has given it
    /// and not sent yet is sent first, as RabbitMQ's queues send it before they hear of the end; or it goes back to the
    /// queue, if `takes_back`.
    Detach {
        ticket: Ticket,
        group: GroupId,
        queue: QueueId,
        consumer: ConsumerId,
        takes_back: bool,
    },
    /// Let a consumer hold `add` messages more.
    Credit { group: GroupId, queue: QueueId, consumer: ConsumerId, add: u32 },
    /// Give a consumer nothing from now on, or let it go on: it keeps its credit and what it holds.
    ChangeConsumer { group: GroupId, queue: QueueId, consumer: ConsumerId, change: ConsumerChange },
    /// The outcome of messages that `consumer` holds, and `credit` given back with it.
    Settle {
        group: GroupId,
        queue: QueueId,
        consumer: ConsumerId,
        ranges: Ranges,
        outcome: Outcome,
        credit: u32,
    },
    /// One message, now, if there is one: [`Answer::Got`]. The first that is ready, or the one at this place, if it is
    /// ready: whoever carries messages elsewhere takes them so (`QueueMachine::take`), and settles them.
    Get {
        ticket: Ticket,
        group: GroupId,
        queue: QueueId,
        consumer: ConsumerId,
        no_ack: bool,
        at: Option<Position>,
    },
    /// Forget every ready message: [`Answer::Purged`] once logged.
    Purge { ticket: Ticket, group: GroupId, queue: QueueId },
    /// Purge so that it can be undone, or undo that: [`Answer::Withheld`] once logged.
    Withhold { ticket: Ticket, group: GroupId, queue: QueueId, step: WithholdStep },
    /// Counts of a queue: [`Answer::Status`].
    Status { ticket: Ticket, group: GroupId, queue: QueueId },
    /// What the queue's leader knows of it: [`Answer::Described`]. It changes nothing, nor does it count as a use.
    Describe { ticket: Ticket, group: GroupId, queue: QueueId },
    /// Messages of a queue as they are: [`Answer::Peeked`]. It changes nothing, nor does it count as a use.
    Peek { ticket: Ticket, group: GroupId, queue: QueueId, spec: Box<PeekSpec> },
    /// Something is to be done to a lock, or somebody wants to know how it stands: [`Answer::Locked`].
    Lock { ticket: Ticket, group: GroupId, spec: Box<LockSpec> },
    /// Check that a queue may be deleted, and take no more consumers: [`Answer::Closed`]. The
    /// catalog's `DeleteQueue` is to follow.
    CloseQueue { ticket: Ticket, group: GroupId, queue: QueueId, if_unused: bool, if_empty: bool },
    /// Before messages for a queue that refuses what it has no room for: is there room for messages
    /// whose bodies have so many bytes each? [`Answer::Admitted`]. Room is kept for those it has.
    Admit { ticket: Ticket, group: GroupId, queue: QueueId, sizes: Vec<u32> },
    /// The session is over: what it holds is ready again, its exclusive queues are deleted.
    /// [`Answer::SessionEnded`] when that is done. Dropping the session's receiver does the same.
    EndSession { ticket: Ticket },
}

impl Request {
    /// A consumer changes that may be asking to be attached: then it asks as it is now.
    pub(crate) fn change_attach(&mut self, of: QueueId, by: ConsumerId, change: ConsumerChange) {
        if let Self::Attach { queue, consumer, spec, .. } = self
            && (*queue, *consumer) == (of, by)
        {
            spec.change(change);
        }
    }

    /// The group whose shard takes it. `None`: the catalog's does, or every shard.
    pub(crate) fn group(&self) -> Option<GroupId> {
        match self {
            Self::Append { group, .. }
            | Self::Attach { group, .. }
            | Self::Detach { group, .. }
            | Self::Credit { group, .. }
            | Self::ChangeConsumer { group, .. }
            | Self::Settle { group, .. }
            | Self::Get { group, .. }
            | Self::Purge { group, .. }
            | Self::Withhold { group, .. }
            | Self::Status { group, .. }
            | Self::Describe { group, .. }
            | Self::Peek { group, .. }
            | Self::Lock { group, .. }
            | Self::Admit { group, .. }
            | Self::CloseQueue { group, .. } => Some(*group),
            Self::Catalog { .. } | Self::EndSession { .. } => None,
        }
    }

    /// What it weighs while it waits for its shard, in bytes.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Append { batch, .. } => REQUEST_BYTES + batch.bytes(),
            Self::Admit { sizes, .. } => REQUEST_BYTES + sizes.len() * 4,
            Self::Peek { spec, .. } => REQUEST_BYTES + spec.contains.len(),
            Self::Lock { spec, .. } => REQUEST_BYTES + spec.bytes(),
            Self::Catalog { .. }
            | Self::Attach { .. }
            | Self::Detach { .. }
            | Self::Credit { .. }
            | Self::ChangeConsumer { .. }
            | Self::Settle { .. }
            | Self::Get { .. }
            | Self::Purge { .. }
            | Self::Withhold { .. }
            | Self::Status { .. }
            | Self::Describe { .. }
            | Self::CloseQueue { .. }
            | Self::EndSession { .. } => REQUEST_BYTES,
        }
    }

    /// The number under which it is answered, if it is.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::Append { ticket, .. }
            | Self::Catalog { ticket, .. }
            | Self::Attach { ticket, .. }
            | Self::Detach { ticket, .. }
            | Self::Get { ticket, .. }
            | Self::Purge { ticket, .. }
            | Self::Withhold { ticket, .. }
            | Self::Status { ticket, .. }
            | Self::Describe { ticket, .. }
            | Self::Peek { ticket, .. }
            | Self::Lock { ticket, .. }
            | Self::CloseQueue { ticket, .. }
            | Self::Admit { ticket, .. }
            | Self::EndSession { ticket } => Some(*ticket),
            Self::Credit { .. } | Self::ChangeConsumer { .. } | Self::Settle { .. } => None,
        }
    }

    /// The one queue that it is about, if it is about one.
    pub(crate) fn queue(&self) -> Option<QueueId> {
        match self {
            Self::Attach { queue, .. }
            | Self::Detach { queue, .. }
            | Self::Credit { queue, .. }
            | Self::Settle { queue, .. }
            | Self::Get { queue, .. }
            | Self::Purge { queue, .. }
            | Self::Withhold { queue, .. }
            | Self::Status { queue, .. }
            | Self::Describe { queue, .. }
            | Self::Peek { queue, .. }
            | Self::CloseQueue { queue, .. }
            | Self::Admit { queue, .. } => Some(*queue),
            Self::Append { .. }
            | Self::Catalog { .. }
            | Self::ChangeConsumer { .. }
            | Self::Lock { .. }
            | Self::EndSession { .. } => None,
        }
    }

    /// Since which version of the cluster another node may be asked this.
    pub(crate) fn since(&self) -> Version {
        match self {
            Self::Describe { .. } => Version::DESCRIBED,
            Self::Peek { .. } => Version::PEEKED,
            Self::Lock { .. } => Version::LOCKS,
            Self::Withhold { .. } => Version::UNDO,
            Self::ChangeConsumer { .. } => Version::CONSUMER_CHANGES,
            Self::Get { at: Some(_), .. } => Version::TAKES,
            Self::Detach { takes_back: false, .. } => Version::CANCELS,
            Self::Append { .. }
            | Self::Catalog { .. }
            | Self::Attach { .. }
            | Self::Detach { .. }
            | Self::Credit { .. }
            | Self::Settle { .. }
            | Self::Get { .. }
            | Self::Purge { .. }
            | Self::Status { .. }
            | Self::CloseQueue { .. }
            | Self::Admit { .. }
            | Self::EndSession { .. } => Version::OLDEST,
        }
    }

    /// The answer where another node may not be asked yet. `None`: it always may.
    pub(crate) fn answer_not_yet(&self) -> Option<Answer> {
        let since = self.since();
        match *self {
            Self::Describe { ticket, .. } => {
                Some(Answer::Described { ticket, result: Err(NotDescribed::NotYet { since }) })
            }
            Self::Peek { ticket, .. } => {
                Some(Answer::Peeked { ticket, result: Err(NotPeeked::NotYet { since }) })
            }
            Self::Lock { ticket, .. } => {
                Some(Answer::Locked { ticket, result: Err(NotLocked::NotYet { since }) })
            }
            Self::Withhold { ticket, .. } => {
                Some(Answer::Withheld { ticket, result: Err(NotWithheld::NotYet { since }) })
            }
            // Who takes messages looks at the version itself: an empty queue is no lie.
            Self::Get { ticket, at: Some(_), .. } => {
                Some(Answer::Got { ticket, delivery: None, ready: 0 })
            }
            Self::Append { .. }
            | Self::Catalog { .. }
            | Self::Attach { .. }
            | Self::Detach { .. }
            | Self::Credit { .. }
            | Self::ChangeConsumer { .. }
            | Self::Settle { .. }
            | Self::Get { .. }
            | Self::Purge { .. }
            | Self::Status { .. }
            | Self::CloseQueue { .. }
            | Self::Admit { .. }
            | Self::EndSession { .. } => None,
        }
    }

    /// The answer where that queue is not there.
    pub(crate) fn answer_without_queue(&self) -> Option<Answer> {
        let answer = match *self {
            Self::Attach { ticket, .. } => {
                Answer::Attached { ticket, result: Err(AttachError::NoQueue), at: None }
            }
            Self::Detach { ticket, .. } => Answer::Detached { ticket },
            Self::Get { ticket, .. } => Answer::Got { ticket, delivery: None, ready: 0 },
            Self::Purge { ticket, .. } => Answer::Purged { ticket, count: 0 },
            Self::Withhold { ticket, .. } => {
                Answer::Withheld { ticket, result: Err(NotWithheld::NoQueue) }
            }
            Self::Status { ticket, .. } => Answer::Status { ticket, status: None },
            Self::Describe { ticket, .. } => {
                Answer::Described { ticket, result: Err(NotDescribed::NoQueue) }
            }
            Self::Peek { ticket, .. } => Answer::Peeked { ticket, result: Err(NotPeeked::NoQueue) },
            Self::CloseQueue { ticket, .. } => Answer::Closed { ticket, result: Ok(0) },
            Self::Admit { ticket, .. } => Answer::Admitted { ticket, refused: Vec::new() },
            Self::Append { .. }
            | Self::Catalog { .. }
            | Self::Credit { .. }
            | Self::ChangeConsumer { .. }
            | Self::Settle { .. }
            | Self::Lock { .. }
            | Self::EndSession { .. } => return None,
        };
        Some(answer)
    }

    /// It goes to another leader: one of before may have done it.
    #[must_use]
    pub(crate) fn again(mut self) -> Self {
        if let Self::Lock { spec, .. } = &mut self {
            spec.is_again = true;
        }
        self
    }
}

/// Messages on their way to a consumer.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub group: GroupId,
    /// With the level that they are in.
    pub queue: QueueId,
    /// Whose messages they are: of a subscription its stream, else `queue`.
    pub store: QueueId,
    pub consumer: ConsumerId,
    /// The sequence number of the first; the others follow without a gap.
    pub first_seq: u64,
    pub count: u32,
    pub redelivered: bool,
    /// How often each of them came back before; always 0 in a queue that does not count that.
    pub returns: u32,
    /// `machine::Messages::of(store, &bytes)` yields exactly `count` messages.
    pub bytes: Bytes,
}

/// Dead messages on their way to where they are to be stored. Who does that settles them as
/// `Outcome::DeadLettered`, under any consumer's name.
#[derive(Clone, Debug)]
pub struct Leaving {
    pub group: GroupId,
    /// With the level that they are in.
    pub queue: QueueId,
    /// Whose messages they are: of a subscription its stream, else `queue`.
    pub store: QueueId,
    /// Why they are dead.
    pub reason: Outcome,
    /// The sequence number of the first; the others follow without a gap.
    pub first_seq: u64,
    pub count: u32,
    /// `machine::Messages::of(store, &bytes)` yields exactly `count` messages.
    pub bytes: Bytes,
    /// The group's time, milliseconds since 1970.
    pub time_ms: u64,
}

/// What a session is told.
#[derive(Debug)]
pub enum Answer {
    /// A majority has synced the batch: the publisher may be confirmed.
    Appended {
        ticket: Ticket,
    },
    /// The batch is not known to be logged, and never will be confirmed.
    AppendFailed {
        ticket: Ticket,
    },
    Catalog {
        ticket: Ticket,
        reply: CatalogReply,
    },
    Attached {
        ticket: Ticket,
        result: Result<(), AttachError>,
        /// Of a stream: the first message that it gets, which may have to come yet.
        at: Option<u64>,
    },
    Detached {
        ticket: Ticket,
    },
    Delivered(Delivery),
    /// `ready` counts what is left behind the message.
    Got {
        ticket: Ticket,
        delivery: Option<Delivery>,
        ready: u64,
    },
    Purged {
        ticket: Ticket,
        count: u64,
    },
    /// What a purge that can be undone, or its undoing, came to.
    Withheld {
        ticket: Ticket,
        result: Result<WithheldCount, NotWithheld>,
    },
    /// `None`: the group has no such queue.
    Status {
        ticket: Ticket,
        status: Option<QueueStatus>,
    },
    /// What the queue's leader knows of it, or why that is not said.
    Described {
        ticket: Ticket,
        result: Result<Box<DescribedQueue>, NotDescribed>,
    },
    /// Messages of the queue as they are, or why none is shown.
    Peeked {
        ticket: Ticket,
        result: Result<Box<Peeked>, NotPeeked>,
    },
    /// What was done to the lock or how it stands, or why that is not known.
    Locked {
        ticket: Ticket,
        result: LockResult,
    },
    /// The count of ready messages that go with the queue, or why it may not be deleted.
    Closed {
        ticket: Ticket,
        result: Result<u64, CloseError>,
    },
    /// Which of the messages that were asked about there is no room for, by their place.
    Admitted {
        ticket: Ticket,
        refused: Vec<u32>,
    },
    /// To the node's dead-letter worker only.
    Leaving(Leaving),
    /// The consumer's queue is gone.
    Cancelled {
        queue: QueueId,
        consumer: ConsumerId,
    },
    /// The consumer is the one active consumer of all partitions of its queue, with this generation; 0: not any more. It
    /// is to attach to the other partitions with it, then to `queue`, before it gives credit.
    Elected {
        queue: QueueId,
        consumer: ConsumerId,
        generation: u64,
    },
    SessionEnded {
        ticket: Ticket,
    },
    Alarms(Alarms),
    /// The node is stopping: close with 320.
    Stopping,
}

impl Answer {
    /// Since which version of the cluster another node can read it.
    pub(crate) fn since(&self) -> Version {
        match self {
            Self::Described { .. } => Version::DESCRIBED,
            Self::Peeked { .. } => Version::PEEKED,
            Self::Locked { .. } => Version::LOCKS,
            Self::Elected { .. } => Version::STREAMS,
            Self::Withheld { .. } => Version::UNDO,
            Self::Appended { .. }
            | Self::AppendFailed { .. }
            | Self::Catalog { .. }
            | Self::Attached { .. }
            | Self::Detached { .. }
            | Self::Delivered(_)
            | Self::Got { .. }
            | Self::Purged { .. }
            | Self::Status { .. }
            | Self::Closed { .. }
            | Self::Admitted { .. }
            | Self::Leaving(_)
            | Self::Cancelled { .. }
            | Self::SessionEnded { .. }
            | Self::Alarms(_)
            | Self::Stopping => Version::OLDEST,
        }
    }
}

/// Why publishers are held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alarms {
    pub memory: bool,
    pub disk: bool,
}

impl Alarms {
    /// Whether publishers must wait.
    pub fn any(self) -> bool {
        self.memory || self.disk
    }
}
