//! The process around a node: its signals, its port, and what becomes of its words.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything here takes; a test that waits so long has failed.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(20);

/// A directory that goes with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("millrace-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("the process has ended", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// What a node says when it is ready: its address.
    fn address(&mut self) -> String {
        let mut line = String::new();
        let mut out = BufReader::new(self.0.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        // What more it says is read, too: it must not wait for us.
        std::thread::spawn(move || out.read_to_string(&mut String::new()));
        line.split_once('@').unwrap_or_else(|| panic!("the node says {line:?}")).1.trim().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIMEOUT, "waited in vain until {what}");
        std::thread::sleep(LOOK);
    }
}

fn millrace(arguments: &[&str], stderr: impl Into<Stdio>) -> Process {
    let child = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn();
    Process(child.unwrap())
}

fn output(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millrace")).args(arguments).output().unwrap()
}

fn node(dir: &Path, log: &str, stderr: impl Into<Stdio>) -> Process {
    let (dir, log) = (dir.to_str().unwrap(), format!("log={log}"));
    millrace(&["serve", "--amqp", "127.0.0.1:0", "--data-dir", dir, "--set", &log], stderr)
}

/// A client that has said its first word, has been answered, and says no more.
fn silent_client(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"AMQP\x00\x00\x09\x01").unwrap();
    stream.read_exact(&mut [0; 8]).unwrap();
    stream
}

/// Standard errors that take nothing.
fn deaf() -> [(&'static str, Stdio); 2] {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    [
        ("a full disk", File::options().write(true).open("/dev/full").unwrap().into()),
        ("a pipe that nobody reads", writer.into()),
    ]
}

#[test]
fn a_node_outlives_the_disk_and_the_pipe_behind_its_log() {
    for (what, stderr) in deaf() {
        let dir = Dir::new("deaf-node");
        let mut node = node(&dir.data(), "debug", stderr);
        let client = silent_client(&node.address());
        node.signal(Signal::TERM);
        assert_eq!(node.ended().code(), Some(0), "{what}");
        drop(client);
    }
}

#[test]
fn a_relay_and_a_worker_outlive_the_disk_and_the_pipe_behind_their_log() {
    for (what, stderr) in deaf() {
        let address = nobody();
        let (database, url) =
            (format!("postgres://me@{address}/none"), format!("amqp://me:x@{address}"));
        let relay =
            ["relay", "run", "--database", &database, "--url", &url, "--report-every", "100ms"];
        outlives(&relay, what, stderr);
    }
    for (what, stderr) in deaf() {
        let dir = Dir::new("deaf-worker");
        let config = format!(
            "[worker]\nmetrics = \"none\"\n[source.jobs]\nkind = \"amqp\"\nurl = \"amqp://me:x@{}\"\nqueue = \"jobs\"\n\
             [target.hook]\nkind = \"webhook\"\nurl = \"https://example.com/jobs\"\n\
             [[pipeline]]\nname = \"mail\"\nsource = \"jobs\"\ntarget = \"hook\"\n",
            nobody()
        );
        let config = dir.file("work.toml", &config);
        outlives(&["work", "run", "--config", config.to_str().unwrap()], what, stderr);
    }
}

/// An address where nobody listens.
fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// It ends as it does when its words are heard.
fn outlives(arguments: &[&str], what: &str, stderr: Stdio) {
    let ends = |stderr: Stdio| {
        let mut process = millrace(arguments, stderr);
        // It may end by itself: its words decide nothing then, either.
        let begun = Instant::now();
        while process.0.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(LOOK);
        }
        let _ = kill_process(Pid::from_child(&process.0), Signal::TERM);
        process.ended()
    };
    assert_eq!(ends(stderr), ends(Stdio::null()), "{what}: {arguments:?}");
}

#[test]
fn sighup_changes_what_is_logged_and_names_what_waits_for_a_restart() {
    let dir = Dir::new("hangup");
    let config = dir.file("m.toml", "log = \"error\"\ngroups = 2\n");
    let log = dir.0.join("log");
    let data = dir.data();
    let arguments = [
        "serve",
        "--amqp",
        "127.0.0.1:0",
        "--data-dir",
        data.to_str().unwrap(),
        "--config",
        config.to_str().unwrap(),
    ];
    let mut node = millrace(&arguments, File::create(&log).unwrap());
    let address = node.address();
    let says = |words: &str| std::fs::read_to_string(&log).unwrap().contains(words);
    dir.file("m.toml", "log = \"warn\"\ngroups = 3\nheartbeat_s = 9\n");
    node.signal(Signal::HUP);
    until("the change is told", || says("wait for a restart"));
    assert!(says("groups, heartbeat_s"), "{}", std::fs::read_to_string(&log).unwrap());
    dir.file("m.toml", "log = \"wran\"\n");
    node.signal(Signal::HUP);
    until("the mistake is told", || says("nothing was changed"));
    // It serves as before, and nothing in a file is coloured.
    drop(silent_client(&address));
    assert!(!says("\u{1b}["), "there are colour codes in a file");
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0));
}

#[test]
fn a_node_stops_although_a_client_does_not_answer() {
    let dir = Dir::new("silent");
    let mut node = node(&dir.data(), "off", Stdio::null());
    let address = node.address();
    let clients = [(); 3].map(|()| silent_client(&address));
    let begun = Instant::now();
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(5), "the stop took {:?}", begun.elapsed());
    drop(clients);
}

