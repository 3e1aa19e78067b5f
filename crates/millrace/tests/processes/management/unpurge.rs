//! A purge is undone: whatever happens to its node and its leader in between.

use client::{Address, Connection, QueueSpec};
use serde_json::{Value, json};

use super::{Managed, until_connected};
use crate::node::{Node, until};

const PURGE: &str = "/queues/%2F/jobs/contents?undo_ms=60000";
const UNPURGE: &str = "/millrace/queues/%2F/jobs/unpurge";

async fn publish(client: &mut Connection, bodies: &[&str]) {
    let properties = amqp::Properties { delivery_mode: Some(2), ..amqp::Properties::default() };
    for body in bodies {
        // It is confirmed.
        client.publish(Address::queue("jobs"), &properties, body.as_bytes()).await.unwrap();
    }
}

/// Takes all there is: in which order, and whether it counts as seen before.
async fn taken(client: &mut Connection) -> Vec<(String, bool)> {
    let mut all = Vec::new();
    while let Some(got) = client.get("jobs", true).await.unwrap() {
        all.push((String::from_utf8(got.body.to_vec()).unwrap(), got.redelivered));
    }
    all
}

fn fresh(bodies: &[&str]) -> Vec<(String, bool)> {
    bodies.iter().map(|body| ((*body).to_owned(), false)).collect()
}

fn purged(managed: &Managed, count: u64) -> u64 {
    let told = managed.done("DELETE", PURGE, &Value::Null);
    assert_eq!(told["messages"], json!(count));
    told["undo_until"].as_u64().unwrap()
}

fn queue(managed: &Managed) -> Value {
    managed.guest("GET", "/queues/%2F/jobs", &Value::Null).body
}

