//! Targets that do not take what they are given, and command lines that make no sense.

use std::time::Instant;

use amqp::{FieldTable, FieldValue, Properties, TableRef};
use client::{Address, QueueSpec};

use super::support::{Move, publish};
use crate::node::{Node, TIMEOUT, text, until_ready};

#[tokio::test]
async fn a_queue_that_goes_at_the_target_ends_the_move_and_its_messages_stay_at_the_source() {
    let (source, target) = (Node::start("move-gone-from"), Node::start("move-gone-to"));
    let (mut at_source, mut at_target) = (source.connect().await, target.connect().await);
    for name in ["q", "other"] {
        at_source.declare_queue(&QueueSpec::durable(name)).await.unwrap();
        at_target.declare_queue(&QueueSpec::durable(name)).await.unwrap();
    }
    let words = ["--queue", "q", "--queue", "other", "--json", "--follow"];
    let mut moving = Move::start(&source, &target, &words);
    publish(&source, "q", 0..1).await;
    until_ready(&mut at_target, "q", 1).await;
    at_target.delete_queue("q").await.unwrap();
    publish(&source, "q", 1..11).await;
    until_ready(&mut at_source, "q", 10).await;
    // The other queue is moved all the same.
    publish(&source, "other", 0..10).await;
    until_ready(&mut at_target, "other", 10).await;
    moving.wait_until(|progress| progress["ended"] == 1);
    moving.signal(rustix::process::Signal::TERM);
    let ended = moving.ended();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let of_queue = |line: &&serde_json::Value| line["event"] == "queue" && line["queue"] == "q";
    let failed = ended.lines.iter().find(of_queue).unwrap();
    assert_eq!(failed["end"], "failed");
    let why = failed["why"].as_str().unwrap();
    assert!(why.contains("its queue is gone") && why.contains("stay at the source"), "{why}");
    assert!(ended.stderr.contains(why), "{}", ended.stderr);
    until_ready(&mut at_source, "q", 10).await;
}

#[tokio::test]
async fn a_full_target_is_waited_for_and_gets_everything() {
    const COUNT: u32 = 60;
    let (source, target) = (Node::start("move-full-from"), Node::start("move-full-to"));
    let (mut at_source, mut at_target) = (source.connect().await, target.connect().await);
    at_source.declare_queue(&QueueSpec::durable("q")).await.unwrap();
    let mut arguments = FieldTable::new();
    arguments
        .insert("x-max-length", FieldValue::I64(5))
        .insert("x-overflow", text("reject-publish"));
    at_target.declare_queue(&QueueSpec { arguments, ..QueueSpec::durable("q") }).await.unwrap();
    publish(&source, "q", 0..COUNT).await;
    let moving = Move::start(&source, &target, &["--queue", "q", "--json"]);
    until_ready(&mut at_target, "q", 5).await;
    let (mut got, begun) = (Vec::new(), Instant::now());
    while got.len() < COUNT as usize {
        assert!(begun.elapsed() < TIMEOUT, "{} of {COUNT} came", got.len());
        if let Some(delivery) = at_target.get("q", true).await.unwrap() {
            got.push(std::str::from_utf8(&delivery.body).unwrap().parse::<u32>().unwrap());
        }
    }
    let ended = moving.ended();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.last("queue")["refused"].as_u64() > Some(0), "it was full");
    got.sort_unstable();
    assert!(got.into_iter().eq(0..COUNT), "each number once");
    until_ready(&mut at_source, "q", 0).await;
}

#[tokio::test]
async fn a_target_that_blocks_publishers_is_given_up_with_its_reason() {
    let source = Node::start("move-blocked-from");
    let target = Node::start_with("move-blocked-to", &["--set", "disk_free_limit=1000000GB"]);
    for node in [&source, &target] {
        node.connect().await.declare_queue(&QueueSpec::durable("q")).await.unwrap();
    }
    publish(&source, "q", 0..10).await;
    let ended = Move::run(&source, &target, &["--queue", "q", "--json", "--give-up-after", "2s"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let why = ended.last("queue")["why"].as_str().unwrap();
    assert!(why.contains("blocked publishers") && why.contains("2 s"), "{why}");
    until_ready(&mut source.connect().await, "q", 10).await;
}

#[tokio::test]
async fn the_default_exchange_is_used_if_asked_for_and_makes_no_copies() {
    let (source, target) = (Node::start("move-default-from"), Node::start("move-default-to"));
    let (mut at_source, mut at_target) = (source.connect().await, target.connect().await);
    for name in ["q", "copy"] {
        at_source.declare_queue(&QueueSpec::durable(name)).await.unwrap();
        at_target.declare_queue(&QueueSpec::durable(name)).await.unwrap();
    }
    at_source.bind_queue("q", "amq.fanout", "", &FieldTable::new()).await.unwrap();
    let to = Address { exchange: "amq.fanout", routing_key: "eu", mandatory: true };
    at_source.publish(to, &Properties::default(), b"first").await.unwrap();
    let mut headers = FieldTable::new();
    headers.insert("CC", FieldValue::Array(vec![text("copy")]));
    let raw = headers.to_bytes();
    let headers = Some(TableRef::validate(&raw).unwrap());
    let copied = Properties { headers, ..Properties::default() };
    at_source.publish(to, &copied, b"second").await.unwrap();
    let ended = Move::run(&source, &target, &["--queue", "q", "--default-exchange", "--json"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("CC or BCC"), "{}", ended.stderr);
    until_ready(&mut at_source, "q", 1).await;
    until_ready(&mut at_target, "copy", 0).await;
    let first = at_target.get("q", true).await.unwrap().unwrap();
    assert_eq!((&first.body[..], first.routing_key()), (&b"first"[..], "q"));
}

#[test]
fn what_cannot_be_moved_is_told_at_once_and_without_a_password() {
    let node = Node::start("move-wrong");
    let here = format!("amqp://guest:guest@127.0.0.1:{}", node.url.port);
    let wrong = here.replace("guest:guest", "guest:hunter2");
    let cases: [(&str, &str, &[&str], &str); 4] = [
        (&here, &here, &["--queue", "q"], "are the same broker"),
        (
            &here,
            "amqp://guest:hunter2@127.0.0.1:1",
            &["--queue", "q"],
            "at the target: no connection",
        ),
        (
            &wrong,
            "amqp://127.0.0.1:1",
            &["--queue", "q"],
            "at the source: the server closed the connection: 403",
        ),
        (&here, "amqp://127.0.0.1:1", &["--all", "/nowhere"], "/nowhere"),
    ];
    for (from, to, words, told) in cases {
        let ended = Move::between(from, to, words).ended();
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains(told), "{told}: {}", ended.stderr);
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
}
