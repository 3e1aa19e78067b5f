//! What becomes of a message that was not confirmed: another attempt, or dead with its reason.
//!
//! A pure policy. An outage (the broker is away, or refuses everything) never gets here: it charges nobody.

use std::fmt;

use service::{Attempts, Next};

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

impl Reason {
    /// How many attempts were made by now, and what comes next, after one more has failed for this reason.
    pub fn after(
        self,
        attempts: &Attempts,
        before: u32,
        is_charged: bool,
        chance: u64,
    ) -> (u32, Next) {
        let made = before.saturating_add(u32::from(is_charged));
        (made, self.next(attempts, made.max(1), chance))
    }

    /// What comes after attempt number `made` (from 1) has failed for this reason; `chance` is any 64 random bits.
    pub fn next(self, attempts: &Attempts, made: u32, chance: u64) -> Next {
        if self.is_permanent() {
            return Next::Dead;
        }
        match attempts.next(made, chance) {
            Next::Dead if self == Self::Unanswered => {
                Next::Retry { after: attempts.delay(made, chance) }
            }
            next => next,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use service::settings::Values;

    use super::*;
    use crate::settings::{SETTINGS, attempts};

    fn default_attempts() -> Attempts {
        attempts(&Values::defaults(&[SETTINGS]))
    }

    #[test]
    fn what_cannot_pass_is_dead_at_once() {
        for reason in [Reason::TooLarge, Reason::Broken] {
            assert_eq!(reason.next(&default_attempts(), 1, 0), Next::Dead);
        }
    }

    #[test]
    fn what_nobody_answers_is_never_dead() {
        let last = default_attempts().max;
        let next = |reason: Reason| reason.next(&default_attempts(), last, 0);
        assert_eq!(next(Reason::Unanswered), Next::Retry { after: Duration::from_secs(300) });
        assert_eq!(next(Reason::Refused), Next::Dead);
    }
}
