//! Nodes that want to join, and what they are told.

use machine::NodeInfo;

use super::*;
use crate::io::peers::ask;

fn joiner() -> NodeInfo {
    NodeInfo { node: NodeId(4), address: "d:7000".to_owned(), incarnation: 77 }
}

/// Decides about the next node that wants to join, on a thread of its own.
fn decide(
    node: &Node,
    reply: Result<Vec<NodeInfo>, String>,
) -> std::thread::JoinHandle<Option<NodeInfo>> {
    let mut admissions = node.peers.admissions().unwrap();
    std::thread::spawn(move || {
        let admission = admissions.blocking_recv()?;
        admission.reply.send(reply).unwrap();
        Some(admission.node)
    })
}

#[test]
fn a_node_that_is_taken_in_learns_what_it_needs() {
    let member = Start::node(1).start();
    let decided = decide(&member, Ok(vec![joiner()]));
    let address = member.peers.local().to_string();
    let (cluster, admitted) = ask(&address, &joiner(), &Secret::new("s3cret"), None).unwrap();
    assert_eq!(cluster, CLUSTER);
    assert_eq!(admitted.groups_per_node, 8);
    assert_eq!(admitted.founders, [(NodeId(1), "a:7000".to_owned())]);
    assert_eq!(admitted.members, [joiner()]);
    assert_eq!(decided.join().unwrap(), Some(joiner()));
}

#[test]
fn a_node_that_is_not_taken_in_is_told_why() {
    let member = Start::node(1).start();
    let address = member.peers.local().to_string();
    let decided = decide(&member, Err("number 4 is in use".to_owned()));
    assert_eq!(
        ask(&address, &joiner(), &Secret::new("s3cret"), None).unwrap_err(),
        "number 4 is in use"
    );
    decided.join().unwrap();
    // Nobody decides any more.
    let why = ask(&address, &joiner(), &Secret::new("s3cret"), None).unwrap_err();
    assert!(why.contains("name another member with --join"), "{why}");
    let why = ask(&address, &joiner(), &Secret::new("guess"), None).unwrap_err();
    assert!(why.contains("the same cluster_secret"), "{why}");
    let same = NodeInfo { node: NodeId(1), ..joiner() };
    let why = ask(&address, &same, &Secret::new("s3cret"), None).unwrap_err();
    assert!(why.contains("its own --node-id"), "{why}");
    drop(member);
    let why = ask("127.0.0.1:1", &joiner(), &Secret::new("guess"), None).unwrap_err();
    assert!(why.contains("--join"), "{why}");
}
