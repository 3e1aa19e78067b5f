//! What three nodes cost and how they fail, beside three nodes of RabbitMQ in the same run.
//!
//! Each cluster runs alone on the machine, one after the other, on the same hosts; the load and the
//! harm are the same. RabbitMQ's queues are quorum queues with three members.

pub mod failover;
pub mod gaps;
pub mod locks;
pub mod partitions;
pub mod probe;
pub mod slow_disk;
pub mod throughput;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Failure;
use super::broker::Kind;
use super::cluster::{Cluster, Plan};
use super::flaky_disk::mounted::MountedDisk;
use failover::Failovers;
use locks::Held;
use partitions::Followed;
use slow_disk::SlowDisks;
use throughput::Throughput;

/// Parts of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    Throughput,
    Failover,
    SlowDisk,
    /// Streams of one to 16 partitions, Millrace alone
    Partitions,
    /// Locks over HTTP, Millrace alone
    Locks,
}

/// What is measured, and how long.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Only these brokers
    #[arg(long, value_enum, value_delimiter = ',')]
    brokers: Vec<Kind>,
    /// Failovers of each kind
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Of them for RabbitMQ frozen or cut off, where each takes a minute [default: as --rounds]
    #[arg(long)]
    reference_rounds: Option<u32>,
    /// Only these ways of failing: killed, frozen, cut-off
    #[arg(long, value_enum, value_delimiter = ',')]
    ways: Vec<failover::Way>,
    /// Runs of each load; medians are shown
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// How long each load is measured
    #[arg(long, default_value_t = 8)]
    seconds: u32,
    /// Two failovers of each kind, one run of two seconds: shows that it works, not how well
    #[arg(long)]
    quick: bool,
    /// Millrace's binary, which is also the load generator
    #[arg(long, default_value = "target/release/millrace")]
    broker: PathBuf,
    /// RabbitMQ's
    #[arg(long, default_value = "/usr/lib/rabbitmq/bin/rabbitmq-server")]
    rabbitmq: PathBuf,
    /// Where data and logs go
    #[arg(long, default_value = "target/bench-cluster")]
    dir: PathBuf,
    /// Write all figures to this file, too
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Everything that was measured of one broker.
#[derive(Debug, Serialize)]
struct Measured {
    broker: &'static str,
    throughput: Vec<Throughput>,
    failover: Vec<Failovers>,
    slow_disk: Option<SlowDisks>,
    partitions: Vec<Followed>,
    locks: Vec<Held>,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    fn rounds_of(&self, kind: Kind, way: failover::Way) -> u32 {
        let is_long = kind == Kind::Rabbitmq && way != failover::Way::Killed;
        self.reference_rounds.filter(|_| is_long).unwrap_or(self.rounds)
    }

    fn kinds(&self) -> Vec<Kind> {
        let both = [Kind::Rabbitmq, Kind::Millrace];
        let wanted = |kind: &Kind| self.brokers.is_empty() || self.brokers.contains(kind);
        both.into_iter().filter(wanted).collect()
    }

    fn shortened(&self) -> Self {
        if !self.quick {
            return self.clone();
        }
        Self { rounds: 2, reference_rounds: None, runs: 1, seconds: 2, ..self.clone() }
    }

    /// A fresh cluster below the directory.
    fn cluster(
        &self,
        kind: Kind,
        part: &str,
        data: Option<&[PathBuf]>,
    ) -> Result<Cluster, Failure> {
        let logs = self.dir.join(format!("{}-{part}", word(kind)));
        if logs.exists() && data.is_none() {
            std::fs::remove_dir_all(&logs)?;
        }
        std::fs::create_dir_all(&logs)?;
        let own: Vec<PathBuf> = (1..=3).map(|node| logs.join(format!("data-{node}"))).collect();
        Cluster::start(&Plan {
            kind,
            broker: self.program(kind),
            data: data.map_or(own, <[PathBuf]>::to_vec),
            logs,
            arguments: Vec::new(),
            environment: Vec::new(),
            clocks: Vec::new(),
        })
    }

    fn program(&self, kind: Kind) -> PathBuf {
        match kind {
            Kind::Millrace => self.broker.clone(),
            Kind::Rabbitmq => self.rabbitmq.clone(),
        }
    }

    /// A disk for each node that can be made slow.
    fn disks(&self, kind: Kind) -> Result<Vec<MountedDisk>, Failure> {
        let dir = self.dir.join(format!("{}-disks", word(kind)));
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        (1..=3).map(|node| MountedDisk::create(&dir.join(node.to_string()))).collect()
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Millrace => "millrace",
        Kind::Rabbitmq => "rabbitmq",
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Millrace => "Millrace",
        Kind::Rabbitmq => "RabbitMQ 3.10, quorum queue",
    }
}

