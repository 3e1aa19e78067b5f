//! What a service says over HTTP: to Prometheus, and to whoever starts and watches it.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "talks to a server that it starts"
)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use service::io::http::{Limits, Orders, Watched, bind, serve, serve_with_orders, serve_within};
use service::io::pauses::{Pause, Pauses};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Lines of an answer that no socket's buffers hold.
const LARGE: usize = 4 << 20;

/// Nothing here takes as long.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Default)]
struct Service {
    problem: Arc<Mutex<Option<String>>>,
    has_status: bool,
    turned_away: Arc<AtomicU64>,
}

impl Watched for Service {
    fn turned_away(&self) {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
    }

    fn metrics(&self) -> String {
        "# TYPE jobs counter\njobs_total 7\n# EOF\n".into()
    }

    fn metrics_page(&self, page: &str, query: &str) -> Option<Result<String, String>> {
        match (page, query) {
            ("large", _) => Some(Ok("x 1\n".repeat(LARGE))),
            ("single", "") => Some(Err("say which".into())),
            ("single", query) => Some(Ok(format!("jobs_total{{{query}}} 1\n# EOF\n"))),
            _ => None,
        }
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
async fn get(address: SocketAddr, path: &str) -> String {
    get_as(address, path, "*/*").await
}

/// The same, for who takes this.
async fn get_as(address: SocketAddr, path: &str, accept: &str) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\n\r\n");
    // One that is turned away may be closed before this is written.
    let _ = socket.write_all(request.as_bytes()).await;
    rest(socket).await
}

/// What comes until the connection is closed.
async fn rest(mut socket: TcpStream) -> String {
    let mut answer = Vec::new();
    let read = socket.read_to_end(&mut answer);
    // Closed before all was read that came is an error to the other side.
    let _ = tokio::time::timeout(TIMEOUT, read).await.expect("it is closed");
    String::from_utf8(answer).unwrap()
}

async fn started(service: &Service) -> SocketAddr {
    let listener = bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, service.clone()));
    address
}

#[tokio::test]
async fn readiness_follows_the_problem_and_health_does_not() {
    let problem = Arc::new(Mutex::new(Some("the broker is away".to_owned())));
    let service = Service { problem: Arc::clone(&problem), ..Service::default() };
    let address = started(&service).await;

    let answer = get(address, "/ready").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("broker"), "{answer}");
    assert!(get(address, "/health/ready").await.starts_with("HTTP/1.1 503 "));
    for path in ["/health", "/health/live"] {
        assert!(get(address, path).await.starts_with("HTTP/1.1 200 "), "{path}");
    }
    *problem.lock().unwrap() = None;
    let answer = get(address, "/ready").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("one was refused"), "{answer}");
}

#[tokio::test]
async fn metrics_are_text_or_openmetrics_and_what_is_not_there_is_404() {
    let service = Service::default();
    let address = started(&service).await;
    let answer = get(address, "/metrics").await;
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert!(answer.ends_with("# TYPE jobs_total counter\njobs_total 7\n"), "{answer}");
    let answer = get_as(address, "/metrics", "application/openmetrics-text").await;
    assert!(answer.contains("content-type: application/openmetrics-text"), "{answer}");
    assert!(answer.ends_with("# TYPE jobs counter\njobs_total 7\n# EOF\n"), "{answer}");
    for path in ["/else", "/status", "/metrics/else"] {
        assert!(get(address, path).await.starts_with("HTTP/1.1 404 "), "{path}");
    }
}

#[tokio::test]
async fn pages_of_metrics_are_told_what_is_asked() {
    let address = started(&Service::default()).await;
    let answer = get(address, "/metrics/single?kind=%22mail%22").await;
    assert!(answer.ends_with("jobs_total{kind=%22mail%22} 1\n"), "{answer}");
    let answer = get(address, "/metrics/single").await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("say which\n"), "{answer}");
}

