//! The Getui target: up to 200 messages in one request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::Value;

use crate::error::Error;
use crate::io::http::{Answer, Http, Options};
use crate::io::secret;
use crate::io::source::BoxFuture;
use crate::io::target::fanout::{self, Piece, Sender, failed, hide, retry_after};
use crate::io::target::push::DeadTokens;
use crate::io::target::session::Shared;
use crate::io::target::{Run, Target};
use crate::job::Message;
use crate::outcome::Outcome;
use crate::target::fanout::Fill;
use crate::target::getui::{
    self, Answered, MESSAGES_MAX, Meaning, One, REQUESTS_MAX, Settings, access_token, meaning,
};
use crate::target::push::Verdict;

/// An answer has a line for each of 200 cids.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Sends jobs to phones through Getui, for one app. Its access token lives in memory only.
pub struct Getui {
    settings: Settings,
    app_key: String,
    master_secret: String,
    /// Which of the addresses serves the app.
    domain: AtomicUsize,
    http: Http,
    access: Shared,
    dead: DeadTokens,
}

impl Getui {
    /// A target.
    ///
    /// # Errors
    /// The settings are wrong, or a file that they name cannot be read.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        if let Some(problem) = settings.problems().into_iter().next() {
            return Err(Error::setup(problem));
        }
        let options = Options {
            response_bytes_max: RESPONSE_BYTES_MAX,
            ca: settings.ca.clone(),
            ..Options::default()
        };
        Ok(Self {
            app_key: secret::read(&settings.app_key)?,
            master_secret: secret::read(&settings.master_secret)?,
            domain: AtomicUsize::new(0),
            http: Http::new(options)?,
            access: Shared::new(),
            dead: DeadTokens::new("getui", settings.app_id.clone(), settings.feedback.clone()),
            settings,
        })
    }

    /// How many tokens were declared dead, and how many were not although Getui refused them.
    pub fn token_counts(&self) -> (u64, u64) {
        self.dead.counts()
    }

    /// One request to the domain that is thought to be right, and which one that was.
    async fn post(
        &self,
        path: &str,
        token: Option<&str>,
        body: &Value,
        deadline: Instant,
    ) -> Result<(Answer, usize), Verdict> {
        let domain = self.domain.load(Ordering::Relaxed) % self.settings.urls.len();
        let base = self.settings.urls[domain].trim_end_matches('/');
        let mut request = http::Request::post(format!("{base}/v2/{}{path}", self.settings.app_id))
            .header(CONTENT_TYPE, "application/json;charset=utf-8");
        if let Some(token) = token {
            let mut value = HeaderValue::try_from(token).map_err(wrong)?;
            value.set_sensitive(true);
            request = request.header("token", value);
        }
        let request = request.body(Bytes::from(body.to_string())).map_err(wrong)?;
        let answer = self.http.send(request, deadline).await;
        let answer = answer.map_err(|failure| failed("getui", failure))?;
        let secrets: [&str; 3] = [&self.master_secret, &self.app_key, token.unwrap_or_default()];
        // An answer to a request for an access token holds the token: it is not shown, but read.
        Ok((hide(answer, &secrets), domain))
    }

    /// The app is not served there: from now on the next domain is asked, unless another run has gone on already.
    fn leave(&self, domain: usize) {
        let next = (domain + 1) % self.settings.urls.len();
        let (order, ignored) = (Ordering::Relaxed, Ordering::Relaxed);
        // A failed exchange says that another run has gone on.
        let _ = self.domain.compare_exchange(domain, next, order, ignored);
    }

    async fn refresh(&self, deadline: Instant) -> Result<(String, Duration), Verdict> {
        for _ in 0..self.settings.urls.len() {
            let now_ms = unix_ms();
            let body = getui::auth_request(&self.app_key, &self.master_secret, now_ms);
            let (answer, domain) = self.post("/auth", None, &body, deadline).await?;
            match access_token(answered(&answer), now_ms) {
                Err(None) => self.leave(domain),
                Err(Some(verdict)) => return Err(verdict),
                Ok(granted) => return Ok(granted),
            }
        }
        Err(no_domain())
    }

    /// One request with its access token; refreshes that once, and goes through the domains.
    async fn push(&self, pieces: &[Piece<'_>], deadline: Instant) -> Result<Meaning, Verdict> {
        let cids: Vec<&str> = pieces.iter().map(|piece| piece.token).collect();
        let (path, body) = match request(pieces) {
            Ok(request) => request,
            Err(_) if pieces.len() > 1 => return Ok(Meaning::Split),
            Err(why) => return Err(Verdict::Reject { why }),
        };
        let (mut refreshes, mut domains) = (0, 0);
        loop {
            let lease = self.access.lease(self.refresh(deadline)).await?;
            let (answer, domain) = self.post(path, Some(&lease.token), &body, deadline).await?;
            match meaning(answered(&answer), &cids) {
                Meaning::All(Verdict::Auth { .. }) if refreshes == 0 => {
                    refreshes += 1;
                    self.access.expired(&lease).await;
                }
                Meaning::WrongDomain if domains + 1 < self.settings.urls.len() => {
                    domains += 1;
                    self.leave(domain);
                }
                Meaning::WrongDomain => return Err(no_domain()),
                meaning => return Ok(meaning),
            }
        }
    }
}

