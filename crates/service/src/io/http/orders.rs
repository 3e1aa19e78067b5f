//! `/pause`: whoever shows the secret pauses the service, and resumes it. `/pause/PART`: the same of a part of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{self, Extension, RawQuery, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::put;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::Peer;
use crate::io::pauses::{Pause, Pauses};

/// How long an answer waits for what is still being done.
const REST_WAIT: Duration = Duration::from_secs(5);

/// Of the name of whoever pauses.
const BY_BYTES_MAX: usize = 255;

/// What may be ordered, and by whom.
#[derive(Clone)]
pub struct Orders {
    pauses: Pauses,
    /// What can rest by itself, by its name.
    parts: watch::Receiver<BTreeMap<String, Pauses>>,
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
        let parts = watch::channel(BTreeMap::new()).1;
        Self { pauses, parts, hash: Sha256::digest(secret).into() }
    }

    /// The same, and each of these parts can rest by itself.
    #[must_use]
    pub fn with_parts(self, parts: BTreeMap<String, Pauses>) -> Self {
        self.with_changing_parts(watch::channel(parts).1)
    }

    /// The same with parts that come and go.
    #[must_use]
    pub fn with_changing_parts(self, parts: watch::Receiver<BTreeMap<String, Pauses>>) -> Self {
        Self { parts, ..self }
    }

    fn is_known(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(header::AUTHORIZATION).map(|it| it.as_bytes());
        let token = shown.and_then(|it| it.strip_prefix(b"Bearer "));
        token.is_some_and(|token| <[u8; 32]>::from(Sha256::digest(token)) == self.hash)
    }

    /// 200 if it rests, or goes on; 202 while it still comes to rest. 404: there is no such part.
    async fn order(&self, headers: &HeaderMap, part: Option<&str>, wanted: Wanted) -> Response {
        if !self.is_known(headers) {
            return (StatusCode::UNAUTHORIZED, "the secret is wrong\n").into_response();
        }
        let found = match part {
            None => Some(self.pauses.clone()),
            Some(part) => self.parts.borrow().get(part).cloned(),
        };
        let Some(pauses) = found else {
            let why = json!({ "error": "nothing of this name can be paused by itself" });
            return as_json(StatusCode::NOT_FOUND, &why);
        };
        let rest = wanted.0.is_some();
        pauses.want(wanted.0);
        let _ = tokio::time::timeout(REST_WAIT, pauses.until(rest)).await;
        let is_paused = pauses.is_resting();
        let status = if is_paused == rest { StatusCode::OK } else { StatusCode::ACCEPTED };
        // What goes on by itself still rests with the whole.
        let told = json!({ "is_paused": is_paused || self.pauses.is_resting() });
        as_json(status, &told)
    }
}

/// Who wants a pause, and when. `None`: it is to end.
struct Wanted(Option<Pause>);

impl Wanted {
    /// `PUT` pauses. The query names who wants it; otherwise it is the address that asks.
    fn of(method: &Method, query: Option<&str>, Peer(peer): Peer) -> Self {
        let query = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        let named = query.filter(|(name, _)| name == "by").map(|(_, by)| by.into_owned()).last();
        let named = named.filter(|by| !by.is_empty());
        let mut by = named.unwrap_or_else(|| peer.ip().to_string());
        by.truncate(by.floor_char_boundary(BY_BYTES_MAX));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self((method == Method::PUT).then_some(Pause { by, at_ms: now.as_millis() as u64 }))
    }
}

pub(super) fn router(orders: Orders) -> Router {
    Router::new()
        .route("/pause", put(whole).delete(whole))
        .route("/pause/{part}", put(part).delete(part))
        .with_state(orders)
}

async fn whole(
    State(orders): State<Orders>,
    Extension(peer): Extension<Peer>,
    RawQuery(query): RawQuery,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let wanted = Wanted::of(&method, query.as_deref(), peer);
    orders.order(&headers, None, wanted).await
}

async fn part(
    State(orders): State<Orders>,
    Extension(peer): Extension<Peer>,
    extract::Path(part): extract::Path<String>,
    RawQuery(query): RawQuery,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let wanted = Wanted::of(&method, query.as_deref(), peer);
    orders.order(&headers, Some(&part), wanted).await
}

fn as_json(status: StatusCode, told: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], told.to_string()).into_response()
}
