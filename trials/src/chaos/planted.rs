//! Bugs planted on purpose, each of which must be caught: a suite that misses one is no evidence.
//!
//! A planted bug is a `--cfg` that only our own crates are built with: the compiler's wrapper adds
//! it, so the dependencies are built once for all of them.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Failure;
use super::bitflip::BitFlip;
use super::kill9::Kill;
use super::powercut::PowerCut;
use super::table::Outcome;
use super::trial::{MakeHarm, Options, run};
use crate::checker::Promise;

/// One bug and the trial that must find it.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    pub name: &'static str,
    trial: &'static str,
    make: MakeHarm,
    rounds: u32,
    /// With small log files, which are recycled all the time, it shows sooner; or it breaks an
    /// assertion before any promise.
    files: Files,
    /// What it breaks, seen by clients.
    breaks: Promise,
    /// Whether a broker that does not start any more is what it leads to as well.
    may_refuse: bool,
}

/// What the size of log files is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Files {
    Any,
    Small,
    Large,
}

/// All of them.
pub const PLANTED: [Planted; 4] = [
    Planted {
        name: "bug_ack_before_fsync",
        trial: "powercut",
        make: |dir| Ok(Box::new(PowerCut::new(dir)?)),
        rounds: 4,
        files: Files::Large,
        breaks: Promise::Lost,
        may_refuse: false,
    },
    Planted {
        name: "bug_skip_dir_sync",
        trial: "powercut",
        make: |dir| Ok(Box::new(PowerCut::new(dir)?)),
        rounds: 6,
        files: Files::Small,
        breaks: Promise::Lost,
        may_refuse: true,
    },
    Planted {
        name: "bug_truncate_on_crc",
        trial: "bitflip",
        make: |_| Ok(Box::new(BitFlip)),
        rounds: 1,
        files: Files::Any,
        breaks: Promise::Lost,
        may_refuse: false,
    },
    Planted {
        name: "bug_requeue_unflagged",
        trial: "kill9",
        make: |_| Ok(Box::new(Kill)),
        rounds: 2,
        files: Files::Any,
        breaks: Promise::Unflagged,
        may_refuse: false,
    },
];

/// Seeds tried before a bug counts as missed.
const SEEDS: u64 = 4;

impl Planted {
    /// Builds the broker with the bug, out of the workspace at `root`.
    fn build(&self, root: &Path, target: &Path) -> Result<PathBuf, Failure> {
        std::fs::create_dir_all(target)?;
        let wrapper = target.join(format!("rustc-{}", self.name));
        std::fs::write(&wrapper, format!("#!/bin/sh\nexec \"$@\" --cfg {}\n", self.name))?;
        std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755))?;
        let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--quiet", "--package", "millrace", "--target-dir"])
            .arg(target)
            .current_dir(root)
            .env("RUSTC_WORKSPACE_WRAPPER", &wrapper)
            .status()?;
        if !status.success() {
            return Err(Failure::Trial(format!("the broker with {} does not build", self.name)));
        }
        let kept = target.join(self.name);
        std::fs::copy(target.join("debug/millrace"), &kept)?;
        Ok(kept)
    }

    /// Whether the right broker passes what caught the planted one: it is the bug that was seen.
    fn control(&self, options: &Options, seed: u64) -> Result<bool, Failure> {
        let dir = options.dir.join("control");
        let options = Options { seed, dir, rounds: self.rounds, ..options.clone() };
        let outcome = run(&options, self.trial, self.make)?;
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
            let outcome = run(&options, self.trial, self.make)?;
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

/// Builds and hunts those whose name holds `word`. True if every one was caught.
pub fn hunt_all(options: &Options, root: &Path, word: &str) -> Result<bool, Failure> {
    let mut all = true;
    for planted in PLANTED.iter().filter(|planted| planted.name.contains(word)) {
        let broker = planted.build(root, &options.dir.join("build"))?;
        let with_bug = Options { broker, ..options.clone() };
        match planted.hunt(&with_bug) {
            Ok(Some(outcome)) => {
                let (trial, seed, caught) = (planted.trial, outcome.seed, outcome.caught());
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
                println!("{}: NOT CAUGHT by {} in {SEEDS} seeds", planted.name, planted.trial);
            }
            Err(skipped @ Failure::Skipped(_)) => println!("{}: {skipped}", planted.name),
            Err(failure) => return Err(failure),
        }
    }
    Ok(all)
}
