//! A part of a stream, copied into a queue by `millrace stream replay`.

use amqp::{FieldTable, FieldValue, Properties};
use client::{Address, Consumer, ConsumerOptions, ExchangeSpec, Options, Publisher, QueueSpec};
use rustix::process::Signal;

use super::support::{Ended, Move, url};
use crate::node::{Node, until};

/// What of a message is looked at: body, routing key, its own header, and whence it came.
type Copied = (u32, String, Option<i64>, Option<i64>);

fn integer(table: &FieldTable, name: &str) -> Option<i64> {
    let found = table.0.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| match value {
        FieldValue::I64(number) => *number,
        other => panic!("{name} is {other:?}"),
    })
}

fn key(number: u32) -> String {
    format!("orders.{}", if number.is_multiple_of(3) { "eu" } else { "us" })
}

/// A node with a stream `events` of so many messages, and a queue `again`.
async fn node(name: &str, count: u32, limit: Option<i32>) -> Node {
    let node = Node::start(name);
    until("the newest version is agreed on", || {
        let status = node.status();
        status.is_some_and(|status| status["version"] == machine::Version::NEWEST.0)
    });
    let mut client = node.connect().await;
    let mut stream = QueueSpec::durable("events");
    stream.arguments.insert("x-queue-type", FieldValue::from("stream"));
    client.declare_queue(&stream).await.unwrap();
    let mut again = QueueSpec::durable("again");
    if let Some(limit) = limit {
        again.arguments.insert("x-max-length", FieldValue::I32(limit));
        again.arguments.insert("x-overflow", FieldValue::from("reject-publish"));
    }
    client.declare_queue(&again).await.unwrap();
    let exchange = ExchangeSpec {
        name: "shop".into(),
        kind: "topic".into(),
        durable: true,
        auto_delete: false,
        internal: false,
        arguments: FieldTable::new(),
    };
    client.declare_exchange(&exchange).await.unwrap();
    client.bind_queue("events", "shop", "orders.#", &FieldTable::new()).await.unwrap();
    let mut publisher = Publisher::open(&node.url, &Options::named("test"), 1000).await.unwrap();
    for number in 0..count {
        let headers: FieldTable =
            [("number", FieldValue::I64(number.into()))].into_iter().collect();
        let headers = headers.to_bytes();
        let headers = Some(amqp::TableRef::validate(&headers).unwrap());
        let properties = Properties { headers, message_id: Some("id"), ..Properties::default() };
        let key = key(number);
        let to = Address { exchange: "shop", routing_key: &key, mandatory: true };
        publisher.publish(to, &properties, number.to_string().as_bytes()).await.unwrap();
    }
    assert!(publisher.close().await.unwrap().is_clean());
    node
}

fn start(node: &Node, words: &[&str]) -> Move {
    let url = url(&node.url);
    let first = ["stream", "replay", "events", "--amqp", &url, "--json", "--report-every", "50ms"];
    Move::command(&[&first, words].concat())
}

fn run(node: &Node, words: &[&str]) -> Ended {
    start(node, words).ended()
}

/// Takes all that `again` has.
async fn taken(node: &Node) -> Vec<Copied> {
    let count = node.connect().await.look_up_queue("again").await.unwrap().message_count;
    let how = ConsumerOptions { no_ack: true, ..ConsumerOptions::default() };
    let options = Options::named("test");
    let mut consumer = Consumer::open(&node.url, &options, "again", how).await.unwrap();
    let mut all = Vec::new();
    for _ in 0..count {
        let delivery = consumer.next().await.unwrap();
        let properties = delivery.properties().unwrap();
        assert_eq!(properties.message_id, Some("id"));
        let headers = properties.headers.unwrap_or_default().to_table();
        assert_eq!(integer(&headers, "x-stream-offset"), None, "it lies in no stream");
        let body = std::str::from_utf8(&delivery.body).unwrap().parse().unwrap();
        let [number, offset] = ["number", "x-replayed-offset"].map(|name| integer(&headers, name));
        all.push((body, delivery.routing_key().to_owned(), number, offset));
    }
    consumer.close().await.unwrap();
    all
}

