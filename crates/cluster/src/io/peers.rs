//! The other nodes: connections to them, on a thread of their own.
//!
//! One data connection per pair of nodes, which the node with the greater id makes; it carries both
//! directions in order. Nothing here knows what the messages mean, but for what may overtake bodies.
//! Elections hang on this thread, so nothing else runs on it.

mod bulk;
mod greet;
mod join;
mod line;
mod link;
mod listener;
mod member;
mod outbox;
mod questions;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::{BTreeMap, BTreeSet};
#[cfg(test)]
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use machine::{NodeId, Version};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

pub use bulk::{Bulk, BulkBroken};
pub use join::Admission;
pub(super) use join::ask;
pub(super) use line::draw;
pub use questions::{NotTold, Question, Reply};
pub(super) use tls::Tls;

use self::bulk::Throttle;
use self::line::{Broken, Line};
use self::member::Member;
use self::questions::Questions;
use super::mailbox::Mailbox;
use crate::exchange::Input;
use crate::peer::handshake::{Acquaintance, Hello, PROTOCOLS, Purpose, Refusal, Secret, judge};
use crate::peer::message::Message;

/// Bytes of snapshots that a node sends in a second, where nothing else is configured.
pub const BULK_BYTES_PER_SECOND: u64 = 100_000_000;

/// What the thread may be asked before it comes to it: all nodes, out and in again, and more.
const ORDERS_MAX: usize = 256;

const _: () = assert!(ORDERS_MAX > 3 * machine::limits::NODES_MAX);

/// Nodes that may wait to be taken in.
const ADMISSIONS_MAX: usize = 4;

/// The same kind of refusal is not told again for so long.
const QUIET: Duration = Duration::from_secs(60);

/// How to reach the others.
pub(crate) struct Config {
    pub(crate) node: NodeId,
    pub(crate) cluster: u128,
    pub(crate) incarnation: u64,
    pub(crate) boot: u64,
    pub(crate) last_boot: u64,
    pub(crate) speaks: Version,
    pub(crate) secret: Secret,
    /// Address and port to listen on.
    pub(crate) listen: String,
    /// Where the others are told to find this node. `None`: they know.
    pub(crate) advertised: Option<String>,
    pub(crate) members: Vec<Address>,
    /// How the cluster began: for those who join.
    pub(crate) founding: (u32, Vec<(NodeId, String)>),
    pub(crate) bulk_bytes_per_second: u64,
    pub(super) tls: Option<Tls>,
    /// Keeps what is known of the members beyond the next start.
    pub(crate) remember: Remember,
}

/// The callback that stores what is known of all members, whenever there is something new.
pub(crate) type Remember = Box<dyn Fn(&[Address]) + Send>;

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub node: NodeId,
    /// `HOST:PORT` of its peer port.
    pub address: String,
    /// That of its data directory; `None`: whatever it comes with at first.
    pub incarnation: Option<u64>,
    /// The latest of its starts that is known; 0: none.
    pub boot: u64,
    /// The newest stamp of its directory that is known: at least that of the start.
    pub stamp: u64,
}

/// How it stands with another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    pub node: NodeId,
    pub address: String,
    /// Its last start that is known, in milliseconds since 1970 by its own clock; 0: none.
    pub boot: u64,
    pub is_up: bool,
    /// The newest version that it reads, if it can be reached.
    pub speaks: Option<Version>,
    /// Why there is no connection, as far as is known.
    pub trouble: Option<String>,
    /// Bytes that wait to be sent.
    pub queued_bytes: usize,
}

/// Totals since the node started.
#[derive(Debug, Default)]
pub struct PeerCounters {
    /// Data connections made, in either direction.
    pub connections: AtomicU64,
    /// Connections to the peer port.
    pub accepted: AtomicU64,
    /// Those that did not prove to come from a member.
    pub refused: AtomicU64,
    /// Those for which there was no room.
    pub turned_away: AtomicU64,
    /// Messages of Raft that were not from who sent them, or not for this node.
    pub misdirected: AtomicU64,
    /// Messages that were not sent, for want of a connection or of room.
    pub dropped: AtomicU64,
    pub bytes_in: AtomicU64,
    pub bytes_out: AtomicU64,
}

