//! The worker's webhook target against endpoints that misbehave.
#![allow(clippy::disallowed_methods, reason = "a test has a clock and sockets")]

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use worker::io::http::Resolve;
use worker::io::source::BoxFuture;
use worker::io::target::webhook::Webhook;
use worker::io::target::{Run, Target};
use worker::{Message, Outcome};

/// For whatever must happen on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// For whatever must not be waited for.
const SHORT: Duration = Duration::from_millis(300);

/// An endpoint of this machine.
struct Endpoint {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Endpoint {
    /// Each connection is handled by `handle`.
    async fn start<F, W>(handle: F) -> Self
    where
        F: Fn(TcpStream) -> W + Send + 'static,
        W: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("a port").port();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(handle(socket));
            }
        });
        Self { port, connections }
    }

    /// Each request is answered with these bytes; the connection stays open.
    async fn says(answer: impl Into<Vec<u8>>) -> Self {
        let answer = Arc::new(answer.into());
        Self::start(move |mut socket| {
            let answer = Arc::clone(&answer);
            async move {
                loop {
                    request(&mut socket).await?;
                    socket.write_all(&answer).await?;
                }
            }
        })
        .await
    }

    fn target(&self, more: &str) -> Arc<Webhook> {
        target(&format!(
            "url = 'http://127.0.0.1:{}/hook'\nallow_private = true\n{more}",
            self.port
        ))
    }
}

/// Reads a request with a `content-length`, head and body.
async fn request(socket: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut text = Vec::new();
    loop {
        if socket.read_buf(&mut text).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let so_far = String::from_utf8_lossy(&text).to_ascii_lowercase();
        let Some((head, body)) = so_far.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        if body.len() >= length {
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
    }
}

fn target(settings: &str) -> Arc<Webhook> {
    Arc::new(Webhook::new(toml::from_str(settings).expect("settings")).expect("a target"))
}

fn job() -> Message {
    Message { id: "j1".into(), body: "{}".into(), attempt: 1, ..Message::default() }
}

async fn within(target: &Arc<Webhook>, time: Duration) -> Outcome {
    let run = Run { jobs: vec![job()], deadline: Instant::now() + time };
    let outcomes = tokio::time::timeout(TIMEOUT, Arc::clone(target).run(run)).await;
    outcomes.expect("the deadline was kept").pop().expect("one outcome")
}

async fn run(target: &Arc<Webhook>) -> Outcome {
    within(target, TIMEOUT).await
}

fn why(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Done { .. } => "",
        Outcome::Retry { why, .. }
        | Outcome::Throttle { why, .. }
        | Outcome::TokenDead { why, .. }
        | Outcome::Reject { why }
        | Outcome::Config { why } => why,
    }
}

#[tokio::test]
async fn an_endpoint_that_hangs_costs_the_deadline() {
    let silent = Endpoint::start(|mut socket| async move {
        request(&mut socket).await?;
        std::future::pending().await
    })
    .await;
    assert!(why(&within(&silent.target(""), SHORT).await).contains("in time"));
}

#[tokio::test]
async fn an_endpoint_that_takes_no_connection_costs_the_deadline() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let port = listener.local_addr().expect("a port").port();
    let target = target(&format!("url = 'http://127.0.0.1:{port}/'\nallow_private = true"));
    assert_eq!(within(&target, SHORT).await.name(), "retry");
}

