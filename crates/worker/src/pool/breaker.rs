//! The circuit breaker of a target.
//!
//! ```text
//!            failures in a row             open_for is over
//!   Closed ─────────────────────> Open ─────────────────────> HalfOpen
//!     ^  ^                          ^                            │ │
//!     │  └──────────────────────────┼── a success ───────────────┘ │
//!     │ a late success while open   └────── a failure ─────────────┘
//! ```
//!
//! While it is half open, one run at a time tries.

use std::time::{Duration, Instant};

use super::settings::BreakerSettings;

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breaker {
    /// Runs start. So many have failed in a row.
    Closed { failures: u32 },
    /// No run starts before this.
    Open { until: Instant },
    /// One run tries; the others wait for its end.
    HalfOpen { is_trying: bool },
}

/// What a run's end did to a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Same,
    Opened { until: Duration },
    Closed,
}

/// How a run ended, for the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// The target answered.
    Success,
    /// It did not, or with an error of its own.
    Failure,
    /// It says nothing about the target's health.
    Nothing,
}

impl Breaker {
    pub(super) const NEW: Self = Self::Closed { failures: 0 };

    /// When a run may start: now, later, or (none) when a run has ended.
    pub(super) fn opens_way_at(&self, now: Instant) -> Option<Instant> {
        match *self {
            Self::Closed { .. } => Some(now),
            Self::Open { until } => Some(until.max(now)),
            Self::HalfOpen { is_trying } if is_trying && cfg!(not(bug_pool_probe_flood)) => None,
            Self::HalfOpen { .. } => Some(now),
        }
    }

    /// A run starts. True if it is the one that tries.
    pub(super) fn start(&mut self) -> bool {
        match self {
            Self::Closed { .. } => false,
            Self::Open { .. } | Self::HalfOpen { .. } => {
                *self = Self::HalfOpen { is_trying: true };
                true
            }
        }
    }

    /// A run is over. `was_trying`: it is the one that tried.
    pub(super) fn end(
        &mut self,
        settings: &BreakerSettings,
        sign: Sign,
        was_trying: bool,
        now: Instant,
    ) -> Turn {
        match (*self, sign) {
            (Self::Closed { .. }, Sign::Success) => {
                *self = Self::NEW;
                Turn::Same
            }
            (Self::Closed { failures }, Sign::Failure) => {
                let failures = failures.saturating_add(1);
                if settings.failures > 0 && failures >= settings.failures {
                    return self.open(settings, now);
                }
                *self = Self::Closed { failures };
                Turn::Same
            }
            // A run from before it opened came through after all.
            (Self::Open { .. } | Self::HalfOpen { .. }, Sign::Success) => {
                *self = Self::NEW;
                Turn::Closed
            }
            (Self::HalfOpen { .. }, Sign::Failure) if was_trying => self.open(settings, now),
            (Self::HalfOpen { .. }, Sign::Nothing) if was_trying => {
                *self = Self::HalfOpen { is_trying: false };
                Turn::Same
            }
            (Self::Open { .. } | Self::HalfOpen { .. }, Sign::Failure)
            | (Self::Closed { .. } | Self::Open { .. } | Self::HalfOpen { .. }, Sign::Nothing) => {
                Turn::Same
            }
        }
    }

    fn open(&mut self, settings: &BreakerSettings, now: Instant) -> Turn {
        *self = Self::Open { until: now + settings.open_for.0 };
        Turn::Opened { until: settings.open_for.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Time;

    const SETTINGS: BreakerSettings =
        BreakerSettings { failures: 3, open_for: Time(Duration::from_secs(10)) };

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::NEW;
        for _ in 0..3 {
            breaker.end(&SETTINGS, Sign::Failure, false, now);
        }
        breaker
    }

    #[test]
    fn only_failures_in_a_row_open_it() {
        let now = super::super::tests::start();
        let mut breaker = Breaker::NEW;
        for sign in [Sign::Failure, Sign::Failure, Sign::Success, Sign::Failure, Sign::Nothing] {
            assert_eq!(breaker.end(&SETTINGS, sign, false, now), Turn::Same);
        }
        assert_eq!(breaker.end(&SETTINGS, Sign::Failure, false, now), Turn::Same);
        let turn = breaker.end(&SETTINGS, Sign::Failure, false, now);
        assert_eq!(turn, Turn::Opened { until: Duration::from_secs(10) });
        assert_eq!(breaker.opens_way_at(now), Some(now + Duration::from_secs(10)));
    }

    #[test]
    fn one_run_tries_and_its_end_decides() {
        let now = super::super::tests::start();
        let later = now + Duration::from_secs(10);
        let mut breaker = opened(now);
        assert!(breaker.start());
        assert_eq!(breaker.opens_way_at(later), None, "one tries already");
        // An old run does not decide.
        assert_eq!(breaker.end(&SETTINGS, Sign::Failure, false, later), Turn::Same);
        assert_eq!(breaker, Breaker::HalfOpen { is_trying: true });
        assert!(matches!(breaker.end(&SETTINGS, Sign::Failure, true, later), Turn::Opened { .. }));
        assert!(breaker.start());
        assert_eq!(breaker.end(&SETTINGS, Sign::Nothing, true, later), Turn::Same);
        assert_eq!(breaker.opens_way_at(later), Some(later), "another may try");
        assert!(breaker.start());
        assert_eq!(breaker.end(&SETTINGS, Sign::Success, true, later), Turn::Closed);
        assert!(!breaker.start());
    }

    #[test]
    fn with_no_failures_set_it_never_opens() {
        let settings = BreakerSettings { failures: 0, ..SETTINGS };
        let mut breaker = Breaker::NEW;
        for _ in 0..1000 {
            let now = super::super::tests::start();
            assert_eq!(breaker.end(&settings, Sign::Failure, false, now), Turn::Same);
        }
    }
}
