//! `publish` and `consume` as processes: what they say, acknowledge and end with when the other side does not do its
//! part.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes, and waits"
)]

#[path = "support/node.rs"]
mod node;

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use client::QueueSpec;
use node::{Node, PATIENCE, until_ready};
use rustix::process::Signal;

fn millrace(node: &Node, arguments: &[&str]) -> Child {
    let url = format!("amqp://guest:guest@127.0.0.1:{}", node.url.port);
    let command = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(&arguments[..1])
        .args(["--url", &url])
        .args(&arguments[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    command.unwrap()
}

fn ended(process: &mut Child) -> (ExitStatus, String) {
    let begun = Instant::now();
    let status = loop {
        match process.try_wait().unwrap() {
            Some(status) => break status,
            None if begun.elapsed() > PATIENCE => {
                process.kill().unwrap();
                panic!("it does not end");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let mut said = String::new();
    process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (status, said)
}

#[tokio::test]
async fn publish_gives_up_on_a_server_that_hangs_and_says_how_far_it_came() {
    let node = Node::start("hangs");
    let mut connection = node.connect().await;
    connection.declare_queue(&QueueSpec::durable("q")).await.unwrap();
    let mut publish = millrace(&node, &["publish", "--queue", "q", "--give-up-after", "1s"]);
    let mut lines = publish.stdin.take().unwrap();
    lines.write_all(b"one\n").unwrap();
    until_ready(&mut connection, "q", 1).await;
    node.stop();
    lines.write_all(b"two\n").unwrap();
    let (status, said) = ended(&mut publish);
    node.signal(Signal::CONT);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("the server confirmed nothing for 1 s"), "{said}");
    assert!(said.contains("have no answer and may have arrived"), "{said}");
}

#[tokio::test]
async fn publish_gives_up_on_a_server_that_blocks_publishers_and_says_why() {
    let node = Node::start_with("blocks", &["--set", "disk_free_limit=1000000GB"]);
    let arguments = ["publish", "--queue", "q", "--body", "one", "--give-up-after", "2s"];
    let (status, said) = ended(&mut millrace(&node, &arguments));
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("blocks publishers"), "{said}");
    assert!(said.contains("0 messages are confirmed"), "{said}");
}

#[tokio::test]
async fn publish_waits_at_the_start_only_if_it_is_told_to() {
    let mut node = Node::start("waits");
    node.signal(Signal::KILL);
    let arguments = ["publish", "--queue", "q", "--body", "one", "--wait-for-server"];
    let (status, said) = ended(&mut millrace(&node, &arguments[..5]));
    assert_eq!(status.code(), Some(1), "{said}");
    let mut waiting = millrace(&node, &[&arguments[..], &["60s"]].concat());
    // The node comes back somewhere else: nobody is at the old address, and the wait goes on.
    node.crash();
    assert!(waiting.try_wait().unwrap().is_none(), "it did not wait");
    waiting.kill().unwrap();
    waiting.wait().unwrap();
}

#[tokio::test]
async fn consume_acknowledges_what_its_reader_has_taken_and_ends_with_it() {
    let node = Node::start("taken");
    let line = "x".repeat(99);
    let mut publish = millrace(&node, &["publish", "--queue", "q"]);
    let lines = format!("{line}\n").repeat(100);
    publish.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let (status, said) = ended(&mut publish);
    assert!(status.success(), "{said}");
    let mut connection = node.connect().await;
    until_ready(&mut connection, "q", 100).await;

    // All of it fits the pipe. The reader takes three and a half lines, and ends.
    let mut consume = millrace(&node, &["consume", "--queue", "q"]);
    let mut output = consume.stdout.take().unwrap();
    output.read_exact(&mut [0; 350]).unwrap();
    drop(output);
    let (status, said) = ended(&mut consume);
    assert!(status.success(), "{said}");
    until_ready(&mut connection, "q", 97).await;
}
