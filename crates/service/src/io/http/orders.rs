//! `/pause`: whoever shows the secret pauses the service, and resumes it.

use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::put;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::io::pauses::Pauses;

/// How long an answer waits for what is still being done.
const REST_WAIT: Duration = Duration::from_secs(5);

/// What may be ordered, and by whom.
#[derive(Clone)]
pub struct Orders {
    pauses: Pauses,
    /// Of the secret: a comparison of hashes tells nobody how much of a guess is right.
    hash: [u8; 32],
}

impl Orders {
    /// The secret in a file that nothing else is in.
    ///
    /// # Errors
    /// In words: the file cannot be read, or is empty.
    pub fn secret_in(file: &Path) -> Result<String, String> {
        let read = std::fs::read_to_string(file);
        let text = read.map_err(|why| format!("{}: cannot be read: {why}", file.display()))?;
        match text.trim() {
            "" => Err(format!("{}: the file is empty", file.display())),
            secret => Ok(secret.to_owned()),
        }
    }

    /// Whoever shows this secret orders a pause.
    pub fn new(secret: &str, pauses: Pauses) -> Self {
        Self { pauses, hash: Sha256::digest(secret).into() }
    }

    fn is_known(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(header::AUTHORIZATION).map(|it| it.as_bytes());
        let token = shown.and_then(|it| it.strip_prefix(b"Bearer "));
        token.is_some_and(|token| <[u8; 32]>::from(Sha256::digest(token)) == self.hash)
    }

    /// 200 if it rests, or goes on; 202 while it still comes to rest.
    async fn order(&self, headers: &HeaderMap, rest: bool) -> Response {
        if !self.is_known(headers) {
            return (StatusCode::UNAUTHORIZED, "the secret is wrong\n").into_response();
        }
        self.pauses.want(rest);
        let _ = tokio::time::timeout(REST_WAIT, self.pauses.until(rest)).await;
        let is_paused = self.pauses.is_resting();
        let status = if is_paused == rest { StatusCode::OK } else { StatusCode::ACCEPTED };
        let told = json!({ "is_paused": is_paused }).to_string();
        (status, [(header::CONTENT_TYPE, "application/json")], told).into_response()
    }
}

pub(super) fn router(orders: Orders) -> Router {
    let pause =
        async |State(orders): State<Orders>, headers: HeaderMap| orders.order(&headers, true).await;
    let resume = async |State(orders): State<Orders>, headers: HeaderMap| {
        orders.order(&headers, false).await
    };
    Router::new().route("/pause", put(pause).delete(resume)).with_state(orders)
}
