//! `/metrics` for Prometheus, `/health/live` and `/health/ready` for whoever starts and watches a service (also under
//! their short names `/health` and `/ready`), and `/status` for its own commands.
//!
//! A port that many may reach is not to take memory and descriptors without end: so many connections are open at a
//! time, each has one request of so many bytes, and so long for it and its answer.

mod format;
mod held;
mod orders;
mod patient;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use certificates::ServerTls;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use self::format::Format;
use self::held::Held;
pub use self::orders::Orders;
use self::patient::Patient;

/// Answers to `/metrics` that are put together at a time.
const TOTALS_AT_ONCE: usize = 4;

/// Pages below `/metrics`, which may be large, that are put together or sent at a time.
const PAGES_AT_ONCE: usize = 2;

/// How long nobody is accepted after that has failed: descriptors may be short.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// How long a client may take to agree on TLS.
const TLS_WAIT: Duration = Duration::from_secs(10);

/// What may be asked at a time, and of how many bytes and how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections. One above them is closed at once.
    pub connections: usize,
    /// Of a request's line and headers, at least 8,192.
    pub request_bytes: usize,
    /// From a connection's beginning to the end of its answer. Where connections are kept: for the head of each request.
    pub time: Duration,
    /// A connection may have one request after the other.
    pub keeps: bool,
    /// How long a client is waited for that does not take its answer. One that takes less than 4 KiB a second for longer
    /// is cut off.
    pub patience: Duration,
}

/// A connection whose client did not get what it wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// As many were open as may be.
    NoRoom,
    /// The client took its answer too slowly.
    SlowReader,
}

/// Who is at the other end of a connection: an extension of each request.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            request_bytes: 16 << 10,
            time: Duration::from_secs(10),
            keeps: false,
            patience: Duration::from_secs(10),
        }
    }
}

/// A service that can be watched.
pub trait Watched: Clone + Send + Sync + 'static {
    /// A connection was closed because as many were open as may be: counts it.
    fn turned_away(&self);

    /// Its counters, as OpenMetrics. It may block.
    fn metrics(&self) -> String;

    /// The same of single things, under `/metrics/{page}?{query}`. `None`: there is no such page. An error is what is
    /// wrong with the query. It may block.
    fn metrics_page(&self, page: &str, query: &str) -> Option<Result<String, String>> {
        let _ = (page, query);
        None
    }

    /// What keeps it from working right now; none: it is ready.
    fn problem(&self) -> Option<String>;

    /// What an operator should know though it works.
    fn remark(&self) -> Option<String> {
        None
    }

    /// How it stands, as a JSON object; none: it has no `/status`.
    fn status(&self) -> Option<String> {
        None
    }
}

/// Takes the address `127.0.0.1:9187`, or with port 0 any port.
///
/// # Errors
/// It is no address, or another process has it.
pub async fn bind(address: &str) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Answers until it is dropped.
///
/// `/health/live` says that the process answers, whatever the broker does: restarting it because the broker is away
/// gains nothing. `/health/ready` answers 503 with the reason while the service cannot work.
pub async fn serve<T: Watched>(listener: TcpListener, watched: T) {
    serve_within(Limits::default(), listener, watched).await;
}

/// The same for a service that takes orders, too: `PUT /pause` and `DELETE /pause`, with the secret.
pub async fn serve_with_orders<T: Watched>(listener: TcpListener, watched: T, orders: Orders) {
    let router = router(watched.clone()).merge(orders::router(orders));
    serve_watched(Limits::default(), listener, watched, router).await;
}

/// The same with other limits.
pub async fn serve_within<T: Watched>(limits: Limits, listener: TcpListener, watched: T) {
    let router = router(watched.clone());
    serve_watched(limits, listener, watched, router).await;
}

async fn serve_watched<T: Watched>(
    limits: Limits,
    listener: TcpListener,
    watched: T,
    router: Router,
) {
    let count = |lost| match lost {
        Lost::NoRoom => watched.turned_away(),
        // The time for all of a connection ends sooner.
        Lost::SlowReader => {}
    };
    serve_router(limits, listener, None, router, count).await;
}

