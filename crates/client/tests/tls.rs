//! TLS against a small scripted server with certificates made for the test: what is believed, what is not,
//! and what is said about it.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test with a server of its own opens sockets and starts tasks"
)]

use std::path::PathBuf;
use std::sync::Arc;

use amqp::{Method, connection};
use client::{Address, Consumer, ConsumerOptions, Error, Options, Outcome, Publisher, Url};
use peer::{Peer, Sent};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

#[path = "support/peer.rs"]
mod peer;

/// An authority, and the files that a client is told of.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

impl Authority {
    fn new(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(folder.join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// A certificate and its key, as PEM.
    fn sign(&self, names: &[&str], year_until: i32) -> (rcgen::Certificate, KeyPair) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_string()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = rcgen::date_time_ymd(year_until, 1, 1);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    fn write_client_files(&self) {
        let (certificate, key) = self.sign(&["client"], 4000);
        std::fs::write(self.folder.join("client.pem"), certificate.pem()).unwrap();
        std::fs::write(self.folder.join("client.key"), key.serialize_pem()).unwrap();
    }
}

fn acceptor(authority: &Authority, names: &[&str], until: i32, wants_client: bool) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if wants_client {
        let mut roots = RootCertStore::empty();
        roots.add(authority.issuer.der().clone()).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let (certificate, key) = authority.sign(names, until);
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

async fn welcome(listener: &TcpListener, acceptor: &TlsAcceptor) -> Peer {
    let (tcp, _) = listener.accept().await.unwrap();
    Peer::welcome(Box::new(acceptor.accept(tcp).await.unwrap())).await
}

/// What a client is told that connects to a server which does nothing but the TLS handshake.
async fn refusal(acceptor: TlsAcceptor, url: impl Fn(u16) -> String) -> Error {
    let (listener, port) = listen().await;
    let server = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        if let Ok(mut stream) = acceptor.accept(tcp).await {
            use tokio::io::AsyncReadExt;
            let _ = stream.read(&mut [0; 64]).await;
        }
    });
    let url: Url = url(port).parse().unwrap();
    let error = Publisher::open(&url, &Options::default().without_retry(), 10).await.err().unwrap();
    server.await.unwrap();
    error
}

fn options() -> Options {
    Options { seed: Some(1), ..Options::default() }
}

#[tokio::test]
async fn messages_go_both_ways_under_tls_and_many_at_once_are_all_confirmed() {
    const COUNT: u64 = 5_000;
    let authority = Authority::new("both-ways");
    let acceptor = acceptor(&authority, &["localhost"], 4000, false);
    let (listener, port) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = welcome(&listener, &acceptor).await;
        peer.select_confirms().await;
        for number in 1..=COUNT {
            let Sent::Publish(body) = peer.next().await else { panic!("not a publish") };
            assert_eq!(body, format!("{number} {}", "x".repeat(3000)));
            if number % 100 == 0 {
                peer.ack(number, true);
            }
        }
        peer.goodbye().await;
        let mut peer = welcome(&listener, &acceptor).await;
        peer.start_consumer().await;
        for number in 1..=COUNT {
            peer.deliver(number, false, &"y".repeat(3000));
        }
        let mut acked = 0;
        while acked < COUNT {
            let Sent::Ack(tag, _) = peer.next().await else { panic!("not an ack") };
            acked = tag;
        }
        peer.goodbye().await;
    });
    let authority = authority.file("ca.pem");
    let url = format!("amqps://guest:guest@localhost:{port}/?cacertfile={authority}");
    let url: Url = url.parse().unwrap();
    let mut publisher = Publisher::open(&url, &options(), 1000).await.unwrap();
    for number in 1..=COUNT {
        let body = format!("{number} {}", "x".repeat(3000));
        let properties = amqp::Properties::default();
        publisher.publish(Address::queue("q"), &properties, body.as_bytes()).await.unwrap();
    }
    let settled = publisher.close().await.unwrap();
    assert_eq!((settled.confirmed, settled.is_clean()), (COUNT, true));

    let how = ConsumerOptions { prefetch: 0, ..ConsumerOptions::default() };
    let mut consumer = Consumer::open(&url, &options(), "q", how).await.unwrap();
    for _ in 0..COUNT {
        let delivery = consumer.next().await.unwrap();
        assert_eq!(delivery.body.len(), 3000);
        consumer.settle(delivery.tag, Outcome::Done).unwrap();
    }
    consumer.close().await.unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_with_both_names() {
    let authority = Authority::new("other-name");
    let ca = authority.file("ca.pem");
    let acceptor = || acceptor(&authority, &["broker.example"], 4000, false);
    let told =
        refusal(acceptor(), |port| format!("amqps://localhost:{port}/?cacertfile={ca}")).await;
    let words = told.to_string();
    for part in ["the certificate of localhost:", "for broker.example, and not for localhost"] {
        assert!(words.contains(part), "{words}");
    }
    assert!(!told.is_temporary(), "trying again does not help: {words}");
    let named = |port| {
        format!("amqps://localhost:{port}/?cacertfile={ca}&server_name_indication=broker.example")
    };
    // The name is believed now; the server says nothing more.
    assert!(matches!(refusal(acceptor(), named).await, Error::Lost { .. }));
}

