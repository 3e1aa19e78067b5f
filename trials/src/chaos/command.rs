//! The command line.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use super::broker::Kind;
use super::kill9::Kill;
use super::powercut::PowerCut;
use super::trial::{Options, run as run_trial};
use super::{Failure, flaky_disk};
use crate::checker::{Rules, Verdict, check};
use crate::history::History;

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
    /// Serve an image as a disk with a volatile cache (powercut starts this by itself)
    Flakydisk { image: PathBuf, mount: PathBuf },
    /// Check histories written before
    Check {
        #[arg(required = true)]
        histories: Vec<PathBuf>,
    },
}

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
            arguments: self.arguments.clone(),
        })
    }
}

/// Does what the command line asks. 0: everything was valid (or skipped, and said so).
pub fn run() -> ExitCode {
    let command = Command::parse();
    let passed = match &command.trial {
        Trial::Kill9(common) => common.options().and_then(|options| trial_kill9(&options)),
        Trial::Powercut(common) => common.options().and_then(|options| trial_powercut(&options)),
        Trial::Flakydisk { image, mount } => {
            flaky_disk::serve(image, mount).map(|()| true).map_err(Failure::from)
        }
        Trial::Check { histories } => check_files(histories),
    };
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(skipped @ Failure::Skipped(_)) => {
            println!("{skipped}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn trial_kill9(options: &Options) -> Result<bool, Failure> {
    println!("kill9: seed {}, {} rounds", options.seed, options.rounds);
    let outcome = run_trial(options, &mut Kill)?;
    finish(&outcome)
}

fn trial_powercut(options: &Options) -> Result<bool, Failure> {
    println!("powercut: seed {}, {} rounds", options.seed, options.rounds);
    let disk = options.dir.join(format!("disk-{}", options.seed));
    std::fs::create_dir_all(&disk)?;
    let mut cut = PowerCut::new(&disk)?;
    let outcome = run_trial(options, &mut cut)?;
    drop(cut);
    let passed = finish(&outcome)?;
    if passed {
        std::fs::remove_dir_all(&disk)?;
    }
    Ok(passed)
}

/// Prints the outcome; a run that passed leaves nothing behind.
fn finish(outcome: &super::table::Outcome) -> Result<bool, Failure> {
    println!("{outcome}");
    if outcome.passed() {
        std::fs::remove_dir_all(&outcome.dir)?;
    }
    Ok(outcome.passed())
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
