//! Bugs planted on purpose in what the simulator runs, each of which it must find: a suite that misses
//! one is no evidence.
//!
//! A planted bug is a `--cfg` that only our own crates are built with: the compiler's wrapper adds it,
//! and this very program is built again with it.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "builds and runs a program, and has a terminal"
)]

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A bug, words of what is seen where it is found, and how many seeds it may hide from.
struct Planted {
    name: &'static str,
    words: &'static str,
    seeds: Seeds,
}

/// The first, from one to the next, and how many.
type Seeds = (&'static str, &'static str, &'static str);

const PLANTED: [Planted; 17] = [
    Planted { name: "bug_vote_not_synced", words: "before the sync", seeds: SEEDS },
    Planted {
        name: "bug_confirm_before_majority",
        words: "was confirmed, and synced in group",
        seeds: SEEDS,
    },
    Planted { name: "bug_expire_by_own_clock", words: " differ in group ", seeds: SEEDS },
    // It takes a crash in the moment between: one seed of twenty has one.
    Planted { name: "bug_dead_letter_settled_first", words: "never delivered", seeds: MANY_SEEDS },
    Planted { name: "bug_delay_forgotten", words: "came after", seeds: SEEDS },
    Planted { name: "bug_dispatch_before_joins", words: "is held by", seeds: SEEDS },
    Planted { name: "bug_young_leader_hurries", words: "is held by", seeds: SEEDS },
    Planted { name: "bug_held_not_told", words: "is held by", seeds: SEEDS },
    Planted { name: "bug_settles_not_told", words: "and comes back", seeds: SEEDS },
    Planted { name: "bug_own_settles_not_awaited", words: "and comes back", seeds: SEEDS },
    Planted { name: "bug_join_before_settles", words: "and comes back", seeds: SEEDS },
    Planted { name: "bug_leader_clock", words: "the time of group", seeds: MANY_SEEDS },
    Planted { name: "bug_purge_forgotten", words: "P1 purged", seeds: CHANGED_SEEDS },
    Planted { name: "bug_purge_dropped", words: "P1 purged", seeds: CHANGED_SEEDS },
    Planted { name: "bug_tx_torn", words: "X2 half", seeds: CHANGED_SEEDS },
    Planted {
        name: "bug_full_not_told",
        words: "still says that its disk is full",
        seeds: MANY_SEEDS,
    },
    Planted { name: "bug_snapshot_first_extent", words: "lies nowhere", seeds: MANY_SEEDS },
];

/// Seeds tried before a bug counts as missed.
const SEEDS: Seeds = ("1", "1", "40");
const MANY_SEEDS: Seeds = ("1", "1", "120");
/// Those alone that have purges and transactions.
const CHANGED_SEEDS: Seeds = ("2", "7", "120");

/// Builds and hunts those whose name holds `word`. True if every one was caught, and nothing was found by
/// the same seeds without a bug.
pub(super) fn hunt(root: &Path, word: &str) -> io::Result<bool> {
    let mut all = run(&std::env::current_exe()?, MANY_SEEDS)?.status.success();
    println!("without a bug: {}", if all { "nothing found" } else { "SOMETHING FOUND" });
    for Planted { name, words, seeds } in
        PLANTED.iter().filter(|planted| planted.name.contains(word))
    {
        let (_, _, count) = seeds;
        let output = run(&build(name, root)?, *seeds)?;
        // What breaks an assertion is said on the other stream.
        let told = [&output.stdout[..], &output.stderr[..]].concat();
        let told = String::from_utf8_lossy(&told).into_owned();
        let seen = told.lines().find(|line| line.contains(words));
        let is_failed =
            |line: &&str| line.trim_start().starts_with("again:") || line.contains(" panicked: ");
        let failed = told.lines().filter(is_failed).count();
        match seen.filter(|_| !output.status.success()) {
            Some(line) => println!("{name}: caught in {failed} of {count} seeds: {}", line.trim()),
            None => {
                all = false;
                println!("{name}: NOT CAUGHT in {count} seeds ({failed} failed otherwise)");
            }
        }
    }
    Ok(all)
}

/// Runs the seeds by a program, with a bug or without.
fn run(program: &Path, (first, step, seeds): Seeds) -> io::Result<Output> {
    Command::new(program)
        .args(["sim", "--seed", first, "--step", step, "--seeds", seeds])
        .args(["--load-ms", "4000", "--healed-ms", "1000"])
        .output()
}

/// This program with the bug.
fn build(name: &str, root: &Path) -> io::Result<PathBuf> {
    let base = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let target = base.join("planted-sim");
    std::fs::create_dir_all(&target)?;
    let wrapper = target.join(format!("rustc-{name}"));
    std::fs::write(&wrapper, format!("#!/bin/sh\nexec \"$@\" --cfg {name}\n"))?;
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755))?;
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--package", "trials", "--target-dir"])
        .arg(&target)
        .current_dir(root)
        .env("RUSTC_WORKSPACE_WRAPPER", &wrapper)
        .status()?;
    match status.success() {
        true => Ok(target.join("debug/trials")),
        false => Err(io::Error::other(format!("the simulator with {name} does not build"))),
    }
}
