//! Webhooks: what a request is made of, and what an answer means.
//!
//! Requests follow Standard Webhooks: `webhook-id`, `webhook-timestamp` and `webhook-signature`. The id is the
//! job's, at every attempt the same, and stands in `idempotency-key` as well.
//!
//! | Answer | Outcome |
//! | --- | --- |
//! | 2xx | done, whatever the body says |
//! | 408, 421, 425, 5xx, no connection, no answer in time, a broken answer | retry, not before `Retry-After` |
//! | 429 | throttle: the target waits for `Retry-After`, and no attempt is charged |
//! | 401 | config: the target stops, since every job would be refused; reject where the URL is the job's |
//! | 3xx | reject: redirects are not followed |
//! | 410 | reject: the endpoint is gone for good |
//! | other 4xx | reject; retry with `retry_4xx` |
//! | an address that is not allowed | reject |

mod answer;
mod sign;
mod template;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

pub use answer::judge;
pub use sign::Signer;
pub use template::Template;

use crate::job::Message;
use crate::value::{Secret, Time};

/// The job's header that names where it goes, with `allow_job_urls`.
pub const URL_HEADER: &str = "webhook-url";

/// `[target.NAME] kind = "webhook"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Where requests go: `https://example.com/hooks/{type}`. `{type}`, `{id}` and `{header:NAME}` stand for the
    /// job's, in the path and the query. May be left out with `allow_job_urls`.
    pub url: Option<String>,
    /// A job's header `webhook-url` says where it goes. Publishers can then reach every public address.
    #[serde(default)]
    pub allow_job_urls: bool,
    /// Addresses of this machine and of private networks may be reached.
    #[serde(default)]
    pub allow_private: bool,
    /// `POST`, `PUT` or `PATCH`.
    #[serde(default)]
    pub method: Method,
    /// Headers of every request. Values are secrets: `file:PATH` and `env:NAME` work.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// Headers of the job that are sent along.
    #[serde(default)]
    pub forward_headers: Vec<String>,
    /// `whsec_…`: each signs every request, so that a new one can be brought in. None: no signature.
    #[serde(default)]
    pub secrets: Vec<Secret>,
    /// For a job that has none.
    #[serde(default = "json")]
    pub content_type: String,
    /// For one request, all of it. 100 ms to 1 h.
    #[serde(default = "thirty_seconds")]
    pub timeout: Time,
    /// Resolving, connecting and the TLS handshake. 10 ms to 1 min.
    #[serde(default = "five_seconds")]
    pub connect_timeout: Time,
    /// More of an answer is not read. At most 1 MiB.
    #[serde(default = "response_bytes")]
    pub response_bytes_max: usize,
    /// The longest `Retry-After` that is obeyed. At most 7 days.
    #[serde(default = "an_hour")]
    pub retry_after_max: Time,
    /// For how long the target waits after a 429 that does not say.
    #[serde(default = "ten_seconds")]
    pub throttle: Time,
    /// Statuses of 4xx that another attempt may help: `[404, 409]`.
    #[serde(default)]
    pub retry_4xx: Vec<u16>,
    /// `auto`: where TLS finds it. `only`: always, without TLS too. `never`.
    #[serde(default)]
    pub http2: Http2,
    /// Idle connections kept to one host. 1 to 10,000.
    #[serde(default = "connections")]
    pub connections_max: usize,
    /// An authority (PEM) instead of the machine's.
    pub ca: Option<PathBuf>,
    /// A client certificate (PEM), together with `key`.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

/// How a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    #[default]
    Post,
    Put,
    Patch,
}

impl Method {
    fn http(self) -> http::Method {
        match self {
            Self::Post => http::Method::POST,
            Self::Put => http::Method::PUT,
            Self::Patch => http::Method::PATCH,
        }
    }
}

/// Whether HTTP/2 is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Http2 {
    #[default]
    Auto,
    Only,
    Never,
}

fn json() -> String {
    "application/json".into()
}

fn five_seconds() -> Time {
    Time(Duration::from_secs(5))
}

fn ten_seconds() -> Time {
    Time(Duration::from_secs(10))
}

fn thirty_seconds() -> Time {
    Time(Duration::from_secs(30))
}

fn an_hour() -> Time {
    Time(Duration::from_secs(3600))
}

fn response_bytes() -> usize {
    64 * 1024
}

fn connections() -> usize {
    1000
}

/// Headers that the client, or this target, sets.
const RESERVED: [&str; 12] = [
    "connection",
    "content-length",
    "host",
    "idempotency-key",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-type",
    "user-agent",
];

fn header_problem(name: &str) -> Option<String> {
    if HeaderName::from_bytes(name.as_bytes()).is_err() {
        return Some(format!("`{name}` is no name of a header"));
    }
    let lower = name.to_ascii_lowercase();
    let is_ours = lower.starts_with("webhook-") || lower.starts_with("millrace-job-");
    // A fixed user-agent is the operator's choice; see `Requests::new`.
    let is_reserved = lower != "user-agent" && RESERVED.contains(&lower.as_str());
    (is_ours || is_reserved).then(|| format!("the header {name} is set by the worker itself"))
}