/// Readers that take nothing hold no more than so many large answers in memory, and the totals are there meanwhile.
#[tokio::test]
async fn large_pages_wait_for_those_before_them_and_totals_do_not() {
    let address = started(&Service::default()).await;
    let mut slow = Vec::new();
    for _ in 0..2 {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(b"GET /metrics/large HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        socket.read_exact(&mut [0; 8]).await.unwrap();
        slow.push(socket);
    }
    let third = tokio::spawn(get(address, "/metrics/large"));
    let answer = get(address, "/metrics").await;
    assert!(answer.contains("jobs_total 7"), "{answer}");
    assert!(!third.is_finished(), "there are two already");
    drop(slow);
    let answer = third.await.unwrap();
    assert!(answer.len() > LARGE * 4, "all of it comes: {}", answer.len());
}

#[tokio::test]
async fn a_service_with_a_status_gives_it_as_json() {
    let service = Service { has_status: true, ..Service::default() };
    let address = started(&service).await;
    let answer = get(address, "/status").await;
    assert!(answer.contains("content-type: application/json"), "{answer}");
    assert!(answer.ends_with("{\"jobs\":7}"), "{answer}");
}

#[tokio::test]
async fn a_connection_above_the_bound_is_closed_and_counted_until_another_ends() {
    let service = Service::default();
    let address = started(&service).await;
    let connections = Limits::default().connections;
    let mut silent = Vec::new();
    for _ in 0..connections {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    assert_eq!(get(address, "/health").await, "", "all places are taken");
    assert_eq!(service.turned_away.load(Ordering::Relaxed), 1);

    silent.pop();
    let begun = Instant::now();
    // The server sees in its own time that one is gone.
    while get(address, "/health").await.is_empty() {
        assert!(begun.elapsed() < TIMEOUT, "no place becomes free");
    }
    assert_eq!(silent.len(), connections - 1, "the others still have theirs");
}

#[tokio::test]
async fn who_says_nothing_for_too_long_is_closed() {
    let listener = bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = Limits { time: Duration::from_millis(300), ..Limits::default() };
    tokio::spawn(serve_within(limits, listener, Service::default()));
    let begun = Instant::now();
    assert_eq!(rest(TcpStream::connect(address).await.unwrap()).await, "");
    assert!(begun.elapsed() < Limits::default().time, "it is closed in its time");
}

#[tokio::test]
async fn a_request_that_is_too_long_is_not_waited_for() {
    let listener = bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = Limits { time: TIMEOUT * 2, ..Limits::default() };
    tokio::spawn(serve_within(limits, listener, Service::default()));
    let mut socket = TcpStream::connect(address).await.unwrap();
    let long = "x".repeat(limits.request_bytes);
    // The end of it is missing. What the server has not read when it closes may take its answer away.
    let _ = socket.write_all(format!("GET /health HTTP/1.1\r\nlong: {long}").as_bytes()).await;
    let answer = rest(socket).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn a_connection_has_one_request() {
    let address = started(&Service::default()).await;
    let answer = get(address, "/health").await;
    assert!(answer.contains("connection: close") && answer.ends_with("alive\n"), "{answer}");
}

/// The answer to an order that shows this login.
async fn order(address: SocketAddr, method: &str, login: &str) -> String {
    order_of(address, method, "/pause", login).await
}

async fn order_of(address: SocketAddr, method: &str, path: &str, login: &str) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\n{login}\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    rest(socket).await
}

#[tokio::test]
async fn whoever_shows_the_secret_pauses_and_resumes_and_nobody_else_does() {
    let listener = bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let pauses = Pauses::default();
    let orders = Orders::new("swordfish", pauses.clone());
    tokio::spawn(serve_with_orders(listener, Service::default(), orders));
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    let working = pauses.clone();
    tokio::spawn(async move {
        let work = async |mut end: tokio::sync::watch::Receiver<bool>| {
            let _ = end.wait_for(|end| *end).await;
            Ok::<(), ()>(())
        };
        working.run(stopped, work).await
    });
    for wrong in ["", "authorization: Bearer sword\r\n", "authorization: Basic swordfish\r\n"] {
        assert!(order(address, "PUT", wrong).await.starts_with("HTTP/1.1 401"), "{wrong}");
        assert!(!pauses.is_wanted());
    }
    let login = "authorization: Bearer swordfish\r\n";
    let paused = order(address, "PUT", login).await;
    assert!(
        paused.starts_with("HTTP/1.1 200") && paused.ends_with("{\"is_paused\":true}"),
        "{paused}"
    );
    assert!(pauses.is_resting());
    let resumed = order(address, "DELETE", login).await;
    assert!(resumed.ends_with("{\"is_paused\":false}") && !pauses.is_resting(), "{resumed}");
    assert!(get(address, "/health/live").await.ends_with("alive\n"));
}

#[tokio::test]
async fn a_part_rests_by_itself_and_with_the_whole_and_tells_who_wanted_it() {
    let listener = bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (whole, mail, sms) = (Pauses::default(), Pauses::default(), Pauses::default());
    let parts = [("e mail/ä".to_owned(), mail.clone()), ("sms".to_owned(), sms.clone())];
    let orders = Orders::new("swordfish", whole.clone()).with_parts(parts.into());
    tokio::spawn(serve_with_orders(listener, Service::default(), orders));
    for pauses in [&whole, &mail, &sms] {
        tokio::spawn(pauses.clone().follow(async |_| ()));
    }
    let login = "authorization: Bearer swordfish\r\n";
    let path = "/pause/e%20mail%2F%C3%A4?by=ann+%C3%A4";
    let refused = order_of(address, "PUT", path, "authorization: Bearer cod\r\n").await;
    assert!(refused.starts_with("HTTP/1.1 401") && !mail.is_wanted(), "{refused}");
    let paused = order_of(address, "PUT", path, login).await;
    assert!(paused.starts_with("HTTP/1.1 200"), "{paused}");
    assert!(paused.ends_with("{\"is_paused\":true}"), "{paused}");
    let Some(Pause { by, at_ms }) = mail.pause() else { panic!("it is paused") };
    assert!(by == "ann ä" && at_ms > 1_600_000_000_000, "{by} {at_ms}");
    assert!(mail.is_resting() && !sms.is_wanted() && !whole.is_wanted());

    // Without a name it is the address.
    order(address, "PUT", login).await;
    assert_eq!(whole.pause().unwrap().by, "127.0.0.1");
    let resumed = order_of(address, "DELETE", path, login).await;
    assert!(resumed.starts_with("HTTP/1.1 200") && !mail.is_resting(), "{resumed}");
    assert!(resumed.ends_with("{\"is_paused\":true}"), "it rests with the whole: {resumed}");
    order_of(address, "PUT", "/pause/sms", login).await;
    let resumed = order(address, "DELETE", login).await;
    assert!(resumed.ends_with("{\"is_paused\":false}") && sms.is_resting(), "{resumed}");

    let unknown = order_of(address, "PUT", "/pause/fax", login).await;
    assert!(unknown.starts_with("HTTP/1.1 404") && unknown.contains("\"error\""), "{unknown}");
    let long = format!("/pause?by={}", "x".repeat(1000));
    order_of(address, "PUT", &long, login).await;
    assert_eq!(whole.pause().unwrap().by.len(), 255);
}

#[tokio::test]
async fn a_service_that_takes_no_orders_has_no_such_page() {
    let listener = bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, Service::default()));
    let answer = order(address, "PUT", "authorization: Bearer x\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}