/// Answers with any router, under TLS if there is something to show. `count` hears of connections that are lost.
pub async fn serve_router(
    limits: Limits,
    listener: TcpListener,
    tls: Option<Arc<ServerTls>>,
    router: Router,
    count: impl Fn(Lost),
) {
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = open.join_next() => {
                if let Ok(Some(lost)) = ended {
                    count(lost);
                }
                continue;
            }
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_REST).await;
            continue;
        };
        if open.len() >= limits.connections {
            count(Lost::NoRoom);
            continue;
        }
        // Small answers are not to wait for the other side's acknowledgement.
        let _ = stream.set_nodelay(true);
        let router = router.clone().layer(Extension(Peer(peer)));
        match &tls {
            None => open.spawn(answer(limits, stream, router)),
            Some(tls) => {
                let handshake = TlsAcceptor::from(tls.config()).accept(stream);
                open.spawn(async move {
                    // Who cannot agree on TLS, or takes too long, is closed: it sees why on its side.
                    match tokio::time::timeout(TLS_WAIT, handshake).await {
                        Ok(Ok(stream)) => answer(limits, stream, router).await,
                        Ok(Err(_)) | Err(_) => None,
                    }
                })
            }
        };
    }
}

/// Answers one connection. What else goes wrong with it is its sender's to see.
async fn answer<S>(limits: Limits, stream: S, router: Router) -> Option<Lost>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = Patient::new(stream, limits.patience);
    let connection = http1::Builder::new()
        .keep_alive(limits.keeps)
        .timer(TokioTimer::new())
        .header_read_timeout(limits.time)
        .max_buf_size(limits.request_bytes)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let ended = match limits.keeps {
        true => Ok(connection.await),
        false => tokio::time::timeout(limits.time, connection).await,
    };
    match ended {
        Ok(Err(error)) if is_slow(&error) => Some(Lost::SlowReader),
        Ok(Ok(()) | Err(_)) | Err(_) => None,
    }
}

/// Whether it is what [`Patient`] ends a connection with.
fn is_slow(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error);
    let source = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|error| error.kind() == std::io::ErrorKind::TimedOut)
}

/// What is asked, and turns for what takes time and memory.
#[derive(Clone)]
struct Asked<T> {
    watched: T,
    totals: Arc<Semaphore>,
    pages: Arc<Semaphore>,
}

fn router<T: Watched>(watched: T) -> Router {
    let asked = Asked {
        watched,
        totals: Arc::new(Semaphore::new(TOTALS_AT_ONCE)),
        pages: Arc::new(Semaphore::new(PAGES_AT_ONCE)),
    };
    Router::new()
        .route("/metrics", get(metrics::<T>))
        .route("/metrics/{page}", get(metrics_page::<T>))
        .route("/health", get(live))
        .route("/health/live", get(live))
        .route("/ready", get(ready::<T>))
        .route("/health/ready", get(ready::<T>))
        .route("/status", get(status::<T>))
        .with_state(asked)
}

async fn live() -> &'static str {
    "alive\n"
}

async fn metrics<T: Watched>(State(asked): State<Asked<T>>, headers: HeaderMap) -> Response {
    let Ok(turn) = asked.totals.acquire_owned().await else { return unavailable() };
    let format = Format::wanted(&headers);
    let written = tokio::task::spawn_blocking(move || {
        let text = format.write(asked.watched.metrics());
        drop(turn);
        text
    });
    let Ok(text) = written.await else { return unavailable() };
    ([(header::CONTENT_TYPE, format.content_type())], text).into_response()
}

async fn metrics_page<T: Watched>(
    State(asked): State<Asked<T>>,
    Path(page): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let Ok(turn) = asked.pages.acquire_owned().await else { return unavailable() };
    let format = Format::wanted(&headers);
    let written = tokio::task::spawn_blocking(move || {
        let page = asked.watched.metrics_page(&page, &query.unwrap_or_default());
        page.map(|page| page.map(|text| Held::new(format.write(text), turn)))
    });
    match written.await {
        Ok(Some(Ok(held))) => {
            ([(header::CONTENT_TYPE, format.content_type())], Body::new(held)).into_response()
        }
        Ok(Some(Err(why))) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(_) => unavailable(),
    }
}

/// The process is at its end.
fn unavailable() -> Response {
    StatusCode::SERVICE_UNAVAILABLE.into_response()
}

async fn ready<T: Watched>(State(Asked { watched, .. }): State<Asked<T>>) -> (StatusCode, String) {
    match watched.problem() {
        None => {
            let remark =
                watched.remark().map_or_else(String::new, |it| format!("; last failure: {it}"));
            (StatusCode::OK, format!("ready{remark}\n"))
        }
        Some(problem) => (StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")),
    }
}

async fn status<T: Watched>(State(Asked { watched, .. }): State<Asked<T>>) -> Response {
    match watched.status() {
        Some(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
