//! A cluster is upgraded node by node: real processes, of which some are held at the version of before.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

#[path = "support/node.rs"]
mod node;

use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use amqp::Properties;
use client::{Address, Consumer, ConsumerOptions, Options, Outcome, Publisher, QueueSpec, Url};
use node::{Node, TIMEOUT, cluster, until};
use rustix::process::Signal;
use serde_json::Value;

/// The programs before and after an upgrade: what makes them of this program, and the version that the older reads.
struct Programs {
    old: &'static [&'static str],
    new: &'static [&'static str],
    before: u64,
}

/// To the newest version that there is.
const TO_NEWEST: Programs =
    Programs { old: &["--set", "cluster_version_max=4"], new: &[], before: 4 };
/// To the version after it, which has one command more.
const TO_COME: Programs = Programs {
    old: &[],
    new: &["--set", "cluster_version_max=trial"],
    before: machine::Version::NEWEST.0 as u64,
};
/// Exit code of a program that is too old for its cluster.
const EXIT_OUTDATED: i32 = 78;

fn version(node: &Node) -> Option<u64> {
    node.status()?["version"].as_u64()
}

/// Whether every group has a leader, and none of its replicas is behind.
fn is_level(nodes: &[Node]) -> bool {
    nodes.iter().all(|node| {
        let Some(status) = node.status() else { return false };
        let groups = status["groups"].as_array().unwrap();
        let is_up = |node: &Value| node["connected"] == Value::Bool(true);
        status["nodes"].as_array().unwrap().iter().all(is_up)
            && groups.iter().all(|group| {
                let lag = group["lag"].as_object().unwrap();
                !group["leader"].is_null() && lag.values().all(|lag| lag.as_u64() < Some(100))
            })
    })
}

impl Programs {
    /// A cluster of three nodes with the old program.
    fn start_three(&self, name: &str) -> Vec<Node> {
        let nodes = Node::start_cluster_with(name, 3, self.old);
        let is_there = |node: &Node| version(node) == Some(self.before);
        until("all agree on the version of before", || nodes.iter().all(is_there));
        nodes
    }

    /// Ends one process and starts another on the same directory, as an upgrade does.
    fn upgrade(&self, node: &mut Node) {
        node.signal(Signal::TERM);
        node.wait_for_end();
        self.start_newer(node);
    }

    fn start_newer(&self, node: &mut Node) {
        node.forget_arguments(self.old);
        node.add_arguments(self.new);
        Node::start_again(&mut [node]);
    }

    fn is_raised(&self, node: &Node) -> bool {
        version(node) > Some(self.before)
    }
}

/// Asks a node for the command that is new in the version to come: what it answers.
fn remark(node: &Node) -> Value {
    let mut socket = UnixStream::connect(node.data_dir().join("control.sock")).unwrap();
    socket.write_all(b"{\"command\":\"remark\",\"text\":\"new\"}\n").unwrap();
    let mut answer = String::new();
    BufReader::new(socket).read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap()
}

