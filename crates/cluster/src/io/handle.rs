//! What the rest of the node holds of the cluster.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use machine::{Catalog, Event, GroupId, Happened, NodeId, NodeInfo, SessionId, Version};
use tokio::sync::watch;
use wal::Identity;

use super::backup::{ASK_AGAIN, CutGroup, Cuts};
use super::dead_letters::Hold;
use super::events::Events;
use super::mailbox::{AnswerBox, Mailbox};
use super::peers::{Admission, NotTold, PeerCounters, PeerStatus, Peers, Question};
use super::reports::Reports;
use super::sessions::Sessions;
use super::store::Store;
use super::tallies::Tallies;
use crate::counted::Counted;
use crate::described::Resources;
use crate::exchange::{Input, NotCut};
use crate::histogram::Times;
use crate::request::{Alarms, Answer, Request};
use crate::shard::{Elsewhere, ForShard, GroupReport, Report, Shard};

/// A node's groups, for those who ask something of them. Cheap to clone.
#[derive(Clone)]
pub struct ClusterHandle {
    pub(crate) node: Arc<Node>,
    pub(crate) store: Arc<Store>,
}

impl std::fmt::Debug for ClusterHandle {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "ClusterHandle of {}", self.node.identity)
    }
}

/// What all parts of a running node share.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) identity: Identity,
    /// The newest version that this node reads and writes.
    pub(crate) speaks: Version,
    pub(crate) reports: Reports,
    pub(crate) tallies: Tallies,
    /// Groups that backups read.
    pub(crate) cuts: Cuts,
    pub(crate) hold: Hold,
    pub(crate) shards: Vec<Arc<Mailbox<Input>>>,
    /// The connections to the other nodes, if there may be any.
    pub(crate) peers: Option<Peers>,
    pub(crate) catalog: RwLock<Catalog>,
    /// Locked after the catalog.
    pub(crate) counted: RwLock<Counted>,
    pub(crate) sessions: Sessions,
    /// On their way to the exchange of events.
    pub(crate) events: Events,
    pub(crate) counters: Counters,
    alarms: AtomicU8,
    /// Who lacks room on the disk; see [`Short`].
    short: AtomicU8,
    /// What the alarms saw last.
    resources: Mutex<Resources>,
    next_session: AtomicU64,
    pub(crate) is_stopping: AtomicBool,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Who lacks room on the disk, whatever the file system says is free.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Short {
    Log = 1,
    Segments = 2,
}

/// How long the shards may take to say how they stand.
const REPORT: Duration = Duration::from_secs(2);

/// How often is looked whether a thread that is to stop has.
const STOP_GLANCE: Duration = Duration::from_millis(1);

/// How a node sees its cluster.
#[derive(Clone, Debug)]
pub struct Status {
    /// Whose data directory it is.
    pub identity: Identity,
    /// Where the other nodes are told to find this one; empty: nowhere.
    pub address: String,
    /// Without this node.
    pub peers: Vec<PeerStatus>,
    /// Of which this node has a replica.
    pub groups: Vec<GroupReport>,
    /// Of which it has none.
    pub elsewhere: Vec<Elsewhere>,
}