/// Whether a file of a group's messages is there: a checkpoint copies them from the log.
fn is_copying(data: &Path) -> bool {
    let folders = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    let groups = folders(&data.join("groups"));
    let mut files = groups.flat_map(|group| folders(&group.path()));
    files.any(|file| file.file_name().to_string_lossy().starts_with("seg-"))
}

/// Messages of 1,000 queues are what a checkpoint takes longest for, and the checkpoints of seven groups wait behind the
/// first.
#[test]
fn a_node_stops_although_checkpoints_wait() {
    let dir = Dir::new("copying");
    let data = dir.data();
    let sizes = ["wal_file_bytes=8MiB", "message_bytes_max=1MiB", "disk_free_limit=0", "log=off"];
    let mut arguments =
        vec!["serve", "--amqp", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    arguments.extend(sizes.iter().flat_map(|size| ["--set", size]));
    let mut node = millrace(&arguments, Stdio::null());
    let url = format!("amqp://guest:guest@{}", node.address());
    let load = ["--queues", "1000", "--size", "16", "--consumers", "0", "--count", "1000000"];
    let bench = ["bench", "--url", &url, "--exchange", "fan", "--json"];
    let _bench = millrace(&[&bench[..], &load].concat(), Stdio::null());
    until("a checkpoint copies", || is_copying(&data));
    let begun = Instant::now();
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(5), "the stop took {:?}", begun.elapsed());
}

#[test]
fn a_second_sigterm_ends_a_node_that_cannot_stop() {
    let dir = Dir::new("second");
    // A pipe that is full and is not read: the node hangs at the next word it says, which is that it stops.
    let (reader, writer) = std::io::pipe().unwrap();
    let writer = OwnedFd::from(writer);
    let mut node = node(&dir.data(), "info", writer.try_clone().unwrap());
    node.address();
    fill(&writer);
    let mut status = None;
    until("a signal after the first ended it", || {
        node.signal(Signal::TERM);
        std::thread::sleep(LOOK);
        status = node.0.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(130));
    drop(reader);
}

fn fill(pipe: &OwnedFd) {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(pipe).unwrap();
    fcntl_setfl(pipe, flags | OFlags::NONBLOCK).unwrap();
    while rustix::io::write(pipe, &[b'x'; 4096]).is_ok() {}
    while rustix::io::write(pipe, b"x").is_ok() {}
    fcntl_setfl(pipe, flags).unwrap();
}

#[test]
fn a_node_whose_port_is_taken_touches_no_data() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    let peers = format!("1={taken}");
    let lists = [
        vec!["--amqp", &taken],
        vec!["--amqp", "127.0.0.1:0", "--node-id", "1", "--peers", &peers],
    ];
    for more in lists {
        let dir = Dir::new("port");
        let data = dir.data();
        let arguments = [&["serve", "--data-dir", data.to_str().unwrap()][..], &more].concat();
        let ended = output(&arguments);
        let told = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{told}");
        assert!(told.contains(&taken) && told.contains("in use"), "{told}");
        assert!(!data.exists(), "{} was made", data.display());
    }
}

#[test]
fn check_config_finds_what_a_start_would_refuse() {
    let dir = Dir::new("check");
    let data = dir.data();
    let pem = dir.file("wrong.pem", "this is no certificate");
    let pem = pem.to_str().unwrap();
    let tls = [
        format!("peer_tls_authority={pem}"),
        format!("peer_tls_certificate={pem}"),
        format!("peer_tls_key={pem}"),
    ];
    let missing = tls.clone().map(|set| set.replace("wrong.pem", "missing.pem"));
    let peers = ["--peers", "1=127.0.0.1:7001"];
    let numbered = ["--node-id", "1", "--peers", "1=127.0.0.1:7001"];
    let sets = |sets: &[String; 3]| sets.clone().map(|set| ["--set".to_owned(), set]).concat();
    let sealed = ["--amqps", "127.0.0.1:5671", "--tls-certfile", pem, "--tls-keyfile", pem];
    let cases: [(Vec<String>, &str); 7] = [
        (sealed.map(str::to_owned).to_vec(), "TLS with clients"),
        (sealed[..2].iter().map(|word| (*word).to_owned()).collect(), "TLS needs tls_certfile"),
        (["--set", "log=inof"].map(str::to_owned).to_vec(), "is not a log level"),
        (peers.map(str::to_owned).to_vec(), "needs --node-id"),
        ([&numbered.map(str::to_owned)[..], &sets(&missing)].concat(), "missing.pem"),
        ([&numbered.map(str::to_owned)[..], &sets(&tls)].concat(), "wrong.pem"),
        (["--set", "x"].map(str::to_owned).to_vec(), "must be KEY=VALUE"),
    ];
    for (more, words) in cases {
        let mut arguments = vec!["serve", "--check-config", "--data-dir", data.to_str().unwrap()];
        arguments.extend(more.iter().map(String::as_str));
        let ended = output(&arguments);
        let told = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{more:?}: {told}");
        assert!(told.contains(words), "{more:?}: {told}");
    }
    let right = [&["serve", "--check-config", "--data-dir", data.to_str().unwrap()][..], &numbered];
    assert!(output(&right.concat()).status.success());
    assert!(!data.exists(), "looking made {}", data.display());
}
