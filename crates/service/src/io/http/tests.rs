use std::cell::Cell;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

/// More than sockets hold.
const ANSWER_BYTES: usize = 64 << 20;

async fn asked(listener: &TcpListener) -> TcpStream {
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    client
}

/// Who takes nothing is cut off, and its place is free; who takes all of it gets it.
#[tokio::test]
async fn who_does_not_take_its_answer_loses_its_connection() {
    let listener = bind("127.0.0.1:0").await.unwrap();
    let limits = Limits {
        connections: 1,
        keeps: true,
        patience: Duration::from_millis(200),
        ..Limits::default()
    };
    let slow = Cell::new(0);
    let count = |lost| {
        if lost == Lost::SlowReader {
            slow.set(slow.get() + 1);
        }
    };
    let mut stalled = asked(&listener).await;
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/", get(async || vec![b'x'; ANSWER_BYTES]));
    let serving = serve_router(limits, listener, None, router, count);
    let client = async {
        let mut next = loop {
            let mut next = TcpStream::connect(address).await.unwrap();
            let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            next.write_all(request).await.unwrap();
            // While the place is taken, others are closed at once.
            if next.read_u8().await.is_ok() {
                break next;
            }
        };
        let mut answer = Vec::new();
        next.read_to_end(&mut answer).await.unwrap();
        assert!(answer.len() > ANSWER_BYTES, "who reads gets all of it");
        let mut rest = Vec::new();
        let _ = stalled.read_to_end(&mut rest).await;
        assert!(rest.len() < ANSWER_BYTES, "who did not read got {} bytes", rest.len());
    };
    tokio::select! {
        () = serving => panic!("it serves until it is dropped"),
        () = client => {}
    }
    assert_eq!(slow.get(), 1);
}
