//! The command as a process, numbered messages, and the judge of what arrived.

use std::io::{BufRead as _, BufReader, Read as _};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use amqp::Properties;
use client::{Address, Connection, Consumer, ConsumerOptions, Options, Publisher, Url};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::node::{Node, TIMEOUT};

/// A number, and whether the message has the mark of what may be there twice.
pub(super) type Number = (u32, bool);

/// `millrace move` as a process, which ends with the test.
pub(super) struct Move {
    child: Child,
    heard: mpsc::Receiver<Value>,
    lines: Vec<Value>,
    stderr: Option<std::thread::JoinHandle<String>>,
}

/// What it said, and how it ended.
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) lines: Vec<Value>,
    pub(super) stderr: String,
}

impl Ended {
    /// The last line about this event.
    pub(super) fn last(&self, event: &str) -> &Value {
        let found = self.lines.iter().rev().find(|line| line["event"] == event);
        found.unwrap_or_else(|| panic!("no `{event}`: {}", self.stderr))
    }
}

pub(super) fn url(of: &Url) -> String {
    format!("amqp://guest:guest@127.0.0.1:{}", of.port)
}

impl Move {
    pub(super) fn start(source: &Node, target: &Node, words: &[&str]) -> Self {
        Self::between(&url(&source.url), &url(&target.url), words)
    }

    pub(super) fn run(source: &Node, target: &Node, words: &[&str]) -> Ended {
        Self::start(source, target, words).ended()
    }

    pub(super) fn between(from: &str, to: &str, words: &[&str]) -> Self {
        Self::command(&[&["move", "--from", from, "--to", to, "--log", "warn"], words].concat())
    }

    /// Another command that copies.
    pub(super) fn command(words: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (said, heard) = mpsc::sync_channel(10_000);
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if said.send(line).is_err() {
                    return;
                }
            }
        });
        let mut errors = child.stderr.take().unwrap();
        let stderr = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            text
        });
        Self { child, heard, lines: Vec::new(), stderr: Some(stderr) }
    }

    /// Waits for a line of progress.
    pub(super) fn wait_until(&mut self, mut holds: impl FnMut(&Value) -> bool) {
        let begun = Instant::now();
        loop {
            let line = self.heard.recv_timeout(TIMEOUT).expect("it says how it goes");
            assert!(begun.elapsed() < TIMEOUT, "it goes on and on: {line}");
            let is_it = line["event"] == "progress" && holds(&line);
            self.lines.push(line);
            if is_it {
                return;
            }
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(super) fn memory_bytes(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Whether it has ended.
    pub(super) fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    pub(super) fn ended(mut self) -> Ended {
        let begun = Instant::now();
        while !self.is_over() {
            assert!(begun.elapsed() < TIMEOUT, "it does not end");
            // It is not to wait until somebody hears it.
            self.lines.extend(self.heard.try_iter());
            std::thread::sleep(Duration::from_millis(20));
        }
        let code = self.child.wait().unwrap().code();
        let stderr = self.stderr.take().unwrap().join().unwrap();
        self.lines.extend(self.heard.iter());
        Ended { code, lines: std::mem::take(&mut self.lines), stderr }
    }

    /// `kill -9`.
    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Move {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Publishes a message for each number, persistent, and waits for all confirms.
pub(super) async fn publish(node: &Node, queue: &str, numbers: Range<u32>) {
    let mut publisher = Publisher::open(&node.url, &Options::named("test"), 1000).await.unwrap();
    let persistent = Properties { delivery_mode: Some(2), ..Properties::default() };
    for number in numbers {
        let body = number.to_string();
        publisher.publish(Address::queue(queue), &persistent, body.as_bytes()).await.unwrap();
    }
    assert!(publisher.close().await.unwrap().is_clean());
}

/// These numbers, each once and without a mark.
pub(super) fn numbers(numbers: Range<u32>) -> Vec<Number> {
    numbers.map(|number| (number, false)).collect()
}

/// Takes all that a queue has.
pub(super) async fn taken(node: &Node, queue: &str) -> Vec<Number> {
    let mut connection: Connection = node.connect().await;
    let count = connection.look_up_queue(queue).await.unwrap().message_count;
    let how = ConsumerOptions { no_ack: true, ..ConsumerOptions::default() };
    let mut consumer =
        Consumer::open(&node.url, &Options::named("test"), queue, how).await.unwrap();
    let mut got = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let delivery = consumer.next().await.unwrap();
        let number = std::str::from_utf8(&delivery.body).unwrap().parse().unwrap();
        let headers = delivery.properties().unwrap().headers.unwrap_or_default();
        let is_marked = headers.iter().any(|(name, _)| name == "x-millrace-repeat");
        got.push((number, is_marked));
    }
    consumer.close().await.unwrap();
    got
}

/// Nothing is lost, what is there twice is marked, and first copies come in order.
pub(super) fn judge(got: &[Number], count: u32) {
    let mut next = 0;
    let mut unmarked = vec![0; count as usize];
    for &(number, is_marked) in got {
        assert!(number <= next, "{next} comes after {number}, or is lost");
        next = next.max(number + 1);
        unmarked[number as usize] += u32::from(!is_marked);
    }
    assert_eq!(next, count, "the last ones are lost");
    let twice = unmarked.iter().position(|copies| *copies > 1);
    assert_eq!(twice, None, "this number is there twice, and nothing says so");
}
