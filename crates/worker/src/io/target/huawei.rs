//! The Huawei Push Kit target: up to a thousand tokens in one request.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use jsonwebtoken::{Algorithm, EncodingKey, Header};

use crate::error::Error;
use crate::io::http::{Answer, Http, Options};
use crate::io::secret;
use crate::io::source::BoxFuture;
use crate::io::target::fanout::{self, Piece, Sender, failed, hide, retry_after};
use crate::io::target::push::DeadTokens;
use crate::io::target::session::Shared;
use crate::io::target::{Run, Target};
use crate::job::Message;
use crate::limits::RUN_JOBS_MAX;
use crate::outcome::Outcome;
use crate::target::fanout::{Body, Fill};
use crate::target::huawei::{
    self, Answered, JWT_LIFE, ServiceAccount, Settings, TOKENS_MAX, Version,
};
use crate::target::push::Verdict;

/// An answer names each refused token: a thousand of them fit.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Sends jobs to phones through Huawei, for one app.
pub struct Huawei {
    settings: Settings,
    url: String,
    credentials: Credentials,
    http: Http,
    access: Shared,
    dead: DeadTokens,
}

/// How an access token is come by.
enum Credentials {
    OAuth { form: String, secret: String },
    Account { account: Box<ServiceAccount>, key: Box<EncodingKey> },
}

impl Huawei {
    /// A target.
    ///
    /// # Errors
    /// The settings are wrong, or a file that they name cannot be read.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        if let Some(problem) = settings.problems().into_iter().next() {
            return Err(Error::setup(problem));
        }
        let credentials = credentials(&settings)?;
        let (version, id) = match (&settings.version, &credentials) {
            (Version::V1, _) => ("v1", settings.app_id.clone()),
            (Version::V2, _) => ("v2", settings.project_id.clone()),
            (Version::V3, Credentials::Account { account, .. }) => {
                ("v3", Some(settings.project_id.clone().unwrap_or(account.project_id.clone())))
            }
            (Version::V3, Credentials::OAuth { .. }) => ("v3", None),
        };
        let id = id.ok_or_else(|| Error::setup("project_id is missing"))?;
        let base = settings.push_url.trim_end_matches('/');
        let options = Options {
            response_bytes_max: RESPONSE_BYTES_MAX,
            ca: settings.ca.clone(),
            ..Options::default()
        };
        Ok(Self {
            url: format!("{base}/{version}/{id}/messages:send"),
            http: Http::new(options)?,
            access: Shared::new(),
            dead: DeadTokens::new("huawei", id, settings.feedback.clone()),
            credentials,
            settings,
        })
    }

    /// How many tokens were declared dead, and how many were not although Huawei refused them.
    pub fn token_counts(&self) -> (u64, u64) {
        self.dead.counts()
    }

    async fn refresh(&self, deadline: Instant) -> Result<(String, Duration), Verdict> {
        match &self.credentials {
            Credentials::OAuth { form, secret } => {
                let request = http::Request::post(&self.settings.token_url)
                    .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(Bytes::from(form.clone()))
                    .map_err(wrong)?;
                let answer = self.http.send(request, deadline).await;
                let answer = answer.map_err(|failure| failed("huawei", failure))?;
                let answer = hide(answer, &[secret]);
                huawei::access_token(answered(&answer))
            }
            Credentials::Account { account, key } => {
                let mut header = Header::new(Algorithm::PS256);
                header.kid = Some(account.key_id.clone());
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let claims = huawei::claims(account, &self.settings.token_url, now);
                let token = jsonwebtoken::encode(&header, &claims, key).map_err(|_| {
                    Verdict::Config { why: "huawei: the service account's key cannot sign".into() }
                })?;
                Ok((token, JWT_LIFE))
            }
        }
    }

    async fn once(
        &self,
        token: &str,
        body: Bytes,
        push_type: u8,
        deadline: Instant,
    ) -> Result<Answer, Verdict> {
        let mut bearer = HeaderValue::try_from(format!("Bearer {token}")).map_err(wrong)?;
        bearer.set_sensitive(true);
        let mut request = http::Request::post(&self.url)
            .header(AUTHORIZATION, bearer)
            .header(CONTENT_TYPE, "application/json; charset=UTF-8");
        if self.settings.version == Version::V3 {
            request = request.header("push-type", push_type.to_string());
        }
        let request = request.body(body).map_err(wrong)?;
        let answer = self.http.send(request, deadline).await;
        let answer = answer.map_err(|failure| failed("huawei", failure))?;
        Ok(hide(answer, &[token, self.secret()]))
    }

    fn secret(&self) -> &str {
        match &self.credentials {
            Credentials::OAuth { secret, .. } => secret,
            Credentials::Account { .. } => "",
        }
    }
}

