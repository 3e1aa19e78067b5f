//! Transcripts of AMQP conversations, run against the session core and the real machines.
//!
//! A line of a script is one of
//! ```text
//! # what the script shows
//! C  1 basic.publish routing-key=orders body=a     what a client sends: channel, method, fields
//! S  1 basic.ack delivery-tag=1                    what it gets
//! login                                            the handshake, with every capability
//! ```
//! and others that `Runner::directive` knows. `C2` and `S2` are another connection's. Empty fields are left out.
//! With `by-hand` the cluster answers when the script says so: `>` is what a session asks, `<` what comes back.
//! `UPDATE=1 cargo test -p broker --test scripts` rewrites what the code now does: read the diff.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test: the time begins now, and a script that is no script fails it"
)]

#[path = "support/fake_cluster.rs"]
mod fake_cluster;
#[path = "support/runner.rs"]
mod runner;
#[path = "support/wire.rs"]
mod wire;

use machine::NodeId;

/// The node that every script runs on.
pub(crate) const NODE: NodeId = NodeId(1);

#[test]
fn every_script_is_what_the_broker_does() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut paths: Vec<_> =
        std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut failed = Vec::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|is| is == "txt")) {
        println!("{}", path.display());
        let expected = std::fs::read_to_string(path).unwrap();
        let found = runner::run(&expected);
        if found == expected {
            continue;
        }
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, found).unwrap();
        } else {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            failed.push(format!("--- {name} should be\n{expected}\n+++ but is\n{found}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(paths.len() >= 30, "the scripts are found");
}
