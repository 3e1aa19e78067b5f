//! Backup and restore of brokers that run, as processes: what a backup must have, and which backups are refused.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use amqp::Properties;
use client::{
    Address, Connection, Consumer, ConsumerOptions, Options, Outcome, Publisher, QueueSpec, Url,
};
use serde_json::Value;

use crate::node::{Node, free_address, to, until};

const QUEUES: [&str; 4] = ["a", "b", "c", "d"];

/// A directory that goes with its owner.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("millrace-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn command(http: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.args(words).env("MILLRACE_HTTP_URL", format!("http://{http}")).stdin(Stdio::null());
    for variable in ["MILLRACE_HTTP_PASSWORD", "MILLRACE_CONTEXT"] {
        command.env_remove(variable);
    }
    command
}

fn run(http: &str, words: &[&str]) -> Output {
    command(http, words).output().unwrap()
}

/// What must succeed says this.
fn told(http: &str, words: &[&str]) -> String {
    let output = run(http, words);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {err}");
    String::from_utf8(output.stdout).unwrap()
}

/// Why it fails: with exit code 1.
fn refused(words: &[&str]) -> String {
    let output = run("127.0.0.1:1", words);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn persistent() -> Properties<'static> {
    Properties { delivery_mode: Some(2), ..Properties::default() }
}

/// What clients have seen: of each queue, by number.
#[derive(Default)]
struct Seen {
    confirmed: BTreeSet<(usize, u64)>,
    published: BTreeMap<usize, u64>,
    /// An acknowledgement was sent, and may have come through.
    acked: BTreeSet<(usize, u64)>,
}

/// Publishes to a queue and takes every third message from it, until it is told to stop.
struct Load {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn start(urls: &[Url]) -> Self {
        let (seen, stop) =
            (Arc::new(Mutex::new(Seen::default())), Arc::new(AtomicBool::new(false)));
        let mut tasks = Vec::new();
        for (queue, name) in QUEUES.iter().enumerate() {
            let url = &urls[queue % urls.len()];
            let (seen_by, stopped) = (Arc::clone(&seen), Arc::clone(&stop));
            tasks.push(tokio::spawn(publish(url.clone(), queue, name, seen_by, stopped)));
            let (seen_by, stopped) = (Arc::clone(&seen), Arc::clone(&stop));
            tasks.push(tokio::spawn(consume(url.clone(), queue, name, seen_by, stopped)));
        }
        Self { seen, stop, tasks }
    }

    fn confirmed(&self) -> BTreeSet<(usize, u64)> {
        self.seen.lock().unwrap().confirmed.clone()
    }

    /// Waits until so many messages of each queue are confirmed: on a busy machine one queue's clients may begin late.
    fn until_each_has(&self, messages: usize) {
        until("there is something to lose in each queue", || {
            let confirmed = self.confirmed();
            let of = |queue| confirmed.iter().filter(|(of, _)| *of == queue).count();
            (0..QUEUES.len()).all(|queue| of(queue) >= messages)
        });
    }

    async fn end(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        Arc::try_unwrap(self.seen)
            .unwrap_or_else(|_| panic!("all tasks have ended"))
            .into_inner()
            .unwrap()
    }
}

async fn publish(
    url: Url,
    queue: usize,
    name: &str,
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
) {
    let mut publisher = Publisher::open(&url, &Options::named("load"), 64).await.unwrap();
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        let first = next;
        for _ in 0..32 {
            let body = format!("{next:08} {}", "x".repeat(200));
            seen.lock().unwrap().published.insert(queue, next);
            publisher.publish(Address::queue(name), &persistent(), body.as_bytes()).await.unwrap();
            next += 1;
        }
        assert!(publisher.settle_all().await.unwrap().is_clean());
        let mut seen = seen.lock().unwrap();
        seen.confirmed.extend((first..next).map(|number| (queue, number)));
    }
}

/// So many stay in a queue while it is consumed.
const LEFT: u64 = 100;

