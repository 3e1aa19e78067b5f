//! What the API counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// Totals since the start, and what is so now.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Connections closed because as many were open as may be.
    pub turned_away: AtomicU64,
    /// Connections closed because their clients took their answers too slowly.
    pub slow_readers: AtomicU64,
    /// Now: sessions of browsers.
    pub sessions: AtomicU64,
    /// Sessions that browsers have begun.
    pub sessions_begun: AtomicU64,
    /// Sessions that ended because a newer one needed the room.
    pub sessions_crowded_out: AtomicU64,
    /// Requests with a session's cookie that were refused, because they did not show its second secret.
    pub sessions_unproven: AtomicU64,
    /// Live streams that are open now.
    pub live_streams: AtomicU64,
    /// Live streams that were refused, because as many were open as may be.
    pub live_refused: AtomicU64,
    /// How often a live stream began again with all queues, because its reader was behind.
    pub live_behind: AtomicU64,
    /// Now: bytes that the history takes, and queues that are in it.
    pub history_bytes: AtomicU64,
    pub history_queues: AtomicU64,
    /// Now: queues in which something goes on, and that have no place in the history.
    pub history_queues_left_out: AtomicU64,
}

impl Metrics {
    pub(crate) fn count(total: &AtomicU64) {
        total.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set(now: &AtomicU64, value: u64) {
        now.store(value, Ordering::Relaxed);
    }
}
