//! Delays between attempts at a broker: longer each time, all of it chance.

use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use service::{Attempts, Jitter};

/// How often something has failed in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { failures: 0 }
    }

    /// It worked.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// It failed: when to try again.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let backoff =
            client::Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(10) };
        let attempts = Attempts { max: u32::MAX, backoff, jitter: Jitter::Half };
        self.failures = self.failures.saturating_add(1);
        attempts.delay(self.failures, chance())
    }
}

/// 64 bits of chance.
pub(crate) fn chance() -> u64 {
    let mut bytes = [0; 8];
    // The pool of a machine that has started gives so few at once.
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}
