//! What an operator may set about AMQP connections.

use std::time::Duration;

use certificates::UserFrom;

use crate::limits;

/// Settings of every AMQP session of a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// Shown to clients in `connection.start`.
    pub cluster_name: String,
    /// Largest frame offered, in bytes with overhead: 4,096 to `amqp::limits::FRAME_BYTES_MAX`.
    pub frame_bytes_max: u32,
    /// Highest channel number offered: 1 to `limits::CHANNEL_MAX`.
    pub channel_max: u16,
    /// Seconds between heartbeats offered; 0 offers none.
    pub heartbeat_seconds: u16,
    /// Bytes of one message's body, at most `limits::MESSAGE_BYTES_CAP`.
    pub message_bytes_max: u64,
    /// Bytes that the publishers of all connections of the node have in flight: bodies that have begun, open
    /// transactions, and what is whole and not yet on a majority's disks. Past it publishers are not read.
    pub in_flight_bytes_max: u64,
    /// Bytes that all connections of the node have on their way to their clients: answers that wait, and what their
    /// sockets have not taken. Past it each may have `limits::OUTBOUND_BYTES_FLOOR`.
    pub outbound_bytes_max: u64,
    /// Bytes of direct replies that wait for all sessions of the node. Past it they are dropped, but for
    /// `limits::REPLIES_WAITING_BYTES_FLOOR` of each session.
    pub replies_bytes_max: u64,
    /// Users that may come from this machine only, by the peer's address.
    pub loopback_users: Vec<String>,
    /// Where a client's certificate has its user's name. `None`: nobody logs in with a certificate.
    pub certificate_user: Option<UserFrom>,
    /// A password may be a token (OAuth 2), which `Outputs::token` asks about.
    pub takes_tokens: bool,
    /// Connections of the node, whatever their state: each is an open file.
    pub connections_max: usize,
    /// Consumers of one channel.
    pub consumers_per_channel_max: usize,
    /// How long a consumer may hold a message of a queue that does not say it; zero is for ever.
    pub consumer_timeout: Duration,
    /// From the accepted socket to `connection.open-ok`.
    pub handshake: Duration,
    /// How long a refused login keeps its socket.
    pub refusal_delay: Duration,
    /// How long a client may take to answer `connection.close`.
    pub close_wait: Duration,
    /// How long bytes may wait for a socket that takes none.
    pub write_stall: Duration,
}

impl Config {
    /// The same with what all connections may hold together, where the node may hold `memory_limit` bytes.
    #[must_use]
    pub fn within(self, memory_limit: u64) -> Self {
        let outbound_min = limits::OUTBOUND_BYTES_MAX as u64;
        Self {
            in_flight_bytes_max: memory_limit / limits::IN_FLIGHT_SHARE,
            outbound_bytes_max: (memory_limit / limits::OUTBOUND_SHARE).max(outbound_min),
            replies_bytes_max: (memory_limit / limits::REPLIES_SHARE)
                .max(limits::REPLIES_TOGETHER_BYTES_MIN),
            ..self
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cluster_name: "millrace".to_owned(),
            frame_bytes_max: amqp::limits::FRAME_BYTES_DEFAULT,
            channel_max: limits::CHANNEL_MAX,
            heartbeat_seconds: limits::HEARTBEAT_SECONDS,
            message_bytes_max: limits::MESSAGE_BYTES_CAP,
            in_flight_bytes_max: limits::IN_FLIGHT_BYTES_MAX,
            outbound_bytes_max: limits::OUTBOUND_TOGETHER_BYTES_MAX,
            replies_bytes_max: limits::REPLIES_TOGETHER_BYTES_MAX,
            loopback_users: vec!["guest".to_owned()],
            certificate_user: None,
            takes_tokens: false,
            connections_max: limits::CONNECTIONS_MAX,
            consumers_per_channel_max: limits::CONSUMERS_PER_CHANNEL_MAX,
            consumer_timeout: limits::CONSUMER_TIMEOUT,
            handshake: limits::HANDSHAKE,
            refusal_delay: limits::REFUSAL_DELAY,
            close_wait: limits::CLOSE_WAIT,
            write_stall: limits::WRITE_STALL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_connections_may_hold_follows_the_memory_limit_down_to_a_minimum() {
        let large = Config::default().within(4 << 30);
        let shares = (large.in_flight_bytes_max, large.replies_bytes_max, large.outbound_bytes_max);
        assert_eq!(shares, (2 << 30, 1 << 30, 512 << 20));
        let small = Config::default().within(16 << 20);
        let shares = (small.in_flight_bytes_max, small.replies_bytes_max, small.outbound_bytes_max);
        assert_eq!(shares, (8 << 20, 16 << 20, 8 << 20));
    }
}
