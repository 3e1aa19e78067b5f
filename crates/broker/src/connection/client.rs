//! The other end of a connection: who it is and what was agreed with it. Written by the handshake, read by all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use amqp::{Encoder, Method};
use machine::{Catalog, ConsumerId, NodeId, SessionId, SessionOwner};

use super::login::Proven;
use super::step::Step;
use crate::auth::{self, Verb};
use crate::config::Config;
use crate::errors::Failure;
use crate::limits;
use crate::rights::Rights;

/// What a client said it understands: without it the server must not use it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Capabilities {
    pub(crate) authentication_failure_close: bool,
    pub(crate) consumer_cancel_notify: bool,
    pub(crate) connection_blocked: bool,
}

/// The wall clock as it was at a moment: setting it later changes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallTime {
    pub(crate) at: Instant,
    /// Milliseconds since 1970.
    pub(crate) ms: u64,
}

impl WallTime {
    pub(crate) fn ms_at(self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.at).as_millis();
        self.ms.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}

/// A client, and the session that serves it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) config: Arc<Config>,
    pub(crate) session: SessionId,
    pub(crate) node: NodeId,
    pub(crate) peer: SocketAddr,
    /// When it was accepted.
    pub(crate) since: WallTime,
    /// Who it is before it says a word. `None`: it has to say so, and to prove it.
    pub(crate) proven: Option<Proven>,
    pub(crate) user: String,
    /// Whose permissions count.
    pub(crate) rights: Rights,
    /// When its token expires, if it has shown one.
    pub(crate) expires_at: Option<Instant>,
    /// May publish in the name of others.
    pub(crate) is_impersonator: bool,
    pub(crate) vhost: String,
    pub(crate) capabilities: Capabilities,
    /// What it calls itself.
    pub(crate) name: String,
    /// Negotiated, in bytes with overhead.
    pub(crate) frame_bytes_max: u32,
}

impl Client {
    pub(crate) fn new(
        config: Arc<Config>,
        session: SessionId,
        node: NodeId,
        peer: SocketAddr,
        since: WallTime,
    ) -> Self {
        Self {
            frame_bytes_max: config.frame_bytes_max,
            config,
            session,
            node,
            peer,
            since,
            proven: None,
            user: String::new(),
            rights: Rights::default(),
            expires_at: None,
            is_impersonator: false,
            vhost: String::new(),
            capabilities: Capabilities::default(),
            name: String::new(),
        }
    }

    pub(crate) fn owner(&self) -> SessionOwner {
        SessionOwner { node: self.node, session: self.session }
    }

    pub(crate) fn consumer_id(&self, number: u64) -> ConsumerId {
        ConsumerId { session: self.session, number }
    }

    /// Lets these rights of the user count from now on.
    pub(crate) fn hold(&mut self, step: &Step<'_>, rights: Rights) {
        self.is_impersonator = rights.has_tag(step.catalog(), &self.user, "impersonator");
        self.expires_at = match &rights {
            Rights::Catalog => None,
            Rights::Token(grant) => {
                let left_ms = grant.expires_s.saturating_mul(1000);
                let left_ms = left_ms.saturating_sub(self.since.ms_at(step.now));
                let left = Duration::from_millis(left_ms).min(limits::TOKEN_LOGIN_MAX);
                Some(step.now + left)
            }
        };
        self.rights = rights;
    }

    /// Refuses what the client has no right to.
    pub(crate) fn allow(&self, catalog: &Catalog, verb: Verb<'_>) -> Result<(), Failure> {
        auth::allow(catalog, &self.rights, &self.user, &self.vhost, verb)
    }

    pub(crate) fn encoder<'a>(&self, step: &'a mut Step<'_>) -> Encoder<'a> {
        Encoder::new(&mut step.out.bytes, self.frame_bytes_max)
    }

    pub(crate) fn send(&self, step: &mut Step<'_>, channel: u16, method: &Method<'_>) {
        self.encoder(step).method(channel, method);
    }
}
