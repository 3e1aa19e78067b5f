//! The webhook target: one request for each job.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::error::Error;
use crate::io::http::{
    Addresses, Failure, Http, Http2, Identity, Options, Resolve, SystemResolver,
};
use crate::io::secret;
use crate::io::source::BoxFuture;
use crate::io::target::{Run, Target};
use crate::job::Message;
use crate::outcome::Outcome;
use crate::target::webhook::{self, Requests, Settings, Template, judge};

/// Shortest secret that is looked for in what an endpoint says.
const SECRET_BYTES_MIN: usize = 4;

/// Sends each job to an endpoint.
#[derive(Debug)]
pub struct Webhook {
    settings: Settings,
    requests: Requests,
    http: Http,
    /// Values that no reason may repeat.
    secrets: Hidden,
}

struct Hidden(Vec<String>);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("***")
    }
}

impl Webhook {
    /// A target with the machine's resolver.
    ///
    /// # Errors
    /// The settings are wrong, or a file that they name cannot be read.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        Self::with_resolver(settings, Arc::new(SystemResolver))
    }

    /// A target that asks `resolver` for the addresses of names.
    ///
    /// # Errors
    /// See [`Webhook::new`].
    pub fn with_resolver(settings: Settings, resolver: Arc<dyn Resolve>) -> Result<Self, Error> {
        if let Some(problem) = settings.problems().into_iter().next() {
            return Err(Error::setup(problem));
        }
        let mut headers = BTreeMap::new();
        for (name, value) in &settings.headers {
            headers.insert(name.clone(), secret::read(value)?);
        }
        let secrets: Vec<String> =
            settings.secrets.iter().map(secret::read).collect::<Result<_, _>>()?;
        let requests = Requests::new(&settings, &headers, &secrets).map_err(Error::setup)?;
        let http = Http::with_resolver(options(&settings), resolver)?;
        let hidden =
            headers.into_values().chain(secrets).filter(|text| text.len() >= SECRET_BYTES_MIN);
        Ok(Self { requests, http, secrets: Hidden(hidden.collect()), settings })
    }

    async fn deliver(&self, job: &Message, deadline: Instant) -> Outcome {
        let now_ms = unix_ms();
        let request = match self.requests.request(job, now_ms / 1000) {
            Ok(request) => request,
            Err(why) => return Outcome::reject(why),
        };
        let deadline = deadline.min(Instant::now() + self.settings.timeout.0);
        let outcome = match self.http.send(request, deadline).await {
            Ok(answer) => {
                // Whole secrets only can be found: before the text is cut.
                let body = self.hidden_in(&answer.body);
                judge(&self.settings, answer.status, &answer.headers, &body, now_ms)
            }
            Err(Failure::Forbidden { address }) => Outcome::reject(address),
            Err(Failure::Connect { why } | Failure::Broken { why }) => Outcome::retry(why),
            Err(Failure::Timeout) => Outcome::retry("no whole answer in time"),
        };
        self.hide(outcome)
    }

    /// An endpoint may repeat what it was sent: no secret goes on into logs and dead jobs.
    fn hide(&self, mut outcome: Outcome) -> Outcome {
        match &mut outcome {
            Outcome::Done { .. } => {}
            Outcome::Retry { why, .. }
            | Outcome::Throttle { why, .. }
            | Outcome::TokenDead { why, .. }
            | Outcome::Reject { why }
            | Outcome::Config { why } => {
                if let Cow::Owned(clean) = self.hidden_in(why.as_bytes()) {
                    *why = String::from_utf8_lossy(&clean).into_owned();
                }
            }
        }
        outcome
    }

    fn hidden_in<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        if text.is_empty() || self.secrets.0.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut clean = String::from_utf8_lossy(text);
        for secret in &self.secrets.0 {
            if clean.contains(secret.as_str()) {
                clean = Cow::Owned(clean.replace(secret.as_str(), "***"));
            }
        }
        Cow::Owned(clean.into_owned().into_bytes())
    }

    async fn probe(&self) -> Result<String, Error> {
        let Some(url) = &self.settings.url else {
            return Ok(format!(
                "the header {} of each job says where it goes",
                webhook::URL_HEADER
            ));
        };
        // Fields stand in the path alone, which is not part of a connection.
        let path =
            url.find("://").and_then(|at| url[at + 3..].find(['/', '?']).map(|end| at + 3 + end));
        let origin = Template::parse(&url[..path.unwrap_or(url.len())])
            .ok()
            .and_then(|template| template.without_fields())
            .ok_or_else(|| Error::setup(format!("{url} is no URL")))?;
        let stream = self.http.connector().open(&origin).await;
        let stream = stream.map_err(|why| Error::away(format!("connecting to {origin}"), why))?;
        let protocol = if stream.is_http2() { "HTTP/2" } else { "HTTP/1.1" };
        Ok(format!("{origin} takes connections ({protocol}); nothing was sent"))
    }
}

impl Target for Webhook {
    fn run(self: Arc<Self>, run: Run) -> BoxFuture<Vec<Outcome>> {
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(run.jobs.len());
            for job in &run.jobs {
                outcomes.push(self.deliver(job, run.deadline).await);
            }
            outcomes
        })
    }

    fn check(self: Arc<Self>) -> BoxFuture<Result<String, Error>> {
        Box::pin(async move { self.probe().await })
    }
}

fn options(settings: &Settings) -> Options {
    let identity = settings.certificate.clone().zip(settings.key.clone());
    Options {
        addresses: if settings.allow_private { Addresses::Any } else { Addresses::Public },
        response_bytes_max: settings.response_bytes_max,
        ca: settings.ca.clone(),
        connect_timeout: settings.connect_timeout.0,
        connections_max: settings.connections_max,
        http2: match settings.http2 {
            webhook::Http2::Auto => Http2::Negotiated,
            webhook::Http2::Only => Http2::Only,
            webhook::Http2::Never => Http2::Never,
        },
        identity: identity.map(|(certificate, key)| Identity { certificate, key }),
    }
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
