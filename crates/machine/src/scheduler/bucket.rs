//! A token bucket: what may go now, and when more may.
//!
//! A core: it is told the time, and never asks for it. All of it is whole numbers. The level is counted in tokens times
//! the rate's milliseconds, so a millisecond brings a whole number of them and nothing is rounded. Whatever happens,
//! no more tokens are taken in a time than the rate brings in it, and one burst.

use crate::limits::{BURST_MAX, RATE_COUNT_MAX, RATE_MS_MAX};
use crate::settings::Rate;

/// Tokens that come at a rate. A message is one token, or each of its bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    rate: Rate,
    /// Tokens that it holds at most.
    burst: u64,
    /// Tokens, times the rate's milliseconds. Below 0 after something that costs more than a burst.
    level: i64,
    /// Up to when it is filled.
    filled_ms: u64,
}

impl Bucket {
    /// Without a token. The first comes after `now_ms`.
    pub(crate) fn empty(rate: Rate, burst: u64, now_ms: u64) -> Self {
        assert!((1..=BURST_MAX).contains(&burst), "a bucket holds something, and not too much");
        Self { rate, burst, level: 0, filled_ms: now_ms }
    }

    pub(crate) fn full(rate: Rate, burst: u64, now_ms: u64) -> Self {
        let empty = Self::empty(rate, burst, now_ms);
        Self { level: empty.units(burst), ..empty }
    }

    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    pub(crate) fn burst(&self) -> u64 {
        self.burst
    }

    /// It has these tokens and no others, less what something that cost more than it had left to pay.
    pub(crate) fn set(&mut self, tokens: u64) {
        self.level = self.level.min(0).saturating_add(self.units(tokens));
    }

    /// With the tokens that it has, as far as they are within the new burst, at another rate.
    #[must_use]
    pub(crate) fn changed_to(mut self, rate: Rate, burst: u64, now_ms: u64) -> Self {
        if (self.rate, self.burst) == (rate, burst) {
            return self;
        }
        self.fill(now_ms);
        let tokens = self.level.div_euclid(self.rate.per_ms() as i64);
        let new = Self::empty(rate, burst, self.filled_ms);
        let level = tokens.saturating_mul(rate.per_ms() as i64).min(new.units(burst));
        Self { level, ..new }
    }

    /// Takes in what has come since it was filled last. The time never goes back.
    pub(crate) fn fill(&mut self, now_ms: u64) {
        let Some(passed_ms) = now_ms.checked_sub(self.filled_ms) else { return };
        let come = passed_ms.saturating_mul(self.rate.count());
        let come = i64::try_from(come).unwrap_or(i64::MAX);
        self.level = self.level.saturating_add(come).min(self.units(self.burst));
        self.filled_ms = now_ms;
    }

    /// Tokens that can be taken now.
    pub(crate) fn tokens(&self) -> u64 {
        u64::try_from(self.level).map_or(0, |level| level / self.rate.per_ms())
    }

    /// Whether something that costs so much may go. What costs more than a burst goes from a full bucket, and those
    /// behind it wait until it is paid for.
    pub(crate) fn has(&self, cost: u64) -> bool {
        self.level >= self.units(cost.min(self.burst))
    }

    /// Something goes that costs so much.
    pub(crate) fn take(&mut self, cost: u64) {
        self.level = self.level.saturating_sub(self.units(cost));
    }

    /// When something that costs so much may go, if nothing else goes before.
    pub(crate) fn due_ms(&self, cost: u64) -> u64 {
        let missing = self.units(cost.min(self.burst)).saturating_sub(self.level);
        let missing = u64::try_from(missing).unwrap_or(0);
        self.filled_ms.saturating_add(missing.div_ceil(self.rate.count()))
    }

    /// What comes in so many milliseconds, but at least one token and at most half a burst: who waits for so much may come
    /// a little late, and nothing has run over.
    pub(crate) fn portion(&self, ms: u64) -> u64 {
        self.rate.in_ms(ms).clamp(1, self.burst.div_ceil(2))
    }

