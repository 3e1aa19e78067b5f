//! The targets of `fuzz/`, compiled and run for a moment on the stable compiler: nobody builds that workspace until
//! somebody fuzzes, and it is not to rot meanwhile. What guides the fuzzer by coverage is not here, nor is its
//! `crc32c`: checksums are real.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    unused_attributes,
    reason = "reads the workspace's files, and the targets are roots of crates elsewhere"
)]

use std::collections::BTreeSet;
use std::path::Path;

// The targets call the macro by the name of the fuzzer's crate.
extern crate self as libfuzzer_sys;

#[macro_export]
macro_rules! fuzz_target {
    (|$data:ident: &[u8]| $body:expr) => {
        pub(crate) fn any_bytes($data: &[u8]) {
            $body
        }
    };
}

#[path = "../../../fuzz/targets/checkpoints.rs"]
mod checkpoints;
#[path = "../../../fuzz/targets/entries.rs"]
mod entries;
#[path = "../../../fuzz/targets/frames.rs"]
mod frames;
#[path = "../../../fuzz/targets/peer_messages.rs"]
mod peer_messages;
#[path = "../../../fuzz/targets/pgoutput.rs"]
mod pgoutput;
#[path = "../../../fuzz/targets/segments.rs"]
mod segments;
#[path = "../../../fuzz/targets/session.rs"]
mod session;
#[path = "../../../fuzz/targets/tables.rs"]
mod tables;

// As in the crate whose root the target is.
use session::{NODE, fake_cluster, wire};

type AnyBytes = fn(&[u8]);

const TARGETS: [(&str, AnyBytes); 8] = [
    ("checkpoints", checkpoints::any_bytes),
    ("entries", entries::any_bytes),
    ("frames", frames::any_bytes),
    ("peer_messages", peer_messages::any_bytes),
    ("pgoutput", pgoutput::any_bytes),
    ("segments", segments::any_bytes),
    ("session", session::any_bytes),
    ("tables", tables::any_bytes),
];

const INPUTS: u64 = 200;
const INPUT_BYTES_MAX: u64 = 300;

/// The folder of fuzzing, and what its manifest says.
fn manifest() -> (std::path::PathBuf, toml::Table) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    (folder, manifest.parse().unwrap())
}

#[test]
fn every_target_takes_any_bytes() {
    let mut random = wal::sim::Random::new(1);
    let inputs = (0..INPUTS).map(|_| {
        let bytes = random.below(INPUT_BYTES_MAX);
        (0..bytes).map(|_| random.number() as u8).collect::<Vec<u8>>()
    });
    for input in inputs.chain([Vec::new(), vec![0; 64], vec![0xff; 64]]) {
        TARGETS.iter().for_each(|(_, any_bytes)| any_bytes(&input));
    }
}

#[test]
fn every_file_of_a_target_is_here_and_in_the_manifest() {
    let (folder, manifest) = manifest();
    let files = std::fs::read_dir(folder.join("targets")).unwrap();
    let stem = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    let files: BTreeSet<String> = files.map(|file| stem(&file.unwrap().path())).collect();
    let binaries = manifest["bin"].as_array().unwrap();
    let binaries = binaries.iter().map(|one| one["name"].as_str().unwrap().to_owned());
    assert_eq!(binaries.collect::<BTreeSet<_>>(), files);
    assert_eq!(TARGETS.map(|(name, _)| name.to_owned()), Vec::from_iter(files)[..]);
}

/// This test has all crates of the product at hand, and `fuzz/` has those that its manifest names.
#[test]
fn the_manifest_has_every_crate_that_targets_use() {
    let (folder, manifest) = manifest();
    let named = manifest["dependencies"].as_table().unwrap();
    for (target, _) in TARGETS {
        let path = folder.join(format!("targets/{target}.rs"));
        let text = std::fs::read_to_string(&path).unwrap();
        let taken =
            text.lines().filter_map(|line| line.strip_prefix("#[path = \"")?.strip_suffix("\"]"));
        let taken: Vec<_> = taken.map(|file| folder.join("targets").join(file)).collect();
        let own = taken.iter().map(|file| file.file_stem().unwrap().to_string_lossy().into_owned());
        let own: BTreeSet<String> =
            ["std", "crate", "super", "self"].map(String::from).into_iter().chain(own).collect();
        for file in std::iter::once(&path).chain(&taken) {
            let text = std::fs::read_to_string(file).unwrap();
            let used = text.lines().filter_map(|line| line.trim_start().strip_prefix("use "));
            for name in used.map(|rest| rest.split([':', ';', ' ']).next().unwrap()) {
                let is_named = own.contains(name) || named.contains_key(name);
                assert!(is_named, "{}: `{name}` is not in fuzz/Cargo.toml", file.display());
            }
        }
    }
}
