//! Who waits for which entry. Many proposals become one entry.

use std::collections::VecDeque;

use machine::{Batch, CatalogReply, SessionId};

use crate::limits::ENTRY_BYTES;
use crate::replica::Replica;
use crate::request::{Held, Ticket};

/// Somebody who wants to know when an entry is committed.
#[derive(Debug)]
pub(crate) enum Waiter {
    Appended {
        session: SessionId,
        ticket: Ticket,
        settles: Vec<Held>,
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

/// The proposals of one group that are not committed yet.
#[derive(Debug, Default)]
pub(crate) struct Proposals {
    batch: Option<Batch>,
    waiters: Vec<Waiter>,
    proposed: VecDeque<(u64, Vec<Waiter>)>,
}

impl Proposals {
    /// Adds `batch` to the next entry, or makes it one of its own if both would be too large.
    /// What could not be proposed is handed back.
    pub(crate) fn add(
        &mut self,
        replica: &mut Replica,
        wall_ms: u64,
        batch: Batch,
        waiter: Waiter,
    ) -> Vec<Waiter> {
        let mut refused = Vec::new();
        match &mut self.batch {
            Some(joined) if joined.bytes() + batch.bytes() <= ENTRY_BYTES => joined.join(batch),
            Some(_) => {
                refused = self.propose(replica, wall_ms);
                self.batch = Some(batch);
            }
            None => self.batch = Some(batch),
        }
        self.waiters.push(waiter);
        refused
    }

    /// The batch that the next entry is made of.
    pub(crate) fn batch_mut(&mut self) -> &mut Batch {
        self.batch.get_or_insert_with(Batch::new)
    }

    pub(crate) fn is_gathering(&self) -> bool {
        self.batch.is_some()
    }

    /// Whether an entry that somebody waits for is not committed yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.batch.is_some() || !self.proposed.is_empty()
    }

    /// Proposes what was gathered as one entry. Without leadership its waiters are handed back.
    pub(crate) fn propose(&mut self, replica: &mut Replica, wall_ms: u64) -> Vec<Waiter> {
        let Some(batch) = self.batch.take() else { return Vec::new() };
        let waiters = std::mem::take(&mut self.waiters);
        if batch.is_empty() {
            assert!(waiters.is_empty(), "somebody waits for an entry that is never made");
            return waiters;
        }
        match replica.propose(batch.stamp(wall_ms)) {
            Ok(index) => {
                self.proposed.push_back((index, waiters));
                Vec::new()
            }
            Err(crate::replica::NotLeader) => waiters,
        }
    }

    /// Who waited for the entry `index`, now committed.
    pub(crate) fn committed(&mut self, index: u64) -> Vec<Waiter> {
        match self.proposed.front() {
            Some((first, _)) if *first == index => {
                self.proposed.pop_front().map(|(_, waiters)| waiters).unwrap_or_default()
            }
            Some((first, _)) => {
                assert!(*first > index, "an entry was committed before one below it");
                Vec::new()
            }
            None => Vec::new(),
        }
    }
}
