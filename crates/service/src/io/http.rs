//! `/metrics` for Prometheus, `/health` and `/ready` for whoever starts and watches a service, and `/status` for
//! its own commands.

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

/// What OpenMetrics calls its text.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A service that can be watched.
pub trait Watched: Clone + Send + Sync + 'static {
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
///
/// # Errors
/// The listener fails.
pub async fn serve<T: Watched>(listener: TcpListener, watched: T) -> std::io::Result<()> {
    let router = Router::new()
        .route("/metrics", get(metrics::<T>))
        .route("/health", get(async || "alive\n"))
        .route("/ready", get(ready::<T>))
        .route("/status", get(status::<T>))
        .with_state(watched);
    axum::serve(listener, router).await
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
