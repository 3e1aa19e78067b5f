//! What follows an outcome.

use std::time::Duration;

use bytes::Bytes;

use super::breaker::Sign;
use super::held::End;
use crate::limits::{DELAY_MAX, HOLD_MAX, HOLD_ORDERED_MAX, WHY_BYTES_MAX};
use crate::outcome::Outcome;
use crate::settlement::{Cause, Publish, Settlement};

/// The job that the outcome is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) attempt: u32,
    pub(super) attempts_max: u32,
    /// What the backoff says for this attempt.
    pub(super) backoff: Duration,
    /// It must not be overtaken by others of its key.
    pub(super) is_ordered: bool,
    /// Nothing starts any more.
    pub(super) is_stopping: bool,
    /// It was cut off because the process stops.
    pub(super) is_cut_by_stop: bool,
}

/// What becomes of a job that ran.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It leaves.
    Settle { settlement: Settlement, publishes: Vec<Publish>, end: End },
    /// It waits here, and starts again with this attempt.
    Hold { after: Duration, attempt: u32, rest: Option<Bytes>, publishes: Vec<Publish> },
}

/// Judges one outcome.
pub(super) fn judge(outcome: Outcome, case: Case) -> Verdict {
    match outcome {
        Outcome::Done { publishes } => settle(Settlement::Done, publishes, End::Done),
        Outcome::Retry { publishes, rest: None, .. } if case.goes_back_as_it_was() => {
            settle(Settlement::Return, publishes, End::Returned)
        }
        Outcome::Retry { why, rest, publishes, .. } if case.is_cut_by_stop => {
            let Case { attempt, .. } = case;
            let settlement =
                Settlement::Later { after: Duration::ZERO, attempt, why: cut(why), rest };
            settle(settlement, publishes, End::Returned)
        }
        Outcome::Retry { why, publishes, .. } if case.attempt >= case.attempts_max => {
            let why = cut(format!("attempt {} of {}: {why}", case.attempt, case.attempts_max));
            let settlement = Settlement::Dead { cause: Cause::Exhausted, why };
            settle(settlement, publishes, End::Dead)
        }
        Outcome::Retry { after, why, rest, publishes } => {
            let after = case.backoff.max(after.unwrap_or_default()).min(DELAY_MAX);
            let attempt = case.attempt + 1;
            if case.is_ordered && !case.is_stopping && after <= HOLD_ORDERED_MAX {
                return Verdict::Hold { after, attempt, rest, publishes };
            }
            let settlement = Settlement::Later { after, attempt, why: cut(why), rest };
            settle(settlement, publishes, End::Retried)
        }
        Outcome::Throttle { until, why, .. } => throttled(until, why, case),
        Outcome::TokenDead { why, publishes } => {
            let settlement = Settlement::Dead { cause: Cause::TokenDead, why: cut(why) };
            settle(settlement, publishes, End::Dead)
        }
        Outcome::Reject { why } => {
            let settlement = Settlement::Dead { cause: Cause::Rejected, why: cut(why) };
            settle(settlement, Vec::new(), End::Dead)
        }
        Outcome::Config { .. } => settle(Settlement::Return, Vec::new(), End::Returned),
    }
}

fn throttled(until: Duration, why: String, case: Case) -> Verdict {
    let Case { attempt, .. } = case;
    let attempt = if cfg!(bug_pool_throttle_charged) { attempt + 1 } else { attempt };
    if case.is_cut_by_stop || (case.is_stopping && case.is_ordered) {
        settle(Settlement::Return, Vec::new(), End::Returned)
    } else if !case.is_stopping && until <= case.hold_max() {
        Verdict::Hold { after: until, attempt, rest: None, publishes: Vec::new() }
    } else {
        let after = until.min(DELAY_MAX);
        let settlement = Settlement::Later { after, attempt, why: cut(why), rest: None };
        settle(settlement, Vec::new(), End::Returned)
    }
}

fn settle(settlement: Settlement, publishes: Vec<Publish>, end: End) -> Verdict {
    Verdict::Settle { settlement, publishes, end }
}

impl Case {
    /// How long it may wait here.
    pub(super) fn hold_max(&self) -> Duration {
        if self.is_ordered { HOLD_ORDERED_MAX } else { HOLD_MAX }
    }

    /// A job that failed goes back uncharged: it was cut off, or its order is worth more than the charge.
    fn goes_back_as_it_was(&self) -> bool {
        let has_attempts = self.attempt < self.attempts_max;
        self.is_cut_by_stop || (self.is_stopping && self.is_ordered && has_attempts)
    }
}

