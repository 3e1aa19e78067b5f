//! Heartbeats: when one is due, and when a client that says nothing counts as dead.

use std::time::{Duration, Instant};

/// When this connection was heard and said something.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// The agreed interval; zero is none.
    pub(crate) interval: Duration,
    received_at: Instant,
    sent_at: Instant,
    /// Whether the client was read after the last step.
    is_read: bool,
}

impl Heartbeat {
    pub(crate) fn new(now: Instant) -> Self {
        Self { interval: Duration::ZERO, received_at: now, sent_at: now, is_read: true }
    }

    /// Bytes came.
    pub(crate) fn received(&mut self, now: Instant) {
        self.received_at = now;
    }

    /// Bytes are on their way to the client.
    pub(crate) fn sent(&mut self, now: Instant) {
        self.sent_at = now;
    }

    /// From now on the client is read, or not. Who is not read cannot be heard: its silence counts from when it is
    /// read again.
    pub(crate) fn reads(&mut self, now: Instant, is_read: bool) {
        let was_read = std::mem::replace(&mut self.is_read, is_read);
        if !was_read || !is_read {
            self.received_at = now;
        }
    }

    /// When its bytes came last.
    pub(crate) fn received_at(&self) -> Instant {
        self.received_at
    }

    /// When a heartbeat is due: half the interval after the last bytes.
    pub(crate) fn next(&self) -> Option<Instant> {
        (!self.interval.is_zero()).then(|| self.sent_at + self.interval / 2)
    }

    /// When the client counts as dead: two intervals after its last bytes, if it is being read.
    pub(crate) fn dead_at(&self) -> Option<Instant> {
        (self.is_read && !self.interval.is_zero()).then(|| self.received_at + self.interval * 2)
    }
}

#[cfg(test)]
mod tests;
