//! A disk without a byte of room: consumers go on, the node stays quiet, stops when it is told to and
//! starts again. On a small file system in memory, which needs the right to mount.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

#[path = "support/node.rs"]
mod node;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::{Connection, Consumer, ConsumerOptions, Options, Outcome, QueueSpec, Url};
use node::{TIMEOUT, until};

/// A stop takes no longer, whatever the node is doing.
const STOP_MAX: Duration = Duration::from_secs(5);

/// A file system of its own, unmounted with the test.
struct Mounted(PathBuf);

impl Mounted {
    /// `None`: this machine does not let us.
    fn new(name: &str, size: &str) -> Option<Self> {
        let path = std::env::temp_dir().join(format!("millrace-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
            .arg(&path)
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(path));
        }
        println!("skipped: a small file system cannot be mounted here; that needs root");
        std::fs::remove_dir_all(&path).unwrap();
        None
    }

    /// Takes every byte that is left.
    fn fill(&self) {
        let open =
            std::fs::OpenOptions::new().append(true).create(true).open(self.0.join("filler"));
        let mut filler = open.unwrap();
        for size in [1 << 20, 4096] {
            while filler.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn free_bytes(&self) -> u64 {
        let space = rustix::fs::statvfs(&self.0).unwrap();
        space.f_bavail * space.f_frsize
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A broker on the small disk, with small log files. Its log goes to a file beside it.
struct Broker {
    process: Child,
    url: Url,
    log: PathBuf,
}

impl Broker {
    fn start(disk: &Mounted) -> Self {
        let log = PathBuf::from(format!("{}.log", disk.0.display()));
        let process = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["serve", "--amqp", "127.0.0.1:0", "--set", "disk_free_limit=0"])
            .args(["--set", "message_bytes_max=1MiB", "--set", "wal_file_bytes=8MiB", "--data-dir"])
            .arg(disk.0.join("data"))
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn();
        let mut process = process.unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().find(|word| word.starts_with("amqp://"));
        let url = url.unwrap_or_else(|| panic!("{line:?}, {:?}", std::fs::read_to_string(&log)));
        let url = url.parse().unwrap();
        Self { process, url, log }
    }

    async fn connect(&self) -> Connection {
        Connection::open(&self.url, &Options::named("test")).await.unwrap()
    }

    /// Takes messages of `q` as a consumer does, and acknowledges each.
    async fn consume(&self, count: usize) {
        let options = Options::named("test");
        let how = ConsumerOptions { prefetch: 100, ..ConsumerOptions::default() };
        let mut consumer = Consumer::open(&self.url, &options, "q", how).await.unwrap();
        for _ in 0..count {
            let delivery = tokio::time::timeout(TIMEOUT, consumer.next()).await;
            let delivery = delivery.expect("a message comes").unwrap();
            consumer.settle(delivery.tag, Outcome::Done).unwrap();
        }
        consumer.close().await.unwrap();
    }

    /// What the process took of the processors so far.
    fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
        // Linux tells hundredths of a second (USER_HZ) on all that we run on.
        Duration::from_millis(ticks * 10)
    }

    /// Waits for a second in which the process hardly does anything.
    fn until_idle(&self) {
        for _ in 0..10 {
            let before = self.processor_time();
            std::thread::sleep(Duration::from_secs(1));
            if self.processor_time() - before < Duration::from_millis(300) {
                return;
            }
        }
        panic!("it spins");
    }

    /// Tells it to stop, and waits until it has.
    fn stop(&mut self) -> std::process::ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let begun = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < TIMEOUT, "it does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.log);
    }
}

/// Publishes until it is killed.
fn publish(url: &str) -> Child {
    let command = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["publish", "--url", url, "--queue", "q"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut child = command.unwrap();
    let mut lines = child.stdin.take().unwrap();
    let line = [&[b'x'; 1000][..], b"\n"].concat();
    std::thread::spawn(move || while lines.write_all(&line).is_ok() {});
    child
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap().lines().count()
}

#[tokio::test]
async fn a_full_disk_is_quiet_lets_consumers_go_on_and_lets_the_node_stop_and_start() {
    let Some(disk) = Mounted::new("full", "180m") else { return };
    let mut broker = Broker::start(&disk);
    until("the ballast is there", || disk.0.join("data/ballast").exists());
    let url = format!("amqp://guest:guest@{}:{}", broker.url.host, broker.url.port);
    let mut publisher = publish(&url);
    until("much is stored", || disk.free_bytes() < 40 << 20);
    // Again and again: what the node gives free for its own use is taken by somebody else.
    for _ in 0..20 {
        disk.fill();
        std::thread::sleep(Duration::from_millis(50));
    }
    publisher.kill().unwrap();
    publisher.wait().unwrap();
    let mut client = broker.connect().await;
    client.declare_queue(&QueueSpec::durable("q")).await.unwrap();
    for _ in 0..2000 {
        assert!(client.get("q", true).await.unwrap().is_some(), "a message");
    }
    drop(client);
    disk.fill();
    broker.consume(500).await;
    disk.fill();
    broker.until_idle();
    let count = lines(&broker.log);
    assert!(count < 40, "{count} lines in the log");
    let begun = Instant::now();
    assert!(broker.stop().success());
    assert!(begun.elapsed() < STOP_MAX, "the stop took {:?}", begun.elapsed());
    disk.fill();
    let broker = Broker::start(&disk);
    broker.consume(500).await;
}
