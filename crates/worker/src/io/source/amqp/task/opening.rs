//! A connection that is being opened, again and again, and futures that may not be there.

use std::future::pending;
use std::time::{Duration, Instant};

use client::{Backoff, Chance};

use crate::error::Error;
use crate::io::source::BoxFuture;

/// A connection that is being opened, again and again.
pub(super) struct Opening<T> {
    future: Option<BoxFuture<Result<T, Error>>>,
    not_before: Option<Instant>,
    attempt: u32,
    chance: Chance,
}

impl<T> Opening<T> {
    pub(super) fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        let chance = Chance::new(RandomState::new().hash_one(0));
        Self { future: None, not_before: None, attempt: 0, chance }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.future.is_none() && self.not_before.is_none_or(|at| at <= now)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.future.is_none())
    }

    pub(super) fn begin(&mut self, future: BoxFuture<Result<T, Error>>) {
        self.not_before = None;
        self.future = Some(future);
    }

    pub(super) fn stop(&mut self) {
        (self.future, self.not_before) = (None, None);
    }

    pub(super) fn succeeded(&mut self) {
        (self.attempt, self.not_before) = (0, None);
    }

    /// When it is tried again.
    pub(super) fn failed(&mut self, now: Instant) -> Duration {
        let delay = Backoff::default().delay(self.attempt, self.chance.next_bits());
        self.attempt = self.attempt.saturating_add(1);
        self.not_before = Some(now + delay);
        delay
    }

    pub(super) async fn opened(&mut self) -> Result<T, Error> {
        let opened = wanted(&mut self.future).await;
        self.future = None;
        opened
    }
}

/// Waits for ever if there is none.
pub(super) async fn wanted<T>(future: &mut Option<BoxFuture<T>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}
