//! What becomes of a message that was not confirmed: another attempt, or dead with its reason.
//!
//! A pure policy. An outage (the broker is away, or refuses everything) never gets here: it charges nobody.

use std::fmt;
use std::time::Duration;

use client::Backoff;

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// `basic.return`, or its exchange does not exist.
    Unroutable,
    /// `basic.nack`, while others were confirmed.
    Refused,
    /// Neither confirmed nor refused in time, by a broker that answers others. Charges no attempt.
    Unanswered,
    /// Larger than the relay or the broker takes.
    TooLarge,
    /// No message can be made of it, or the broker closed the channel because of it.
    Broken,
    /// It was published and confirmed, but the database refuses to mark its row.
    Unmarked,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Unroutable,
        Self::Refused,
        Self::Unanswered,
        Self::TooLarge,
        Self::Broken,
        Self::Unmarked,
    ];

    /// As it is stored and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unroutable => "unroutable",
            Self::Refused => "refused",
            Self::Unanswered => "unanswered",
            Self::TooLarge => "too_large",
            Self::Broken => "broken",
            Self::Unmarked => "unmarked",
        }
    }

    /// What somebody can do about it.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Unroutable => {
                "declare the queue, bind it, or set --exchange and --routing-key; it is tried again by itself, and at \
                 once by `millrace relay replay --waiting`"
            }
            Self::Refused => {
                "see whether the queue is full (x-max-length with x-overflow=reject-publish) or lacks a majority; \
                 `millrace relay replay --waiting` tries at once"
            }
            Self::Unanswered => {
                "see whether its queue has a majority; `millrace relay replay --waiting` tries at once"
            }
            Self::TooLarge => {
                "raise --body-bytes-max or the broker's limit, then `millrace relay replay`"
            }
            Self::Broken => "mend the row or the mapping, then `millrace relay replay`",
            Self::Unmarked => {
                "see which trigger or constraint of the table refuses it; `millrace relay replay --waiting` tries at once"
            }
        }
    }

    /// No other attempt can do better.
    pub fn is_permanent(self) -> bool {
        matches!(self, Self::TooLarge | Self::Broken)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A reason and its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub reason: Reason,
    pub text: String,
}

/// What comes next for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Retry { after: Duration },
    Dead,
}

/// How often to try, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// Attempts before a message is dead, 1 to [`ATTEMPTS_MAX`](crate::limits::ATTEMPTS_MAX).
    pub max: u32,
    pub backoff: Backoff,
}

impl Default for Attempts {
    fn default() -> Self {
        let backoff = Backoff { first: Duration::from_secs(2), longest: Duration::from_secs(600) };
        Self { max: 20, backoff }
    }
}

impl Attempts {
    /// What comes after attempt number `made` (from 1) has failed; `chance` is any 64 random bits.
    ///
    /// Half of the delay is fixed and half is chance: a full jitter could try a message many times at once.
    pub fn judge(&self, reason: Reason, made: u32, chance: u64) -> Next {
        let is_last = made >= self.max && reason != Reason::Unanswered;
        if reason.is_permanent() || is_last {
            return Next::Dead;
        }
        let attempt = made.saturating_sub(1);
        let fixed = self.backoff.bound(attempt) / 2;
        Next::Retry { after: fixed + self.backoff.delay(attempt, chance) / 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_tried_again_later_and_later_until_the_limit() {
        let attempts = Attempts { max: 4, ..Attempts::default() };
        let after = |made| attempts.judge(Reason::Unroutable, made, u64::MAX / 2 + 1);
        assert_eq!(after(1), Next::Retry { after: Duration::from_millis(1500) });
        assert_eq!(after(2), Next::Retry { after: Duration::from_secs(3) });
        assert_eq!(after(3), Next::Retry { after: Duration::from_secs(6) });
        assert_eq!(after(4), Next::Dead);
    }

    #[test]
    fn what_cannot_pass_is_dead_at_once() {
        for reason in [Reason::TooLarge, Reason::Broken] {
            assert_eq!(Attempts::default().judge(reason, 1, 0), Next::Dead);
        }
    }

    #[test]
    fn a_delay_is_never_shorter_than_half_its_bound_nor_longer_than_it() {
        let attempts = Attempts::default();
        for chance in [0, 1, u64::MAX / 3, u64::MAX] {
            let Next::Retry { after } = attempts.judge(Reason::Refused, 3, chance) else {
                panic!("it is tried again");
            };
            assert!((Duration::from_secs(4)..=Duration::from_secs(8)).contains(&after));
        }
    }
}
