//! What a route's function sees: the catalog, and how the node stands.

use std::net::SocketAddr;
use std::sync::Arc;

use cluster::{Alarms, Resources};
use machine::{Catalog, NodeId};
use serde::{Deserialize, Serialize};

/// What is looked at while a request is decided. Nothing of it waits.
pub(crate) struct View<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) facts: &'a Facts,
}

/// How the node stands.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) node: NodeId,
    /// Where AMQP is served; `None`: not yet.
    pub(crate) amqp: Option<SocketAddr>,
    /// Where AMQP is served under TLS.
    pub(crate) amqps: Option<SocketAddr>,
    /// Where the API is served, and under TLS.
    pub(crate) http: Option<SocketAddr>,
    pub(crate) https: Option<SocketAddr>,
    /// When the certificate that clients are shown is good no longer: seconds since 1970. `None`: there is none.
    pub(crate) certificate_expires_s: Option<i64>,
    pub(crate) now_s: i64,
    /// Since the node started.
    pub(crate) uptime_ms: u64,
    pub(crate) alarms: Alarms,
    pub(crate) resources: Resources,
    /// The cluster's number, as its data directories have it.
    pub(crate) cluster: u128,
    pub(crate) processors: usize,
    /// Where the node is, as its configuration says. `None`: it does not.
    pub(crate) zone: Option<Arc<str>>,
    /// Of this node.
    pub(crate) totals: Totals,
}

/// What the node's clients have, and did since it started.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Totals {
    pub(crate) connections: u64,
    pub(crate) channels: u64,
    pub(crate) consumers: u64,
    pub(crate) connections_opened: u64,
    pub(crate) connections_closed: u64,
    pub(crate) channels_opened: u64,
    pub(crate) channels_closed: u64,
    pub(crate) published: u64,
    pub(crate) confirmed: u64,
    pub(crate) returned: u64,
    pub(crate) dropped: u64,
    pub(crate) delivered: u64,
    pub(crate) got: u64,
    pub(crate) acked: u64,
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.connections += other.connections;
        self.channels += other.channels;
        self.consumers += other.consumers;
        self.connections_opened += other.connections_opened;
        self.connections_closed += other.connections_closed;
        self.channels_opened += other.channels_opened;
        self.channels_closed += other.channels_closed;
        self.published += other.published;
        self.confirmed += other.confirmed;
        self.returned += other.returned;
        self.dropped += other.dropped;
        self.delivered += other.delivered;
        self.got += other.got;
        self.acked += other.acked;
    }
}

impl Facts {
    /// What listens where, as RabbitMQ names protocols.
    pub(crate) fn listening(&self) -> Vec<(&'static str, SocketAddr)> {
        let all = [
            ("amqp", self.amqp),
            ("amqp/ssl", self.amqps),
            ("http", self.http),
            ("https", self.https),
        ];
        all.into_iter().filter_map(|(protocol, address)| Some((protocol, address?))).collect()
    }

    /// What the node is called, as RabbitMQ's are `rabbit@host`.
    pub(crate) fn name(&self) -> String {
        name_of(self.node)
    }
}

/// What a node is called.
pub fn name_of(node: NodeId) -> String {
    format!("millrace@{}", node.0)
}

/// What a cluster is called: its number, as its data directories have it.
pub fn cluster_name(cluster: u128) -> String {
    format!("{cluster:032x}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A node that has just started.
    pub(crate) fn facts() -> Facts {
        Facts {
            node: NodeId(1),
            amqp: None,
            amqps: None,
            http: None,
            https: None,
            certificate_expires_s: None,
            now_s: 1_000_000,
            uptime_ms: 0,
            alarms: Alarms { memory: false, disk: false },
            resources: Resources::default(),
            cluster: 1,
            processors: 1,
            zone: None,
            totals: Totals::default(),
        }
    }
}
