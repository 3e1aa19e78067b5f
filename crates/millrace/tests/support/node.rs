//! Brokers as processes, for tests of the whole.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    dead_code,
    reason = "a test of the whole: it starts processes in directories of their own, and waits; no test needs \
              everything"
)]

#[path = "../../../cluster/tests/common/addresses.rs"]
pub(crate) mod addresses;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use amqp::{FieldTable, FieldValue};
use client::{Connection, Options, QueueSpec, Url};
use serde_json::Value;

/// Longer than anything here takes; a test that waits so long has failed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);
/// Between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(50);

/// A broker in a directory that goes with it.
pub(crate) struct Node {
    dir: PathBuf,
    arguments: Vec<String>,
    process: Child,
    pub(crate) url: Url,
}

impl Node {
    pub(crate) fn start(name: &str) -> Self {
        Self::launch_all(name, &[Vec::new()]).remove(0)
    }

    /// With more arguments of `serve`.
    pub(crate) fn start_with(name: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self::launch_all(name, &[arguments]).remove(0)
    }

    /// On a directory that holds what `fill` puts there.
    pub(crate) fn start_on(name: &str, arguments: &[&str], fill: impl FnOnce(&Path)) -> Self {
        let dir = std::env::temp_dir().join(format!("millrace-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        fill(&dir);
        let arguments: Vec<_> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut process = launch(&dir, &arguments);
        let url = url_of(&mut process);
        Self { dir, arguments, process, url }
    }

    /// Nodes of a cluster that was restored into these directories, each at its address.
    pub(crate) fn start_restored(dirs: &[String], peers: &[String]) -> Vec<Self> {
        let launched: Vec<_> = dirs
            .iter()
            .zip(peers)
            .map(|(dir, address)| {
                let arguments = vec!["--peer-listen".to_owned(), address.clone()];
                let dir = PathBuf::from(dir);
                (launch(&dir, &arguments), dir, arguments)
            })
            .collect();
        let ready = |(mut process, dir, arguments): (Child, _, _)| {
            let url = url_of(&mut process);
            Self { dir, arguments, process, url }
        };
        launched.into_iter().map(ready).collect()
    }

    /// In a process that may have so many files open.
    pub(crate) fn start_with_files(name: &str, files: u32) -> Self {
        let dir = std::env::temp_dir().join(format!("millrace-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let script = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_millrace")]);
        let mut process = spawn(command, &dir, &[]);
        let url = url_of(&mut process);
        Self { dir, arguments: Vec::new(), process, url }
    }

    /// Kills the process and starts another on what is left, with other arguments.
    pub(crate) fn restart_with(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        self.crash();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The next start is with these arguments, too.
    pub(crate) fn add_arguments(&mut self, words: &[&str]) {
        self.arguments.extend(words.iter().map(|word| (*word).to_owned()));
    }

    /// The next start is without these arguments.
    pub(crate) fn forget_arguments(&mut self, words: &[&str]) {
        self.arguments.retain(|argument| !words.contains(&argument.as_str()));
    }

    /// Waits until the process ends by itself: its exit code.
    pub(crate) fn wait_for_end(&mut self) -> Option<i32> {
        let begun = Instant::now();
        while self.is_running() {
            assert!(begun.elapsed() < TIMEOUT, "the node goes on");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.process.wait().unwrap().code()
    }

    /// Whether the process runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    /// Three nodes that are one broker.
    pub(crate) fn start_three(name: &str) -> Vec<Self> {
        Self::start_cluster(name, 3)
    }

    /// So many nodes that are one broker.
    pub(crate) fn start_cluster(name: &str, count: usize) -> Vec<Self> {
        Self::start_cluster_with(name, count, &[])
    }

    /// The same, each with more arguments of `serve`.
    pub(crate) fn start_cluster_with(name: &str, count: usize, more: &[&str]) -> Vec<Self> {
        let more: Vec<_> = more.iter().map(|word| (*word).to_owned()).collect();
        Self::start_cluster_each(name, count, |_| more.clone())
    }

    /// The same, each with arguments of its own: by its number, from 1 on.
    pub(crate) fn start_cluster_each(
        name: &str,
        count: usize,
        more: impl Fn(usize) -> Vec<String>,
    ) -> Vec<Self> {
        let peers: Vec<_> = (1..)
            .zip(addresses::free_addresses(count))
            .map(|(node, address)| format!("{node}={address}"))
            .collect();
        let peers = peers.join(",");
        let arguments = |node: usize| {
            let place = ["--node-id", &node.to_string(), "--peers", &peers].map(str::to_owned);
            place.into_iter().chain(more(node)).collect()
        };
        let nodes: Vec<_> = (1..=count).map(arguments).collect();
        Self::launch_all(name, &nodes)
    }

    /// One that joins a cluster through `member`, under a number and an address that were added.
    pub(crate) fn join(
        name: &str,
        member: &Self,
        (number, address): (u64, &str),
        at: &str,
    ) -> Self {
        let secret = member.dir.join("SECRET");
        let setting = format!("cluster_secret_file={}", secret.display());
        let number = number.to_string();
        let place = ["--node-id", &number, "--peer-listen", address, "--join", at];
        Self::start_with(&format!("{name}-{number}"), &[&place[..], &["--set", &setting]].concat())
    }

    pub(crate) fn data_dir(&self) -> &Path {
        &self.dir
    }

    /// Kills the process, and starts none.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts processes on what is left of nodes that do not run. They are ready together, or none is.
    pub(crate) fn start_again(nodes: &mut [&mut Self]) {
        for node in nodes.iter_mut() {
            node.process = launch(&node.dir, &node.arguments);
        }
        for node in nodes {
            node.url = url_of(&mut node.process);
        }
    }

    /// Runs the node until it ends: its exit code, and what it says.
    pub(crate) fn run_to_its_end(&self) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.stderr(Stdio::piped());
        let process = spawn(command, &self.dir, &self.arguments);
        let output = process.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// They are ready together, or none is.
    fn launch_all(name: &str, nodes: &[Vec<String>]) -> Vec<Self> {
        let base = format!("millrace-{name}-{}", std::process::id());
        let launched: Vec<_> = (1..)
            .zip(nodes)
            .map(|(node, arguments)| {
                let dir = std::env::temp_dir().join(format!("{base}-{node}"));
                let _ = std::fs::remove_dir_all(&dir);
                (launch(&dir, arguments), dir, arguments.clone())
            })
            .collect();
        let ready = |(mut process, dir, arguments): (Child, _, _)| {
            let url = url_of(&mut process);
            Self { dir, arguments, process, url }
        };
        launched.into_iter().map(ready).collect()
    }

    /// Kills the process and starts another on what is left.
    pub(crate) fn crash(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = launch(&self.dir, &self.arguments);
        self.url = url_of(&mut self.process);
    }

    /// What `millrace cluster status` says of it; nothing while it does not answer.
    pub(crate) fn status(&self) -> Option<Value> {
        serde_json::from_slice(&cluster(&self.dir, &["status", "--json"]).stdout).ok()
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// What Linux says of its memory: `VmRSS` now, `VmHWM` at most so far.
    pub(crate) fn memory_bytes(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let status = status.unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib * 1024
    }

    /// Sends the process a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Stops the process (SIGSTOP), and waits until all of its threads stand: where there is much else to do, others
    /// go on until the one that takes the signal has its turn.
    pub(crate) fn stop(&self) {
        use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
        self.signal(Signal::STOP);
        let pid = WaitId::Pid(Pid::from_child(&self.process));
        waitid(pid, WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT).unwrap();
    }

    pub(crate) async fn connect(&self) -> Connection {
        let begun = Instant::now();
        loop {
            // A machine with much else to do may take longer than a client waits.
            match Connection::open(&self.url, &Options::named("test")).await {
                Ok(connection) => return connection,
                Err(error) => assert!(begun.elapsed() < TIMEOUT, "{error}"),
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// An address for a node's peer port.
pub(crate) fn free_address() -> String {
    addresses::free_addresses(1).remove(0)
}

/// Runs a command of `millrace cluster` on a directory.
pub(crate) fn cluster(data_dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["cluster", "--data-dir"])
        .arg(data_dir)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Waits until this holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TIMEOUT, "waited in vain until {what}");
        std::thread::sleep(LOOK);
    }
}

fn launch(dir: &Path, arguments: &[String]) -> Child {
    spawn(Command::new(env!("CARGO_BIN_EXE_millrace")), dir, arguments)
}

fn spawn(mut command: Command, dir: &Path, arguments: &[String]) -> Child {
    command
        .args(["serve", "--set", "log=error", "--amqp", "127.0.0.1:0", "--data-dir"])
        .arg(dir)
        .args(arguments)
        // Nobody goes to the version to come who is not told to.
        .env("MILLRACE_TRIAL", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a process says when it is ready.
fn url_of(process: &mut Child) -> Url {
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.split_whitespace().find(|word| word.starts_with("amqp://"));
    url.unwrap_or_else(|| panic!("the broker says {line:?}")).parse().unwrap()
}

pub(crate) fn text(text: &str) -> FieldValue {
    FieldValue::LongStr(text.into())
}

/// A queue whose dead letters go to another by its name.
pub(crate) fn to(name: &str, target: &str, more: &[(&str, FieldValue)]) -> QueueSpec {
    let mut arguments = FieldTable::new();
    arguments.insert("x-dead-letter-exchange", text(""));
    arguments.insert("x-dead-letter-routing-key", text(target));
    for (key, value) in more {
        arguments.insert(*key, value.clone());
    }
    QueueSpec { arguments, ..QueueSpec::durable(name) }
}

/// Waits until so many messages are ready in a queue.
pub(crate) async fn until_ready(connection: &mut Connection, queue: &str, count: u32) {
    let begun = Instant::now();
    loop {
        let ready = connection.look_up_queue(queue).await.unwrap().message_count;
        if ready == count {
            return;
        }
        assert!(begun.elapsed() < TIMEOUT, "{ready} messages in {queue}, not {count}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
