//! A session that waits for its request to be in the log, and the answer that it gets then.

use machine::{CatalogReply, SessionId};

use crate::exchange::Output;
use crate::request::{Answer, Ticket};

/// Which session waits for an entry, and with which answer its wait ends.
#[derive(Debug)]
pub(crate) enum Waiter {
    Appended {
        session: SessionId,
        ticket: Ticket,
    },
    Purged {
        session: SessionId,
        ticket: Ticket,
        count: u64,
    },
    /// One catalog command; there is exactly one waiter for each, in their order.
    Catalog {
        session: SessionId,
        ticket: Ticket,
    },
    /// A queue's group has it now: the declaration may be answered.
    Created {
        session: SessionId,
        ticket: Ticket,
        reply: CatalogReply,
    },
    /// A consumer is gone, and the queue that went with it, too.
    Detached {
        session: SessionId,
        ticket: Ticket,
    },
    SessionEnded {
        session: SessionId,
        ticket: Ticket,
    },
    /// The node's own affairs.
    Nobody,
}

impl Waiter {
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self {
            Self::Appended { session, .. }
            | Self::Purged { session, .. }
            | Self::Catalog { session, .. }
            | Self::Created { session, .. }
            | Self::Detached { session, .. }
            | Self::SessionEnded { session, .. } => Some(*session),
            Self::Nobody => None,
        }
    }

    /// Whether the command stays in its numbered batch after the waiting session got `AppendFailed`. The node's own
    /// commands stay, because no session would ask for them again. A purge stays, because its messages are no longer
    /// ready and must leave the queue.
    pub(crate) fn lasts(&self) -> bool {
        match self {
            Self::Purged { .. } => !planted::is("purge_dropped"),
            Self::Created { .. }
            | Self::Detached { .. }
            | Self::SessionEnded { .. }
            | Self::Nobody => true,
            Self::Appended { .. } | Self::Catalog { .. } => false,
        }
    }

    /// Whether a commit is not enough: what follows needs the entry applied by the leader.
    pub(crate) fn needs_apply(&self) -> bool {
        match self {
            Self::Purged { .. } | Self::Created { .. } => true,
            Self::Appended { .. }
            | Self::Catalog { .. }
            | Self::Detached { .. }
            | Self::SessionEnded { .. }
            | Self::Nobody => false,
        }
    }

    /// The answer to the waiting session once the entry is committed.
    pub(crate) fn committed(self) -> Option<Output> {
        let (session, answer) = match self {
            Self::Appended { session, ticket } => (session, Answer::Appended { ticket }),
            Self::Purged { session, ticket, count } => (session, Answer::Purged { ticket, count }),
            Self::Created { session, ticket, reply } => {
                (session, Answer::Catalog { ticket, reply })
            }
            Self::Detached { session, ticket } => (session, Answer::Detached { ticket }),
            Self::SessionEnded { session, ticket } => (session, Answer::SessionEnded { ticket }),
            Self::Catalog { .. } | Self::Nobody => return None,
        };
        Some(Output::Answer { session, answer })
    }

    /// The answer to the waiting session if the entry could not be proposed.
    pub(crate) fn refused(self) -> Option<Output> {
        let (session, ticket) = match self {
            Self::Appended { session, ticket }
            | Self::Purged { session, ticket, .. }
            | Self::Catalog { session, ticket }
            | Self::Created { session, ticket, .. }
            | Self::Detached { session, ticket }
            | Self::SessionEnded { session, ticket } => (session, ticket),
            Self::Nobody => return None,
        };
        Some(Output::Answer { session, answer: Answer::AppendFailed { ticket } })
    }
}
