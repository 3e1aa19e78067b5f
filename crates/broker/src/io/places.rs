//! The places of a node's connections, and the log lines about them: `door` and `notices` behind locks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use super::describe::Ear;
use super::listener::Broker;
use crate::door::{Door, Knock, Number};
use crate::logins::Address;
use crate::metrics::Metrics;
use crate::notices::{Kind, Notices};
use crate::session::Notice;

/// All places of a node.
#[derive(Debug)]
pub(crate) struct Places {
    inside: Mutex<Inside>,
    /// Somebody is known or has left.
    changed: Notify,
    notices: Mutex<Notices>,
    started: Instant,
}

#[derive(Debug)]
struct Inside {
    door: Door,
    /// How strangers are told to go.
    strangers: BTreeMap<Number, oneshot::Sender<()>>,
}

impl Places {
    pub(crate) fn new(open_max: usize) -> Self {
        Self {
            inside: Mutex::new(Inside { door: Door::new(open_max), strangers: BTreeMap::new() }),
            changed: Notify::new(),
            notices: Mutex::default(),
            started: Instant::now(),
        }
    }

    /// How many are taken.
    pub(crate) fn open(&self) -> usize {
        self.lock().door.open()
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether a line of that kind is written: the number of lines before it that were not.
    pub(crate) fn writes(&self, kind: Kind) -> Option<u64> {
        let now = self.now();
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).write(kind, now)
    }

    /// What a session has to tell operators.
    pub(crate) fn tell(&self, ear: &Ear, notice: &Notice) {
        let (connection, peer) = (ear.id, ear.peer);
        match notice {
            Notice::Connected { user, vhost, client } => {
                if let Some(not_shown) = self.writes(Kind::Connected) {
                    tracing::info!(%connection, %peer, user, vhost, client, not_shown, "client connected");
                }
            }
            Notice::Refused { user, mechanism, client, why } => {
                if let Some(not_shown) = self.writes(Kind::LoginRefused) {
                    tracing::warn!(
                        %connection, %peer, user, mechanism, client, not_shown,
                        "login refused: {why}"
                    );
                }
            }
            Notice::Unjudged { user } => {
                if let Some(not_shown) = self.writes(Kind::LoginUnjudged) {
                    tracing::warn!(
                        %connection, %peer, user, not_shown,
                        "login timed out: its password was not checked in time, the connection is closed, the client may \
                         try again. Look for an address with many refused logins"
                    );
                }
            }
        }
    }

    fn tell_crowded(&self, address: Address, strangers: usize) {
        if let Some(not_shown) = self.writes(Kind::MadeWay) {
            tracing::warn!(
                %address, strangers, not_shown,
                "too many connections without a login: closed the oldest one of this address for a new one. If these \
                 are not your clients, block the address"
            );
        }
    }

    fn tell_full(&self, address: Address, open: usize) {
        if let Some(not_shown) = self.writes(Kind::TurnedAway) {
            tracing::error!(
                %address, open, not_shown,
                "client turned away: all connections are in use. Raise the limit of open files (ulimit -n, \
                 LimitNOFILE), or close connections"
            );
        }
    }
}

/// One connection's place, until it is dropped.
pub(crate) struct Place {
    broker: Arc<Broker>,
    address: Address,
    number: Number,
}

impl Place {
    /// Waits until there is room: see `door`. None: there is none, and there will be none soon. With it comes what
    /// tells the connection to go.
    pub(crate) async fn take(
        broker: &Arc<Broker>,
        peer: SocketAddr,
    ) -> Option<(Self, oneshot::Receiver<()>)> {
        let address = Address::of(peer.ip());
        loop {
            let wait = match Self::try_take(broker, address) {
                Ok(place) => return place,
                Err(wait) => wait,
            };
            // Whichever comes first: both only mean that it is worth another look.
            let _ = tokio::time::timeout(wait, broker.places.changed.notified()).await;
        }
    }

    fn try_take(
        broker: &Arc<Broker>,
        address: Address,
    ) -> Result<Option<(Self, oneshot::Receiver<()>)>, Duration> {
        let places = &broker.places;
        let is_slow = broker.credentials.is_slow(address);
        let now = places.now();
        let mut inside = places.lock();
        let knock = inside.door.knock(now, address, is_slow);
        if let Knock::Wait(wait) = knock {
            return Err(wait);
        }
        if knock == Knock::Full {
            let open = inside.door.open();
            drop(inside);
            Metrics::count(&broker.metrics.limit_connections);
            places.tell_full(address, open);
            return Ok(None);
        }
        let mut pushed_out = None;
        if let Knock::InsteadOf(whose, oldest) = knock {
            pushed_out = Some((whose, inside.door.stranger_count()));
            // Its place is free at once; its task gives the socket back in a moment.
            inside.door.known(whose, oldest);
            if let Some(go) = inside.strangers.remove(&oldest) {
                let _ = go.send(());
            }
        }
        let number = inside.door.enter(now, address);
        let (go, told) = oneshot::channel();
        inside.strangers.insert(number, go);
        drop(inside);
        if let Some((whose, strangers)) = pushed_out {
            Metrics::count(&broker.metrics.limit_connections);
            places.tell_crowded(whose, strangers);
        }
        Ok(Some((Self { broker: Arc::clone(broker), address, number }, told)))
    }

    /// The password of this connection is being checked, or is not any more.
    pub(crate) fn checked(&self, is_checked: bool) {
        self.broker.places.lock().door.checked(self.address, self.number, is_checked);
    }

    /// The user is known.
    pub(crate) fn known(&self) {
        let mut inside = self.broker.places.lock();
        inside.door.known(self.address, self.number);
        inside.strangers.remove(&self.number);
        drop(inside);
        self.broker.places.changed.notify_one();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inside = self.broker.places.lock();
        inside.door.leave(self.address, self.number);
        inside.strangers.remove(&self.number);
        drop(inside);
        self.broker.places.changed.notify_one();
        Metrics::count(&self.broker.metrics.connections_closed);
    }
}
