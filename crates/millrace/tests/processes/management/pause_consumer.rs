//! One consumer is paused: by whichever node is asked, and until it goes on or ends.

use std::time::Duration;

use client::{Address, Connection, Consumer, ConsumerOptions, Options, Outcome, QueueSpec, Url};
use serde_json::{Value, json};

use super::{Managed, until_connected};
use crate::node::{Node, until};

async fn publish(client: &mut Connection, count: usize) {
    let properties = amqp::Properties { delivery_mode: Some(2), ..amqp::Properties::default() };
    for _ in 0..count {
        // It is confirmed.
        client.publish(Address::queue("jobs"), &properties, b"job").await.unwrap();
    }
}

async fn consume(at: &Managed, name: &str) -> Consumer {
    let how = ConsumerOptions { prefetch: 100, ..ConsumerOptions::default() };
    Consumer::open(&at.node.url, &Options::named(name), "jobs", how).await.unwrap()
}

fn consumers(asked: &Managed) -> Vec<Value> {
    let Value::Array(all) = asked.done("GET", "/consumers", &Value::Null) else { panic!("a list") };
    all
}

/// The path of a consumer's pause, once there is one of a connection at that node.
fn path_at(asked: &Managed, node: &str) -> String {
    let mut path = String::new();
    until("the consumer is listed", || {
        let all = consumers(asked);
        let found = all.iter().find(|it| it["channel_details"]["node"] == node);
        let Some(found) = found else { return false };
        let quoted = |text: &Value| {
            let bytes = text.as_str().unwrap().bytes();
            bytes.map(|byte| format!("%{byte:02X}")).collect::<String>()
        };
        let channel = quoted(&found["channel_details"]["name"]);
        path = format!("/millrace/consumers/{channel}/{}/pause", quoted(&found["consumer_tag"]));
        true
    });
    path
}

fn ready(asked: &Managed) -> u64 {
    let shown = asked.guest("GET", "/queues/%2F/jobs", &Value::Null).body;
    shown["messages_ready"].as_u64().unwrap_or_default()
}

