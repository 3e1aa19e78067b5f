//! Six hundred random programs, and all those that once showed a difference, on RabbitMQ and Millrace.
//!
//! Without RabbitMQ it says so and compares nothing: `cargo xtask setup` installs it. More programs:
//! `cargo xtask differential --seeds 1..50001`.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "starts the trials, builds the broker for them, and shows what they say"
)]

#[path = "support/millrace.rs"]
mod millrace;

use std::process::Command;

use millrace::{broker, root};

#[test]
fn clients_see_the_same_of_rabbitmq_and_millrace() {
    let broker = broker();
    let dir = broker.with_file_name("differential");
    let output = Command::new(env!("CARGO_BIN_EXE_trials"))
        .args(["differential", "--seeds", "1..601", "--broker"])
        .arg(broker)
        .arg("--dir")
        .arg(dir)
        .current_dir(root())
        .output()
        .expect("the trials start");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "see above");
}