/// Totals since the node started.
#[derive(Debug, Default)]
pub struct Counters {
    /// Syncs of the log.
    pub syncs: AtomicU64,
    /// Bytes written to the log.
    pub log_bytes: AtomicU64,
    /// Entries written to the log.
    pub entries: AtomicU64,
    /// Microseconds spent in syncs.
    pub sync_micros: AtomicU64,
    /// How long syncs took.
    pub sync_times: Times,
    /// Messages copied from the log to segments.
    pub segment_messages: AtomicU64,
    /// Checkpoints that were refused because they are larger than a checkpoint may be.
    pub checkpoints_refused: AtomicU64,
    /// Reads for deliveries whose bytes were not in memory.
    pub fetches: AtomicU64,
    /// Events that were not published, because too many waited or no group took them.
    pub events_dropped: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

impl Node {
    pub(crate) fn new(
        identity: Identity,
        speaks: Version,
        shards: Vec<Arc<Mailbox<Input>>>,
        peers: Option<Peers>,
        catalog: Catalog,
    ) -> Self {
        let id = NodeId(identity.node);
        Self {
            id,
            identity,
            speaks,
            reports: Reports::new(shards.len()),
            tallies: Tallies::new(shards.len()),
            cuts: Cuts::default(),
            hold: Hold::default(),
            counted: RwLock::new(Counted::new(shards.len())),
            shards,
            peers,
            catalog: RwLock::new(catalog),
            sessions: Sessions::default(),
            events: Events::default(),
            counters: Counters::default(),
            alarms: AtomicU8::new(0),
            short: AtomicU8::new(0),
            resources: Mutex::default(),
            next_session: AtomicU64::new(Shard::first_session(id).0),
            is_stopping: AtomicBool::new(false),
            threads: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn shard_of(&self, group: GroupId) -> &Mailbox<Input> {
        &self.shards[Shard::of(group, self.shards.len())]
    }

    /// Raises and clears alarms; sessions hear of a change.
    pub(crate) fn set_alarms(&self, alarms: Alarms) {
        let bits = u8::from(alarms.memory) | u8::from(alarms.disk) << 1;
        let before = self.alarms.swap(bits, Ordering::Relaxed);
        if before != bits {
            self.sessions.send_to_all(|| Answer::Alarms(alarms));
            self.tell_alarms(before, bits);
        }
    }

    /// Has an event published, if there is room for it.
    pub(crate) fn tell_event(&self, event: Happened) {
        if !self.events.push(event) {
            Counters::add(&self.counters.events_dropped, 1);
        }
    }

    /// Alarms that were raised or cleared are events.
    fn tell_alarms(&self, before: u8, now: u8) {
        let listens = self.catalog.read().unwrap_or_else(PoisonError::into_inner).has_listeners();
        for (bit, source) in [(1, "memory"), (2, "disk")].into_iter().filter(|_| listens) {
            let name = match (before & bit, now & bit) {
                (0, 0) => continue,
                (0, _) => "alarm.set",
                (_, 0) => "alarm.cleared",
                _ => continue,
            };
            let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let at_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
            let event = Event::new(name, "", source);
            self.tell_event(Happened { at_ms, by: None, event });
        }
    }

    /// Notes whether somebody lacks room: publishers wait as long as that lasts.
    pub(crate) fn set_short(&self, who: Short, is_short: bool) {
        let bit = who as u8;
        match is_short {
            true => self.short.fetch_or(bit, Ordering::Relaxed),
            false => self.short.fetch_and(!bit, Ordering::Relaxed),
        };
        if is_short {
            // At once: what comes until the next look must fit, too.
            self.set_alarms(Alarms { disk: true, ..self.alarms() });
        }
    }

    pub(crate) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed) != 0
    }

    /// Notes what the node has.
    pub(super) fn set_resources(&self, resources: Resources) {
        *self.resources.lock().unwrap_or_else(PoisonError::into_inner) = resources;
    }

    pub(super) fn resources(&self) -> Resources {
        *self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    fn alarms(&self) -> Alarms {
        let bits = self.alarms.load(Ordering::Relaxed);
        Alarms { memory: bits & 1 != 0, disk: bits & 2 != 0 }
    }
}

impl ClusterHandle {
    /// A new session, and where its answers come in. Dropping the receiver ends the session.
    pub fn open_session(&self) -> (SessionId, AnswerReceiver) {
        let session = SessionId(self.node.next_session.fetch_add(1, Ordering::Relaxed));
        let answers = self.node.sessions.open(session);
        (session, AnswerReceiver { session, answers, node: Arc::clone(&self.node) })
    }

    /// The session of this node's dead-letter worker, and where it is told what leaves the queues that this node
    /// leads (`Answer::Leaving`). There is one at a time; dropping the receiver ends it.
    pub fn open_dead_letter_worker(&self) -> (SessionId, AnswerReceiver) {
        let session = Shard::dead_letter_worker(self.node.id);
        let answers = self.node.sessions.open(session);
        for shard in &self.node.shards {
            shard.push(Input::DeadLetterWorkerOpened);
        }
        (session, AnswerReceiver { session, answers, node: Arc::clone(&self.node) })
    }

    /// Has an event published, if there is room for it. To be told only if [`machine::Catalog::has_listeners`].
    pub fn tell_event(&self, event: Happened) {
        self.node.tell_event(event);
    }

    /// Waits for events, and gives so many at most. For the one task of the node that publishes them.
    pub async fn next_events(&self, most: usize) -> Vec<Happened> {
        self.node.events.next(most).await
    }

    /// Counts events that were not published.
    pub fn drop_events(&self, count: u64) {
        Counters::add(&self.node.counters.events_dropped, count);
    }

    /// Returns when the node's groups can serve: at once where it is alone, and with a majority of the
    /// nodes elsewhere. Blocks.
    pub fn wait_ready(&self) {
        self.store.wait_reconciled(self.node.shards.len());
    }