/// It gets none, for as long as others surely would.
async fn gets_nothing(consumer: &mut Consumer) -> bool {
    tokio::time::timeout(Duration::from_millis(300), consumer.next()).await.is_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_consumer_gets_nothing_until_it_goes_on_and_its_pause_ends_with_it() {
    let managed = Managed::start("management-pause-consumer");
    let mut client = managed.connect("guest", "guest", "/").await.unwrap();
    client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    let mut consumer = consume(&managed, "worker").await;
    let path = path_at(&managed, "millrace@1");
    let none = path.replace("/pause", "x/pause");
    until("the newest version is agreed on", || {
        managed.guest("PUT", &none, &Value::Null).status != 503
    });
    assert_eq!(managed.guest("PUT", &none, &Value::Null).status, 404);
    publish(&mut client, 2).await;
    let held = consumer.next().await.unwrap();
    consumer.next().await.unwrap();

    assert_eq!(managed.guest("PUT", &path, &Value::Null).status, 201);
    assert_eq!(managed.guest("PUT", &path, &Value::Null).status, 204, "it is paused already");
    let shown = consumers(&managed).remove(0);
    assert_eq!(shown["millrace"]["paused"], json!(true));
    assert_eq!(shown["millrace"]["paused_by"], json!("guest"));
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let at_ms = shown["millrace"]["paused_at"].as_u64().unwrap();
    assert!(at_ms.abs_diff(now_ms.as_millis() as u64) < 600_000, "{at_ms}");
    publish(&mut client, 3).await;
    assert!(gets_nothing(&mut consumer).await);
    assert_eq!(ready(&managed), 3);
    // What it holds is its own still.
    consumer.settle(held.tag, Outcome::Done).unwrap();
    consumer.flush().await.unwrap();
    until("what it acknowledges is done", || {
        let shown = managed.guest("GET", "/queues/%2F/jobs", &Value::Null).body;
        shown["messages_unacknowledged"] == json!(1)
    });
    assert!(gets_nothing(&mut consumer).await);

    assert_eq!(managed.guest("DELETE", &path, &Value::Null).status, 204);
    for _ in 0..3 {
        assert!(!consumer.next().await.unwrap().redelivered);
    }
    assert_eq!(consumers(&managed)[0]["millrace"]["paused"], json!(false));
    assert_eq!(managed.guest("DELETE", &path, &Value::Null).status, 204, "it goes on already");

    managed.done("PUT", &path, &Value::Null);
    drop(consumer);
    let mut consumer = consume(&managed, "worker").await;
    consumer.next().await.expect("another consumer is not paused");
    let records = managed.done("GET", "/millrace/audit?event=consumer", &Value::Null);
    let events: Vec<_> =
        records.as_array().unwrap().iter().map(|it| it["event"].as_str().unwrap()).collect();
    assert!(events.contains(&"consumer.paused") && events.contains(&"consumer.resumed"));
    assert!(records[0]["details"]["channel"].as_str().unwrap().ends_with("(1)"), "{records}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_administrates_pauses_any_consumer_and_others_their_own() {
    let managed = Managed::start("management-pause-consumer-rights");
    managed.make_user("ann", "management", &["%2F"]);
    managed.make_user("bob", "management", &["%2F"]);
    let mut client = managed.connect("ann", "secret", "/").await.unwrap();
    client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    let (user, password) = ("ann".to_owned(), "secret".to_owned());
    let url = Url { user, password, ..managed.node.url.clone() };
    let how = ConsumerOptions::default();
    let _consumer = Consumer::open(&url, &Options::named("ann's"), "jobs", how).await.unwrap();
    let path = path_at(&managed, "millrace@1");
    until("the newest version is agreed on", || {
        managed.ask(Some(("bob", "secret")), "PUT", &path, "").status == 404
    });
    assert_eq!(managed.ask(Some(("ann", "secret")), "PUT", &path, "").status, 201);
    assert_eq!(managed.guest("DELETE", &path, &Value::Null).status, 204);
    assert_eq!(managed.guest("PUT", &path, &Value::Null).status, 201);
    assert_eq!(consumers(&managed)[0]["millrace"]["paused_by"], json!("guest"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_pauses_a_consumer_of_another_and_a_new_leader_knows() {
    let nodes = Node::start_three("management-pause-consumer-three").into_iter().map(Managed::of);
    let mut nodes: Vec<Managed> = nodes.collect();
    let mut client = until_connected(&nodes[0], "guest", "guest").await;
    client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    let shown = nodes[0].done("GET", "/queues/%2F/jobs", &Value::Null);
    let leader = shown["node"].as_str().unwrap().to_owned();
    let led_by: usize = leader.rsplit('@').next().unwrap().parse().unwrap();
    // The consumer is at a node that does not lead, and the third is asked.
    let (at, asked) = (led_by % 3, (led_by + 1) % 3);
    let mut consumer = consume(&nodes[at], "worker").await;
    let path = path_at(&nodes[asked], &format!("millrace@{}", at + 1));
    nodes[asked].done_at_last("PUT", &path, &Value::Null);
    publish(&mut client, 2).await;
    assert!(gets_nothing(&mut consumer).await);
    drop(client);
    nodes[led_by - 1].node.kill();
    until("another leads", || {
        let shown = nodes[asked].guest("GET", "/queues/%2F/jobs", &Value::Null).body;
        shown["state"] == "running" && shown["node"] != leader.as_str()
    });
    assert!(gets_nothing(&mut consumer).await, "the next leader was told");
    assert_eq!(ready(&nodes[asked]), 2);
    assert_eq!(nodes[asked].guest("DELETE", &path, &Value::Null).status, 204);
    for _ in 0..2 {
        consumer.next().await.unwrap();
    }
}
