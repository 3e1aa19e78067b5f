//! The memory alarm as a publisher meets it: it comes, and it goes with what raised it.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

#[path = "support/node.rs"]
mod node;

use std::io::Write as _;
use std::time::{Duration, Instant};

use amqp::{Encoder, Method, Properties, basic, tx};
use broker::limits::UNFINISHED_WAIT;
use bytes::BytesMut;
use client::io::blocking::{Blocking, Stream};
use client::{Address, Options, Publisher, QueueSpec};
use node::{Node, TIMEOUT};
use tokio::time::timeout;

const LIMIT_BYTES: usize = 150 << 20;
const BODY_BYTES: usize = 64 << 10;
/// So few are unconfirmed that they alone are not what fills the memory.
const WINDOW: u32 = 16;
/// Freed memory is the system's again after about ten seconds; on a busy machine later.
const END_MAX: Duration = Duration::from_secs(60);

/// A message that the node may keep in memory alone.
async fn publish(publisher: &mut Publisher) {
    let to = Address { mandatory: false, ..Address::queue("kept") };
    let transient = Properties { delivery_mode: Some(1), ..Properties::default() };
    publisher.publish(to, &transient, &[b'x'; BODY_BYTES]).await.unwrap();
}

#[tokio::test]
async fn publishers_go_on_when_what_filled_the_memory_is_deleted() {
    let node = Node::start_with("memory-alarm", &["--set", "memory_limit=150MiB"]);
    let mut connection = node.connect().await;
    let kept = QueueSpec { durable: false, ..QueueSpec::durable("kept") };
    connection.declare_queue(&kept).await.unwrap();

    let mut publisher = Publisher::open(&node.url, &Options::named("test"), WINDOW).await.unwrap();
    let (begun, mut bytes) = (Instant::now(), 0);
    loop {
        assert!(begun.elapsed() < TIMEOUT, "nobody is blocked");
        assert!(bytes < 3 * LIMIT_BYTES, "{bytes} bytes were taken");
        // Where the window is full and no confirm comes, this waits in vain, and is blocked by then.
        match timeout(Duration::from_secs(1), publish(&mut publisher)).await {
            Ok(()) => bytes += BODY_BYTES,
            // The alarm holds as long as its reason does, which may be a little more than the limit at first.
            Err(_) if publisher.is_blocked() => break,
            Err(_) => {}
        }
    }
    connection.delete_queue("kept").await.unwrap();
    let next = timeout(END_MAX, publish(&mut publisher)).await;
    assert!(next.is_ok(), "the alarm does not end");
    assert!(!publisher.is_blocked());
    let settled = timeout(TIMEOUT, publisher.settle_all()).await;
    settled.expect("what was published before the alarm is confirmed after it").unwrap();
}

/// The memory limit beside a transaction, and how much of it is taken before.
const TX_LIMIT_BYTES: u64 = 200 << 20;
const TAKEN_BEFORE_BYTES: u64 = 130 << 20;
/// With what is taken before, more than the limit. Less than half of the limit: so much publishers may have in flight.
const TX_MESSAGES: usize = 90;
const TX_MESSAGE_BYTES: usize = 1 << 20;

/// Fills a transaction, as far as the node takes it.
fn abandoned_transaction(node: &Node) -> Stream {
    let options = Options { heartbeat: 0, answer_wait: TIMEOUT, ..Options::named("transaction") };
    let mut connection = Blocking::open(&node.url, &options).unwrap();
    let channel = connection.open_channel().unwrap();
    connection.call(channel, &Method::TxSelect(tx::Select)).unwrap();
    let mut socket = connection.into_parts().socket;
    let mut bytes = BytesMut::new();
    let mut encoder = Encoder::new(&mut bytes, 131_072);
    let publish = basic::Publish { routing_key: "kept", ..Default::default() };
    encoder.method(channel, &Method::BasicPublish(publish));
    encoder.header(channel, TX_MESSAGE_BYTES as u64, &[0, 0]);
    encoder.body(channel, &vec![b'x'; TX_MESSAGE_BYTES]);
    socket.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    for _ in 0..TX_MESSAGES {
        if socket.write_all(&bytes).is_err() {
            break;
        }
    }
    socket
}

#[tokio::test]
async fn publishers_go_on_when_a_transaction_that_filled_the_memory_is_abandoned() {
    let limit = format!("memory_limit={TX_LIMIT_BYTES}");
    let node = Node::start_with("memory-alarm-tx", &["--set", &limit]);
    let mut connection = node.connect().await;
    let kept = QueueSpec { durable: false, ..QueueSpec::durable("kept") };
    connection.declare_queue(&kept).await.unwrap();
    let mut publisher = Publisher::open(&node.url, &Options::named("test"), WINDOW).await.unwrap();
    while node.memory_bytes("VmRSS") < TAKEN_BEFORE_BYTES {
        timeout(TIMEOUT, publish(&mut publisher)).await.expect("there is no alarm yet");
    }

    let transaction = abandoned_transaction(&node);
    let begun = Instant::now();
    while !publisher.is_blocked() {
        assert!(begun.elapsed() < TIMEOUT, "nobody is blocked");
        let _ = timeout(Duration::from_millis(500), publish(&mut publisher)).await;
        // What is published here stays when the transaction is gone: it is to be little.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(node.memory_bytes("VmHWM") > TX_LIMIT_BYTES, "memory is what is short");
    drop(transaction);
    // If the alarm came within the transaction, its connection waits and is not read: its end is not seen before what
    // it holds is taken back, after 30 seconds.
    let next = timeout(UNFINISHED_WAIT + END_MAX, publish(&mut publisher)).await;
    assert!(next.is_ok(), "the alarm does not end");
    assert!(!publisher.is_blocked());
    let settled = timeout(TIMEOUT, publisher.settle_all()).await;
    settled.expect("what was published before the alarm is confirmed after it").unwrap();
}