/// Measures what is asked for, prints the tables. True: nothing failed that must not.
pub fn run(options: &Options) -> Result<bool, Failure> {
    let options = options.shortened();
    std::fs::create_dir_all(&options.dir)?;
    let options = Options { dir: options.dir.canonicalize()?, ..options };
    let mut measured = Vec::new();
    for kind in options.kinds() {
        measured.push(measure(&options, kind)?);
    }
    let text = tables(&options, &measured);
    println!("\n{text}");
    std::fs::write(options.dir.join("cluster.md"), &text)?;
    if let Some(path) = &options.json {
        let json = serde_json::to_vec_pretty(&measured).map_err(std::io::Error::from)?;
        std::fs::write(path, json)?;
    }
    Ok(true)
}

fn measure(options: &Options, kind: Kind) -> Result<Measured, Failure> {
    let mut measured = Measured {
        broker: name(kind),
        throughput: vec![],
        failover: vec![],
        slow_disk: None,
        partitions: vec![],
        locks: vec![],
    };
    if options.wants(Part::Throughput) {
        let cluster = options.cluster(kind, "throughput", None)?;
        measured.throughput = throughput::measure(options, &cluster)?;
    }
    if options.wants(Part::Failover) {
        let mut cluster = options.cluster(kind, "failover", None)?;
        measured.failover = failover::measure(options, &mut cluster)?;
    }
    if options.wants(Part::SlowDisk) {
        let disks = options.disks(kind)?;
        let data: Vec<PathBuf> = disks.iter().map(|disk| disk.data().join("broker")).collect();
        let mut cluster = options.cluster(kind, "slow-disk", Some(&data))?;
        measured.slow_disk = Some(slow_disk::measure(options, &mut cluster, &disks)?);
        drop(cluster);
    }
    if options.wants(Part::Partitions) && kind == Kind::Millrace {
        let cluster = options.cluster(kind, "partitions", None)?;
        measured.partitions = partitions::measure(options, &cluster)?;
    }
    if options.wants(Part::Locks) && kind == Kind::Millrace {
        let cluster = options.cluster(kind, "locks", None)?;
        measured.locks = locks::measure(options, &cluster)?;
    }
    Ok(measured)
}

fn tables(options: &Options, measured: &[Measured]) -> String {
    let mut text = format!(
        "Three nodes on one machine: {}. A confirm means: in the log of a majority, synced there \
         (Millrace: `fdatasync` before each vote for an entry; RabbitMQ: its Raft log, default \
         settings).\n",
        machine()
    );
    if options.wants(Part::Throughput) {
        let _ = write!(
            text,
            "\nMedians of {} runs of {} s, window 1000, prefetch 1000, one ack for 100.\n\n{}",
            options.runs,
            options.seconds,
            throughput::HEAD
        );
        for one in measured {
            one.throughput.iter().for_each(|row| text.push_str(&row.row(one.broker)));
        }
    }
    if options.wants(Part::Failover) {
        let _ = write!(
            text,
            "\n1 KB, two publishers on the survivors, {} msg/s each, window {}.\n\n{}",
            probe::RATE,
            probe::WINDOW,
            failover::HEAD
        );
        for one in measured {
            one.failover.iter().for_each(|row| text.push_str(&row.row(one.broker)));
        }
    }
    if options.wants(Part::SlowDisk) {
        let _ = write!(
            text,
            "\n1 KB, {} msg/s; every node on a disk of its own whose flushes can be delayed.\n\n{}",
            slow_disk::RATE,
            slow_disk::HEAD
        );
        for one in measured {
            one.slow_disk.iter().for_each(|row| text.push_str(&row.row(one.broker)));
        }
    }
    if options.wants(Part::Partitions) {
        let _ = write!(
            text,
            "\nOne publisher on node 1, window 1000, one reader on node 2, prefetch 10,000, one ack for 1,000.\n\n{}",
            partitions::HEAD
        );
        measured.iter().flat_map(|one| &one.partitions).for_each(|row| text.push_str(&row.row()));
    }
    if options.wants(Part::Locks) {
        let _ = write!(
            text,
            "\nOver HTTP, a connection for each client, spread over the nodes; each takes a lock that nobody else wants, \
             and gives it back.\n\n{}",
            locks::HEAD
        );
        measured.iter().flat_map(|one| &one.locks).for_each(|row| text.push_str(&row.row()));
    }
    text
}

/// Processor and kernel: figures from different machines are not to be compared.
pub fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let model = model.trim_start_matches([' ', '\t', ':']);
    format!("{cpus} CPUs, {model}, Linux {}", kernel.trim())
}

/// Whether there is a program.
fn must_exist(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Ok(());
    }
    Err(Failure::Skipped(format!("{} is missing", path.display())))
}
