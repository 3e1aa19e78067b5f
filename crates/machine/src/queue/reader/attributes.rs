//! What some messages have beyond their place: when they expire or are due, how often they came back,
//! their size, why they are dead.

use super::delayed::DelayedMessages;
use super::leaving::LeavingMessages;
use super::values::Values;
use super::withheld::WithheldMessages;
use crate::encoding::{Corrupt, Reader};
use crate::queue::seqs::Seqs;
use crate::ranges::Ranges;

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
    /// A part of its own in snapshots.
    pub(crate) withheld: WithheldMessages,
    // Leader-local.
    /// Of the bodies of what is ready.
    pub(crate) ready_bytes: u64,
    /// Some of the run being gathered are not ready at once.
    pub(super) has_delayed_in_run: bool,
}

impl MessageAttributes {
    pub(crate) fn bytes_of(&self, seqs: Seqs<'_>) -> u64 {
        if self.sizes.is_empty() {
            return 0;
        }
        seqs.ranges().fold(0, |sum, range| sum.saturating_add(self.sizes.sum(range)))
    }

    pub(super) fn forget(&mut self, gone: &Ranges) {
        self.expiry.remove_all(gone);
        self.returns.remove_all(gone);
        self.sizes.remove_all(gone);
        self.delayed.forget_all(gone);
        self.withheld.forget(gone);
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.expiry.encode(out);
        self.returns.encode(out);
        self.sizes.encode(out);
        self.delayed.encode(out);
        self.leaving.encode(out);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(Self {
            expiry: Values::read(reader)?,
            returns: Values::read(reader)?,
            sizes: Values::read(reader)?,
            delayed: DelayedMessages::read(reader)?,
            leaving: LeavingMessages::read(reader)?,
            ..Self::default()
        })
    }

    /// Whether nothing is known of any message.
    pub(super) fn is_empty(&self) -> bool {
        let values = [&self.expiry, &self.returns, &self.sizes];
        values.into_iter().all(Values::is_empty)
            && self.delayed.is_empty()
            && self.leaving.is_empty()
            && self.withheld.is_empty()
    }

    /// Whether what is dead is not settled, and dead once.
    pub(crate) fn is_of(&self, open: &Ranges) -> bool {
        self.leaving.union().is_some_and(|dead| dead.intersect(open).len() == dead.len())
    }
}
