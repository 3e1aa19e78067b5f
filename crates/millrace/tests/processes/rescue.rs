//! A cluster whose majority is gone for good, and what of it goes on: real processes, `kill -9`, and
//! directories that are deleted.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::node::{self, Node, TIMEOUT, cluster, until, until_ready};
use amqp::Properties;
use client::{Address, Consumer, ConsumerOptions, Options, Outcome, Publisher, QueueSpec};
use serde_json::Value;

/// What a command prints that succeeds.
fn said(data_dir: &Path, arguments: &[&str]) -> String {
    let output = cluster(data_dir, arguments);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {words}");
    String::from_utf8(output.stdout).unwrap()
}

/// Why a command is refused.
fn refusal(data_dir: &Path, arguments: &[&str]) -> String {
    let output = cluster(data_dir, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// What every group of a node is, by one of its fields.
fn of_groups(status: &Value, field: &str) -> BTreeMap<u64, Value> {
    let groups = status["groups"].as_array().unwrap().iter();
    groups.map(|group| (group["group"].as_u64().unwrap(), group[field].clone())).collect()
}

/// Waits until all nodes have the same on their disks and have applied it.
fn until_level(nodes: &[&Node]) {
    until("all nodes have the same", || {
        let all: Option<Vec<Value>> = nodes.iter().map(|node| node.status()).collect();
        let Some(all) = all else { return false };
        let mut seen: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
        for status in &all {
            for field in ["applied", "persisted"] {
                for (group, at) in of_groups(status, field) {
                    seen.entry(group).or_default().push(at);
                }
            }
        }
        seen.values().all(|all| all.iter().all(|at| at == &all[0]))
    });
}

/// Declares queues, and publishes so many messages to each that are all confirmed.
async fn fill(node: &Node, queues: &[String], count: u32) {
    let mut connection = node.connect().await;
    let mut publisher = Publisher::open(&node.url, &Options::named("test"), 100).await.unwrap();
    let persistent = Properties { delivery_mode: Some(2), ..Properties::default() };
    for queue in queues {
        connection.declare_queue(&QueueSpec::durable(queue)).await.unwrap();
        for number in 0..count {
            let body = number.to_string();
            let address = Address::queue(queue);
            publisher.publish(address, &persistent, body.as_bytes()).await.unwrap();
        }
    }
    let settled = publisher.close().await.unwrap();
    assert!(settled.is_clean(), "{settled:?}");
}

/// Consumes so many messages of a queue: their bodies.
async fn consume(node: &Node, queue: &str, count: usize) -> BTreeSet<u32> {
    let options = Options::named("test");
    let how = ConsumerOptions { prefetch: 100, ..ConsumerOptions::default() };
    let mut consumer = Consumer::open(&node.url, &options, queue, how).await.unwrap();
    let mut bodies = BTreeSet::new();
    while bodies.len() < count {
        let next = tokio::time::timeout(TIMEOUT, consumer.next()).await;
        let delivery = next.expect("the next message").unwrap();
        bodies.insert(str::from_utf8(&delivery.body).unwrap().parse().unwrap());
        consumer.settle(delivery.tag, Outcome::Done).unwrap();
    }
    consumer.close().await.unwrap();
    bodies
}

/// Every file below a directory with what is in it.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.is_file() {
                all.insert(path.clone(), std::fs::read(path).unwrap());
            }
        }
    }
    all
}

fn remove(files: &[PathBuf]) {
    files.iter().for_each(|file| std::fs::remove_file(file).unwrap());
}

