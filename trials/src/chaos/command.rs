//! The command line.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::TypedValueParser;
use clap::{Args, Parser, Subcommand};

use super::bitflip::BitFlip;
use super::broker::Kind;
use super::cluster_trial::{self, Schedule};
use super::diskfault::{DiskFull, FailingFlush, FailingSync};
use super::faults::{self, FAULTS, Fault, MIX};
use super::kill9::Kill;
use super::planted::hunt_all;
use super::powercut::PowerCut;
use super::rescue_trial;
use super::trial::{MakeHarm, Options, run as run_trial};
use super::{Failure, flaky_disk, measure, net};
use crate::checker::{Rules, Verdict, check};
use crate::differential;
use crate::history::History;
use crate::ladder;
use crate::providers::apns;
use crate::providers::mns;
use crate::relay;
use crate::relay_bench;
use crate::sim::command::Simulation;
use crate::work_bench;

/// Harm to a real broker, and a verdict on what its clients saw.
#[derive(Parser)]
#[command(name = "trials")]
struct Command {
    #[command(subcommand)]
    trial: Trial,
}

#[derive(Subcommand)]
enum Trial {
    /// kill -9 under load, over and over; then drain and check
    Kill9(Common),
    /// Lose or tear what was not synced, under load, over and over; needs root, FUSE and loop
    Powercut(Common),
    /// Failing syncs, a failing disk, a full disk, a flipped bit
    Diskfault(Common),
    /// All of the above, one after the other; with three nodes every fault of a cluster
    Chaos(Chaos),
    /// Simulated clusters: crashes, partitions, bad disks and clocks, decided by the seed alone
    Sim(Simulation),
    /// Build brokers with bugs planted on purpose, and show that each is caught
    Planted {
        /// Only those whose name holds this
        #[arg(long, default_value = "")]
        bug: String,
        /// The workspace to build
        #[arg(long, default_value = ".")]
        root: PathBuf,
        #[command(flatten)]
        common: Common,
    },
    /// Three nodes beside three nodes of RabbitMQ: throughput, failover, slow disks; needs root
    Bench(measure::Options),
    /// System 1's outbox processor, from its start to its final form, on both brokers
    Ladder(ladder::Options),
    /// `millrace relay` beside system 1's processor and Debezium Server, to both brokers
    RelayBench(relay_bench::Options),
    /// The relay's publishing core between a source and a broker in memory, from seeds
    RelaySim(crate::relay_sim::Options),
    /// `millrace work` beside Celery, asynq, River and BullMQ; pushes, webhooks
    WorkBench(work_bench::Options),
    /// A broker, a worker and an endpoint, harmed for a while; every job must have arrived
    WorkSoak(crate::work_soak::Options),
    /// A node with little memory and few descriptors, attacked from outside, beside a client that behaves
    Siege(crate::siege::Options),
    /// A worker whose handler does nothing (the measurement starts this by itself)
    #[command(hide = true)]
    NoopWorker(work_bench::noop::Options),
    /// Random programs of AMQP operations on RabbitMQ and Millrace: clients must see the same
    Differential(differential::command::Options),
    /// PostgreSQL, a broker and relays between them, killed over and over; what arrives is checked
    Relay(relay::command::Options),
    /// A relay with a bug planted on purpose (the trials start this by themselves)
    #[command(hide = true)]
    PlantedRelay(relay::planted::Options),
    /// A local APNs for benchmarks, until it is killed
    ApnsServer(apns::command::ServerOptions),
    /// Serve an endpoint for webhooks
    WebhookServer(crate::providers::webhook::Options),
    /// Push to a local APNs through the worker's target, as fast as it goes
    ApnsLoad(apns::load::LoadOptions),
    /// A local Aliyun MNS with latencies, for measurements
    MnsServer(mns::command::Settings),
    /// Serve an image as a disk with a volatile cache (the trials start this by themselves)
    Flakydisk { image: PathBuf, mount: PathBuf },
    /// Check histories written before
    Check {
        #[arg(required = true)]
        histories: Vec<PathBuf>,
    },
}

