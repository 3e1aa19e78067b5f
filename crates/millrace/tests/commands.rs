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
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use client::QueueSpec;
use node::{Node, TIMEOUT, until_ready};
use rustix::process::Signal;

fn millrace(node: &Node, arguments: &[&str]) -> Child {
    millrace_at(node.url.port, arguments)
}

fn millrace_at(port: u16, arguments: &[&str]) -> Child {
    let url = format!("amqp://guest:guest@127.0.0.1:{port}");
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
            None if begun.elapsed() > TIMEOUT => {
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
    assert!(said.contains("the server has confirmed nothing for 1 s"), "{said}");
    assert!(said.contains("have no answer and may have arrived"), "{said}");
}

#[tokio::test]
async fn publish_gives_up_on_a_server_that_blocks_publishers_and_says_why() {
    let node = Node::start_with("blocks", &["--set", "disk_free_limit=1000000GB"]);
    let arguments = ["publish", "--queue", "q", "--body", "one", "--give-up-after", "2s"];
    let (status, said) = ended(&mut millrace(&node, &arguments));
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("has blocked publishers"), "{said}");
    assert!(said.contains("0 messages were confirmed"), "{said}");
}

/// A way to a port for clients. The first of them that sends `body` loses its connection just before that arrives, so
/// what the broker answers never reaches it.
fn way_that_breaks(to: u16, body: &'static [u8]) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut is_whole = true;
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).unwrap();
            let (mut answers, mut back) =
                (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
            // One client after the other: whoever comes waits until this one is gone.
            is_whole &= pass_on(client, server, is_whole.then_some(body));
        }
    });
    port
}

/// Passes on what a client sends until it ends, and whether it did so by itself.
fn pass_on(mut client: TcpStream, mut server: TcpStream, breaks_at: Option<&[u8]>) -> bool {
    let mut buffer = [0; 64 * 1024];
    loop {
        let read = client.read(&mut buffer).unwrap_or(0);
        let sent = &buffer[..read];
        let is_it = |body: &[u8]| sent.windows(body.len()).any(|part| part == body);
        let breaks = breaks_at.is_some_and(is_it);
        if breaks {
            client.shutdown(Shutdown::Both).unwrap();
        }
        if read == 0 || server.write_all(sent).is_err() || breaks {
            let _ = server.shutdown(Shutdown::Write);
            return !breaks;
        }
    }
}

#[tokio::test]
async fn publish_says_what_it_sent_twice_and_ends_with_3_if_that_was_not_to_be() {
    let node = Node::start("twice");
    let mut connection = node.connect().await;
    let cases: [(&str, &[&str], i32); 2] =
        [("no matter", &[], 0), ("matters", &["--fail-on-repeats"], 3)];
    for (queue, more, code) in cases {
        let port = way_that_breaks(node.url.port, b"twice");
        let arguments = ["publish", "--queue", queue, "--body", "twice"];
        let (status, said) = ended(&mut millrace_at(port, &[&arguments, more].concat()));
        assert_eq!(status.code(), Some(code), "{said}");
        assert!(said.contains("1 messages confirmed"), "{said}");
        let last = said.trim_end().lines().next_back().unwrap_or_default();
        assert!(
            last.contains("1 messages were sent again after the connection was lost"),
            "{said}"
        );
        assert!(last.contains("may be stored twice"), "{said}");
        // And so it was.
        until_ready(&mut connection, queue, 2).await;
    }
}

#[tokio::test]
async fn publish_that_was_not_interrupted_sent_nothing_twice() {
    let node = Node::start("once");
    let arguments = ["publish", "--queue", "q", "--body", "once", "--fail-on-repeats"];
    let (status, said) = ended(&mut millrace(&node, &arguments));
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(!said.contains("twice"), "{said}");
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