/// Takes slower than others publish, however slow these are.
async fn consume(
    url: Url,
    queue: usize,
    name: &str,
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
) {
    let how = ConsumerOptions { prefetch: 20, ..ConsumerOptions::default() };
    let mut consumer = Consumer::open(&url, &Options::named("load"), name, how).await.unwrap();
    let mut taken = 0;
    while !stop.load(Ordering::Relaxed) {
        let published = seen.lock().unwrap().published.get(&queue).copied().unwrap_or(0);
        if published < taken + LEFT {
            tokio::time::sleep(Duration::from_millis(3)).await;
            continue;
        }
        let next = tokio::time::timeout(Duration::from_millis(100), consumer.next()).await;
        let Ok(delivery) = next else { continue };
        let delivery = delivery.unwrap();
        taken = number(&delivery.body);
        seen.lock().unwrap().acked.insert((queue, taken));
        consumer.settle(delivery.tag, Outcome::Done).unwrap();
        consumer.flush().await.unwrap();
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    consumer.close().await.unwrap();
}

fn number(body: &[u8]) -> u64 {
    std::str::from_utf8(&body[..8]).unwrap().parse().unwrap()
}

/// All messages of a queue, in their order: it is empty then.
async fn drain(connection: &mut Connection, queue: &str) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(delivery) = connection.get(queue, true).await.unwrap() {
        numbers.push(number(&delivery.body));
    }
    numbers
}

/// What was restored is what a backup promises: everything that was confirmed before it began and not acknowledged by its
/// end, in order, nothing twice, and nothing that nobody published.
async fn judge(connection: &mut Connection, before: &BTreeSet<(usize, u64)>, seen: &Seen) {
    for (queue, name) in QUEUES.iter().enumerate() {
        let found = drain(connection, name).await;
        assert!(
            found.is_sorted_by(|one, next| one < next),
            "{name}: twice, or out of order: {found:?}"
        );
        let last = seen.published.get(&queue).copied().unwrap_or(0);
        assert!(found.iter().all(|number| *number <= last), "{name}: never published");
        let found: BTreeSet<u64> = found.into_iter().collect();
        let of_queue = before.iter().filter(|(of, _)| *of == queue);
        let lost: Vec<u64> = of_queue
            .filter(|message| !seen.acked.contains(message))
            .map(|(_, number)| *number)
            .filter(|number| !found.contains(number))
            .collect();
        assert!(lost.is_empty(), "{name}: {} confirmed messages are lost: {lost:?}", lost.len());
        assert!(!found.is_empty(), "{name}: the test had nothing to lose");
    }
}

async fn declare(connection: &mut Connection) {
    for queue in QUEUES {
        connection.declare_queue(&QueueSpec::durable(queue)).await.unwrap();
    }
}