impl Settings {
    /// What is wrong, a sentence each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        match &self.url {
            Some(url) => problems.extend(Template::parse(url).err()),
            None if self.allow_job_urls => {}
            None => problems.push("url is missing".into()),
        }
        let names = self.headers.keys().chain(&self.forward_headers);
        problems.extend(names.filter_map(|name| header_problem(name)));
        let mut time = |name: &str, time: Time, least: u64, most: u64| {
            let bounds = Duration::from_millis(least)..=Duration::from_millis(most);
            if !bounds.contains(&time.0) {
                let text = format!(
                    "{name} is {:?}: it must be from {:?} to {:?}",
                    time.0,
                    bounds.start(),
                    bounds.end()
                );
                problems.push(text);
            }
        };
        time("timeout", self.timeout, 100, 3_600_000);
        time("connect_timeout", self.connect_timeout, 10, 60_000);
        time("retry_after_max", self.retry_after_max, 1000, 604_800_000);
        time("throttle", self.throttle, 100, 3_600_000);
        if self.response_bytes_max > 1 << 20 {
            problems.push("response_bytes_max is above 1 MiB (1048576)".into());
        }
        if !(1..=10_000).contains(&self.connections_max) {
            problems.push("connections_max must be from 1 to 10000".into());
        }
        if let Some(status) = self.retry_4xx.iter().find(|status| !(400..500).contains(*status)) {
            problems.push(format!("retry_4xx has {status}, which is not of 400 to 499"));
        }
        if HeaderValue::from_str(&self.content_type).is_err() {
            problems.push("content_type is no value of a header".into());
        }
        if self.certificate.is_some() != self.key.is_some() {
            problems.push("certificate and key must be set together".into());
        }
        if self.secrets.len() > 10 {
            problems.push("secrets has more than 10".into());
        }
        problems
    }
}

/// Makes requests. Everything that is the same for all of them is made once.
#[derive(Debug)]
pub struct Requests {
    method: http::Method,
    template: Option<Template>,
    allow_job_urls: bool,
    fixed: HeaderMap,
    forward: Vec<HeaderName>,
    content_type: HeaderValue,
    signer: Signer,
}

impl Requests {
    /// From the settings, and the secrets that they name.
    ///
    /// # Errors
    /// In words: a header's value or a secret is unusable. The value is not in them.
    pub fn new(
        settings: &Settings,
        headers: &BTreeMap<String, String>,
        secrets: &[String],
    ) -> Result<Self, String> {
        let mut fixed = HeaderMap::new();
        fixed.insert("user-agent", HeaderValue::from_static("millrace"));
        for (name, value) in headers {
            let text = || format!("the header {name} is unusable");
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| text())?;
            let mut value = HeaderValue::from_str(value).map_err(|_| text())?;
            value.set_sensitive(true);
            fixed.insert(key, value);
        }
        let forward = settings.forward_headers.iter().map(|name| {
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("`{name}` is no header"))
        });
        Ok(Self {
            method: settings.method.http(),
            template: settings.url.as_deref().map(Template::parse).transpose()?,
            allow_job_urls: settings.allow_job_urls,
            fixed,
            forward: forward.collect::<Result<_, _>>()?,
            content_type: HeaderValue::from_str(&settings.content_type)
                .map_err(|_| "content_type is unusable".to_owned())?,
            signer: Signer::new(secrets)?,
        })
    }

    /// The request for a job at a time, in seconds since 1970.
    ///
    /// # Errors
    /// In words, why no request can be made of the job.
    pub fn request(
        &self,
        job: &Message,
        seconds: u64,
    ) -> Result<http::Request<bytes::Bytes>, String> {
        let mut request = http::Request::new(job.body.clone());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.url(job)?;
        let value = |what: &str, text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| format!("the job's {what} cannot stand in a header"))
        };
        let headers = request.headers_mut();
        *headers = self.fixed.clone();
        for name in &self.forward {
            let of_job = job.headers.iter().filter(|h| h.name.eq_ignore_ascii_case(name.as_str()));
            for header in of_job {
                headers.append(name.clone(), value("header to send along", &header.value)?);
            }
        }
        let content_type = match &job.content_type {
            Some(text) => value("content type", text)?,
            None => self.content_type.clone(),
        };
        headers.insert("content-type", content_type);
        let id = value("id", &job.id)?;
        headers.insert("idempotency-key", id.clone());
        headers.insert("webhook-id", id);
        headers.insert("webhook-timestamp", HeaderValue::from(seconds));
        if let Some(signature) = self.signer.sign(&job.id, seconds, &job.body) {
            headers.insert("webhook-signature", value("signature", &signature)?);
        }
        if !job.kind.is_empty() {
            headers.insert("millrace-job-type", value("type", &job.kind)?);
        }
        headers.insert("millrace-job-attempt", HeaderValue::from(job.attempt));
        Ok(request)
    }

    fn url(&self, job: &Message) -> Result<http::Uri, String> {
        let own = job.headers.iter().find(|header| header.name.eq_ignore_ascii_case(URL_HEADER));
        match (own, &self.template) {
            (Some(own), _) if self.allow_job_urls => {
                // Judged as the settings' URL, and taken as it is: a brace in it is an error.
                Template::parse(&own.value)?
                    .without_fields()
                    .ok_or_else(|| format!("{URL_HEADER} holds a field"))
            }
            (Some(_) | None, Some(template)) => template.fill(job),
            (Some(_) | None, None) => Err(format!("the job has no header {URL_HEADER}")),
        }
    }
}

#[cfg(test)]
mod tests;