/// What a job's outcome says of its target's health.
pub(super) fn sign(outcome: &Outcome) -> Sign {
    match outcome {
        Outcome::Done { .. } | Outcome::TokenDead { .. } | Outcome::Reject { .. } => Sign::Success,
        Outcome::Retry { .. } => Sign::Failure,
        Outcome::Throttle { .. } | Outcome::Config { .. } => Sign::Nothing,
    }
}

/// Not more of an error's text than is kept.
pub(super) fn cut(mut why: String) -> String {
    if why.len() > WHY_BYTES_MAX {
        why.truncate(why.floor_char_boundary(WHY_BYTES_MAX));
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Scope;

    const SECOND: Duration = Duration::from_secs(1);
    const CASE: Case = Case {
        attempt: 2,
        attempts_max: 3,
        backoff: SECOND,
        is_ordered: false,
        is_stopping: false,
        is_cut_by_stop: false,
    };

    fn retry(after: Option<Duration>) -> Outcome {
        Outcome::Retry { after, why: "no".into(), rest: None, publishes: Vec::new() }
    }

    fn throttle(until: Duration) -> Outcome {
        Outcome::Throttle { scope: Scope::Target, until, why: "slow".into() }
    }

    fn settlement(outcome: Outcome, case: Case) -> Settlement {
        match judge(outcome, case) {
            Verdict::Settle { settlement, .. } => settlement,
            Verdict::Hold { .. } => panic!("it waits here"),
        }
    }

    #[test]
    fn a_retry_is_charged_and_waits_at_least_as_long_as_the_target_asks() {
        for (asked, waits) in [
            (None, SECOND),
            (Some(SECOND / 2), SECOND),
            (Some(9 * SECOND), 9 * SECOND),
            (Some(Duration::MAX), DELAY_MAX),
        ] {
            let expected =
                Settlement::Later { after: waits, attempt: 3, why: "no".into(), rest: None };
            assert_eq!(settlement(retry(asked), CASE), expected);
        }
    }

    #[test]
    fn the_last_attempt_is_followed_by_death_with_the_reason() {
        let last = Case { attempt: 3, ..CASE };
        let why = "attempt 3 of 3: no".to_owned();
        let expected = Settlement::Dead { cause: Cause::Exhausted, why };
        assert_eq!(settlement(retry(None), last), expected);
        assert_eq!(settlement(retry(None), Case { is_ordered: true, ..last }), expected);
    }

    #[test]
    fn a_throttle_is_never_charged() {
        let long = HOLD_MAX + SECOND;
        let expected =
            Settlement::Later { after: long, attempt: 2, why: "slow".into(), rest: None };
        assert_eq!(settlement(throttle(long), CASE), expected);
        let Verdict::Hold { after, attempt, .. } = judge(throttle(SECOND), CASE) else {
            panic!("a short one waits here")
        };
        assert_eq!((after, attempt), (SECOND, 2));
    }

    #[test]
    fn an_ordered_job_waits_here_for_its_next_attempt() {
        let ordered = Case { is_ordered: true, ..CASE };
        assert!(matches!(judge(retry(None), ordered), Verdict::Hold { attempt: 3, .. }));
        let long = Some(HOLD_ORDERED_MAX + SECOND);
        assert!(matches!(settlement(retry(long), ordered), Settlement::Later { attempt: 3, .. }));
        let stopping = Case { is_stopping: true, ..ordered };
        assert_eq!(settlement(retry(None), stopping), Settlement::Return);
    }

    #[test]
    fn what_the_stop_cuts_off_goes_back_uncharged_without_repeating_what_is_done() {
        let cut = Case { is_cut_by_stop: true, is_stopping: true, ..CASE };
        assert_eq!(settlement(retry(None), cut), Settlement::Return);
        assert_eq!(settlement(retry(None), Case { attempt: 3, ..cut }), Settlement::Return);
        let rest = Some(Bytes::from_static(b"half"));
        let part = Outcome::Retry { after: None, why: String::new(), rest, publishes: Vec::new() };
        assert!(matches!(
            settlement(part, cut),
            Settlement::Later { attempt: 2, rest: Some(_), .. }
        ));
        assert_eq!(settlement(Outcome::done(), cut), Settlement::Done);
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        assert!(cut("ä".repeat(WHY_BYTES_MAX)).len() <= WHY_BYTES_MAX);
    }
}
