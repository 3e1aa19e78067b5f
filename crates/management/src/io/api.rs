//! What all requests share, and how the node stands.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use broker::io::broker::Broker;
use certificates::ServerTls;
use cluster::{BackupSource, ClusterHandle};
use machine::NodeId;
use oauth::Grant;
use tokio::sync::{OnceCell, Semaphore};

use super::live::Live;
use super::retry_registry::Registry;
use super::told::{Companions, Shelf};
use crate::console::Console;
use crate::limits::{HASHES_AT_ONCE, LOCK_WAITS_MAX, REQUESTS_AT_ONCE};
use crate::lines::Lines;
use crate::metrics::Metrics;
use crate::node::{Facts, Totals};
use crate::picture::Picture;
use crate::rates::{ClientRates, Rates};
use crate::seen::Seen;
use crate::sessions::{Id, Sessions};

/// What requests share. Cheap to clone: all clones are the same.
#[derive(Clone, Debug)]
pub struct Api(pub(super) Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) cluster: ClusterHandle,
    pub(super) broker: Arc<Broker>,
    pub(super) rates: Mutex<Rates>,
    pub(super) client_rates: Mutex<ClientRates>,
    /// The last picture of all queues: `model`.
    pub(super) picture: tokio::sync::Mutex<Option<Arc<Picture>>>,
    /// The last fronts of all queues: `fronts`.
    pub(super) fronts: Shelf,
    /// What the connections of this node last said of themselves: `lines`.
    pub(super) lines: tokio::sync::Mutex<Option<Lines>>,
    /// Retries of dead letters that were asked for here.
    pub(super) retries: Mutex<Registry>,
    pub(super) started: Instant,
    /// Where what is served, once it is.
    amqp: OnceLock<SocketAddr>,
    amqps: OnceLock<SocketAddr>,
    http: OnceLock<SocketAddr>,
    https: OnceLock<SocketAddr>,
    /// What clients are shown under TLS.
    tls: Option<Arc<ServerTls>>,
    /// Turns for requests that only ask, and for the others.
    pub(super) asking: Semaphore,
    pub(super) changing: Semaphore,
    /// The turn of orders of the cluster: one at a time, also when whoever gave it has gone.
    pub(super) ordering: Arc<Semaphore>,
    /// Room for requests that wait for locks.
    pub(super) lock_waits: Semaphore,
    /// What backups read from this node.
    pub(super) backups: Mutex<Backups>,
    /// Turns for hashes of passwords.
    pub(super) hashes: Semaphore,
    /// What the node has seen of itself: `seen`.
    pub(super) seen: tokio::sync::Mutex<Seen>,
    /// Relays and workers: `companions`.
    pub(super) companions: Companions,
    /// Where the node keeps its data, and in which zone it is.
    pub(super) data_dir: OnceLock<PathBuf>,
    zone: OnceLock<Arc<str>>,
    /// Processors that the node may use. To ask the system for them costs more than a small request.
    processors: usize,
    /// What live streams share.
    pub(super) live: Live,
    /// Browsers that have logged in.
    pub(super) sessions: Mutex<Sessions>,
    /// The files of the console, once somebody has looked.
    pub(super) console: OnceCell<Arc<Console>>,
    pub(super) metrics: Metrics,
}

/// What this node has of backups. There is one at a time: each keeps files that are no longer needed otherwise.
#[derive(Debug, Default)]
pub(super) struct Backups {
    /// Groups of which this node is the source.
    pub(super) sources: BTreeMap<u64, BTreeMap<u32, BackupSource>>,
    /// Where the groups of backups are that were begun here.
    pub(super) begun: Option<(u64, BTreeMap<u32, NodeId>)>,
    /// When the other nodes last heard that it is still being read.
    pub(super) kept: Option<Instant>,
}

/// Who asks: known by name and password, by a token, or by the cookie of a session.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) user: String,
    /// What the token gives that was shown.
    pub(super) grant: Option<Arc<Grant>>,
    pub(super) session: Option<Id>,
    pub(super) peer: SocketAddr,
}

