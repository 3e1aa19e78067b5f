//! `/metrics` for Prometheus, `/health` and `/ready` for whoever starts and watches a relay or an inbox.

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::inbox;
use crate::metrics::Metrics;

/// What OpenMetrics calls its text.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is served.
pub trait Told: Clone + Send + Sync + 'static {
    /// As Prometheus reads it.
    fn text(&self) -> String;
    /// What keeps it from working right now.
    fn problem(&self) -> Option<String>;
    /// What somebody should know though it works.
    fn remark(&self) -> Option<String> {
        None
    }
}

impl Told for Metrics {
    fn text(&self) -> String {
        Self::text(self)
    }

    fn problem(&self) -> Option<String> {
        Self::problem(self)
    }

    fn remark(&self) -> Option<String> {
        self.last_failure()
    }
}

impl Told for inbox::Metrics {
    fn text(&self) -> String {
        Self::text(self)
    }

    fn problem(&self) -> Option<String> {
        Self::problem(self).map(str::to_owned)
    }
}

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
/// nothing. `/ready` says 503 while nothing can be published (or stored), and why.
///
/// # Errors
/// The listener fails.
pub async fn serve<T: Told>(listener: TcpListener, metrics: T) -> std::io::Result<()> {
    let router = Router::new()
        .route("/metrics", get(exported::<T>))
        .route("/health", get(async || "alive\n"))
        .route("/ready", get(ready::<T>))
        .with_state(metrics);
    axum::serve(listener, router).await
}

async fn exported<T: Told>(State(metrics): State<T>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], metrics.text())
}

async fn ready<T: Told>(State(metrics): State<T>) -> (StatusCode, String) {
    match metrics.problem() {
        None => {
            let remark =
                metrics.remark().map_or_else(String::new, |it| format!("; last failure: {it}"));
            (StatusCode::OK, format!("ready{remark}\n"))
        }
        Some(problem) => (StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")),
    }
}
