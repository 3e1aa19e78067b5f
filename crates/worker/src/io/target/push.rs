//! One app's gate for dead tokens, shared by all runs of a push target.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::feedback::{Certainty, Decision, Gate, Notice, Rules, Ticket};
use crate::outcome::Outcome;
use crate::settlement::Publish;
use crate::target::fanout;
use crate::target::push::{Feedback, TokenDead, held};

/// Kept of a run's time for its answer.
const ANSWER_TIME: Duration = Duration::from_millis(200);

/// Decides whether refused tokens are dead, and makes the outcomes that say so.
#[derive(Debug)]
pub struct DeadTokens {
    provider: &'static str,
    app: String,
    feedback: Option<Feedback>,
    gate: Mutex<Gate>,
    /// Changes at each success that somebody may wait for.
    successes: watch::Sender<u64>,
}

/// What became of a refused token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is dead: tell so. Empty where no feedback is set up.
    Dead(Vec<Publish>),
    /// It may be alive: try again later, with these words.
    Held(String),
}

impl Fate {
    /// As one of several of a job.
    pub fn of_token(self, reason: &str) -> fanout::Fate {
        match self {
            Self::Dead(publishes) => fanout::Fate::Dead {
                why: format!("the provider says the token is dead: {reason}"),
                publishes,
            },
            Self::Held(why) => fanout::Fate::Retry { after: None, why },
        }
    }
}

impl DeadTokens {
    /// For the target of one app.
    pub fn new(provider: &'static str, app: impl Into<String>, feedback: Option<Feedback>) -> Self {
        let rules = feedback.as_ref().map_or_else(Rules::default, Feedback::rules);
        Self {
            provider,
            app: app.into(),
            feedback,
            gate: Mutex::new(Gate::new(rules)),
            successes: watch::Sender::new(0),
        }
    }

    /// The provider accepted a message for a token.
    pub fn success(&self) {
        self.with(|gate| gate.success(Instant::now()));
        if self.successes.receiver_count() > 0 {
            self.successes.send_modify(|count| *count += 1);
        }
    }

    /// The provider refused a token as dead. Waits for a success where there was none lately, not longer than the
    /// settings say, and not up to the run's deadline.
    pub async fn fate(&self, dead: Refused<'_>, deadline: Instant) -> Fate {
        // Before the gate is asked, so that no success is missed.
        let mut successes = self.successes.subscribe();
        let decision = self.with(|gate| gate.candidate(Instant::now(), dead.certainty));
        let decision = match decision {
            Decision::Wait(ticket) => {
                let mut place = Place { gate: self, ticket: Some(ticket) };
                place.wait(&mut successes, deadline).await
            }
            Decision::Dead | Decision::Held => decision,
        };
        match decision {
            Decision::Dead => Fate::Dead(self.publishes(dead)),
            Decision::Held | Decision::Wait(_) => {
                Fate::Held(held(self.provider, &self.app, dead.reason))
            }
        }
    }

    /// The provider refused a token as dead, and accepted another one in the same answer: that vouches for it.
    pub fn beside(&self, dead: Refused<'_>) -> fanout::Fate {
        self.with(Gate::beside);
        Fate::Dead(self.publishes(dead)).of_token(dead.reason)
    }

    /// The outcome of a job with one token, which the provider refused as dead.
    pub async fn outcome(&self, dead: Refused<'_>, deadline: Instant) -> Outcome {
        match self.fate(dead, deadline).await {
            Fate::Dead(publishes) => {
                let why = format!("{} says the token is dead: {}", self.provider, dead.reason);
                Outcome::TokenDead { why, publishes }
            }
            Fate::Held(why) => Outcome::retry(why),
        }
    }

    /// How many tokens were declared dead, and how many were not although the provider refused them.
    pub fn counts(&self) -> (u64, u64) {
        self.with(|gate| gate.counts())
    }

    /// The messages that tell of a dead token.
    pub fn publishes(&self, dead: Refused<'_>) -> Vec<Publish> {
        let Refused { token, reason, since_ms, job_id, .. } = dead;
        let (provider, app) = (self.provider, self.app.as_str());
        let dead = TokenDead { provider, app, token, reason, since_ms, job_id };
        self.feedback.iter().map(|feedback| feedback.publish(&dead)).collect()
    }

    fn with<T>(&self, act: impl FnOnce(&mut Gate) -> T) -> T {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut gate);
        let notice = gate.notice();
        drop(gate);
        match notice {
            Some(Notice::Held { refused }) => tracing::warn!(
                provider = self.provider,
                app = %self.app,
                refused,
                "provider refuses tokens as dead and accepts none; no token is declared dead until it accepts one; \
                 check that environment and credentials are those of the app"
            ),
            Some(Notice::Open) => tracing::info!(
                provider = self.provider,
                app = %self.app,
                "provider accepts tokens again; dead tokens are declared again"
            ),
            None => {}
        }
        result
    }
}

/// A refused token.
#[derive(Clone, Copy, Debug)]
pub struct Refused<'a> {
    pub job_id: &'a str,
    pub token: &'a str,
    /// The provider's own word or code.
    pub reason: &'a str,
    pub certainty: Certainty,
    /// Since when, in milliseconds since 1970.
    pub since_ms: Option<u64>,
}

/// A place among those that wait; given back if the run is dropped.
struct Place<'a> {
    gate: &'a DeadTokens,
    ticket: Option<Ticket>,
}

impl Place<'_> {
    async fn wait(&mut self, successes: &mut watch::Receiver<u64>, deadline: Instant) -> Decision {
        loop {
            let Some(ticket) = self.ticket else {
                return Decision::Held;
            };
            let now = Instant::now();
            let end = ticket.until.min(deadline.checked_sub(ANSWER_TIME).unwrap_or(now));
            let judged_at = if now >= end { ticket.until } else { now };
            match self.gate.with(|gate| gate.judge(judged_at, ticket)) {
                Decision::Wait(ticket) => self.ticket = Some(ticket),
                decision @ (Decision::Dead | Decision::Held) => {
                    self.ticket = None;
                    return decision;
                }
            }
            let until = tokio::time::Instant::from_std(end);
            // A closed channel cannot be: this gate holds its sender. Time over is judged above.
            let _ = tokio::time::timeout_at(until, successes.changed()).await;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.ticket.take().is_some() {
            self.gate.with(Gate::leave);
        }
    }
}

#[cfg(test)]
mod tests;
