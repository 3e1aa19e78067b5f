//! What the log has done so far, for metrics.

/// Counters since the log was opened; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Calls of `commit` that returned `Ok` and wrote something.
    pub commits: u64,
    /// Batches handed in.
    pub batches: u64,
    /// Entries written.
    pub entries: u64,
    /// Syncs of log files.
    pub syncs: u64,
    /// Bytes written to log files, with headers and padding.
    pub bytes: u64,
    /// Time spent in those syncs.
    pub sync_us: u64,
    /// Log files begun.
    pub rollovers: u64,
    /// Rollovers for which no file was prepared, so that one was made while commits waited.
    pub urgent_rollovers: u64,
}
