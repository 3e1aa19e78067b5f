//! What a connection is doing, in plain values: for whoever looks after the node. A description is bounded, however much
//! there is to describe, and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use machine::{GroupId, QueueId};

use super::{Phase, Session};
use crate::channel::Channel;
use crate::channel::deliver::Deliveries;
use crate::channel::publish::Mode;
pub use crate::connection::consumers::ConsumerPause;
use crate::connection::consumers::Consumers;
use crate::limits;
use crate::metrics::Traffic;

/// A connection, without its channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLine {
    pub peer: SocketAddr,
    /// Empty until the password was found right.
    pub user: String,
    /// Empty until it is open.
    pub vhost: String,
    /// What the client calls itself; empty if it says nothing.
    pub client: String,
    pub state: ConnectionState,
    /// When it was accepted, milliseconds since 1970.
    pub since_ms: u64,
    pub channel_count: usize,
    pub consumer_count: u64,
    /// Bytes that its publishers have in flight.
    pub in_flight_bytes: u64,
    /// Bytes that are on their way to the client.
    pub outbound_bytes: u64,
    /// What it has moved since it was opened.
    pub traffic: Traffic,
    /// What its publishers wait for, if they do.
    pub blocked_by: Option<HeldBy>,
}

/// What publishers wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBy {
    /// The node is low on memory.
    Memory,
    /// The node is low on disk.
    Disk,
    /// The node's publishers together have in flight what they may.
    InFlight,
    /// The client is not read: so much waits for queues that take messages at a rate, or have a limit.
    Queue,
    /// The client is not read: so much is on its way to the disks of a majority.
    Log,
}

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// The client has not logged in yet, or has opened no vhost.
    Opening,
    Running,
    /// Its publishers wait for room.
    Blocked,
    Closing,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionDescription {
    pub line: ConnectionLine,
    /// Agreed with the client.
    pub frame_bytes_max: u32,
    pub channel_max: u16,
    /// 0 is none.
    pub heartbeat_seconds: u64,
    /// The channels with the lowest numbers.
    pub channels: Vec<ChannelLine>,
}

/// A channel of a connection, without its consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelLine {
    pub number: u16,
    /// For each consumer that is started from now on; 0 is no limit.
    pub prefetch: u32,
    /// For all consumers together; 0 is no limit.
    pub prefetch_global: u32,
    /// Deliveries that the client has not settled.
    pub unacked: u32,
    pub publishes: PublishMode,
    pub consumer_count: usize,
}

/// A channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelDescription {
    pub line: ChannelLine,
    /// The consumers with the first tags.
    pub consumers: Vec<ConsumerDescription>,
}

/// How a channel's publishes are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishMode {
    Plain,
    /// Of so many publishes the client was not told yet.
    Confirm {
        unconfirmed: u64,
    },
    /// The open transaction holds so much.
    Tx {
        publish_bytes: usize,
        settles: usize,
    },
}

/// A consumer of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerDescription {
    pub tag: String,
    /// The connection's own number for it, which its queue knows it by.
    pub number: u64,
    pub group: GroupId,
    pub queue: QueueId,
    /// Its deliveries count as settled when they are sent.
    pub no_ack: bool,
    /// Messages it may hold; 0 is no limit.
    pub prefetch: u32,
    /// Messages it holds: sent, and not settled.
    pub held: u32,
    /// Since when it holds the oldest of them at least, ms since 1970. The connection looks once a minute, or as often as
    /// the consumer timeout of a queue needs. None: it holds none, or only such as came since the last look.
    pub held_since_ms: Option<u64>,
    /// Messages that were sent to it, and those of them that it acked, since it was started.
    pub delivered: u64,
    pub acked: u64,
    /// Messages that its queue may send it and has not.
    pub credit: u32,
    /// Its queue serves one consumer at a time.
    pub is_single_active: bool,
    /// An operator has paused it: it is given nothing.
    pub pause: Option<ConsumerPause>,
}

/// By the connection's own numbers for consumers.
type HeldSince = BTreeMap<u64, u64>;

impl Session {
    /// What the connection is doing now, `waiting_bytes` being what its socket has not taken.
    pub fn describe_line(&self, waiting_bytes: usize) -> ConnectionLine {
        let client = &self.connection.client;
        ConnectionLine {
            peer: client.peer,
            user: client.user.clone(),
            vhost: client.vhost.clone(),
            client: client.name.clone(),
            state: self.state(),
            since_ms: client.since.ms,
            channel_count: self.channels.len(),
            consumer_count: self.consumer_count(),
            in_flight_bytes: self.in_flight_bytes(),
            outbound_bytes: self.outbound_bytes(waiting_bytes),
            traffic: self.connection.traffic,
            // What is short at the node, its driver knows.
            blocked_by: self.connection.is_congested().then(|| self.congested_by()),
        }
    }

    /// The same with its channels.
    pub fn describe(&self, waiting_bytes: usize) -> ConnectionDescription {
        let channels = self.channels.values().take(limits::DESCRIBED_CHANNELS_MAX);
        ConnectionDescription {
            line: self.describe_line(waiting_bytes),
            frame_bytes_max: self.connection.client.frame_bytes_max,
            channel_max: self.channel_max,
            heartbeat_seconds: self.heartbeat.interval.as_secs(),
            channels: channels.map(|channel| channel_line(channel)).collect(),
        }
    }

