//! `bench cluster`: three nodes beside three nodes of RabbitMQ, in hosts of their own.
//!
//! The hosts, the slow disks and the clients are those of the trials, so the work is theirs.

use crate::process::{cargo, run, target};
use crate::{Outcome, trials};

/// Builds what is measured, and measures it.
pub(super) fn measure(words: &[String]) -> Outcome {
    run(&mut cargo(&["build", "--quiet", "--release", "--package", "millrace"]))?;
    let folder = target();
    let mut bench = trials::trials("bench");
    bench.arg("--broker").arg(folder.join("release/millrace"));
    bench.arg("--dir").arg(folder.join("bench-cluster"));
    run(bench.args(words))
}