    /// Waits until this node is of its cluster no longer: it was removed, or its data directory is a copy. Says
    /// what to do. A node that has no cluster waits for ever.
    pub async fn expelled(&self) -> String {
        let Some(mut expelled) = self.node.peers.as_ref().map(Peers::expelled) else {
            return std::future::pending().await;
        };
        loop {
            if let Some(why) = expelled.borrow_and_update().clone() {
                return why;
            }
            if expelled.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Hands over `requests`, in order; waits while a shard has too much before it. `false`: the
    /// node is stopping.
    pub async fn submit(&self, session: SessionId, requests: &mut Vec<Request>) -> bool {
        let node = &self.node;
        if let [shard] = &node.shards[..] {
            let requests = std::mem::take(requests);
            let weight = requests.iter().map(Request::weight).sum();
            return shard.send(Input::Requests { session, requests }, weight).await;
        }
        let mut is_open = true;
        let parts = Shard::divide(session, requests.drain(..), node.shards.len());
        for (shard, ForShard { requests, goodbye }) in node.shards.iter().zip(parts) {
            if let Some((requests, weight)) = requests {
                is_open &= shard.send(requests, weight).await;
            }
            if let Some(goodbye) = goodbye {
                shard.push(goodbye);
            }
        }
        is_open
    }

    /// The newest version that this node reads and writes.
    pub fn speaks(&self) -> Version {
        self.node.speaks
    }

    /// This node's applied copy of the catalog. Held only while something is looked up.
    pub fn catalog(&self) -> RwLockReadGuard<'_, Catalog> {
        self.node.catalog.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why publishers have to wait now, if they do.
    pub fn alarms(&self) -> Alarms {
        self.node.alarms()
    }

    /// Whose data directory it is.
    pub fn identity(&self) -> Identity {
        self.node.identity
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.node.id
    }

    /// How the cluster looks from here. Blocks for as long as the shards take for a step; `None`: one
    /// of them does not come to it.
    pub fn status(&self) -> Option<Status> {
        let Report { groups, elsewhere, .. } = self.node.reports.ask(&self.node.shards, REPORT)?;
        let peers = self.peers();
        let advertised = self.node.peers.as_ref().and_then(Peers::advertised);
        let known = self.catalog().node(self.node.id).map(|known| known.address.clone());
        let address = advertised.map(str::to_owned).or(known).unwrap_or_default();
        Some(Status { identity: self.node.identity, address, peers, groups, elsewhere })
    }

    /// This node's start, in milliseconds since 1970 by its own clock: what other nodes know as [`PeerStatus::boot`].
    /// `None`: the node has no peer port.
    pub fn boot(&self) -> Option<u64> {
        self.node.peers.as_ref().map(Peers::boot)
    }

    /// The other nodes, as far as this one reaches them.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let mut peers = self.node.peers.as_ref().map(Peers::status).unwrap_or_default();
        // One that was removed may still be talked to: it is no member all the same.
        peers.retain(|peer| !self.catalog().is_retired(peer.node));
        peers
    }

    /// This node and its address, if the catalog does not have them yet. `None`: the catalog has them, or this
    /// node has no peer port.
    pub fn unannounced(&self) -> Option<NodeInfo> {
        let advertised = self.node.peers.as_ref()?.advertised();
        let Identity { node, incarnation, .. } = self.node.identity;
        let catalog = self.catalog();
        let known = catalog.node(NodeId(node))?;
        let address = advertised.unwrap_or(&known.address).to_owned();
        let ours = NodeInfo { node: NodeId(node), address, incarnation };
        (*known != ours).then_some(ours)
    }

    /// Totals of the connections to other nodes, if there may be any.
    pub fn peer_counters(&self) -> Option<&PeerCounters> {
        self.node.peers.as_ref().map(Peers::counters)
    }

    /// Where nodes that want to join come in, once. `None`: taken, or there is no peer port.
    pub fn admissions(&self) -> Option<tokio::sync::mpsc::Receiver<Admission>> {
        self.node.peers.as_ref()?.admissions()
    }

    /// Asks another node something that is between the programs that use this crate, and waits for the answer.
    ///
    /// # Errors
    /// It was not answered.
    pub async fn ask_node(
        &self,
        node: NodeId,
        body: Bytes,
        wait: Duration,
    ) -> Result<Vec<u8>, NotTold> {
        match &self.node.peers {
            Some(peers) => peers.ask(node, body, wait).await,
            None => Err(NotTold::Unreachable),
        }
    }

    /// Where questions of other nodes come in, once. `None`: taken, or there is no peer port. While nobody takes them,
    /// they are refused.
    pub fn questions(&self) -> Option<tokio::sync::mpsc::Receiver<Question>> {
        self.node.peers.as_ref()?.questions()
    }

    /// Totals since the node started.
    pub fn counters(&self) -> &Counters {
        &self.node.counters
    }

    /// Open sessions of clients.
    pub fn session_count(&self) -> usize {
        let has_dead_letter_worker =
            self.node.sessions.find(Shard::dead_letter_worker(self.node.id)).is_some();
        self.node.sessions.count() - usize::from(has_dead_letter_worker)
    }

    /// Tells every session that the node is stopping.
    pub fn announce_stop(&self) {
        self.node.is_stopping.store(true, Ordering::Relaxed);
        self.node.sessions.send_to_all(|| Answer::Stopping);
    }

    /// Stops the threads after what was taken so far is synced. Blocks.
    pub fn stop(&self) {
        self.stop_within(Duration::MAX);
    }

    /// The same, but waits no longer than `timeout`. Gives the names of the threads that go on: a
    /// checkpoint takes as long as it takes, and a log on a full disk waits for room. Nothing that was
    /// confirmed needs them: the process may end.
    pub fn stop_within(&self, timeout: Duration) -> Vec<String> {
        self.node.is_stopping.store(true, Ordering::Relaxed);
        for shard in &self.node.shards {
            shard.close();
        }
        let threads = {
            let mut threads = self.node.threads.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *threads)
        };
        // One that sleeps until something is due sees at once that it is to stop.
        threads.iter().for_each(|thread| thread.thread().unpark());
        let begun = Instant::now();
        let mut late = Vec::new();
        for thread in threads {
            while !thread.is_finished() && begun.elapsed() < timeout {
                std::thread::sleep(STOP_GLANCE);
            }
            if thread.is_finished() {
                // A thread that panicked has said so; the others are stopped all the same.
                let _ = thread.join();
            } else {
                late.push(thread.thread().name().unwrap_or("unnamed").to_owned());
            }
        }
        if !late.is_empty() {
            return late;
        }
        if let Some(peers) = &self.node.peers {
            peers.stop();
        }
        self.node.sessions.close_all();
        late
    }
}

/// For backups.
impl ClusterHandle {
    /// Cuts a group that this node leads: with everything that was confirmed before this call. `None`: the node does not
    /// lead it, or not within `time`.
    pub async fn cut(&self, group: GroupId, time: Duration) -> Option<CutGroup> {
        let until = Instant::now() + time;
        loop {
            let (number, made, source) = self.node.cuts.ask();
            self.node.shard_of(group).push(Input::WantCut { group, number });
            let left = until.saturating_duration_since(Instant::now());
            // A checkpoint that is under way may take long: the shard then still has the question, and the next one
            // takes its place.
            match tokio::time::timeout(left.min(ASK_AGAIN), made).await {
                Ok(Ok(Ok((index, term)))) => return Some(CutGroup { group, index, term, source }),
                Ok(Ok(Err(NotCut::NotLeader)) | Err(_)) => {
                    self.node.cuts.give_up(number);
                    return None;
                }
                Err(_) => self.node.cuts.give_up(number),
            }
            if Instant::now() >= until {
                return None;
            }
        }
    }

