//! One consumer is active for all partitions of a subscription: who came first, then the next, over the nodes of a
//! cluster and the loss of one.

use std::collections::BTreeSet;
use std::time::Duration;

use amqp::FieldValue;
use client::{Address, Connection, Consumer, ConsumerOptions, Options, Outcome, QueueSpec};
use serde_json::Value;

use super::{Managed, until_connected};
use crate::node::{Node, TIMEOUT, text, until};

const PARTITIONS: i32 = 6;
const EACH: usize = 30;
const ASSIGNMENT: &str = "/millrace/queues/%2F/orders.ledger/assignment";
const QUEUE: &str = "/queues/%2F/orders.ledger";

async fn declare(client: &mut Connection) {
    let mut stream = QueueSpec::durable("orders");
    stream.arguments.insert("x-queue-type", text("stream"));
    stream.arguments.insert("x-partitions", FieldValue::I32(PARTITIONS));
    client.declare_queue(&stream).await.unwrap();
    let mut subscription = QueueSpec::durable("orders.ledger");
    subscription.arguments.insert("x-queue-type", text("subscription"));
    subscription.arguments.insert("x-stream", text("orders"));
    subscription.arguments.insert("x-stream-offset", text("first"));
    subscription.arguments.insert("x-single-active-consumer", FieldValue::Bool(true));
    client.declare_queue(&subscription).await.unwrap();
}

async fn publish(client: &mut Connection, numbers: std::ops::Range<usize>) {
    let properties = amqp::Properties { delivery_mode: Some(2), ..amqp::Properties::default() };
    for number in numbers {
        let body = number.to_string();
        client.publish(Address::queue("orders"), &properties, body.as_bytes()).await.unwrap();
    }
}

async fn consume(managed: &Managed, name: &str) -> Consumer {
    let how = ConsumerOptions { prefetch: 5, ..ConsumerOptions::default() };
    let options = Options::named(name);
    Consumer::open(&managed.node.url, &options, "orders.ledger", how).await.unwrap()
}

/// Takes and settles until all numbers have come. Gives the partitions that they came from.
async fn take(consumer: &mut Consumer, numbers: std::ops::Range<usize>) -> BTreeSet<i64> {
    let (mut left, mut partitions) = (BTreeSet::from_iter(numbers), BTreeSet::new());
    while !left.is_empty() {
        let next = tokio::time::timeout(TIMEOUT, consumer.next()).await;
        let delivery = next.unwrap_or_else(|_| panic!("it never got {left:?}")).unwrap();
        let number = std::str::from_utf8(&delivery.body).unwrap().parse().unwrap();
        left.remove(&number);
        let properties = delivery.properties().unwrap();
        let partition = properties.headers.as_ref().and_then(|it| it.find("x-stream-partition"));
        partitions.insert(partition.and_then(|it| it.integer()).unwrap());
        consumer.settle(delivery.tag, Outcome::Done).unwrap();
    }
    consumer.flush().await.unwrap();
    partitions
}

/// How many consumers the queue shows, and how many of them as active.
fn shown(managed: &Managed) -> (usize, usize) {
    let body = managed.guest("GET", QUEUE, &Value::Null).body;
    let consumers = body["consumer_details"].as_array().cloned().unwrap_or_default();
    let active = consumers.iter().filter(|consumer| consumer["active"] == true).count();
    (consumers.len(), active)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_consumer_has_all_partitions_and_the_next_takes_them_over() {
    let nodes = Node::start_three("single-active").into_iter().map(Managed::of);
    let mut nodes: Vec<Managed> = nodes.collect();
    until("the newest version is agreed on", || {
        let status = nodes[0].node.status();
        status.is_some_and(|status| status["version"] == machine::Version::NEWEST.0)
    });
    let mut client = until_connected(&nodes[0], "guest", "guest").await;
    declare(&mut client).await;
    let mut one = consume(&nodes[1], "one").await;
    let mut two = consume(&nodes[2], "two").await;
    publish(&mut client, 0..EACH).await;
    let partitions = take(&mut one, 0..EACH).await;
    assert_eq!(partitions.len(), PARTITIONS as usize);
    until("one of two is active", || shown(&nodes[0]) == (2, 1));
    // Another one waits, and nothing of what was published came to the second.
    tokio::time::timeout(Duration::from_millis(1), two.drive()).await.ok();
    assert!(two.try_next().is_none());

    until("all partitions say that they serve the first", || {
        let told = nodes[0].guest("GET", ASSIGNMENT, &Value::Null).body;
        let partitions = told["partitions"].as_array().cloned().unwrap_or_default();
        let served = partitions.iter().filter(|it| it["since"].is_u64());
        let served: BTreeSet<&str> = served.filter_map(|it| it["consumer"].as_str()).collect();
        let consumers = told["consumers"].as_array().cloned().unwrap_or_default();
        let has = consumers.iter().filter_map(|it| Some(it["partitions"].as_array()?.len()));
        let mut has: Vec<usize> = has.collect();
        has.sort_unstable();
        (partitions.len(), served.len(), has) == (6, 1, vec![0, 6])
            && told["assignment"] == "single-active"
    });

    // Any node says so of each consumer, also of those that are connected elsewhere.
    for node in &nodes {
        until("the list of consumers says who has which partitions", || {
            let listed = node.done("GET", "/consumers", &Value::Null);
            let all = listed.as_array().unwrap().iter();
            let mut has: Vec<Value> = all.map(|it| it["partitions"].clone()).collect();
            has.sort_by_key(|it| it.as_array().map(Vec::len));
            has == [serde_json::json!([]), serde_json::json!([0, 1, 2, 3, 4, 5])]
        });
    }

    nodes[1].node.kill();
    publish(&mut client, EACH..2 * EACH).await;
    take(&mut two, EACH..2 * EACH).await;
    let mut three = consume(&nodes[0], "three").await;
    until("the second is active alone", || shown(&nodes[0]) == (2, 1));

    publish(&mut client, 2 * EACH..3 * EACH).await;
    take(&mut two, 2 * EACH..3 * EACH).await;
    two.cancel().await.unwrap();
    publish(&mut client, 3 * EACH..4 * EACH).await;
    take(&mut three, 3 * EACH..4 * EACH).await;
    until("the third is active alone", || shown(&nodes[0]) == (1, 1));
}