fn expected(numbers: impl Iterator<Item = u32>) -> Vec<Copied> {
    let of = |number: u32| (number, key(number), Some(number.into()), Some(number.into()));
    numbers.map(of).collect()
}

#[tokio::test]
async fn a_part_of_a_stream_comes_in_order_with_its_keys_and_headers_as_far_as_a_filter_matches() {
    let node = node("replay-part", 1_000, None).await;
    let ended = run(&node, &["--from", "100", "--to", "700", "--into", "again"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let end = ended.last("end");
    assert_eq!((&end["copied"], &end["next_offset"]), (&600.into(), &700.into()), "{end}");
    assert_eq!(taken(&node).await, expected(100..700));
    let ended = run(&node, &["--from", "first", "--into", "again", "--filter", "*.eu"]);
    let end = ended.last("end");
    assert_eq!((&end["copied"], &end["passed_over"]), (&334.into(), &666.into()), "{end}");
    assert_eq!(taken(&node).await, expected((0..1_000).step_by(3)));
    // All of it came in the last hour.
    let ended = run(&node, &["--from", "1h", "--to", "3", "--into", "again"]);
    assert_eq!((ended.code, taken(&node).await), (Some(0), expected(0..3)));
    let ended = run(&node, &["--from", "next", "--into", "again"]);
    assert_eq!((ended.code, ended.last("end")["copied"].as_u64()), (Some(0), Some(0)));
}

#[tokio::test]
async fn a_replay_that_is_stopped_says_where_it_goes_on_and_one_that_is_killed_said_so_before() {
    let node = node("replay-stop", 400, None).await;
    let mut replay = start(&node, &["--from", "first", "--into", "again", "--rate", "100/s"]);
    replay.wait_until(|line| line["copied"].as_u64() >= Some(20));
    replay.signal(Signal::INT);
    let ended = replay.ended();
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    let next = ended.last("end")["next_offset"].as_u64().unwrap() as u32;
    assert_eq!(taken(&node).await, expected(0..next), "what is said to be there is, and no more");
    let from = next.to_string();
    let mut replay = start(&node, &["--from", &from, "--into", "again", "--rate", "100/s"]);
    let mut at = 0;
    replay.wait_until(|line| {
        at = line["next_offset"].as_u64().unwrap() as u32;
        at >= next + 20
    });
    replay.kill();
    let from = at.to_string();
    let ended = run(&node, &["--from", &from, "--into", "again"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let mut numbers: Vec<u32> = taken(&node).await.iter().map(|copied| copied.0).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, Vec::from_iter(next..400), "none is lost");
}

#[tokio::test]
async fn what_the_target_refuses_ends_the_replay_with_the_reason_and_the_offset() {
    let node = node("replay-refused", 100, Some(10)).await;
    let ended = run(&node, &["--from", "5", "--into", "again", "--window", "1"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("offset 15: basic.nack"), "{}", ended.stderr);
    assert_eq!(ended.last("end")["next_offset"], 15);
    assert_eq!(taken(&node).await, expected(5..15));
    let ended = run(&node, &["--from", "5", "--exchange", "shop", "--key", "nowhere"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("offset 5: 312"), "{}", ended.stderr);
    let ended = run(&node, &["--from", "5", "--into", "events"]);
    assert_eq!((ended.code, ended.stderr.contains("never ends")), (Some(1), true));
    let ended = run(&node, &["--from", "5", "--into", "none"]);
    assert_eq!((ended.code, ended.stderr.contains("404")), (Some(1), true), "{}", ended.stderr);
}

/// A node with a stream `parcels` of three partitions and the queue `again`. Body: number; key: its last digit.
async fn node_with_partitions(name: &str, count: u32) -> Node {
    let node = node(name, 0, None).await;
    let mut stream = QueueSpec::durable("parcels");
    stream.arguments.insert("x-queue-type", FieldValue::from("stream"));
    stream.arguments.insert("x-partitions", FieldValue::I32(3));
    node.connect().await.declare_queue(&stream).await.unwrap();
    let mut publisher = Publisher::open(&node.url, &Options::named("test"), 1000).await.unwrap();
    for number in 0..count {
        let key = FieldValue::from(&*format!("customer-{}", number % 10));
        let headers: FieldTable = [("x-partition-key", key)].into_iter().collect();
        let headers = headers.to_bytes();
        let headers = Some(amqp::TableRef::validate(&headers).unwrap());
        let properties = Properties { headers, ..Properties::default() };
        let to = Address { exchange: "", routing_key: "parcels", mandatory: true };
        publisher.publish(to, &properties, number.to_string().as_bytes()).await.unwrap();
    }
    assert!(publisher.close().await.unwrap().is_clean());
    node
}

fn replay_parcels(node: &Node, words: &[&str]) -> Move {
    let url = url(&node.url);
    let first = ["stream", "replay", "parcels", "--amqp", &url, "--json", "--into", "again"];
    Move::command(&[&first[..], &["--report-every", "50ms"], words].concat())
}

/// Partition, offset and number of each message that `again` has.
async fn parcels(node: &Node) -> Vec<(i64, i64, u32)> {
    let count = node.connect().await.look_up_queue("again").await.unwrap().message_count;
    let how = ConsumerOptions { no_ack: true, ..ConsumerOptions::default() };
    let options = Options::named("test");
    let mut consumer = Consumer::open(&node.url, &options, "again", how).await.unwrap();
    let mut all = Vec::new();
    for _ in 0..count {
        let delivery = consumer.next().await.unwrap();
        let headers = delivery.properties().unwrap().headers.unwrap_or_default().to_table();
        assert_eq!(integer(&headers, "x-stream-partition"), None, "it lies in no stream");
        let place = ["x-replayed-partition", "x-replayed-offset"]
            .map(|name| integer(&headers, name).unwrap());
        let number = std::str::from_utf8(&delivery.body).unwrap().parse().unwrap();
        all.push((place[0], place[1], number));
    }
    consumer.close().await.unwrap();
    all
}

#[tokio::test]
async fn partitions_are_copied_one_after_the_other_each_in_order_and_a_stop_names_its_place() {
    let node = node_with_partitions("replay-partitions", 300).await;
    let ended = replay_parcels(&node, &["--from", "first"]).ended();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let all = parcels(&node).await;
    let mut numbers: Vec<u32> = all.iter().map(|found| found.2).collect();
    assert!(all.is_sorted(), "by partition, offset and number, all of which grow: {all:?}");
    numbers.sort_unstable();
    assert_eq!(numbers, Vec::from_iter(0..300), "each once");
    assert_eq!(all.iter().map(|found| found.0).max(), Some(2));

    // One that is stopped goes on with the options that it names.
    let mut replay = replay_parcels(&node, &["--from", "first", "--rate", "100/s"]);
    replay.wait_until(|line| line["copied"].as_u64() >= Some(20));
    replay.signal(Signal::INT);
    let ended = replay.ended();
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    let end = ended.last("end");
    let partition = end["partition"].as_u64().unwrap().to_string();
    let next = end["next_offset"].as_u64().unwrap().to_string();
    let left: Vec<String> =
        end["not_begun"].as_array().unwrap().iter().map(ToString::to_string).collect();
    let mut rest = vec!["--from", "first"];
    // Named twice, a partition is copied once.
    [&left, &left].into_iter().flatten().for_each(|number| rest.extend(["--partition", number]));
    let ended = replay_parcels(&node, &["--partition", &partition, "--from", &next]).ended();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let ended = replay_parcels(&node, &rest).ended();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(parcels(&node).await, all, "the same, and nothing twice");

    for (words, why) in [
        (&["--from", "5"][..], "name one partition"),
        (&["--from", "first", "--partition", "3"][..], "the partitions 0 to 2"),
    ] {
        let ended = replay_parcels(&node, words).ended();
        assert_eq!((ended.code, ended.stderr.contains(why)), (Some(1), true), "{}", ended.stderr);
    }
}
