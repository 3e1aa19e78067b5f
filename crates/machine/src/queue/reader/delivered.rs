//! How far a level's messages may have been with clients: what a new leader flags as redelivered.
//!
//! A leader keeps who has which message in memory alone. So that the next one knows which messages no
//! client can have seen, a mark is logged ahead of deliveries: a message goes out for the first time
//! only below the mark. The mark runs ahead by a window: what is flagged without need after a change of
//! leader is less than that. The window is as long as the consumers' credit at first, grows while
//! deliveries wait for the log, and shrinks while they do not.
//!
//! Deliveries wait for the mark: a consumer holds what it is given meanwhile, so neither limits nor
//! times to live have to do with that. In queues declared before the cluster was at version 7 messages
//! wait, and are ready meanwhile. Those with a length limit have no mark, for a message that a consumer
//! has room for must not be thrown away, and neither have queues declared before there were marks: all
//! their messages are flagged.

use std::ops::Range;

use crate::encoding::{Corrupt, Reader, put_u64};
use crate::limits::{DELIVERED_CREDIT_MAX, DELIVERED_WINDOW_MAX, DELIVERED_WINDOW_MS, SEQ_MAX};

#[derive(Clone, Debug, Default)]
pub(crate) struct Delivered {
    /// Replicated: no message from here on was ever with a client. 0: that is not kept.
    to: u64,
    /// Replicated: deliveries wait for the mark. Otherwise messages do.
    holds_deliveries: bool,
    // Leader-local.
    /// What the log was asked for, or is to be: at least `to`.
    asked_to: u64,
    asked_ms: u64,
    window: u64,
    /// The log is to be asked.
    is_wanted: bool,
    /// A message waits for the mark.
    is_held_up: bool,
    /// How far deliveries came, where those wait for the mark.
    given_to: u64,
    /// Something has waited, since the log was asked last.
    has_waited: bool,
    /// Something had, when the log was asked last.
    had_waited: bool,
}

impl Delivered {
    /// Values are kept from here on: nothing has come yet.
    pub(crate) fn track(&mut self) {
        self.to = self.to.max(1);
        self.asked_to = self.asked_to.max(self.to);
    }

    /// The same, and deliveries wait. What is kept already stays as it is.
    pub(crate) fn track_deliveries(&mut self) {
        self.track();
        self.holds_deliveries = true;
    }

    /// The same of somebody who begins at `seq`: what is before it, nobody has from it.
    pub(crate) fn track_deliveries_from(&mut self, seq: u64) {
        self.to = self.to.max(seq);
        self.track_deliveries();
    }

    pub(crate) fn is_tracked(&self) -> bool {
        self.to > 0
    }

    /// The mark, as the log has it.
    pub(crate) fn advance(&mut self, to: u64) {
        if self.is_tracked() {
            self.to = self.to.max(to);
            self.asked_to = self.asked_to.max(self.to);
            self.is_held_up = false;
        }
    }

    pub(crate) fn lead(&mut self) {
        let Self { to, holds_deliveries, .. } = *self;
        *self = Self { to, holds_deliveries, asked_to: to, ..Self::default() };
    }

    /// Below this a message may have been with a client, of those below `next_seq`.
    pub(crate) fn flagged_below(&self, next_seq: u64) -> u64 {
        if self.is_tracked() { self.to.min(next_seq) } else { next_seq }
    }

    /// What of a run at the front may go out now; none: the mark has to be logged first.
    #[inline]
    pub(crate) fn allow(&mut self, run: Range<u64>) -> Option<Range<u64>> {
        // Planted: it goes out before the log has heard of it.
        if run.end <= self.to || planted::is("delivered_unmarked") {
            return Some(run);
        }
        self.is_held_up = run.start >= self.to;
        self.has_waited |= self.is_held_up;
        (!self.is_held_up).then_some(run.start..self.to)
    }

    /// Whether a message waits for the mark.
    pub(crate) fn is_held_up(&self) -> bool {
        self.is_held_up
    }

    /// Whether a message or a delivery waits for the mark.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_held_up || self.given_to > self.to
    }

    pub(crate) fn holds_deliveries(&self) -> bool {
        self.holds_deliveries
    }

    /// Up to where deliveries need not wait.
    #[inline]
    pub(crate) fn marked_to(&self) -> u64 {
        if self.holds_deliveries { self.to } else { u64::MAX }
    }

    /// What goes to a consumer. True: the delivery waits for the mark.
    #[inline]
    pub(crate) fn give(&mut self, run: &Range<u64>) -> bool {
        if run.end <= self.marked_to() {
            return false;
        }
        self.given_to = self.given_to.max(run.end);
        self.has_waited = true;
        true
    }

    /// Asks for a mark ahead of `front`, the first message that waits or comes next: for consumers that
    /// are there, and for what waits. `credit`: what consumers may hold.
    #[inline]
    pub(crate) fn look_ahead(
        &mut self,
        front: u64,
        has_consumers: bool,
        credit: impl FnOnce() -> u64,
        now_ms: u64,
    ) {
        let is_stuck = (self.is_held_up && front >= self.asked_to) || self.given_to > self.asked_to;
        // What came back may be in front of what went out.
        let front = front.max(self.given_to);
        let is_near = front + self.window.max(1).div_ceil(2) > self.asked_to;
        if !self.is_tracked() || !is_near || !(has_consumers || is_stuck) {
            return;
        }
        let is_slow = now_ms.saturating_sub(self.asked_ms) >= DELIVERED_WINDOW_MS;
        // On a slow disk each wait is long: what waits counts, not how long the last window lasted.
        let had_waited = std::mem::replace(&mut self.had_waited, self.has_waited);
        let window = match (std::mem::take(&mut self.has_waited), had_waited || !is_slow) {
            (true, _) => self.window.saturating_mul(4),
            (false, true) => self.window,
            (false, false) => self.window / 4,
        };
        let at_once = credit().max(self.given_to.saturating_sub(self.to));
        self.window = window.clamp(at_once.clamp(1, DELIVERED_CREDIT_MAX), DELIVERED_WINDOW_MAX);
        self.asked_ms = now_ms;
        self.asked_to = self.asked_to.max(front) + self.window;
        self.is_wanted = true;
    }

    /// Whether there is a mark for the log.
    pub(crate) fn has_wanted(&self) -> bool {
        self.is_wanted
    }

    pub(crate) fn take_wanted(&mut self) -> Option<u64> {
        std::mem::take(&mut self.is_wanted).then_some(self.asked_to)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, version: u8) {
        put_u64(out, self.to);
        if version >= 5 {
            out.push(u8::from(self.holds_deliveries));
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>, version: u8) -> Result<Self, Corrupt> {
        let to = reader.u64()?;
        let holds_deliveries = version >= 5 && reader.bool()?;
        if to > SEQ_MAX || (holds_deliveries && to == 0) {
            return Err(reader.corrupt());
        }
        Ok(Self { to, holds_deliveries, asked_to: to, ..Self::default() })
    }
}