/// What is done to whom.
#[derive(Args, Clone, Debug)]
struct Chaos {
    /// Nodes: 1; 3 on hosts of their own (which needs root); or 5, some of which are lost for good
    #[arg(long, default_value_t = 1, value_parser = clap::builder::PossibleValuesParser::new(["1", "3", "5"])
        .map(|text| text.parse::<u32>().unwrap_or(1)))]
    nodes: u32,
    /// Three nodes: these faults, a run for each (mix: all of them by chance) [default: all]. Five nodes: what is
    /// lost; a round is a run of its own
    #[arg(long, value_delimiter = ',')]
    fault: Vec<String>,
    /// Three nodes: one run for all of the faults, each of which strikes in its turn
    #[arg(long)]
    together: bool,
    /// Show the faults there are for three and for five nodes
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    common: Common,
}

impl Trial {
    /// Whether it runs three nodes, each on a host of its own.
    fn needs_hosts(&self) -> bool {
        match self {
            Self::Chaos(chaos) => chaos.nodes > 1 && !chaos.list,
            Self::Bench(_) => true,
            // Some bugs only show in a cluster; where there can be none, the others are hunted.
            Self::Planted { .. } => net::is_possible().is_ok(),
            Self::Kill9(_) | Self::Powercut(_) | Self::Diskfault(_) | Self::Sim(_) => false,
            Self::Ladder(_) | Self::RelayBench(_) | Self::WorkBench(_) | Self::WorkSoak(_) => false,
            Self::RelaySim(_) => false,
            Self::Siege(_) | Self::Differential(_) | Self::Relay(_) | Self::Check { .. } => false,
            // What other trials start by themselves.
            Self::NoopWorker(_)
            | Self::PlantedRelay(_)
            | Self::ApnsServer(_)
            | Self::WebhookServer(_)
            | Self::ApnsLoad(_)
            | Self::MnsServer(_)
            | Self::Flakydisk { .. } => false,
        }
    }
}

/// The trials of each kind of disk fault.
const DISKFAULTS: [(&str, MakeHarm); 4] = [
    ("eio", |dir| Ok(Box::new(FailingSync::new(dir)?))),
    ("badflush", |dir| Ok(Box::new(FailingFlush::new(dir)?))),
    ("diskfull", |dir| Ok(Box::new(DiskFull::new(dir)?))),
    ("bitflip", |_| Ok(Box::new(BitFlip))),
];
const KILL9: [(&str, MakeHarm); 1] = [("kill9", |_| Ok(Box::new(Kill)))];
const POWERCUT: [(&str, MakeHarm); 1] = [("powercut", |dir| Ok(Box::new(PowerCut::new(dir)?)))];

