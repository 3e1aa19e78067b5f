//! After a `kill -9` what a client had is flagged as redelivered, and what nobody had is not.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own"
)]

use crate::node::{Node, until, until_ready};
use amqp::{FieldValue, Properties};
use client::{Address, QueueSpec};

const COUNT: usize = 100;
const TAKEN: usize = 10;

#[tokio::test]
async fn a_killed_node_flags_what_was_delivered_and_not_the_backlog() {
    flags_little("redelivered", None).await;
}

#[tokio::test]
async fn a_killed_node_flags_little_of_a_queue_with_a_length_limit() {
    flags_little("redelivered-length", Some(("x-max-length", 1_000))).await;
}

#[tokio::test]
async fn a_killed_node_flags_little_of_a_queue_with_a_time_to_live() {
    flags_little("redelivered-ttl", Some(("x-message-ttl", 3_600_000))).await;
}

async fn flags_little(name: &str, argument: Option<(&str, i32)>) {
    let mut node = Node::start(name);
    // What a queue keeps follows from the version at its declaration.
    until("the newest version is agreed on", || {
        let status = node.status();
        status.is_some_and(|status| status["version"] == machine::Version::NEWEST.0)
    });
    let mut client = node.connect().await;
    for queue in ["taken", "untouched"] {
        let mut spec = QueueSpec::durable(queue);
        if let Some((key, value)) = argument {
            spec.arguments.insert(key, FieldValue::I32(value));
        }
        client.declare_queue(&spec).await.unwrap();
        for number in 0..COUNT {
            let body = number.to_string();
            client
                .publish(Address::queue(queue), &Properties::default(), body.as_bytes())
                .await
                .unwrap();
        }
        until_ready(&mut client, queue, COUNT as u32).await;
    }
    for _ in 0..TAKEN {
        let delivery = client.get("taken", false).await.unwrap().unwrap();
        assert!(!delivery.redelivered);
    }
    node.crash();
    let mut client = node.connect().await;
    for queue in ["taken", "untouched"] {
        let mut flags = Vec::new();
        for number in 0..COUNT {
            let delivery = client.get(queue, true).await.unwrap().unwrap();
            assert_eq!(delivery.body, number.to_string());
            flags.push(delivery.redelivered);
        }
        let flagged = flags.iter().filter(|flag| **flag).count();
        match queue {
            "taken" => {
                assert!(flags[..TAKEN].iter().all(|flag| *flag), "{flags:?}");
                assert!(flagged < COUNT / 2, "{flagged} are flagged, {TAKEN} were delivered");
            }
            _ => assert_eq!(flagged, 0, "nobody was given one of them"),
        }
    }
}
