//! Pushes to Apple devices over HTTP/2 connections of its own. What is decided is decided in
//! [`target::apns`](crate::target::apns).

mod connection;
mod connector;
mod exchange;
mod shared;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::HeaderValue;

use self::connector::Connector;
use self::exchange::{Exchange, exchange};
use self::shared::Shared;
use super::push::{DeadTokens, Refused};
use super::{Run, Target};
use crate::error::Error;
use crate::io::secret;
use crate::io::source::BoxFuture;
use crate::job::Message;
use crate::outcome::{Outcome, Scope};
use crate::target::apns::answer::Verdict;
use crate::target::apns::provider_token::{Follows, Generation, ProviderToken, Signer};
use crate::target::apns::request::{Defaults, Push, apns_id, read};
use crate::target::apns::{Authentication, Settings};

/// How often one attempt goes on after pushes that APNs certainly did not take.
const RESENDS_MAX: u32 = 5;
/// How long everything waits where APNs wants fewer new provider tokens.
const TOKEN_WAIT: Duration = Duration::from_secs(60);
/// A device token that cannot be one, to see whether the credentials are taken.
const NO_DEVICE: &str = "{\"token\":\"00\",\"payload\":{\"aps\":{}}}";

/// The time since 1970.
pub type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// The target.
pub struct Apns {
    shared: Arc<Shared>,
    defaults: Defaults,
    dead_tokens: DeadTokens,
    clock: Clock,
}

impl Apns {
    /// Reads the credentials; connects when there is something to push.
    ///
    /// # Errors
    /// The settings or the credentials are no good.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::with_clock(settings, Box::new(clock))
    }

    /// With another clock for provider tokens, for tests.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn with_clock(settings: &Settings, clock: Clock) -> Result<Self, Error> {
        if let Some(problem) = settings.problems().into_iter().next() {
            return Err(Error::setup(problem));
        }
        let token = match settings.authentication().map_err(Error::setup)? {
            Authentication::Token { key, key_id, team_id } => {
                let signer = Signer::new(&secret::read(key)?, key_id, team_id);
                Some(ProviderToken::new(signer.map_err(Error::setup)?))
            }
            Authentication::Certificate { .. } => None,
        };
        let defaults = Defaults::new(settings.topic.as_deref(), &settings.push_type);
        let app = settings.topic.as_deref().unwrap_or_default();
        Ok(Self {
            shared: Shared::new(settings, Connector::new(settings)?, token),
            defaults: defaults.map_err(Error::setup)?,
            dead_tokens: DeadTokens::new("apns", app, settings.feedback.clone()),
            clock,
        })
    }

    /// How many device tokens were declared dead, and how many were not although APNs refused them.
    pub fn token_counts(&self) -> (u64, u64) {
        self.dead_tokens.counts()
    }

    async fn push(&self, job: &Message, deadline: Instant) -> Outcome {
        let mut why = String::new();
        for _ in 0..RESENDS_MAX {
            // Sending uses it up. It is seldom sent again.
            let mut push = match read(job, &self.defaults) {
                Ok(push) => push,
                Err(why) => return Outcome::reject(why),
            };
            let (authorization, generation) = match self.authorization() {
                Ok(authorization) => authorization,
                Err(why) => return Outcome::Config { why },
            };
            match exchange(&self.shared, &mut push, authorization).await {
                Exchange::Answered(verdict) => {
                    match self.follow(verdict, generation, (job, &push), deadline).await {
                        Next::Over(outcome) => return outcome,
                        Next::Again(reason) => why = reason,
                    }
                }
                Exchange::NotTaken { why: reason } => why = reason,
                Exchange::Unknown { why } => {
                    let id = apns_id(&job.id);
                    let why = format!("{why}; the push may be out, and goes again as apns-id {id}");
                    return Outcome::retry(why);
                }
                Exchange::NoConnection { after, why } => {
                    return Outcome::Retry {
                        after: Some(after),
                        why,
                        rest: None,
                        publishes: Vec::new(),
                    };
                }
            }
        }
        Outcome::retry(format!("given up for now after {RESENDS_MAX} tries: {why}"))
    }

    fn authorization(&self) -> Result<(Option<HeaderValue>, Option<Generation>), String> {
        let value = self.shared.with_provider_token(|token| token.value((self.clock)()));
        match value {
            Some(value) => value.map(|(value, generation)| (Some(value), Some(generation))),
            None => Ok((None, None)),
        }
    }

    /// What follows an answer.
    async fn follow(
        &self,
        verdict: Verdict,
        generation: Option<Generation>,
        job: (&Message, &Push),
        deadline: Instant,
    ) -> Next {
        let over = Next::Over;
        match verdict {
            Verdict::Accepted => {
                self.dead_tokens.success();
                over(Outcome::done())
            }
            Verdict::TokenDead { reason, certainty, since_ms } => {
                let (job, push) = job;
                let is_newer = matches!((push.registered_ms, since_ms),
                    (Some(registered), Some(since)) if registered > since);
                if is_newer {
                    return over(Outcome::retry(format!(
                        "APNs answered {reason}, but the device token was registered after that"
                    )));
                }
                let token = push.token();
                let dead = Refused { job_id: &job.id, token, reason: &reason, certainty, since_ms };
                over(self.dead_tokens.outcome(dead, deadline).await)
            }
            Verdict::Retry { reason, after } => {
                over(Outcome::Retry { after, why: reason, rest: None, publishes: Vec::new() })
            }
            Verdict::OtherConnection { reason } => Next::Again(reason),
            Verdict::Reject { reason } => over(Outcome::reject(reason)),
            Verdict::Config { reason } => over(Outcome::Config {
                why: format!("{reason}: check the key, its ids, the topic and the server"),
            }),
            Verdict::TokenExpired => self.expired(generation),
            Verdict::TokenTooNew => self.too_new(generation),
        }
    }

    fn expired(&self, generation: Option<Generation>) -> Next {
        let now = (self.clock)();
        let follows = generation.and_then(|generation| {
            self.shared.with_provider_token(|token| token.expired(generation, now))
        });
        match follows {
            Some(Ok(Follows::Repeat)) => {
                Next::Again("APNs called the provider token expired".to_owned())
            }
            Some(Err(why)) => Next::Over(Outcome::Config { why }),
            Some(Ok(Follows::ClockWrong | Follows::Wait)) | None => {
                let why = "APNs calls a provider token expired that was just made: \
                    set this machine's clock right";
                Next::Over(Outcome::Config { why: why.to_owned() })
            }
        }
    }

    fn too_new(&self, generation: Option<Generation>) -> Next {
        let now = (self.clock)();
        let follows = generation.and_then(|generation| {
            self.shared.with_provider_token(|token| token.too_new(generation, now))
        });
        let why = "APNs answered 429 TooManyProviderTokenUpdates: \
            too many processes make provider tokens with this key";
        match follows {
            Some(Follows::Repeat) => Next::Again(why.to_owned()),
            Some(Follows::Wait | Follows::ClockWrong) | None => Next::Over(Outcome::Throttle {
                scope: Scope::Target,
                until: TOKEN_WAIT,
                why: why.to_owned(),
            }),
        }
    }
}

