//! The Xiaomi MiPush target: up to a thousand tokens in one request.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};

use crate::error::Error;
use crate::feedback::Certainty;
use crate::io::http::{Answer, Http, Options};
use crate::io::secret;
use crate::io::source::BoxFuture;
use crate::io::target::fanout::{self, Piece, Sender, failed, hide, retry_after};
use crate::io::target::push::{DeadTokens, Refused};
use crate::io::target::{Run, Target};
use crate::job::Message;
use crate::limits::RUN_JOBS_MAX;
use crate::outcome::Outcome;
use crate::settlement::Publish;
use crate::target::fanout::{Body, Fill};
use crate::target::push::Verdict;
use crate::target::xiaomi::{self, Answered, REQUESTS_MAX, Settings, TOKENS_MAX, fields, messages};

/// An answer names each refused token: a thousand of them fit.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Longest wait for the list of invalid regids.
const POLL_TIME: Duration = Duration::from_secs(5);

/// Sends jobs to phones through Xiaomi, for one app.
pub struct Xiaomi {
    settings: Settings,
    url: String,
    authorization: HeaderValue,
    secret: String,
    http: Http,
    dead: DeadTokens,
    /// When the list of invalid regids was fetched; locked while it is.
    polled: tokio::sync::Mutex<Option<Instant>>,
    /// Milliseconds since 1970.
    now_ms: fn() -> u64,
}

impl Xiaomi {
    /// A target.
    ///
    /// # Errors
    /// The settings are wrong, or a file that they name cannot be read.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        Self::with_clock(settings, unix_ms)
    }

    /// A target that takes the time of day from elsewhere: for tests of quotas.
    ///
    /// # Errors
    /// See [`Xiaomi::new`].
    pub fn with_clock(settings: Settings, now_ms: fn() -> u64) -> Result<Self, Error> {
        if let Some(problem) = settings.problems().into_iter().next() {
            return Err(Error::setup(problem));
        }
        let secret = secret::read(&settings.app_secret)?;
        let mut authorization = HeaderValue::try_from(format!("key={secret}"))
            .map_err(|_| Error::setup("app_secret fits no header"))?;
        authorization.set_sensitive(true);
        let options = Options {
            response_bytes_max: RESPONSE_BYTES_MAX,
            ca: settings.ca.clone(),
            ..Options::default()
        };
        Ok(Self {
            url: format!("{}{}", settings.url.trim_end_matches('/'), settings.path()),
            authorization,
            secret,
            http: Http::new(options)?,
            dead: DeadTokens::new("xiaomi", settings.package.clone(), settings.feedback.clone()),
            polled: tokio::sync::Mutex::new(None),
            now_ms,
            settings,
        })
    }

    /// How many tokens were declared dead, and how many were not although Xiaomi refused them.
    pub fn token_counts(&self) -> (u64, u64) {
        self.dead.counts()
    }

    fn form(&self, pieces: &[Piece<'_>]) -> Result<String, String> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        if self.settings.per_device {
            let pieces: Vec<(&str, &Body)> =
                pieces.iter().map(|piece| (piece.token, piece.body)).collect();
            form.append_pair("messages", &messages(&pieces, &self.settings.package));
        } else if let Some(first) = pieces.first() {
            let tokens: Vec<&str> = pieces.iter().map(|piece| piece.token).collect();
            form.extend_pairs(fields(first.body, &self.settings.package, &tokens)?);
        }
        Ok(form.finish())
    }

    async fn post(&self, form: String, deadline: Instant) -> Result<Answer, Verdict> {
        let request = http::Request::post(&self.url)
            .header(AUTHORIZATION, self.authorization.clone())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded;charset=UTF-8")
            .body(Bytes::from(form))
            .map_err(|_| Verdict::Config { why: "xiaomi: url is no address".to_owned() })?;
        let answer = self.http.send(request, deadline).await;
        let answer = answer.map_err(|failure| failed("xiaomi", failure))?;
        Ok(hide(answer, &[&self.secret]))
    }
}

