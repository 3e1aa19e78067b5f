//! `millrace move` between two nodes: what arrives, in which order, with what; and that nothing is lost whoever is killed.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

mod cuts;
mod refusals;
mod replays;
mod support;

use amqp::{FieldTable, FieldValue, Method, Properties, TableRef, exchange};
use client::{Address, Consumer, ConsumerOptions, Options, QueueSpec};
use rustix::process::Signal;

use crate::node::{Node, text, until_ready};
use support::{Move, judge, numbers, publish, taken};

/// Properties of every kind, and headers of every type.
fn headers() -> FieldTable {
    let mut inner = FieldTable::new();
    inner.insert("count", FieldValue::I64(2)).insert("queue", text("old"));
    let mut headers = FieldTable::new();
    headers
        .insert("tenant", text("seven"))
        .insert("small", FieldValue::I8(-7))
        .insert("number", FieldValue::I32(70_000))
        .insert("half", FieldValue::F64(0.5))
        .insert("raw", FieldValue::Bytes(vec![0, 255]))
        .insert("none", FieldValue::Void)
        .insert("when", FieldValue::Timestamp(1_700_000_000))
        .insert("x-death", FieldValue::Array(vec![FieldValue::Table(inner)]))
        .insert("CC", FieldValue::Array(vec![text("copy")]));
    headers
}

