//! What a request is answered with.

use http::StatusCode;
use serde_json::{Value, json};

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    /// `None`: no body.
    pub(crate) body: Option<Value>,
    /// Where what was made can be found.
    pub(crate) location: Option<String>,
}

impl Reply {
    pub(crate) fn of(body: Value) -> Self {
        Self { status: StatusCode::OK, body: Some(body), location: None }
    }

    /// Something new is there.
    pub(crate) fn created() -> Self {
        Self { status: StatusCode::CREATED, body: None, location: None }
    }

    /// Done; there is nothing to say.
    pub(crate) fn done() -> Self {
        Self { status: StatusCode::NO_CONTENT, body: None, location: None }
    }

    /// Of something that is put: made, if it was not there before.
    pub(crate) fn put(was_there: bool) -> Self {
        if was_there { Self::done() } else { Self::created() }
    }
}

/// Why a request is not answered as it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// There is no such thing, or no such path.
    NotFound,
    /// The request is wrong, or what it asks for is refused: why.
    Bad(String),
    /// Which page a list is to show cannot be: what was asked for.
    NoPage(String),
    /// Who asks is not known. It is not said why.
    NotKnown,
    /// Who asks may not: why.
    NotAuthorised(String),
    /// Nobody has logged in, or the session is over.
    NoSession,
    /// Who asks has a session, and the request may come from a page of somebody else.
    Unproven,
    /// Too many wrong passwords came from there: for so many seconds none is looked at.
    TooManyWrong { wait_s: u64 },
    /// There is a path, and not for this method.
    Method,
    /// It is too large: what, and how much it may be.
    TooLarge(String),
    /// The cluster cannot do it now: why.
    Unavailable(String),
    /// A check that failed: why, and what belongs to it.
    Failed(Value),
}

impl Problem {
    pub(crate) fn bad(why: impl Into<String>) -> Self {
        Self::Bad(why.into())
    }

    pub(crate) fn reply(self) -> Reply {
        let (status, error, reason) = match self {
            Self::NotFound => (StatusCode::NOT_FOUND, "Object Not Found", "Not Found".to_owned()),
            Self::Bad(why) => (StatusCode::BAD_REQUEST, "bad_request", why),
            Self::NoPage(why) => (StatusCode::BAD_REQUEST, "invalid_pagination_parameters", why),
            // RabbitMQ spells this one with a z.
            Self::NotKnown => {
                (StatusCode::UNAUTHORIZED, "not_authorized", "Login failed".to_owned())
            }
            Self::NotAuthorised(why) => (StatusCode::UNAUTHORIZED, "not_authorised", why),
            Self::NoSession => (
                StatusCode::UNAUTHORIZED,
                "not_authorized",
                "Nobody is logged in, or the session is over: log in again".to_owned(),
            ),
            Self::Unproven => (
                StatusCode::FORBIDDEN,
                "forbidden",
                "The header x-millrace-csrf is missing, or is not that of this session: reload the page, and try again"
                    .to_owned(),
            ),
            Self::TooManyWrong { wait_s } => (
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_requests",
                format!("Too many wrong passwords came from this address: try again in {wait_s} s"),
            ),
            Self::Method => (
                StatusCode::METHOD_NOT_ALLOWED,
                "Method Not Allowed",
                "\"Method Not Allowed\"\n".to_owned(),
            ),
            Self::TooLarge(why) => (StatusCode::PAYLOAD_TOO_LARGE, "bad_request", why),
            Self::Unavailable(why) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable", why),
            Self::Failed(body) => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                return Reply { status, body: Some(body), location: None };
            }
        };
        let body = Some(json!({ "error": error, "reason": reason }));
        Reply { status, body, location: None }
    }
}
