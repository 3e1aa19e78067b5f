//! A token bucket in whole numbers: never above `rate * t + burst` in any window, and never a token less than that.

use std::time::{Duration, Instant};

use crate::limits::RATE_MAX;

/// What one token is counted in: a millionth token per second, for one nanosecond, is one part.
const TOKEN: u128 = 1_000_000_000_000_000;

/// A token bucket.
///
/// `parts` is the level at `at`; it grows by `rate_micro` per nanosecond, up to `burst` tokens.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// Tokens per second, times a million, rounded down.
    rate_micro: u64,
    burst: u32,
    parts: u128,
    at: Instant,
}

/// How many may start at once, where nobody said: 50 ms of the rate, which is 1 % of five seconds.
pub(super) fn usual_burst(rate: f64) -> u32 {
    ((rate.min(RATE_MAX) / 20.0).ceil() as u32).max(2)
}

impl Bucket {
    /// A full bucket.
    pub(super) fn full(rate: f64, burst: u32, now: Instant) -> Self {
        Self { rate_micro: rate_micro(rate), burst, parts: u128::from(burst) * TOKEN, at: now }
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let has_token = self.parts >= TOKEN;
        if has_token {
            self.parts -= TOKEN;
        }
        has_token
    }

    /// When there will be a token; none: never, the rate is nothing.
    pub(super) fn ready_at(&mut self, now: Instant) -> Option<Instant> {
        self.refill(now);
        self.grown_to(TOKEN)
    }

    /// When it will be full, and so remember nothing; none: never.
    pub(super) fn full_at(&mut self, now: Instant) -> Option<Instant> {
        self.refill(now);
        self.grown_to(u128::from(self.burst) * TOKEN)
    }

    /// Goes on with another rate and burst. What was saved up stays, up to the new burst.
    pub(super) fn change(&mut self, rate: f64, burst: u32, now: Instant) {
        self.refill(now);
        self.rate_micro = rate_micro(rate);
        self.burst = burst;
        if cfg!(not(bug_pool_rate_leak)) {
            self.parts = self.parts.min(u128::from(burst) * TOKEN);
        }
    }

    /// Tokens per second.
    pub(super) fn rate(&self) -> f64 {
        self.rate_micro as f64 / 1e6
    }

    fn refill(&mut self, now: Instant) {
        let nanos = now.saturating_duration_since(self.at).as_nanos();
        if nanos > 0 {
            let grown = self.parts + nanos.saturating_mul(u128::from(self.rate_micro));
            let most = u128::from(self.burst) * TOKEN;
            self.parts = if cfg!(bug_pool_rate_leak) { grown } else { grown.min(most) };
            self.at = now;
        }
    }

    /// When the level is this high, from the level of the last refill.
    fn grown_to(&self, parts: u128) -> Option<Instant> {
        let missing = parts.saturating_sub(self.parts);
        if missing == 0 {
            return Some(self.at);
        }
        if self.rate_micro == 0 {
            return None;
        }
        let nanos = missing.div_ceil(u128::from(self.rate_micro));
        self.at.checked_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

fn rate_micro(rate: f64) -> u64 {
    // A float that is negative or no number becomes 0.
    (rate.min(RATE_MAX) * 1e6) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::start;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_full_bucket_gives_its_burst_and_then_its_rate() {
        let mut now = start();
        let mut bucket = Bucket::full(10.0, 3, now);
        assert_eq!((0..5).filter(|_| bucket.take(now)).count(), 3);
        let next = bucket.ready_at(now).unwrap();
        assert_eq!(next - now, Duration::from_millis(100));
        assert!(!bucket.take(next - Duration::from_nanos(1)));
        now = next;
        assert!(bucket.take(now));
        assert!(!bucket.take(now));
    }

    #[test]
    fn without_a_rate_there_is_no_token_ever() {
        let now = start();
        let mut bucket = Bucket::full(5.0, 1, now);
        assert!(bucket.take(now));
        bucket.change(0.0, 1, now);
        assert_eq!(bucket.ready_at(now + SECOND), None);
        assert!(!bucket.take(now + 1000 * SECOND));
        bucket.change(1.0, 1, now + 1000 * SECOND);
        assert!(bucket.take(now + 1001 * SECOND));
    }

    #[test]
    fn any_five_seconds_are_exact_to_a_hundredth_although_the_wakes_are_late() {
        for rate in [100.0, 333.3, 1000.0, 25_000.0] {
            let first = start();
            let mut now = first;
            let mut bucket = Bucket::full(rate, usual_burst(rate), now);
            while bucket.take(now) {}
            let mut taken = 0;
            // Woken once a millisecond, and 3 ms late.
            while now < first + 5 * SECOND {
                now = bucket.ready_at(now).unwrap() + Duration::from_millis(3);
                while bucket.take(now) {
                    taken += 1;
                }
            }
            let wanted = rate * (now - first).as_secs_f64();
            assert!((f64::from(taken) - wanted).abs() <= wanted / 100.0, "{rate}: {taken}");
        }
    }

    proptest! {
        #[test]
        fn no_window_has_more_than_the_rate_and_a_burst(
            steps in prop::collection::vec((0u64..300_000_000, 0u8..20, 1u32..50), 1..200),
        ) {
            let mut now = start();
            let mut rate = 40.0;
            let mut burst = 5;
            let mut bucket = Bucket::full(rate, burst, now);
            // Of every moment: what all earlier ones allow, and what was taken.
            let mut windows: Vec<(f64, u32)> = Vec::new();
            for (nanos, kind, value) in steps {
                now += Duration::from_nanos(nanos);
                for (allowed, _) in &mut windows {
                    *allowed += rate * nanos as f64 / 1e9;
                }
                if kind == 0 {
                    rate = f64::from(value);
                    burst = value.div_ceil(8);
                    bucket.change(rate, burst, now);
                }
                windows.push((50.0_f64.div_euclid(8.0) + 1.0, 0));
                for _ in 0..value {
                    if bucket.take(now) {
                        windows.iter_mut().for_each(|(_, taken)| *taken += 1);
                    }
                }
                for (allowed, taken) in &windows {
                    prop_assert!(f64::from(*taken) <= *allowed + 1e-6, "{taken} of {allowed}");
                }
            }
        }
    }
}
