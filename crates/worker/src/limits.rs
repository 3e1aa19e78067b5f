//! Every bound of the worker, in one place, with its unit.

use std::time::Duration;

/// Jobs that one pipeline may hold, started or not.
pub const BUFFER_MAX: usize = 65_535;
/// Bytes of the bodies of the jobs that one process holds.
pub const BUFFER_BYTES: usize = 256 << 20;
/// Largest body of a job, in bytes.
pub const BODY_BYTES_MAX: usize = 16 << 20;
/// Jobs of one run (one request with several jobs).
pub const RUN_JOBS_MAX: usize = 1000;
/// Pipelines and targets of one process.
pub const PIPELINES_MAX: usize = 256;
/// Text kept of an error.
pub const WHY_BYTES_MAX: usize = 1000;
/// Attempts before a job is dead, at most.
pub const ATTEMPTS_MAX: u32 = 1000;
/// Longest delay of a retry.
pub const DELAY_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often a job may come out of a broker before it is taken for one that kills its worker.
pub const DELIVERIES_MAX: u32 = 20;
