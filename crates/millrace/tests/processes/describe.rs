//! What `millrace describe` says of a node with clients, and of a cluster.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

use std::process::{Command, Output, Stdio};

use amqp::Properties;
use client::{Address, Connection, Consumer, ConsumerOptions, Options, QueueSpec};
use serde_json::Value;

use crate::node::{Node, until};

fn describe(node: &Node, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["describe", "--data-dir"])
        .arg(node.data_dir())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// What it prints for people.
fn told(node: &Node, arguments: &[&str]) -> String {
    let output = describe(node, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What it prints for programs: one line.
fn json(node: &Node, arguments: &[&str]) -> Value {
    let text = told(node, &[arguments, &["--json"]].concat());
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Why it describes nothing.
fn refused(node: &Node, arguments: &[&str]) -> String {
    let output = describe(node, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

async fn queue_with(connection: &mut Connection, name: &str, messages: usize) {
    connection.declare_queue(&QueueSpec::durable(name)).await.unwrap();
    for _ in 0..messages {
        connection.publish(Address::queue(name), &Properties::default(), b"body").await.unwrap();
    }
}

#[tokio::test]
async fn a_node_says_who_is_connected_and_what_its_queues_and_clients_do() {
    let node = Node::start("describe");
    let mut publisher = node.connect().await;
    queue_with(&mut publisher, "orders", 5).await;
    let how = ConsumerOptions { prefetch: 3, ..ConsumerOptions::default() };
    let options = Options::named("worker");
    let mut consumer = Consumer::open(&node.url, &options, "orders", how).await.unwrap();
    consumer.next().await.unwrap();
    until("the queue knows who holds what", || {
        json(&node, &["queue", "orders"])["counts"]["unacked"] == 3
    });

    let about = json(&node, &["node"]);
    assert_eq!((&about["connections"], &about["consumers"]), (&2.into(), &1.into()), "{about}");
    assert_eq!((&about["state"], &about["node"]), (&"serving".into(), &1.into()), "{about}");
    assert_eq!(about["amqp"], format!("127.0.0.1:{}", node.url.port), "{about}");
    assert!(about["memory_bytes"].as_u64() > Some(1 << 20), "{about}");
    assert!(!about["groups_led"].as_array().unwrap().is_empty(), "{about}");

    let list = json(&node, &["connections"]);
    assert_eq!((&list["count"], &list["next"]), (&2.into(), &Value::Null), "{list}");
    let worker = list["connections"].as_array().unwrap();
    let worker = worker.iter().find(|it| it["doing"]["client"] == "worker").unwrap();
    assert_eq!(
        (&worker["doing"]["user"], &worker["doing"]["vhost"]),
        (&"guest".into(), &"/".into())
    );
    let id = worker["id"].as_str().unwrap();

    let queue = json(&node, &["queue", "orders"]);
    assert_eq!((&queue["counts"]["ready"], &queue["counts"]["consumers"]), (&2.into(), &1.into()));
    assert_eq!((&queue["totals"]["published"], &queue["leader"]), (&5.into(), &1.into()));
    let holder = &queue["consumers"][0];
    assert_eq!((&holder["connection"], &holder["held"]), (&id.into(), &3.into()), "{queue}");

    let connection = json(&node, &["connection", id]);
    let number = connection["channels"][0]["number"].to_string();
    assert_eq!(connection["channels"][0]["unacked"], 3, "{connection}");
    let channel = json(&node, &["channel", id, &number]);
    let found = &channel["consumers"][0];
    assert_eq!((&found["queue"], &found["number"]), (&"orders".into(), &holder["number"]));
    let one = json(&node, &["consumer", id, &number, found["tag"].as_str().unwrap()]);
    assert_eq!(&one["consumer"], found);

    for (arguments, word) in [
        (&["node"][..], "Alarms"),
        (&["queues"], "orders"),
        (&["queue", "orders"], "group"),
        (&["connections"], "worker"),
        (&["connection", id], "Heartbeat"),
        (&["channel", id, &number], "orders"),
    ] {
        let text = told(&node, arguments);
        assert!(text.contains(word), "{arguments:?}: {text}");
    }
    consumer.close().await.unwrap();
}

#[tokio::test]
async fn what_is_not_there_is_refused_with_what_to_do() {
    let node = Node::start("describe-refused");
    let why = refused(&node, &["queue", "nothing"]);
    assert!(why.contains("millrace describe queues --vhost /"), "{why}");
    let why = refused(&node, &["queue", "--vhost", "elsewhere", "nothing"]);
    assert!(why.contains("The vhosts are: /"), "{why}");
    assert!(refused(&node, &["connection", "17"]).contains("NODE-NUMBER"));
    assert!(refused(&node, &["connection", "1-99"]).contains("millrace describe connections"));
    assert!(refused(&node, &["connection", "2-1"]).contains("belongs to node 2"));
    let output = describe(&node, &["connections", "--limit", "101"]);
    assert_eq!(output.status.code(), Some(2));
}

#[tokio::test]
async fn lists_go_on_where_the_last_page_ended() {
    let node = Node::start("describe-pages");
    let mut connection = node.connect().await;
    for nth in 0..5 {
        queue_with(&mut connection, &format!("q{nth}"), nth).await;
    }
    let names = |page: &Value| -> Vec<String> {
        let queues = page["queues"].as_array().unwrap().iter();
        queues.map(|queue| queue["name"].as_str().unwrap().to_owned()).collect()
    };
    let first = json(&node, &["queues", "--limit", "3"]);
    assert_eq!((names(&first).join(" "), &first["count"]), ("q0 q1 q2".to_owned(), &5.into()));
    let next = first["next"].as_str().unwrap();
    let rest = json(&node, &["queues", "--limit", "3", "--after", next]);
    assert_eq!((names(&rest).join(" "), &rest["next"]), ("q3 q4".to_owned(), &Value::Null));
    assert_eq!(rest["queues"][1]["counts"]["ready"], 4);

    let _others = (node.connect().await, node.connect().await);
    let first = json(&node, &["connections", "--limit", "2"]);
    let next = first["next"].as_str().unwrap();
    let rest = json(&node, &["connections", "--limit", "2", "--after", next]);
    assert_eq!((rest["connections"].as_array().unwrap().len(), &rest["count"]), (1, &3.into()));
}

#[tokio::test]
async fn queues_that_another_node_leads_are_described_once_all_nodes_are_upgraded() {
    for (version, is_new) in [("7", false), ("trial", true)] {
        let setting = format!("cluster_version_max={version}");
        let name = format!("describe-{version}");
        let nodes = Node::start_cluster_with(&name, 3, &["--set", &setting]);
        let mut connection = nodes[0].connect().await;
        for nth in 0..6 {
            queue_with(&mut connection, &format!("q{nth}"), 1).await;
        }
        // The version rises when all nodes have met; and leaders find their places.
        until("every queue is described where it should be", || {
            let told = nodes.iter().map(|node| json(node, &["queues"])).collect::<Vec<_>>();
            let queues = told.iter().flat_map(|told| told["queues"].as_array().unwrap());
            let known = queues.filter(|queue| queue["counts"]["ready"] == 1).count();
            // Each by its leader, or by all three.
            known == if is_new { 18 } else { 6 }
        });
        let silent = |node: &&Node| !describe(node, &["queue", "q0"]).status.success();
        let silent: Vec<&Node> = nodes.iter().filter(silent).collect();
        assert_eq!(silent.len(), if is_new { 0 } else { 2 });
        for node in silent {
            let why = refused(node, &["queue", "q0"]);
            assert!(why.contains("until every node of the cluster is upgraded"), "{why}");
            assert!(told(node, &["queues"]).contains("upgraded"));
        }
    }
}
