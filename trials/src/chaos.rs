//! Harm to real processes and real disks, and the command line that orders it.
//!
//! A trial starts a broker, loads it, does harm in rounds, heals, drains, and lets the checker
//! judge. Whatever fails keeps its directory: data, logs, history, and the seed that chose the
//! moments. There are no retries: a red run is a finding.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "real processes have clocks, files and a terminal; every trial's shell is below here"
)]

pub mod bitflip;
pub mod broker;
mod clocks;
pub mod cluster;
pub mod cluster_trial;
pub mod command;
pub mod diskfault;
pub mod elections;
pub mod faults;
mod flaky_disk;
pub mod kill9;
pub mod measure;
pub mod net;
pub mod operations;
pub mod planted;
pub mod powercut;
pub mod rescue_trial;
pub mod status;
pub mod table;
pub mod trial;

pub use command::run;

/// Why a trial could not say anything.
#[derive(Debug)]
pub enum Failure {
    /// The machine lacks what the trial needs: it is skipped, and says so.
    Skipped(String),
    /// The broker did what it must not, outside what clients can see.
    Broken(String),
    /// The trial itself could not go on.
    Trial(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Skipped(why) => write!(f, "skipped: {why}"),
            Self::Broken(what) => write!(f, "broken: {what}"),
            Self::Trial(why) => write!(f, "the trial cannot go on: {why}"),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Trial(error.to_string())
    }
}
