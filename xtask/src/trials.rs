//! `sim`, `chaos` and `differential`: handed on to the package `trials`, which proves the whole.

use crate::Outcome;
use crate::process::{cargo, run, target};

/// Trials that do harm to a real broker; `chaos` is all but the last of them.
const HARMS: &[&str] = &["chaos", "kill9", "powercut", "diskfault", "planted"];

/// `cargo xtask sim [options]`
pub(crate) fn sim(words: &[String]) -> Outcome {
    run(trials("sim").args(words))
}

/// `cargo xtask chaos [kill9|powercut|diskfault|planted] [options]`; `--nodes 3` is for clusters.
pub(crate) fn chaos(words: &[String]) -> Outcome {
    run(&mut cargo(&["build", "--quiet", "--release", "--package", "millrace"]))?;
    let (harm, words) = match words.split_first() {
        Some((word, words)) if HARMS.contains(&word.as_str()) => (word.as_str(), words),
        _ => ("chaos", words),
    };
    let folder = target();
    let mut trials = trials(harm);
    trials.arg("--broker").arg(folder.join("release/millrace"));
    trials.arg("--dir").arg(folder.join("trials"));
    run(trials.args(words))
}

/// `cargo xtask differential [options]`
pub(crate) fn differential(words: &[String]) -> Outcome {
    run(&mut cargo(&["build", "--quiet", "--release", "--package", "millrace"]))?;
    let mut trials = trials("differential");
    trials.arg("--broker").arg(target().join("release/millrace"));
    run(trials.args(words))
}

/// The program of the trials, about to do what `name` says.
pub(crate) fn trials(name: &str) -> std::process::Command {
    cargo(&["run", "--quiet", "--release", "--package", "trials", "--", name])
}
