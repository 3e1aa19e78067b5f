//! The client of the HTTP API: one connection, a deadline for each answer, and answers of bounded size.
//!
//! A request that only asks is sent again once if its connection was old and broke; nothing else is ever sent twice.
#![allow(
    clippy::disallowed_methods,
    reason = "a client: it drives its connection, and waits for answers"
)]

mod connect;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use serde_json::Value;

use super::failure::Failure;
use super::login::Login;
use super::path::Path;

/// Bytes of an answer: what the server takes for definitions.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Letters of a reason that is repeated.
const REASON_LETTERS_MAX: usize = 2000;

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    method: Method,
    path: Path,
    body: Option<Value>,
    /// Why a connection is closed.
    reason: Option<String>,
    /// What it is about, for the words of a refusal: `queue orders of vhost /`.
    what: String,
}

impl Ask {
    pub(crate) fn get(path: Path, what: impl Into<String>) -> Self {
        Self::of(Method::GET, path, what)
    }

    pub(crate) fn put(path: Path, body: Value, what: impl Into<String>) -> Self {
        Self { body: Some(body), ..Self::of(Method::PUT, path, what) }
    }

    pub(crate) fn post(path: Path, body: Value, what: impl Into<String>) -> Self {
        Self { body: Some(body), ..Self::of(Method::POST, path, what) }
    }

    pub(crate) fn delete(path: Path, what: impl Into<String>) -> Self {
        Self::of(Method::DELETE, path, what)
    }

    pub(crate) fn because(mut self, reason: &str) -> Self {
        self.reason = Some(reason.to_owned());
        self
    }

    fn of(method: Method, path: Path, what: impl Into<String>) -> Self {
        Self { method, path, body: None, reason: None, what: what.into() }
    }
}

/// What was answered, whether it is what was wanted or not.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
}

impl Answer {
    /// Why, in the node's words.
    pub(crate) fn reason(&self) -> String {
        let texts = ["reason", "error"].map(|field| self.body.get(field).and_then(Value::as_str));
        let reason = texts.into_iter().flatten().next().unwrap_or("no reason given");
        let words: Vec<&str> = reason.split_whitespace().collect();
        words.join(" ").chars().take(REASON_LETTERS_MAX).collect()
    }
}

/// The API of one node.
pub(crate) struct Api {
    login: Login,
    connection: Option<SendRequest<Full<Bytes>>>,
    /// An answer that is no JSON is no answer.
    is_strict: bool,
}

impl Api {
    pub(crate) fn new(login: Login) -> Self {
        Self { login, connection: None, is_strict: true }
    }

    pub(crate) fn login(&self) -> &Login {
        &self.login
    }

    /// Asks for what must be there.
    pub(crate) async fn get(&mut self, path: Path, what: &str) -> Result<Value, Failure> {
        Ok(self.done(&Ask::get(path, what)).await?.body)
    }

