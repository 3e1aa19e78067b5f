//! Totals of the dead-letter worker since the node started.

use std::sync::atomic::{AtomicU64, Ordering};

use super::notices::Counts;

/// Totals of a node's dead-letter worker. A message is counted when it is sent on, again if that is done again.
#[derive(Debug, Default)]
pub struct DeadLetterMetrics {
    /// Messages that a consumer refused.
    pub rejected: AtomicU64,
    /// Messages whose time to live was over.
    pub expired: AtomicU64,
    /// Messages that there was no room for.
    pub maxlen: AtomicU64,
    /// Messages that came back more often than their queue allows.
    pub delivery_limit: AtomicU64,
    /// Of all these: dropped, because the dead-letter exchange is missing or leads nowhere.
    pub unroutable: AtomicU64,
    /// Dropped, because they went round without anybody refusing them.
    pub cycles: AtomicU64,
    /// Kept aside, because their queue has no dead-letter exchange.
    pub aside: AtomicU64,
    /// Batches that a group did not take, sent to it again.
    pub retries: AtomicU64,
}

impl DeadLetterMetrics {
    pub(crate) fn add(&self, counts: &Counts) {
        let [rejected, expired, maxlen, delivery_limit] = counts.dead;
        let pairs = [
            (&self.rejected, rejected),
            (&self.expired, expired),
            (&self.maxlen, maxlen),
            (&self.delivery_limit, delivery_limit),
            (&self.unroutable, counts.unroutable),
            (&self.cycles, counts.cycles),
            (&self.aside, counts.aside),
            (&self.retries, counts.retries),
        ];
        for (total, count) in pairs {
            if count > 0 {
                total.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}
