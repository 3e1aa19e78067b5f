//! A siege: one node with little memory and few descriptors, attacked as an outside examination attacked it, beside a
//! well-behaved client whose confirms are timed. The node must live through it, stay below its limit, and give back
//! what it took.
//!
//! ```text
//!  attackers ──one attack after the other──> ┌──────────────────────────────┐
//!  neighbour ──a message every 10 ms──────── │ node: memory cgroup, nofile  │
//!  watcher   ──resident memory every 50 ms── └──────────────────────────────┘
//! ```
//!
//! The node's standard error is a pipe that nobody reads and that is closed: every log line of it fails. Everything
//! is on loopback, bounded in count and in time, and goes with the process.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "a trial has processes, clocks, threads and a terminal"
)]

mod attacks;
mod fortress;
mod neighbour;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use crate::chaos::Failure;
use crate::chaos::broker::Kind;
use attacks::{ATTACKS, Stage};
use fortress::Fortress;
use neighbour::Neighbour;

/// How long the node has to give memory back.
const CALM: Duration = Duration::from_secs(30);
/// What it may keep of what it took, in megabytes.
const KEPT_MAX_MB: u64 = 50;

/// Who is attacked, and how hard.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Millrace's binary, or RabbitMQ's server script with --kind rabbitmq
    #[arg(long, default_value = "target/release/millrace")]
    broker: PathBuf,
    /// Whose broker it is; RabbitMQ is a reference and has 2 GiB
    #[arg(long, value_enum, default_value = "millrace")]
    kind: Kind,
    /// Only attacks whose name holds one of these words
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// A tenth of everything: shows that it works
    #[arg(long)]
    quick: bool,
    /// Memory of the node's cgroup, in MiB
    #[arg(long, default_value_t = 512)]
    memory_mb: u64,
    /// Descriptors of the node
    #[arg(long, default_value_t = 1024)]
    descriptors: u64,
    /// Where data and logs go; it is emptied first
    #[arg(long, default_value = "target/siege")]
    dir: PathBuf,
}

/// Lays it. True: the node lived, stayed below its limit, refused no right password and gave its memory back.
pub fn run(options: &Options) -> Result<bool, Failure> {
    let _ = std::fs::remove_dir_all(&options.dir);
    std::fs::create_dir_all(&options.dir)?;
    let options = Options { dir: options.dir.canonicalize()?, ..options.clone() };
    let mut fortress = Fortress::start(&options)?;
    let before_mb = fortress.resident_mb();
    println!("the node has {before_mb} MB before the siege; its limit is {} MB", options.memory_mb);
    let mut is_right = true;
    for attack in ATTACKS.iter().filter(|attack| wants(&options, attack.name)) {
        let neighbour = Neighbour::start(fortress.url());
        fortress.begin_peak();
        let begin = Instant::now();
        let stage = Stage {
            url: fortress.url(),
            share: if options.quick { 0.1 } else { 1.0 },
            // A node keeps some for its files, and a neighbour is there, too.
            connections_max: options.descriptors as usize * 3 / 4,
        };
        let said = (attack.run)(&stage);
        let took = begin.elapsed();
        let beside = neighbour.stop();
        let lives = fortress.lives()?;
        println!(
            "{:<20} {:>5.1} s  peak {:>4} MB  {beside}  {}",
            attack.name,
            took.as_secs_f64(),
            fortress.peak_mb(),
            said.words
        );
        if !lives {
            println!("the node is dead: {}", fortress.last_words());
            return Ok(false);
        }
        is_right &= said.is_right && fortress.peak_mb() <= options.memory_mb;
    }
    let (after_mb, calm) = calm_down(&mut fortress, before_mb);
    println!("the node has {after_mb} MB {:.0} s after the siege", calm.as_secs_f64());
    is_right &= after_mb <= before_mb + KEPT_MAX_MB && fortress.lives()?;
    Ok(fortress.end()? && is_right)
}

fn wants(options: &Options, name: &str) -> bool {
    options.only.is_empty() || options.only.iter().any(|word| name.contains(word.as_str()))
}

fn calm_down(fortress: &mut Fortress, before_mb: u64) -> (u64, Duration) {
    let begin = Instant::now();
    loop {
        let now_mb = fortress.resident_mb();
        if now_mb <= before_mb + KEPT_MAX_MB || begin.elapsed() > CALM {
            return (now_mb, begin.elapsed());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