/// Publishes these numbers to a queue, until it is told to stop: the first that is not published. Any error fails the
/// test.
async fn publish(url: Url, queue: &str, numbers: Range<u32>, is_over: Arc<AtomicBool>) -> u32 {
    let mut publisher = Publisher::open(&url, &Options::named("upgrade"), 100).await.unwrap();
    let persistent = Properties { delivery_mode: Some(2), ..Properties::default() };
    let mut next = numbers.start;
    while next < numbers.end && !is_over.load(Ordering::Relaxed) {
        let body = next.to_string();
        let address = Address::queue(queue);
        publisher.publish(address, &persistent, body.as_bytes()).await.unwrap();
        next += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let settled = publisher.close().await.unwrap();
    assert!(settled.is_clean(), "{settled:?}");
    next
}

/// Consumes as many messages of a queue as there are: each once, in order.
async fn consume(node: &Node, queue: &str, count: u32) {
    let how = ConsumerOptions { prefetch: 100, ..ConsumerOptions::default() };
    let mut consumer =
        Consumer::open(&node.url, &Options::named("upgrade"), queue, how).await.unwrap();
    for number in 0..count {
        let next = tokio::time::timeout(TIMEOUT, consumer.next()).await;
        let delivery = next.expect("the next message").unwrap();
        assert_eq!(str::from_utf8(&delivery.body).unwrap(), number.to_string());
        consumer.settle(delivery.tag, Outcome::Done).unwrap();
    }
    consumer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_are_upgraded_one_after_the_other_and_clients_of_the_others_see_no_error() {
    let nodes = rolls("upgrade", &TO_NEWEST).await;
    drop(nodes);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_are_upgraded_to_a_version_with_one_command_more_which_is_used_then() {
    let nodes = rolls("upgrade-to-come", &TO_COME).await;
    tokio::task::block_in_place(|| {
        assert!(remark(&nodes[0])["done"].is_string());
        until("nobody is behind", || is_level(&nodes));
    });
}

/// Upgrades one node after the other, under load.
async fn rolls(name: &str, programs: &Programs) -> Vec<Node> {
    let mut nodes = programs.start_three(name);
    nodes[0].connect().await.declare_queue(&QueueSpec::durable("orders")).await.unwrap();
    let mut count = 0;
    for nth in 0..3 {
        // Clients of the node that goes would have to connect elsewhere; these are at another.
        let is_over = Arc::new(AtomicBool::new(false));
        let url = nodes[(nth + 1) % 3].url.clone();
        let load = tokio::spawn(publish(url, "orders", count..u32::MAX, Arc::clone(&is_over)));
        tokio::task::block_in_place(|| {
            assert_eq!(version(&nodes[0]), Some(programs.before), "raised before all can read it");
            let refused = remark(&nodes[nth]);
            assert!(refused["refused"].is_string(), "used before all can read it: {refused}");
            programs.upgrade(&mut nodes[nth]);
            until("nobody is behind", || is_level(&nodes));
        });
        is_over.store(true, Ordering::Relaxed);
        count = load.await.unwrap();
    }
    tokio::task::block_in_place(|| {
        until("all agree on the new version", || nodes.iter().all(|node| programs.is_raised(node)));
    });
    assert!(count > 100, "{count}");
    consume(&nodes[0], "orders", count).await;
    nodes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_too_old_after_a_forced_raise_ends_and_goes_on_after_its_upgrade() {
    forces("upgrade-forced", &TO_NEWEST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_today_ends_where_a_newer_version_was_raised_by_force_and_goes_on_later() {
    let nodes = forces("upgrade-forced-to-come", &TO_COME).await;
    tokio::task::block_in_place(|| assert!(remark(&nodes[2])["done"].is_string()));
}

/// Raises the version while one node is too old for it.
async fn forces(name: &str, programs: &Programs) -> Vec<Node> {
    let mut nodes = programs.start_three(name);
    nodes[0].connect().await.declare_queue(&QueueSpec::durable("orders")).await.unwrap();
    programs.upgrade(&mut nodes[0]);
    programs.upgrade(&mut nodes[1]);
    until("nobody is behind", || is_level(&nodes));
    let refused = cluster(nodes[0].data_dir(), &["raise"]);
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && why.contains("node(s) 3"), "{why}");
    assert_eq!(version(&nodes[0]), Some(programs.before));

    // One that leads would not have logged it.
    until("an upgraded node leads the catalog", || {
        let forced = cluster(nodes[0].data_dir(), &["raise", "--force"]);
        let why = String::from_utf8(forced.stderr).unwrap();
        let is_done = forced.status.success();
        assert!(is_done || why.contains("node 3 leads the catalog"), "{why}");
        is_done
    });
    assert_eq!(nodes[2].wait_for_end(), Some(EXIT_OUTDATED));
    until("the others agree", || nodes[..2].iter().all(|node| programs.is_raised(node)));
    let count = publish(nodes[0].url.clone(), "orders", 0..200, Arc::default()).await;

    let (code, words) = nodes[2].run_to_its_end();
    assert!(code.is_some_and(|code| code != 0), "{code:?}: {words}");
    assert!(words.contains("upgrade this node"), "{words}");
    programs.start_newer(&mut nodes[2]);
    until("nobody is behind", || is_level(&nodes));
    assert!(programs.is_raised(&nodes[2]));
    consume(&nodes[2], "orders", count).await;
    nodes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_too_old_for_a_directory_says_so_and_changes_nothing() {
    let mut node = Node::start("upgrade-back");
    until("it is raised", || TO_NEWEST.is_raised(&node));
    node.kill();
    node.add_arguments(TO_NEWEST.old);
    let (code, words) = node.run_to_its_end();
    assert!(code.is_some_and(|code| code != 0), "{code:?}: {words}");
    assert!(words.contains("upgrade this node"), "{words}");
    node.forget_arguments(TO_NEWEST.old);
    Node::start_again(&mut [&mut node]);
}
