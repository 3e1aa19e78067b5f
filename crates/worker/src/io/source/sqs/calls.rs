//! Signed calls to SQS, and what refuses them.

use std::time::{Duration, Instant, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use serde::Serialize;

use super::Settings;
use crate::error::Error;
use crate::io::http::{Addresses, Failure, Http, Options};
use crate::io::secret;
use crate::source::sqs::{Meaning, Problem, meaning};

/// How long a call may take, beside what it waits for messages.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// Ten messages of 1 MiB, and what JSON adds to them.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Who calls.
#[derive(Debug)]
pub(super) struct Calls {
    http: Http,
    endpoint: String,
    region: String,
    credentials: Credentials,
}

impl Calls {
    pub(super) fn new(settings: &Settings) -> Result<Self, Error> {
        let options = Options {
            addresses: Addresses::Any,
            response_bytes_max: ANSWER_BYTES_MAX,
            ..Options::default()
        };
        let key = secret::read(&settings.secret_access_key)?;
        let token = settings.session_token.as_ref().map(secret::read).transpose()?;
        let id = settings.access_key_id.clone();
        Ok(Self {
            http: Http::new(options)?,
            endpoint: settings.endpoint(),
            region: settings.region.clone(),
            credentials: Credentials::new(id, key, token, None, "millrace"),
        })
    }

    /// Makes a call, and gives the body of an answer that says yes.
    ///
    /// # Errors
    /// There is no answer, or it says no.
    pub(super) async fn ask<T: Serialize>(
        &self,
        doing: &str,
        action: &str,
        call: &T,
        wait: Duration,
    ) -> Result<Bytes, Error> {
        let answer = self.try_ask(doing, action, call, wait).await?;
        answer.map_err(|(meaning, text)| match meaning {
            Meaning::HandleOver | Meaning::Passes => Error::away(doing, text),
            Meaning::Setup { what_to_do } => {
                Error::setup(format!("{doing}: {what_to_do} ({text})"))
            }
        })
    }

    /// Makes a call, and gives the body of an answer, or what its refusal means.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) async fn try_ask<T: Serialize>(
        &self,
        doing: &str,
        action: &str,
        call: &T,
        wait: Duration,
    ) -> Result<Result<Bytes, (Meaning, String)>, Error> {
        let body = serde_json::to_vec(call).expect("texts and numbers can be written as JSON");
        let request = self
            .signed(action, body)
            .map_err(|why| Error::setup(format!("{doing}: the request cannot be signed: {why}")))?;
        let answer = self.http.send(request, Instant::now() + ANSWER_MAX + wait).await;
        let answer = answer.map_err(|failure| Error::away(doing, words(failure)))?;
        if (200..300).contains(&answer.status) && !answer.is_cut {
            return Ok(Ok(answer.body));
        }
        let problem: Problem = serde_json::from_slice(&answer.body).unwrap_or_default();
        let mut text = format!("{} {}: {}", answer.status, problem.code(), problem.message());
        text.truncate(text.floor_char_boundary(300));
        Ok(Err((meaning(answer.status, problem.code(), problem.message()), text)))
    }

    fn signed(&self, action: &str, body: Vec<u8>) -> Result<http::Request<Bytes>, String> {
        let identity = self.credentials.clone().into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name("sqs")
            .time(SystemTime::now())
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| error.to_string())?
            .into();
        let uri = format!("{}/", self.endpoint);
        let target = format!("AmazonSQS.{action}");
        let headers =
            [("content-type", "application/x-amz-json-1.0"), ("x-amz-target", target.as_str())];
        let signable = SignableRequest::new(
            "POST",
            uri.as_str(),
            headers.into_iter(),
            SignableBody::Bytes(&body),
        )
        .map_err(|error| error.to_string())?;
        let (instructions, _) =
            sign(signable, &params).map_err(|error| error.to_string())?.into_parts();
        let mut request = http::Request::builder().method("POST").uri(&uri);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let mut request = request.body(Bytes::from(body)).map_err(|error| error.to_string())?;
        instructions.apply_to_request_http1x(&mut request);
        Ok(request)
    }
}

/// Why there is no answer.
fn words(failure: Failure) -> String {
    match failure {
        Failure::Forbidden { address } => format!("the address {address} is not allowed"),
        Failure::Connect { why } => format!("no connection: {why}"),
        Failure::Timeout => "no answer in time".into(),
        Failure::Broken { why } => format!("the connection broke: {why}"),
    }
}
