//! Brokers and the command itself are killed in the middle of a move.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use client::QueueSpec;

use super::support::{Move, judge, publish, taken, url};
use crate::node::{Node, until_ready};

const COUNT: u32 = 30_000;

/// An address that leads to a node wherever it comes back after a crash.
struct Way {
    port: u16,
    to: Arc<AtomicU16>,
}

impl Way {
    fn to(node: &Node) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let to = Arc::new(AtomicU16::new(node.url.port));
        let now = to.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, now.load(Relaxed))) {
                    pass_on(client.try_clone().unwrap(), server.try_clone().unwrap());
                    pass_on(server, client);
                }
            }
        });
        Self { port, to }
    }

    fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}", self.port)
    }

    fn crash(&self, node: &mut Node) {
        node.crash();
        self.to.store(node.url.port, Relaxed);
    }
}

/// Passes bytes on until either end is gone; then both are.
fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    });
}

async fn brokers(name: &str) -> (Node, Node) {
    let source = Node::start(&format!("{name}-from"));
    let target = Node::start(&format!("{name}-to"));
    for node in [&source, &target] {
        node.connect().await.declare_queue(&QueueSpec::durable("q")).await.unwrap();
    }
    (source, target)
}

/// Waits until so many messages are at the target, at least.
async fn until_there(node: &Node, count: u32) {
    let mut connection = node.connect().await;
    let begun = std::time::Instant::now();
    while connection.look_up_queue("q").await.unwrap().message_count < count {
        assert!(begun.elapsed() < crate::node::TIMEOUT, "it does not go on");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn nothing_is_lost_when_the_target_is_killed_and_what_is_twice_is_marked() {
    let (source, mut target) = brokers("move-kill-target").await;
    publish(&source, "q", 0..COUNT).await;
    let way = Way::to(&target);
    let words = ["--queue", "q", "--json", "--rate", "15000"];
    let moving = Move::between(&url(&source.url), &way.url(), &words);
    for part in 1..=3 {
        until_there(&target, part * COUNT / 5).await;
        way.crash(&mut target);
    }
    let ended = moving.ended();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let queue = ended.last("queue");
    assert_eq!(queue["target_losses"], 3, "each crash cut a connection that was in use");
    assert_eq!(queue["moved"], COUNT);
    until_ready(&mut source.connect().await, "q", 0).await;
    judge(&taken(&target, "q").await, COUNT);
}

#[tokio::test]
async fn nothing_is_lost_when_the_source_is_killed() {
    let (mut source, target) = brokers("move-kill-source").await;
    publish(&source, "q", 0..COUNT).await;
    let way = Way::to(&source);
    let words = ["--queue", "q", "--json", "--rate", "15000"];
    let moving = Move::between(&way.url(), &url(&target.url), &words);
    for part in 1..=2 {
        until_there(&target, part * COUNT / 5).await;
        way.crash(&mut source);
    }
    let ended = moving.ended();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.last("queue")["source_losses"], 2);
    until_ready(&mut source.connect().await, "q", 0).await;
    judge(&taken(&target, "q").await, COUNT);
}

#[tokio::test]
async fn nothing_is_lost_when_the_move_is_killed_and_started_again() {
    let (source, target) = brokers("move-kill-move").await;
    publish(&source, "q", 0..COUNT).await;
    let words = ["--queue", "q", "--json", "--rate", "15000"];
    for part in 1..=4 {
        let moving = Move::start(&source, &target, &words);
        until_there(&target, part * COUNT / 6).await;
        moving.kill();
    }
    let ended = Move::run(&source, &target, &words);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    until_ready(&mut source.connect().await, "q", 0).await;
    judge(&taken(&target, "q").await, COUNT);
}

/// The target stands still, so it confirms nothing; then it is killed together with the move. All that was published
/// meanwhile is in no log: the source must have it still.
#[tokio::test]
async fn the_source_keeps_what_the_target_has_not_confirmed() {
    const UNCONFIRMED: u32 = 500;
    let (source, mut target) = brokers("move-unconfirmed").await;
    let words = ["--queue", "q", "--json", "--report-every", "50ms"];
    let mut moving = Move::start(&source, &target, &[&words[..], &["--follow"]].concat());
    publish(&source, "q", 0..1).await;
    until_ready(&mut target.connect().await, "q", 1).await;
    target.stop();
    publish(&source, "q", 1..UNCONFIRMED + 1).await;
    moving.wait_until(|progress| progress["in_flight"] == UNCONFIRMED);
    // Once more, so that whatever it tells the source too early is told.
    moving.wait_until(|progress| progress["in_flight"] == UNCONFIRMED);
    moving.kill();
    target.crash();
    until_ready(&mut source.connect().await, "q", UNCONFIRMED).await;
    let ended = Move::run(&source, &target, &words);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    judge(&taken(&target, "q").await, UNCONFIRMED + 1);
}
