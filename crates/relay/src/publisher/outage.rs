//! Whether the broker is well: an outage is no row's fault, and no attempt is counted for it.

use std::time::{Duration, Instant};

use client::Backoff;

/// Waits after the broker was lost or refused everything.
const PAUSE: Backoff =
    Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) };
/// So often everything may be refused, or nothing be answered, before the rows make way for others.
const PATIENCE: u32 = 3;

/// What is known of the broker.
#[derive(Debug)]
pub(super) struct Outage {
    /// Pauses, whole refusals and silences since something was confirmed.
    pauses: u32,
    refusals: u32,
    silences: u32,
    /// Rows that were to show whether anything is taken.
    probes: u32,
    pub(super) pause_until: Instant,
    pub(super) confirmed_at: Option<Instant>,
    /// Something was ever confirmed.
    pub(super) has_confirmed: bool,
    silence_first: Duration,
    silence_max: Duration,
    /// Connections that were cut because nothing was answered, since something was confirmed.
    cuts: u32,
    /// Until then it blocked publishers: what was published before may have waited for that.
    blocked_until: Instant,
}

impl Outage {
    pub(super) fn new(silence_first: Duration, silence_max: Duration, now: Instant) -> Self {
        Self {
            pauses: 0,
            refusals: 0,
            silences: 0,
            probes: 0,
            pause_until: now,
            confirmed_at: None,
            has_confirmed: false,
            silence_first,
            silence_max,
            cuts: 0,
            blocked_until: now,
        }
    }

    pub(super) fn confirmed(&mut self, now: Instant) {
        (self.pauses, self.refusals, self.silences, self.cuts) = (0, 0, 0, 0);
        self.probes = 0;
        self.confirmed_at = Some(now);
        self.has_confirmed = true;
    }

    pub(super) fn pause(&mut self, now: Instant) {
        self.pause_until = now + PAUSE.bound(self.pauses);
        self.pauses = self.pauses.saturating_add(1);
    }

    pub(super) fn is_paused(&self, now: Instant) -> bool {
        now < self.pause_until
    }

    /// All that was in flight is refused. Whether that was so often enough.
    pub(super) fn refused_all(&mut self) -> bool {
        self.refusals += 1;
        self.refusals >= PATIENCE
    }

    /// How long to wait before one row goes out beside refused ones.
    pub(super) fn next_probe(&mut self) -> Duration {
        self.probes = self.probes.saturating_add(1);
        PAUSE.bound(self.probes - 1)
    }

    /// A message has waited too long. Whether nothing at all was answered often enough.
    pub(super) fn silent(&mut self) -> bool {
        self.silences += 1;
        self.silences >= PATIENCE
    }

    /// The broker blocks publishers.
    pub(super) fn blocked(&mut self, now: Instant) {
        self.blocked_until = now;
    }

    /// How long the oldest message may wait.
    fn timeout(&self) -> Duration {
        self.silence_first.saturating_mul(1 << self.cuts.min(10)).min(self.silence_max)
    }

    /// When a message that is waited for since `since` has waited too long.
    pub(super) fn ends_at(&self, since: Instant) -> Instant {
        since.max(self.blocked_until) + self.timeout()
    }

    /// The connection is cut because the message had waited for so long.
    pub(super) fn cut(&mut self) -> Duration {
        let timeout = self.timeout();
        self.cuts = self.cuts.saturating_add(1);
        timeout
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a test has a clock")]
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_broker_that_has_blocked_publishers_has_its_time_from_the_end_of_that() {
        let published = Instant::now();
        let mut outage = Outage::new(30 * SECOND, 240 * SECOND, published);
        // It blocks for a minute: its answers come when it has read what was sent meanwhile.
        outage.blocked(published + 60 * SECOND);
        assert_eq!(outage.ends_at(published), published + 90 * SECOND);
    }

    #[test]
    fn each_silence_in_a_row_may_last_longer() {
        let published = Instant::now();
        let mut outage = Outage::new(30 * SECOND, 240 * SECOND, published);
        let waits: Vec<Duration> = (0..5).map(|_| outage.cut()).collect();
        assert_eq!(waits, [30, 60, 120, 240, 240].map(Duration::from_secs));
        outage.confirmed(published);
        assert_eq!(outage.ends_at(published), published + 30 * SECOND);
    }
}
