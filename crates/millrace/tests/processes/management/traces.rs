//! A vhost that is traced: what passes through it is published at its exchange of traces, too.

use client::{Address, Connection, Consumer, ConsumerOptions, Options, QueueSpec};
use serde_json::{Value, json};

use super::{Managed, until_connected};

const EXCHANGE: &str = "amq.rabbitmq.trace";

/// The next trace: its key, its headers and its body.
async fn next(client: &mut Connection) -> (String, amqp::FieldTable, Vec<u8>) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        if let Some(delivery) = client.get("traces", true).await.unwrap() {
            assert_eq!(delivery.exchange(), EXCHANGE);
            let properties = delivery.properties().unwrap();
            assert_eq!(properties.delivery_mode, None);
            let headers = properties.headers.unwrap().to_table();
            return (delivery.routing_key().to_owned(), headers, delivery.body.to_vec());
        }
        assert!(std::time::Instant::now() < deadline, "no trace comes");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

fn text(text: &str) -> amqp::FieldValue {
    amqp::FieldValue::LongStr(text.as_bytes().to_vec())
}

fn field<'t>(table: &'t amqp::FieldTable, name: &str) -> &'t amqp::FieldValue {
    table.find(name).unwrap_or_else(|| panic!("{name} is missing: {table:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_passes_through_a_traced_vhost_is_published_with_who_and_where() {
    let managed = Managed::start("management-traces");
    managed.done_at_last("PUT", "/vhosts/%2F", &json!({ "tracing": true }));
    assert_eq!(managed.done("GET", "/vhosts/%2F", &Value::Null)["tracing"], json!(true));
    let mut client = until_connected(&managed, "guest", "guest").await;
    for queue in ["traces", "jobs"] {
        client.declare_queue(&QueueSpec::durable(queue)).await.unwrap();
    }
    let none = amqp::FieldTable::default();
    client.bind_queue("traces", EXCHANGE, "#", &none).await.unwrap();

    let mut headers = amqp::FieldTable::new();
    headers.insert("CC", amqp::FieldValue::Array(vec![text("more")]));
    let headers = headers.to_bytes();
    let properties = amqp::Properties {
        message_id: Some("seven"),
        delivery_mode: Some(2),
        headers: Some(amqp::TableRef::validate(&headers).unwrap()),
        ..amqp::Properties::default()
    };
    client.publish(Address::queue("jobs"), &properties, b"work").await.unwrap();
    let (key, headers, body) = next(&mut client).await;
    assert_eq!((key.as_str(), body.as_slice()), ("publish.", b"work".as_slice()));
    let names: Vec<&str> = headers.0.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "exchange_name",
        "routing_keys",
        "properties",
        "node",
        "vhost",
        "connection",
        "channel",
        "user",
        "routed_queues",
    ];
    assert_eq!(names, expected);
    let all = amqp::FieldValue::Array(vec![text("jobs"), text("more")]);
    assert_eq!(field(&headers, "routing_keys"), &all);
    let routed = amqp::FieldValue::Array(vec![text("jobs")]);
    assert_eq!(field(&headers, "routed_queues"), &routed);
    assert_eq!(field(&headers, "user"), &text("guest"));
    let amqp::FieldValue::Table(own) = field(&headers, "properties") else { panic!("{headers:?}") };
    assert_eq!(field(own, "message_id"), &text("seven"));
    assert_eq!(field(own, "delivery_mode"), &amqp::FieldValue::I32(2));

    // Got, given back, and then delivered: both are told, and none of the traces.
    assert!(client.get("jobs", false).await.unwrap().is_some());
    let (key, headers, body) = next(&mut client).await;
    assert_eq!((key.as_str(), body.as_slice()), ("deliver.jobs", b"work".as_slice()));
    assert_eq!(field(&headers, "redelivered"), &amqp::FieldValue::I32(0));
    drop(client);
    let how = ConsumerOptions { prefetch: 1, ..ConsumerOptions::default() };
    let options = Options::named("worker");
    let mut consumer = Consumer::open(&managed.node.url, &options, "jobs", how).await.unwrap();
    assert_eq!(consumer.next().await.unwrap().body, b"work".as_slice());
    let mut client = until_connected(&managed, "guest", "guest").await;
    let (key, headers, _) = next(&mut client).await;
    assert_eq!(key, "deliver.jobs");
    assert_eq!(field(&headers, "redelivered"), &amqp::FieldValue::I32(1));

    // A message that nobody takes is told, too; and nothing once the vhost is traced no more.
    let plain = amqp::Properties::default();
    client.publish(Address::queue("nobody"), &plain, b"lost").await.unwrap_err();
    let (key, headers, _) = next(&mut client).await;
    assert_eq!(key, "publish.");
    assert_eq!(field(&headers, "routed_queues"), &amqp::FieldValue::Array(Vec::new()));
    managed.done("PUT", "/vhosts/%2F", &json!({ "description": "all" }));
    assert_eq!(managed.done("GET", "/vhosts/%2F", &Value::Null)["tracing"], json!(true));
    managed.done("PUT", "/vhosts/%2F", &json!({ "tracing": false }));
    client.publish(Address::queue("jobs"), &plain, b"unseen").await.unwrap();
    managed.done("PUT", "/vhosts/%2F", &json!({ "tracing": true }));
    client.publish(Address::queue("jobs"), &plain, b"seen").await.unwrap();
    assert_eq!(next(&mut client).await.2, b"seen");
}
