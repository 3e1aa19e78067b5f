//! Storms of logins against a real process: what they may take, and who must get in all the same.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

#[path = "support/node.rs"]
mod node;

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use amqp::Properties;
use client::{Address, Connection, Error, Options, QueueSpec, Url};
use node::{Node, TIMEOUT};

const MIB: u64 = 1 << 20;

/// The most memory that the process has had.
fn peak_memory(node: &Node) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.process_id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn with_password(url: &Url, password: &str) -> Url {
    Url { password: password.to_owned(), ..url.clone() }
}

/// Tries until the server says something: being too slow is no verdict.
async fn verdict(url: Url, begun: Instant) -> Result<(), u16> {
    loop {
        match Connection::open(&url, &Options::named("storm")).await {
            Ok(_connection) => return Ok(()),
            Err(Error::ConnectionClosed { code, .. }) => return Err(code),
            Err(error) => assert!(begun.elapsed() < TIMEOUT, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What each of them is told, all at once.
async fn storm(urls: impl Iterator<Item = Url>) -> Vec<Result<(), u16>> {
    let begun = Instant::now();
    let logins: Vec<_> = urls.map(|url| tokio::spawn(verdict(url, begun))).collect();
    let mut verdicts = Vec::new();
    for login in logins {
        verdicts.push(login.await.unwrap());
    }
    verdicts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_wrong_passwords_takes_a_few_buffers_of_memory() {
    let node = Node::start("wrong-logins");
    let before = peak_memory(&node);
    let wrong = (0..120).map(|number| with_password(&node.url, &format!("wrong{number}")));
    let verdicts = storm(wrong).await;
    assert!(verdicts.iter().all(|verdict| *verdict == Err(403)), "{verdicts:?}");
    let taken = peak_memory(&node).saturating_sub(before);
    // Four buffers of 19 MiB, and the connections.
    assert!(taken < 160 * MIB, "{} MiB", taken / MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_the_right_password_is_never_refused_however_many_come_at_once() {
    let node = Node::start("right-logins");
    let before = peak_memory(&node);
    // More than may be unknown from one address at a time.
    let verdicts = storm(std::iter::repeat_n(node.url.clone(), 600)).await;
    let refused = verdicts.iter().filter(|verdict| verdict.is_err()).count();
    assert_eq!(refused, 0, "of {}", verdicts.len());
    let taken = peak_memory(&node).saturating_sub(before);
    assert!(taken < 160 * MIB, "{} MiB", taken / MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_strangers_than_open_files_neither_end_the_node_nor_lock_anybody_out() {
    let mut node = Node::start_with_files("few-files", 256);
    let address = format!("{}:{}", node.url.host, node.url.port);
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(node.connect().await);
    }
    let mut strangers = Vec::new();
    for _ in 0..400 {
        strangers.push(tokio::net::TcpStream::connect(&address).await.unwrap());
    }
    let mut late = node.connect().await;
    late.declare_queue(&QueueSpec::durable("q")).await.unwrap();
    let persistent = Properties { delivery_mode: Some(2), ..Properties::default() };
    // Enough for files of the log to be opened.
    let body = vec![b'x'; 1 << 20];
    for _ in 0..150 {
        late.publish(Address::queue("q"), &persistent, &body).await.unwrap();
    }
    node::until_ready(&mut late, "q", 150).await;
    for client in &mut clients {
        assert_eq!(client.look_up_queue("q").await.unwrap().message_count, 150);
    }
    assert!(node.is_running());
    drop(strangers);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_makes_the_user_that_was_chosen_in_place_of_guest() {
    let chosen = ["--set", "default_user=ann", "--set", "default_pass=s3cret"];
    let mut node = Node::start_with("first-user", &chosen);
    for _ in 0..2 {
        let as_user = |user: &str, password: &str| Url {
            user: user.to_owned(),
            password: password.to_owned(),
            ..node.url.clone()
        };
        let begun = Instant::now();
        assert_eq!(verdict(as_user("ann", "s3cret"), begun).await, Ok(()));
        assert_eq!(verdict(as_user("ann", "guest"), begun).await, Err(403));
        assert_eq!(verdict(as_user("guest", "guest"), begun).await, Err(403));
        // The second start has another password, which counts no more.
        node.restart_with(&["--set", "default_user=ann", "--set", "default_pass=other"]);
    }
}

/// The password that a node has drawn and told.
fn drawn_password(said: &str) -> Option<&str> {
    said.split_once("User admin was made with the password ")?.1.split_whitespace().next()
}

fn as_admin(url: &Url, password: &str) -> Url {
    Url { user: "admin".to_owned(), ..with_password(url, password) }
}

/// Starts a node, and says what stood on its standard output when it was ready, and where it serves.
fn said_at_the_start(dir: &Path, more: &[&str]) -> (Process, String, Url) {
    let mut process = start(dir, more);
    let (said, url) = said_by(&mut process, dir);
    (process, said, url)
}

fn start(dir: &Path, more: &[&str]) -> Process {
    let process = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["serve", "--set", "log=error", "--amqp", "0.0.0.0:0", "--data-dir"])
        .arg(dir)
        .args(more)
        .stdout(std::fs::File::create(dir.with_extension("said")).unwrap())
        .spawn()
        .unwrap();
    Process(process)
}

/// What stands on its standard output when it is ready, and where it serves.
fn said_by(process: &mut Process, dir: &Path) -> (String, Url) {
    let said = dir.with_extension("said");
    // The lines are written at once.
    node::until("it is ready", || {
        assert!(process.0.try_wait().unwrap().is_none(), "it ends");
        std::fs::read_to_string(&said).unwrap().contains("Data directory")
    });
    let said = std::fs::read_to_string(&said).unwrap();
    let url = said.split_whitespace().find(|word| word.starts_with("amqp://")).unwrap();
    let url = url.parse().unwrap();
    (said, url)
}

/// Ends with the test, whatever becomes of that.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_others_reach_makes_a_user_and_prints_its_password_once() {
    let dir = std::env::temp_dir().join(format!("millrace-drawn-{}", std::process::id()));
    let (process, said, url) = said_at_the_start(&dir, &[]);
    let password = drawn_password(&said).expect("a password is told").to_owned();
    assert!(!said.contains("Nobody can log in"), "{said}");
    assert_eq!(verdict(as_admin(&url, &password), Instant::now()).await, Ok(()));
    assert_eq!(verdict(as_admin(&url, "guest"), Instant::now()).await, Err(403));
    drop(process);
    let (process, said, url) = said_at_the_start(&dir, &[]);
    assert!(!said.contains("admin") && !said.contains("Nobody can log in"), "{said}");
    assert_eq!(verdict(as_admin(&url, &password), Instant::now()).await, Ok(()));
    drop(process);
    std::fs::remove_dir_all(&dir).unwrap();
    for choice in ["loopback_users=none", "default_pass=s3cret"] {
        let (process, said, _) = said_at_the_start(&dir, &["--set", choice]);
        assert_eq!(drawn_password(&said), None, "{said}");
        drop(process);
        std::fs::remove_dir_all(&dir).unwrap();
    }
    std::fs::remove_file(dir.with_extension("said")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_the_nodes_that_make_a_cluster_draws_a_password_for_all() {
    let peers: Vec<_> = (1..)
        .zip(node::addresses::free_addresses(3))
        .map(|(node, address)| format!("{node}={address}"))
        .collect();
    let peers = peers.join(",");
    let base = std::env::temp_dir().join(format!("millrace-founders-{}", std::process::id()));
    let dirs = ["1", "2", "3"].map(|node| base.with_extension(node).join("data"));
    for dir in &dirs {
        std::fs::create_dir_all(dir.parent().unwrap()).unwrap();
    }
    let mut drawn = None;
    // The second time it is no beginning.
    for is_beginning in [true, false] {
        let start =
            |(node, dir): (&str, &PathBuf)| start(dir, &["--node-id", node, "--peers", &peers]);
        let mut processes: Vec<_> = ["1", "2", "3"].into_iter().zip(&dirs).map(start).collect();
        let told: Vec<_> =
            processes.iter_mut().zip(&dirs).map(|(node, dir)| said_by(node, dir)).collect();
        let passwords: Vec<_> = told.iter().map(|(said, _)| drawn_password(said)).collect();
        if is_beginning {
            assert!(passwords[0].is_some(), "the node with the smallest number draws: {told:?}");
            drawn = passwords[0].map(str::to_owned);
            assert_eq!(passwords[1..], [None, None]);
        } else {
            assert_eq!(passwords, [None; 3]);
        }
        let password = drawn.as_deref().unwrap();
        for (_, url) in &told {
            assert_eq!(verdict(as_admin(url, password), Instant::now()).await, Ok(()));
            assert_eq!(verdict(as_admin(url, "guest"), Instant::now()).await, Err(403));
        }
    }
    for dir in &dirs {
        std::fs::remove_dir_all(dir.parent().unwrap()).unwrap();
    }
}
