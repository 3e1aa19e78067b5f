//! The client against sockets of this machine.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::io::source::BoxFuture;

/// Answers with one list of addresses after the other; the last one stays.
#[derive(Debug)]
struct Lists {
    lists: Vec<Vec<IpAddr>>,
    asked: AtomicUsize,
}

impl Resolve for Lists {
    fn resolve(&self, _: String) -> BoxFuture<std::io::Result<Vec<IpAddr>>> {
        let at = self.asked.fetch_add(1, Ordering::SeqCst).min(self.lists.len() - 1);
        let list = self.lists[at].clone();
        Box::pin(async move { Ok(list) })
    }
}

fn lists(lists: &[&[&str]]) -> Arc<Lists> {
    let parse = |list: &&[&str]| list.iter().map(|text| text.parse().unwrap()).collect();
    Arc::new(Lists { lists: lists.iter().map(parse).collect(), asked: AtomicUsize::new(0) })
}

fn get(url: &str) -> http::Request<Bytes> {
    http::Request::get(url).body(Bytes::new()).unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn public() -> Options {
    Options { addresses: Addresses::Public, ..Options::default() }
}

/// A server that answers each connection with `answer`, and says nothing more.
async fn server(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = socket.read(&mut request).await;
                let _ = socket.write_all(answer).await;
                let _ = socket.read(&mut request).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn an_answer_is_read_whole() {
    let port = server(b"HTTP/1.1 201 Created\r\nx-a: b\r\ncontent-length: 5\r\n\r\nhello").await;
    let client = Http::new(Options::default()).unwrap();
    let answer = client.send(get(&format!("http://127.0.0.1:{port}/")), soon()).await.unwrap();
    assert_eq!((answer.status, &answer.body[..], answer.is_cut), (201, &b"hello"[..], false));
    assert_eq!(answer.headers["x-a"], "b");
}

#[tokio::test]
async fn a_long_answer_is_cut() {
    let port = server(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n0123456789").await;
    let client = Http::new(Options { response_bytes_max: 4, ..Options::default() }).unwrap();
    let answer = client.send(get(&format!("http://127.0.0.1:{port}/")), soon()).await.unwrap();
    assert_eq!((&answer.body[..], answer.is_cut), (&b"0123"[..], true));
}

#[tokio::test]
async fn a_silent_server_ends_at_the_deadline() {
    let port = server(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n1").await;
    let client = Http::new(Options::default()).unwrap();
    let deadline = Instant::now() + Duration::from_millis(50);
    let failure = client.send(get(&format!("http://127.0.0.1:{port}/")), deadline).await;
    assert_eq!(failure.unwrap_err(), Failure::Timeout);
}

#[tokio::test]
async fn private_addresses_are_refused_in_every_spelling() {
    let client = Http::new(public()).unwrap();
    let urls = [
        "http://127.0.0.1:1/",
        "http://localhost:1/",
        "http://2130706433:1/",
        "http://0x7f.1:1/",
        "http://0177.0.0.1:1/",
        "http://[::1]:1/",
        "http://[::ffff:127.0.0.1]:1/",
        "http://0:1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "ftp://1.1.1.1/",
        "http://u:p@127.0.0.1:1/",
        "http://1.2.3.256/",
        "/only/a/path",
    ];
    for url in urls {
        let failure = client.send(get(url), soon()).await.unwrap_err();
        assert!(matches!(failure, Failure::Forbidden { .. }), "{url}: {failure:?}");
    }
}

#[tokio::test]
async fn a_name_is_judged_by_the_address_that_is_connected_to() {
    // The first answer is allowed, but nobody is there; the second one is this machine.
    let resolver = lists(&[&["240.0.0.1", "127.0.0.1"]]);
    let client = Http::with_resolver(public(), resolver).unwrap();
    let failure = client.send(get("http://a.example:9/"), soon()).await.unwrap_err();
    assert!(matches!(failure, Failure::Forbidden { .. }), "{failure:?}");
    assert!(format!("{failure:?}").contains("127.0.0.1"), "{failure:?}");
}

#[tokio::test]
async fn a_name_is_resolved_once_for_each_connection() {
    let port = server(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
    let resolver = lists(&[&["127.0.0.1"], &["127.0.0.1"]]);
    let client = Http::with_resolver(Options::default(), Arc::clone(&resolver) as _).unwrap();
    for _ in 0..2 {
        let answer = client.send(get(&format!("http://a.example:{port}/")), soon()).await.unwrap();
        assert_eq!(answer.status, 204);
    }
    assert_eq!(resolver.asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_closed_port_is_no_connection() {
    let port = {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let client = Http::new(Options::default()).unwrap();
    let failure = client.send(get(&format!("http://127.0.0.1:{port}/")), soon()).await.unwrap_err();
    assert!(matches!(&failure, Failure::Connect { why } if why.contains("refused")), "{failure:?}");
}