impl Sender for Huawei {
    async fn send(&self, pieces: &[Piece<'_>], deadline: Instant) -> Vec<Verdict> {
        let Some(first) = pieces.first() else { return Vec::new() };
        let tokens: Vec<&str> = pieces.iter().map(|piece| piece.token).collect();
        let all = |verdict: Verdict| vec![verdict; pieces.len()];
        let push_type = first.body.push_type.unwrap_or(0);
        let body = huawei::request(self.settings.version, first.body, &tokens).to_string();
        let body = Bytes::from(body);
        let mut verdicts = Vec::new();
        // An access token that has expired is replaced once.
        for _ in 0..2 {
            let lease = match self.access.lease(self.refresh(deadline)).await {
                Ok(lease) => lease,
                Err(verdict) => return all(verdict),
            };
            let answer = match self.once(&lease.token, body.clone(), push_type, deadline).await {
                Ok(answer) => answer,
                Err(verdict) => return all(verdict),
            };
            verdicts = huawei::verdicts(answered(&answer), &tokens);
            if !verdicts.iter().any(|verdict| matches!(verdict, Verdict::Auth { .. })) {
                break;
            }
            self.access.expired(&lease).await;
        }
        verdicts
    }
}

impl Target for Huawei {
    fn run_jobs_max(&self) -> usize {
        TOKENS_MAX.min(RUN_JOBS_MAX)
    }

    fn group(&self, job: &Message) -> Option<u64> {
        Body::parse(&job.body).ok().map(|body| body.group())
    }

    fn run(self: Arc<Self>, run: Run) -> BoxFuture<Vec<Outcome>> {
        let fill = Fill::SameMessage { tokens_max: TOKENS_MAX };
        Box::pin(async move { fanout::run(&*self, &self.dead, fill, run).await })
    }

    fn check(self: Arc<Self>) -> BoxFuture<Result<String, Error>> {
        Box::pin(async move {
            let deadline = Instant::now() + Duration::from_secs(10);
            fanout::checked("huawei", self.access.lease(self.refresh(deadline)).await)
        })
    }
}

fn credentials(settings: &Settings) -> Result<Credentials, Error> {
    let missing = |name: &str| Error::setup(format!("{name} is missing"));
    match settings.version {
        Version::V1 | Version::V2 => {
            let id = settings.app_id.as_ref().ok_or_else(|| missing("app_id"))?;
            let secret = settings.client_secret.as_ref().ok_or_else(|| missing("client_secret"))?;
            let secret = secret::read(secret)?;
            let form = form_urlencoded::Serializer::new(String::new())
                .append_pair("grant_type", "client_credentials")
                .append_pair("client_id", id)
                .append_pair("client_secret", &secret)
                .finish();
            Ok(Credentials::OAuth { form, secret })
        }
        Version::V3 => {
            let file = settings.service_account.as_ref();
            let text = secret::read(file.ok_or_else(|| missing("service_account"))?)?;
            let account: ServiceAccount = serde_json::from_str(&text).map_err(|_| {
                Error::setup("service_account is not the key file of a service account (JSON)")
            })?;
            let key = EncodingKey::from_rsa_pem(account.private_key.as_bytes())
                .map_err(|_| Error::setup("private_key of service_account is no RSA key (PEM)"))?;
            Ok(Credentials::Account { account: Box::new(account), key: Box::new(key) })
        }
    }
}

fn answered(answer: &Answer) -> Answered<'_> {
    Answered { status: answer.status, retry_after: retry_after(answer), body: &answer.body }
}

fn wrong(_: impl std::error::Error) -> Verdict {
    Verdict::Config { why: "huawei: an address, an id or an access token fits no request".into() }
}