/// The connections to all other nodes.
pub struct Peers {
    shared: Arc<Shared>,
    orders: mpsc::Sender<Order>,
    thread: Mutex<Option<JoinHandle<()>>>,
    #[cfg(test)]
    local: SocketAddr,
    advertised: Option<String>,
    /// Until somebody takes them.
    admitted: Mutex<Option<mpsc::Receiver<Admission>>>,
}

/// What the thread is asked for.
enum Order {
    Keep(Arc<Member>, mpsc::Receiver<(Line, Hello)>),
    Drop(NodeId),
    Bulk(std::pin::Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// What all tasks need.
struct Shared {
    /// As we introduce ourselves, but for purpose and nonce.
    hello: Hello,
    secret: Secret,
    shards: Vec<Arc<Mailbox<Input>>>,
    members: RwLock<BTreeMap<NodeId, Arc<Member>>>,
    counters: PeerCounters,
    founding: (u32, Vec<(NodeId, String)>),
    admissions: mpsc::Sender<Admission>,
    throttle: Throttle,
    tls: Option<Tls>,
    /// Stores what is known of the members. Locked during a call, so that the last call has the newest facts.
    remember: Mutex<Remember>,
    /// Whether `remember` is to be called because a member has renewed its stamp.
    has_news: AtomicBool,
    /// The thread that calls `remember` and waits for new versions.
    keeper: OnceLock<Thread>,
    warned: Mutex<Option<Instant>>,
    stopping: Notify,
    /// Numbers of nodes that were removed.
    retired: RwLock<BTreeSet<NodeId>>,
    /// The version that the cluster has agreed on.
    agreed: AtomicU16,
    questions: Questions,
    /// Why this node is of the cluster no longer.
    expelled: watch::Sender<Option<String>>,
}

impl Peers {
    /// Listens, and connects to all members. What comes from them goes to `shards`.
    pub(crate) fn start(config: Config, shards: Vec<Arc<Mailbox<Input>>>) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("the thread of the peer port cannot start: {error}"))?;
        let listen = &config.listen;
        let listener = runtime.block_on(TcpListener::bind(listen)).map_err(|error| {
            format!(
                "the peer port cannot listen on {listen}: {error}; choose another address with \
                 --peer-listen ADDR:PORT"
            )
        })?;
        let local = listener.local_addr().map_err(|error| error.to_string())?;
        tracing::info!("listening for other nodes on {local}");
        let hello = Hello {
            protocols: (PROTOCOLS.0, config.speaks.0),
            cluster: config.cluster,
            node: config.node,
            incarnation: config.incarnation,
            boot: config.boot,
            last_boot: config.last_boot,
            purpose: Purpose::Data,
            nonce: Default::default(),
        };
        let (admissions, admitted) = mpsc::channel(ADMISSIONS_MAX);
        let shared = Arc::new(Shared {
            hello,
            secret: config.secret,
            shards,
            members: RwLock::default(),
            counters: PeerCounters::default(),
            founding: config.founding,
            admissions,
            throttle: Throttle::new(config.bulk_bytes_per_second),
            tls: config.tls,
            remember: Mutex::new(config.remember),
            has_news: AtomicBool::new(false),
            keeper: OnceLock::new(),
            warned: Mutex::new(None),
            stopping: Notify::new(),
            retired: RwLock::default(),
            agreed: AtomicU16::new(Version::FIRST.0),
            questions: Questions::default(),
            expelled: watch::Sender::new(None),
        });
        let (orders, taken) = mpsc::channel(ORDERS_MAX);
        let advertised = config.advertised;
        let peers = Self {
            shared: Arc::clone(&shared),
            orders,
            thread: Mutex::new(None),
            #[cfg(test)]
            local,
            advertised,
            admitted: Mutex::new(Some(admitted)),
        };
        // Before anybody is let in: members are not to be taken for strangers.
        peers.set_members(&config.members);
        let thread = super::threads::spawn("peers".to_owned(), move || {
            runtime.block_on(serve(listener, shared, taken));
        });
        *peers.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(peers)
    }

