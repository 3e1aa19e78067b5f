//! Two thousand random programs, and all those that once showed a difference, on RabbitMQ and Millrace.
//!
//! Without RabbitMQ it says so and compares nothing: `cargo xtask setup` installs it. More programs:
//! `cargo xtask differential --seeds 1..50001`.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "starts the trials, builds the broker for them, and shows what they say"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the repository")
}

/// The broker of the build that the trials belong to.
fn broker() -> PathBuf {
    let trials = Path::new(env!("CARGO_BIN_EXE_trials"));
    let folder = trials.parent().expect("a program lies in a folder");
    let is_release = folder.ends_with("release");
    let target = folder.parent().expect("a profile lies in the target directory");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "millrace", "--target-dir"]).arg(target);
    if is_release {
        build.arg("--release");
    }
    assert!(build.current_dir(root()).status().expect("cargo starts").success());
    folder.join("millrace")
}

#[test]
fn clients_see_the_same_of_rabbitmq_and_millrace() {
    let broker = broker();
    let dir = broker.with_file_name("differential");
    let output = Command::new(env!("CARGO_BIN_EXE_trials"))
        .args(["differential", "--seeds", "1..2001", "--broker"])
        .arg(broker)
        .arg("--dir")
        .arg(dir)
        .current_dir(root())
        .output()
        .expect("the trials start");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "see above");
}