/// The books of the queue, which add up.
fn open(managed: &Managed) -> u64 {
    let told = managed.done("GET", "/millrace/reconcile/%2F", &Value::Null);
    let books = told["queues"].as_array().unwrap().iter().find(|it| it["name"] == "jobs").unwrap();
    assert_eq!(books["is_right"], json!(true), "{books}");
    books["open"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_purged_comes_back_to_its_place_also_over_a_restart() {
    let mut managed = Managed::start("management-unpurge");
    let mut client = managed.connect("guest", "guest", "/").await.unwrap();
    client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    publish(&mut client, &["one", "two"]).await;
    until("the newest version is agreed on", || {
        managed.guest("POST", UNPURGE, &Value::Null).status == 200
    });
    let until_ms = purged(&managed, 2);
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let left_ms = until_ms.saturating_sub(now_ms.as_millis() as u64);
    assert!((1..=60_000).contains(&left_ms), "{left_ms}");
    let shown = queue(&managed);
    assert_eq!((&shown["messages_ready"], &shown["millrace"]["withheld"]), (&json!(0), &json!(2)));
    assert_eq!(shown["millrace"]["withheld_until"], json!(until_ms));
    assert_eq!((open(&managed), taken(&mut client).await), (2, Vec::new()));
    managed.node.crash();
    let mut client = until_connected(&managed, "guest", "guest").await;
    publish(&mut client, &["three"]).await;
    let told = managed.done("POST", UNPURGE, &Value::Null);
    assert_eq!(told["messages"], json!(2));
    assert_eq!(taken(&mut client).await, fresh(&["one", "two", "three"]));
    let told = managed.done("POST", UNPURGE, &Value::Null);
    assert_eq!(told["messages"], json!(0), "once");
    until("the books are closed", || open(&managed) == 0);

    let records = managed.done("GET", "/millrace/audit?object=jobs", &Value::Null);
    let told = |record: &Value| (record["event"].clone(), record["details"].clone());
    let records: Vec<_> = records.as_array().unwrap().iter().map(told).collect();
    let purged = (json!("queue.purged"), json!({ "undo_ms": 60_000, "messages": 2 }));
    assert!(records.contains(&purged), "{records:?}");
    let back = (json!("queue.unpurged"), json!({ "messages": 2 }));
    assert!(records.contains(&back), "{records:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_purged_is_gone_after_its_time_and_after_another_purge() {
    let managed = Managed::start("management-unpurge-late");
    let mut client = managed.connect("guest", "guest", "/").await.unwrap();
    client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    until("the newest version is agreed on", || {
        managed.guest("POST", UNPURGE, &Value::Null).status == 200
    });
    publish(&mut client, &["one"]).await;
    managed.done("DELETE", "/queues/%2F/jobs/contents?undo_ms=1", &Value::Null);
    until("its time is over", || open(&managed) == 0);
    for second in ["/queues/%2F/jobs/contents", PURGE] {
        publish(&mut client, &["two"]).await;
        purged(&managed, 1);
        publish(&mut client, &["three"]).await;
        managed.done("DELETE", second, &Value::Null);
        let count = u64::from(second == PURGE);
        until("the first is gone", || open(&managed) == count);
        let told = managed.done("POST", UNPURGE, &Value::Null);
        assert_eq!(told["messages"], json!(count));
        let left: &[&str] = if second == PURGE { &["three"] } else { &[] };
        assert_eq!(taken(&mut client).await, fresh(left));
    }
    // As by AMQP, a purge without a time is for good.
    publish(&mut client, &["four"]).await;
    assert_eq!(client.purge_queue("jobs").await.unwrap(), 1);
    assert_eq!(managed.done("POST", UNPURGE, &Value::Null)["messages"], json!(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_purge_may_not_undo_it_and_what_has_no_messages_of_its_own_is_refused() {
    let managed = Managed::start("management-unpurge-refused");
    let mut client = managed.connect("guest", "guest", "/").await.unwrap();
    client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    let refused = |user: Option<(&str, &str)>, method: &str, path: &str, status: u16, why: &str| {
        let answer = managed.ask(user, method, path, "");
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.body.to_string().contains(why), "{path}: {}", answer.body);
    };
    let guest = Some(super::GUEST);
    for wrong in ["0", "600001", "soon"] {
        let path = format!("/queues/%2F/jobs/contents?undo_ms={wrong}");
        refused(guest, "DELETE", &path, 400, "from 1 to 600000");
    }
    refused(guest, "DELETE", "/queues/%2F/none/contents?undo_ms=1", 404, "");
    refused(guest, "POST", "/millrace/queues/%2F/none/unpurge", 404, "");
    managed.done("PUT", "/users/bob", &json!({ "password": "secret", "tags": "management" }));
    let some = json!({ "configure": "", "write": ".*", "read": "^other$" });
    managed.done("PUT", "/permissions/%2F/bob", &some);
    for (method, path) in [("DELETE", PURGE), ("POST", UNPURGE)] {
        refused(Some(("bob", "secret")), method, path, 401, "may read from the queue");
    }
    let stream = json!({ "durable": true, "arguments": { "x-queue-type": "stream" } });
    managed.done_at_last("PUT", "/queues/%2F/log", &stream);
    let path = "/queues/%2F/log/contents?undo_ms=60000";
    refused(guest, "DELETE", path, 400, "stream");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_leader_brings_back_what_was_purged() {
    let nodes = Node::start_three("management-unpurge-cluster").into_iter().map(Managed::of);
    let mut nodes: Vec<Managed> = nodes.collect();
    let mut client = until_connected(&nodes[0], "guest", "guest").await;
    client.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    publish(&mut client, &["one", "two"]).await;
    nodes[0].done_at_last("POST", UNPURGE, &json!({}));
    purged(&nodes[0], 2);
    let leader = queue(&nodes[0])["node"].clone();
    let number = leader.as_str().unwrap().rsplit(|it: char| !it.is_ascii_digit()).next().unwrap();
    let led_by: usize = number.parse().unwrap();
    nodes[led_by - 1].node.kill();
    let left = &nodes[led_by % 3];
    until("another leads", || {
        let shown = queue(left);
        shown["state"] == "running" && shown["node"] != leader
    });
    assert_eq!(queue(left)["millrace"]["withheld"], json!(2));
    let mut client = until_connected(left, "guest", "guest").await;
    publish(&mut client, &["three"]).await;
    assert_eq!(left.done("POST", UNPURGE, &Value::Null)["messages"], json!(2));
    let bodies: Vec<_> = taken(&mut client).await.into_iter().map(|(body, _)| body).collect();
    assert_eq!(bodies, ["one", "two", "three"]);
}
