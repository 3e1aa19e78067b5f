//! Events: what happens is published at `amq.rabbitmq.event`, once, whichever node is asked.

use client::{Connection, QueueSpec};
use serde_json::{Value, json};

use super::{Managed, until_connected};
use crate::node::Node;

const EXCHANGE: &str = "amq.rabbitmq.event";

/// A queue that gets events from now on.
async fn listen(managed: &Managed, key: &str) -> Connection {
    // The exchange comes with the version.
    managed.done_at_last("PUT", "/cluster-name", &json!({ "name": "heard" }));
    let mut client = until_connected(managed, "guest", "guest").await;
    client.declare_queue(&QueueSpec::durable("events")).await.unwrap();
    let none = amqp::FieldTable::default();
    client.bind_queue("events", EXCHANGE, key, &none).await.unwrap();
    client
}

/// The next event: its key and its headers.
async fn next(client: &mut Connection) -> (String, amqp::FieldTable) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        if let Some(delivery) = client.get("events", true).await.unwrap() {
            assert!(delivery.body.is_empty() && delivery.exchange() == EXCHANGE);
            let properties = delivery.properties().unwrap();
            let headers = properties.headers.unwrap().to_table();
            return (delivery.routing_key().to_owned(), headers);
        }
        assert!(std::time::Instant::now() < deadline, "no event comes");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

fn text(headers: &amqp::FieldTable, name: &str) -> String {
    let found = headers.0.iter().find(|(known, _)| known == name);
    match found.map(|(_, value)| value) {
        Some(amqp::FieldValue::LongStr(bytes)) => String::from_utf8(bytes.clone()).unwrap(),
        other => format!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_operators_and_clients_do_is_published_with_who_and_what() {
    let managed = Managed::start("management-events");
    let mut client = listen(&managed, "#").await;
    managed.done("PUT", "/users/ann", &json!({ "password": "canary", "tags": "management" }));
    let (mut seen, mut told) = (Vec::new(), String::new());
    while !seen.iter().any(|key| key == "user.created") {
        let (key, headers) = next(&mut client).await;
        told.push_str(&format!("{headers:?}"));
        if key == "user.created" {
            assert_eq!(text(&headers, "name"), "ann");
            assert_eq!(text(&headers, "user_who_performed_action"), "guest");
        }
        seen.push(key);
    }
    assert!(!told.contains("canary"));
    let mut other = managed.connect("guest", "guest", "/").await.unwrap();
    other.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    drop(other);
    let wrong = managed.connect("ann", "wrong", "/").await;
    assert!(wrong.is_err());
    let mut wanted = vec![
        "user.authentication.success",
        "connection.created",
        "channel.created",
        "queue.created",
        "connection.closed",
        "user.authentication.failure",
    ];
    while !wanted.is_empty() {
        let (key, headers) = next(&mut client).await;
        if key == "queue.created" {
            assert_eq!(
                (text(&headers, "name"), text(&headers, "vhost")),
                ("jobs".into(), "/".into())
            );
        }
        wanted.retain(|wanted| *wanted != key);
    }
    // Nobody listens any more, and nothing is dropped for it.
    client.unbind_queue("events", EXCHANGE, "#", &amqp::FieldTable::default()).await.unwrap();
    client.purge_queue("events").await.unwrap();
    managed.done("PUT", "/vhosts/unheard", &json!({}));
    let refused = managed.guest("DELETE", "/exchanges/%2F/amq.rabbitmq.event", &Value::Null);
    assert_eq!(refused.status, 400, "{}", refused.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_the_catalog_comes_once_from_a_cluster() {
    let nodes = Node::start_three("management-events-three").into_iter().map(Managed::of);
    let [one, two, three] = nodes.collect::<Vec<_>>().try_into().ok().unwrap();
    let mut client = listen(&one, "vhost.*").await;
    let mut expected = Vec::new();
    for (number, node) in [&one, &two, &three].into_iter().enumerate() {
        let name = format!("v{number}");
        node.done("PUT", &format!("/vhosts/{name}"), &json!({}));
        expected.push(name);
    }
    let mut found = Vec::new();
    for _ in 0..expected.len() {
        let (key, headers) = next(&mut client).await;
        assert_eq!(key, "vhost.created");
        found.push(text(&headers, "name"));
    }
    assert_eq!(found, expected);
    one.done("DELETE", "/vhosts/v0", &Value::Null);
    assert_eq!(next(&mut client).await.0, "vhost.deleted", "none came twice");
}
