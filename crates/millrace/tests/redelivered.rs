//! After a `kill -9` what a client had is flagged as redelivered, and what nobody had is not.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own"
)]

#[path = "support/node.rs"]
mod node;

use amqp::Properties;
use client::{Address, QueueSpec};
use node::{Node, until_ready};

const COUNT: usize = 100;
const TAKEN: usize = 10;

#[tokio::test]
async fn a_killed_node_flags_what_was_delivered_and_not_the_backlog() {
    let mut node = Node::start("redelivered");
    let mut client = node.connect().await;
    for queue in ["taken", "untouched"] {
        client.declare_queue(&QueueSpec::durable(queue)).await.unwrap();
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
