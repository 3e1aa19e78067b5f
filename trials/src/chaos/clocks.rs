//! Clocks of processes that a file sets: `libfaketime` reads it each time.

use std::path::{Path, PathBuf};

use super::Failure;
use super::net::NODES;

const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/// Whether clocks can be set here.
pub(super) fn is_possible() -> Result<(), Failure> {
    if Path::new(LIBRARY).exists() {
        return Ok(());
    }
    Err(Failure::Skipped(format!("{LIBRARY} is missing (apt-get install libfaketime)")))
}

/// What a process needs to read its clock from `file`.
pub(super) fn environment(file: &Path) -> [(&'static str, String); 4] {
    [
        ("LD_PRELOAD", LIBRARY.to_owned()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("FAKETIME_TIMESTAMP_FILE", file.to_string_lossy().into_owned()),
    ]
}

/// Files with the right time for every node.
pub(super) fn files(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    (1..=NODES)
        .map(|node| {
            let file = dir.join(format!("clock-{node}"));
            std::fs::write(&file, "+0\n")?;
            Ok(file)
        })
        .collect()
}
