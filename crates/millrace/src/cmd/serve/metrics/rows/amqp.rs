//! What clients' connections count.

use super::super::family::Kind;
use super::super::row::{Part, Row};

pub(super) fn amqp(metrics: &broker::Metrics) -> Vec<Row> {
    let broker::Metrics {
        connections_opened,
        connections_closed,
        logins_refused,
        channels_opened,
        channels_closed,
        channel_errors,
        connection_errors,
        published,
        published_confirm,
        sizes: _,        // Not one number.
        commit_times: _, // The same.
        routed,
        confirmed,
        unroutable,
        unroutable_dropped,
        returned,
        refused,
        cancels,
        delivered,
        delivered_manual_ack,
        delivered_auto_ack,
        got,
        got_manual_ack,
        got_auto_ack,
        got_none,
        redelivered,
        consumer_timeouts,
        settled,
        acked,
        queues_declared,
        in_flight_bytes,
        outbound_bytes,
        consumers,
        channels,
        publishers,
        blocked_memory,
        blocked_disk,
        blocked_in_flight,
        replies_waiting_bytes,
        replies_dropped,
        traces_dropped,
        spans_sent,
        spans_dropped,
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
    let ack = |key, ack, name, meaning, counter| Row {
        label: Some(("ack", ack)),
        ..total(key, name, meaning, counter)
    };
    let delivered_by = "Messages sent to consumers, by whether the consumer acknowledges them";
    let got_by = "Messages sent in answer to `basic.get`, by whether the client acknowledges them";
    let blocked = |key, reason, counter| Row {
        label: Some(("reason", reason)),
        ..part.of(
            Kind::Now,
            key,
            "publishers_blocked",
            "Connections whose publishers wait now, by what is short",
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
        part.of(Kind::Now, "channels", "channels", "Channels that are open now", channels),
        part.of(
            Kind::Now,
            "publishers",
            "publishers",
            "Open channels that have published",
            publishers,
        ),
        blocked("blocked_memory", "memory", blocked_memory),
        blocked("blocked_disk", "disk", blocked_disk),
        blocked("blocked_in_flight", "in_flight", blocked_in_flight),
        total(
            "queues_declared",
            "queues_declared",
            "Declarations of queues by clients of this node, those of existing queues included",
            queues_declared,
        ),
        part.of(Kind::Now, "consumers", "consumers", "Consumers on all channels now", consumers),
        total(
            "consumer_timeouts",
            "consumer_timeouts",
            "Channels closed because a delivery was not settled in time",
            consumer_timeouts,
        ),
        total("published", "messages_published", "Messages published", published),
        total(
            "published_confirm",
            "messages_published_with_confirm",
            "Messages published on channels with confirms",
            published_confirm,
        ),
        total(
            "routed",
            "messages_routed",
            "Queues that messages were routed to; a message for two queues counts twice",
            routed,
        ),
        total("confirmed", "messages_confirmed", "Publishes confirmed with an ack", confirmed),
        total(
            "unroutable",
            "messages_unroutable",
            "Messages published that no queue took",
            unroutable,
        ),
        total("returned", "messages_returned", "Messages returned to their publisher", returned),
        total(
            "unroutable_dropped",
            "messages_unroutable_dropped",
            "Messages published that no queue took and whose publisher did not want them back",
            unroutable_dropped,
        ),
        total("refused", "messages_refused", "Messages refused by a full queue", refused),
        total("cancels", "cancellations", "Cancellations of delayed messages", cancels),
        total("delivered", "messages_delivered", "Messages sent to consumers", delivered),
        ack(
            "delivered_manual_ack",
            "manual",
            "messages_delivered_by_ack",
            delivered_by,
            delivered_manual_ack,
        ),
        ack(
            "delivered_auto_ack",
            "auto",
            "messages_delivered_by_ack",
            delivered_by,
            delivered_auto_ack,
        ),
        total("got", "messages_got", "Messages sent in answer to `basic.get`", got),
        ack("got_manual_ack", "manual", "messages_got_by_ack", got_by, got_manual_ack),
        ack("got_auto_ack", "auto", "messages_got_by_ack", got_by, got_auto_ack),
        total("got_none", "gets_empty", "Answers to `basic.get` without a message", got_none),
        total(
            "redelivered",
            "messages_redelivered",
            "Messages sent to clients with the flag `redelivered`",
            redelivered,
        ),
        total("acked", "messages_acknowledged", "Deliveries acked", acked),
        total("settled", "messages_settled", "Deliveries acked, nacked or rejected", settled),
        total(
            "replies_dropped",
            "replies_dropped",
            "Direct replies that were dropped: the reader was gone or too slow, or there was no room",
            replies_dropped,
        ),
        total(
            "traces_dropped",
            "traces_dropped",
            "Messages of traced vhosts that were not published at amq.rabbitmq.trace: too many waited, or a queue did not take them",
            traces_dropped,
        ),
        total(
            "spans_sent",
            "spans_sent",
            "Spans that the collector of OpenTelemetry has taken",
            spans_sent,
        ),
        total(
            "spans_dropped",
            "spans_dropped",
            "Spans that the collector of OpenTelemetry did not get: too many waited for it, or it refused them",
            spans_dropped,
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
