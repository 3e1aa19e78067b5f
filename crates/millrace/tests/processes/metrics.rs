//! What a node serves to whoever watches it.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::node::{Node, free_address, until};

/// What it answers: status line, headers and body. Nothing: nobody is there yet.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn status(address: &str, path: &str) -> u16 {
    let answer = get(address, path).unwrap();
    answer.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The value of a metric, with its label if it has one.
fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse().unwrap()
}

/// Runs a client's command: what it prints.
fn client(arguments: &[&str], input: &str) -> String {
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
    assert_eq!((status(&address, "/health"), status(&address, "/ready")), (200, 200));
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
    assert!(!after.contains("millrace_peer_"), "a node without a cluster has no peers");
    assert!(after.ends_with("# EOF\n"));
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
    let text = get(&metrics, "/metrics").unwrap();
    assert_eq!(value(&text, "millrace_peer_refused_total"), 0.0);
}
