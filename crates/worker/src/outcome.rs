//! How an attempt ended, in words that all targets share.
//!
//! Targets classify; the [`pool`](crate::pool) decides what follows. `auth` is not among them: a target that is
//! told that its credentials have expired refreshes them and repeats the request once by itself, and says
//! [`Outcome::Config`] if that did not help.

use std::time::Duration;

use bytes::Bytes;

use crate::settlement::Publish;

/// What a throttle or a stop is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// This job's key alone (one phone, one customer).
    Key,
    /// One set of credentials: every job of the target.
    Target,
}

/// How one attempt at one job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The target accepted it. `publishes` are confirmed before the job is let go (chains, batches, feedback).
    Done { publishes: Vec<Publish> },
    /// It may work later. Charges an attempt.
    Retry {
        /// The least that the target asked for (Retry-After); none: the backoff alone decides.
        after: Option<Duration>,
        why: String,
        /// What is left to do, where a part is done already (some of many tokens); none: all of it.
        rest: Option<Bytes>,
        publishes: Vec<Publish>,
    },
    /// The target takes less at the moment. Charges no attempt: the job waits, and so does everything in scope.
    Throttle { scope: Scope, until: Duration, why: String },
    /// The phone's token is not valid any more: the job is dead, and the feedback says so.
    TokenDead { why: String, publishes: Vec<Publish> },
    /// No attempt can ever work: the job is dead at once.
    Reject { why: String },
    /// The credentials or the settings are wrong: the target stops until somebody mends them; jobs wait at
    /// their source, uncharged.
    Config { why: String },
}

impl Outcome {
    /// Success, with nothing to follow.
    pub fn done() -> Self {
        Self::Done { publishes: Vec::new() }
    }

    /// Another attempt, when the backoff says.
    pub fn retry(why: impl Into<String>) -> Self {
        Self::Retry { after: None, why: why.into(), rest: None, publishes: Vec::new() }
    }

    /// No other attempt.
    pub fn reject(why: impl Into<String>) -> Self {
        Self::Reject { why: why.into() }
    }

    /// As metrics and logs name it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Done { .. } => "done",
            Self::Retry { .. } => "retry",
            Self::Throttle { .. } => "throttle",
            Self::TokenDead { .. } => "token_dead",
            Self::Reject { .. } => "reject",
            Self::Config { .. } => "config",
        }
    }
}