    /// Sends `messages`, in order, if there is a connection. Never waits: what the connection does not
    /// take in time closes it.
    pub(crate) fn send(&self, to: NodeId, messages: Vec<Message>) {
        let count = messages.len();
        let dropped = match self.shared.members().get(&to) {
            Some(member) => member.outbox.push(messages),
            None => count,
        };
        if dropped > 0 {
            self.shared.counters.dropped.fetch_add(dropped as u64, Ordering::Relaxed);
        }
    }

    /// Sends a message to every node that is connected.
    pub(crate) fn send_to_all(&self, message: impl Fn() -> Message) {
        for member in self.shared.members().values().filter(|member| member.is_up()) {
            // One that is not connected any more is told the next.
            member.outbox.push(vec![message()]);
        }
    }

    /// A thread that is woken whenever there are news to keep, or the cluster agrees on a version. It is to look for
    /// both once behind this call.
    pub(crate) fn wake_for_news(&self, keeper: Thread) {
        let is_first = self.shared.keeper.set(keeper).is_ok();
        assert!(is_first, "one thread keeps the news");
    }

    pub(crate) fn has_news(&self) -> bool {
        self.shared.has_news.load(Ordering::Relaxed)
    }

    /// Keeps what members have told of their stamps, if there is anything new. Waits for the disk.
    pub(crate) fn keep_news(&self) {
        if self.shared.has_news.swap(false, Ordering::Relaxed) {
            self.shared.keep_known();
        }
    }

    /// A connection for a snapshot. `None`: no such member.
    pub(crate) fn open_bulk(&self, to: NodeId) -> Option<Bulk> {
        let member = self.shared.members().get(&to).cloned()?;
        let (bulk, task) = bulk::open(member, Arc::clone(&self.shared));
        // A thread that has stopped drops the task, and the handle says that it is broken.
        let _ = self.orders.blocking_send(Order::Bulk(Box::pin(task)));
        Some(bulk)
    }

    /// Number of the connection to a node, another for each. `None`: there is none now.
    pub(crate) fn connection(&self, to: NodeId) -> Option<u64> {
        self.shared.members().get(&to)?.connection()
    }

    /// These are the other nodes from now on; this node itself is passed over.
    pub(crate) fn set_members(&self, addresses: &[Address]) {
        let mut members = self.shared.members.write().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<NodeId> = members
            .keys()
            .filter(|node| addresses.iter().all(|address| address.node != **node))
            .copied()
            .collect();
        for node in gone {
            members.remove(&node);
            let _ = self.orders.blocking_send(Order::Drop(node));
        }
        for Address { node, address, incarnation, boot, stamp } in addresses {
            if *node == self.shared.hello.node {
                continue;
            }
            if let Some(member) = members.get(node) {
                member.set_address(address);
                member.learn(*incarnation, *boot);
                continue;
            }
            let (calls, receiver) = mpsc::channel(1);
            let stamp = *stamp.max(boot);
            let known = Acquaintance { incarnation: *incarnation, boot: *boot, stamp };
            let member = Arc::new(Member::new(*node, address.clone(), known, calls));
            members.insert(*node, Arc::clone(&member));
            let _ = self.orders.blocking_send(Order::Keep(member, receiver));
        }
        drop(members);
        self.shared.keep_known();
    }

