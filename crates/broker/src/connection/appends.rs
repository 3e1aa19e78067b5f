//! Published messages on their way into the log: one batch for each group and socket read.

use std::time::Instant;

use cluster::Request;
use machine::{Attributes, Batch, GroupId, QueueId};

use crate::connection::tickets::{ChannelRef, Tickets, Waiting};
use crate::limits;

/// The batch of one group.
#[derive(Debug)]
struct Slot {
    group: GroupId,
    batch: Batch,
    /// Confirms that wait for it.
    runs: Vec<(ChannelRef, u64)>,
}

/// Batches that are gathered and not sent.
#[derive(Debug, Default)]
pub(crate) struct Appends {
    slots: Vec<Slot>,
    /// Grows with every flush: the same slot means another batch then.
    round: u64,
    /// Bytes that were sent and are not answered.
    unlogged_bytes: usize,
    /// When the step began; `None`: there was none.
    now: Option<Instant>,
}

impl Appends {
    /// A step begins.
    pub(crate) fn begin_step(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// When the step began.
    pub(crate) fn now(&self) -> Option<Instant> {
        self.now
    }

    pub(crate) fn round(&self) -> u64 {
        self.round
    }

    /// Sends what is gathered, if a message for so many groups should go into new batches.
    #[inline]
    pub(crate) fn make_room(
        &mut self,
        groups: usize,
        tickets: &mut Tickets,
        requests: &mut Vec<Request>,
    ) {
        let is_full = self.slots.iter().any(|slot| slot.batch.bytes() >= limits::APPEND_BYTES)
            || self.slots.len() + groups > limits::APPEND_SLOTS_MAX;
        if is_full {
            self.flush(tickets, requests);
        }
    }

    /// Adds a message for queues of one group. Gives the slot it waits for, as a bit.
    #[inline]
    pub(crate) fn enqueue(
        &mut self,
        group: GroupId,
        queues: &[QueueId],
        attributes: &Attributes,
        head: &[&[u8]],
        body: &[u8],
    ) -> u64 {
        let place = self.place(group);
        self.slots[place].batch.enqueue_with(queues, attributes, head, body);
        1 << place
    }

    /// Adds the cancellation of a delayed message. Gives the slot it waits for, as a bit.
    pub(crate) fn cancel(&mut self, group: GroupId, queues: &[QueueId], key: u128) -> u64 {
        let place = self.place(group);
        self.slots[place].batch.cancel_delayed(queues, key);
        1 << place
    }

    #[inline]
    fn place(&mut self, group: GroupId) -> usize {
        let place = match self.slots.iter().position(|slot| slot.group == group) {
            Some(place) => place,
            None => {
                self.slots.push(Slot { group, batch: Batch::new(), runs: Vec::new() });
                self.slots.len() - 1
            }
        };
        assert!(place < limits::APPEND_SLOTS_MAX, "a message for more groups than there can be");
        place
    }

    /// The batches in `slots` carry a part of this run.
    pub(crate) fn remember(&mut self, slots: u64, channel: ChannelRef, run: u64) {
        let end = u64::BITS - slots.leading_zeros();
        assert!(end as usize <= self.slots.len(), "a confirm waits for batches that are gathered");
        for (place, slot) in self.slots.iter_mut().enumerate() {
            if slots & (1 << place) != 0 {
                slot.runs.push((channel, run));
            }
        }
    }

    /// Bytes that were sent and are not answered.
    pub(crate) fn unlogged_bytes(&self) -> usize {
        self.unlogged_bytes
    }

    /// So many bytes are sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.unlogged_bytes += bytes;
    }

    /// So many bytes that were sent are answered.
    pub(crate) fn answered(&mut self, bytes: usize) {
        assert!(bytes <= self.unlogged_bytes, "what is answered was sent");
        self.unlogged_bytes -= bytes;
    }

    pub(crate) fn flush(&mut self, tickets: &mut Tickets, requests: &mut Vec<Request>) {
        if self.slots.is_empty() {
            return;
        }
        self.round += 1;
        for Slot { group, batch, runs } in self.slots.drain(..) {
            let bytes = batch.bytes();
            self.unlogged_bytes += bytes;
            let sent_at = self.now;
            let ticket = tickets.issue(Waiting::Append { group, runs, bytes, sent_at });
            requests.push(Request::Append { group, ticket, batch, settles: Vec::new() });
        }
    }
}
