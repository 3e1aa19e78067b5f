//! A node: what it is, where it listens, what it has.

use std::fmt;
use std::sync::atomic::Ordering;

use cluster::Resources;
use serde::{Deserialize, Serialize};

use crate::control::running::Running;
use crate::table::{age, bytes, or_dash, pairs};

/// What `millrace describe node --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) node: u64,
    /// In hexadecimal.
    cluster: String,
    /// Of the program.
    program: String,
    /// The newest version of a cluster that the program reads, and what the cluster has agreed on.
    version_max: u16,
    version: u16,
    /// `starting` until clients can connect, then `serving`.
    pub(crate) state: String,
    uptime_s: u64,
    data_dir: String,
    pub(crate) amqp: Option<String>,
    metrics: Option<String>,
    peers: Option<String>,
    pub(crate) connections: usize,
    pub(crate) consumers: u64,
    /// Of publishers, not on a majority's disks yet.
    in_flight_bytes: u64,
    /// On their way to clients.
    outbound_bytes: u64,
    pub(crate) memory_bytes: Option<u64>,
    memory_limit_bytes: u64,
    disk_free_bytes: Option<u64>,
    disk_free_limit_bytes: u64,
    /// Why publishers wait: `memory`, `disk`.
    alarms: Vec<String>,
    /// Groups that it leads, and how many it has a replica of. The catalog is group 0.
    pub(crate) groups_led: Vec<u32>,
    groups: usize,
}

impl Node {
    pub(super) async fn of(running: &Running) -> Result<Self, String> {
        let Running { cluster, broker, start } = running;
        let asked = cluster.clone();
        let status = tokio::task::spawn_blocking(move || asked.status()).await;
        let busy = "the node is too busy to report its status; repeat the command";
        let status = status.ok().flatten().ok_or(busy)?;
        let Resources { memory_bytes, memory_limit_bytes, disk_free_bytes, disk_free_limit_bytes } =
            cluster.resources();
        let alarms = cluster.alarms();
        let is_led = |leader: Option<machine::NodeId>| leader == Some(cluster.node());
        let led = status.groups.iter().filter(|group| is_led(group.leader));
        let total = |total: &std::sync::atomic::AtomicU64| total.load(Ordering::Relaxed);
        Ok(Self {
            node: status.identity.node,
            cluster: format!("{:032x}", status.identity.cluster),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            version_max: cluster.speaks().0,
            version: cluster.catalog().agreed().0,
            state: if start.amqp.get().is_some() { "serving" } else { "starting" }.to_owned(),
            uptime_s: start.at.elapsed().as_secs(),
            data_dir: start.data_dir.display().to_string(),
            amqp: start.amqp.get().map(ToString::to_string),
            metrics: start.metrics.clone(),
            peers: start.peers.clone(),
            connections: broker.connection_count(),
            consumers: total(&broker.metrics().consumers),
            in_flight_bytes: total(&broker.metrics().in_flight_bytes),
            outbound_bytes: total(&broker.metrics().outbound_bytes),
            memory_bytes,
            memory_limit_bytes,
            disk_free_bytes,
            disk_free_limit_bytes,
            alarms: [(alarms.memory, "memory"), (alarms.disk, "disk")]
                .into_iter()
                .filter(|(is_raised, _)| *is_raised)
                .map(|(_, name)| name.to_owned())
                .collect(),
            groups_led: led.map(|group| group.group.0).collect(),
            groups: status.groups.len(),
        })
    }
}

impl fmt::Display for Node {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listens = |address: &Option<String>| or_dash(address.as_ref());
        let unknown = |size: Option<u64>| size.map_or_else(|| "unknown".to_owned(), bytes);
        let groups = |group: &u32| match group {
            0 => "catalog".to_owned(),
            group => group.to_string(),
        };
        let led: Vec<String> = self.groups_led.iter().map(groups).collect();
        let led = if led.is_empty() { "none".to_owned() } else { led.join(", ") };
        let alarms = match self.alarms.is_empty() {
            true => "none".to_owned(),
            false => format!("{}: publishers wait", self.alarms.join(", ")),
        };
        pairs(
            out,
            &[
                ("Node", format!("{} of cluster {}", self.node, self.cluster)),
                ("State", format!("{}, up for {}", self.state, age(self.uptime_s))),
                (
                    "Program",
                    format!(
                        "{}, reads versions up to {}; the cluster has agreed on {}",
                        self.program, self.version_max, self.version
                    ),
                ),
                ("Data directory", self.data_dir.clone()),
                ("AMQP", listens(&self.amqp)),
                ("Other nodes", listens(&self.peers)),
                ("Metrics", listens(&self.metrics)),
                ("Connections", self.connections.to_string()),
                ("Consumers", self.consumers.to_string()),
                ("In flight", format!("{} from publishers", bytes(self.in_flight_bytes))),
                ("Outbound", format!("{} on the way to clients", bytes(self.outbound_bytes))),
                (
                    "Memory",
                    format!(
                        "{} held, limit {}",
                        unknown(self.memory_bytes),
                        bytes(self.memory_limit_bytes)
                    ),
                ),
                (
                    "Disk",
                    format!(
                        "{} free, limit {}",
                        unknown(self.disk_free_bytes),
                        bytes(self.disk_free_limit_bytes)
                    ),
                ),
                ("Alarms", alarms),
                ("Leads", format!("{led} (has {} groups)", self.groups)),
            ],
        )
    }
}
