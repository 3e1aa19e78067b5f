//! `millrace doctor` as a process: what it says of a damaged directory, and what it ends with.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::node::{Node, TIMEOUT};
use amqp::Properties;
use client::{Address, QueueSpec};

const BODY: &[u8] = b"to-be-damaged";

fn doctor(node: &Node) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["doctor", "--deep", "--data-dir"])
        .arg(node.data_dir())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), said + &String::from_utf8(output.stderr).unwrap())
}

/// The segments that hold these bytes, and where.
fn in_segments(directory: &Path, body: &[u8]) -> Vec<(PathBuf, usize)> {
    let mut found = Vec::new();
    for group in std::fs::read_dir(directory.join("groups")).unwrap() {
        for file in std::fs::read_dir(group.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let is_segment = path.file_name().unwrap().to_str().unwrap().starts_with("seg-");
            // It may be gone by now.
            let bytes = std::fs::read(&path).ok().filter(|_| is_segment).unwrap_or_default();
            let at = bytes.windows(body.len()).position(|window| window == body);
            found.extend(at.map(|at| (path, at)));
        }
    }
    found
}

/// Whether the log holds these bytes. A log file goes when what is in it lies in segments that checkpoints name.
fn in_log(directory: &Path, body: &[u8]) -> bool {
    let files = std::fs::read_dir(directory.join("wal")).unwrap();
    let holds = |path: PathBuf| {
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes.windows(body.len()).any(|window| window == body)
    };
    files.map(|file| file.unwrap().path()).any(holds)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// A node that was killed when a message of queue `orders` lay in a segment, and in the log no more.
async fn used(name: &str) -> Node {
    let small = ["--set", "wal_file_bytes=8MiB", "--set", "message_bytes_max=1MiB"];
    let mut node = Node::start_with(name, &small);
    let mut connection = node.connect().await;
    let persistent = Properties { delivery_mode: Some(2), ..Properties::default() };
    for queue in ["orders", "busy"] {
        connection.declare_queue(&QueueSpec::durable(queue)).await.unwrap();
    }
    connection.publish(Address::queue("orders"), &persistent, BODY).await.unwrap();
    let begun = Instant::now();
    let filler = vec![b'x'; 100_000];
    while in_segments(node.data_dir(), BODY).is_empty() || in_log(node.data_dir(), BODY) {
        assert!(begun.elapsed() < TIMEOUT, "it is not moved to a segment");
        for _ in 0..20 {
            connection.publish(Address::queue("busy"), &persistent, &filler).await.unwrap();
        }
        // The answer comes when those before have arrived.
        connection.look_up_queue("busy").await.unwrap();
    }
    node.kill();
    node
}

#[tokio::test]
async fn a_damaged_segment_is_told_by_the_vhost_and_the_name_of_its_queue() {
    let node = used("doctor-segment").await;
    assert_eq!(doctor(&node).0, Some(0));
    for (path, at) in in_segments(node.data_dir(), BODY) {
        flip(&path, at);
    }
    let (code, said) = doctor(&node);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("of queue \"orders\" of vhost \"/\" cannot be read"), "{said}");
    assert!(!said.contains("can start"), "{said}");
}

#[test]
fn a_small_file_that_is_damaged_or_gone_is_named_and_nothing_can_start() {
    let mut node = Node::start("doctor-notes");
    node.kill();
    assert_eq!(doctor(&node).0, Some(0));
    for name in ["BOOT", "FOUNDING"] {
        let path = node.data_dir().join(name);
        let sound = std::fs::read(&path).unwrap();
        flip(&path, sound.len() / 2);
        let (code, said) = doctor(&node);
        assert_eq!(code, Some(1), "{name}: {said}");
        assert!(said.contains(name) && !said.contains("can start"), "{name}: {said}");
        std::fs::write(&path, sound).unwrap();
    }
    std::fs::remove_file(node.data_dir().join("BOOT")).unwrap();
    let (code, said) = doctor(&node);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("BOOT is missing"), "{said}");
    assert!(!said.contains("A node can start from it"), "{said}");
}
