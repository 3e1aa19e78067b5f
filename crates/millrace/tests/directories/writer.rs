//! Writes the directory of this version, once: a node is used, and killed.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use amqp::Properties;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::{Address, Connection, Outcome, QueueSpec};
use machine::Version;

use super::content::{self, GOVERNED, GOVERNED_MAX, LATE, MARKED, ONCE, ROUTED, publish};
use super::node::{Node, free_address, until, until_ready};
use super::{connect, tree};

/// Fills log files until they are moved to segments. Zeros take no space in what is kept.
const FILLER: &str = "filler";
const FILLER_BYTES: usize = 1 << 20;

/// Uses a node, kills it, and keeps its directory.
pub(crate) fn write(kept: &Path) {
    assert!(!kept.exists(), "what a version has written stays as it is: {}", kept.display());
    let http = free_address();
    let arguments = [&content::ARGUMENTS[..], &["--http", &http]].concat();
    let mut node = Node::start_with("golden-writer", &arguments);
    // What is written follows from the version that is agreed on.
    until("the newest version is agreed on", || {
        node.status().is_some_and(|status| status["version"] == Version::NEWEST.0)
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // Whoever holds messages holds them until the node is killed.
    let clients = runtime.block_on(use_it(&node));
    put_policy(&http);
    node.kill();
    drop(clients);
    tree::pack(node.data_dir(), kept);
}

/// A policy about queues that are not there: what it says, a queue that comes is to have.
fn put_policy(http: &str) {
    let body =
        format!(r#"{{"pattern":"^{GOVERNED}$","definition":{{"max-length":{GOVERNED_MAX}}}}}"#);
    let login = STANDARD.encode(format!("{}:{}", content::USER, content::PASSWORD));
    let request = format!(
        "PUT /api/policies/%2F/kept HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Basic \
         {login}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(http).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

async fn use_it(node: &Node) -> Connection {
    let mut client = connect(node).await;
    for exchange in content::exchanges() {
        client.declare_exchange(&exchange).await.unwrap();
    }
    for queue in content::queues() {
        client.declare_queue(&queue).await.unwrap();
    }
    content::bind(&mut client).await;
    send(&mut client, "classic", &["classic-1", "classic-2", "classic-3", "classic-4"]).await;
    send(&mut client, "classic", &["classic-5", "classic-6"]).await;
    send(&mut client, "quorum", &["quorum-1", "quorum-2"]).await;
    send(&mut client, "levels", &["low-1", "high-1", "low-2", "high-2"]).await;
    send(&mut client, "delayed", &["delayed-1"]).await;
    send(&mut client, "retried", &["retried-1"]).await;
    send(&mut client, "work", &["work-1", "work-2"]).await;
    send(&mut client, "full", &["full-1"]).await;
    send(&mut client, "blocked", &["blocked-1", "blocked-2"]).await;
    send(&mut client, ONCE, &["once-1", "once-1"]).await;
    send(&mut client, "limited", &["limited-1"]).await;
    publish(&mut client, "shared", "", "shared").await;
    for id in content::marked() {
        publish(&mut client, "", MARKED, &id).await;
    }
    for (exchange, key) in content::routes() {
        publish(&mut client, &exchange, key, &exchange).await;
    }
    settle(&mut client, "classic", Outcome::Done).await;
    settle(&mut client, "classic", Outcome::Requeue).await;
    for _ in 0..2 {
        until_ready(&mut client, "quorum", 2).await;
        settle(&mut client, "quorum", Outcome::Requeue).await;
    }
    settle(&mut client, "retried", Outcome::Requeue).await;
    settle(&mut client, "work", Outcome::DeadLetter).await;
    until_ready(&mut client, "dead", 1).await;
    settle(&mut client, "blocked", Outcome::DeadLetter).await;
    until_ready(&mut client, "full", 2).await;
    hold(&mut client, MARKED, &["marked-1", "marked-2"]).await;

    until_in_segments(&mut client, node.data_dir()).await;

    // From here on it is in the log alone.
    hold(&mut client, "classic", &["classic-2", "classic-3"]).await;
    settle(&mut client, "classic", Outcome::Done).await;
    hold(&mut client, "levels", &["high-1"]).await;
    hold(&mut client, MARKED, &["marked-3", "marked-4", "marked-5"]).await;
    client.declare_queue(&QueueSpec::durable(LATE)).await.unwrap();
    client.bind_queue(LATE, "by-direct", LATE, &amqp::FieldTable::new()).await.unwrap();
    publish(&mut client, "by-direct", LATE, "late-1").await;
    send(&mut client, "classic", &["classic-7"]).await;
    send(&mut client, "quorum", &["quorum-3"]).await;
    send(&mut client, "levels", &["low-3"]).await;
    send(&mut client, "limited", &["limited-2"]).await;
    send(&mut client, "single", &["single-1"]).await;
    client.declare_queue(&content::stream()).await.unwrap();
    send(&mut client, content::STREAM.1, &content::EVENTS).await;
    let count = content::routes().len() as u32;
    assert_eq!(client.look_up_queue(ROUTED).await.unwrap().message_count, count);
    for empty in ["delayed", "retried"] {
        let ready = client.look_up_queue(empty).await.unwrap().message_count;
        assert_eq!(ready, 0, "{empty}: the wait was over before the directory was written");
    }
    client
}

async fn send(client: &mut Connection, queue: &str, ids: &[&str]) {
    for id in ids {
        publish(client, "", queue, id).await;
    }
}

async fn settle(client: &mut Connection, queue: &str, outcome: Outcome) {
    let delivery = client.get(queue, false).await.unwrap().unwrap();
    client.settle(delivery.tag, outcome).await.unwrap();
}

async fn hold(client: &mut Connection, queue: &str, ids: &[&str]) {
    for id in ids {
        let delivery = client.get(queue, false).await.unwrap().unwrap();
        assert_eq!(delivery.properties().unwrap().message_id, Some(*id));
    }
}

/// Writes so much that every group gets a checkpoint, and its messages are in segments.
async fn until_in_segments(client: &mut Connection, dir: &Path) {
    client.declare_queue(&QueueSpec::durable(FILLER)).await.unwrap();
    let zeros = vec![0; FILLER_BYTES];
    let persistent = Properties { delivery_mode: Some(2), ..Properties::default() };
    let has = |group: u32, name: &str| dir.join(format!("groups/{group}/{name}")).exists();
    let is_done =
        || (0..3).all(|group| has(group, "checkpoint")) && has(1, "seg-1") && has(2, "seg-1");
    let mut count = 0;
    while !is_done() {
        client.publish(Address::queue(FILLER), &persistent, &zeros).await.unwrap();
        client.purge_queue(FILLER).await.unwrap();
        count += 1;
        assert!(count < 100, "no checkpoints");
    }
    client.delete_queue(FILLER).await.unwrap();
}
