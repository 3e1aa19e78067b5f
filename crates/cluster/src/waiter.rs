//! Somebody who wants to know when what was asked is in the log.

use machine::{CatalogReply, SessionId};

use crate::request::Ticket;

/// Who waits, and what is to be told.
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

    /// Whether what is asked for must come to be, whatever is told to who waits: it is the node's own
    /// affair, and nobody would ask for it again. What a purge took is not ready any more: it must go.
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
}
