//! When a lost connection is tried again, and when it is given up.

use std::time::{Duration, Instant};

use crate::backoff::Chance;
use crate::error::Error;
use crate::options::Options;

/// When to connect again, and when to give up.
pub(super) struct Retry {
    options: Options,
    chance: Chance,
    attempt: u32,
    not_before: Option<Instant>,
    give_up_at: Option<Instant>,
}

impl Retry {
    pub(super) fn new(options: &Options) -> Self {
        let seed = options.seed.unwrap_or_else(|| {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one(std::process::id())
        });
        Self {
            options: options.clone(),
            chance: Chance::new(seed),
            attempt: 0,
            not_before: None,
            give_up_at: None,
        }
    }

    /// Waits until the next attempt is due.
    pub(super) async fn wait(&self) {
        if let Some(due) = self.not_before {
            tokio::time::sleep_until(due.into()).await;
        }
    }

    /// The connection works again.
    pub(super) fn succeeded(&mut self) {
        (self.attempt, self.not_before, self.give_up_at) = (0, None, None);
    }

    /// A connection ended with `error`: Ok if it is worth another attempt.
    pub(super) fn lost(&mut self, error: Error) -> Result<(), Error> {
        tracing::warn!(%error, "the connection is lost");
        self.failed(error)
    }

    /// An attempt ended with `error`: Ok if it is worth another.
    pub(super) fn failed(&mut self, error: Error) -> Result<(), Error> {
        let now = Instant::now();
        let give_up_at = *self.give_up_at.get_or_insert(now + self.options.retry_for);
        let delay: Duration = self.options.backoff.delay(self.attempt, self.chance.next_bits());
        if !error.is_temporary() || now + delay >= give_up_at {
            return Err(error);
        }
        self.attempt = self.attempt.saturating_add(1);
        self.not_before = Some(now + delay);
        Ok(())
    }
}
