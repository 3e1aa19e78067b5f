//! What a relay says over HTTP: to Prometheus, and to whoever starts and watches it.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "talks to a server that it starts"
)]

use relay::Metrics;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Status line, headers and body.
async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn metrics_are_text_and_readiness_follows_the_broker() {
    let metrics = Metrics::default();
    let listener = relay::io::http::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(relay::io::http::serve(listener, metrics.clone()));

    let answer = get(address, "/ready").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("broker"), "{answer}");
    assert!(
        get(address, "/health").await.starts_with("HTTP/1.1 200 "),
        "it lives, whatever the broker does"
    );
    metrics.broker_connections.inc();
    metrics.confirmed.inc_by(7);
    assert!(get(address, "/ready").await.starts_with("HTTP/1.1 200 "));
    let answer = get(address, "/metrics").await;
    assert!(answer.contains("content-type: application/openmetrics-text"), "{answer}");
    assert!(answer.contains("\nmillrace_relay_confirmed_total 7\n"), "{answer}");
    assert!(answer.ends_with("# EOF\n"), "{answer}");
    assert!(get(address, "/else").await.starts_with("HTTP/1.1 404 "));
    server.abort();
}
