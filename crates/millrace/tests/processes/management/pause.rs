//! A queue is paused and goes on: whatever happens to its node and its leader in between.

use client::{Address, Connection, Consumer, ConsumerOptions, Options, QueueSpec};
use serde_json::{Value, json};

use super::{Managed, until_connected};
use crate::node::{Node, until};

const PAUSE: &str = "/millrace/queues/%2F/jobs/pause";

async fn publish(client: &mut Connection, bodies: &[&str]) {
    let properties = amqp::Properties { delivery_mode: Some(2), ..amqp::Properties::default() };
    for body in bodies {
        // It is confirmed.
        client.publish(Address::queue("jobs"), &properties, body.as_bytes()).await.unwrap();
    }
}

async fn consume(managed: &Managed) -> Consumer {
    let how = ConsumerOptions { prefetch: 100, ..ConsumerOptions::default() };
    Consumer::open(&managed.node.url, &Options::named("worker"), "jobs", how).await.unwrap()
}

/// How the queue stands, once it does.
fn until_queue(managed: &Managed, fields: &Value) {
    until(&format!("the queue shows {fields}"), || {
        let shown = managed.guest("GET", "/queues/%2F/jobs", &Value::Null).body;
        fields.as_object().unwrap().iter().all(|(field, value)| shown[field] == *value)
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_queue_gives_nothing_until_it_goes_on_also_over_a_restart() {
    let mut managed = Managed::start("management-pause");
    let mut client = managed.connect("guest", "guest", "/").await.unwrap();
    client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    let shown = managed.done("GET", "/queues/%2F/jobs", &Value::Null);
    assert_eq!((&shown["paused"], &shown["paused_by"]), (&json!(false), &Value::Null));
    assert_eq!(managed.guest("PUT", "/millrace/queues/%2F/none/pause", &json!({})).status, 404);

    assert_eq!(managed.guest("PUT", PAUSE, &json!({})).status, 201);
    assert_eq!(managed.guest("PUT", PAUSE, &Value::Null).status, 204, "it is paused already");
    publish(&mut client, &["one", "two"]).await;
    let mut consumer = consume(&managed).await;
    assert!(client.get("jobs", true).await.unwrap().is_none());
    until_queue(&managed, &json!({ "messages_ready": 2, "consumers": 1, "paused": true }));
    let listed = managed.done("GET", "/queues?name=jobs&page=1", &Value::Null);
    let listed = &listed["items"][0];
    assert_eq!((&listed["paused"], &listed["paused_by"]), (&json!(true), &json!("guest")));
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let at_ms = listed["paused_at"].as_u64().unwrap();
    assert!(at_ms.abs_diff(now_ms.as_millis() as u64) < 600_000, "{at_ms}");

    managed.node.crash();
    let mut client = until_connected(&managed, "guest", "guest").await;
    publish(&mut client, &["three"]).await;
    assert!(client.get("jobs", true).await.unwrap().is_none(), "it is paused still");
    drop(consumer);
    consumer = consume(&managed).await;
    let waiting = json!({ "messages_ready": 3, "consumers": 1, "paused_by": "guest" });
    until_queue(&managed, &waiting);

    assert_eq!(managed.guest("DELETE", PAUSE, &Value::Null).status, 204);
    for body in ["one", "two", "three"] {
        assert_eq!(consumer.next().await.unwrap().body, body.as_bytes(), "it goes on by itself");
    }
    until_queue(&managed, &json!({ "paused": false, "messages_unacknowledged": 3 }));
    assert_eq!(managed.guest("DELETE", PAUSE, &Value::Null).status, 204, "it goes on already");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_stays_paused_under_another_leader() {
    let nodes = Node::start_three("management-pause-cluster").into_iter().map(Managed::of);
    let mut nodes: Vec<Managed> = nodes.collect();
    let mut client = until_connected(&nodes[0], "guest", "guest").await;
    client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    publish(&mut client, &["one", "two"]).await;
    nodes[0].done_at_last("PUT", PAUSE, &json!({}));
    assert!(client.get("jobs", true).await.unwrap().is_none());
    let leader = nodes[0].done("GET", "/queues/%2F/jobs", &Value::Null)["node"].clone();
    let number = leader.as_str().unwrap().rsplit(|it: char| !it.is_ascii_digit()).next().unwrap();
    let led_by: usize = number.parse().unwrap();
    nodes[led_by - 1].node.kill();
    let left = &nodes[led_by % 3];
    until("another leads", || {
        let shown = left.guest("GET", "/queues/%2F/jobs", &Value::Null).body;
        shown["state"] == "running" && shown["node"] != leader
    });
    until_queue(left, &json!({ "paused": true, "messages_ready": 2 }));
    let mut client = until_connected(left, "guest", "guest").await;
    assert!(client.get("jobs", true).await.unwrap().is_none());
    left.done("DELETE", PAUSE, &Value::Null);
    for body in ["one", "two"] {
        let got = client.get("jobs", true).await.unwrap().unwrap();
        assert_eq!((&got.body[..], got.redelivered), (body.as_bytes(), false));
    }
}
