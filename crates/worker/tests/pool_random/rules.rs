//! What may become of a job in hand, and nothing of how the pool decides it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use client::Backoff;
use worker::limits::{DELAY_MAX, DELIVERIES_MAX, HOLD_ORDERED_MAX};
use worker::{Cause, Outcome, Settlement};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    Waiting,
    Running,
    /// It has an outcome, and what follows is to be said in this step.
    Ended(Outcome),
    Settled(End),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    Done,
    Returned,
    Retried,
    Dead,
}

#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) key: Option<u64>,
    pub(crate) group: Option<u64>,
    pub(crate) bytes: usize,
    pub(crate) attempts_max: u32,
    pub(crate) timeout: Duration,
    pub(crate) attempt: u32,
    pub(crate) attempt_taken: u32,
    pub(crate) rest: Option<Bytes>,
    pub(crate) state: State,
    pub(crate) is_lost: bool,
    pub(crate) lease_until: Option<Instant>,
    pub(crate) not_before: Option<Instant>,
    pub(crate) was_cut_by_stop: bool,
}

impl Held {
    /// It waits, and its lease has run out: the pool may have dropped it, before the source says that it is lost.
    pub(crate) fn is_given_up(&self, now: Instant) -> bool {
        self.state == State::Waiting && self.lease_until.is_some_and(|until| until <= now)
    }
}

/// What holds for the job that is settled.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) is_ordered: bool,
    /// Nothing waits here any more: the pool stops, or the target has, or it is throttled for long.
    pub(crate) is_refusing: bool,
    pub(crate) backoff: Backoff,
}

impl Rules {
    /// How the job leaves. Panics where it may not leave like this.
    pub(crate) fn end(&self, held: &Held, settlement: &Settlement) -> End {
        let end = match (&held.state, settlement) {
            (State::Ended(Outcome::Done { .. }), Settlement::Done) => End::Done,
            (State::Waiting, Settlement::Dead { cause: Cause::Exhausted, .. }) => {
                let most = held.attempts_max.max(DELIVERIES_MAX);
                assert!(held.attempt > most, "dead before it was tried");
                End::Dead
            }
            (
                State::Ended(Outcome::Retry { .. }),
                Settlement::Dead { cause: Cause::Exhausted, .. },
            ) => {
                assert!(held.attempt >= held.attempts_max, "exhausted before its last attempt");
                End::Dead
            }
            (
                State::Ended(Outcome::TokenDead { .. }),
                Settlement::Dead { cause: Cause::TokenDead, .. },
            )
            | (
                State::Ended(Outcome::Reject { .. }),
                Settlement::Dead { cause: Cause::Rejected, .. },
            ) => End::Dead,
            (
                State::Ended(Outcome::Retry { after, rest, .. }),
                Settlement::Later { after: waits, attempt, rest: kept, .. },
            ) => {
                assert_eq!(kept, &rest.clone().or(held.rest.clone()), "the rest is lost");
                if held.was_cut_by_stop || (self.is_refusing && *attempt == held.attempt) {
                    assert_eq!(*attempt, held.attempt);
                    End::Returned
                } else {
                    assert_eq!(*attempt, held.attempt + 1, "a retry is charged");
                    assert!(*attempt <= held.attempts_max, "one attempt too many");
                    let asked = after.unwrap_or_default();
                    let bound = self.backoff.bound(held.attempt - 1);
                    assert!(*waits >= asked.min(DELAY_MAX), "sooner than the target asked");
                    assert!(
                        self.is_refusing || *waits <= asked.max(bound).min(DELAY_MAX),
                        "later than backoff allows"
                    );
                    assert!(
                        !self.is_ordered || *waits > HOLD_ORDERED_MAX || self.is_refusing,
                        "an ordered job goes back"
                    );
                    End::Retried
                }
            }
            (State::Ended(Outcome::Throttle { .. }), Settlement::Later { attempt, rest, .. }) => {
                assert_eq!(*attempt, held.attempt, "a throttle is charged");
                assert_eq!(rest, &held.rest, "the rest is lost");
                if held.attempt > held.attempt_taken { End::Retried } else { End::Returned }
            }
            (State::Ended(Outcome::Config { .. }), Settlement::Return) => {
                assert!(held.rest.is_none(), "the rest is lost");
                End::Returned
            }
            (State::Ended(Outcome::Retry { rest, .. }), Settlement::Return) => {
                assert!(rest.is_none() && held.rest.is_none(), "the rest is lost");
                assert!(
                    held.was_cut_by_stop || (self.is_refusing && self.is_ordered),
                    "a retry is not charged"
                );
                End::Returned
            }
            (State::Ended(Outcome::Throttle { .. }), Settlement::Return) => {
                assert!(held.rest.is_none(), "the rest is lost");
                assert!(self.is_refusing, "a throttled job goes back at once");
                End::Returned
            }
            (
                State::Ended(Outcome::Config { .. }) | State::Waiting,
                Settlement::Later { attempt, rest, .. },
            ) => {
                assert!(self.is_refusing, "a job is sent back without a reason");
                assert_eq!(*attempt, held.attempt, "what waits is not charged");
                assert_eq!(rest, &held.rest, "the rest is lost");
                if held.attempt > held.attempt_taken { End::Retried } else { End::Returned }
            }
            (State::Waiting, Settlement::Return) => {
                assert!(self.is_refusing, "a job is sent back without a reason");
                assert!(held.rest.is_none(), "the rest is lost");
                assert!(held.attempt == held.attempt_taken || self.is_ordered, "a charge is lost");
                End::Returned
            }
            (state, settlement) => {
                panic!("a job is {state:?}, and settled as {settlement:?}")
            }
        };
        match settlement {
            Settlement::Later { attempt, .. } if *attempt > held.attempt_taken => End::Retried,
            Settlement::Later { .. }
            | Settlement::Done
            | Settlement::Return
            | Settlement::Dead { .. } => end,
        }
    }
}
