//! Rates, told by floats: the pool does it in whole numbers.

use std::time::Instant;

/// Of the rates: they are floats here.
const ERROR: f64 = 1e-3;

/// A rate with its burst, in floats.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    tokens: f64,
    at: Instant,
    rate: f64,
    burst: f64,
}

impl Level {
    pub(crate) fn new(rate: f64, burst: f64, now: Instant) -> Self {
        Self { tokens: burst, at: now, rate, burst }
    }

    fn pass(&mut self, now: Instant) {
        self.tokens = (self.tokens + self.rate * (now - self.at).as_secs_f64()).min(self.burst);
        self.at = now;
    }

    /// Goes on with another rate.
    pub(crate) fn change(&mut self, rate: f64, burst: f64, now: Instant) {
        self.pass(now);
        (self.rate, self.burst) = (rate, burst);
        self.tokens = self.tokens.min(burst);
    }

    /// False if nothing may be taken.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        self.pass(now);
        self.tokens -= 1.0;
        self.tokens >= -ERROR
    }
}

/// A burst that nobody set.
pub(crate) fn usual_burst(rate: f64) -> f64 {
    (rate / 20.0).ceil().max(2.0)
}