    fn units(&self, tokens: u64) -> i64 {
        let units = tokens.saturating_mul(self.rate.per_ms());
        i64::try_from(units).unwrap_or(i64::MAX)
    }
}

const _: () = assert!(BURST_MAX <= i64::MAX as u64 / 2 / RATE_MS_MAX, "a level is an i64");
const _: () = assert!(RATE_COUNT_MAX <= BURST_MAX, "a second's worth fits into a bucket");

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(count: u64, per_ms: u64) -> Rate {
        Rate::new(count, per_ms).unwrap()
    }

    #[test]
    fn tokens_come_evenly_and_nothing_of_them_is_lost_by_rounding() {
        // Three in seven milliseconds, asked for at each.
        let mut bucket = Bucket::empty(rate(3, 7), 2, 100);
        let mut taken = 0;
        for now_ms in 100..100 + 7_000 {
            bucket.fill(now_ms);
            let tokens = bucket.tokens();
            bucket.take(tokens);
            taken += tokens;
        }
        // What the last millisecond brought is not due yet.
        assert_eq!(taken, 6_999 * 3 / 7);
    }

    #[test]
    fn after_a_pause_a_burst_goes_at_once_and_then_the_rate() {
        let mut bucket = Bucket::empty(rate(1_000, 1_000), 50, 0);
        bucket.fill(3_600_000);
        assert_eq!(bucket.tokens(), 50);
        bucket.take(50);
        bucket.fill(3_600_000);
        assert_eq!((bucket.tokens(), bucket.due_ms(10)), (0, 3_600_010));
        bucket.fill(3_600_009);
        assert!(!bucket.has(10));
        bucket.fill(3_600_010);
        assert!(bucket.has(10));
        // A time that was told late changes nothing.
        bucket.fill(7);
        assert_eq!(bucket.tokens(), 10);
    }

    #[test]
    fn what_costs_more_than_a_burst_goes_from_a_full_bucket_and_is_paid_for() {
        let mut bucket = Bucket::full(rate(100, 1_000), 10, 0);
        assert!(bucket.has(1_000));
        bucket.take(1_000);
        assert_eq!((bucket.tokens(), bucket.due_ms(1)), (0, 9_910));
        bucket.fill(9_909);
        assert!(!bucket.has(1));
        bucket.fill(9_910);
        assert!(bucket.has(1));
    }

    #[test]
    fn tokens_that_are_set_pay_a_debt_first_and_add_to_nothing_else() {
        let mut bucket = Bucket::empty(rate(1_000, 1_000), 10, 0);
        bucket.set(10);
        bucket.take(15);
        bucket.set(8);
        assert_eq!(bucket.tokens(), 3);
        bucket.set(8);
        assert_eq!(bucket.tokens(), 8);
    }

    #[test]
    fn another_rate_leaves_the_tokens_and_no_more_than_its_burst() {
        let full = Bucket::full(rate(1_000, 1_000), 100, 5);
        let slower = full.changed_to(rate(60, 60_000), 7, 5);
        assert_eq!((slower.tokens(), slower.due_ms(7)), (7, 5));
        let faster = Bucket::empty(rate(60, 60_000), 7, 5).changed_to(rate(5, 1), 9, 5);
        assert_eq!((faster.tokens(), faster.due_ms(5)), (0, 6));
        // Changed to and fro, it brings nothing.
        let mut bucket = Bucket::empty(rate(1, 1_000), 5, 0);
        for _ in 0..100 {
            bucket = bucket.changed_to(rate(1_000, 1_000), 100, 0);
            bucket = bucket.changed_to(rate(1, 1_000), 5, 0);
        }
        assert_eq!(bucket.tokens(), 0);
    }

    #[test]
    fn the_largest_numbers_are_within_bounds() {
        let mut bucket = Bucket::full(rate(RATE_COUNT_MAX, RATE_MS_MAX), BURST_MAX, 0);
        bucket.take(u64::MAX);
        bucket.fill(u64::MAX);
        assert!(bucket.tokens() <= BURST_MAX);
        assert_eq!(bucket.due_ms(u64::MAX), bucket.due_ms(BURST_MAX));
    }
}
