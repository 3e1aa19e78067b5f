//! Who waits for which entry. Many proposals become one entry.
//!
//! An entry that was proposed is committed, or a later leader's entry takes its place: then its
//! waiters hear that it is not known to be logged. So an entry is known by index and term.

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

impl Waiter {
    fn session(&self) -> Option<SessionId> {
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
}

/// The proposals of one group that are not committed yet.
#[derive(Debug, Default)]
pub(crate) struct Proposals {
    batch: Option<Batch>,
    waiters: Vec<Waiter>,
    proposed: VecDeque<Proposed>,
}

#[derive(Debug)]
struct Proposed {
    index: u64,
    term: u64,
    waiters: Vec<Waiter>,
}

/// What a committed entry means for those who wait.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    /// Their entry is this one.
    pub(crate) committed: Vec<Waiter>,
    /// Another leader's entry stands, or will stand, where theirs was to be.
    pub(crate) lost: Vec<Waiter>,
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

    /// Whether something that `session` asked for is not committed yet.
    pub(crate) fn is_waiting_for(&self, session: SessionId) -> bool {
        let proposed = self.proposed.iter().flat_map(|proposed| &proposed.waiters);
        self.waiters.iter().chain(proposed).any(|waiter| waiter.session() == Some(session))
    }

    /// Proposes what was gathered as one entry. Without leadership its waiters are handed back.
    pub(crate) fn propose(&mut self, replica: &mut Replica, wall_ms: u64) -> Vec<Waiter> {
        let Some(batch) = self.batch.take() else { return Vec::new() };
        let waiters = std::mem::take(&mut self.waiters);
        if batch.is_empty() && waiters.is_empty() {
            return waiters;
        }
        match replica.propose(batch.stamp(wall_ms)) {
            Ok(index) => {
                self.note(index, replica.term(), waiters);
                Vec::new()
            }
            Err(crate::replica::NotLeader) => waiters,
        }
    }

    fn note(&mut self, index: u64, term: u64, waiters: Vec<Waiter>) {
        // A leader's log only grows, so what was proposed at or above this index was overwritten by
        // entries that are not committed here yet: its waiters are told when they are.
        self.proposed.push_back(Proposed { index, term, waiters });
    }

    /// Who waited for the entry `index` of `term`, now committed, and who waits in vain.
    pub(crate) fn committed(&mut self, index: u64, term: u64) -> Fates {
        let mut fates = Fates::default();
        while let Some(front) = self.proposed.front() {
            let is_this = front.index == index && front.term == term;
            // Entries above a committed one are of its term or later ones.
            let is_lost = front.index <= index || front.term < term;
            if !is_this && !is_lost {
                break;
            }
            let waiters = self.proposed.pop_front().map(|front| front.waiters).unwrap_or_default();
            if is_this { fates.committed = waiters } else { fates.lost.extend(waiters) }
        }
        fates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(ticket: u64) -> Waiter {
        Waiter::Appended { session: SessionId(1), ticket: Ticket(ticket), settles: Vec::new() }
    }

    fn tickets(waiters: &[Waiter]) -> Vec<u64> {
        let ticket = |waiter: &Waiter| match waiter {
            Waiter::Appended { ticket, .. } => ticket.0,
            other => panic!("{other:?}"),
        };
        waiters.iter().map(ticket).collect()
    }

    fn proposals(proposed: &[(u64, u64)]) -> Proposals {
        let mut proposals = Proposals::default();
        for &(index, term) in proposed {
            proposals.note(index, term, vec![waiter(index * 10 + term)]);
        }
        proposals
    }

    #[test]
    fn waiters_hear_of_their_own_entry_and_of_no_other() {
        let mut proposals = proposals(&[(5, 1), (7, 1)]);
        assert!(proposals.committed(4, 1).committed.is_empty());
        assert_eq!(tickets(&proposals.committed(5, 1).committed), [51]);
        let settles = proposals.committed(6, 1);
        assert!(settles.committed.is_empty() && settles.lost.is_empty());
        assert_eq!(tickets(&proposals.committed(7, 1).committed), [71]);
        assert!(!proposals.is_waiting());
    }

    #[test]
    fn an_entry_that_another_leader_overwrote_is_not_confirmed_by_the_one_in_its_place() {
        let mut proposals = proposals(&[(5, 1), (6, 1), (7, 1)]);
        assert_eq!(tickets(&proposals.committed(5, 1).committed), [51]);
        let fates = proposals.committed(6, 2);
        assert!(fates.committed.is_empty(), "{fates:?}");
        assert_eq!(tickets(&fates.lost), [61, 71]);
    }

    #[test]
    fn what_was_proposed_after_leadership_came_back_outlives_what_was_lost_before() {
        let mut proposals = proposals(&[(5, 1), (6, 1), (7, 3)]);
        let fates = proposals.committed(5, 2);
        assert_eq!(tickets(&fates.lost), [51, 61]);
        assert!(proposals.committed(6, 3).committed.is_empty());
        assert_eq!(tickets(&proposals.committed(7, 3).committed), [73]);
    }

    #[test]
    fn what_a_session_waits_for_is_known_until_it_is_committed() {
        let mut proposals = proposals(&[(5, 1)]);
        assert!(proposals.is_waiting_for(SessionId(1)) && !proposals.is_waiting_for(SessionId(2)));
        proposals.committed(5, 1);
        assert!(!proposals.is_waiting_for(SessionId(1)));
    }
}
