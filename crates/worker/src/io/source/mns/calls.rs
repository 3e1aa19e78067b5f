//! Signed calls to MNS, and what refuses them.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::header::{AUTHORIZATION, CONTENT_TYPE, DATE};

use super::Settings;
use crate::error::Error;
use crate::io::http::{Addresses, Failure, Http, Options};
use crate::io::secret;
use crate::source::mns::{
    self, BatchProblem, Meaning, SignedHeaders, Signer, meaning, read_batch_problems, read_problem,
};

/// How long a call may take, beside what it waits for messages.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// Sixteen messages of 64 KiB, and their frames.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// An answer that says yes.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) body: Bytes,
    /// The clock of MNS: not earlier than when it wrote the answer. Milliseconds since 1970.
    pub(super) server_ms: u64,
}

/// An answer that says no.
#[derive(Debug)]
pub(super) enum Refusal {
    NoMessage,
    HandleOver,
    /// Some handles of a batch.
    Some(Vec<BatchProblem>),
    Passes {
        text: String,
    },
    Setup {
        text: String,
    },
}

impl Refusal {
    pub(super) fn error(self, doing: &str) -> Error {
        match self {
            Self::NoMessage => Error::away(doing, "the message is not there"),
            Self::HandleOver => Error::away(doing, "the receipt handle is over"),
            Self::Some(problems) => Error::away(doing, format!("{} refusals", problems.len())),
            Self::Passes { text } => Error::away(doing, text),
            Self::Setup { text } => Error::setup(format!("{doing}: {text}")),
        }
    }
}

/// Who calls.
#[derive(Debug)]
pub(super) struct Calls {
    http: Http,
    endpoint: String,
    signer: Signer,
    security_token: Option<String>,
}

impl Calls {
    pub(super) fn new(settings: &Settings) -> Result<Self, Error> {
        let options = Options {
            addresses: Addresses::Any,
            response_bytes_max: ANSWER_BYTES_MAX,
            ..Options::default()
        };
        let secret = secret::read(&settings.access_key_secret)?;
        Ok(Self {
            http: Http::new(options)?,
            endpoint: settings.endpoint.trim_end_matches('/').to_owned(),
            signer: Signer::new(&settings.access_key_id, secret),
            security_token: settings.security_token.as_ref().map(secret::read).transpose()?,
        })
    }

    /// Makes a call. `resource` is the path with the query; `wait` is how long MNS may wait before it answers.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) async fn ask(
        &self,
        doing: &str,
        method: &str,
        resource: &str,
        body: Option<String>,
        wait: Duration,
    ) -> Result<Result<Answer, Refusal>, Error> {
        let date: DateTime<Utc> = SystemTime::now().into();
        let date = date.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let mns = [("x-mns-version", mns::VERSION)];
        let content_type = if body.is_some() { mns::CONTENT_TYPE } else { "" };
        let signed = SignedHeaders { content_md5: "", content_type, date: &date, mns: &mns };
        let authorization = self.signer.authorization(method, &signed, resource);
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("{}{resource}", self.endpoint))
            .header(AUTHORIZATION, authorization)
            .header(DATE, &date)
            .header("x-mns-version", mns::VERSION);
        if body.is_some() {
            request = request.header(CONTENT_TYPE, content_type);
        }
        if let Some(token) = &self.security_token {
            request = request.header("security-token", token);
        }
        let request = request
            .body(body.map_or_else(Bytes::new, Bytes::from))
            .map_err(|error| Error::setup(format!("{doing}: the request is none: {error}")))?;
        let answer = self.http.send(request, Instant::now() + ANSWER_MAX + wait).await;
        let answer = answer.map_err(|failure| Error::away(doing, words(failure)))?;
        if (200..300).contains(&answer.status) {
            let server_ms = server_ms(&answer.headers);
            return Ok(Ok(Answer { body: answer.body, server_ms }));
        }
        Ok(Err(refusal(answer.status, &answer.body)))
    }
}

/// The end of the second that an answer was written in; without a date, this machine's clock is taken for right.
fn server_ms(headers: &http::HeaderMap) -> u64 {
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok());
    let ms = match date {
        Some(date) => date.timestamp_millis() + 1000,
        None => DateTime::<Utc>::from(SystemTime::now()).timestamp_millis(),
    };
    u64::try_from(ms).unwrap_or_default()
}

fn refusal(status: u16, body: &[u8]) -> Refusal {
    if let Some(problems) = read_batch_problems(body) {
        return Refusal::Some(problems);
    }
    let problem = read_problem(body);
    let mut text = format!("{status} {}: {}", problem.code, problem.message);
    text.truncate(text.floor_char_boundary(300));
    match meaning(status, &problem.code) {
        Meaning::NoMessage => Refusal::NoMessage,
        Meaning::HandleOver => Refusal::HandleOver,
        Meaning::Passes => Refusal::Passes { text },
        Meaning::Setup { what_to_do } => Refusal::Setup { text: format!("{what_to_do} ({text})") },
    }
}

/// Why there is no answer.
pub(crate) fn words(failure: Failure) -> String {
    match failure {
        Failure::Forbidden { address } => format!("the address {address} is not allowed"),
        Failure::Connect { why } => format!("no connection: {why}"),
        Failure::Timeout => "no answer in time".into(),
        Failure::Broken { why } => format!("the connection broke: {why}"),
    }
}
