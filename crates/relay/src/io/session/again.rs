//! Sessions one after the other: how long to wait before the next.

use std::time::{Duration, Instant};

use client::{Backoff, Chance};
use tokio::sync::watch;

use crate::error::Error;
use crate::metrics::Metrics;

const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) };

/// Counts the sessions that ended early.
pub(in crate::io) struct Again {
    chance: Chance,
    attempt: u32,
}

impl Again {
    pub(in crate::io) fn new(seed: u64) -> Self {
        Self { chance: Chance::new(seed), attempt: 0 }
    }

    /// How long to wait after a session that began at `start` and ended with `error`.
    ///
    /// # Errors
    /// The error, if no waiting mends it.
    pub(in crate::io) fn after(
        &mut self,
        start: Instant,
        error: Error,
        metrics: &Metrics,
    ) -> Result<Duration, Error> {
        if !error.is_temporary() {
            return Err(error);
        }
        metrics.released.inc();
        self.attempt = if start.elapsed() > BACKOFF.longest { 0 } else { self.attempt + 1 };
        let delay = BACKOFF.delay(self.attempt, self.chance.next_bits());
        tracing::warn!(
            %error,
            "reading the log was interrupted; going on from the last confirmed row in {} ms",
            delay.as_millis()
        );
        Ok(delay)
    }
}

/// Waits; true: the relay is to stop.
pub(in crate::io) async fn pause(stop: &mut watch::Receiver<bool>, delay: Duration) -> bool {
    if *stop.borrow() {
        return true;
    }
    tokio::select! {
        () = tokio::time::sleep(delay) => false,
        _ = stop.changed() => true,
    }
}