impl Sender for Xiaomi {
    async fn send(&self, pieces: &[Piece<'_>], deadline: Instant) -> Vec<Verdict> {
        let verdicts = self.once(pieces, deadline).await;
        let is_refused = verdicts.iter().all(|verdict| matches!(verdict, Verdict::Reject { .. }));
        if !(self.settings.per_device && is_refused && pieces.len() > 1) {
            return verdicts;
        }
        let mut verdicts: Vec<Verdict> = Vec::with_capacity(pieces.len());
        for index in 0..pieces.len() {
            let stop = verdicts.last().filter(|verdict| fanout::stops(verdict)).cloned();
            let verdict = match stop {
                Some(verdict) => Some(verdict),
                None if index < REQUESTS_MAX => {
                    self.once(&pieces[index..=index], deadline).await.pop()
                }
                None => None,
            };
            verdicts.push(verdict.unwrap_or_else(|| Verdict::Retry {
                after: None,
                why: "xiaomi refused a request for a message that shared it".to_owned(),
            }));
        }
        verdicts
    }
}

impl Xiaomi {
    async fn once(&self, pieces: &[Piece<'_>], deadline: Instant) -> Vec<Verdict> {
        let all = |verdict: Verdict| vec![verdict; pieces.len()];
        let form = match self.form(pieces) {
            Ok(form) => form,
            Err(why) => return all(Verdict::Reject { why }),
        };
        let tokens: Vec<&str> = pieces.iter().map(|piece| piece.token).collect();
        match self.post(form, deadline).await {
            Ok(answer) => xiaomi::verdicts(self.answered(&answer), &tokens),
            Err(verdict) => all(verdict),
        }
    }

    /// The messages about the regids that Xiaomi lists as invalid, if it is time to ask.
    async fn invalid(&self, deadline: Instant) -> Vec<Publish> {
        let Some(every) = self.settings.invalid_poll else { return Vec::new() };
        let Ok(mut polled) = self.polled.try_lock() else { return Vec::new() };
        let now = Instant::now();
        // The job is done: it does not wait long for this.
        let deadline = deadline.min(now + POLL_TIME);
        if polled.is_some_and(|at| now < at + every.0) {
            return Vec::new();
        }
        *polled = Some(now);
        match self.fetch(deadline).await {
            Ok(regids) => {
                let one = |token: &String| {
                    let (job_id, reason) = ("", "fetch_invalid_regids");
                    let certainty = Certainty::Certain;
                    let refused = Refused { job_id, token, reason, certainty, since_ms: None };
                    self.dead.publishes(refused)
                };
                regids.iter().flat_map(one).collect()
            }
            Err(verdict) => {
                tracing::warn!(
                    package = %self.settings.package,
                    verdict = verdict.name(),
                    "xiaomi's list of invalid regids was not fetched; the next try is after invalid_poll"
                );
                Vec::new()
            }
        }
    }

    async fn fetch(&self, deadline: Instant) -> Result<Vec<String>, Verdict> {
        let base = self.settings.feedback_url.trim_end_matches('/');
        let request = http::Request::get(format!("{base}/v1/feedback/fetch_invalid_regids"))
            .header(AUTHORIZATION, self.authorization.clone())
            .body(Bytes::new())
            .map_err(|_| Verdict::Config {
                why: "xiaomi: feedback_url is no address".to_owned(),
            })?;
        let answer = self.http.send(request, deadline).await;
        xiaomi::invalid(self.answered(&answer.map_err(|failure| failed("xiaomi", failure))?))
    }

    fn answered<'a>(&self, answer: &'a Answer) -> Answered<'a> {
        Answered {
            status: answer.status,
            retry_after: retry_after(answer),
            body: &answer.body,
            now_ms: (self.now_ms)(),
        }
    }

    fn fill(&self) -> Fill {
        if self.settings.per_device {
            Fill::OwnMessages { tokens_max: TOKENS_MAX }
        } else {
            Fill::SameMessage { tokens_max: TOKENS_MAX }
        }
    }
}

impl Target for Xiaomi {
    fn run_jobs_max(&self) -> usize {
        TOKENS_MAX.min(RUN_JOBS_MAX)
    }

    fn group(&self, job: &Message) -> Option<u64> {
        let body = Body::parse(&job.body).ok()?;
        Some(if self.settings.per_device { 0 } else { body.group() })
    }

    fn run(self: Arc<Self>, run: Run) -> BoxFuture<Vec<Outcome>> {
        Box::pin(async move {
            let deadline = run.deadline;
            let mut outcomes = fanout::run(&*self, &self.dead, self.fill(), run).await;
            let done = outcomes.iter_mut().find_map(|outcome| match outcome {
                Outcome::Done { publishes } => Some(publishes),
                Outcome::Retry { .. }
                | Outcome::Throttle { .. }
                | Outcome::TokenDead { .. }
                | Outcome::Reject { .. }
                | Outcome::Config { .. } => None,
            });
            if let Some(publishes) = done {
                publishes.extend(self.invalid(deadline).await);
            }
            outcomes
        })
    }

    fn check(self: Arc<Self>) -> BoxFuture<Result<String, Error>> {
        // Xiaomi has no request that checks a secret and sends nothing: an empty one is refused either way, and the
        // code tells which.
        Box::pin(async move {
            let deadline = Instant::now() + Duration::from_secs(10);
            let empty = self.post(String::new(), deadline).await;
            let verdict = match empty {
                Ok(answer) => xiaomi::verdicts(self.answered(&answer), &[""]).pop(),
                Err(verdict) => Some(verdict),
            };
            match verdict {
                Some(Verdict::Config { why }) => Err(Error::setup(why)),
                Some(Verdict::Retry { why, .. } | Verdict::Throttle { why, .. }) => {
                    Err(Error::away("xiaomi", why))
                }
                Some(
                    Verdict::Done
                    | Verdict::Dead { .. }
                    | Verdict::Reject { .. }
                    | Verdict::Auth { .. },
                )
                | None => Ok("xiaomi answers and takes the secret".to_owned()),
            }
        })
    }
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