#[tokio::test]
async fn messages_arrive_as_they_were_in_their_order_and_nowhere_else() {
    let (source, target) = (Node::start("move-from"), Node::start("move-to"));
    let (mut at_source, mut at_target) = (source.connect().await, target.connect().await);
    for name in ["q", "copy"] {
        at_source.declare_queue(&QueueSpec::durable(name)).await.unwrap();
        at_target.declare_queue(&QueueSpec::durable(name)).await.unwrap();
    }
    at_source.bind_queue("q", "amq.topic", "eu.#", &FieldTable::new()).await.unwrap();
    let raw = headers().to_bytes();
    let full = Properties {
        content_type: Some("text/plain"),
        content_encoding: Some("identity"),
        headers: Some(TableRef::validate(&raw).unwrap()),
        delivery_mode: Some(2),
        priority: Some(7),
        correlation_id: Some("c-1"),
        reply_to: Some("answers"),
        expiration: Some("600000"),
        message_id: Some("m-1"),
        timestamp: Some(1_700_000_001),
        kind: Some("order"),
        user_id: Some("guest"),
        app_id: Some("shop"),
        cluster_id: Some("one"),
    };
    let persistent = Properties { delivery_mode: Some(2), ..Properties::default() };
    let large = vec![b'x'; 3_000_000];
    let sent: [(&str, Properties<'_>, &[u8]); 4] = [
        ("eu.orders", full, b"with everything"),
        ("eu", Properties::default(), b""),
        ("eu.large", persistent, &large),
        ("eu.last", Properties { priority: Some(0), ..persistent }, b"last"),
    ];
    for (routing_key, properties, body) in &sent {
        let to = Address { exchange: "amq.topic", routing_key, mandatory: true };
        at_source.publish(to, properties, body).await.unwrap();
    }
    // The header CC brought nothing to this queue: "copy" is no key of the topic exchange's bindings.
    let ended = Move::run(&source, &target, &["--queue", "q", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let queue = ended.last("queue");
    assert_eq!(
        (&queue["end"], &queue["moved"], &queue["repeats"]),
        (&"empty".into(), &4.into(), &0.into())
    );
    assert_eq!(ended.last("end")["exit_code"], 0);

    until_ready(&mut at_source, "q", 0).await;
    until_ready(&mut at_target, "q", 4).await;
    until_ready(&mut at_target, "copy", 0).await;
    for (routing_key, properties, body) in &sent {
        let got = at_target.get("q", true).await.unwrap().unwrap();
        let mut wanted = bytes::BytesMut::new();
        properties.encode(&mut wanted);
        assert_eq!(got.raw_properties()[..], wanted[..], "{routing_key}");
        assert_eq!(got.routing_key(), *routing_key);
        assert!(got.body == *body, "{routing_key}: another body");
        assert!(!got.redelivered);
    }
    // What the move made for itself is gone.
    let passive =
        exchange::Declare { exchange: "millrace.move.q", passive: true, ..Default::default() };
    let gone = at_target.call(&Method::ExchangeDeclare(passive)).await.unwrap_err();
    assert_eq!(gone.code(), Some(404));
}

#[tokio::test]
async fn several_queues_of_definitions_are_moved_and_declared_as_they_say() {
    let (source, target) = (Node::start("move-list-from"), Node::start("move-list-to"));
    let (mut at_source, mut at_target) = (source.connect().await, target.connect().await);
    let mut arguments = FieldTable::new();
    arguments.insert("x-max-priority", FieldValue::I64(5));
    let rich = QueueSpec { arguments, ..QueueSpec::durable("shop.rich") };
    let names = ["shop.rich", "shop.plain", "shop.empty", "other"];
    for name in names {
        let spec = if name == "shop.rich" { rich.clone() } else { QueueSpec::durable(name) };
        at_source.declare_queue(&spec).await.unwrap();
    }
    publish(&source, "shop.rich", 0..300).await;
    publish(&source, "shop.plain", 0..5_000).await;
    publish(&source, "other", 0..5).await;
    let file = source.data_dir().join("definitions.json");
    let definitions = r#"{"queues": [
        {"name": "shop.rich", "vhost": "/", "durable": true, "auto_delete": false, "arguments": {"x-max-priority": 5}},
        {"name": "shop.plain", "vhost": "/", "durable": true, "auto_delete": false, "arguments": {}},
        {"name": "shop.empty", "vhost": "/", "durable": true, "auto_delete": false, "arguments": {}},
        {"name": "other", "vhost": "/", "durable": true, "auto_delete": false, "arguments": {}},
        {"name": "shop.elsewhere", "vhost": "eu", "durable": true, "auto_delete": false, "arguments": {}}]}"#;
    std::fs::write(&file, definitions).unwrap();
    let words = ["--all", file.to_str().unwrap(), "--pattern", "shop.*", "--json"];

    let missing = Move::run(&source, &target, &words);
    assert_eq!(missing.code, Some(1));
    for name in ["shop.rich", "shop.plain", "shop.empty"] {
        let told = format!("{name}: the target has no such queue");
        assert!(
            missing.stderr.contains(&told) && missing.stderr.contains("--declare"),
            "{}",
            missing.stderr
        );
    }
    let dry = Move::run(&source, &target, &[&words[..], &["--declare", "--dry-run"]].concat());
    assert_eq!(dry.code, Some(0), "{}", dry.stderr);
    let rows: Vec<_> = dry.lines.iter().filter(|line| line["event"] == "would_move").collect();
    assert_eq!(rows.len(), 3);
    assert_eq!((&rows[1]["ready"], &rows[1]["declares"]), (&5_000.into(), &true.into()));
    assert_eq!(at_target.look_up_queue("shop.plain").await.unwrap_err().code(), Some(404));

    let ended = Move::run(&source, &target, &[&words[..], &["--declare"]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.last("end")["moved"], 5_300);
    // As the definitions say, or this would be refused.
    at_target.declare_queue(&rich).await.unwrap();
    assert_eq!(taken(&target, "shop.rich").await, numbers(0..300));
    assert_eq!(taken(&target, "shop.plain").await, numbers(0..5_000));
    until_ready(&mut at_source, "other", 5).await;
}

#[tokio::test]
async fn what_comes_meanwhile_is_followed_until_a_stop_is_asked_for() {
    let (source, target) = (Node::start("move-follow-from"), Node::start("move-follow-to"));
    let (mut at_source, mut at_target) = (source.connect().await, target.connect().await);
    for connection in [&mut at_source, &mut at_target] {
        connection.declare_queue(&QueueSpec::durable("q")).await.unwrap();
    }
    publish(&source, "q", 0..1_000).await;
    let follow = Move::start(&source, &target, &["--queue", "q", "--follow", "--json"]);
    until_ready(&mut at_target, "q", 1_000).await;
    publish(&source, "q", 1_000..2_000).await;
    until_ready(&mut at_target, "q", 2_000).await;
    follow.signal(Signal::TERM);
    let ended = follow.ended();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.last("queue")["end"], "stopped");
    publish(&source, "q", 2_000..2_001).await;
    until_ready(&mut at_source, "q", 1).await;
    assert_eq!(taken(&target, "q").await, numbers(0..2_000), "nothing twice, nothing marked");
}

#[tokio::test]
async fn a_stop_leaves_the_rest_at_the_source_and_a_second_run_goes_on() {
    const COUNT: u32 = 20_000;
    let (source, target) = (Node::start("move-stop-from"), Node::start("move-stop-to"));
    let (mut at_source, mut at_target) = (source.connect().await, target.connect().await);
    for connection in [&mut at_source, &mut at_target] {
        connection.declare_queue(&QueueSpec::durable("q")).await.unwrap();
    }
    publish(&source, "q", 0..COUNT).await;
    let words = ["--queue", "q", "--json", "--window", "100"];
    let mut first = Move::start(&source, &target, &[&words[..], &["--rate", "2000"]].concat());
    first.wait_until(|progress| progress["moved"].as_u64() >= Some(100));
    first.signal(Signal::TERM);
    let ended = first.ended();
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    assert!(ended.stderr.contains("run the command again"), "{}", ended.stderr);
    let moved = ended.last("queue")["moved"].as_u64().unwrap() as u32;
    assert!((100..COUNT).contains(&moved), "{moved} were moved");
    // What was moved is at one side, the rest at the other, and nothing is twice.
    until_ready(&mut at_target, "q", moved).await;
    until_ready(&mut at_source, "q", COUNT - moved).await;

    let ended = Move::run(&source, &target, &words);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let got = taken(&target, "q").await;
    judge(&got, COUNT);
    assert_eq!(got.len(), COUNT as usize, "nothing is there twice");
    let marked = got.iter().filter(|(_, is_marked)| *is_marked).count();
    assert!(marked <= 100, "{marked} are marked; a window came back");
}

/// The target stands still while sixty megabytes wait: the move holds two.
#[tokio::test]
async fn large_messages_wait_at_the_source_and_not_in_memory() {
    const COUNT: usize = 60;
    let (source, target) = (Node::start("move-large-from"), Node::start("move-large-to"));
    let (mut at_source, mut at_target) = (source.connect().await, target.connect().await);
    for connection in [&mut at_source, &mut at_target] {
        connection.declare_queue(&QueueSpec::durable("q")).await.unwrap();
    }
    let words =
        ["--queue", "q", "--json", "--follow", "--in-flight", "2", "--report-every", "100ms"];
    let mut follow = Move::start(&source, &target, &words);
    publish(&source, "q", 0..1).await;
    until_ready(&mut at_target, "q", 1).await;
    target.stop();
    let body = vec![b'x'; 1 << 20];
    for _ in 0..COUNT {
        at_source.publish(Address::queue("q"), &Properties::default(), &body).await.unwrap();
    }
    let (mut before, mut same) = (0, 0);
    follow.wait_until(|progress| {
        let now = progress["in_flight"].as_u64().unwrap();
        same = if now > 0 && now == before { same + 1 } else { 0 };
        before = now;
        same == 10
    });
    assert!(before <= 4, "{before} messages of a megabyte are in flight");
    let most = follow.memory_bytes("VmHWM:");
    assert!(most < 64 << 20, "{most} bytes of memory");
    target.signal(Signal::CONT);
    until_ready(&mut at_target, "q", 1 + COUNT as u32).await;
    let most = follow.memory_bytes("VmHWM:");
    assert!(most < 64 << 20, "{most} bytes of memory");
    follow.signal(Signal::TERM);
    assert_eq!(follow.ended().code, Some(0));
    let how = ConsumerOptions { no_ack: true, ..ConsumerOptions::default() };
    let mut consumer =
        Consumer::open(&target.url, &Options::named("test"), "q", how).await.unwrap();
    for at in 0..=COUNT {
        let delivery = consumer.next().await.unwrap();
        assert!(at == 0 || delivery.body == body, "message {at} is another");
    }
}