    /// From now on no dead letter of this node is let go, for so long or until [`ClusterHandle::release_dead_letters`].
    /// False: they are held for another backup.
    pub fn hold_dead_letters(&self, backup: u64, time: Duration) -> bool {
        let now = Instant::now();
        let mut is_ours = true;
        self.node.hold.0.send_modify(|hold| match hold {
            Some((other, until)) if *other != backup && *until > now => is_ours = false,
            _ => *hold = Some((backup, now + time)),
        });
        is_ours
    }

    /// The groups of this backup are cut.
    pub fn release_dead_letters(&self, backup: u64) {
        self.node.hold.0.send_modify(|hold| {
            if hold.is_some_and(|(holder, _)| holder == backup) {
                *hold = None;
            }
        });
    }

    /// Until when dead letters are to be held, whenever that changes.
    pub fn dead_letters_held(&self) -> watch::Receiver<Option<(u64, Instant)>> {
        self.node.hold.0.subscribe()
    }
}

/// Where a session's answers come in.
#[derive(Debug)]
pub struct AnswerReceiver {
    session: SessionId,
    answers: Arc<AnswerBox<Answer>>,
    node: Arc<Node>,
}

impl AnswerReceiver {
    /// Takes everything that waits, waiting for the first. `false`: the node is gone.
    pub async fn recv(&mut self, into: &mut Vec<Answer>) -> bool {
        self.answers.recv(into).await
    }
}

impl Drop for AnswerReceiver {
    fn drop(&mut self) {
        if !self.node.sessions.close(self.session, &self.answers) {
            return;
        }
        for shard in &self.node.shards {
            shard.push(Input::SessionGone { session: self.session });
        }
    }
}
