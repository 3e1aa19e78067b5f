//! `millrace dev` as a process: a cluster that works when its lines are pasted, and of which nothing stays.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::node::addresses::free_addresses;
use crate::node::until;

/// Options for ports that are free for so many nodes.
fn ports(nodes: usize) -> Vec<String> {
    let options = ["--amqp-port", "--http-port", "--metrics-port", "--peer-port"];
    options.map(|option| [option.to_owned(), free_row(nodes).to_string()]).concat()
}

/// The first of so many free ports in a row.
fn free_row(count: usize) -> u16 {
    loop {
        let ports: Vec<u16> = free_addresses(count)
            .iter()
            .map(|address| address.rsplit_once(':').unwrap().1.parse().unwrap())
            .collect();
        if ports.windows(2).all(|pair| pair[0] + 1 == pair[1]) {
            return ports[0];
        }
    }
}

/// A directory that goes with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("millrace-test-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Self(dir)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn command(arguments: &[&str], ports: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.arg("dev").args(arguments).args(ports).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str], ports: &[String]) -> Output {
    command(arguments, ports).output().unwrap()
}

/// `millrace dev`, and what it says.
struct Dev {
    process: Child,
    out: BufReader<ChildStdout>,
}

impl Dev {
    fn start(arguments: &[&str], ports: &[String]) -> Self {
        let mut process = command(arguments, ports).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        Self { process, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.out.read_line(&mut line).unwrap() > 0, "it says no more");
        line.trim_end().to_owned()
    }

