//! Totals of the AMQP side since the node started. Sessions count for themselves and add up once a step:
//! no atomic is touched for a single message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cluster::histogram::{Histogram, Observed, TIME_BOUNDS_US, TIME_PLACES, Times};
use machine::Outcome;

/// Upper bounds of messages' sizes, in bytes: RabbitMQ's.
pub const SIZE_BOUNDS: [u64; 8] =
    [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000];

const SIZE_PLACES: usize = SIZE_BOUNDS.len() + 1;

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
    /// Those of them on channels with confirms.
    pub published_confirm: AtomicU64,
    /// Bytes of their bodies.
    pub sizes: Histogram<SIZE_PLACES>,
    /// Queues that published messages were routed to, for each message.
    pub routed: AtomicU64,
    /// Publishes confirmed with an ack.
    pub confirmed: AtomicU64,
    /// Published messages that no queue took.
    pub unroutable: AtomicU64,
    /// Messages returned to their publisher.
    pub returned: AtomicU64,
    /// Published messages that no queue took and nobody wanted back.
    pub unroutable_dropped: AtomicU64,
    /// From when a client's messages go to their group until a majority has synced them, a batch of one read each.
    pub commit_times: Times,
    /// Messages that a full queue refused.
    pub refused: AtomicU64,
    /// Cancellations of delayed messages.
    pub cancels: AtomicU64,
    /// Messages sent to consumers.
    pub delivered: AtomicU64,
    /// Those of them that the consumer acknowledges, and those that it does not.
    pub delivered_manual_ack: AtomicU64,
    pub delivered_auto_ack: AtomicU64,
    /// Messages sent in answer to `basic.get`.
    pub got: AtomicU64,
    /// Those of them that the client acknowledges, and those that it does not.
    pub got_manual_ack: AtomicU64,
    pub got_auto_ack: AtomicU64,
    /// Answers to `basic.get` without a message.
    pub got_none: AtomicU64,
    /// Messages sent to consumers or in answer to `basic.get` with the flag `redelivered`.
    pub redelivered: AtomicU64,
    /// Channels closed because a delivery was not settled in time.
    pub consumer_timeouts: AtomicU64,
    /// Deliveries acked, nacked or rejected.
    pub settled: AtomicU64,
    /// Deliveries acked.
    pub acked: AtomicU64,
    /// Declarations of queues that were done, also of those that were there; without passive ones.
    pub queues_declared: AtomicU64,
    /// Bytes that publishers have in flight now: see `Config::in_flight_bytes_max`.
    pub in_flight_bytes: AtomicU64,
    /// Bytes on their way to clients now: see `Config::outbound_bytes_max`.
    pub outbound_bytes: AtomicU64,
    /// Consumers of all channels now.
    pub consumers: AtomicU64,
    /// Channels that are open now.
    pub channels: AtomicU64,
    /// Those of them that have published.
    pub publishers: AtomicU64,
    /// Connections whose publishers wait now, by what is short.
    pub blocked_memory: AtomicU64,
    pub blocked_disk: AtomicU64,
    /// The same: the node's publishers together have in flight what they may.
    pub blocked_in_flight: AtomicU64,
    /// Bytes of direct replies that wait for their readers now: see `Config::replies_bytes_max`. Each of them knows
    /// this total, too.
    pub replies_waiting_bytes: Arc<AtomicU64>,
    /// Replies dropped because their reader was gone or slow, or too much waits for others.
    pub replies_dropped: AtomicU64,
    /// Messages that passed through a traced vhost and were not published at its exchange of traces.
    pub traces_dropped: AtomicU64,
    /// Spans that the collector of OpenTelemetry has taken. Who sends them knows this total, too.
    pub spans_sent: Arc<AtomicU64>,
    /// Spans that it did not get: too many waited, or it refused them. The same.
    pub spans_dropped: Arc<AtomicU64>,
    /// Connections refused because a limit was reached.
    pub limit_connections: AtomicU64,
    /// Connections closed because their client took no bytes.
    pub limit_write_stall: AtomicU64,
    /// Connections closed because the handshake took too long.
    pub limit_handshake: AtomicU64,
}

