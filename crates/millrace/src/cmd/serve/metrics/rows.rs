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
    pub(super) http_turned_away: &'a AtomicU64,
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
            "AMQP connections that are open now",
            self.connection_count,
        ));
        rows.extend(amqp(self.amqp));
        rows.extend(dead_letters(self.dead_letters));
        rows.push(Part("").total(
            "watchers_turned_away",
            "watchers_turned_away",
            "Connections to the metrics port that were closed at once, because too many were open",
            self.watchers_turned_away,
        ));
        rows.push(Part("").total(
            "http_turned_away",
            "http_turned_away",
            "Connections to the HTTP API that were closed at once, because 256 were open",
            self.http_turned_away,
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
        of(
            Kind::TotalMicros,
            "sync_micros",
            "log_sync",
            "Time spent in syncs of the log",
            sync_micros,
        ),
        of(Kind::TotalBytes, "log_bytes", "log_written", "Bytes written to the log", log_bytes),
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
            "Checkpoints that were not written, because they were too large",
            checkpoints_refused,
        ),
        part.total("fetches", "fetches", "Reads from disk for deliveries", fetches),
    ]
}

fn alarms(alarms: Alarms) -> [Row; 2] {
    let Alarms { memory, disk } = alarms;
    let meaning = "1: publishers are blocked, because this resource is short";
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
            "Connections that the node cut: over the limit, reading no bytes, or too slow to log in",
            counter,
        )
    };
    let bytes_now =
        |key, name, meaning, counter| part.of(Kind::NowBytes, key, name, meaning, counter);
    let in_flight = "Bytes of messages that came from publishers and are not committed yet";
    vec![
        total(
            "connections_opened",
            "connections_opened",
            "Connections accepted",
            connections_opened,
        ),
        total(
            "connections_closed",
            "connections_closed",
            "Connections closed, for any reason",
            connections_closed,
        ),
        total(
            "connection_errors",
            "connection_errors",
            "Connections closed with an error",
            connection_errors,
        ),
        cut("limit_connections", "limit", limit_connections),
        cut("limit_write_stall", "write_stall", limit_write_stall),
        cut("limit_handshake", "handshake", limit_handshake),
        total("logins_refused", "logins_refused", "Logins refused", logins_refused),
        total("channels_opened", "channels_opened", "Channels opened", channels_opened),
        total("channels_closed", "channels_closed", "Channels closed", channels_closed),
        total("channel_errors", "channel_errors", "Channels closed with an error", channel_errors),
        part.of(Kind::Now, "consumers", "consumers", "Consumers on all channels now", consumers),
        total(
            "consumer_timeouts",
            "consumer_timeouts",
            "Channels closed because a delivery was not settled in time",
            consumer_timeouts,
        ),
        total("published", "messages_published", "Messages published", published),
        total("confirmed", "messages_confirmed", "Publishes confirmed with an ack", confirmed),
        total(
            "unroutable",
            "messages_unroutable",
            "Messages published that no queue took",
            unroutable,
        ),
        total("returned", "messages_returned", "Messages returned to their publisher", returned),
        total("refused", "messages_refused", "Messages refused by a full queue", refused),
        total("cancels", "cancellations", "Cancellations of delayed messages", cancels),
        total("delivered", "messages_delivered", "Messages sent to consumers", delivered),
        total("got", "messages_got", "Messages sent in answer to `basic.get`", got),
        total("settled", "messages_settled", "Deliveries acked, nacked or rejected", settled),
        total(
            "replies_dropped",
            "replies_dropped",
            "Direct replies that were dropped: the reader was gone or too slow, or there was no room",
            replies_dropped,
        ),
        bytes_now(
            "replies_waiting_bytes",
            "replies_waiting",
            "Bytes of direct replies that wait for their readers now",
            replies_waiting_bytes,
        ),
        bytes_now(
            "outbound_bytes",
            "outbound",
            "Bytes on the way to clients that sockets have not taken yet",
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
        let meaning = "Dead messages, by reason; a message that dies again counts again";
        part.by_reason((reason, reason), "dead_letters", meaning, counter)
    };
    let dropped = |key, reason, counter| {
        let meaning =
            "Dead messages that were dropped: no queue takes them, or they went in a cycle";
        part.by_reason((key, reason), "dead_letters_dropped", meaning, counter)
    };
    vec![
        dead("rejected", rejected),
        dead("expired", expired),
        dead("maxlen", maxlen),
        dead("delivery_limit", delivery_limit),
        dropped("unroutable", "unroutable", unroutable),
        dropped("cycles", "cycle", cycles),
        part.total(
            "aside",
            "dead_letters_set_aside",
            "Dead messages that were set aside in `QUEUE.dead`",
            aside,
        ),
        part.total(
            "retries",
            "dead_letter_retries",
            "Batches of dead letters that were sent to a group again",
            retries,
        ),
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
            "Data connections with other nodes, made by either side",
            connections,
        ),
        total("accepted", "peer_accepted", "Connections to the peer port accepted", accepted),
        total(
            "refused",
            "peer_refused",
            "Connections to the peer port refused: no proof of membership",
            refused,
        ),
        total(
            "turned_away",
            "peer_turned_away",
            "Connections to the peer port closed at once, because too many were \
             open",
            turned_away,
        ),
        total(
            "misdirected",
            "peer_messages_misdirected",
            "Raft messages dropped: for another node, or not from the node that they name",
            misdirected,
        ),
        total(
            "dropped",
            "peer_messages_dropped",
            "Messages to other nodes that were dropped: no connection, or no room",
            dropped,
        ),
        bytes("bytes_in", "peer_received", "Bytes received from other nodes", bytes_in),
        bytes("bytes_out", "peer_sent", "Bytes sent to other nodes", bytes_out),
    ]
}