/// What follows an answer.
enum Next {
    Over(Outcome),
    /// The same push again, at once: it certainly was not taken.
    Again(String),
}

impl Drop for Apns {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Target for Apns {
    fn run(self: Arc<Self>, run: Run) -> BoxFuture<Vec<Outcome>> {
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(run.jobs.len());
            for job in &run.jobs {
                outcomes.push(self.push(job, run.deadline).await);
            }
            outcomes
        })
    }

    fn check(self: Arc<Self>) -> BoxFuture<Result<String, Error>> {
        Box::pin(async move {
            let doing = format!("APNs at {}", self.shared.connector.authority());
            let body = bytes::Bytes::from_static(NO_DEVICE.as_bytes());
            let job = Message { id: "doctor".to_owned(), body, ..Message::default() };
            let mut push = read(&job, &self.defaults).map_err(Error::setup)?;
            let (authorization, _) = self.authorization().map_err(Error::setup)?;
            match exchange(&self.shared, &mut push, authorization).await {
                Exchange::Answered(Verdict::Config { reason }) => {
                    Err(Error::setup(format!("{doing}: {reason}: check the credentials")))
                }
                Exchange::Answered(Verdict::TokenExpired) => {
                    Err(Error::setup(format!("{doing}: set this machine's clock right")))
                }
                Exchange::Answered(_) => Ok(format!("{doing} takes the credentials")),
                Exchange::NotTaken { why }
                | Exchange::Unknown { why }
                | Exchange::NoConnection { why, .. } => Err(Error::away(doing, why)),
            }
        })
    }
}

impl std::fmt::Debug for Apns {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Apns({})", self.shared.connector.authority())
    }
}

/// How long a connection may take.
fn deadline(after: Duration) -> tokio::time::Instant {
    tokio::time::Instant::from_std(Instant::now() + after)
}
