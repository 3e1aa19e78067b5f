//! Bugs planted on purpose, each of which must be caught: a suite that misses one is no evidence.
//!
//! One broker is built with all of them, and told by its environment which one is at work. `--cfg planted` is for our
//! own crates alone: the compiler's wrapper adds it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::bitflip::BitFlip;
use super::cluster_trial::{self, Schedule};
use super::kill9::Kill;
use super::powercut::PowerCut;
use super::table::Outcome;
use super::trial::{MakeHarm, Options, run};
use super::{Failure, faults};
use crate::checker::Promise;

/// One bug and the trial that must find it.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    pub name: &'static str,
    hunt: Hunt,
    rounds: u32,
    /// With small log files, which are recycled all the time, it shows sooner; or it breaks an
    /// assertion before any promise.
    files: Files,
    /// What it breaks, seen by clients.
    breaks: Promise,
    /// Whether a broker that does not start any more is what it leads to as well.
    may_refuse: bool,
}

/// Where it is looked for.
#[derive(Clone, Copy, Debug)]
enum Hunt {
    /// One node, this trial.
    Alone(&'static str, MakeHarm),
    /// Three nodes, these faults one after the other.
    Cluster(&'static [&'static str]),
}

/// What the size of log files is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Files {
    Any,
    Small,
    Large,
}

/// All of them.
pub const PLANTED: [Planted; 9] = [
    Planted {
        name: "ack_before_fsync",
        hunt: Hunt::Alone("powercut", |dir| Ok(Box::new(PowerCut::new(dir)?))),
        rounds: 4,
        files: Files::Large,
        breaks: Promise::Lost,
        may_refuse: false,
    },
    Planted {
        name: "skip_dir_sync",
        hunt: Hunt::Alone("powercut", |dir| Ok(Box::new(PowerCut::new(dir)?))),
        rounds: 6,
        files: Files::Small,
        breaks: Promise::Lost,
        may_refuse: true,
    },
    Planted {
        name: "truncate_on_crc",
        hunt: Hunt::Alone("bitflip", |_| Ok(Box::new(BitFlip))),
        rounds: 1,
        files: Files::Any,
        breaks: Promise::Lost,
        may_refuse: false,
    },
    Planted {
        name: "requeue_unflagged",
        hunt: Hunt::Alone("kill9", |_| Ok(Box::new(Kill))),
        rounds: 2,
        files: Files::Any,
        breaks: Promise::Unflagged,
        may_refuse: false,
    },
    Planted {
        name: "delivered_unmarked",
        hunt: Hunt::Alone("kill9", |_| Ok(Box::new(Kill))),
        rounds: 2,
        files: Files::Any,
        breaks: Promise::Unflagged,
        may_refuse: false,
    },
    Planted {
        name: "key_freed_by_nack",
        hunt: Hunt::Alone("kill9", |_| Ok(Box::new(Kill))),
        rounds: 2,
        files: Files::Any,
        breaks: Promise::Reordered,
        may_refuse: false,
    },
    Planted {
        name: "loan_uncharged",
        hunt: Hunt::Alone("kill9", |_| Ok(Box::new(Kill))),
        // What is too much adds up.
        rounds: 12,
        files: Files::Any,
        breaks: Promise::Hurried,
        may_refuse: false,
    },
    Planted {
        name: "vote_not_synced",
        hunt: Hunt::Cluster(&["power-all", "nats-7567", "power-one"]),
        rounds: 3,
        files: Files::Large,
        breaks: Promise::Lost,
        may_refuse: true,
    },
    Planted {
        name: "confirm_before_majority",
        hunt: Hunt::Cluster(&["isolate-leader", "kill-leader"]),
        rounds: 2,
        files: Files::Any,
        breaks: Promise::Lost,
        may_refuse: false,
    },
];

/// Seeds tried before a bug counts as missed.
const SEEDS: u64 = 4;

