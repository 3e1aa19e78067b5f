//! `cargo xtask planted [name]`: builds the worker with a bug on purpose, one after the other, and demands that its
//! tests find each of them: a checker that misses one is no evidence. Bugs of the pool are for its simulation, those
//! of the smaller cores for the tests beside them.
//!
//! A bug is a `--cfg` in the product's code that only our own crates are built with: the compiler's wrapper adds it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::{Outcome, process};

/// A bug, who is to find it, and words of the promise that it breaks.
struct Planted {
    name: &'static str,
    finder: &'static [&'static str],
    words: &'static [&'static str],
}

/// The simulation of the pool.
const POOL: &[&str] = &["--test", "pool_random"];
/// The tests beside the cores.
const BATCHES: &[&str] = &["--lib", "batches::"];
const CRON: &[&str] = &["--lib", "cron::"];
const FEEDBACK: &[&str] = &["--lib", "feedback::"];
const SHARES: &[&str] = &["--lib", "shares::"];

const fn planted(
    name: &'static str,
    finder: &'static [&'static str],
    words: &'static [&'static str],
) -> Planted {
    Planted { name, finder, words }
}

const PLANTED: &[Planted] = &[
    planted("bug_pool_rate_leak", POOL, &["is above its rate"]),
    planted("bug_pool_key_overtaken", POOL, &["overtakes"]),
    planted("bug_pool_probe_flood", POOL, &["two runs try"]),
    planted(
        "bug_pool_throttle_charged",
        POOL,
        &["a throttle is charged", "what waits is not charged", "the attempt that the job"],
    ),
    planted("bug_pool_room_unbounded", POOL, &["more room than the buffer"]),
    planted("bug_pool_expired_starts", POOL, &["starts after its lease"]),
    planted("bug_pool_starts_after_stop", POOL, &["starts after the stop"]),
    planted("bug_pool_lost_settled", POOL, &["it has an end already"]),
    planted("bug_pool_key_forgotten", POOL, &["a job starves", "nothing will ever happen"]),
    planted(
        "bug_batch_counts_twice",
        BATCHES,
        &["over_crashes_and_repeats_a_batch_is_completed", "replayed_counts_once_and_as_done"],
    ),
    planted(
        "bug_cron_refire",
        CRON,
        &["no_tick_fires_twice", "a_tick_fires_once_with_an_id_that_names_it"],
    ),
    planted(
        "bug_feedback_ungated",
        FEEDBACK,
        &["whatever_happens_each_death_has_a_success_near", "a_wrong_environment_declares_no"],
    ),
    planted(
        "bug_share_double_grant",
        SHARES,
        &["the_sum_of_shares_is_never_above_the_rate", "parts_are_fair_and_their_sum_is_the_rate"],
    ),
];

/// Worlds that a bug may hide from.
const SEEDS: &str = "0..200";

pub(crate) fn run(words: &[String]) -> Outcome {
    let word = words.first().map(String::as_str).unwrap_or_default();
    for finder in [POOL, BATCHES, CRON, FEEDBACK, SHARES] {
        let mut chosen = PLANTED.iter().filter(|planted| planted.name.contains(word));
        if !chosen.any(|planted| planted.finder == finder) {
            continue;
        }
        let plain = seek(finder, None)?;
        if !plain.status.success() {
            return Err(format!("without a bug something is found:\n{}", text(&plain)));
        }
    }
    let mut missed = Vec::new();
    let chosen = PLANTED.iter().filter(|planted| planted.name.contains(word));
    for Planted { name, finder, words } in chosen {
        let output = seek(finder, Some(&wrapper(name)?))?;
        let said = text(&output);
        let seen = said.lines().find(|line| words.iter().any(|words| line.contains(words)));
        match seen.filter(|_| !output.status.success()) {
            Some(line) => {
                println!("{name}: caught: {}", line.trim().chars().take(100).collect::<String>())
            }
            None => {
                println!("{name}: NOT CAUGHT by {}\n{said}", finder.join(" "));
                missed.push(*name);
            }
        }
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("not caught: {}", missed.join(", "))) }
}

/// Runs tests of the worker, built by this wrapper.
fn seek(finder: &[&str], wrapper: Option<&Path>) -> Result<Output, String> {
    let mut cargo = process::cargo(&["test", "-q", "-p", "worker"]);
    cargo
        .args(finder)
        .env("WORKER_SEEDS", SEEDS)
        .env("RUST_BACKTRACE", "0")
        // What is found by a planted bug is no regression to be kept.
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "false");
    if let Some(wrapper) = wrapper {
        cargo.env("RUSTC_WORKSPACE_WRAPPER", wrapper);
    }
    cargo.output().map_err(|error| format!("cargo: {error}"))
}

/// A compiler's wrapper that plants a bug, or the bugs that a program is told of when it starts.
pub(crate) fn wrapper(name: &str) -> Result<PathBuf, String> {
    let folder = process::target().join("planted");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let path = folder.join(format!("rustc-{name}"));
    let script = format!("#!/bin/sh\nexec \"$@\" --cfg {name}\n");
    std::fs::write(&path, script)
        .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

fn text(output: &Output) -> String {
    let told = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&told).into_owned()
}
