//! The tests of `cargo xtask check --quick`: those that say within minutes whether a change is worth the full run.
//!
//! Of every library and program the unit tests, and the integration tests that take few seconds. Whatever is new
//! belongs to them, until it is in the list of what is slow. Simulated clusters are left to the step that follows.

use std::collections::BTreeSet;
use std::path::Path;

use crate::process::root;
use crate::tally::Tally;
use crate::testing::{self, Binary};
use crate::tidy::packages;

/// Integration tests that take longer than ten seconds of the lanes that they run in.
const SLOW: &[&str] = &[
    "broker/bad_input",
    "cluster/cores",
    "wal/corruption",
    "wal/crash",
    "worker/pool_random",
    "worker/program",
];

/// Packages whose tests start brokers, databases and providers: of these run only the ones named here. Cargo
/// builds the programs of a package for its integration tests alone, and the simulator is wanted.
const OF_PROGRAMS: &[(&str, &[&str])] =
    &[("crates/millrace", &["commands", "fuzz_targets"]), ("trials", &["work"])];

/// What is left to `sim`, of the one binary that has it: the log's simulated disk has tests of that name, too.
const SKIPPED: (&str, &[&str]) = ("trials/trials", &["--skip", "sim::tests"]);

/// Builds them and runs them.
pub(crate) fn run() -> Result<Tally, String> {
    let tests = tests(&root())?;
    let names: BTreeSet<&str> = tests.iter().filter_map(|name| name.split('/').nth(1)).collect();
    let mut selection = vec!["--lib", "--bins"];
    for name in names {
        selection.extend(["--test", name]);
    }
    let is_wanted = |binary: &Binary| binary.is_of_units() || tests.contains(&binary.name());
    let mut binaries = testing::binaries(&selection)?;
    binaries.retain(is_wanted);
    Ok(testing::run_binaries(binaries, words))
}

/// The words that a binary is run with.
fn words(name: &str) -> &'static [&'static str] {
    let (skipping, words) = SKIPPED;
    if name == skipping { words } else { &[] }
}

/// The integration tests that are quick, as messages call them: `wal/golden`.
fn tests(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut tests = BTreeSet::new();
    for folder in packages(root)? {
        let package = folder.rsplit('/').next().unwrap_or_default();
        let only = OF_PROGRAMS.iter().find(|(name, _)| *name == folder).map(|(_, only)| *only);
        for test in tests_in(&root.join(&folder).join("tests")) {
            let name = format!("{package}/{test}");
            let is_quick = only.map_or(!SLOW.contains(&&*name), |only| only.contains(&&*test));
            if is_quick {
                tests.insert(name);
            }
        }
    }
    Ok(tests)
}

/// The names of the integration tests in a folder: files, and folders with a `main.rs`.
fn tests_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |entry: std::fs::DirEntry| {
        let path = entry.path();
        let is_test =
            path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").is_file();
        is_test.then(|| path.file_stem().unwrap_or_default().to_string_lossy().into_owned())
    };
    entries.filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_that_is_named_exists() {
        let exists = |package: &str, test: &str| {
            let tests = root().join(package).join("tests");
            tests_in(&tests).iter().any(|name| name == test)
        };
        for (package, only) in OF_PROGRAMS {
            assert!(only.iter().all(|test| exists(package, test)), "{package}");
        }
        for name in SLOW {
            let (package, test) = name.split_once('/').unwrap();
            assert!(exists(&format!("crates/{package}"), test), "{name}");
        }
    }

    #[test]
    fn simulated_clusters_are_skipped_and_the_simulated_disk_is_not() {
        assert_eq!(words("trials/trials"), ["--skip", "sim::tests"]);
        assert!(words("wal/wal").is_empty());
    }

    #[test]
    fn new_tests_are_quick_and_those_of_programs_are_not() {
        let tests = super::tests(&root()).unwrap();
        let has = |name: &str| tests.contains(name);
        assert!(has("broker/scripts") && has("cluster/shard") && has("trials/work"));
        assert!(!has("wal/crash") && !has("trials/cluster_chaos"));
    }
}