    /// Asks for what may be missing.
    pub(crate) async fn find(&mut self, path: Path, what: &str) -> Result<Option<Value>, Failure> {
        let ask = Ask::get(path, what);
        let answer = self.ask(&ask).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(None),
            _ => Ok(Some(self.judged(&ask, answer)?.body)),
        }
    }

    /// Does what must succeed. The answer is the node's yes.
    pub(crate) async fn done(&mut self, ask: &Ask) -> Result<Answer, Failure> {
        let answer = self.ask(ask).await?;
        self.judged(ask, answer)
    }

    /// An answer that is no yes is a failure.
    pub(crate) fn judged(&self, ask: &Ask, answer: Answer) -> Result<Answer, Failure> {
        if answer.status.is_success() {
            return Ok(answer);
        }
        let (reason, what) = (answer.reason(), &ask.what);
        let Login { user, address, .. } = &self.login;
        Err(match answer.status {
            StatusCode::UNAUTHORIZED if reason == "Login failed" => Failure::Login(format!(
                "{} refuses the login of {user}: the name or the password is wrong",
                address.place()
            )),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Failure::Login(format!(
                "{user} may not do this ({what}): {reason}. An administrator gives tags (`millrace users set-tags`) \
                 and permissions (`millrace permissions set`)"
            )),
            StatusCode::NOT_FOUND => Failure::Refused(format!("not found: {what}")),
            _ => Failure::Refused(format!("{what}: {reason}")),
        })
    }

    /// Asks for what another broker may not know by name, so that its answer may be no JSON: that is as good as `null`.
    pub(crate) async fn sound(&mut self, ask: &Ask) -> Result<Answer, Failure> {
        self.is_strict = false;
        let answer = self.ask(ask).await;
        self.is_strict = true;
        answer
    }

    /// Asks, and takes any answer.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> Result<Answer, Failure> {
        let time = self.login.request_timeout;
        match tokio::time::timeout(time, self.exchange(ask)).await {
            Ok(answer) => answer,
            Err(_) => {
                let (place, time) = (self.login.address.place(), service::duration_words(time));
                Err(Failure::Away(format!(
                    "{place} has not answered within {time} ({}); it may have done it all the same. \
                     --request-timeout waits longer",
                    ask.what
                )))
            }
        }
    }

    async fn exchange(&mut self, ask: &Ask) -> Result<Answer, Failure> {
        let request = self.request(ask)?;
        // Whatever goes wrong from here on, this connection is not used again.
        let kept = match self.connection.take() {
            Some(mut kept) => kept.ready().await.is_ok().then_some(kept),
            None => None,
        };
        if let Some(mut connection) = kept {
            match connection.send_request(request.clone()).await {
                Ok(response) => return self.answer(connection, response).await,
                // It was old: the node may have closed it just then.
                Err(_) if ask.method == Method::GET => {}
                Err(error) => return Err(self.broken(&error)),
            }
        }
        let mut connection = connect::connect(&self.login).await.map_err(Failure::Away)?;
        match connection.send_request(request).await {
            Ok(response) => self.answer(connection, response).await,
            Err(error) => Err(self.broken(&error)),
        }
    }

    fn request(&self, ask: &Ask) -> Result<http::Request<Full<Bytes>>, Failure> {
        let wrong = |error: http::Error| Failure::Usage(format!("{}: {error}", ask.what));
        let Login { address, user, password, .. } = &self.login;
        let login = STANDARD.encode(format!("{user}:{}", password.expose()));
        let login = HeaderValue::from_str(&format!("Basic {login}"));
        let mut login = login.map_err(|error| wrong(error.into()))?;
        login.set_sensitive(true);
        let mut request = http::Request::builder()
            .method(ask.method.clone())
            .uri(ask.path.text())
            .header(header::HOST, address.place())
            .header(header::AUTHORIZATION, login)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(reason) = &ask.reason {
            let plain = |letter: char| if letter.is_ascii_graphic() { letter } else { ' ' };
            request = request.header("x-reason", reason.chars().map(plain).collect::<String>());
        }
        let body = ask.body.as_ref().map(Value::to_string).unwrap_or_default();
        request.body(Full::new(body.into())).map_err(wrong)
    }

    async fn answer(
        &mut self,
        connection: SendRequest<Full<Bytes>>,
        response: http::Response<Incoming>,
    ) -> Result<Answer, Failure> {
        let status = response.status();
        let place = self.login.address.place();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => Failure::Away(format!(
                "the answer of {place} has more than {ANSWER_BYTES_MAX} bytes: ask for less, by --name or --limit"
            )),
            None => Failure::Away(format!("the answer of {place} broke off: {error}")),
        })?;
        let body = body.to_bytes();
        self.connection = Some(connection);
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Answer { status, body: Value::Null });
        }
        match serde_json::from_slice(&body) {
            Ok(body) => Ok(Answer { status, body }),
            Err(_) if !self.is_strict => Ok(Answer { status, body: Value::Null }),
            Err(_) => Err(Failure::Away(format!(
                "what answers at {place} is no HTTP API of a broker (HTTP {}, and no JSON); see the setting `http` of \
                 the node",
                status.as_u16()
            ))),
        }
    }

    fn broken(&self, error: &hyper::Error) -> Failure {
        let address = &self.login.address;
        let hint = match address.is_tls {
            true => "",
            false => ". If this is its port for TLS, say https:// instead",
        };
        Failure::Away(format!("{} did not answer the request: {error}{hint}", address.place()))
    }
}