    /// One of its channels, if it is open.
    pub fn describe_channel(&self, number: u16) -> Option<ChannelDescription> {
        let channel = self.channels.get(&number)?;
        let (_, deliveries) = channel.look_inside();
        let held_since = self.held_since(deliveries);
        Some(ChannelDescription {
            line: channel_line(channel),
            consumers: deliveries
                .consumers()
                .take(limits::DESCRIBED_CONSUMERS_MAX)
                .filter_map(|number| self.described(number, &held_since))
                .collect(),
        })
    }

    /// One consumer of a channel, if there is one with that tag.
    pub fn describe_consumer(&self, channel: u16, tag: &str) -> Option<ConsumerDescription> {
        let (_, deliveries) = self.channels.get(&channel)?.look_inside();
        self.described(deliveries.consumer(tag)?, &self.held_since(deliveries))
    }

    /// Since when consumers of a channel hold their oldest messages, ms since 1970.
    fn held_since(&self, deliveries: &Deliveries) -> HeldSince {
        let began_ms = self.connection.client.since.ms;
        let ms = |since: Duration| u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let held = deliveries.held_since().into_iter();
        held.filter_map(|(consumer, since)| Some((consumer, began_ms.saturating_add(ms(since?)))))
            .collect()
    }

    /// Since when messages are held in the name of a number that the connection has drawn for a consumer, or for what a
    /// channel fetched: by queue and the number of the message, ms since 1970 at least. Of the others it is not known.
    pub fn messages_held_since(
        &self,
        number: u64,
        messages: &BTreeSet<(QueueId, u64)>,
    ) -> BTreeMap<(QueueId, u64), u64> {
        let began_ms = self.connection.client.since.ms;
        let mut found = BTreeMap::new();
        for channel in self.channels.values() {
            let (_, deliveries) = channel.look_inside();
            deliveries.messages_held_since(number, messages, |message, since| {
                let since_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
                found.insert(message, began_ms.saturating_add(since_ms));
            });
        }
        found
    }

    fn described(&self, number: u64, held_since: &HeldSince) -> Option<ConsumerDescription> {
        let consumers: &Consumers = &self.connection.consumers;
        let consumer = consumers.find(number)?;
        // Of several partitions together.
        let members = consumers.members(number);
        let found = members.iter().filter_map(|member| consumers.find(*member));
        let (mut held, mut credit, mut delivered, mut acked) = (0, 0, 0, 0);
        for member in found {
            let (holds, granted) = member.holds();
            (held, credit) = (held + holds, credit + granted);
            (delivered, acked) = (delivered + member.delivered, acked + member.acked);
        }
        Some(ConsumerDescription {
            tag: consumer.tag().to_owned(),
            number: consumer.source.consumer,
            group: consumer.source.group,
            queue: consumer.source.queue,
            no_ack: consumer.no_ack,
            prefetch: consumer.limit(),
            held,
            held_since_ms: members.iter().filter_map(|it| held_since.get(it)).min().copied(),
            delivered,
            acked,
            credit,
            is_single_active: consumer.is_single_active,
            pause: consumer.pause.clone(),
        })
    }

    /// Whether a consumer of a channel is paused, if there is one with that tag that its queue has.
    pub(crate) fn is_consumer_paused(&self, channel: u16, tag: &str) -> Option<bool> {
        let (_, deliveries) = self.channels.get(&channel)?.look_inside();
        let number = deliveries.consumer(tag)?;
        let consumers: &Consumers = &self.connection.consumers;
        let consumer = consumers.find(number).filter(|_| consumers.is_attached(number))?;
        Some(consumer.pause.is_some())
    }

    fn congested_by(&self) -> HeldBy {
        match self.connection.requests.capacity.bytes {
            0 => HeldBy::Log,
            _ => HeldBy::Queue,
        }
    }

    fn state(&self) -> ConnectionState {
        match self.phase {
            Phase::Header | Phase::Start | Phase::Verifying(_) | Phase::Tune | Phase::Open => {
                ConnectionState::Opening
            }
            Phase::Running if self.is_blocked() => ConnectionState::Blocked,
            Phase::Running => ConnectionState::Running,
            Phase::Leaving { .. } | Phase::Closing { .. } | Phase::Silent { .. } | Phase::Over => {
                ConnectionState::Closing
            }
        }
    }
}

fn channel_line(channel: &Channel) -> ChannelLine {
    let (mode, deliveries) = channel.look_inside();
    let (prefetch, prefetch_global) = deliveries.prefetch();
    ChannelLine {
        number: channel.at.number,
        prefetch,
        prefetch_global,
        unacked: deliveries.unacked.count(),
        publishes: match mode {
            Mode::Plain => PublishMode::Plain,
            Mode::Confirm(confirms) => PublishMode::Confirm { unconfirmed: confirms.unconfirmed() },
            Mode::Tx(tx) => PublishMode::Tx { publish_bytes: tx.bytes, settles: tx.settles() },
        },
        consumer_count: deliveries.consumer_count(),
    }
}
