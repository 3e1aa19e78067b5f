//! `chaos`: handed on to the package `trials`, with a release build of the broker to do harm to.

use crate::Outcome;
use crate::process::{cargo, run, target};

/// Trials that take a broker.
const HARMS: &[&str] = &["kill9", "powercut"];

/// `cargo xtask chaos [kill9|powercut …]`
pub(crate) fn chaos(words: &[String]) -> Outcome {
    run(&mut cargo(&["build", "--quiet", "--release", "--package", "millrace"]))?;
    let mut trials = cargo(&["run", "--quiet", "--release", "--package", "trials", "--"]);
    match words.split_first() {
        Some((harm, words)) if HARMS.contains(&harm.as_str()) => {
            trials.arg(harm).arg("--broker").arg(target().join("release/millrace")).args(words)
        }
        _ => trials.args(words),
    };
    run(&mut trials)
}
