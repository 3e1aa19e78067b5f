//! Accepts AMQP connections: one task for each. Who is let in, and when, is decided by `door`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cluster::ClusterHandle;
use sha2::{Digest as _, Sha256};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tokio::task::JoinSet;

use super::connection::Connection;
use super::credentials::Credentials;
use super::describe::{Connections, Ear};
use super::places::{Place, Places};
use super::reply_to::Registry;
use crate::config::Config;
use crate::dead_letter::DeadLetterMetrics;
use crate::limits;
use crate::metrics::Metrics;
use crate::notices::Kind;
use crate::session::Session;

/// How long accepting rests when it fails: the usual reason is too many open files.
const ACCEPT_REST: Duration = Duration::from_millis(50);
/// How often a quiet peer's kernel is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// What all AMQP connections of a node and its dead-letter worker share. Whoever runs the node makes it and keeps it:
/// its totals are read there.
#[derive(Debug)]
pub struct Broker {
    pub(crate) cluster: ClusterHandle,
    pub(crate) config: Arc<Config>,
    pub(crate) metrics: Metrics,
    pub(crate) dead_letters: DeadLetterMetrics,
    pub(crate) credentials: Credentials,
    pub(crate) registry: Arc<Registry>,
    /// Tells publishers that wait that there is room for what they have.
    pub(crate) room: Notify,
    /// Places for refused clients that wait.
    pub(crate) lingering: Semaphore,
    /// Chance, drawn once: every session's seed comes of it.
    secret: [u8; 32],
    accepted: AtomicU64,
    pub(crate) places: Places,
    /// Who may be asked what it is doing.
    pub(crate) connections: Arc<Connections>,
}

impl Broker {
    /// Draws 32 bytes of chance and starts the threads that check passwords: call it once, before accepting.
    ///
    /// # Errors
    /// The operating system gave no chance, or no thread.
    pub fn new(cluster: ClusterHandle, config: Config) -> std::io::Result<Arc<Self>> {
        let mut secret = [0; 32];
        let drawn = rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())?;
        if drawn != secret.len() {
            return Err(std::io::Error::other("the operating system gave too little chance"));
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let key = Sha256::new().chain_update(secret).chain_update("credentials").finalize();
        let metrics = Metrics::default();
        let waiting = Arc::clone(&metrics.replies_waiting_bytes);
        let registry = Arc::new(Registry::new(waiting, config.replies_bytes_max));
        Ok(Arc::new(Self {
            cluster,
            places: Places::new(config.connections_max),
            config: Arc::new(config),
            metrics,
            dead_letters: DeadLetterMetrics::default(),
            credentials: Credentials::new(key.into(), cpus)?,
            registry,
            room: Notify::new(),
            lingering: Semaphore::new(limits::REFUSALS_WAITING_MAX),
            secret,
            accepted: AtomicU64::new(0),
            connections: Arc::default(),
        }))
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

    /// Connections that are open now.
    pub fn connection_count(&self) -> usize {
        self.places.open()
    }

    fn seed(&self) -> [u8; 32] {
        let number = self.accepted.fetch_add(1, Ordering::Relaxed);
        let seed = Sha256::new().chain_update(self.secret).chain_update(number.to_le_bytes());
        seed.finalize().into()
    }
}

/// Gives a listener's queue room for an avalanche of clients: those who are not let in yet wait there, and notice
/// nothing but a moment's delay. The kernel keeps 128 of them if nobody asks for more.
///
/// # Errors
/// The operating system refuses.
pub fn deepen_queue(listener: &TcpListener) -> std::io::Result<()> {
    SockRef::from(listener).listen(limits::LISTEN_BACKLOG.into())
}

/// Serves AMQP connections of one listener until `stop` says true; then every client is told so
/// (`connection.close` 320), and those that do not answer in time are dropped.
pub async fn serve(listener: TcpListener, broker: Arc<Broker>, mut stop: watch::Receiver<bool>) {
    if let Err(error) = deepen_queue(&listener) {
        tracing::warn!(%error, "cannot lengthen the queue of new AMQP connections; bursts of clients may wait longer");
    }
    let mut connections = JoinSet::new();
    // Kept from one turn of the loop to the next: a client may be half in.
    let mut newcomer = Box::pin(let_in(&listener, &broker));
    loop {
        let accepted = tokio::select! {
            accepted = &mut newcomer => accepted,
            Some(_) = connections.join_next() => continue,
            changed = stop.changed() => match changed.is_err() || *stop.borrow() {
                true => break,
                false => continue,
            },
        };
        newcomer.set(let_in(&listener, &broker));
        if let Some(newcomer) = accepted {
            connections.spawn(serve_one(newcomer, Arc::clone(&broker), stop.clone()));
        }
    }
    drop(newcomer);
    drop(listener);
    let all_told = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits::STOP_WAIT, all_told).await.is_err() {
        connections.shutdown().await;
    }
}

/// A client that is let in.
struct Newcomer {
    stream: TcpStream,
    peer: SocketAddr,
    place: Place,
    /// Tells it to make way for another.
    go: oneshot::Receiver<()>,
}

/// The next client. None: it was turned away, or could not be accepted.
async fn let_in(listener: &TcpListener, broker: &Arc<Broker>) -> Option<Newcomer> {
    let (stream, peer) = match listener.accept().await {
        Ok(accepted) => accepted,
        Err(error) => {
            if let Some(not_shown) = broker.places.writes(Kind::AcceptFailed) {
                tracing::warn!(%error, not_shown, "cannot accept an AMQP connection, trying again");
            }
            tokio::time::sleep(ACCEPT_REST).await;
            return None;
        }
    };
    Metrics::count(&broker.metrics.connections_opened);
    match Place::take(broker, peer).await {
        Some((place, go)) => Some(Newcomer { stream, peer, place, go }),
        None => {
            Metrics::count(&broker.metrics.connections_closed);
            None
        }
    }
}

async fn serve_one(newcomer: Newcomer, broker: Arc<Broker>, stop: watch::Receiver<bool>) {
    let Newcomer { stream, peer, place, go } = newcomer;
    if let Err(error) = prepare(&stream, &broker.config) {
        tracing::debug!(%peer, %error, "cannot set the options of a client's socket; the connection is closed");
        return;
    }
    let (session_id, answers) = broker.cluster.open_session();
    let config = Arc::clone(&broker.config);
    let (node, seed) = (broker.cluster.node(), broker.seed());
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
    let session = Session::new(config, session_id, node, peer, seed, Instant::now(), wall_ms);
    let ear = Ear::open(&broker.connections, session_id, peer, wall_ms);
    let connection = Connection::new(stream, session, answers, ear, broker);
    let told_to_go = async {
        if go.await.is_err() {
            // It is known, and stays.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        () = connection.run(stop, &place) => {}
        () = told_to_go => {}
    }
    drop(place);
}

fn prepare(stream: &TcpStream, config: &Config) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    // A peer whose machine is gone is found out even if it agreed on no heartbeats.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(config.write_stall.max(KEEPALIVE)))?;
    Ok(())
}
