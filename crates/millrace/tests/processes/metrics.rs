//! What a node serves to whoever watches it.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use client::{Address, Consumer, ConsumerOptions, Options, Outcome, Publisher, QueueSpec};

use crate::node::{Node, TIMEOUT, addresses, free_address, until};

/// What it answers: status line, headers and body. Nothing: nobody is there yet.
pub(crate) fn get(address: &str, path: &str) -> Option<String> {
    get_as(address, path, "*/*")
}

/// The same, for who takes this.
fn get_as(address: &str, path: &str, accept: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

pub(crate) fn body(address: &str, path: &str) -> String {
    let answer = get(address, path).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

fn status(address: &str, path: &str) -> u16 {
    let answer = get(address, path).unwrap();
    answer.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The value of a metric, with its labels if it has some. None: it is not there.
fn find(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    Some(line?.parse().unwrap())
}

/// The same of one that is there.
pub(crate) fn value(text: &str, name: &str) -> f64 {
    find(text, name).unwrap_or_else(|| panic!("{name} is not in\n{text}"))
}

/// Runs a client's command: what it prints.
pub(crate) fn client(arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn counters_move_with_what_is_published_and_consumed() {
    let address = free_address();
    let node = Node::start_with("metrics", &["--metrics", &address]);
    for path in ["/health", "/health/live", "/ready", "/health/ready"] {
        assert_eq!(status(&address, path), 200, "{path}");
    }
    let before = get(&address, "/metrics").unwrap();
    for name in ["millrace_messages_published_total", "millrace_messages_settled_total"] {
        assert_eq!(value(&before, name), 0.0, "{name}");
    }

    let port = node.url.port;
    let url = format!("amqp://guest:guest@127.0.0.1:{port}");
    client(&["publish", "--url", &url, "--queue", "jobs"], "one\ntwo\nthree\n");
    let out = client(&["consume", "--url", &url, "--queue", "jobs", "--count", "3"], "");
    assert_eq!(out, "one\ntwo\nthree\n");

    // An ack has no answer: its count comes a moment later.
    let mut after = String::new();
    until("three deliveries are settled", || {
        after = get(&address, "/metrics").unwrap();
        value(&after, "millrace_messages_settled_total") == 3.0
    });
    for name in ["published", "confirmed", "delivered"] {
        assert_eq!(value(&after, &format!("millrace_messages_{name}_total")), 3.0, "{name}");
    }
    for name in ["log_syncs", "log_sync_seconds", "log_written_bytes", "log_entries"] {
        let name = format!("millrace_{name}_total");
        assert!(value(&after, &name) > value(&before, &name), "{name}");
    }
    assert!(value(&after, "millrace_connections_opened_total") >= 2.0);
    for resource in ["memory", "disk"] {
        value(&after, &format!("millrace_alarm{{resource=\"{resource}\"}}"));
    }
    let mut lines = after.lines();
    assert!(!lines.any(|it| it.starts_with("millrace_peer_")), "a node alone has no peers");
    let (text, open) = ("text/plain; version=0.0.4", "application/openmetrics-text");
    assert!(after.contains(text), "who asks for nothing gets text:\n{after}");
    let after = get_as(&address, "/metrics", open).unwrap();
    assert!(after.contains(open) && after.ends_with("# EOF\n"), "{after}");
}

/// A process that ends with the test, and its directory.
struct Alone(Child, std::path::PathBuf);

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

#[test]
fn a_node_that_reaches_no_majority_is_alive_and_not_ready() {
    let (metrics, own, other) = (free_address(), free_address(), free_address());
    let peers = format!("1={own},2={other}");
    let dir = std::env::temp_dir().join(format!("millrace-not-ready-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let child = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["serve", "--set", "log=error", "--amqp", "127.0.0.1:0", "--metrics", &metrics])
        .args(["--node-id", "1", "--peers", &peers, "--data-dir"])
        .arg(&dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _node = Alone(child, dir);
    until("the node answers", || get(&metrics, "/health").is_some());
    assert_eq!((status(&metrics, "/health"), status(&metrics, "/ready")), (200, 503));
    assert!(get(&metrics, "/ready").unwrap().contains("waits until its groups can serve"));
    assert_eq!((status(&metrics, "/health/live"), status(&metrics, "/health/ready")), (200, 503));
    let text = get(&metrics, "/metrics").unwrap();
    assert_eq!(value(&text, "millrace_peer_refused_total"), 0.0);
    assert_eq!(value(&text, "millrace_ready"), 0.0);
    assert!(value(&text, "millrace_groups_without_leader") > 0.0);
    assert_eq!(value(&text, "millrace_peer_up{node=\"2\"}"), 0.0);
}

fn global(name: &str) -> String {
    format!("rabbitmq_global_{name}{{protocol=\"amqp091\"}}")
}

#[tokio::test]
async fn what_clients_do_is_counted_under_rabbitmqs_names() {
    let address = free_address();
    let node = Node::start_with("metrics-rabbit", &["--metrics", &address]);
    let mut connection = node.connect().await;
    let spec = QueueSpec::durable("jobs");
    for _ in 0..2 {
        connection.declare_queue(&spec).await.unwrap();
    }
    let (queue, nowhere) = (Address::queue("jobs"), Address::queue("nowhere"));
    let properties = amqp::Properties::default();
    let options = Options::named("metrics");
    let mut publisher = Publisher::open(&node.url, &options, 16).await.unwrap();
    let dropped = Address { mandatory: false, ..nowhere };
    let large = [b'x'; 500];
    for (to, body) in [
        (queue, &b"one"[..]),
        (queue, &large),
        (queue, b"three"),
        (nowhere, b"returned"),
        (dropped, b"dropped"),
    ] {
        publisher.publish(to, &properties, body).await.unwrap();
    }
    let settled = publisher.settle_all().await.unwrap();
    assert_eq!((settled.confirmed, settled.returned), (4, 1));

    let first = connection.get("jobs", false).await.unwrap().unwrap();
    connection.settle(first.tag, Outcome::Requeue).await.unwrap();
    let again = connection.get("jobs", false).await.unwrap().unwrap();
    assert!(again.redelivered);
    connection.settle(again.tag, Outcome::Done).await.unwrap();
    connection.get("jobs", true).await.unwrap().unwrap();
    let how = ConsumerOptions::default();
    let mut consumer = Consumer::open(&node.url, &options, "jobs", how).await.unwrap();
    let last = consumer.next().await.unwrap();
    consumer.settle(last.tag, Outcome::Done).unwrap();
    consumer.flush().await.unwrap();
    assert!(connection.get("jobs", false).await.unwrap().is_none());

    let mut text = String::new();
    until("the last ack is counted", || {
        text = body(&address, "/metrics");
        value(&text, &global("messages_acknowledged_total")) == 2.0
    });
    for (name, expected) in [
        ("messages_received_total", 5.0),
        ("messages_received_confirm_total", 5.0),
        ("messages_confirmed_total", 5.0),
        ("messages_routed_total", 3.0),
        ("messages_unroutable_returned_total", 1.0),
        ("messages_unroutable_dropped_total", 1.0),
        ("messages_delivered_total", 4.0),
        ("messages_delivered_get_manual_ack_total", 2.0),
        ("messages_delivered_get_auto_ack_total", 1.0),
        ("messages_delivered_consume_manual_ack_total", 1.0),
        ("messages_delivered_consume_auto_ack_total", 0.0),
        ("messages_redelivered_total", 1.0),
        ("messages_get_empty_total", 1.0),
        ("publishers", 1.0),
        ("consumers", 1.0),
    ] {
        assert_eq!(value(&text, &global(name)), expected, "{name}");
    }
    let size = |part: &str| value(&text, &format!("rabbitmq_message_size_bytes_{part}"));
    let bucket = |le: &str| size(&format!("bucket{{le=\"{le}\",protocol=\"amqp091\"}}"));
    assert_eq!((bucket("100.0"), bucket("1000.0"), bucket("+Inf")), (4.0, 5.0, 5.0));
    assert_eq!(size("sum{protocol=\"amqp091\"}"), 523.0);
    let of = |name: &str| value(&text, &format!("rabbitmq_{name}"));
    assert_eq!((of("queues_declared_total"), of("queues_created_total")), (2.0, 1.0));
    assert_eq!((of("connections"), of("consumers"), of("queues")), (3.0, 1.0, 1.0));
    assert!(of("process_open_fds") > 3.0 && of("process_resident_memory_bytes") > 1e6);
    assert!(value(&text, "millrace_commit_seconds_count") >= 1.0, "a batch was committed");
    assert!(value(&text, "millrace_log_sync_duration_seconds_count") >= 1.0);

    // Whoever goes away without a word leaves no channel behind.
    drop((connection, publisher, consumer));
    until("the channels are gone", || {
        text = body(&address, "/metrics");
        value(&text, "rabbitmq_connections") == 0.0
    });
    let of = |name: &str| value(&text, &format!("rabbitmq_{name}"));
    assert_eq!((of("channels"), value(&text, &global("publishers"))), (0.0, 0.0));
    assert_eq!(of("channels_opened_total"), of("channels_closed_total"));
}

#[tokio::test]
async fn a_publisher_that_waits_is_counted_with_its_reason() {
    let address = free_address();
    let more = ["--metrics", &address, "--set", "disk_free_limit=1000000GiB"];
    let node = Node::start_with("metrics-blocked", &more);
    let blocked = |reason: &str| {
        let text = body(&address, "/metrics");
        value(&text, &format!("millrace_publishers_blocked{{reason=\"{reason}\"}}"))
    };
    until("the disk is judged", || {
        value(&body(&address, "/metrics"), "rabbitmq_alarms_free_disk_space_watermark") == 1.0
    });
    let mut connection = node.connect().await;
    connection.declare_queue(&QueueSpec::durable("jobs")).await.unwrap();
    let publisher = tokio::spawn(async move {
        let properties = amqp::Properties::default();
        connection.publish(Address::queue("jobs"), &properties, b"x").await
    });
    // The look blocks the test's only thread: the publisher has its turn between two of them.
    let begun = std::time::Instant::now();
    while blocked("disk") != 1.0 {
        assert!(begun.elapsed() < TIMEOUT, "the publisher waits for the disk");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!((blocked("memory"), blocked("in_flight")), (0.0, 0.0));
    publisher.abort();
}

#[tokio::test]
async fn queues_are_shown_one_by_one_those_with_the_most_messages_first() {
    let address = free_address();
    let more = ["--metrics", &address, "--set", "metrics_queues_max=2"];
    let node = Node::start_with("metrics-queues", &more);
    let mut connection = node.connect().await;
    for (queue, count) in [("full", 3), ("half", 2), ("empty", 0)] {
        connection.declare_queue(&QueueSpec::durable(queue)).await.unwrap();
        for _ in 0..count {
            let properties = amqp::Properties::default();
            connection.publish(Address::queue(queue), &properties, b"x").await.unwrap();
        }
    }
    let ready = |text: &str, queue: &str| {
        find(text, &format!("rabbitmq_queue_messages_ready{{vhost=\"/\",queue=\"{queue}\"}}"))
    };
    let mut text = String::new();
    until("what is confirmed is ready", || {
        text = body(&address, "/metrics/per-object");
        (ready(&text, "full"), ready(&text, "half")) == (Some(3.0), Some(2.0))
    });
    assert_eq!(ready(&text, "empty"), None, "there is room for two");
    assert_eq!(value(&text, "millrace_queues_left_out"), 1.0);
    let published = "millrace_queue_messages_published_total{vhost=\"/\",queue=\"full\"}";
    assert_eq!(value(&text, published), 3.0);

    let detailed = |query: &str| body(&address, &format!("/metrics/detailed?{query}"));
    let text = detailed("family=queue_coarse_metrics&vhost=%2F");
    let full = "rabbitmq_detailed_queue_messages{vhost=\"/\",queue=\"full\"}";
    assert_eq!(value(&text, full), 3.0);
    assert!(!text.contains("queue_consumers"), "only what was asked for:\n{text}");
    let text = detailed("family=queue_coarse_metrics&vhost=other");
    assert_eq!((find(&text, full), value(&text, "millrace_queues_left_out")), (None, 0.0));
    let refused = get(&address, "/metrics/detailed?family=queues").unwrap();
    assert!(refused.starts_with("HTTP/1.1 400 ") && refused.contains("queue_coarse_metrics"));
    assert_eq!(status(&address, "/metrics/else"), 404);
}

/// Each node answers for its own part: over all of them nothing is missing, and nothing is there twice.
#[tokio::test]
async fn the_numbers_of_all_nodes_add_up() {
    const QUEUES: usize = 12;
    let addresses = addresses::free_addresses(3);
    let nodes = Node::start_cluster_each("metrics-three", 3, |node| {
        vec!["--metrics".to_owned(), addresses[node - 1].clone()]
    });
    let sum = |name: &str| -> f64 {
        let of = |address: &String| find(&body(address, "/metrics"), name);
        addresses.iter().filter_map(of).sum()
    };
    let mut connection = nodes[1].connect().await;
    let properties = amqp::Properties::default();
    for number in 0..QUEUES {
        let name = format!("q{number}");
        connection.declare_queue(&QueueSpec::durable(&name)).await.unwrap();
        connection.publish(Address::queue(&name), &properties, b"x").await.unwrap();
    }
    let all = QUEUES as f64;
    until("each queue is led by one node", || sum("rabbitmq_queues") == all);
    until("what is confirmed is ready", || sum("rabbitmq_queue_messages_ready") == all);
    assert_eq!(sum("rabbitmq_queues_created_total"), all);
    assert_eq!(sum(&global("messages_received_total")), all);
    assert_eq!(sum("rabbitmq_connections"), 1.0);
    let led = || -> Vec<String> {
        let all = addresses.iter().map(|address| body(address, "/metrics"));
        let all: Vec<_> = all.collect();
        let lines = all.iter().flat_map(|text| text.lines());
        let led = lines.filter(|it| it.starts_with("millrace_group_led{") && it.ends_with(" 1"));
        led.map(str::to_owned).collect()
    };
    until("24 groups and the catalog have one leader each", || {
        let led = led();
        led.len() == 25 && led.iter().collect::<BTreeSet<_>>().len() == 25
    });
    let first = body(&addresses[0], "/metrics");
    for node in [2, 3] {
        assert_eq!(value(&first, &format!("millrace_peer_up{{node=\"{node}\"}}")), 1.0);
    }
    connection.delete_queue("q0").await.unwrap();
    until("it is gone", || sum("rabbitmq_queues_deleted_total") == 1.0);
    assert_eq!(sum("rabbitmq_queues"), all - 1.0);
}
