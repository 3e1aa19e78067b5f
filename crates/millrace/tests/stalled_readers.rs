//! Readers that take nothing, on a backlog larger than the node's memory: the node keeps its memory, others go on, and
//! nothing is lost.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

#[path = "support/node.rs"]
mod node;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use amqp::{Method, Properties, basic};
use client::io::blocking::{Blocking, Parts};
use client::{
    Address, Connection, Consumer, ConsumerOptions, Options, Outcome, Publisher, QueueSpec,
};
use node::{Node, TIMEOUT, free_address, until, until_ready};
use tokio::time::timeout;

const LIMIT_BYTES: u64 = 150 << 20;
const BODY_BYTES: usize = 256 << 10;
/// More than the limit.
const BACKLOG: u32 = 800;
/// More than it takes to ask for all of it.
const READERS: usize = 40;
const OWN: u32 = 100;
/// What is encoded or waits for readers, all together.
const OUTBOUND_BYTES: u64 = LIMIT_BYTES / 8;
/// Freed memory is the system's again after about ten seconds; on a busy machine later.
const END_MAX: Duration = Duration::from_secs(60);

/// Consumes and reads nothing more.
fn stalled(node: &Node) -> Parts {
    let options = Options { heartbeat: 0, answer_wait: TIMEOUT, ..Options::named("stalled") };
    let mut connection = Blocking::open(&node.url, &options).unwrap();
    let channel = connection.open_channel().unwrap();
    let consume = basic::Consume { queue: "backlog", ..Default::default() };
    connection.call(channel, &Method::BasicConsume(consume)).unwrap();
    connection.into_parts()
}

/// What the node says of what is on its way to clients.
fn outbound_bytes(metrics: &str) -> u64 {
    let mut stream = TcpStream::connect(metrics).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let line = answer.lines().find_map(|line| line.strip_prefix("millrace_outbound_bytes "));
    line.unwrap().parse::<f64>().unwrap() as u64
}

async fn publish(node: &Node, queue: &str, count: u32) {
    let mut publisher = Publisher::open(&node.url, &Options::named("test"), 16).await.unwrap();
    let persistent = Properties { delivery_mode: Some(2), ..Properties::default() };
    for _ in 0..count {
        let published = publisher.publish(Address::queue(queue), &persistent, &[b'x'; BODY_BYTES]);
        timeout(TIMEOUT, published).await.expect("publishers are not blocked").unwrap();
    }
    let settled = timeout(TIMEOUT, publisher.settle_all()).await;
    assert!(settled.expect("all is confirmed").unwrap().is_clean());
}

async fn declare(connection: &mut Connection, queue: &str) {
    connection.declare_queue(&QueueSpec::durable(queue)).await.unwrap();
}

#[tokio::test]
async fn a_node_keeps_its_memory_and_its_other_clients_while_many_readers_take_nothing() {
    let metrics = free_address();
    let limit = format!("memory_limit={LIMIT_BYTES}");
    let node = Node::start_with("stalled", &["--metrics", &metrics, "--set", &limit]);
    let mut connection = node.connect().await;
    declare(&mut connection, "backlog").await;
    declare(&mut connection, "own").await;
    publish(&node, "backlog", BACKLOG).await;

    let readers: Vec<_> = (0..READERS).map(|_| stalled(&node)).collect();
    until("much waits for readers", || outbound_bytes(&metrics) > OUTBOUND_BYTES / 2);
    let (how, options) = (ConsumerOptions::default(), Options::named("neighbour"));
    let mut neighbour = Consumer::open(&node.url, &options, "own", how).await.unwrap();
    publish(&node, "own", OWN).await;
    for _ in 0..OWN {
        let delivery = timeout(TIMEOUT, neighbour.next()).await.expect("it goes on").unwrap();
        neighbour.settle(delivery.tag, Outcome::Done).unwrap();
    }
    let most = node.memory_bytes("VmHWM");
    assert!(most < LIMIT_BYTES, "the node held {most} bytes");

    drop(readers);
    let begun = Instant::now();
    until("nothing is on its way", || outbound_bytes(&metrics) == 0);
    let fallen = most - OUTBOUND_BYTES / 2;
    until("memory falls", || node.memory_bytes("VmRSS") < fallen || begun.elapsed() > END_MAX);
    let now = node.memory_bytes("VmRSS");
    assert!(now < fallen, "{now} of {most} bytes are held still");
    until_ready(&mut connection, "backlog", BACKLOG).await;
}
