//! Answers with the files of the console.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};

use super::api::Api;
use super::aside::aside;
use super::response::response;
use crate::console::{Console, HEADERS};
use crate::reply::Problem;

/// Answers a path that is none of the API.
pub(super) async fn file(api: &Api, request: Request) -> Response {
    let (asked, _) = request.into_parts();
    let answered = try_file(api, &asked).await;
    answered.unwrap_or_else(|problem| response(problem.reply()))
}

async fn try_file(api: &Api, asked: &Parts) -> Result<Response, Problem> {
    // Compressing takes longer than a publisher may wait for this thread. It is done when somebody first looks.
    let made = async || aside(|| Arc::new(Console::new())).await;
    let console = api.0.console.get_or_try_init(made).await?;
    let file = console.find(asked.uri.path()).ok_or(Problem::NotFound)?;
    if asked.method != Method::GET && asked.method != Method::HEAD {
        return Err(Problem::Method);
    }
    let form = file.form(&asked.headers);
    let is_known = form.is_known(&asked.headers);
    let body = if is_known { Body::empty() } else { Body::from(form.bytes.clone()) };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(file.cache_control));
    if let Ok(tag) = HeaderValue::from_str(&form.tag) {
        headers.insert(header::ETAG, tag);
    }
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(response);
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.content_type));
    if form.is_packed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}
