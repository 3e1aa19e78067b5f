//! What a collector's answer means: for the spans that it was sent, and for the log.
//!
//! ```text
//!           no answer, 429, 502 to 504            another answer
//!   ┌─────────────────── fine ──────────────────────────┐
//!   v                     ^                             v
//!  away ──taken───────────┴────────────taken────── refusing
//!   └───────────────another answer──────────────────────^
//! ```
//!
//! From refusing to away nothing is told: something was told already. Each way back to fine is told once.

use std::time::Duration;

use crate::limits::{PAUSE_ASKED_MAX, PAUSE_MAX, PAUSE_MIN};

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// An answer with this status of HTTP.
    Status {
        code: u16,
        /// Spans that the collector did not take, by its own words.
        rejected: u64,
        /// Seconds that it asks to wait.
        retry_after_s: Option<u64>,
    },
    /// None, and why.
    Nothing(String),
}

/// What becomes of the spans of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The collector has them, but for so many.
    Taken { rejected: u64 },
    /// They are sent again after this.
    Again(Duration),
    /// They are dropped: sending them again would change nothing.
    Dropped,
}

/// What is said once in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Away(String),
    Refusing(String),
    Back,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Fine,
    Away,
    Refusing,
}

/// How it stands with the collector.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    state: State,
    /// The last pause, while the collector is away.
    pause: Option<Duration>,
}

impl Delivery {
    /// Takes an answer.
    pub(crate) fn answered(&mut self, answer: Answer) -> (Next, Option<Said>) {
        match answer {
            Answer::Status { code: 200..=299, rejected, .. } => {
                self.pause = None;
                let before = std::mem::take(&mut self.state);
                let said = (before != State::Fine).then_some(Said::Back);
                (Next::Taken { rejected }, said)
            }
            Answer::Status { code: code @ (429 | 502..=504), retry_after_s, .. } => {
                self.away(format!("it answers with status {code}"), retry_after_s)
            }
            Answer::Status { code, .. } => {
                self.pause = None;
                let before = std::mem::replace(&mut self.state, State::Refusing);
                let why = || Said::Refusing(format!("it answers with status {code}"));
                (Next::Dropped, (before != State::Refusing).then(why))
            }
            Answer::Nothing(why) => self.away(why, None),
        }
    }

    fn away(&mut self, why: String, asked_s: Option<u64>) -> (Next, Option<Said>) {
        let before = match self.state {
            State::Refusing => State::Refusing,
            State::Fine | State::Away => std::mem::replace(&mut self.state, State::Away),
        };
        let pause = self.pause.map_or(PAUSE_MIN, |pause| (pause * 2).min(PAUSE_MAX));
        self.pause = Some(pause);
        let asked = asked_s.map_or(Duration::ZERO, Duration::from_secs).min(PAUSE_ASKED_MAX);
        (Next::Again(pause.max(asked)), (before == State::Fine).then_some(Said::Away(why)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16) -> Answer {
        Answer::Status { code, rejected: 0, retry_after_s: None }
    }

    fn nothing() -> Answer {
        Answer::Nothing("connection refused".to_owned())
    }

    #[test]
    fn a_collector_that_is_away_is_told_once_and_once_more_when_it_is_back() {
        let mut delivery = Delivery::default();
        assert_eq!(delivery.answered(status(200)), (Next::Taken { rejected: 0 }, None));
        let (next, said) = delivery.answered(nothing());
        assert_eq!(next, Next::Again(PAUSE_MIN));
        assert_eq!(said, Some(Said::Away("connection refused".to_owned())));
        for code in [429, 502, 503, 504] {
            let (next, said) = delivery.answered(status(code));
            assert!(matches!(next, Next::Again(_)) && said.is_none(), "{code}");
        }
        assert_eq!(delivery.answered(status(200)), (Next::Taken { rejected: 0 }, Some(Said::Back)));
        assert_eq!(delivery.answered(status(200)).1, None);
    }

    #[test]
    fn pauses_grow_to_a_bound_and_begin_anew_after_a_success() {
        let mut delivery = Delivery::default();
        let mut pause = |answer| match delivery.answered(answer).0 {
            Next::Again(pause) => pause.as_secs(),
            Next::Taken { .. } | Next::Dropped => 0,
        };
        let pauses: Vec<u64> = (0..7).map(|_| pause(nothing())).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!((pause(status(202)), pause(nothing())), (0, 1));
        let asked =
            |seconds| Answer::Status { code: 503, rejected: 0, retry_after_s: Some(seconds) };
        assert_eq!((pause(asked(77)), pause(asked(u64::MAX)), pause(asked(0))), (77, 300, 8));
    }

    #[test]
    fn what_is_refused_is_dropped_and_told_once() {
        let mut delivery = Delivery::default();
        let (next, said) = delivery.answered(status(404));
        assert_eq!(next, Next::Dropped);
        assert_eq!(said, Some(Said::Refusing("it answers with status 404".to_owned())));
        for code in [301, 400, 401, 500] {
            assert_eq!(delivery.answered(status(code)), (Next::Dropped, None), "{code}");
        }
        let (next, said) = delivery.answered(nothing());
        assert!(matches!(next, Next::Again(_)) && said.is_none(), "something was told already");
        assert_eq!(delivery.answered(status(200)).1, Some(Said::Back));
    }

    #[test]
    fn spans_that_a_collector_rejects_are_counted() {
        let answer = Answer::Status { code: 200, rejected: 3, retry_after_s: None };
        assert_eq!(Delivery::default().answered(answer), (Next::Taken { rejected: 3 }, None));
    }
}