fn queues(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("q{number}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_node_of_three_goes_on_with_all_that_it_has_and_takes_new_ones_in() {
    let mut nodes = Node::start_three("rescue");
    let names = queues(8);
    fill(&nodes[1], &names, 50).await;
    until_level(&nodes.iter().collect::<Vec<_>>());
    for node in &mut nodes[1..] {
        node.kill();
        std::fs::remove_dir_all(node.data_dir()).unwrap();
    }
    let dir = nodes[0].data_dir().to_owned();
    let running = refusal(&dir, &["rescue", "--lost", "2,3", "--yes"]);
    assert!(running.contains("another process uses it"), "{running}");
    nodes[0].kill();

    let before = contents(&dir);
    let shown = said(&dir, &["rescue", "--lost", "2,3"]);
    for words in ["members 1,2,3; gone for good: 2,3", "What may be lost", "--yes"] {
        assert!(shown.contains(words), "{shown}");
    }
    let shown: Value =
        serde_json::from_str(&said(&dir, &["rescue", "--lost", "2,3", "--json"])).unwrap();
    assert_eq!((&shown["done"], &shown["refused"]), (&Value::Bool(false), &Value::Null));
    assert_eq!(shown["plan"]["0"]["rescued"]["by"], 1);
    let too_early = refusal(&dir, &["rescue", "--lost", "2", "--yes"]);
    assert!(too_early.contains("the logs of node 3 are needed"), "{too_early}");
    assert_eq!(contents(&dir), before, "showing and refusing change nothing");

    let done = said(&dir, &["rescue", "--lost", "2,3", "--yes"]);
    assert!(done.contains("Done."), "{done}");
    let again = refusal(&dir, &["rescue", "--lost", "2,3", "--yes"]);
    assert!(again.contains("nothing is to be rescued"), "{again}");

    let (first, _) = nodes.split_first_mut().unwrap();
    Node::start_again(&mut [first]);
    for name in &names[..4] {
        assert_eq!(consume(first, name, 50).await, (0..50).collect());
    }
    fill(first, &names[..4], 70).await;
    let members = |node: &Node| node.status().unwrap()["nodes"].as_array().unwrap().len();
    assert_eq!(members(first), 1);

    let joined = join_two(first);
    // Twice, as the new nodes have only what the first has given them.
    first.kill();
    Node::start_again(&mut [first]);
    let all = [first as &Node, &joined[0], &joined[1]];
    until_level(&all);
    for (nth, name) in names.iter().enumerate() {
        let count = if nth < 4 { 70 } else { 50 };
        let bodies = consume(all[nth % 3], name, count as usize).await;
        assert_eq!(bodies, (0..count).collect(), "{name}");
    }
}

/// Nodes 4 and 5 join, and vote in every group.
fn join_two(first: &Node) -> [Node; 2] {
    let at = first.status().unwrap()["nodes"][0]["address"].as_str().unwrap().to_owned();
    let join = |number: u64| {
        let address = node::free_address();
        said(first.data_dir(), &["add", &number.to_string(), &address]);
        Node::join("rescue", first, (number, &address), &at)
    };
    let joined = [join(4), join(5)];
    said(first.data_dir(), &["rebalance"]);
    until("all three vote everywhere", || {
        let Some(status) = first.status() else { return false };
        let voters = of_groups(&status, "voters");
        voters.values().all(|voters| *voters == serde_json::json!([1, 4, 5]))
    });
    joined
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_nodes_that_come_back_after_a_rescue_are_refused_even_together() {
    let mut nodes = Node::start_three("rescue-back");
    fill(&nodes[0], &queues(3), 20).await;
    until_level(&nodes.iter().collect::<Vec<_>>());
    nodes.iter_mut().for_each(Node::kill);
    said(nodes[0].data_dir(), &["rescue", "--lost", "2,3", "--yes"]);
    let (first, others) = nodes.split_first_mut().unwrap();
    Node::start_again(&mut [first]);
    // Both are a majority of what they were of.
    let ends = std::thread::scope(|scope| {
        let run = |node: &Node| node.run_to_its_end();
        let runs: Vec<_> = others.iter().map(|node| scope.spawn(move || run(node))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect::<Vec<_>>()
    });
    for (code, words) in ends {
        assert_eq!(code, Some(1), "{words}");
        assert!(words.contains("was removed"), "{words}");
    }
    let mut connection = first.connect().await;
    for name in queues(3) {
        until_ready(&mut connection, &name, 20).await;
    }
    fill(first, &queues(1), 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_three_need_no_rescue_and_take_none_unless_it_is_forced() {
    let mut nodes = Node::start_three("rescue-needless");
    fill(&nodes[0], &queues(4), 20).await;
    until_level(&nodes.iter().collect::<Vec<_>>());
    nodes.iter_mut().for_each(Node::kill);
    let files = surveys(&nodes[..2], "3");
    for (nth, node) in nodes[..2].iter().enumerate() {
        let other = files[1 - nth].to_str().unwrap();
        let why = refusal(node.data_dir(), &["rescue", "--lost", "3", "--with", other, "--yes"]);
        assert!(why.contains("nothing is to be rescued"), "{why}");
    }
    // Node 2 keeps its directory as it is: it follows node 1, which made it a member again.
    for (nth, node) in nodes[..2].iter().enumerate() {
        let other = files[1 - nth].to_str().unwrap();
        let wish = ["rescue", "--lost", "3", "--with", other, "--yes", "--force"];
        said(node.data_dir(), &wish);
    }
    remove(&files);
    let (living, _) = nodes.split_at_mut(2);
    let (first, second) = living.split_at_mut(1);
    Node::start_again(&mut [&mut first[0], &mut second[0]]);
    until("both vote everywhere", || {
        let Some(status) = first[0].status() else { return false };
        let voters = of_groups(&status, "voters");
        voters.values().all(|voters| *voters == serde_json::json!([1, 2]))
    });
    for (nth, name) in queues(4).iter().enumerate() {
        let node = if nth % 2 == 0 { &first[0] } else { &second[0] };
        assert_eq!(consume(node, name, 20).await, (0..20).collect(), "{name}");
    }
}

/// What nodes that live show, in files, which are to be removed.
fn surveys(nodes: &[Node], lost: &str) -> Vec<PathBuf> {
    let show = |node: &Node| {
        let file = node.data_dir().with_extension("survey");
        let text = said(node.data_dir(), &["rescue", "--lost", lost, "--json"]);
        std::fs::write(&file, text).unwrap();
        file
    };
    nodes.iter().map(show).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_go_on_with_all_that_either_has_and_the_rest_begins_empty() {
    let mut nodes = Node::start_cluster("rescue-five", 5);
    let names = queues(30);
    fill(&nodes[0], &names, 10).await;
    until_level(&nodes.iter().collect::<Vec<_>>());
    let kept: BTreeSet<u64> = nodes[..2]
        .iter()
        .flat_map(|node| of_groups(&node.status().unwrap(), "group").into_keys())
        .collect();
    let all = nodes[0].status().unwrap();
    let group_of = |name: &str| {
        let queue = all["queues"].as_array().unwrap().iter().find(|queue| queue["name"] == name);
        queue.unwrap()["group"].as_u64().unwrap()
    };
    nodes.iter_mut().for_each(Node::kill);
    for node in &nodes[2..] {
        std::fs::remove_dir_all(node.data_dir()).unwrap();
    }
    let lost = "3,4,5";
    let alone = refusal(nodes[0].data_dir(), &["rescue", "--lost", lost, "--yes"]);
    assert!(alone.contains("the logs of node 2 are needed"), "{alone}");
    let files = surveys(&nodes[..2], lost);
    for (nth, node) in nodes[..2].iter().enumerate() {
        let other = files[1 - nth].to_str().unwrap();
        said(node.data_dir(), &["rescue", "--lost", lost, "--with", other, "--yes"]);
    }
    remove(&files);
    let (living, _) = nodes.split_at_mut(2);
    let (first, second) = living.split_at_mut(1);
    Node::start_again(&mut [&mut first[0], &mut second[0]]);
    let mut connection = second[0].connect().await;
    let (mut whole, mut empty) = (0, 0);
    for name in &names {
        let count = if kept.contains(&group_of(name)) { 10 } else { 0 };
        if count > 0 {
            whole += 1
        } else {
            empty += 1
        }
        until_ready(&mut connection, name, count).await;
    }
    assert!(whole > 0 && empty > 0, "{whole} queues with all their messages, {empty} empty");
    // Everything goes on, over either node.
    fill(&first[0], &names[..15], 3).await;
    fill(&second[0], &names[15..], 3).await;
    for name in &names {
        let count = if kept.contains(&group_of(name)) { 13 } else { 3 };
        until_ready(&mut connection, name, count).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_of_five_forget_the_lost_nodes_and_then_go_on_with_every_group() {
    let mut nodes = Node::start_cluster("rescue-three", 5);
    let names = queues(30);
    fill(&nodes[0], &names, 10).await;
    until_level(&nodes.iter().collect::<Vec<_>>());
    for node in &mut nodes[3..] {
        node.kill();
        std::fs::remove_dir_all(node.data_dir()).unwrap();
    }
    until("the lost nodes are missed", || {
        let Some(status) = nodes[0].status() else { return false };
        status["nodes"].as_array().unwrap()[3..].iter().all(|node| node["connected"] == false)
    });
    // They are taken out at once; that some groups count on them all the same is what is waited for then.
    let removals = ["4", "5"].map(|number| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(["cluster", "--data-dir"]).arg(nodes[0].data_dir());
        command.args(["remove", number]).stderr(Stdio::null()).spawn().unwrap()
    });
    let members = |node: &Node| node.status().map(|it| it["nodes"].as_array().unwrap().len());
    until("the nodes are removed", || nodes[..3].iter().all(|node| members(node) == Some(3)));
    nodes[..3].iter_mut().for_each(Node::kill);
    for mut removal in removals {
        let _ = removal.kill();
        removal.wait().unwrap();
    }
    let files = surveys(&nodes[..3], "4,5");
    for (nth, node) in nodes[..3].iter().enumerate() {
        let mut arguments = vec!["rescue", "--lost", "4,5", "--yes"];
        for (_, other) in files.iter().enumerate().filter(|(other, _)| *other != nth) {
            arguments.extend(["--with", other.to_str().unwrap()]);
        }
        said(node.data_dir(), &arguments);
    }
    remove(&files);
    let mut living: Vec<&mut Node> = nodes[..3].iter_mut().collect();
    Node::start_again(&mut living);
    let mut connection = living[1].connect().await;
    for name in &names {
        until_ready(&mut connection, name, 10).await;
    }
    fill(living[2], &names, 3).await;
    for name in &names {
        until_ready(&mut connection, name, 13).await;
    }
    until("all three vote everywhere", || {
        let Some(status) = living[0].status() else { return false };
        let voters = of_groups(&status, "voters");
        voters.values().all(|voters| *voters == serde_json::json!([1, 2, 3]))
    });
}
