//! `run`: a broker to try things on, with a data directory that is wiped first.

use crate::Outcome;
use crate::process::{cargo, run, target};

/// `cargo xtask run [options of serve]`
pub(crate) fn command(words: &[String]) -> Outcome {
    let folder = target().join("throwaway");
    let _ = std::fs::remove_dir_all(&folder);
    let mut serve = cargo(&["run", "--release", "--package", "millrace", "--", "serve"]);
    run(serve.arg("--data-dir").arg(&folder).args(words))
}
