//! What every test of the relay begins with.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    dead_code,
    reason = "starts processes and builds the product for them; no test needs everything"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use trials::chaos::Failure;
use trials::chaos::broker::Kind;
use trials::relay::{Report, Stage};

/// The product of the build that the trials belong to, or the one that `TRIALS_MILLRACE` names.
pub(crate) fn millrace() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(binary) = std::env::var_os("TRIALS_MILLRACE") {
            return binary.into();
        }
        let trials = Path::new(env!("CARGO_BIN_EXE_trials"));
        let folder = trials.parent().unwrap();
        let target = folder.parent().unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "millrace", "--target-dir"]).arg(target);
        if folder.ends_with("release") {
            build.arg("--release");
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert!(build.current_dir(root).status().unwrap().success());
        folder.join("millrace")
    })
}

pub(crate) fn dir() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_trials")).with_file_name("relay-trials")
}

/// A database and a broker, or none where the machine has no such thing, which is said.
pub(crate) fn stage(kind: Kind) -> Option<Stage> {
    given(Stage::start(kind, millrace(), &dir()))
}

/// What a trial gave, or nothing where it was skipped.
#[track_caller]
pub(crate) fn given<T>(result: Result<T, Failure>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(skipped @ Failure::Skipped(_)) => {
            println!("{skipped}");
            None
        }
        Err(failure) => panic!("{failure}"),
    }
}

/// What a trial gave; anything else fails the test in its own words.
#[track_caller]
pub(crate) fn done<T>(result: Result<T, Failure>) -> T {
    result.unwrap_or_else(|failure| panic!("{failure}"))
}

#[track_caller]
pub(crate) fn valid(report: Report) -> Report {
    println!("{report}");
    assert!(report.is_valid(), "{report}");
    report
}

/// Between two looks at what has to stay as it is.
pub(crate) fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(50));
}
