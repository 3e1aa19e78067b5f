//! Pushes through Firebase Cloud Messaging.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use jsonwebtoken::{Algorithm, EncodingKey, Header};

use crate::error::Error;
use crate::io::http::{Answer, Http, Options};
use crate::io::secret;
use crate::io::source::BoxFuture;
use crate::io::target::fanout::{checked, failed, retry_after};
use crate::io::target::push::{DeadTokens, Refused};
use crate::io::target::session::Shared;
use crate::io::target::{Run, Target};
use crate::job::Message;
use crate::outcome::Outcome;
use crate::target::fcm::{Claims, GRANT_TYPE, Push, ServiceAccount, Settings, answer, read};
use crate::target::push::Verdict;

/// How long a doctor waits.
const CHECK_TIME: Duration = Duration::from_secs(10);

/// The target.
pub struct Fcm {
    settings: Settings,
    send_url: http::Uri,
    token_url: String,
    account: ServiceAccount,
    key: EncodingKey,
    http: Http,
    access: Shared,
    dead: DeadTokens,
}

impl Fcm {
    /// Reads the service account; connects when there is something to push.
    ///
    /// # Errors
    /// The settings or the service account are no good.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        if let Some(problem) = settings.problems().into_iter().next() {
            return Err(Error::setup(problem));
        }
        let text = secret::read(&settings.service_account)?;
        let account: ServiceAccount = serde_json::from_str(&text).map_err(|_| {
            Error::setup("service_account is not the key file of a service account (JSON)")
        })?;
        let key = EncodingKey::from_rsa_pem(account.private_key.as_bytes())
            .map_err(|_| Error::setup("private_key of service_account is no RSA key (PEM)"))?;
        let project = settings.project_id.clone().unwrap_or_else(|| account.project_id.clone());
        let base = settings.push_url.trim_end_matches('/');
        let send_url = format!("{base}/v1/projects/{project}/messages:send")
            .parse()
            .map_err(|_| Error::setup("push_url and project_id make no URL"))?;
        let options = Options { ca: settings.ca.clone(), ..Options::default() };
        Ok(Self {
            send_url,
            token_url: settings.token_url.clone().unwrap_or_else(|| account.token_uri.clone()),
            http: Http::new(options)?,
            access: Shared::new(),
            dead: DeadTokens::new("fcm", project, settings.feedback.clone()),
            account,
            key,
            settings,
        })
    }

    /// How many device tokens were declared dead, and how many were not although FCM refused them.
    pub fn token_counts(&self) -> (u64, u64) {
        self.dead.counts()
    }

    async fn push(&self, job: &Message, deadline: Instant) -> Outcome {
        let push = match read(&job.body, self.settings.validate_only) {
            Ok(push) => push,
            Err(why) => return Outcome::reject(why),
        };
        let verdict = self.send(&push, deadline).await;
        if verdict == Verdict::Done && push.token.is_some() {
            self.dead.success();
        }
        match (verdict.outcome(), &push.token) {
            (Ok(outcome), _) => outcome,
            (Err((reason, certainty, since_ms)), Some(token)) => {
                let dead = Refused { job_id: &job.id, token, reason: &reason, certainty, since_ms };
                self.dead.outcome(dead, deadline).await
            }
            (Err((reason, _, _)), None) => Outcome::reject(format!("fcm answered {reason}")),
        }
    }

    /// Sends it; with another access token, once, if FCM does not take this one.
    async fn send(&self, push: &Push, deadline: Instant) -> Verdict {
        let mut verdict = Verdict::Done;
        for _ in 0..2 {
            let lease = match self.access.lease(self.refresh(deadline)).await {
                Ok(lease) => lease,
                Err(verdict) => return verdict,
            };
            verdict = match self.once(&lease.token, push.body.clone(), deadline).await {
                Ok(answer) => answer::judge(answer.status, retry_after(&answer), &answer.body),
                Err(verdict) => return verdict,
            };
            if !matches!(verdict, Verdict::Auth { .. }) {
                break;
            }
            self.access.expired(&lease).await;
        }
        verdict
    }

    async fn once(&self, token: &str, body: Bytes, deadline: Instant) -> Result<Answer, Verdict> {
        let mut bearer = HeaderValue::try_from(format!("Bearer {token}")).map_err(wrong)?;
        bearer.set_sensitive(true);
        let request = http::Request::post(self.send_url.clone())
            .header(AUTHORIZATION, bearer)
            .header(CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(wrong)?;
        self.http.send(request, deadline).await.map_err(|failure| failed("fcm", failure))
    }

    /// Asks for an access token with an assertion (RFC 7523).
    async fn refresh(&self, deadline: Instant) -> Result<(String, Duration), Verdict> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut header = Header::new(Algorithm::RS256);
        header.kid.clone_from(&self.account.private_key_id);
        let claims = Claims::new(&self.account, &self.token_url, now);
        let assertion = jsonwebtoken::encode(&header, &claims, &self.key).map_err(|_| {
            Verdict::Config { why: "fcm: the service account's key cannot sign".to_owned() }
        })?;
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", GRANT_TYPE)
            .append_pair("assertion", &assertion)
            .finish();
        let request = http::Request::post(&self.token_url)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Bytes::from(form))
            .map_err(wrong)?;
        let answer = self.http.send(request, deadline).await;
        let answer = answer.map_err(|failure| failed("fcm", failure))?;
        answer::access_token(answer.status, retry_after(&answer), &answer.body)
    }
}

impl Target for Fcm {
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
            let deadline = Instant::now() + CHECK_TIME;
            checked("fcm", self.access.lease(self.refresh(deadline)).await)
        })
    }
}

impl std::fmt::Debug for Fcm {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Fcm({})", self.send_url)
    }
}

fn wrong(_: impl std::error::Error) -> Verdict {
    Verdict::Config { why: "fcm: an address or an access token fits no request".to_owned() }
}