#[tokio::test]
async fn one_byte_a_moment_costs_the_deadline() {
    for start in ["HTTP/1.1 200 OK\r\nx: ", "HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n", ""] {
        let slow = Endpoint::start(move |mut socket| async move {
            request(&mut socket).await?;
            socket.write_all(start.as_bytes()).await?;
            loop {
                socket.write_all(b"H").await?;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        let outcome = within(&slow.target(""), SHORT).await;
        assert_eq!(outcome.name(), "retry", "{start}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_body_without_end_is_cut_and_its_connection_given_up() {
    let endless = Endpoint::start(|mut socket| async move {
        request(&mut socket).await?;
        socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
        loop {
            socket.write_all(&[b'x'; 65536]).await?;
        }
    })
    .await;
    let target = endless.target("");
    assert_eq!(run(&target).await, Outcome::done());
    assert_eq!(run(&target).await, Outcome::done());
    assert_eq!(endless.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn headers_without_end_are_no_answer() {
    let endless = Endpoint::start(|mut socket| async move {
        request(&mut socket).await?;
        socket.write_all(b"HTTP/1.1 200 OK\r\n").await?;
        loop {
            socket.write_all(b"x-more: and more and more and more\r\n").await?;
        }
    })
    .await;
    assert_eq!(run(&endless.target("")).await.name(), "retry");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let own = own.local_addr().expect("a port");
    for to in
        [format!("http://{own}/"), "http://169.254.169.254/".into(), "file:///etc/passwd".into()]
    {
        let answer = format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
        let endpoint = Endpoint::says(answer).await;
        let outcome = run(&endpoint.target("")).await;
        assert!(outcome.name() == "reject" && why(&outcome).contains(&to), "{outcome:?}");
        assert_eq!(endpoint.connections.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_long_retry_after_is_bounded() {
    let answer = "HTTP/1.1 429 No\r\nretry-after: 1000000000\r\ncontent-length: 0\r\n\r\n";
    let outcome = run(&Endpoint::says(answer).await.target("retry_after_max = '1h'")).await;
    assert!(matches!(outcome, Outcome::Throttle { until, .. } if until.as_secs() == 3600));
}

#[tokio::test]
async fn success_is_what_the_status_says() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"error\":true}";
    assert_eq!(run(&Endpoint::says(answer).await.target("")).await, Outcome::done());
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_tried_again() {
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc";
    let broken = Endpoint::start(move |mut socket| async move {
        request(&mut socket).await?;
        socket.write_all(answer).await?;
        // What was not read makes the close a reset.
        Ok(())
    })
    .await;
    assert_eq!(run(&broken.target("")).await.name(), "retry");
    let nonsense = Endpoint::says("SSH-2.0-OpenSSH_9.2\r\n").await;
    assert_eq!(run(&nonsense.target("")).await.name(), "retry");
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let endpoint = Endpoint::says("HTTP/1.1 204 No Content\r\n\r\n").await;
    let target = endpoint.target("");
    for _ in 0..20 {
        assert_eq!(run(&target).await, Outcome::done());
    }
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_endpoint_that_repeats_our_secret_does_not_spread_it() {
    let echo = Endpoint::start(|mut socket| async move {
        let text = request(&mut socket).await?;
        let answer = format!("HTTP/1.1 500 No\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        socket.write_all(answer.as_bytes()).await
    })
    .await;
    let outcome = run(&echo.target("headers = { authorization = 'CANARY-1234' }")).await;
    assert!(why(&outcome).contains("authorization: ***"), "{outcome:?}");
    assert!(!format!("{outcome:?}").contains("CANARY"), "{outcome:?}");
}

/// No address at first; then this machine's.
#[derive(Debug)]
struct Rebinding(AtomicUsize);

impl Resolve for Rebinding {
    fn resolve(&self, _: String) -> BoxFuture<io::Result<Vec<IpAddr>>> {
        let asked = self.0.fetch_add(1, Ordering::SeqCst);
        let addresses = if asked == 0 { Vec::new() } else { vec![Ipv4Addr::LOCALHOST.into()] };
        Box::pin(async move { Ok(addresses) })
    }
}

#[tokio::test]
async fn a_name_that_changes_its_address_reaches_nothing_private() {
    let endpoint = Endpoint::says("HTTP/1.1 204 No Content\r\n\r\n").await;
    let url = format!("url = 'http://rebinding.example:{}/'", endpoint.port);
    let settings = toml::from_str(&url).expect("settings");
    let resolver = Arc::new(Rebinding(AtomicUsize::new(0)));
    let target = Webhook::with_resolver(settings, Arc::clone(&resolver) as _).expect("a target");
    let target = Arc::new(target);
    assert_eq!(run(&target).await.name(), "retry");
    let outcome = run(&target).await;
    assert!(outcome.name() == "reject" && why(&outcome).contains("127.0.0.1"), "{outcome:?}");
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 0);
    // What is judged is what is connected to: there is no second question to lie to.
    assert_eq!(resolver.0.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn private_addresses_are_refused_in_every_form() {
    let hosts = ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0x7f000001", "127.1", "localhost"];
    let endpoint = Endpoint::says("HTTP/1.1 204 No Content\r\n\r\n").await;
    for host in hosts {
        let outcome = run(&target(&format!("url = 'http://{host}:{}/'", endpoint.port))).await;
        assert_eq!(outcome.name(), "reject", "{host}: {outcome:?}");
    }
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 0);
}

/// Answers every stream with 204; after `streams`, says GOAWAY.
async fn http2(socket: impl AsyncRead + AsyncWrite + Unpin, streams: usize) -> io::Result<()> {
    let mut connection = h2::server::handshake(socket).await.map_err(io::Error::other)?;
    let mut served = 0;
    while let Some(stream) = connection.accept().await {
        let (_, mut respond) = stream.map_err(io::Error::other)?;
        let answer = http::Response::builder().status(204).body(()).expect("an answer");
        respond.send_response(answer, true).map_err(io::Error::other)?;
        served += 1;
        if served == streams {
            connection.graceful_shutdown();
        }
    }
    Ok(())
}

#[tokio::test]
async fn http2_is_spoken_and_goaway_is_met_by_a_new_connection() {
    let endpoint = Endpoint::start(|socket| http2(socket, 3)).await;
    let target = endpoint.target("http2 = 'only'");
    let mut done = 0;
    for _ in 0..12 {
        match run(&target).await {
            Outcome::Done { .. } => done += 1,
            // A stream that was opened while GOAWAY was on its way.
            other => assert_eq!(other.name(), "retry", "{other:?}"),
        }
    }
    assert!(done >= 9, "{done}");
    assert!(endpoint.connections.load(Ordering::SeqCst) >= 3);
}

#[tokio::test]
async fn many_requests_go_over_several_http2_connections() {
    // Answers only when 250 requests are there at once, and allows 100 on a connection.
    let together = Arc::new(tokio::sync::Barrier::new(250));
    let endpoint = Endpoint::start(move |socket| {
        let together = Arc::clone(&together);
        async move {
            let mut builder = h2::server::Builder::new();
            builder.max_concurrent_streams(100);
            let connection = builder.handshake::<_, bytes::Bytes>(socket).await;
            let mut connection = connection.map_err(io::Error::other)?;
            while let Some(stream) = connection.accept().await {
                let (_, mut respond) = stream.map_err(io::Error::other)?;
                let together = Arc::clone(&together);
                tokio::spawn(async move {
                    together.wait().await;
                    let answer = http::Response::builder().status(204).body(()).expect("an answer");
                    let _ = respond.send_response(answer, true);
                });
            }
            Ok(())
        }
    })
    .await;
    let target = endpoint.target("http2 = 'only'");
    let runs: Vec<_> = (0..250)
        .map(|_| {
            let target = Arc::clone(&target);
            tokio::spawn(async move { run(&target).await })
        })
        .collect();
    for running in runs {
        assert_eq!(running.await.expect("it ran"), Outcome::done());
    }
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 3);
}

/// A certificate for `localhost` that ends in that year, as its own authority, and a server that shows it.
async fn tls(year: i32) -> (Endpoint, std::path::PathBuf) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).expect("a name");
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let certificate = params.self_signed(&key).expect("a certificate");
    let name = format!("millrace-webhook-{}-{year}.pem", std::process::id());
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, certificate.pem()).expect("a file");
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .expect("a certificate");
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let endpoint = Endpoint::start(move |socket| {
        let acceptor = acceptor.clone();
        async move { http2(acceptor.accept(socket).await?, usize::MAX).await }
    })
    .await;
    (endpoint, file)
}

fn tls_target(endpoint: &Endpoint, ca: Option<&std::path::Path>) -> Arc<Webhook> {
    let ca = ca.map_or(String::new(), |ca| format!("ca = '{}'", ca.display()));
    let port = endpoint.port;
    target(&format!("url = 'https://localhost:{port}/'\nallow_private = true\n{ca}"))
}

#[tokio::test]
async fn tls_is_verified_and_brings_http2() {
    let (endpoint, ca) = tls(2120).await;
    let target = tls_target(&endpoint, Some(&ca));
    for _ in 0..3 {
        assert_eq!(run(&target).await, Outcome::done());
    }
    let checked = Arc::clone(&target).check().await.expect("it can be reached");
    assert!(checked.contains("HTTP/2"), "{checked}");
    let outcome = run(&tls_target(&endpoint, None)).await;
    assert!(outcome.name() == "retry" && why(&outcome).contains("not accepted"), "{outcome:?}");
}

#[tokio::test]
async fn an_expired_certificate_is_said() {
    let (endpoint, ca) = tls(2021).await;
    let outcome = run(&tls_target(&endpoint, Some(&ca))).await;
    assert!(outcome.name() == "retry" && why(&outcome).contains("expired"), "{outcome:?}");
}
