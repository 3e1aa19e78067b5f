//! `/metrics` for Prometheus, `/health` and `/ready` for whoever starts and watches a service, and `/status` for
//! its own commands.
//!
//! A port that many may reach is not to take memory and descriptors without end: so many connections are open at a
//! time, each has one request of so many bytes, and so long for it and its answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use certificates::ServerTls;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// What OpenMetrics calls its text.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

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
        }
    }
}

/// A service that can be watched.
pub trait Watched: Clone + Send + Sync + 'static {
    /// A connection was closed because as many were open as may be: counts it.
    fn turned_away(&self);

    /// Its counters, as Prometheus reads them.
    fn metrics(&self) -> String;

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
/// `/health` says that the process answers, whatever the broker does: restarting it because the broker is away gains
/// nothing. `/ready` answers 503 with the reason while the service cannot work.
pub async fn serve<T: Watched>(listener: TcpListener, watched: T) {
    serve_within(Limits::default(), listener, watched).await;
}

/// The same with other limits.
pub async fn serve_within<T: Watched>(limits: Limits, listener: TcpListener, watched: T) {
    let router = router(watched.clone());
    serve_router(limits, listener, None, router, || watched.turned_away()).await;
}

/// Answers with any router, under TLS if there is something to show. `turned_away` counts connections that had no room.
pub async fn serve_router(
    limits: Limits,
    listener: TcpListener,
    tls: Option<Arc<ServerTls>>,
    router: Router,
    turned_away: impl Fn(),
) {
    let mut open = JoinSet::new();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_REST).await;
            continue;
        };
        while open.try_join_next().is_some() {}
        if open.len() >= limits.connections {
            turned_away();
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
                    if let Ok(Ok(stream)) = tokio::time::timeout(TLS_WAIT, handshake).await {
                        answer(limits, stream, router).await;
                    }
                })
            }
        };
    }
}

/// Answers one connection. What goes wrong with it is its sender's to see.
async fn answer<S>(limits: Limits, stream: S, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .keep_alive(limits.keeps)
        .timer(TokioTimer::new())
        .header_read_timeout(limits.time)
        .max_buf_size(limits.request_bytes)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let _ = match limits.keeps {
        true => Ok(connection.await),
        false => tokio::time::timeout(limits.time, connection).await,
    };
}

fn router<T: Watched>(watched: T) -> Router {
    Router::new()
        .route("/metrics", get(metrics::<T>))
        .route("/health", get(async || "alive\n"))
        .route("/ready", get(ready::<T>))
        .route("/status", get(status::<T>))
        .with_state(watched)
}

async fn metrics<T: Watched>(State(watched): State<T>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], watched.metrics())
}

async fn ready<T: Watched>(State(watched): State<T>) -> (StatusCode, String) {
    match watched.problem() {
        None => {
            let remark =
                watched.remark().map_or_else(String::new, |it| format!("; last failure: {it}"));
            (StatusCode::OK, format!("ready{remark}\n"))
        }
        Some(problem) => (StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")),
    }
}

async fn status<T: Watched>(State(watched): State<T>) -> Response {
    match watched.status() {
        Some(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
