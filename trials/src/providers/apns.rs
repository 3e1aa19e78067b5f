//! APNs, as its documents describe it: HTTP/2 under TLS, provider tokens or client certificates, its reasons, its
//! stream limits, and its faults on demand.

mod authentication;
pub mod command;
mod connection;
mod frames;
mod judge;
pub mod load;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use authentication::{ISSUER, KEY_ID, Keys};

use super::authority::Authority;

/// How the server is set.
#[derive(Clone, Debug)]
pub struct Options {
    /// 0: any that is free.
    pub port: u16,
    /// How long an answer takes.
    pub latency: Duration,
    /// MAX_CONCURRENT_STREAMS.
    pub streams_max: u32,
    /// A connection begins with one stream, and has all of them after its first accepted push.
    pub is_slow_start: bool,
    /// A refused device token throttles its connection to one stream, until a push is accepted.
    pub throttles: bool,
    /// Provider tokens that replace one within 20 minutes are refused.
    pub counts_updates: bool,
    /// A client certificate is asked for, and no provider token.
    pub wants_certificate: bool,
    /// Every push is written down, and every frame is watched. Not for benchmarks.
    pub records: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            port: 0,
            latency: Duration::ZERO,
            streams_max: 1000,
            is_slow_start: false,
            throttles: false,
            counts_updates: false,
            wants_certificate: false,
            records: true,
        }
    }
}

/// What is done with a push, other than by the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Reason {
        status: u16,
        reason: &'static str,
        timestamp: Option<u64>,
    },
    /// RST_STREAM with this code.
    Reset(u32),
    /// No answer, ever.
    Silence,
    /// GOAWAY: this push and later ones were not looked at. Earlier ones are answered, then the connection closes.
    GoAwayBefore,
    /// GOAWAY: this push was looked at; the connection closes without any answer.
    GoAwayAfter,
    /// The connection breaks without a word.
    Break,
}

/// A push, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub connection: u64,
    pub device_token: String,
    pub headers: BTreeMap<String, String>,
    pub payload: String,
    /// What was answered: a status and a reason, or what was done instead.
    pub answer: String,
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Counts {
    pub accepted: AtomicU64,
    pub refused: AtomicU64,
    pub connections: AtomicU64,
    pub connections_closed: AtomicU64,
    /// Streams that were opened over the limit that the client had acknowledged.
    pub over_limit: AtomicU64,
    /// Most streams at a time on one connection. Only with `records`.
    pub streams_seen_max: AtomicU64,
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) counts: Counts,
    pub(crate) keys: Keys,
    /// By the beginning of a device token; how often yet.
    orders: Mutex<Vec<(String, Reply, u32)>>,
    received: Mutex<Vec<Received>>,
    /// The provider token that was seen last, and when it was made.
    pub(crate) provider_token: Mutex<Option<(u64, String)>>,
    latency_ms: AtomicU64,
    /// Seconds by which this server's clock is ahead.
    clock_ahead: AtomicU64,
    limit: Mutex<Option<u32>>,
}

/// A server that runs until it is dropped.
pub struct Server {
    pub address: SocketAddr,
    pub authority: Arc<Authority>,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Begins to listen.
    ///
    /// # Errors
    /// The port is taken.
    pub async fn start(options: Options) -> io::Result<Self> {
        let authority = Arc::new(Authority::new());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).await?;
        let address = listener.local_addr()?;
        let tls = authority.server(&[b"h2"], options.wants_certificate);
        let shared = Arc::new(Shared::new(options));
        let mut tasks = JoinSet::new();
        tasks.spawn(connection::accept(listener, tls, Arc::clone(&shared)));
        Ok(Self { address, authority, shared, _tasks: tasks })
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    /// Pushes to device tokens that begin so are treated like this, that often.
    pub fn order(&self, beginning: &str, reply: Reply, times: u32) {
        lock(&self.shared.orders).push((beginning.to_owned(), reply, times));
    }

    /// What came, in the order of its answers.
    pub fn received(&self) -> Vec<Received> {
        lock(&self.shared.received).clone()
    }

    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    pub fn keys(&self) -> &Keys {
        &self.shared.keys
    }

    /// How long answers take from now on.
    pub fn set_latency(&self, latency: Duration) {
        self.shared.latency_ms.store(latency.as_millis() as u64, Ordering::Relaxed);
    }

    /// How far this server's clock is ahead.
    pub fn set_clock_ahead(&self, ahead: Duration) {
        self.shared.clock_ahead.store(ahead.as_secs(), Ordering::Relaxed);
    }

    /// MAX_CONCURRENT_STREAMS of every connection, at its next push. Not over that of the options.
    pub fn set_limit(&self, limit: u32) {
        *lock(&self.shared.limit) = Some(limit);
    }
}

impl Shared {
    fn new(options: Options) -> Self {
        Self {
            latency_ms: AtomicU64::new(options.latency.as_millis() as u64),
            options,
            counts: Counts::default(),
            keys: Keys::new(),
            orders: Mutex::default(),
            received: Mutex::default(),
            provider_token: Mutex::default(),
            clock_ahead: AtomicU64::new(0),
            limit: Mutex::default(),
        }
    }

    /// Seconds since 1970 by this server's clock.
    pub(crate) fn now(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_secs() + self.clock_ahead.load(Ordering::Relaxed)
    }

    pub(crate) fn latency(&self) -> Duration {
        Duration::from_millis(self.latency_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn limit(&self) -> Option<u32> {
        if self.options.records { *lock(&self.limit) } else { None }
    }

    pub(crate) fn write_down(&self, received: Received) {
        lock(&self.received).push(received);
    }

    /// What was ordered for a device token.
    pub(crate) fn ordered(&self, device_token: &str) -> Option<Reply> {
        let mut orders = lock(&self.orders);
        let fits = |(beginning, _, times): &&mut (String, Reply, u32)| {
            *times > 0 && device_token.starts_with(beginning.as_str())
        };
        let (_, reply, times) = orders.iter_mut().find(fits)?;
        *times -= 1;
        Some(reply.clone())
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
