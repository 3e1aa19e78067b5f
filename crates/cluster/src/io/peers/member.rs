//! One other node: its address, what is known of it, and the task that keeps the connection to it.
//!
//! ```text
//! away ── dialed (the greater id dials) or called ──> greeting ── both are proved ──> here
//!  ^                                                     │ refused                     │ closed, silent, full
//!  └─────────────────────────────────────────────────────┴─────────────────────────────┘
//! ```
//!
//! `peer::handshake` has the steps of the greeting.
//!
//! Shards hear `PeerUp` and `PeerDown` in turn. A new connection replaces the old one.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use machine::{NodeId, Version};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::greet::GREETING;
use super::line::{Broken, Line, dial, jitter, name};
use super::outbox::Outbox;
use super::{Address, Shared};
use super::{greet, link};
use crate::exchange::Input;
use crate::peer::handshake::{Acquaintance, Hello, Purpose, Refusal};

const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// How long a dialed address may take to answer.
const DIAL: Duration = Duration::from_secs(1);

/// The same trouble is not told again for so long.
const QUIET: Duration = Duration::from_secs(60);

pub(super) struct Member {
    pub(super) node: NodeId,
    address: Mutex<String>,
    pub(super) outbox: Outbox,
    known: Mutex<Acquaintance>,
    is_up: AtomicBool,
    /// The newest version that it read when it was here last.
    speaks: AtomicU16,
    /// How many connections there were, this one too.
    connections: AtomicU64,
    /// Connections that the node made to us, proved.
    pub(super) calls: mpsc::Sender<(Line, Hello)>,
    /// Says that the node can be dialed now.
    pub(super) knocked: Notify,
    /// Says that a later start of the node is known.
    started: Notify,
    trouble: Mutex<Option<(String, Instant)>>,
}

impl Member {
    pub(super) fn new(
        node: NodeId,
        address: String,
        known: Acquaintance,
        calls: mpsc::Sender<(Line, Hello)>,
    ) -> Self {
        Self {
            node,
            address: Mutex::new(address),
            outbox: Outbox::default(),
            known: Mutex::new(known),
            is_up: AtomicBool::new(false),
            speaks: AtomicU16::new(0),
            connections: AtomicU64::new(0),
            calls,
            knocked: Notify::new(),
            started: Notify::new(),
            trouble: Mutex::new(None),
        }
    }