    /// The next event of this kind.
    fn event(&mut self, kind: &str) -> Value {
        loop {
            let event: Value = serde_json::from_str(&self.line()).unwrap();
            if event["event"] == kind {
                return event;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn exit_code(&mut self) -> Option<i32> {
        self.process.wait().unwrap().code()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether a process runs: what has ended, and whose parent has not heard of it, does not.
fn runs(process: u64) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Numbers of the nodes' processes.
fn processes(ready: &Value) -> Vec<u64> {
    let nodes = ready["nodes"].as_array().unwrap();
    let processes: Vec<u64> = nodes.iter().map(|node| node["pid"].as_u64().unwrap()).collect();
    assert!(processes.iter().all(|process| runs(*process)), "{ready}");
    processes
}

fn url(ready: &Value, node: usize) -> &str {
    ready["nodes"][node - 1]["amqp"].as_str().unwrap()
}

fn publish(url: &str, body: &str) {
    let line = ["publish", "--url", url, "--queue", "hello", "--body", body];
    let output = Command::new(env!("CARGO_BIN_EXE_millrace")).args(line).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn consume(url: &str) -> String {
    let line = ["consume", "--url", url, "--queue", "hello", "--count", "1"];
    let output = Command::new(env!("CARGO_BIN_EXE_millrace")).args(line).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// What a shell says to a line.
fn pasted(line: &str) -> String {
    let output = Command::new("sh").args(["-e", "-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_lines_of_a_cluster_work_when_they_are_pasted_and_ctrl_c_leaves_nothing() {
    let mut dev = Dev::start(&["--nodes", "3"], &ports(3));
    let first = dev.line();
    assert!(first.contains("3 nodes are ready: AMQP 0-9-1 on amqp://guest:guest@127.0.0.1:"));
    let mut said = Vec::new();
    while said.last().is_none_or(|line: &String| !line.starts_with("Stop: ")) {
        said.push(dev.line());
    }
    let after = |begin: &str| {
        let found = said.iter().find_map(|line| line.strip_prefix(begin));
        found.unwrap_or_else(|| panic!("no {begin}: {said:#?}")).trim()
    };
    pasted(after("Publish a message:"));
    assert_eq!(pasted(after("Consume it:")), "hello\n");
    let top = pasted(&format!("{} --once", after("Watch:")));
    assert!(top.contains("3 of 3 up") && top.contains("\nhello "), "{top}");
    let metrics = said.iter().find_map(|line| line.split("http://").nth(2)).unwrap();
    let mut socket = TcpStream::connect(metrics.split_once('/').unwrap().0).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.0\r\nHost: here\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("millrace_"), "{answer}");
    let root = PathBuf::from(after("Directory:").split_once(' ').unwrap().0);
    assert!(root.join("node-3.log").exists() && root.join("node-3").exists(), "{}", root.display());

    dev.signal(Signal::INT);
    assert_eq!(dev.exit_code(), Some(0));
    assert!(!root.exists(), "{} is left over", root.display());
}

#[test]
fn no_node_outlives_dev_and_a_kept_directory_is_gone_on_with() {
    let dir = Dir::new("dev-kept");
    let ports = ports(3);
    let mut dev = Dev::start(&["--nodes", "3", "--json", "--directory", dir.path()], &ports);
    let starting = dev.event("starting");
    assert_eq!((&starting["nodes"], &starting["kept"]), (&3.into(), &true.into()), "{starting}");
    let ready = dev.event("ready");
    assert_eq!((&ready["user"], &ready["password"]), (&"guest".into(), &"guest".into()));
    let nodes = processes(&ready);
    publish(url(&ready, 1), "kept");
    dev.signal(Signal::KILL);
    assert_eq!(dev.exit_code(), None);
    until("the nodes are gone", || nodes.iter().all(|node| !runs(*node)));

    // As many nodes as there were.
    let mut dev = Dev::start(&["--json", "--directory", dir.path()], &ports);
    let ready = dev.event("ready");
    let nodes = processes(&ready);
    assert_eq!((nodes.len(), consume(url(&ready, 3))), (3, "kept".to_owned()));

    // Two of three go on without the third.
    kill_process(Pid::from_raw(nodes[1] as i32).unwrap(), Signal::KILL).unwrap();
    let ended = dev.event("node_ended");
    assert_eq!(
        (&ended["node"], &ended["signal"], &ended["goes_on"]),
        (&2.into(), &9.into(), &true.into())
    );
    assert!(!ended["log"].as_array().unwrap().is_empty(), "{ended}");
    publish(url(&ready, 1), "without one");
    assert_eq!(consume(url(&ready, 3)), "without one");
    // One of three does not.
    kill_process(Pid::from_raw(nodes[0] as i32).unwrap(), Signal::KILL).unwrap();
    assert_eq!(dev.event("node_ended")["goes_on"], false);
    assert_eq!(dev.event("stopped")["exit_code"], 1);
    assert_eq!(dev.exit_code(), Some(1));
    assert!(nodes.iter().all(|node| !runs(*node)), "a node is left over");

    let other = output(&["--nodes", "5", "--directory", dir.path()], &[]);
    let told = String::from_utf8(other.stderr).unwrap();
    assert_eq!(other.status.code(), Some(2), "{told}");
    assert!(told.contains("holds 3 node(s)"), "{told}");
}

#[test]
fn a_port_that_is_taken_is_told_with_its_option_and_nothing_is_made() {
    let dir = Dir::new("dev-ports");
    let ports = ports(2);
    let first: u16 = ports[3].parse().unwrap();
    let _other = TcpListener::bind(("127.0.0.1", first + 1)).unwrap();
    let ended = output(&["--nodes", "2", "--directory", dir.path()], &ports);
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{told}");
    let words = format!("port {} (the HTTP API of node 2) is taken", first + 1);
    assert!(told.contains(&words) && told.contains("--http-port "), "{told}");
    assert!(!Path::new(dir.path()).exists(), "a directory was made");
}

#[test]
fn a_node_that_does_not_start_is_told_with_its_last_words() {
    let ended = output(&["--nodes", "2", "--set", "groups=0"], &ports(2));
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.contains("ended with exit code 1; the last lines of its log:"), "{told}");
    assert!(told.contains("groups is \"0\""), "{told}");
    assert!(ended.stdout.is_empty(), "it was never ready");
}
