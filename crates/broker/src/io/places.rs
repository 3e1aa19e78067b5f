//! The places of a node's connections, and the log lines about them: `door` and `notices` behind locks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use super::describe::Ear;
use crate::door::{Door, Number};
use crate::logins::Address;
use crate::notices::{Kind, Notices, shown_user};
use crate::session::{LoginRefusal, Notice};

/// All places of a node.
#[derive(Debug)]
pub(crate) struct Places {
    inside: Mutex<Inside>,
    /// Somebody is known or has left.
    pub(super) changed: Notify,
    notices: Mutex<Notices>,
    started: Instant,
}

#[derive(Debug)]
pub(super) struct Inside {
    pub(super) door: Door,
    /// How strangers are told to go.
    pub(super) strangers: BTreeMap<Number, oneshot::Sender<()>>,
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

    pub(super) fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Duration {
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
                    let user = &*shown_user(user);
                    tracing::info!(%connection, %peer, user, vhost, client, not_shown, "client connected");
                }
            }
            Notice::Refused { user, mechanism, client, why } => {
                if let Some(not_shown) = self.writes(Kind::LoginRefused) {
                    let user = &*shown_user(user);
                    tracing::warn!(
                        %connection, %peer, user, mechanism, client, not_shown,
                        "login refused: {why}"
                    );
                }
            }
            Notice::Unjudged { user } => {
                if let Some(not_shown) = self.writes(Kind::LoginUnjudged) {
                    let user = &*shown_user(user);
                    tracing::warn!(
                        %connection, %peer, user, not_shown,
                        "login timed out: its password or token was not checked in time, the connection is closed, the \
                         client may try again. Look for an address with many refused logins; for a token, look whether \
                         the server of oauth_jwks_url answers"
                    );
                }
            }
        }
    }

    /// A login over HTTP.
    pub(super) fn tell_refused(&self, peer: SocketAddr, user: &str, why: LoginRefusal) {
        if let Some(not_shown) = self.writes(Kind::LoginRefused) {
            let user = &*shown_user(user);
            tracing::warn!(%peer, user, not_shown, "login to the HTTP API refused: {why}");
        }
    }

    pub(super) fn tell_crowded(&self, address: Address, strangers: usize) {
        if let Some(not_shown) = self.writes(Kind::MadeWay) {
            tracing::warn!(
                %address, strangers, not_shown,
                "too many connections without a login: closed the oldest one of this address for a new one. If these \
                 are not your clients, block the address"
            );
        }
    }

    pub(super) fn tell_no_tls(&self, peer: SocketAddr, why: &std::io::Error) {
        if let Some(not_shown) = self.writes(Kind::NoTls) {
            tracing::warn!(
                %peer, %why, not_shown,
                "no TLS with a client: its connection is closed. If the client is yours, compare its protocol, its \
                 certificate and whom it believes with the settings tls_certfile and tls_cacertfile"
            );
        }
    }

    pub(super) fn tell_full(&self, address: Address, open: usize) {
        if let Some(not_shown) = self.writes(Kind::TurnedAway) {
            tracing::error!(
                %address, open, not_shown,
                "client turned away: all connections are in use. Raise the limit of open files (ulimit -n, \
                 LimitNOFILE), or close connections"
            );
        }
    }
}
