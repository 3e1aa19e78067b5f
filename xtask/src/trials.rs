//! `sim`, `chaos` and `differential`: handed on to the package `trials`, which proves the whole.

use std::process::Command;

use crate::brokers::Build;
use crate::process::{cargo, command, run, target};
use crate::{Outcome, planted};

/// Trials that do harm to a real broker; `chaos` is all but the last two of them.
const HARMS: &[&str] = &["chaos", "kill9", "powercut", "diskfault", "planted", "relay"];

/// `cargo xtask sim [options]`: the cluster; `cargo xtask sim relay [options]`: the relay's publishing core.
pub(crate) fn sim(words: &[String]) -> Outcome {
    if let Some((_, words)) = words.split_first().filter(|(first, _)| *first == "relay") {
        let is_hunt = words.iter().any(|word| word.starts_with("--bug") || word == "--planted");
        return match is_hunt {
            true => run(planted_trials("relay-sim")?.args(words)),
            false => run(trials("relay-sim").args(words)),
        };
    }
    let is_hunt = |word: &String| word == "--bug" || word.starts_with("--planted");
    match words.iter().any(is_hunt) {
        true => planted_sim(words),
        false => run(trials("sim").args(words)),
    }
}

/// The simulator with all planted bugs, one of which is chosen at its start. What others built of the dependencies is
/// of use, and a hunt has too few seeds for an optimised build to pay off.
fn planted_sim(words: &[String]) -> Outcome {
    run(planted_trials("sim")?.args(words))
}

fn planted_trials(command: &str) -> Result<Command, String> {
    let mut cargo = cargo(&["run", "--quiet", "--package", "trials", "--", command]);
    cargo.env("RUSTC_WORKSPACE_WRAPPER", planted::wrapper("planted")?);
    Ok(cargo)
}

/// A few seeds, by the program as the tests have it: they are sooner done than another build.
pub(crate) fn short_sim(words: &[String]) -> Outcome {
    run(as_tested("sim").args(words))
}

/// `cargo xtask chaos [kill9|powercut|diskfault|planted|relay] [options]`; `--nodes 3` is for clusters.
pub(crate) fn chaos(words: &[String]) -> Outcome {
    harm(trials, Build::Release, words)
}

/// A few rounds, by program and broker as the tests have them.
pub(crate) fn short_chaos(words: &[String]) -> Outcome {
    harm(as_tested, Build::Tested, words)
}

fn harm(program: fn(&str) -> Command, build: Build, words: &[String]) -> Outcome {
    build.make()?;
    let (harm, words) = match words.split_first() {
        Some((word, words)) if HARMS.contains(&word.as_str()) => (word.as_str(), words),
        _ => ("chaos", words),
    };
    let mut trials = program(harm);
    trials.arg("--broker").arg(build.millrace());
    trials.arg("--dir").arg(target().join("trials"));
    run(trials.args(words))
}

/// `cargo xtask differential [options]`
pub(crate) fn differential(words: &[String]) -> Outcome {
    Build::Release.make()?;
    let mut trials = trials("differential");
    trials.arg("--broker").arg(Build::Release.millrace());
    run(trials.args(words))
}

/// `cargo xtask siege [options]`
pub(crate) fn siege(words: &[String]) -> Outcome {
    Build::Release.make()?;
    let mut trials = trials("siege");
    trials.arg("--broker").arg(Build::Release.millrace());
    trials.arg("--dir").arg(target().join("siege"));
    run(trials.args(words))
}

/// A tenth of every attack, by program and broker as the tests have them.
pub(crate) fn short_siege() -> Outcome {
    Build::Tested.make()?;
    let mut trials = as_tested("siege");
    trials.arg("--broker").arg(Build::Tested.millrace());
    trials.arg("--dir").arg(target().join("siege"));
    // An unoptimised node takes more for the same.
    run(trials.args(["--quick", "--memory-mb", "768"]))
}

/// The program of the trials, about to do what `name` says.
pub(crate) fn trials(name: &str) -> Command {
    cargo(&["run", "--quiet", "--release", "--package", "trials", "--", name])
}

/// The same, as `cargo test` has built it for its own tests.
fn as_tested(name: &str) -> Command {
    command(target().join("debug/trials"), &[name])
}
