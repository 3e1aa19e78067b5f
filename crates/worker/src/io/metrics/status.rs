//! How a worker stands, as its `/status` says it and `millrace work status` reads it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A worker process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub version: String,
    pub pid: u32,
    pub uptime_s: f64,
    pub is_ready: bool,
    /// Why it is not ready.
    pub problem: Option<String>,
    /// All of it was told to rest.
    #[serde(default)]
    pub is_paused: bool,
    /// Who told it so, and when, in milliseconds since 1970.
    #[serde(default)]
    pub paused_by: Option<String>,
    #[serde(default)]
    pub paused_at: Option<u64>,
    pub pipelines: Vec<PipelineStatus>,
    pub targets: Vec<TargetStatus>,
}

/// A pipeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PipelineStatus {
    pub name: String,
    pub source: String,
    pub target: String,
    /// Jobs taken from the source since the start. So are all counters here.
    pub taken: u64,
    /// Attempts that ended, by their outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Jobs that left the process: `done`, `returned`, `later` (to be tried again), `dead`.
    pub settled: BTreeMap<String, u64>,
    /// Jobs whose lease or connection was lost: another process gets them.
    pub lost: u64,
    /// Jobs that are being executed now.
    pub running: i64,
    /// Jobs held now, started or not.
    pub in_hand: i64,
    /// How long the oldest of them has been here.
    pub oldest_s: f64,
    /// Why the source is away.
    pub away: Option<String>,
    /// It rests: by itself, or with all of the worker.
    pub is_paused: bool,
    /// Who paused this pipeline by itself, and when, in milliseconds since 1970.
    #[serde(default)]
    pub paused_by: Option<String>,
    #[serde(default)]
    pub paused_at: Option<u64>,
}

/// A target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetStatus {
    pub name: String,
    pub kind: String,
    pub outcomes: BTreeMap<String, u64>,
    /// Runs now.
    pub running: i64,
    /// Why the breaker is open.
    pub breaker: Option<String>,
    /// The last throttle, while it lasts.
    pub throttle: Option<String>,
    /// Why nothing is started until somebody mends the settings.
    pub stopped: Option<String>,
    /// The most frequent errors, long numbers replaced by `#`.
    pub errors: Vec<ErrorStatus>,
}

/// An error and how often it came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorStatus {
    pub why: String,
    pub count: u64,
}
