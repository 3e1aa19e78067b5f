//! `trials relay`: rounds of harm by chance, for as long as one wants.
#![allow(clippy::print_stdout, reason = "a command shows what it does")]

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;

use super::backlog;
use super::plan::Plan;
use super::run::{Asked, Mark, Shape};
use super::soak;
use super::stage::Stage;
use super::truth::Source;
use crate::chaos::Failure;
use crate::chaos::broker::Kind;
use crate::workload::Chance;

/// Relays under harm, and for how long.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The binary whose `relay` is tried
    #[arg(long, default_value = "target/release/millrace")]
    broker: PathBuf,
    /// Whose broker the relay publishes to
    #[arg(long, value_enum, default_value = "millrace")]
    broker_kind: Kind,
    /// How long rounds go on
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// Where rows come from [default: by chance]
    #[arg(long, value_enum)]
    source: Option<Source>,
    /// [default: by chance]
    #[arg(long, value_enum)]
    order: Option<Asked>,
    /// Instead: drain a backlog of so many rows, and say how long it took and in how much memory
    #[arg(long)]
    backlog: Option<usize>,
    /// Bytes of a backlog's bodies
    #[arg(long, default_value_t = 200)]
    bytes: usize,
    /// Kills, stops and ends of a round
    #[arg(long, default_value_t = 8)]
    harms: u64,
    /// Relays at a time [default: one to three]
    #[arg(long)]
    relays: Option<usize>,
    /// Decides every moment; from the clock if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Where runs that fail are kept
    #[arg(long, default_value = "target/trials")]
    dir: PathBuf,
}

/// Runs rounds; false if one was not valid.
///
/// # Errors
/// A round could not go on.
pub fn run(options: &Options) -> Result<bool, Failure> {
    let begun = Instant::now();
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let first = options.seed.unwrap_or(clock.as_secs());
    std::fs::create_dir_all(&options.dir)?;
    let mut stage = Stage::start(options.broker_kind, &options.broker, &options.dir)?;
    if let Some(rows) = options.backlog {
        return drain(options, &mut stage, rows);
    }
    let mut is_valid = true;
    for seed in first.. {
        let (shape, plan, relays) = draw(options, seed);
        let harms = soak::harms(seed, options.harms, shape.source);
        let what =
            format!("{:?} {:?} {:?}, {relays} relays", shape.source, shape.order, shape.on_success);
        println!("seed {seed}: {what}; {harms:?}");
        let report = soak::round(&mut stage, shape, plan, relays, &harms)?;
        println!("seed {seed}: {report}");
        // A cluster has room for a few slots.
        stage.drop_slots()?;
        if !report.is_valid() {
            println!("the run is not valid; see the logs in {}", stage.dir.display());
            stage.keep();
            is_valid = false;
            break;
        }
        if begun.elapsed() > Duration::from_secs_f64(options.minutes * 60.0) {
            break;
        }
    }
    Ok(is_valid)
}

/// A relay's memory stays below this, however long the backlog is.
const MEMORY_MAX: u64 = 100 << 20;

fn drain(options: &Options, stage: &mut Stage, rows: usize) -> Result<bool, Failure> {
    let shape = Shape::poll(options.order.unwrap_or(Asked::None));
    let shape = Shape { source: options.source.unwrap_or(shape.source), ..shape };
    let drained = backlog::drain(stage, shape.on_success(Mark::Delete), rows, options.bytes)?;
    println!("{drained}");
    Ok(drained.delivered == rows && drained.memory_peak < MEMORY_MAX)
}

fn draw(options: &Options, seed: u64) -> (Shape, Plan, usize) {
    let mut chance = Chance::named(seed, "round");
    let sources = [Source::Poll, Source::Wal];
    let source = options.source.unwrap_or(sources[chance.within(0, 2) as usize]);
    let orders = [Asked::None, Asked::Key, Asked::Key, Asked::Strict];
    let order = options.order.unwrap_or(orders[chance.within(0, 4) as usize]);
    let marks = [Mark::Update, Mark::Delete, Mark::Archive];
    let on_success = marks[chance.within(0, 3) as usize];
    let shape = Shape { source, order, on_success, ..Shape::poll(order) };
    let mut plan = Plan { transactions: 150, ..Plan::usual(seed) };
    if chance.percent(50) {
        plan = plan.with_poison(3);
    }
    if source == Source::Poll && order == Asked::Strict {
        // All rows are of one key: then their numbers have the order of their commits.
        plan = Plan { keys: 1, poison: Vec::new(), ..plan };
    }
    let relays = options.relays.unwrap_or(chance.within(1, 4) as usize);
    (shape, plan, relays)
}
