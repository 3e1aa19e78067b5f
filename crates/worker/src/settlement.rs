//! What a source is told to do with a job that it gave out.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::job::{Message, Receipt};

/// Why a job is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The target refused it for good.
    Rejected,
    /// Its attempts are used up.
    Exhausted,
    /// Its phone token is not valid any more.
    TokenDead,
    /// No job can be made of the message, or no handler has its type.
    Malformed,
}

impl Cause {
    /// As it is stored (`x-job-dead-cause`) and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Exhausted => "exhausted",
            Self::TokenDead => "token_dead",
            Self::Malformed => "malformed",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A message to publish at the job's own broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// AMQP: the exchange, empty for the default one. Redis, SQS, MNS: always empty.
    pub exchange: String,
    /// AMQP: the routing key. Redis: the stream or list. SQS, MNS: the queue.
    pub routing_key: String,
    pub message: Message,
    /// The order key (`x-job-key`), as text.
    pub key: Option<String>,
    /// Not before this long from now.
    pub delay: Option<Duration>,
}

/// What becomes of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Over: the source forgets it.
    Done,
    /// Back to the source, for anybody, at once, uncharged: it was not started, or the time to stop has come.
    Return,
    /// Again after a delay. It waits at the source, never in this process.
    Later {
        after: Duration,
        /// The number that the next attempt has. The same as now: this one was not charged.
        attempt: u32,
        why: String,
        /// Instead of the body that it came with.
        rest: Option<Bytes>,
    },
    /// Set aside with its reason, for `millrace work replay`.
    Dead { cause: Cause, why: String },
}

/// A job's end at this process. A source lets go of the job only after all of `publishes`, and the copy that
/// [`Settlement::Later`] or [`Settlement::Dead`] may need, are safe at the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    pub receipt: Receipt,
    pub settlement: Settlement,
    pub publishes: Vec<Publish>,
}
