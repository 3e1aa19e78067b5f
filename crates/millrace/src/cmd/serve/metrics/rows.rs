//! Every number that a node counts, one row each: its key in the line of SIGUSR1, its name for Prometheus, its meaning.
//!
//! Every struct of counters is taken apart without `..`, so a counter that has no row does not compile.

use std::sync::atomic::{AtomicU64, Ordering};

use broker::dead_letter::DeadLetterMetrics;
use cluster::{Alarms, Counters, PeerCounters};

/// What kind of number it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Grows until the node ends.
    Total,
    /// A total of microseconds, exported in seconds.
    TotalMicros,
    /// Grows until the node ends, in bytes.
    TotalBytes,
    /// How it stands now.
    Now,
    /// The same, in bytes.
    NowBytes,
}

/// One number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// The object of the line that it stands in; empty: the line itself.
    pub(super) part: &'static str,
    /// Its key there.
    pub(super) key: &'static str,
    /// For Prometheus, without what its kind adds. Rows of one name stand together, and differ in their label.
    pub(super) name: &'static str,
    pub(super) label: Option<(&'static str, &'static str)>,
    pub(super) kind: Kind,
    pub(super) meaning: &'static str,
    pub(super) value: u64,
}

/// What is read of a node.
#[derive(Clone, Copy)]
pub(super) struct Counted<'a> {
    pub(super) counters: &'a Counters,
    pub(super) session_count: usize,
    pub(super) alarms: Alarms,
    /// None: the node has no cluster.
    pub(super) peers: Option<&'a PeerCounters>,
    pub(super) connection_count: usize,
    pub(super) amqp: &'a broker::Metrics,
    pub(super) dead_letters: &'a DeadLetterMetrics,
    /// Connections to `/metrics` without room.
    pub(super) watchers_turned_away: &'a AtomicU64,
}

impl Counted<'_> {
    /// All of them, as they stand now.
    pub(super) fn rows(self) -> Vec<Row> {
        let mut rows = store(self.counters);
        rows.push(now("", "sessions", "sessions", "Open sessions of clients", self.session_count));
        rows.extend(alarms(self.alarms));
        rows.push(now(
            "amqp",
            "connections",
            "connections",
            "AMQP connections that are open",
            self.connection_count,
        ));
        rows.extend(amqp(self.amqp));
        rows.extend(dead_letters(self.dead_letters));
        rows.push(Part("").total(
            "watchers_turned_away",
            "watchers_turned_away",
            "Connections to the port of metrics without room",
            self.watchers_turned_away,
        ));
        rows.extend(self.peers.into_iter().flat_map(peers));
        rows
    }
}

fn now(
    part: &'static str,
    key: &'static str,
    name: &'static str,
    meaning: &'static str,
    count: usize,
) -> Row {
    let value = u64::try_from(count).unwrap_or(u64::MAX);
    Row { part, key, name, label: None, kind: Kind::Now, meaning, value }
}

