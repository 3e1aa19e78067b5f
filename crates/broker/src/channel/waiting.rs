//! What a channel waits for, and the frames that come meanwhile.

use bytes::BytesMut;

use super::consume::{Attaching, Detaching};
use super::get::Fetch;
use super::publish::Mode;
use super::topology;
use super::tx::{self, Tx};
use crate::connection::unfinished::Unfinished;

/// What a channel waits for.
#[derive(Debug)]
pub(super) enum Pending {
    Topology(topology::Pending),
    Attach(Attaching),
    Detach(Detaching),
    Get(Fetch),
    Tx(tx::Pending),
    /// The client's `channel.close`.
    Leave {
        unanswered: usize,
    },
}

/// The one thing that a channel does at a time.
#[derive(Debug, Default)]
pub(super) struct Work {
    pending: Option<Pending>,
    /// The method that `pending` belongs to: what a refusal names.
    ids: (u16, u16),
    deferred: BytesMut,
}

impl Work {
    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    pub(super) fn ids(&self) -> (u16, u16) {
        self.ids
    }

    /// The method of these `ids` waits for something, if for anything.
    pub(super) fn wait_for(&mut self, pending: Option<Pending>, ids: (u16, u16)) {
        if pending.is_some() {
            self.ids = ids;
        }
        self.pending = pending;
    }

    pub(super) fn take(&mut self) -> Option<Pending> {
        self.pending.take()
    }

    /// The transaction that waits for room in queues.
    pub(super) fn take_reserving(&mut self) -> Option<tx::Pending> {
        match self.pending.take() {
            Some(Pending::Tx(reserving @ tx::Pending::Reserve { .. })) => Some(reserving),
            other => {
                self.pending = other;
                None
            }
        }
    }

    /// What a transaction gathered that is not handed over, also if it is being committed and waits for room.
    pub(super) fn take_open_tx(&mut self, mode: &mut Mode) -> Option<Tx> {
        match (self.take_reserving(), mode) {
            (Some(tx::Pending::Reserve { tx, .. }), _) => Some(*tx),
            (_, Mode::Tx(tx)) => Some(std::mem::take(&mut **tx)),
            (_, Mode::Plain | Mode::Confirm(_)) => None,
        }
    }

    /// Keeps a frame until the channel waits for nothing.
    pub(super) fn set_aside(&mut self, frame: &[u8], unfinished: &mut Unfinished) {
        self.deferred.extend_from_slice(frame);
        unfinished.deferred_bytes += frame.len();
    }

    /// Whether frames were set aside that can be taken up now.
    pub(super) fn is_resumable(&self) -> bool {
        self.pending.is_none() && !self.deferred.is_empty()
    }

    /// Frames that were set aside, now that nothing is waited for.
    pub(super) fn take_deferred(&mut self, unfinished: &mut Unfinished) -> Option<BytesMut> {
        if !self.is_resumable() {
            return None;
        }
        unfinished.deferred_bytes -= self.deferred.len();
        Some(std::mem::take(&mut self.deferred))
    }

    /// What was set aside is not done.
    pub(super) fn drop_deferred(&mut self, unfinished: &mut Unfinished) {
        unfinished.deferred_bytes -= self.deferred.len();
        self.deferred = BytesMut::new();
    }

    /// Nothing is waited for any more, and nothing that was set aside is done.
    pub(super) fn end(&mut self, unfinished: &mut Unfinished) {
        self.pending = None;
        self.drop_deferred(unfinished);
    }
}
