//! The breaker between "the provider refuses this token" and "forget this token".
//!
//! A wrong environment (a sandbox key against the production address, an app's tokens with another app's
//! credentials) makes a provider refuse *every* token in the words that it has for dead ones. Who believes that
//! deletes good tokens. So one app's [`Gate`] asks for a proof that the environment is right: a success.
//!
//! ```text
//!   candidate ──> a success in the round before? ──yes──> Dead (at most DEAD_PER_SUCCESS_MAX for one success)
//!                        │ no
//!                        ├─ the gate is held already, or too many wait ──> Held: retry the job
//!                        └─ Wait, up to `wait` ──a success comes──> Dead
//!                                              └─ none comes ─────> Held; the gate says so, once
//! ```
//!
//! The next success opens a held gate. A round is `round` long for a verdict that a wrong environment gives as well
//! (APNs `BadDeviceToken`, Huawei 80300007) and [`CERTAIN_ROUND`] for one that a provider gives for a token that it
//! has known (APNs 410 `Unregistered`, FCM `UNREGISTERED`). The latter are gated too: providers have called healthy
//! tokens unregistered by mistake, and a quiet app still has a success a day. With no success at all, nothing is
//! declared dead, whatever the verdict.
//!
//! The gate is told the time. [`io::target::push`](crate::io::target) waits for it.

use std::fmt;
use std::time::{Duration, Instant};

/// Tokens declared dead after one success, until there is another one.
pub const DEAD_PER_SUCCESS_MAX: u32 = 100;
/// Candidates that wait for a success at a time. More are held at once.
pub const WAITING_MAX: usize = 1000;
/// How long a success vouches for certain verdicts.
pub const CERTAIN_ROUND: Duration = Duration::from_secs(24 * 3600);

/// How a gate is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How long a success vouches for the candidates after it.
    pub round: Duration,
    /// How long a candidate waits for a success after it.
    pub wait: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self { round: Duration::from_secs(60), wait: Duration::from_secs(2) }
    }
}

/// What a verdict is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// A wrong environment or wrong credentials give it as well.
    Candidate,
    /// The provider says that it has known the token, and that it has ended.
    Certain,
}

/// What the gate says to a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Declare it dead.
    Dead,
    /// Ask again with [`Gate::judge`], after the next success and at `until`. [`Gate::leave`] if nobody will.
    Wait(Ticket),
    /// Declare nothing: try the job again later.
    Held,
}

/// A candidate that waits. Good for one final decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Successes that the gate had seen.
    successes: u64,
    pub until: Instant,
}

/// What an operator should see, once per change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// No token is declared dead until there is a success.
    Held { refused: u64 },
    /// There was a success.
    Open,
}

/// One app's breaker.
#[derive(Debug)]
pub struct Gate {
    rules: Rules,
    successes: u64,
    success_at: Option<Instant>,
    /// Declared dead since the last success.
    dead_since: u32,
    waiting: usize,
    is_held: bool,
    /// Candidates since the last success.
    refused: u64,
    dead: u64,
    held: u64,
    notice: Option<Notice>,
}

impl Gate {
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            successes: 0,
            success_at: None,
            dead_since: 0,
            waiting: 0,
            is_held: false,
            refused: 0,
            dead: 0,
            held: 0,
            notice: None,
        }
    }

    /// The provider accepted a message for one token of this app.
    pub fn success(&mut self, now: Instant) {
        self.successes += 1;
        self.success_at = Some(self.success_at.map_or(now, |at| at.max(now)));
        self.dead_since = 0;
        self.refused = 0;
        if std::mem::take(&mut self.is_held) {
            self.notice = Some(Notice::Open);
        }
    }

    /// The provider refused a token as dead.
    pub fn candidate(&mut self, now: Instant, certainty: Certainty) -> Decision {
        self.refused += 1;
        if self.is_vouched(now, certainty) || cfg!(bug_feedback_ungated) {
            return self.declare();
        }
        let is_spent = self.dead_since >= DEAD_PER_SUCCESS_MAX;
        if self.is_held || is_spent || self.waiting >= WAITING_MAX {
            return self.hold();
        }
        self.waiting += 1;
        Decision::Wait(Ticket { successes: self.successes, until: now + self.rules.wait })
    }

    /// The provider refused a token as dead in an answer that accepted another one of this app: declare it dead.
    pub fn beside(&mut self) {
        self.dead += 1;
    }

    /// A candidate that waits asks again.
    pub fn judge(&mut self, now: Instant, ticket: Ticket) -> Decision {
        if self.successes > ticket.successes {
            self.leave();
            let is_spent = self.dead_since >= DEAD_PER_SUCCESS_MAX;
            return if is_spent { self.hold() } else { self.declare() };
        }
        if now < ticket.until && !self.is_held {
            return Decision::Wait(ticket);
        }
        self.leave();
        self.hold()
    }

    /// A candidate does not wait any more: its job was given up.
    pub fn leave(&mut self) {
        assert!(self.waiting > 0, "only who waits can leave");
        self.waiting -= 1;
    }

    /// What has changed since it was asked last.
    pub fn notice(&mut self) -> Option<Notice> {
        self.notice.take()
    }

    /// How many tokens were declared dead, and how many were not although the provider refused them.
    pub fn counts(&self) -> (u64, u64) {
        (self.dead, self.held)
    }

    fn is_vouched(&self, now: Instant, certainty: Certainty) -> bool {
        let round = match certainty {
            Certainty::Candidate => self.rules.round,
            Certainty::Certain => CERTAIN_ROUND.max(self.rules.round),
        };
        let is_in_round =
            self.success_at.is_some_and(|at| now.saturating_duration_since(at) <= round);
        is_in_round && self.dead_since < DEAD_PER_SUCCESS_MAX
    }

    fn declare(&mut self) -> Decision {
        self.dead_since += 1;
        self.dead += 1;
        Decision::Dead
    }

    fn hold(&mut self) -> Decision {
        self.held += 1;
        if !std::mem::replace(&mut self.is_held, true) {
            self.notice = Some(Notice::Held { refused: self.refused });
        }
        Decision::Held
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_held { "held" } else { "open" };
        let Self { successes, dead, held, waiting, .. } = self;
        write!(out, "gate {state}: {successes} successes, {dead} dead, {held} held, {waiting} wait")
    }
}

#[cfg(test)]
mod tests;