    pub(super) fn address(&self) -> String {
        self.address.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn to_address(&self) -> Address {
        let Acquaintance { incarnation, boot, stamp } = self.known();
        Address { node: self.node, address: self.address(), incarnation, boot, stamp }
    }

    pub(super) fn set_address(&self, address: &str) {
        address.clone_into(&mut self.address.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn known(&self) -> Acquaintance {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_known(&self, known: Acquaintance) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }

    /// The cluster's log says this of it.
    pub(super) fn learn(&self, incarnation: Option<u64>, boot: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_later = known.learn(incarnation, boot);
        drop(known);
        if is_later {
            self.started.notify_one();
        }
    }

    /// The node has renewed its stamp. Says whether that is news.
    pub(super) fn note_stamp(&self, boot: u64, stamp: u64) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.renewed(boot, stamp)
    }

    /// Returns when a later start of the node is known than the one that is connected.
    async fn outdated(&self, hello: &Hello) -> Broken {
        loop {
            let known = self.known().boot;
            if known > hello.boot {
                let (node, theirs) = (self.node, hello.boot);
                return Broken::Refused(Refusal::EarlierBoot { node, theirs, known });
            }
            self.started.notified().await;
        }
    }

    /// The newest version that it reads, if it is here.
    pub(super) fn speaks(&self) -> Option<Version> {
        self.is_up().then(|| Version(self.speaks.load(Ordering::Relaxed)))
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    /// Number of the connection that there is.
    pub(super) fn connection(&self) -> Option<u64> {
        let number = self.connections.load(Ordering::Relaxed);
        self.is_up().then_some(number)
    }

    /// Why it is not there, as far as is known.
    pub(super) fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.as_ref().map(|(text, _)| text.clone())
    }

    /// Logs why there is no connection, unless the log said the same within `QUIET`.
    pub(super) fn warn(&self, why: &Broken) {
        let text = why.to_string();
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = match &*trouble {
            Some((told, when)) => *told != text || when.elapsed() >= QUIET,
            None => true,
        };
        if is_news {
            tracing::warn!(
                "cannot connect to {} at {}, trying again: {text}",
                name(self.node),
                self.address()
            );
            *trouble = Some((text, Instant::now()));
        }
    }

    /// Keeps the connection. Never returns; to be dropped.
    pub(super) async fn keep(&self, shared: &Shared, mut calls: mpsc::Receiver<(Line, Hello)>) {
        let mut waiting = None;
        loop {
            let (line, hello) = match waiting.take() {
                Some(call) => call,
                None => self.connect(shared, &mut calls).await,
            };
            let up = Up::new(self, shared, &hello);
            let why = tokio::select! {
                why = link::run(line, self.node, &self.outbox, shared) => why,
                why = self.outdated(&hello) => why,
                Some(call) = calls.recv() => {
                    waiting = Some(call);
                    Broken::Replaced
                }
            };
            drop(up);
            tracing::warn!("connection to {} lost, reconnecting: {why}", name(self.node));
        }
    }

    /// A connection, however long it takes.
    async fn connect(
        &self,
        shared: &Shared,
        calls: &mut mpsc::Receiver<(Line, Hello)>,
    ) -> (Line, Hello) {
        let mut backoff = BACKOFF_MIN;
        loop {
            tokio::select! {
                Some(call) = calls.recv() => return call,
                dialed = self.dial(shared, Purpose::Data), if self.is_dialed_by(shared) => {
                    match dialed {
                        Ok(call) => return call,
                        Err(why) => self.warn(&why),
                    }
                }
                // Whoever is to dial may have removed this node, and never dials again: then it says so.
                knocked = self.dial(shared, Purpose::Knock), if !self.is_dialed_by(shared) => {
                    if let Err(why) = knocked {
                        tracing::debug!("cannot tell {} that this node is up: {why}", name(self.node));
                    }
                }
            }
            tokio::select! {
                Some(call) = calls.recv() => return call,
                () = tokio::time::sleep(jitter(backoff)) => backoff = (backoff * 2).min(BACKOFF_MAX),
                () = self.knocked.notified() => backoff = BACKOFF_MIN,
            }
        }
    }

    /// Of two nodes the one with the greater id dials.
    pub(super) fn is_dialed_by(&self, shared: &Shared) -> bool {
        shared.hello.node > self.node
    }

    /// One connection to the node.
    pub(super) async fn dial(
        &self,
        shared: &Shared,
        purpose: Purpose,
    ) -> Result<(Line, Hello), Broken> {
        let address = self.address();
        let stream = dial(&address, DIAL).await?;
        let secured = timeout(GREETING, shared.dialed(stream, &address)).await;
        let mut line = secured.unwrap_or(Err(Broken::Silent(GREETING)))?;
        let hello = greet::dialer(&mut line, shared, self.node, self.known(), purpose).await?;
        Ok((line, hello))
    }
}

/// A connection that the shards know of.
struct Up<'a> {
    member: &'a Member,
    shared: &'a Shared,
}

impl<'a> Up<'a> {
    fn new(member: &'a Member, shared: &'a Shared, hello: &Hello) -> Self {
        shared.remember(member, hello);
        *member.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
        tracing::info!("connected to {}", name(member.node));
        // Before the shards hear of it: what they send then must find it open.
        member.outbox.open();
        member.connections.fetch_add(1, Ordering::Relaxed);
        member.speaks.store(hello.speaks().0, Ordering::Relaxed);
        member.is_up.store(true, Ordering::Relaxed);
        shared.counters.connections.fetch_add(1, Ordering::Relaxed);
        let speaks = hello.speaks();
        shared.notify_shards(|| Input::PeerUp { node: member.node, speaks });
        Self { member, shared }
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.member.outbox.close();
        self.member.is_up.store(false, Ordering::Relaxed);
        self.shared.questions.lost(self.member.node);
        self.shared.notify_shards(|| Input::PeerDown { node: self.member.node });
    }
}
