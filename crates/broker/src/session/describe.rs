//! What a connection is doing, in plain values: for whoever looks after the node. A description is bounded, however much
//! there is to describe, and changes nothing.

use std::net::SocketAddr;

use machine::QueueId;

use super::Session;
use crate::channel::Channel;
use crate::channel::publish::Mode;
use crate::connection::consumers::{Consumer, Consumers};
use crate::limits;

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionDescription {
    pub peer: SocketAddr,
    /// Empty until the password was found right.
    pub user: String,
    /// Empty until it is open.
    pub vhost: String,
    /// Its publishers wait for room.
    pub is_blocked: bool,
    /// Bytes that its publishers have in flight.
    pub in_flight_bytes: u64,
    /// The channels with the lowest numbers.
    pub channels: Vec<ChannelDescription>,
    /// All its channels: those that are not described are among them.
    pub channel_count: usize,
}

/// A channel of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelDescription {
    pub number: u16,
    /// For each consumer that is started from now on; 0 is no limit.
    pub prefetch: u32,
    /// For all consumers together; 0 is no limit.
    pub prefetch_global: u32,
    /// Deliveries that the client has not settled.
    pub unacked: u32,
    pub publishes: PublishMode,
    pub consumers: Vec<ConsumerDescription>,
    /// All its consumers: those that are not described are among them.
    pub consumer_count: usize,
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
    pub queue: QueueId,
    /// Its deliveries count as settled when they are sent.
    pub no_ack: bool,
    /// Messages it may hold; 0 is no limit.
    pub prefetch: u32,
}

impl Session {
    /// What the connection is doing now.
    pub fn describe(&self) -> ConnectionDescription {
        let client = &self.connection.client;
        let channels = self.channels.values().take(limits::DESCRIBED_CHANNELS_MAX);
        ConnectionDescription {
            peer: client.peer,
            user: client.user.clone(),
            vhost: client.vhost.clone(),
            is_blocked: self.is_blocked(),
            in_flight_bytes: self.in_flight_bytes(),
            channels: channels
                .map(|channel| described(channel, &self.connection.consumers))
                .collect(),
            channel_count: self.channels.len(),
        }
    }
}

fn described(channel: &Channel, consumers: &Consumers) -> ChannelDescription {
    let (mode, deliveries) = channel.look_inside();
    let (prefetch, prefetch_global) = deliveries.prefetch();
    ChannelDescription {
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
        consumers: deliveries
            .consumers()
            .take(limits::DESCRIBED_CONSUMERS_MAX)
            .filter_map(|number| consumers.find(number))
            .map(described_consumer)
            .collect(),
    }
}

fn described_consumer(consumer: &Consumer) -> ConsumerDescription {
    ConsumerDescription {
        tag: consumer.tag().to_owned(),
        queue: consumer.source.queue,
        no_ack: consumer.no_ack,
        prefetch: consumer.limit(),
    }
}
