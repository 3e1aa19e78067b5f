//! `sim`, `chaos` and `fuzz`: handed on to the package `trials`, which proves the whole.

use crate::Outcome;
use crate::process::{cargo, run};

pub(crate) fn sim(words: &[String]) -> Outcome {
    hand_on("sim", words)
}

/// The real binary: it is built first, since `trials` does not depend on it.
pub(crate) fn chaos(words: &[String]) -> Outcome {
    run(&mut cargo(&["build", "--quiet", "--release", "--package", "millrace"]))?;
    hand_on("chaos", words)
}

pub(crate) fn fuzz(words: &[String]) -> Outcome {
    hand_on("fuzz", words)
}

fn hand_on(name: &str, words: &[String]) -> Outcome {
    let mut command = cargo(&["run", "--quiet", "--release", "--package", "trials", "--", name]);
    run(command.args(words))
}
