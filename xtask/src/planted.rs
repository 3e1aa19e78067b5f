//! `cargo xtask planted [name]`: builds the worker with a bug on purpose, one after the other, and demands that its
//! simulation finds each of them: a checker that misses one is no evidence.
//!
//! A bug is a `--cfg` in the product's code that only our own crates are built with: the compiler's wrapper adds it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use crate::{Outcome, process};

/// A bug, and words of the promise that it breaks.
struct Planted {
    name: &'static str,
    words: &'static [&'static str],
}

const PLANTED: &[Planted] = &[
    Planted { name: "bug_pool_rate_leak", words: &["is above its rate"] },
    Planted { name: "bug_pool_key_overtaken", words: &["overtakes"] },
    Planted { name: "bug_pool_probe_flood", words: &["two runs try"] },
    Planted {
        name: "bug_pool_throttle_charged",
        words: &["a throttle is charged", "what waits is not charged", "the attempt that the job"],
    },
    Planted { name: "bug_pool_room_unbounded", words: &["more room than the buffer"] },
    Planted { name: "bug_pool_expired_starts", words: &["starts after its lease"] },
    Planted { name: "bug_pool_starts_after_stop", words: &["starts after the stop"] },
    Planted { name: "bug_pool_lost_settled", words: &["it has an end already"] },
    Planted {
        name: "bug_pool_key_forgotten",
        words: &["a job starves", "nothing will ever happen"],
    },
];

/// Worlds that a bug may hide from.
const SEEDS: &str = "0..200";

pub(crate) fn run(words: &[String]) -> Outcome {
    let word = words.first().map(String::as_str).unwrap_or_default();
    let folder = process::target().join("planted");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let plain = simulate(None)?;
    if !plain.status.success() {
        return Err(format!("without a bug something is found:\n{}", text(&plain)));
    }
    let mut missed = Vec::new();
    for Planted { name, words } in PLANTED.iter().filter(|planted| planted.name.contains(word)) {
        let output = simulate(Some(&wrapper(&folder, name)?))?;
        let said = text(&output);
        let seen = said.lines().find(|line| words.iter().any(|words| line.contains(words)));
        match seen.filter(|_| !output.status.success()) {
            Some(line) => {
                println!("{name}: caught: {}", line.chars().take(100).collect::<String>())
            }
            None => {
                println!("{name}: NOT CAUGHT in {SEEDS}\n{said}");
                missed.push(*name);
            }
        }
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("not caught: {}", missed.join(", "))) }
}

/// Runs the simulation, built by this wrapper.
fn simulate(wrapper: Option<&Path>) -> Result<Output, String> {
    let mut cargo = process::cargo(&["test", "-q", "-p", "worker", "--test", "pool_random"]);
    cargo
        .env("WORKER_SEEDS", SEEDS)
        .env("RUST_BACKTRACE", "0")
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "false");
    if let Some(wrapper) = wrapper {
        cargo.env("RUSTC_WORKSPACE_WRAPPER", wrapper);
    }
    cargo.output().map_err(|error| format!("cargo: {error}"))
}

/// A compiler's wrapper that plants a bug.
fn wrapper(folder: &Path, name: &str) -> Result<std::path::PathBuf, String> {
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
