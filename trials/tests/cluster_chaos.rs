//! One short run of every fault of a cluster, on three real processes, and of a loss for good, on five.
//!
//! The faults of a run strike one after the other on one cluster, under one load, before one verdict.
//! Runs have namespaces of their own, and go side by side: most of their time nothing has to happen.
//! Long ones: `cargo xtask chaos --nodes 3 --rounds 20`, and `--fault mix` for hours.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "starts the trials, builds the broker for them, and shows what they say"
)]

#[path = "support/millrace.rs"]
mod millrace;

use std::process::Command;

use millrace::{broker, root};

#[track_caller]
fn survives(faults: &str) {
    harmed(&["--nodes", "3", "--together", "--rounds", "1", "--seconds", "2", "--fault", faults]);
}

/// What is skipped is printed with its reason; anything else that is not valid fails.
#[track_caller]
fn harmed(words: &[&str]) {
    let broker = broker();
    let dir = broker.with_file_name("cluster-chaos");
    let output = Command::new(env!("CARGO_BIN_EXE_trials"))
        .arg("chaos")
        .args(words)
        .arg("--broker")
        .arg(broker)
        .arg("--dir")
        .arg(dir)
        .current_dir(root())
        .output()
        .expect("the trials start");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{words:?}: see above");
}

#[test]
fn a_cluster_survives_partitions_of_every_kind() {
    survives(
        "isolate-leader,isolate-follower,halves,ring,one-way,cut-link-one-way,clients-cut,flapping",
    );
}

#[test]
fn a_cluster_survives_processes_that_die_or_stand_still() {
    survives("kill-leader,kill-one,kill-loop,stop-leader,stop-follower,stop-all,slow-cpu");
}

#[test]
fn a_cluster_survives_bad_links_and_clocks_that_jump() {
    survives("loss,narrow,resets,clock");
}

#[test]
fn a_cluster_survives_disks_that_forget_fail_fill_or_are_slow() {
    survives("power-one,eio,badflush,disk-full,disk-full-all,slow-disk");
}

#[test]
fn a_cluster_survives_the_loss_of_all_nodes_at_once() {
    survives("kill-all,power-all,nats-7567,outage");
}

#[test]
fn a_cluster_survives_a_damaged_replica_old_copies_and_twins() {
    survives("damage,old-copy,forgetful-copy,twin-takes-over");
}

#[test]
fn a_cluster_that_lost_two_of_five_goes_on_with_all_that_the_others_have() {
    harmed(&["--nodes", "5", "--rounds", "1", "--fault", "two-lost"]);
}
