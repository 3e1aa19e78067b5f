//! Totals of the AMQP side since the node started. Sessions count for themselves and add up once a step:
//! no atomic is touched for a single message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Totals of all sessions of a node.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Connections accepted.
    pub connections_opened: AtomicU64,
    /// Connections closed, for whatever reason.
    pub connections_closed: AtomicU64,
    /// Logins refused.
    pub logins_refused: AtomicU64,
    /// Channels opened.
    pub channels_opened: AtomicU64,
    /// Channels closed.
    pub channels_closed: AtomicU64,
    /// Channels closed by an error.
    pub channel_errors: AtomicU64,
    /// Connections closed by an error.
    pub connection_errors: AtomicU64,
    /// Messages published.
    pub published: AtomicU64,
    /// Publishes confirmed with an ack.
    pub confirmed: AtomicU64,
    /// Published messages that no queue took.
    pub unroutable: AtomicU64,
    /// Messages returned to their publisher.
    pub returned: AtomicU64,
    /// Messages that a full queue refused.
    pub refused: AtomicU64,
    /// Cancellations of delayed messages.
    pub cancels: AtomicU64,
    /// Messages sent to consumers.
    pub delivered: AtomicU64,
    /// Messages sent in answer to `basic.get`.
    pub got: AtomicU64,
    /// Channels closed because a delivery was not settled in time.
    pub consumer_timeouts: AtomicU64,
    /// Deliveries acked, nacked or rejected.
    pub settled: AtomicU64,
    /// Bytes that publishers have in flight now: see `Config::in_flight_bytes_max`.
    pub in_flight_bytes: AtomicU64,
    /// Bytes on their way to clients now: see `Config::outbound_bytes_max`.
    pub outbound_bytes: AtomicU64,
    /// Consumers of all channels now.
    pub consumers: AtomicU64,
    /// Bytes of direct replies that wait for their readers now: see `Config::replies_bytes_max`. Each of them knows
    /// this total, too.
    pub replies_waiting_bytes: Arc<AtomicU64>,
    /// Replies dropped because their reader was gone or slow, or too much waits for others.
    pub replies_dropped: AtomicU64,
    /// Connections refused because a limit was reached.
    pub limit_connections: AtomicU64,
    /// Connections closed because their client took no bytes.
    pub limit_write_stall: AtomicU64,
    /// Connections closed because the handshake took too long.
    pub limit_handshake: AtomicU64,
}

/// What one session has counted and not added to the node's totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) channels_opened: u64,
    pub(crate) channels_closed: u64,
    pub(crate) channel_errors: u64,
    pub(crate) connection_errors: u64,
    pub(crate) logins_refused: u64,
    pub(crate) published: u64,
    pub(crate) confirmed: u64,
    pub(crate) unroutable: u64,
    pub(crate) returned: u64,
    pub(crate) refused: u64,
    pub(crate) cancels: u64,
    pub(crate) delivered: u64,
    pub(crate) got: u64,
    pub(crate) consumer_timeouts: u64,
    pub(crate) settled: u64,
    pub(crate) handshake_late: u64,
}

impl Metrics {
    pub(crate) fn add(&self, counts: &Counts) {
        let pairs = [
            (&self.channels_opened, counts.channels_opened),
            (&self.channels_closed, counts.channels_closed),
            (&self.channel_errors, counts.channel_errors),
            (&self.connection_errors, counts.connection_errors),
            (&self.logins_refused, counts.logins_refused),
            (&self.published, counts.published),
            (&self.confirmed, counts.confirmed),
            (&self.unroutable, counts.unroutable),
            (&self.returned, counts.returned),
            (&self.refused, counts.refused),
            (&self.cancels, counts.cancels),
            (&self.delivered, counts.delivered),
            (&self.got, counts.got),
            (&self.consumer_timeouts, counts.consumer_timeouts),
            (&self.settled, counts.settled),
            (&self.limit_handshake, counts.handshake_late),
        ];
        for (total, count) in pairs {
            if count > 0 {
                total.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// One more of something.
    pub(crate) fn count(total: &AtomicU64) {
        total.fetch_add(1, Ordering::Relaxed);
    }
}