    /// The nodes that are talked to, or tried.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.shared.members().values().map(|member| member.to_address()).collect()
    }

    pub(crate) fn set_agreed(&self, agreed: Version) {
        if self.shared.agreed.swap(agreed.0, Ordering::Relaxed) != agreed.0 {
            self.shared.wake_keeper();
        }
    }

    /// The version that the cluster has agreed on, as far as this node knows.
    pub(crate) fn agreed(&self) -> Version {
        Version(self.shared.agreed.load(Ordering::Relaxed))
    }

    /// These were members, and are not any more.
    pub(crate) fn set_retired(&self, nodes: BTreeSet<NodeId>) {
        *self.shared.retired.write().unwrap_or_else(PoisonError::into_inner) = nodes;
    }

    /// The number of this node's start.
    pub(crate) fn boot(&self) -> u64 {
        self.shared.hello.boot
    }

    /// This node is of the cluster no longer.
    pub(crate) fn expel(&self, why: String) {
        self.shared.expel(why);
    }

    /// Says why this node is of the cluster no longer, once that is so.
    pub(crate) fn expelled(&self) -> watch::Receiver<Option<String>> {
        self.shared.expelled.subscribe()
    }

    pub(crate) fn status(&self) -> Vec<PeerStatus> {
        let status = |member: &Arc<Member>| PeerStatus {
            node: member.node,
            address: member.address(),
            boot: member.known().boot,
            is_up: member.is_up(),
            speaks: member.speaks(),
            trouble: member.trouble(),
            queued_bytes: member.outbox.bytes(),
        };
        self.shared.members().values().map(status).collect()
    }

    pub(crate) fn counters(&self) -> &PeerCounters {
        &self.shared.counters
    }

    /// Where the others are told to find this node. `None`: they know.
    pub(crate) fn advertised(&self) -> Option<&str> {
        self.advertised.as_deref()
    }

    /// Where nodes that want to join come in. Can be taken once.
    pub(crate) fn admissions(&self) -> Option<mpsc::Receiver<Admission>> {
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Asks a node, and waits for its whole answer.
    pub(crate) async fn ask(
        &self,
        node: NodeId,
        body: Bytes,
        wait: Duration,
    ) -> Result<Vec<u8>, NotTold> {
        self.shared.ask(node, body, wait).await
    }

    /// Where questions of other nodes come in. Can be taken once.
    pub(crate) fn questions(&self) -> Option<mpsc::Receiver<Question>> {
        self.shared.questions.take()
    }

    /// Where the peer port listens.
    #[cfg(test)]
    fn local(&self) -> SocketAddr {
        self.local
    }

    /// Closes every connection; the shards hear that all nodes are gone.
    pub(crate) fn stop(&self) {
        self.shared.stopping.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.join().expect("a thread that panics ends the process");
        }
    }
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Peers of node {}", self.shared.hello.node.0)
    }
}

/// What the thread does.
async fn serve(listener: TcpListener, shared: Arc<Shared>, mut orders: mpsc::Receiver<Order>) {
    let mut tasks = JoinSet::new();
    let mut keepers: BTreeMap<NodeId, AbortHandle> = BTreeMap::new();
    tasks.spawn(listener::run(listener, Arc::clone(&shared)));
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Keep(member, calls)) => {
                    let (node, shared) = (member.node, Arc::clone(&shared));
                    let keeper = tasks.spawn(async move { member.keep(&shared, calls).await });
                    keepers.insert(node, keeper);
                }
                Some(Order::Drop(node)) => {
                    if let Some(keeper) = keepers.remove(&node) {
                        keeper.abort();
                    }
                }
                Some(Order::Bulk(task)) => drop(tasks.spawn(task)),
                None => break,
            },
            () = shared.stopping.notified() => break,
            Some(ended) = tasks.join_next() => {
                if let Err(error) = ended && error.is_panic() {
                    std::panic::resume_unwind(error.into_panic());
                }
            }
        }
    }
    tasks.shutdown().await;
}