#[derive(Args, Clone, Debug)]
struct Common {
    /// The broker's binary
    #[arg(long, default_value = "target/release/millrace")]
    broker: PathBuf,
    /// Whose broker it is
    #[arg(long, value_enum, default_value = "millrace")]
    broker_kind: Kind,
    /// How often harm is done
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Longest time between two harms
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Decides every moment; from the clock if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Where runs that fail are kept
    #[arg(long, default_value = "target/trials")]
    dir: PathBuf,
    /// Keep the files of runs that pass, too
    #[arg(long)]
    keep: bool,
    /// A Python that has pika; without it that lane is skipped
    #[arg(long, default_value = ".tools/venv/bin/python")]
    python: PathBuf,
    /// More arguments for the broker
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Common {
    fn options(&self) -> Result<Options, Failure> {
        std::fs::create_dir_all(&self.dir)?;
        // Mounts and processes need names that hold wherever they start.
        let dir = self.dir.canonicalize()?;
        Ok(Options {
            broker: self.broker.clone(),
            kind: self.broker_kind,
            rounds: self.rounds,
            seconds: self.seconds,
            seed: self.seed.unwrap_or_else(|| crate::workload::io::now() % 1_000_000),
            dir,
            keep: self.keep,
            python: self.python.clone(),
            arguments: self.arguments.clone(),
            bug: None,
        })
    }
}

/// Does what the command line asks. 0: everything was valid (or skipped, and said so).
pub fn run() -> ExitCode {
    let command = Command::parse();
    if net::is_inside()
        && let Err(failure) = net::bring_up_loopback()
    {
        println!("{failure}");
        return ExitCode::FAILURE;
    }
    if !net::is_inside() && command.trial.needs_hosts() {
        return net::enter().unwrap_or_else(|failure| {
            println!("{failure}");
            // What this machine cannot do is skipped, and said so.
            let is_skipped = matches!(failure, Failure::Skipped(_));
            if is_skipped { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        });
    }
    let passed = match &command.trial {
        Trial::Bench(options) => measure::run(options),
        Trial::Kill9(common) => run_all(common, &KILL9),
        Trial::Powercut(common) => run_all(common, &POWERCUT),
        Trial::Diskfault(common) => run_all(common, &DISKFAULTS),
        Trial::Chaos(chaos) if chaos.list => list_faults(),
        Trial::Chaos(chaos) if chaos.nodes == rescue_trial::NODES => run_rescues(chaos),
        Trial::Chaos(chaos) if chaos.nodes > 1 => run_cluster(chaos),
        Trial::Chaos(Chaos { common, .. }) => {
            run_all(common, &[&KILL9[..], &POWERCUT, &DISKFAULTS].concat())
        }
        Trial::Planted { bug, root, common } => {
            common.options().and_then(|options| hunt_all(&options, root, bug))
        }
        Trial::Ladder(options) => ladder::run(options),
        Trial::Relay(options) => relay::command::run(options),
        Trial::PlantedRelay(options) => {
            relay::planted::run(options).map(|()| true).map_err(Failure::from)
        }
        Trial::RelayBench(options) => relay_bench::run(options),
        Trial::RelaySim(options) => crate::relay_sim::run(options).map_err(Failure::from),
        Trial::WorkBench(options) => work_bench::run(options),
        Trial::WorkSoak(options) => crate::work_soak::run(options),
        Trial::Siege(options) => crate::siege::run(options),
        Trial::NoopWorker(options) => work_bench::noop::run(options),
        Trial::Differential(options) => options.run(),
        Trial::Sim(simulation) => simulation.run().map_err(Failure::from),
        Trial::WebhookServer(options) => {
            crate::providers::webhook::run(options).map_err(Failure::from)
        }
        Trial::ApnsServer(options) => apns::command::run(options).map_err(Failure::from),
        Trial::ApnsLoad(options) => apns::load::run(options).map_err(Failure::Trial),
        Trial::MnsServer(options) => {
            mns::command::run(options).map(|()| true).map_err(Failure::from)
        }
        Trial::Flakydisk { image, mount } => {
            flaky_disk::serve(image, mount).map(|()| true).map_err(Failure::from)
        }
        Trial::Check { histories } => check_files(histories),
    };
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn list_faults() -> Result<bool, Failure> {
    for fault in FAULTS.iter().chain([&MIX]) {
        println!("{:4} {}", fault.row, fault.name);
    }
    for scenario in &rescue_trial::SCENARIOS {
        println!("F15  {} (--nodes 5)", scenario.name);
    }
    Ok(true)
}

/// Runs of five nodes: each loses some for good. True if none failed.
fn run_rescues(chaos: &Chaos) -> Result<bool, Failure> {
    let options = chaos.common.options()?;
    let is_named = |name: &str| chaos.fault.is_empty() || chaos.fault.iter().any(|it| it == name);
    if let Some(unknown) = chaos
        .fault
        .iter()
        .find(|name| rescue_trial::SCENARIOS.iter().all(|scenario| scenario.name != name.as_str()))
    {
        return Err(Failure::Trial(format!(
            "there is no fault {unknown} for five nodes (see --list)"
        )));
    }
    let mut passed = true;
    for round in 0..u64::from(options.rounds) {
        let options = Options { seed: options.seed + round, ..options.clone() };
        for scenario in rescue_trial::SCENARIOS.iter().filter(|it| is_named(it.name)) {
            println!("{}, five nodes: seed {}", scenario.name, options.seed);
            match rescue_trial::run(&options, scenario) {
                Ok(outcome) => {
                    println!("{outcome}");
                    passed &= outcome.passed();
                }
                Err(skipped @ Failure::Skipped(_)) => println!("{}: {skipped}", scenario.name),
                Err(failure) => {
                    println!("{}: {failure}", scenario.name);
                    passed = false;
                }
            }
        }
    }
    Ok(passed)
}

/// Runs of three nodes. True if none failed; what was skipped is said.
fn run_cluster(chaos: &Chaos) -> Result<bool, Failure> {
    let options = chaos.common.options()?;
    let mut faults = Vec::new();
    for name in &chaos.fault {
        let fault = faults::named(name);
        faults.push(fault.ok_or(Failure::Trial(format!("there is no fault {name} (see --list)")))?);
    }
    if faults.is_empty() {
        faults.extend(FAULTS);
    }
    let mut possible = Vec::new();
    for fault in faults {
        if options.kind != Kind::Millrace && !fault.for_all {
            println!("{}: skipped: only done to Millrace", fault.name);
        } else if let Err(why) = cluster_trial::is_possible(fault) {
            println!("{}: {why}", fault.name);
        } else {
            possible.push(fault);
        }
    }
    let rounds = options.rounds;
    let schedules: Vec<Schedule> = if chaos.together {
        vec![Schedule { name: "together".to_owned(), faults: possible, rounds }]
    } else {
        let alone = |fault: &'static Fault| Schedule {
            name: fault.name.to_owned(),
            faults: vec![fault],
            rounds,
        };
        possible.into_iter().map(alone).collect()
    };
    let mut passed = true;
    for schedule in schedules.iter().filter(|schedule| !schedule.faults.is_empty()) {
        println!("{}, three nodes: seed {}, {rounds} rounds", schedule.name, options.seed);
        match cluster_trial::run(&options, schedule) {
            Ok(outcome) => {
                println!("{outcome}");
                passed &= outcome.passed();
            }
            Err(skipped @ Failure::Skipped(_)) => println!("{}: {skipped}", schedule.name),
            Err(failure) => {
                println!("{}: {failure}", schedule.name);
                passed = false;
            }
        }
    }
    Ok(passed)
}

/// Runs trial after trial. True if none failed; what was skipped is said.
fn run_all(common: &Common, trials: &[(&str, MakeHarm)]) -> Result<bool, Failure> {
    let options = common.options()?;
    let mut passed = true;
    for (name, make) in trials {
        println!("{name}: seed {}, {} rounds", options.seed, options.rounds);
        match run_trial(&options, name, *make) {
            Ok(outcome) => {
                println!("{outcome}");
                passed &= outcome.passed();
            }
            Err(skipped @ Failure::Skipped(_)) => println!("{name}: {skipped}"),
            Err(failure) => {
                println!("{name}: {failure}");
                passed = false;
            }
        }
    }
    Ok(passed)
}

fn check_files(paths: &[PathBuf]) -> Result<bool, Failure> {
    let mut history = History::default();
    for path in paths {
        let file = std::fs::File::open(path)?;
        history.add(&path.display().to_string(), BufReader::new(file))?;
    }
    let report = check(&history, &Rules::default());
    println!("{report}");
    Ok(report.verdict() == Verdict::Valid)
}
