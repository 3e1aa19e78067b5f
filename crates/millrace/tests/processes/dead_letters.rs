//! Dead letters from end to end: a real process, a real client, and `kill -9`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::node::{Node, TIMEOUT, text, to, until_ready};
use amqp::{FieldTable, FieldValue, Properties, ValueRef};
use client::{
    Address, Connection, Delivery, ExchangeSpec, Options, Outcome, Publisher, QueueSpec, Url,
};

async fn publish(connection: &mut Connection, queue: &str, bodies: &[&str]) {
    let properties = Properties { delivery_mode: Some(2), ..Properties::default() };
    for body in bodies {
        connection.publish(Address::queue(queue), &properties, body.as_bytes()).await.unwrap();
    }
}

/// The next message of a queue, which is settled.
async fn take(connection: &mut Connection, queue: &str) -> Delivery {
    let begun = Instant::now();
    loop {
        if let Some(delivery) = connection.get(queue, true).await.unwrap() {
            return delivery;
        }
        assert!(begun.elapsed() < TIMEOUT, "no message in {queue}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn settle(connection: &mut Connection, queue: &str, outcome: Outcome) {
    let delivery = connection.get(queue, false).await.unwrap().expect("a message to settle");
    connection.settle(delivery.tag, outcome).await.unwrap();
}

/// Reason, queue and count of every death that a message tells of.
fn deaths(delivery: &Delivery) -> Vec<(String, String, i64)> {
    let properties = delivery.properties().unwrap();
    let Some(ValueRef::Array(deaths)) = properties.headers.unwrap().find("x-death") else {
        panic!("no x-death in {properties:?}")
    };
    let death = |death| {
        let ValueRef::Table(death) = death else { panic!("{death:?}") };
        let text = |key| match death.find(key) {
            Some(ValueRef::LongStr(text)) => String::from_utf8(text.to_vec()).unwrap(),
            other => panic!("{key} is {other:?}"),
        };
        let Some(ValueRef::I64(count)) = death.find("count") else { panic!("{death:?}") };
        (text("reason"), text("queue"), count)
    };
    deaths.iter().map(death).collect()
}

fn death(reason: &str, queue: &str, count: i64) -> (String, String, i64) {
    (reason.to_owned(), queue.to_owned(), count)
}

#[tokio::test]
async fn a_refused_message_comes_out_where_its_queue_says_with_its_story() {
    let node = Node::start("rejected");
    let mut client = node.connect().await;
    let fanout = ExchangeSpec {
        name: "graveyard".to_owned(),
        kind: "fanout".to_owned(),
        durable: true,
        ..ExchangeSpec::default()
    };
    client.declare_exchange(&fanout).await.unwrap();
    client.declare_queue(&QueueSpec::durable("dead")).await.unwrap();
    client.bind_queue("dead", "graveyard", "", &FieldTable::new()).await.unwrap();
    let mut arguments = FieldTable::new();
    arguments.insert("x-dead-letter-exchange", text("graveyard"));
    client.declare_queue(&QueueSpec { arguments, ..QueueSpec::durable("work") }).await.unwrap();
    publish(&mut client, "work", &["job"]).await;
    settle(&mut client, "work", Outcome::DeadLetter).await;
    let letter = take(&mut client, "dead").await;
    assert_eq!((letter.exchange(), letter.routing_key()), ("graveyard", "work"));
    assert_eq!((&letter.body[..], letter.redelivered), (&b"job"[..], false));
    assert_eq!(deaths(&letter), [death("rejected", "work", 1)]);
    let properties = letter.properties().unwrap();
    assert_eq!(properties.delivery_mode, Some(2));
    let headers = properties.headers.unwrap();
    let names: Vec<&str> = headers.iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        ["x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"]
    );
    until_ready(&mut client, "work", 0).await;
}

#[tokio::test]
async fn a_message_goes_through_a_chain_of_queues_as_it_expires() {
    let node = Node::start("chain");
    let mut client = node.connect().await;
    let ttl = [("x-message-ttl", FieldValue::I32(30))];
    client.declare_queue(&to("a", "b", &ttl)).await.unwrap();
    client.declare_queue(&to("b", "c", &ttl)).await.unwrap();
    client.declare_queue(&QueueSpec::durable("c")).await.unwrap();
    publish(&mut client, "a", &["1", "2", "3"]).await;
    for body in ["1", "2", "3"] {
        let letter = take(&mut client, "c").await;
        assert_eq!(letter.body, body.as_bytes());
        assert_eq!(deaths(&letter), [death("expired", "b", 1), death("expired", "a", 1)]);
    }
}

#[tokio::test]
async fn a_cycle_stops_unless_somebody_refuses_the_message() {
    let node = Node::start("cycle");
    let mut client = node.connect().await;
    let ttl = [("x-message-ttl", FieldValue::I32(200))];
    client.declare_queue(&to("a", "b", &ttl)).await.unwrap();
    client.declare_queue(&to("b", "a", &ttl)).await.unwrap();
    publish(&mut client, "a", &["lost"]).await;
    // A message that goes round is seen in one of them again and again.
    let mut unseen = 0;
    let begun = Instant::now();
    while unseen < 20 {
        let mut ready = 0;
        for queue in ["a", "b"] {
            ready += client.look_up_queue(queue).await.unwrap().message_count;
        }
        unseen = if ready == 0 { unseen + 1 } else { 0 };
        assert!(begun.elapsed() < TIMEOUT, "it goes round and round");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    client.declare_queue(&to("waiting", "work", &ttl)).await.unwrap();
    client.declare_queue(&to("work", "waiting", &[])).await.unwrap();
    publish(&mut client, "work", &["kept"]).await;
    for round in 1..=3 {
        settle(&mut client, "work", Outcome::DeadLetter).await;
        until_ready(&mut client, "work", 1).await;
        let letter = client.get("work", false).await.unwrap().unwrap();
        let both = [death("expired", "waiting", round), death("rejected", "work", round)];
        assert_eq!(deaths(&letter), both);
        client.settle(letter.tag, Outcome::Requeue).await.unwrap();
        until_ready(&mut client, "work", 1).await;
    }
}

#[tokio::test]
async fn what_there_is_no_room_for_leaves_from_the_front_in_order() {
    let node = Node::start("maxlen");
    let mut client = node.connect().await;
    let short = [("x-max-length", FieldValue::I32(2))];
    client.declare_queue(&to("short", "dead", &short)).await.unwrap();
    client.declare_queue(&QueueSpec::durable("dead")).await.unwrap();
    publish(&mut client, "short", &["1", "2", "3", "4", "5"]).await;
    for body in ["1", "2", "3"] {
        let letter = take(&mut client, "dead").await;
        assert_eq!(letter.body, body.as_bytes());
        assert_eq!(deaths(&letter), [death("maxlen", "short", 1)]);
    }
    until_ready(&mut client, "short", 2).await;
    assert_eq!(take(&mut client, "short").await.body, &b"4"[..]);
}

#[tokio::test]
async fn a_message_that_came_back_too_often_is_set_aside() {
    let node = Node::start("limit");
    let mut client = node.connect().await;
    let mut arguments = FieldTable::new();
    arguments.insert("x-queue-type", text("quorum"));
    arguments.insert("x-delivery-limit", FieldValue::I32(2));
    client.declare_queue(&QueueSpec { arguments, ..QueueSpec::durable("jobs") }).await.unwrap();
    publish(&mut client, "jobs", &["poison"]).await;
    for _ in 0..3 {
        until_ready(&mut client, "jobs", 1).await;
        settle(&mut client, "jobs", Outcome::Requeue).await;
    }
    let begun = Instant::now();
    while client.look_up_queue("jobs.dead").await.is_err() {
        assert!(begun.elapsed() < TIMEOUT, "no jobs.dead");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let letter = take(&mut client, "jobs.dead").await;
    assert_eq!(letter.body, &b"poison"[..]);
    assert_eq!(deaths(&letter), [death("delivery_limit", "jobs", 1)]);
    until_ready(&mut client, "jobs", 0).await;
}

#[tokio::test]
async fn no_dead_letter_is_lost_when_the_broker_is_killed() {
    const MESSAGES: u32 = 6000;
    let mut node = Node::start("kill");
    let mut client = node.connect().await;
    // Two hops, so that letters are on their way somewhere whenever the process dies.
    let ttl = [("x-message-ttl", FieldValue::I32(150))];
    let short = [("x-max-length", FieldValue::I32(10))];
    client.declare_queue(&to("first", "second", &ttl)).await.unwrap();
    client.declare_queue(&to("second", "last", &short)).await.unwrap();
    client.declare_queue(&QueueSpec::durable("last")).await.unwrap();
    let persistent = Properties { delivery_mode: Some(2), ..Properties::default() };
    for round in 0..4 {
        let mut publisher =
            Publisher::open(&node.url, &Options::named("test"), 1000).await.unwrap();
        for number in 0..MESSAGES / 4 {
            let body = format!("{}", round * (MESSAGES / 4) + number);
            publisher.publish(Address::queue("first"), &persistent, body.as_bytes()).await.unwrap();
        }
        assert!(publisher.close().await.unwrap().is_clean());
        tokio::time::sleep(Duration::from_millis(40 * u64::from(round) + 60)).await;
        node.crash();
    }
    let mut client = node.connect().await;
    until_ready(&mut client, "first", 0).await;
    until_ready(&mut client, "second", 10).await;
    let begun = Instant::now();
    let mut seen = BTreeSet::new();
    let mut total = 0;
    while seen.len() < MESSAGES as usize {
        let from =
            if total == 0 || seen.len() + 10 < MESSAGES as usize { "last" } else { "second" };
        match client.get(from, true).await.unwrap() {
            Some(letter) => {
                total += 1;
                seen.insert(letter.body.to_vec());
            }
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
        assert!(begun.elapsed() < TIMEOUT, "{} of {MESSAGES} messages are there", seen.len());
    }
    println!("{total} letters of {MESSAGES} messages");
}

/// Publishes it until it is confirmed: after a kill, a node may refuse for a moment.
async fn until_taken(url: &Url, properties: &Properties<'_>, body: &[u8]) {
    let begun = Instant::now();
    loop {
        let mut publisher = Publisher::open(url, &Options::named("test"), 1).await.unwrap();
        publisher.publish(Address::queue("first"), properties, body).await.unwrap();
        if publisher.close().await.unwrap().is_clean() {
            return;
        }
        assert!(begun.elapsed() < TIMEOUT, "it is refused again and again");
    }
}

#[tokio::test]
async fn no_dead_letter_is_lost_whichever_node_is_killed() {
    const MESSAGES: u32 = 3000;
    let mut nodes = Node::start_three("kill-one");
    let mut client = nodes[0].connect().await;
    let ttl = [("x-message-ttl", FieldValue::I32(150))];
    for (name, target) in [("first", "second"), ("second", "last")] {
        client.declare_queue(&to(name, target, &ttl)).await.unwrap();
    }
    client.declare_queue(&QueueSpec::durable("last")).await.unwrap();
    let persistent = Properties { delivery_mode: Some(2), ..Properties::default() };
    for round in 0..3 {
        let url = &nodes[(round + 1) % 3].url;
        let first = format!("{}", round as u32 * (MESSAGES / 3));
        until_taken(url, &persistent, first.as_bytes()).await;
        let mut publisher = Publisher::open(url, &Options::named("test"), 1000).await.unwrap();
        for number in 0..MESSAGES / 3 {
            let body = format!("{}", round as u32 * (MESSAGES / 3) + number);
            publisher.publish(Address::queue("first"), &persistent, body.as_bytes()).await.unwrap();
        }
        assert!(publisher.close().await.unwrap().is_clean());
        tokio::time::sleep(Duration::from_millis(120)).await;
        nodes[round].crash();
    }
    let mut client = nodes[1].connect().await;
    let begun = Instant::now();
    let mut seen = BTreeSet::new();
    while seen.len() < MESSAGES as usize {
        match client.get("last", true).await.unwrap() {
            Some(letter) => drop(seen.insert(letter.body.to_vec())),
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
        assert!(begun.elapsed() < TIMEOUT, "{} of {MESSAGES} messages are there", seen.len());
    }
}
