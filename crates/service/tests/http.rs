//! What a service says over HTTP: to Prometheus, and to whoever starts and watches it.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "talks to a server that it starts"
)]

use std::sync::{Arc, Mutex};

use service::io::http::{Watched, bind, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[derive(Clone)]
struct Service {
    problem: Arc<Mutex<Option<String>>>,
    has_status: bool,
}

impl Watched for Service {
    fn metrics(&self) -> String {
        "jobs_total 7\n# EOF\n".into()
    }

    fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap().clone()
    }

    fn remark(&self) -> Option<String> {
        Some("one was refused".into())
    }

    fn status(&self) -> Option<String> {
        self.has_status.then(|| "{\"jobs\":7}".into())
    }
}

/// Status line, headers and body.
async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn started(service: &Service) -> std::net::SocketAddr {
    let listener = bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, service.clone()));
    address
}

#[tokio::test]
async fn readiness_follows_the_problem_and_health_does_not() {
    let problem = Arc::new(Mutex::new(Some("the broker is away".to_owned())));
    let service = Service { problem: Arc::clone(&problem), has_status: false };
    let address = started(&service).await;

    let answer = get(address, "/ready").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("broker"), "{answer}");
    assert!(get(address, "/health").await.starts_with("HTTP/1.1 200 "));
    *problem.lock().unwrap() = None;
    let answer = get(address, "/ready").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("one was refused"), "{answer}");
}

#[tokio::test]
async fn metrics_are_openmetrics_and_what_is_not_there_is_404() {
    let service = Service { problem: Arc::default(), has_status: false };
    let address = started(&service).await;
    let answer = get(address, "/metrics").await;
    assert!(answer.contains("content-type: application/openmetrics-text"), "{answer}");
    assert!(answer.ends_with("jobs_total 7\n# EOF\n"), "{answer}");
    for path in ["/else", "/status"] {
        assert!(get(address, path).await.starts_with("HTTP/1.1 404 "), "{path}");
    }
}

#[tokio::test]
async fn a_service_with_a_status_gives_it_as_json() {
    let service = Service { problem: Arc::default(), has_status: true };
    let address = started(&service).await;
    let answer = get(address, "/status").await;
    assert!(answer.contains("content-type: application/json"), "{answer}");
    assert!(answer.ends_with("{\"jobs\":7}"), "{answer}");
}