impl Hunt {
    fn name(self) -> &'static str {
        match self {
            Self::Alone(trial, _) => trial,
            Self::Cluster(_) => "three nodes",
        }
    }

    fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let names = match self {
            Self::Alone(trial, make) => return run(options, trial, make),
            Self::Cluster(names) => names,
        };
        let faults: Vec<_> = names.iter().filter_map(|name| faults::named(name)).collect();
        for fault in &faults {
            cluster_trial::is_possible(fault)?;
        }
        let schedule = Schedule { name: "hunt".to_owned(), faults, rounds: options.rounds };
        cluster_trial::run(options, &schedule)
    }
}

impl Planted {
    /// Whether the right broker passes what caught the planted one: it is the bug that was seen.
    fn control(&self, options: &Options, seed: u64) -> Result<bool, Failure> {
        let dir = options.dir.join("control");
        let options = Options { seed, dir, rounds: self.rounds, ..options.clone() };
        let outcome = self.hunt.run(&options)?;
        if !outcome.passed() {
            println!("{outcome}");
        }
        Ok(outcome.passed())
    }

    /// Runs its trial until it is caught. Gives back what caught it.
    fn hunt(&self, options: &Options) -> Result<Option<Outcome>, Failure> {
        for nth in options.seed..options.seed + SEEDS {
            // Even seeds run with small files.
            let seed = match self.files {
                Files::Any => nth,
                Files::Small => nth * 2,
                Files::Large => nth * 2 + 1,
            };
            let dir = options.dir.join(self.name);
            let options = Options { seed, dir, rounds: self.rounds, ..options.clone() };
            let outcome = self.hunt.run(&options)?;
            let seen = !outcome.report.broken(self.breaks).is_empty();
            if seen || (self.may_refuse && !outcome.broken.is_empty()) {
                // Everything it left was wanted: only a bug that escapes is worth keeping.
                std::fs::remove_dir_all(&outcome.dir)?;
                return Ok(Some(outcome));
            }
        }
        Ok(None)
    }
}

/// Builds the broker with all bugs, out of the workspace at `root`.
fn build(root: &Path, target: &Path) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(target)?;
    let wrapper = target.join("rustc-planted");
    std::fs::write(&wrapper, "#!/bin/sh\nexec \"$@\" --cfg planted\n")?;
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755))?;
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--package", "millrace", "--target-dir"])
        .arg(target)
        .current_dir(root)
        .env("RUSTC_WORKSPACE_WRAPPER", &wrapper)
        .status()?;
    match status.success() {
        true => Ok(target.join("debug/millrace")),
        false => Err(Failure::Trial("the broker with planted bugs does not build".to_owned())),
    }
}

/// Builds the broker and hunts those whose name holds `word`. True if every one was caught.
pub fn hunt_all(options: &Options, root: &Path, word: &str) -> Result<bool, Failure> {
    let mut all = true;
    let broker = build(root, &options.dir.join("build"))?;
    for planted in PLANTED.iter().filter(|planted| planted.name.contains(word)) {
        let (broker, bug) = (broker.clone(), Some(planted.name));
        let with_bug = Options { broker, bug, ..options.clone() };
        match planted.hunt(&with_bug) {
            Ok(Some(outcome)) => {
                let (trial, seed, caught) = (planted.hunt.name(), outcome.seed, outcome.caught());
                println!("{}: caught by {trial}, seed {seed}: {caught}", planted.name);
                if options.broker.exists() {
                    let passes = planted.control(options, seed)?;
                    let word = if passes { "passes" } else { "FAILS" };
                    println!("  the broker without the bug {word} the same seed");
                    all &= passes;
                }
            }
            Ok(None) => {
                all = false;
                println!(
                    "{}: NOT CAUGHT by {} in {SEEDS} seeds",
                    planted.name,
                    planted.hunt.name()
                );
            }
            Err(skipped @ Failure::Skipped(_)) => println!("{}: {skipped}", planted.name),
            Err(failure) => return Err(failure),
        }
    }
    Ok(all)
}