fn identity(data_dir: &Path) -> String {
    std::fs::read_to_string(data_dir.join("IDENTITY")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_taken_under_load_has_all_that_was_confirmed_and_nothing_twice() {
    let folder = Folder::new("backup-one");
    let http = free_address();
    // Small log files: the log goes on while the backup is read.
    let node = Node::start_with(
        "backed",
        &["--http", &http, "--set", "wal_file_bytes=4MiB", "--set", "message_bytes_max=1MiB"],
    );
    let mut client = node.connect().await;
    declare(&mut client).await;
    told(&http, &["vhosts", "add", "shop"]);
    told(&http, &["policies", "set", "-p", "shop", "short", "^q", r#"{"max-length":7}"#]);
    let load = Load::start(std::slice::from_ref(&node.url));
    load.until_each_has(1000);
    let before = load.confirmed();
    let backup = folder.path("backup");
    let said = told(&http, &["backup", &backup, "--json"]);
    let seen = load.end().await;
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["groups"], 9, "{said}");

    let verified = told("127.0.0.1:1", &["backup", "--verify", &backup, "--json"]);
    let verified: Value = serde_json::from_str(&verified).unwrap();
    assert_eq!(verified["queues"], 4, "{verified}");
    let restored = folder.path("restored");
    told("127.0.0.1:1", &["restore", &backup, &restored]);
    assert!(!Path::new(&format!("{restored}.restoring")).exists());

    let http = free_address();
    let other = Node::start_on("restored", &["--http", &http], |dir| {
        std::fs::rename(&restored, dir).unwrap();
    });
    assert_ne!(identity(node.data_dir()).lines().nth(2), identity(other.data_dir()).lines().nth(2));
    let policies = told(&http, &["policies", "-p", "shop", "--json"]);
    assert!(policies.contains("short"), "{policies}");
    let mut restored = other.connect().await;
    judge(&mut restored, &before, &seen).await;
    // It goes on as a broker does: new queues have numbers of their own, and messages are kept.
    restored.declare_queue(&QueueSpec::durable("new")).await.unwrap();
    restored.publish(Address::queue("new"), &persistent(), b"00000001").await.unwrap();
    let mut other = other;
    other.crash();
    let mut restored = other.connect().await;
    assert_eq!(drain(&mut restored, "new").await, [1]);
    assert_eq!(drain(&mut restored, "a").await, [0; 0], "what was taken does not come back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_backed_up_by_any_node_and_restored_as_three_new_ones() {
    let folder = Folder::new("backup-three");
    let addresses: Vec<String> = (0..3).map(|_| free_address()).collect();
    let nodes = Node::start_cluster_each("backed-three", 3, |node| {
        vec!["--http".to_owned(), addresses[node - 1].clone()]
    });
    let mut client = nodes[0].connect().await;
    declare(&mut client).await;
    let urls: Vec<Url> = nodes.iter().map(|node| node.url.clone()).collect();
    let load = Load::start(&urls);
    load.until_each_has(500);
    let before = load.confirmed();
    let backup = folder.path("backup");
    told(&addresses[1], &["backup", &backup]);
    let seen = load.end().await;
    told("127.0.0.1:1", &["backup", "--verify", &backup]);

    let peers: Vec<String> = (0..3).map(|_| free_address()).collect();
    let list: Vec<String> =
        peers.iter().enumerate().map(|(at, address)| format!("{}={address}", at + 1)).collect();
    let list = list.join(",");
    let dirs: Vec<String> = (1..=3).map(|node| folder.path(&format!("node-{node}"))).collect();
    for (at, dir) in dirs.iter().enumerate() {
        let node = (at + 1).to_string();
        told("127.0.0.1:1", &["restore", &backup, dir, "--node-id", &node, "--peers", &list]);
    }
    let restored = Node::start_restored(&dirs, &peers);
    let clusters: BTreeSet<String> = nodes
        .iter()
        .chain(&restored)
        .map(|node| identity(node.data_dir()).lines().nth(2).unwrap().to_owned())
        .collect();
    assert_eq!(clusters.len(), 2, "one cluster each: {clusters:?}");
    let mut client = restored[2].connect().await;
    judge(&mut client, &before, &seen).await;
}

/// A dead letter is stored at its target, and then let go at its source. The backup cuts one group after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_dead_letter_is_between_its_queues_in_a_backup() {
    let folder = Folder::new("backup-dead");
    let http = free_address();
    let node = Node::start_with("backed-dead", &["--http", &http]);
    let mut client = node.connect().await;
    // There and back again, through all groups.
    let names: Vec<String> = (0..16).map(|at| format!("q{at}")).collect();
    for (at, name) in names.iter().enumerate() {
        client.declare_queue(&to(name, &names[(at + 1) % 16], &[])).await.unwrap();
    }
    let mut publisher = Publisher::open(&node.url, &Options::named("test"), 64).await.unwrap();
    for number in 0..320 {
        let (name, body) = (&names[number % 16], format!("{number:08}"));
        publisher.publish(Address::queue(name), &persistent(), body.as_bytes()).await.unwrap();
    }
    assert!(publisher.settle_all().await.unwrap().is_clean());
    let stop = Arc::new(AtomicBool::new(false));
    let mut rejecting = Vec::new();
    for name in names.clone() {
        let (url, stop) = (node.url.clone(), Arc::clone(&stop));
        rejecting.push(tokio::spawn(async move {
            let how = ConsumerOptions { prefetch: 5, ..ConsumerOptions::default() };
            let options = Options::named("test");
            let mut consumer = Consumer::open(&url, &options, &name, how).await.unwrap();
            let mut count = 0u64;
            while !stop.load(Ordering::Relaxed) {
                let next = tokio::time::timeout(Duration::from_millis(50), consumer.next()).await;
                let Ok(delivery) = next else { continue };
                consumer.settle(delivery.unwrap().tag, Outcome::DeadLetter).unwrap();
                consumer.flush().await.unwrap();
                count += 1;
            }
            count
        }));
    }
    let mut rounds = Vec::new();
    for round in 0..4 {
        let backup = folder.path(&format!("backup-{round}"));
        told(&http, &["backup", &backup]);
        rounds.push(backup);
    }
    stop.store(true, Ordering::Relaxed);
    let mut moved = 0;
    for task in rejecting {
        moved += task.await.unwrap();
    }
    assert!(moved > 320, "letters went round: {moved}");
    for (round, backup) in rounds.iter().enumerate() {
        let dir = folder.path(&format!("restored-{round}"));
        told("127.0.0.1:1", &["restore", backup, &dir]);
        let other = Node::start_on("restored-dead", &[], |at| std::fs::rename(&dir, at).unwrap());
        let mut client = other.connect().await;
        let mut found = BTreeSet::new();
        until_quiet(&mut client, &names, &mut found).await;
        let lost: Vec<u64> = (0..320).filter(|number| !found.contains(number)).collect();
        assert!(lost.is_empty(), "backup {round} has not: {lost:?}");
    }
}

/// Takes everything, also what is on its way when the node starts.
async fn until_quiet(client: &mut Connection, names: &[String], found: &mut BTreeSet<u64>) {
    let mut quiet = 0;
    while quiet < 5 {
        let before = found.len();
        for name in names {
            found.extend(drain(client, name).await);
        }
        quiet = if found.len() == before { quiet + 1 } else { 0 };
        if found.len() == 320 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_and_unfinished_backups_are_refused_and_change_nothing() {
    let folder = Folder::new("backup-bad");
    let http = free_address();
    let node = Node::start_with("backed-bad", &["--http", &http]);
    let mut publisher = {
        node.connect().await.declare_queue(&QueueSpec::durable("q")).await.unwrap();
        Publisher::open(&node.url, &Options::named("test"), 64).await.unwrap()
    };
    for number in 0..2000 {
        let body = format!("{number:08} {}", "x".repeat(1000));
        publisher.publish(Address::queue("q"), &persistent(), body.as_bytes()).await.unwrap();
    }
    assert!(publisher.settle_all().await.unwrap().is_clean());

    let good = folder.path("good");
    told(&http, &["backup", &good]);
    let files: Vec<PathBuf> =
        std::fs::read_dir(&good).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 10, "a manifest and nine groups: {files:?}");
    let restored = folder.path("restored");
    for file in &files {
        let whole = std::fs::read(file).unwrap();
        for at in [0, whole.len() / 2, whole.len() - 2] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(file, &bytes).unwrap();
            let why = refused(&["backup", "--verify", &good]);
            assert!(why.contains("damaged") || why.contains("checksum"), "{file:?} at {at}: {why}");
            refused(&["restore", &good, &restored]);
        }
        std::fs::write(file, &whole[..whole.len() - 1]).unwrap();
        refused(&["restore", &good, &restored]);
        std::fs::write(file, &whole).unwrap();
    }
    let gone = Path::new(&good).join("group-3");
    let whole = std::fs::read(&gone).unwrap();
    std::fs::remove_file(&gone).unwrap();
    refused(&["restore", &good, &restored]);
    std::fs::write(&gone, whole).unwrap();
    assert!(!Path::new(&restored).exists(), "nothing was written");
    told("127.0.0.1:1", &["backup", "--verify", &good]);

    // Two megabytes at a tenth of that: it is stopped long before its end.
    let half = folder.path("half");
    let mut slow: Child = command(&http, &["backup", &half, "--rate", "200kB"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("it has begun", || Path::new(&half).join("group-0").exists());
    slow.kill().unwrap();
    slow.wait().unwrap();
    for words in [&["backup", "--verify", &half][..], &["restore", &half, &restored]] {
        let why = refused(words);
        assert!(why.contains("not finished"), "{why}");
    }
    let output = run(&http, &["backup", &half]);
    assert_eq!(output.status.code(), Some(2), "a backup gets a directory of its own");
    let none = refused(&["restore", &folder.path("nothing"), &restored]);
    assert!(none.contains("is no backup"), "{none}");
    // What is there is not overwritten.
    let mut client = node.connect().await;
    let why = refused(&["restore", &good, &node.data_dir().display().to_string()]);
    assert!(why.contains("not empty"), "{why}");
    assert_eq!(client.look_up_queue("q").await.unwrap().message_count, 2000);
}

/// A backup is all there is: only administrators make one.
#[test]
fn who_is_no_administrator_makes_no_backup() {
    let folder = Folder::new("backup-user");
    let http = free_address();
    let _node = Node::start_with("backed-user", &["--http", &http]);
    let file = folder.path("password");
    std::fs::write(&file, "word\n").unwrap();
    let add = ["users", "add", "ann", "--tags", "monitoring,policymaker,peek"];
    told(&http, &[&add[..], &["--new-password-file", &file]].concat());
    let mut asked = command(&http, &["backup", &folder.path("backup"), "--password-file", &file]);
    let output = asked.env("MILLRACE_HTTP_URL", format!("http://ann@{http}")).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
}
