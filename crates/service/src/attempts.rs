//! What follows a failed attempt: another one after a delay, or none. A pure policy.

use std::time::Duration;

use client::Backoff;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Retry { after: Duration },
    Dead,
}

/// How much of a delay is chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// Half is fixed, half is chance: an attempt never follows the one before it at once.
    Half,
    /// All of it is chance: spreads a crowd best.
    Full,
}

/// How often to try, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// Attempts in all, at least 1.
    pub max: u32,
    pub backoff: Backoff,
    pub jitter: Jitter,
}

impl Attempts {
    /// What comes after attempt number `made` (from 1) has failed; `chance` is any 64 random bits.
    pub fn next(&self, made: u32, chance: u64) -> Next {
        if made >= self.max { Next::Dead } else { Next::Retry { after: self.delay(made, chance) } }
    }

    /// The delay after attempt number `made` (from 1), whether or not it was the last.
    pub fn delay(&self, made: u32, chance: u64) -> Duration {
        let repeat = made.saturating_sub(1);
        match self.jitter {
            Jitter::Full => self.backoff.delay(repeat, chance),
            Jitter::Half => self.backoff.bound(repeat) / 2 + self.backoff.delay(repeat, chance) / 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALFWAY: u64 = u64::MAX / 2 + 1;

    fn attempts(jitter: Jitter) -> Attempts {
        let backoff = Backoff { first: Duration::from_secs(2), longest: Duration::from_secs(600) };
        Attempts { max: 4, backoff, jitter }
    }

    #[test]
    fn attempts_come_later_and_later_until_the_limit() {
        let next = |made| attempts(Jitter::Half).next(made, HALFWAY);
        assert_eq!(next(1), Next::Retry { after: Duration::from_millis(1500) });
        assert_eq!(next(2), Next::Retry { after: Duration::from_secs(3) });
        assert_eq!(next(3), Next::Retry { after: Duration::from_secs(6) });
        assert_eq!(next(4), Next::Dead);
    }

    #[test]
    fn half_jitter_is_never_shorter_than_half_the_bound_nor_longer_than_it() {
        for chance in [0, 1, u64::MAX / 3, u64::MAX] {
            let delay = attempts(Jitter::Half).delay(3, chance);
            assert!((Duration::from_secs(4)..=Duration::from_secs(8)).contains(&delay));
        }
    }

    #[test]
    fn full_jitter_covers_everything_from_nothing_to_the_bound() {
        let delay = |chance| attempts(Jitter::Full).delay(3, chance);
        assert_eq!(delay(0), Duration::ZERO);
        assert_eq!(delay(HALFWAY), Duration::from_secs(4));
        assert!(delay(u64::MAX) < Duration::from_secs(8));
    }
}