impl Api {
    /// The API of a node, which shows this to its clients under TLS.
    pub fn new(cluster: ClusterHandle, broker: Arc<Broker>, tls: Option<Arc<ServerTls>>) -> Self {
        Self(Arc::new(Shared {
            cluster,
            broker,
            rates: Mutex::default(),
            client_rates: Mutex::default(),
            picture: tokio::sync::Mutex::default(),
            fronts: Shelf::default(),
            lines: tokio::sync::Mutex::default(),
            retries: Mutex::default(),
            started: Instant::now(),
            amqp: OnceLock::new(),
            amqps: OnceLock::new(),
            http: OnceLock::new(),
            https: OnceLock::new(),
            tls,
            asking: Semaphore::new(REQUESTS_AT_ONCE),
            changing: Semaphore::new(REQUESTS_AT_ONCE),
            ordering: Arc::new(Semaphore::new(1)),
            lock_waits: Semaphore::new(LOCK_WAITS_MAX),
            backups: Mutex::default(),
            hashes: Semaphore::new(HASHES_AT_ONCE),
            seen: tokio::sync::Mutex::default(),
            companions: Companions::default(),
            data_dir: OnceLock::new(),
            zone: OnceLock::new(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            live: Live::default(),
            sessions: Mutex::default(),
            console: OnceCell::new(),
            metrics: Metrics::default(),
        }))
    }

    /// What it counts.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Whether it is served here.
    pub(super) fn is_served(&self) -> bool {
        self.0.http.get().is_some() || self.0.https.get().is_some()
    }

    /// The port that it is served at; of two the one without TLS.
    pub(super) fn port(&self) -> u16 {
        let address = self.0.http.get().or(self.0.https.get());
        address.map_or(0, SocketAddr::port)
    }

    /// AMQP is served here from now on.
    pub fn amqp_is_at(&self, address: SocketAddr, is_tls: bool) {
        if is_tls { &self.0.amqps } else { &self.0.amqp }.get_or_init(|| address);
    }

    /// The addresses at which relays and workers beside this node serve their `/status`.
    /// `secret`: with it relays are paused and resumed. Call it once.
    pub fn companions_are(&self, addresses: Vec<String>, secret: Option<String>) {
        self.0.companions.addresses.get_or_init(|| addresses);
        if let Some(secret) = secret {
            self.0.companions.secret.get_or_init(|| secret);
        }
    }

    /// The node keeps its data here, and is in this zone, if it was given one. Call it once.
    pub fn node_is_at(&self, data_dir: PathBuf, zone: Option<&str>) {
        self.0.data_dir.get_or_init(|| data_dir);
        if let Some(zone) = zone {
            self.0.zone.get_or_init(|| zone.into());
        }
    }

    /// The API is served here from now on.
    pub fn is_at(&self, address: SocketAddr, is_tls: bool) {
        if is_tls { &self.0.https } else { &self.0.http }.get_or_init(|| address);
    }

    /// How the node stands.
    pub(super) fn facts(&self) -> Facts {
        let shared = &self.0;
        let metrics = shared.broker.metrics();
        let count = |total: &AtomicU64| total.load(Ordering::Relaxed);
        let (opened, closed) = (count(&metrics.channels_opened), count(&metrics.channels_closed));
        let totals = Totals {
            connections: shared.broker.connection_count() as u64,
            channels: count(&metrics.channels),
            consumers: count(&metrics.consumers),
            connections_opened: count(&metrics.connections_opened),
            connections_closed: count(&metrics.connections_closed),
            channels_opened: opened,
            channels_closed: closed,
            published: count(&metrics.published),
            confirmed: count(&metrics.confirmed),
            returned: count(&metrics.returned),
            dropped: count(&metrics.unroutable_dropped),
            delivered: count(&metrics.delivered),
            got: count(&metrics.got),
            acked: count(&metrics.acked),
        };
        Facts {
            node: shared.cluster.node(),
            amqp: shared.amqp.get().copied(),
            amqps: shared.amqps.get().copied(),
            http: shared.http.get().copied(),
            https: shared.https.get().copied(),
            uptime_ms: u64::try_from(shared.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            certificate_expires_s: shared.tls.as_ref().map(|tls| tls.expires_s()),
            now_s: i64::try_from(now_ms() / 1000).unwrap_or(i64::MAX),
            alarms: shared.cluster.alarms(),
            resources: shared.cluster.resources(),
            cluster: shared.cluster.identity().cluster,
            processors: shared.processors,
            zone: shared.zone.get().cloned(),
            totals,
        }
    }
}

/// Since 1970.
pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