impl Shared {
    fn members(&self) -> RwLockReadGuard<'_, BTreeMap<NodeId, Arc<Member>>> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A socket that we dialed, as bytes go through it.
    async fn dialed(&self, stream: TcpStream, address: &str) -> Result<Line, Broken> {
        join::line(stream, address, self.tls.as_ref()).await
    }

    /// A socket that was accepted, as bytes go through it.
    async fn accepted(&self, stream: TcpStream) -> Result<Line, Broken> {
        let socket = match &self.tls {
            Some(tls) => tls.accept(stream).await?,
            None => Box::new(stream),
        };
        Ok(Line { socket, read: BytesMut::new(), protocol: PROTOCOLS.0 })
    }

    fn notify_shards(&self, input: impl Fn() -> Input) {
        for shard in &self.shards {
            shard.push(input());
        }
    }

    /// Whether whoever connected is talked to.
    fn judge(&self, ours: &Hello, theirs: &Hello) -> Result<(), Refusal> {
        let node = theirs.node;
        let (speaks, agreed) = (theirs.speaks(), Version(self.agreed.load(Ordering::Relaxed)));
        if theirs.cluster == ours.cluster && speaks < agreed {
            return Err(Refusal::Outdated { node, speaks, agreed });
        }
        let member = self.members().get(&node).cloned();
        let known = member.as_ref().map(|member| member.known());
        match judge(ours, known, theirs) {
            Err(Refusal::UnknownNode { node }) if self.is_retired(node) => {
                Err(Refusal::Removed { node })
            }
            Ok(()) if matches!(theirs.purpose, Purpose::Data | Purpose::Bulk) => {
                // A connection ends with its process: while it is there, the process is.
                let is_twin =
                    |member: Arc<Member>| member.is_up() && member.known().boot != theirs.boot;
                match member.is_some_and(is_twin) {
                    true => Err(Refusal::Twin { node }),
                    false => Ok(()),
                }
            }
            verdict => verdict,
        }
    }

    fn is_retired(&self, node: NodeId) -> bool {
        self.retired.read().unwrap_or_else(PoisonError::into_inner).contains(&node)
    }

    /// Takes note if a member says that this node is of the cluster no longer.
    fn note_expulsion<T>(&self, greeted: Result<T, Broken>) -> Result<T, Broken> {
        if let Err(Broken::Expelled(why)) = &greeted {
            self.expel(why.clone());
        }
        greeted
    }

    fn expel(&self, why: String) {
        self.expelled.send_if_modified(|told| {
            let is_news = told.is_none();
            told.get_or_insert(why);
            is_news
        });
    }

    /// What a member said of itself holds from now on.
    fn remember(&self, member: &Member, hello: &Hello) {
        let known = member.known().met(hello);
        let is_new = member.known() != known;
        member.set_known(known);
        if is_new {
            self.keep_known();
        }
    }

    /// A member says what its directory has now. It is kept when somebody has the time for it.
    fn note_stamp(&self, node: NodeId, boot: u64, stamp: u64) {
        let member = self.members().get(&node).cloned();
        if member.is_some_and(|member| member.note_stamp(boot, stamp)) {
            self.has_news.store(true, Ordering::Relaxed);
            self.wake_keeper();
        }
    }

    /// Wakes the thread that stores stamps. If it does not run yet, it looks for news before it first sleeps.
    fn wake_keeper(&self) {
        self.keeper.get().into_iter().for_each(Thread::unpark);
    }

    fn keep_known(&self) {
        let remember = self.remember.lock().unwrap_or_else(PoisonError::into_inner);
        let members: Vec<_> = self.members().values().map(|member| member.to_address()).collect();
        remember(&members);
    }

    /// One line a minute about strangers; the counters have them all.
    fn warn_of_stranger(&self, text: &str) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|when| when.elapsed() >= QUIET) {
            *warned = Some(Instant::now());
            tracing::warn!("{text}");
        }
    }
}