/// What a connection has moved since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From its client.
    pub received_bytes: u64,
    /// What its socket has taken.
    pub sent_bytes: u64,
    /// Messages published.
    pub published: u64,
    /// Messages sent to consumers and in answer to `basic.get`.
    pub delivered: u64,
    /// Deliveries acked.
    pub acked: u64,
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
    published_confirm: u64,
    sizes: Observed<SIZE_PLACES>,
    pub(crate) routed: u64,
    pub(crate) confirmed: u64,
    commits: u64,
    commit_times: Observed<TIME_PLACES>,
    pub(crate) unroutable: u64,
    pub(crate) unroutable_dropped: u64,
    pub(crate) returned: u64,
    pub(crate) refused: u64,
    pub(crate) cancels: u64,
    delivered: u64,
    delivered_manual_ack: u64,
    delivered_auto_ack: u64,
    got: u64,
    got_manual_ack: u64,
    got_auto_ack: u64,
    pub(crate) got_none: u64,
    redelivered: u64,
    pub(crate) consumer_timeouts: u64,
    settled: u64,
    acked: u64,
    pub(crate) queues_declared: u64,
    pub(crate) handshake_late: u64,
}

impl Counts {
    /// A message came, with a body of so many bytes.
    #[inline]
    pub(crate) fn published(&mut self, body_bytes: usize, is_confirmed: bool) {
        self.published += 1;
        self.published_confirm += u64::from(is_confirmed);
        self.sizes.add(&SIZE_BOUNDS, body_bytes as u64);
    }

    /// A batch of messages is on a majority's disks.
    pub(crate) fn committed(&mut self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.commits += 1;
        self.commit_times.add(&TIME_BOUNDS_US, took_us);
    }

    /// Messages go to a consumer.
    pub(crate) fn delivered(&mut self, count: u32, no_ack: bool, is_redelivered: bool) {
        let count = u64::from(count);
        self.delivered += count;
        *(if no_ack { &mut self.delivered_auto_ack } else { &mut self.delivered_manual_ack }) +=
            count;
        self.redelivered += if is_redelivered { count } else { 0 };
    }

    /// A message answers a `basic.get`.
    pub(crate) fn got(&mut self, no_ack: bool, is_redelivered: bool) {
        self.got += 1;
        *(if no_ack { &mut self.got_auto_ack } else { &mut self.got_manual_ack }) += 1;
        self.redelivered += u64::from(is_redelivered);
    }

    /// Adds it to what a connection has moved.
    pub(crate) fn add_to(&self, traffic: &mut Traffic) {
        traffic.published += self.published;
        traffic.delivered += self.delivered + self.got;
        traffic.acked += self.acked;
    }

    /// A client settles deliveries.
    pub(crate) fn settled(&mut self, count: u32, outcome: Outcome) {
        self.settled += u64::from(count);
        self.acked += if outcome == Outcome::Done { u64::from(count) } else { 0 };
    }
}

impl Metrics {
    /// Adds what was counted, and forgets it there.
    pub(crate) fn take(&self, counts: &mut Counts) {
        if counts.published > 0 {
            self.sizes.take(&mut counts.sizes);
        }
        if std::mem::take(&mut counts.commits) > 0 {
            self.commit_times.take(&mut counts.commit_times);
        }
        let pairs = [
            (&self.channels_opened, &mut counts.channels_opened),
            (&self.channels_closed, &mut counts.channels_closed),
            (&self.channel_errors, &mut counts.channel_errors),
            (&self.connection_errors, &mut counts.connection_errors),
            (&self.logins_refused, &mut counts.logins_refused),
            (&self.published, &mut counts.published),
            (&self.published_confirm, &mut counts.published_confirm),
            (&self.routed, &mut counts.routed),
            (&self.confirmed, &mut counts.confirmed),
            (&self.unroutable, &mut counts.unroutable),
            (&self.unroutable_dropped, &mut counts.unroutable_dropped),
            (&self.returned, &mut counts.returned),
            (&self.refused, &mut counts.refused),
            (&self.cancels, &mut counts.cancels),
            (&self.delivered, &mut counts.delivered),
            (&self.delivered_manual_ack, &mut counts.delivered_manual_ack),
            (&self.delivered_auto_ack, &mut counts.delivered_auto_ack),
            (&self.got, &mut counts.got),
            (&self.got_manual_ack, &mut counts.got_manual_ack),
            (&self.got_auto_ack, &mut counts.got_auto_ack),
            (&self.got_none, &mut counts.got_none),
            (&self.redelivered, &mut counts.redelivered),
            (&self.consumer_timeouts, &mut counts.consumer_timeouts),
            (&self.settled, &mut counts.settled),
            (&self.acked, &mut counts.acked),
            (&self.queues_declared, &mut counts.queues_declared),
            (&self.limit_handshake, &mut counts.handshake_late),
        ];
        for (total, count) in pairs {
            if *count > 0 {
                total.fetch_add(std::mem::take(count), Ordering::Relaxed);
            }
        }
    }

    /// One more of something.
    pub(crate) fn count(total: &AtomicU64) {
        total.fetch_add(1, Ordering::Relaxed);
    }
}