#[tokio::test]
async fn an_unknown_authority_is_refused_and_what_to_give_is_said() {
    let (theirs, ours) = (Authority::new("theirs"), Authority::new("ours"));
    let acceptor = || acceptor(&theirs, &["localhost"], 4000, false);
    let ca = ours.file("ca.pem");
    let told =
        refusal(acceptor(), |port| format!("amqps://localhost:{port}/?cacertfile={ca}")).await;
    let words = told.to_string();
    assert!(words.contains("not signed by an authority in") && words.contains(&ca), "{words}");
    let told = refusal(acceptor(), |port| format!("amqps://localhost:{port}")).await;
    assert!(matches!(told, Error::Tls { .. }), "{told}");
    assert!(told.to_string().contains("cacertfile"), "{told}");
}

#[tokio::test]
async fn a_certificate_whose_time_has_passed_is_refused() {
    let authority = Authority::new("expired");
    let ca = authority.file("ca.pem");
    let acceptor = acceptor(&authority, &["localhost"], 2001, false);
    let told = refusal(acceptor, |port| format!("amqps://localhost:{port}/?cacertfile={ca}")).await;
    assert!(told.to_string().contains("its time has passed"), "{told}");
}

#[tokio::test]
async fn a_server_that_wants_the_clients_certificate_gets_it_or_the_client_is_told() {
    let authority = Authority::new("client-certificate");
    authority.write_client_files();
    let ca = authority.file("ca.pem");
    let without = refusal(acceptor(&authority, &["localhost"], 4000, true), |port| {
        format!("amqps://localhost:{port}/?cacertfile={ca}")
    });
    let words = without.await.to_string();
    assert!(words.contains("certfile and keyfile"), "{words}");

    let acceptor = acceptor(&authority, &["localhost"], 4000, true);
    let (listener, port) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = welcome(&listener, &acceptor).await;
        peer.select_confirms().await;
        peer.goodbye().await;
    });
    let (certificate, key) = (authority.file("client.pem"), authority.file("client.key"));
    let url =
        format!("amqps://localhost:{port}/?cacertfile={ca}&certfile={certificate}&keyfile={key}");
    let publisher = Publisher::open(&url.parse().unwrap(), &options(), 10).await.unwrap();
    publisher.close().await.unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named() {
    let authority = Authority::new("bad-files");
    std::fs::write(authority.folder.join("empty.pem"), "nothing\n").unwrap();
    for (option, file) in [("cacertfile", "missing.pem"), ("cacertfile", "empty.pem")] {
        let file = authority.file(file);
        let acceptor = acceptor(&authority, &["localhost"], 4000, false);
        let told = refusal(acceptor, |port| format!("amqps://localhost:{port}/?{option}={file}"));
        let words = told.await.to_string();
        assert!(words.contains(&format!("{option} {file} cannot be used")), "{words}");
    }
}

#[tokio::test]
async fn tls_to_a_port_without_it_and_the_other_way_round_are_told_apart() {
    let (listener, port) = listen().await;
    let server = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        tcp.read_u8().await.unwrap();
        tcp.write_all(b"AMQP\x00\x00\x09\x01").await.unwrap();
        tcp.read_u8().await.unwrap();
    });
    let url: Url = format!("amqps://localhost:{port}").parse().unwrap();
    let told = Publisher::open(&url, &options(), 10).await.err().unwrap();
    assert!(told.to_string().contains("does not answer with TLS"), "{told}");
    server.await.unwrap();

    let authority = Authority::new("plain-to-tls");
    let acceptor = acceptor(&authority, &["localhost"], 4000, false);
    let told = refusal(acceptor, |port| format!("amqp://localhost:{port}")).await;
    assert!(told.to_string().contains("say amqps://"), "{told}");
}

#[tokio::test]
async fn a_server_that_closes_under_tls_is_heard() {
    let authority = Authority::new("closing");
    let acceptor = acceptor(&authority, &["localhost"], 4000, false);
    let (listener, port) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = welcome(&listener, &acceptor).await;
        peer.select_confirms().await;
        assert_eq!(peer.next().await, Sent::Publish("a".into()));
        let reply_text = "CONNECTION_FORCED - bye";
        let close = connection::Close { reply_code: 320, reply_text, class_id: 0, method_id: 0 };
        peer.say(&Method::ConnectionClose(close));
        peer.expect("connection.close-ok").await;
    });
    let url = format!("amqps://localhost:{port}/?cacertfile={}", authority.file("ca.pem"));
    let options = options().without_retry();
    let mut publisher = Publisher::open(&url.parse().unwrap(), &options, 10).await.unwrap();
    let properties = amqp::Properties::default();
    publisher.publish(Address::queue("q"), &properties, b"a").await.unwrap();
    let closed = publisher.drive(&mut Vec::new()).await.unwrap_err();
    assert_eq!(closed.code(), Some(320), "{closed}");
    server.await.unwrap();
}
