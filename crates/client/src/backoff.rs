//! How long to wait before the next attempt to connect: exponential, with full jitter.
//!
//! A pure policy: chance comes as an argument, so that a node that dies is not met by all of its
//! clients at the same instant, and a simulation can still be repeated.

use std::time::Duration;

/// Doubling delays between attempts, with a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Upper bound of the delay before the first repeat.
    pub first: Duration,
    /// Upper bound of every later delay.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(50), longest: Duration::from_secs(5) }
    }
}

impl Backoff {
    /// The delay before repeat number `attempt` (from 0): anywhere between nothing and the bound,
    /// as `chance` (any 64 random bits) decides.
    pub fn delay(&self, attempt: u32, chance: u64) -> Duration {
        let bound = self.bound(attempt).as_nanos() as u64;
        // Fixed-point multiplication instead of a remainder: no bias towards short delays.
        let nanos = (u128::from(bound) * u128::from(chance)) >> 64;
        Duration::from_nanos(nanos as u64)
    }

    /// The longest that repeat number `attempt` can be delayed.
    pub fn bound(&self, attempt: u32) -> Duration {
        let doubled = self.first.saturating_mul(1u32.checked_shl(attempt).unwrap_or(u32::MAX));
        doubled.min(self.longest)
    }
}

/// A small seeded generator of chance (SplitMix64), for jitter only.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The same seed gives the same sequence.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_doubles_until_the_cap() {
        let backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) };
        let bounds: Vec<u64> = (0..7).map(|n| backoff.bound(n).as_millis() as u64).collect();
        assert_eq!(bounds, [50, 100, 200, 400, 800, 1000, 1000]);
    }

    #[test]
    fn a_huge_attempt_number_stays_at_the_cap() {
        let backoff = Backoff::default();
        assert_eq!(backoff.bound(31), backoff.longest);
        assert_eq!(backoff.bound(u32::MAX), backoff.longest);
    }

    #[test]
    fn jitter_covers_everything_from_nothing_to_the_bound() {
        let backoff = Backoff { first: Duration::from_millis(80), longest: Duration::from_secs(9) };
        assert_eq!(backoff.delay(0, 0), Duration::ZERO);
        assert!(backoff.delay(0, u64::MAX) < Duration::from_millis(80));
        assert_eq!(backoff.delay(0, u64::MAX / 2 + 1), Duration::from_millis(40));
    }

    #[test]
    fn the_same_seed_repeats_the_same_delays() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            (0..5).map(|n| Backoff::default().delay(n, chance.next_bits())).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
