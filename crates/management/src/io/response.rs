//! An answer as it is sent.

use axum::body::Body;
use axum::response::Response;
use http::{StatusCode, header};

use crate::reply::Reply;

/// What is said to whoever gives no password.
const CHALLENGE: &str = "Basic realm=\"RabbitMQ Management\"";

/// An answer to a browser that has a session, or asks for one. It is not told that a password is wanted: it would ask for
/// one in a window of its own.
pub(super) fn unchallenged(reply: Reply) -> Response {
    let mut response = response(reply);
    response.headers_mut().remove(header::WWW_AUTHENTICATE);
    response
}

pub(super) fn response(reply: Reply) -> Response {
    let Reply { status, body, location } = reply;
    let mut builder = Response::builder().status(status);
    if status == StatusCode::UNAUTHORIZED {
        builder = builder.header(header::WWW_AUTHENTICATE, CHALLENGE);
    }
    if let Some(location) = location {
        builder = builder.header(header::LOCATION, location);
    }
    // What is shown is of this moment, and for who asked.
    builder = builder
        .header(header::CACHE_CONTROL, "no-cache")
        .header(header::VARY, "accept, accept-encoding, origin")
        .header("x-content-type-options", "nosniff");
    let body = match body {
        Some(body) => {
            builder = builder.header(header::CONTENT_TYPE, "application/json");
            Body::from(body.to_string())
        }
        None => Body::empty(),
    };
    builder.body(body).unwrap_or_else(|_| {
        let mut failed = Response::new(Body::empty());
        *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        failed
    })
}