impl Sender for Getui {
    async fn send(&self, pieces: &[Piece<'_>], deadline: Instant) -> Vec<Verdict> {
        let mut verdicts: Vec<Option<Verdict>> = vec![None; pieces.len()];
        let mut alone = Vec::new();
        match self.push(pieces, deadline).await {
            Ok(Meaning::Each(each)) => {
                for (index, one) in each.into_iter().enumerate() {
                    match one {
                        One::Known(verdict) => verdicts[index] = Some(verdict),
                        One::Unnamed if pieces.len() > 1 => alone.push(index),
                        One::Unnamed => {}
                    }
                }
            }
            Ok(Meaning::Split) => alone.extend(0..pieces.len()),
            Ok(Meaning::All(verdict)) | Err(verdict) => return vec![verdict; pieces.len()],
            Ok(Meaning::WrongDomain) => return vec![no_domain(); pieces.len()],
        }
        for index in alone.into_iter().take(REQUESTS_MAX) {
            let verdict = match self.push(&pieces[index..=index], deadline).await {
                Ok(Meaning::Each(each)) => each.into_iter().find_map(|one| match one {
                    One::Known(verdict) => Some(verdict),
                    One::Unnamed => None,
                }),
                Ok(Meaning::All(verdict)) | Err(verdict) => Some(verdict),
                Ok(Meaning::WrongDomain | Meaning::Split) => None,
            };
            if let Some(verdict) = verdict.as_ref().filter(|verdict| fanout::stops(verdict)) {
                let open = verdicts.iter_mut().filter(|known| known.is_none());
                open.for_each(|open| *open = Some(verdict.clone()));
                break;
            }
            verdicts[index] = verdict;
        }
        let unknown = || Verdict::Retry {
            after: None,
            why: "getui did not say what became of this cid".to_owned(),
        };
        verdicts.into_iter().map(|verdict| verdict.unwrap_or_else(unknown)).collect()
    }
}

impl Target for Getui {
    fn run_jobs_max(&self) -> usize {
        MESSAGES_MAX
    }

    fn group(&self, _job: &Message) -> Option<u64> {
        Some(0)
    }

    fn run(self: Arc<Self>, run: Run) -> BoxFuture<Vec<Outcome>> {
        let fill = Fill::OwnMessages { tokens_max: MESSAGES_MAX };
        Box::pin(async move { fanout::run(&*self, &self.dead, fill, run).await })
    }

    fn check(self: Arc<Self>) -> BoxFuture<Result<String, Error>> {
        Box::pin(async move {
            let deadline = Instant::now() + Duration::from_secs(10);
            fanout::checked("getui", self.access.lease(self.refresh(deadline)).await)
        })
    }
}

/// One message goes by itself, several in a batch.
fn request(pieces: &[Piece<'_>]) -> Result<(&'static str, Value), String> {
    let message = |piece: &Piece<'_>| getui::message(&piece.job.id, piece.token, piece.body);
    if let [piece] = pieces {
        return Ok(("/push/single/cid", message(piece)?));
    }
    let messages: Vec<Value> = pieces.iter().map(message).collect::<Result<_, _>>()?;
    Ok(("/push/single/batch/cid", getui::batch(messages)))
}

fn answered(answer: &Answer) -> Answered<'_> {
    Answered { status: answer.status, retry_after: retry_after(answer), body: &answer.body }
}

fn no_domain() -> Verdict {
    Verdict::Config { why: "getui: none of urls serves this app (code 301)".to_owned() }
}

fn wrong(_: impl std::error::Error) -> Verdict {
    Verdict::Config { why: "getui: an address or an access token fits no request".to_owned() }
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