/// Makes the rows of one part.
struct Part(&'static str);

impl Part {
    fn of(
        &self,
        kind: Kind,
        key: &'static str,
        name: &'static str,
        meaning: &'static str,
        counter: &AtomicU64,
    ) -> Row {
        let value = counter.load(Ordering::Relaxed);
        Row { part: self.0, key, name, label: None, kind, meaning, value }
    }

    fn total(
        &self,
        key: &'static str,
        name: &'static str,
        meaning: &'static str,
        counter: &AtomicU64,
    ) -> Row {
        self.of(Kind::Total, key, name, meaning, counter)
    }

    /// A total of several that differ in why.
    fn by_reason(
        &self,
        (key, reason): (&'static str, &'static str),
        name: &'static str,
        meaning: &'static str,
        counter: &AtomicU64,
    ) -> Row {
        Row { label: Some(("reason", reason)), ..self.total(key, name, meaning, counter) }
    }
}

fn store(counters: &Counters) -> Vec<Row> {
    let Counters {
        syncs,
        log_bytes,
        entries,
        sync_micros,
        segment_messages,
        checkpoints_refused,
        fetches,
    } = counters;
    let part = Part("");
    let of = |kind, key, name, meaning, counter| part.of(kind, key, name, meaning, counter);
    vec![
        part.total("syncs", "log_syncs", "Syncs of the log", syncs),
        of(Kind::TotalMicros, "sync_micros", "log_sync", "Time spent in them", sync_micros),
        of(Kind::TotalBytes, "log_bytes", "log_written", "Written to the log", log_bytes),
        part.total("entries", "log_entries", "Entries written to the log", entries),
        part.total(
            "segment_messages",
            "segment_messages",
            "Messages copied from the log to segments",
            segment_messages,
        ),
        part.total(
            "checkpoints_refused",
            "checkpoints_refused",
            "Checkpoints that were larger than a checkpoint may be",
            checkpoints_refused,
        ),
        part.total(
            "fetches",
            "fetches",
            "Reads for deliveries whose bytes were not in memory",
            fetches,
        ),
    ]
}

fn alarms(alarms: Alarms) -> [Row; 2] {
    let Alarms { memory, disk } = alarms;
    let meaning = "1: publishers wait for want of it";
    [("memory", memory), ("disk", disk)].map(|(resource, is_raised)| Row {
        label: Some(("resource", resource)),
        ..now("alarms", resource, "alarm", meaning, usize::from(is_raised))
    })
}

fn amqp(metrics: &broker::Metrics) -> Vec<Row> {
    let broker::Metrics {
        connections_opened,
        connections_closed,
        logins_refused,
        channels_opened,
        channels_closed,
        channel_errors,
        connection_errors,
        published,
        confirmed,
        unroutable,
        returned,
        refused,
        cancels,
        delivered,
        got,
        consumer_timeouts,
        settled,
        in_flight_bytes,
        outbound_bytes,
        consumers,
        replies_waiting_bytes,
        replies_dropped,
        limit_connections,
        limit_write_stall,
        limit_handshake,
    } = metrics;
    let part = Part("amqp");
    let total = |key, name, meaning, counter| part.total(key, name, meaning, counter);
    let cut = |key, reason, counter| {
        part.by_reason(
            (key, reason),
            "connections_cut",
            "Connections that the node ended: over its limit, taking no bytes, slow to log in",
            counter,
        )
    };
    let bytes_now =
        |key, name, meaning, counter| part.of(Kind::NowBytes, key, name, meaning, counter);
    let in_flight = "In flight from publishers now";
    vec![
        total("connections_opened", "connections_opened", "Accepted", connections_opened),
        total(
            "connections_closed",
            "connections_closed",
            "Closed, for whatever reason",
            connections_closed,
        ),
        total("connection_errors", "connection_errors", "Closed by an error", connection_errors),
        cut("limit_connections", "limit", limit_connections),
        cut("limit_write_stall", "write_stall", limit_write_stall),
        cut("limit_handshake", "handshake", limit_handshake),
        total("logins_refused", "logins_refused", "Logins refused", logins_refused),
        total("channels_opened", "channels_opened", "Channels opened", channels_opened),
        total("channels_closed", "channels_closed", "Channels closed", channels_closed),
        total("channel_errors", "channel_errors", "Channels closed by an error", channel_errors),
        part.of(Kind::Now, "consumers", "consumers", "Consumers of all channels", consumers),
        total(
            "consumer_timeouts",
            "consumer_timeouts",
            "Channels closed because a delivery was not settled in time",
            consumer_timeouts,
        ),
        total("published", "messages_published", "Messages published", published),
        total("confirmed", "messages_confirmed", "Publishes confirmed with an ack", confirmed),
        total("unroutable", "messages_unroutable", "Published, and no queue took it", unroutable),
        total("returned", "messages_returned", "Returned to their publisher", returned),
        total("refused", "messages_refused", "Refused by a full queue", refused),
        total("cancels", "cancellations", "Cancellations of delayed messages", cancels),
        total("delivered", "messages_delivered", "Messages sent to consumers", delivered),
        total("got", "messages_got", "Messages sent in answer to `basic.get`", got),
        total("settled", "messages_settled", "Deliveries acked, nacked or rejected", settled),
        total(
            "replies_dropped",
            "replies_dropped",
            "Direct replies whose reader was gone or slow, or for which there was no room",
            replies_dropped,
        ),
        bytes_now(
            "replies_waiting_bytes",
            "replies_waiting",
            "Direct replies that wait for their readers now",
            replies_waiting_bytes,
        ),
        bytes_now(
            "outbound_bytes",
            "outbound",
            "On their way to clients now, and not taken by their sockets",
            outbound_bytes,
        ),
        bytes_now("in_flight_bytes", "in_flight", in_flight, in_flight_bytes),
    ]
}

fn dead_letters(metrics: &DeadLetterMetrics) -> Vec<Row> {
    let DeadLetterMetrics {
        rejected,
        expired,
        maxlen,
        delivery_limit,
        unroutable,
        cycles,
        aside,
        retries,
    } = metrics;
    let part = Part("dead_letters");
    let dead = |reason, counter| {
        let meaning = "Messages that died, by why; again if one is sent on again";
        part.by_reason((reason, reason), "dead_letters", meaning, counter)
    };
    let dropped = |key, reason, counter| {
        let meaning = "Of these dropped: no queue takes them, or they went round a cycle";
        part.by_reason((key, reason), "dead_letters_dropped", meaning, counter)
    };
    vec![
        dead("rejected", rejected),
        dead("expired", expired),
        dead("maxlen", maxlen),
        dead("delivery_limit", delivery_limit),
        dropped("unroutable", "unroutable", unroutable),
        dropped("cycles", "cycle", cycles),
        part.total("aside", "dead_letters_set_aside", "Of these kept in `QUEUE.dead`", aside),
        part.total("retries", "dead_letter_retries", "Batches sent to a group again", retries),
    ]
}

fn peers(counters: &PeerCounters) -> Vec<Row> {
    let PeerCounters {
        connections,
        accepted,
        refused,
        turned_away,
        misdirected,
        dropped,
        bytes_in,
        bytes_out,
    } = counters;
    let part = Part("peers");
    let total = |key, name, meaning, counter| part.total(key, name, meaning, counter);
    let bytes =
        |key, name, meaning, counter| part.of(Kind::TotalBytes, key, name, meaning, counter);
    vec![
        total(
            "connections",
            "peer_connections",
            "Data connections made with other nodes, in either direction",
            connections,
        ),
        total("accepted", "peer_accepted", "Connections to the peer port", accepted),
        total("refused", "peer_refused", "Of these without proof of membership", refused),
        total("turned_away", "peer_turned_away", "Of these without room", turned_away),
        total(
            "misdirected",
            "peer_messages_misdirected",
            "Raft messages from another than their sender, or for another node",
            misdirected,
        ),
        total(
            "dropped",
            "peer_messages_dropped",
            "Messages not sent for want of a connection or of room",
            dropped,
        ),
        bytes("bytes_in", "peer_received", "Received from other nodes", bytes_in),
        bytes("bytes_out", "peer_sent", "Sent to other nodes", bytes_out),
    ]
}
