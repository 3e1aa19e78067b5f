//! How often something may happen: a token bucket.

use std::time::Duration;

/// So many at once, and so many per second from then on. Time counts from any moment on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    per_second: f64,
    burst: f64,
    tokens: f64,
    at: Duration,
}

impl Pace {
    pub(crate) fn new(per_second: u32, burst: u32, now: Duration) -> Self {
        let (per_second, burst) = (f64::from(per_second.max(1)), f64::from(burst.max(1)));
        Self { per_second, burst, tokens: burst, at: now }
    }

    /// How long the next one has to wait.
    pub(crate) fn wait(&mut self, now: Duration) -> Duration {
        self.refill(now);
        if self.tokens >= 1.0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64((1.0 - self.tokens) / self.per_second)
    }

    /// One has happened.
    pub(crate) fn take(&mut self, now: Duration) {
        self.refill(now);
        self.tokens -= 1.0;
    }

    /// Whether as many may come at once as ever.
    pub(crate) fn is_rested(&mut self, now: Duration) -> bool {
        self.refill(now);
        self.tokens >= self.burst
    }

    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.tokens = (self.tokens + passed * self.per_second).min(self.burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_may_come_at_once_and_the_others_one_after_the_other() {
        let start = Duration::from_secs(7);
        let mut pace = Pace::new(100, 3, start);
        for _ in 0..3 {
            assert_eq!(pace.wait(start), Duration::ZERO);
            pace.take(start);
        }
        assert_eq!(pace.wait(start).as_millis(), 10);
        let later = start + Duration::from_millis(10);
        assert_eq!(pace.wait(later), Duration::ZERO);
        pace.take(later);
        assert!(pace.wait(later) > Duration::ZERO);
    }

    #[test]
    fn a_quiet_time_saves_up_no_more_than_a_burst() {
        let start = Duration::from_secs(7);
        let mut pace = Pace::new(100, 3, start);
        let later = start + Duration::from_secs(60);
        for _ in 0..3 {
            assert_eq!(pace.wait(later), Duration::ZERO);
            pace.take(later);
        }
        assert!(pace.wait(later) > Duration::ZERO);
    }
}
