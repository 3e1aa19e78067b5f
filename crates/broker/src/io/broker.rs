//! What a node's connections and its dead-letter worker share.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use cluster::ClusterHandle;
use machine::{Event, Happened, NodeId, SessionId};
use oauth::io::Tokens;
use otlp::Span;
use otlp::io::Exporter;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Notify, Semaphore};

use super::credentials::Credentials;
use super::describe::Connections;
use super::exchange_meters::ExchangeMeters;
use super::places::Places;
use super::reply_to::Registry;
use super::traces::Traces;
use crate::config::Config;
use crate::dead_letter::DeadLetterMetrics;
use crate::exchange_counts::ExchangeTotals;
use crate::limits;
use crate::logins::Address;
use crate::metrics::Metrics;
use crate::own::Own;
use crate::population::{Census, Full, Newcomer, Population, Quotas};
use crate::session::Judged;

/// What all AMQP connections of a node and its dead-letter worker share. Whoever runs the node makes it and keeps it:
/// its totals are read there.
#[derive(Debug)]
pub struct Broker {
    pub(crate) cluster: ClusterHandle,
    pub(crate) config: Arc<Config>,
    pub(crate) metrics: Metrics,
    pub(crate) dead_letters: DeadLetterMetrics,
    pub(crate) credentials: Credentials,
    /// `None`: tokens are no logins here.
    tokens: Option<Arc<Tokens>>,
    /// `None`: nobody collects spans.
    spans: Option<Arc<Exporter>>,
    pub(crate) registry: Arc<Registry>,
    /// Tells publishers that wait that there is room for what they have.
    pub(crate) room: Notify,
    /// Places for refused clients that wait.
    pub(crate) lingering: Semaphore,
    /// Random bytes, drawn once: the seed of every session is made from them.
    secret: [u8; 32],
    accepted: AtomicU64,
    pub(crate) places: Places,
    /// What limits of users and vhosts are held against.
    pub(crate) population: SharedPopulation,
    /// What passed through traced vhosts, for whoever publishes it.
    pub(super) traces: Traces,
    /// Who may be asked what it is doing.
    pub(crate) connections: Arc<Connections>,
    pub(super) exchanges: ExchangeMeters,
}

/// What a broker asks or tells outside of the cluster.
#[derive(Debug, Default)]
pub struct Outside {
    /// Who judges tokens. `None`: tokens are no logins here.
    pub tokens: Option<Arc<Tokens>>,
    /// Who sends spans to a collector. `None`: nobody collects them.
    pub spans: Option<Arc<Exporter>>,
}

impl Broker {
    /// Draws 32 random bytes and starts the threads that check passwords: call it once, before accepting.
    ///
    /// # Errors
    /// The operating system gave no random bytes, or no thread.
    pub fn new(cluster: ClusterHandle, config: Config) -> std::io::Result<Arc<Self>> {
        Self::with_outside(cluster, config, Outside::default())
    }

    /// The same with what is outside of the cluster.
    ///
    /// # Errors
    /// As [`Broker::new`].
    pub fn with_outside(
        cluster: ClusterHandle,
        config: Config,
        Outside { tokens, spans }: Outside,
    ) -> std::io::Result<Arc<Self>> {
        let config = Config { takes_tokens: tokens.is_some(), ..config };
        let mut secret = [0; 32];
        let drawn = rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())?;
        if drawn != secret.len() {
            return Err(std::io::Error::other("the operating system gave too few random bytes"));
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let key = Sha256::new().chain_update(secret).chain_update("credentials").finalize();
        let count =
            |of: fn(&Exporter) -> Arc<AtomicU64>| spans.as_deref().map(of).unwrap_or_default();
        let metrics = Metrics {
            spans_sent: count(Exporter::sent),
            spans_dropped: count(Exporter::dropped),
            ..Metrics::default()
        };
        let waiting = Arc::clone(&metrics.replies_waiting_bytes);
        let registry = Arc::new(Registry::new(waiting, config.replies_bytes_max));
        Ok(Arc::new(Self {
            cluster,
            places: Places::new(config.connections_max),
            population: SharedPopulation::default(),
            config: Arc::new(config),
            metrics,
            dead_letters: DeadLetterMetrics::default(),
            credentials: Credentials::new(key.into(), cpus)?,
            tokens,
            spans,
            registry,
            room: Notify::new(),
            lingering: Semaphore::new(limits::REFUSALS_WAITING_MAX),
            secret,
            accepted: AtomicU64::new(0),
            traces: Traces::default(),
            exchanges: ExchangeMeters::default(),
            connections: Arc::default(),
        }))
    }

