//! `/metrics` for Prometheus, `/health` and `/ready` for whoever starts and watches the relay.

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::metrics::Metrics;

/// What OpenMetrics calls its text.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Takes the address `127.0.0.1:9187`, or with port 0 any port.
///
/// # Errors
/// It is no address, or not to be had.
pub async fn bind(address: &str) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Answers until it is dropped.
///
/// `/health` says that the process answers, whatever the broker does: who restarts it because the broker is away gains
/// nothing. `/ready` says 503 while nothing can be published, and why.
///
/// # Errors
/// The listener fails.
pub async fn serve(listener: TcpListener, metrics: Metrics) -> std::io::Result<()> {
    let router = Router::new()
        .route("/metrics", get(exported))
        .route("/health", get(async || "alive\n"))
        .route("/ready", get(ready))
        .with_state(metrics);
    axum::serve(listener, router).await
}

async fn exported(State(metrics): State<Metrics>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], metrics.text())
}

async fn ready(State(metrics): State<Metrics>) -> (StatusCode, String) {
    match metrics.problem() {
        None => (StatusCode::OK, "ready\n".into()),
        Some(problem) => (StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")),
    }
}
