//! Every number that a node counts, one row each: its key in the line of SIGUSR1, its name for Prometheus, its meaning.
//!
//! Every struct of counters is taken apart without `..`, so a counter that has no row does not compile.

mod amqp;

use std::sync::atomic::AtomicU64;

use broker::dead_letter::DeadLetterMetrics;
use cluster::{Alarms, Counters, PeerCounters};

use self::amqp::amqp;
use super::family::Kind;
use super::row::{Part, Row, now};

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
    pub(super) http: &'a management::Metrics,
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
        rows.extend(http(self.http));
        rows.extend(self.peers.into_iter().flat_map(peers));
        rows
    }
}

fn http(metrics: &management::Metrics) -> Vec<Row> {
    let management::Metrics {
        turned_away,
        slow_readers,
        sessions,
        sessions_begun,
        sessions_crowded_out,
        sessions_unproven,
        live_streams,
        live_refused,
        live_behind,
        history_bytes,
        history_queues,
        history_queues_left_out,
    } = metrics;
    let part = Part("");
    let of = |kind, name, meaning, counter| part.of(kind, name, name, meaning, counter);
    vec![
        part.total(
            "http_turned_away",
            "http_turned_away",
            "Connections to the HTTP API that were closed at once, because 256 were open",
            turned_away,
        ),
        part.total(
            "http_slow_readers",
            "http_slow_readers",
            "Connections to the HTTP API that were cut, because their clients took their answers too slowly",
            slow_readers,
        ),
        of(Kind::Now, "console_sessions", "Sessions of browsers that are open now", sessions),
        part.total(
            "console_sessions_begun",
            "console_sessions_begun",
            "Sessions that browsers have begun by logging in",
            sessions_begun,
        ),
        part.total(
            "console_sessions_crowded_out",
            "console_sessions_crowded_out",
            "Sessions of browsers that ended because a newer one needed the room: a user has 20 at a node, a node 1,000",
            sessions_crowded_out,
        ),
        part.total(
            "console_requests_unproven",
            "console_requests_unproven",
            "Requests with the cookie of a session that were refused, because the header x-millrace-csrf was missing or wrong",
            sessions_unproven,
        ),
        of(Kind::Now, "live_streams", "Live streams of the HTTP API that are open now", live_streams),
        part.total(
            "live_streams_refused",
            "live_streams_refused",
            "Live streams that were refused, because 64 were open",
            live_refused,
        ),
        part.total(
            "live_streams_behind",
            "live_streams_behind",
            "Times that a live stream began again with all queues, because its reader was behind",
            live_behind,
        ),
        of(
            Kind::NowBytes,
            "history",
            "Memory that the history of the node and its queues takes",
            history_bytes,
        ),
        of(
            Kind::Now,
            "history_queues",
            "Queues whose history the node keeps",
            history_queues,
        ),
        of(
            Kind::Now,
            "history_queues_left_out",
            "Queues led here in which something goes on, and that have no place in the history",
            history_queues_left_out,
        ),
    ]
}

fn store(counters: &Counters) -> Vec<Row> {
    let Counters {
        syncs,
        log_bytes,
        entries,
        sync_micros,
        sync_times: _, // Not one number.
        segment_messages,
        checkpoints_refused,
        fetches,
        events_dropped,
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
        part.total(
            "events_dropped",
            "events_dropped",
            "Events that were not published at amq.rabbitmq.event: too many waited, or a queue did not take them",
            events_dropped,
        ),
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
