//! What all channels of a connection share, in parts. A verb of a channel is handed only the parts that it may
//! touch.

pub(crate) mod ack_timeout;
pub(crate) mod appends;
pub(crate) mod client;
pub(crate) mod consumers;
pub(crate) mod events;
pub(crate) mod flow;
pub(crate) mod handshake;
pub(crate) mod heartbeat;
pub(crate) mod login;
pub(crate) mod names;
pub(crate) mod outbound;
pub(crate) mod requests;
pub(crate) mod settles;
pub(crate) mod step;
pub(crate) mod tickets;
pub(crate) mod unfinished;

use self::ack_timeout::AckTimeout;
use self::client::Client;
use self::consumers::Consumers;
use self::names::{Chance, Names};
use self::outbound::Outbound;
use self::requests::Requests;
use self::tickets::ChannelRef;
use self::unfinished::Unfinished;
use crate::exchange_counts::ExchangeCounts;
use crate::metrics::{Counts, Traffic};
use crate::route_cache::RouteCache;
use crate::spans::Spans;

/// The part of a connection that is not any one channel's.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    pub(crate) client: Client,
    pub(crate) requests: Requests,
    pub(crate) consumers: Consumers,
    pub(crate) outbound: Outbound,
    pub(crate) publishers: Publishers,
    pub(crate) names: Names,
    pub(crate) ack_timeout: AckTimeout,
    pub(crate) reply_addresses: ReplyAddresses,
    /// Channels that wait for nothing any more and have frames set aside.
    pub(crate) resumable: Vec<ChannelRef>,
    pub(crate) counts: Counts,
    pub(crate) traffic: Traffic,
    /// `None`: nobody collects spans.
    pub(crate) spans: Option<Box<Spans>>,
}

/// Reply addresses of a connection and whose they are.
pub(crate) type ReplyAddresses = Vec<(String, ChannelRef)>;

/// What the publishers of all channels share.
#[derive(Debug)]
pub(crate) struct Publishers {
    pub(crate) routes: RouteCache,
    pub(crate) exchanges: ExchangeCounts,
    pub(crate) chance: Chance,
    pub(crate) unfinished: Unfinished,
    /// Channels whose confirms have moved.
    pub(crate) touched: Vec<u16>,
    /// Channels that have published.
    pub(crate) count: u64,
}

impl ConnectionState {
    pub(crate) fn new(client: Client, seed: [u8; 32]) -> Self {
        Self {
            requests: Requests::new(client.session),
            client,
            consumers: Consumers::default(),
            outbound: Outbound::default(),
            publishers: Publishers {
                routes: RouteCache::default(),
                exchanges: ExchangeCounts::default(),
                chance: Chance::new(seed),
                unfinished: Unfinished::default(),
                touched: Vec::new(),
                count: 0,
            },
            names: Names::new(seed),
            ack_timeout: AckTimeout::default(),
            reply_addresses: Vec::new(),
            resumable: Vec::new(),
            counts: Counts::default(),
            traffic: Traffic::default(),
            spans: None,
        }
    }

    /// Why the client may not be read now, if so: too much is on its way already.
    #[inline]
    pub(crate) fn is_congested(&self) -> bool {
        self.requests.unlogged_bytes() >= crate::limits::UNLOGGED_BYTES_MAX
            || self.publishers.unfinished.deferred_bytes >= crate::limits::DEFERRED_BYTES_MAX
    }

    /// Bytes that this connection's publishers have in flight.
    pub(crate) fn in_flight_bytes(&self) -> u64 {
        let unfinished = &self.publishers.unfinished;
        let whole = self.requests.unlogged_bytes() + unfinished.deferred_bytes;
        unfinished.bytes() + whole as u64
    }
}
