//! The memory alarm as a publisher meets it: it comes, and it goes with what raised it.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

#[path = "support/node.rs"]
mod node;

use std::time::{Duration, Instant};

use amqp::Properties;
use client::{Address, Options, Publisher, QueueSpec};
use node::{Node, PATIENCE};
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
    while !publisher.is_blocked() {
        assert!(begun.elapsed() < PATIENCE, "nobody is blocked");
        assert!(bytes < 3 * LIMIT_BYTES, "{bytes} bytes were taken");
        // Where the window is full and no confirm comes, this waits in vain, and is blocked by then.
        let published = timeout(Duration::from_millis(500), publish(&mut publisher)).await;
        bytes += published.map_or(0, |()| BODY_BYTES);
    }

    // The alarm holds as long as its reason does.
    assert!(timeout(Duration::from_secs(1), publish(&mut publisher)).await.is_err());
    connection.delete_queue("kept").await.unwrap();
    let next = timeout(END_MAX, publish(&mut publisher)).await;
    assert!(next.is_ok(), "the alarm does not end");
    assert!(!publisher.is_blocked());
    let settled = timeout(PATIENCE, publisher.settle_all()).await;
    settled.expect("what was published before the alarm is confirmed after it").unwrap();
}