    /// What a token gives, shown by a client from there. An address with many refused logins waits, as with passwords.
    pub(crate) async fn judge(&self, token: &[u8], peer: IpAddr) -> Judged {
        let Some(tokens) = &self.tokens else { return Err(oauth::Refusal::Unreadable) };
        let address = Address::of(peer);
        tokio::time::sleep(self.credentials.wait(address)).await;
        let judged = tokens.judge(token).await;
        if judged.is_err() {
            self.credentials.count_refused(address);
        }
        judged.map(Arc::new)
    }

    /// Who judges tokens.
    pub(crate) fn tokens(&self) -> Option<&Tokens> {
        self.tokens.as_deref()
    }

    /// Bytes that a message may have.
    pub fn message_bytes_max(&self) -> u64 {
        self.config.message_bytes_max
    }

    /// Totals of the connections since the node started.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Totals of the dead-letter worker since the node started.
    pub fn dead_letters(&self) -> &DeadLetterMetrics {
        &self.dead_letters
    }

    /// The open connections, to be asked what they are doing.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// What clients of this node have published since it started: vhost, exchange, and how much. `is_there` says whether
    /// there still is such an exchange.
    pub fn exchange_totals(
        &self,
        is_there: impl Fn(&str, &str) -> bool,
    ) -> Vec<(Arc<str>, Arc<str>, ExchangeTotals)> {
        self.exchanges.totals(is_there)
    }

    /// What users and vhosts have on this node.
    pub fn census(&self) -> Census {
        self.population.lock().census().clone()
    }

    /// What the other nodes have said that users and vhosts have there.
    pub fn told_census(&self, elsewhere: BTreeMap<NodeId, Census>) {
        self.population.lock().told(elsewhere);
    }

    /// Connections that are open now.
    pub fn connection_count(&self) -> usize {
        self.places.open()
    }

    /// Tells the exchange of events, if something is bound to it.
    pub(super) fn tell_event(&self, event: impl FnOnce() -> Event) {
        if self.cluster.catalog().has_listeners() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let at_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
            self.cluster.tell_event(Happened { at_ms, by: None, event: event() });
        }
    }

    /// Hands what passed through a traced vhost to whoever publishes it.
    pub(super) fn tell_traces(&self, traces: impl IntoIterator<Item = Own>) {
        let dropped =
            traces.into_iter().filter_map(|own| (!self.traces.push(own)).then_some(1)).sum();
        self.metrics.traces_dropped.fetch_add(dropped, Ordering::Relaxed);
    }

    /// Whether sessions are to make spans.
    pub(super) fn collects_spans(&self) -> bool {
        self.spans.is_some()
    }

    /// Hands spans to whoever sends them.
    pub(super) fn tell_spans(&self, over: impl IntoIterator<Item = Span>) {
        if let Some(spans) = &self.spans {
            spans.push(over);
        }
    }

    /// Random bytes for the next session.
    pub(super) fn seed(&self) -> [u8; 32] {
        let number = self.accepted.fetch_add(1, Ordering::Relaxed);
        let seed = Sha256::new().chain_update(self.secret).chain_update(number.to_le_bytes());
        seed.finalize().into()
    }
}

/// The node's count behind its lock.
#[derive(Debug, Default)]
pub(crate) struct SharedPopulation(Mutex<Population>);

impl SharedPopulation {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Population> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Quotas for SharedPopulation {
    fn connect(&self, newcomer: Newcomer<'_>) -> Result<(), Full> {
        self.lock().connect(newcomer)
    }

    fn channels_of_others(&self, session: SessionId, user: &str) -> u64 {
        self.lock().channels_of_others(session, user)
    }
}
