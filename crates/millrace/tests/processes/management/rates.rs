//! What clients move, and how fast: of connections, consumers and exchanges, whichever node they are at.

use client::{Address, Connection, Consumer, ConsumerOptions, Options, Outcome};
use serde_json::{Value, json};

use super::{Managed, until_connected};
use crate::node::{Node, until};

async fn publish(client: &mut Connection, exchange: &str) {
    let to = Address { exchange, routing_key: "jobs", mandatory: false };
    // It is confirmed.
    client.publish(to, &amqp::Properties::default(), &[7; 1000]).await.unwrap();
}

/// The item of a list with this field.
fn find(asked: &Managed, path: &str, is_it: impl Fn(&Value) -> bool) -> Option<Value> {
    let Value::Array(all) = asked.done("GET", path, &Value::Null) else { panic!("a list") };
    all.into_iter().find(is_it)
}

fn exchange(asked: &Managed, name: &str) -> Value {
    find(asked, "/exchanges/%2F", |it| it["name"] == name).unwrap()["message_stats"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_consumers_and_exchanges_say_what_they_moved_and_how_fast() {
    let nodes = Node::start_cluster("management-rates", 2).into_iter().map(Managed::of);
    let nodes: Vec<Managed> = nodes.collect();
    let [at, asked] = &nodes[..] else { panic!("two nodes") };
    let mut client = until_connected(at, "guest", "guest").await;
    let durable = json!({ "durable": true });
    until("the queue is there", || asked.guest("PUT", "/queues/%2F/jobs", &durable).status < 300);
    asked.done("PUT", "/exchanges/%2F/fan", &json!({ "type": "fanout" }));
    for key in ["one", "two"] {
        let binding = json!({ "routing_key": key });
        asked.done("POST", "/bindings/%2F/e/fan/q/jobs", &binding);
    }
    until("the other node knows", || {
        at.done("GET", "/exchanges/%2F/fan/bindings/source", &Value::Null).as_array().unwrap().len()
            == 2
    });
    for _ in 0..3 {
        publish(&mut client, "fan").await;
    }
    publish(&mut client, "").await;
    let fan = exchange(asked, "fan");
    assert_eq!((&fan["publish_in"], &fan["publish_out"]), (&json!(3), &json!(3)), "{fan}");
    assert_eq!(fan["publish_in_details"]["rate"], 0.0, "nobody has asked before");
    let one = asked.done("GET", "/exchanges/%2F/fan", &Value::Null);
    assert_eq!(one["message_stats"]["publish_in"], 3, "{one}");
    assert!(exchange(asked, "")["publish_in"].as_u64().unwrap() >= 1);

    let how = ConsumerOptions { prefetch: 10, ..ConsumerOptions::default() };
    let options = Options::named("worker");
    let mut consumer = Consumer::open(&at.node.url, &options, "jobs", how).await.unwrap();
    for outcome in [Outcome::Done, Outcome::Done, Outcome::DeadLetter] {
        let delivery = consumer.next().await.unwrap();
        consumer.settle(delivery.tag, outcome).unwrap();
        consumer.flush().await.unwrap();
    }
    let of_worker = |it: &Value| it["user_provided_name"] == "worker";
    let of_client = |it: &Value| it["user_provided_name"] == "management";
    let of_jobs = |it: &Value| it["queue"]["name"] == "jobs";
    until("what was settled is counted", || {
        let consumer = find(asked, "/consumers", of_jobs).unwrap()["message_stats"].clone();
        (&consumer["deliver"], &consumer["ack"]) == (&json!(4), &json!(2))
    });
    let worker = find(asked, "/connections", of_worker).unwrap();
    let stats = &worker["message_stats"];
    assert_eq!((&stats["deliver_get"], &stats["ack"]), (&json!(4), &json!(2)), "{worker}");
    assert!(worker["send_oct"].as_u64().unwrap() > 4 * 1000, "{worker}");
    let publisher = find(asked, "/connections", of_client).unwrap();
    assert_eq!(publisher["message_stats"]["publish"], 4, "{publisher}");
    assert!(publisher["recv_oct"].as_u64().unwrap() > 4 * 1000, "{publisher}");
    assert_eq!(publisher["blocked_by"], Value::Null, "{publisher}");

    let mut rates = [0.0; 4];
    while rates.iter().any(|rate| *rate <= 0.0) {
        publish(&mut client, "fan").await;
        let delivery = consumer.next().await.unwrap();
        consumer.settle(delivery.tag, Outcome::Done).unwrap();
        consumer.flush().await.unwrap();
        let found = [
            find(asked, "/connections", of_client).unwrap()["recv_oct_details"]["rate"].clone(),
            find(asked, "/connections", of_worker).unwrap()["send_oct_details"]["rate"].clone(),
            find(asked, "/consumers", of_jobs).unwrap()["message_stats"]["ack_details"]["rate"]
                .clone(),
            exchange(asked, "fan")["publish_in_details"]["rate"].clone(),
        ];
        for (rate, found) in rates.iter_mut().zip(found) {
            *rate = f64::max(*rate, found.as_f64().unwrap());
        }
    }
}
