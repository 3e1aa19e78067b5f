//! From the first byte to `connection.open-ok`. Until then nothing is believed and little is held: frames are
//! small, the time is bounded, and a failed login waits before it may try again.

use std::time::Duration;

use amqp::{
    FieldTable, FieldValue, Frame, Method, PROTOCOL_HEADER, ReplyCode, TableRef, ValueRef,
    connection, limits as wire_limits,
};

use crate::connection::step_end::negotiated;
use crate::connection::{Capabilities, Turn};
use crate::errors::{self, Failure, unknown_vhost};
use crate::session::{LoginRefusal, Notice, Phase, Session, Verify};
use crate::{auth, limits};

/// What clients are told we are. They choose their manners by it, and know only one broker whose manners
/// are ours: kombu, and so Celery, asks for a prefetch of the whole channel only where this is the product.
const PRODUCT: &str = "RabbitMQ";
/// The last of those that write `x-death` as `dead_letter::x_death` does.
const COMPATIBLE_VERSION: &str = "3.12.14";
/// Who we are: for people, no client decides anything by it.
const PLATFORM: &str = concat!("Millrace ", env!("CARGO_PKG_VERSION"));

/// Everything that our answers to a client rely on.
const CAPABILITIES: [&str; 9] = [
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
];

/// A login whose password is being checked.
#[derive(Debug)]
pub(crate) struct Login {
    user: String,
    mechanism: String,
    /// Why it is refused if it is.
    refusal: LoginRefusal,
}

impl Login {
    pub(crate) fn user(&self) -> &str {
        &self.user
    }
}

impl Session {
    /// The first eight bytes. None: there are fewer.
    pub(crate) fn protocol_header(&mut self, turn: &mut Turn<'_>, input: &[u8]) -> Option<usize> {
        let header = input.get(..PROTOCOL_HEADER.len())?;
        if *header != PROTOCOL_HEADER {
            turn.out.bytes.extend_from_slice(&PROTOCOL_HEADER);
            self.over(turn);
            return Some(input.len());
        }
        let properties = self.server_properties().to_bytes();
        let start = connection::Start {
            version_major: 0,
            version_minor: 9,
            server_properties: TableRef::validate(&properties).expect("a small table of our own"),
            mechanisms: auth::MECHANISMS.as_bytes(),
            locales: b"en_US",
        };
        self.trunk.send(turn, 0, &Method::ConnectionStart(start));
        self.phase = Phase::Start;
        Some(PROTOCOL_HEADER.len())
    }

    fn server_properties(&self) -> FieldTable {
        let capabilities: FieldTable = CAPABILITIES.iter().map(|&name| (name, true)).collect();
        FieldTable(vec![
            ("capabilities".to_owned(), FieldValue::Table(capabilities)),
            ("cluster_name".to_owned(), self.trunk.config.cluster_name.as_str().into()),
            ("copyright".to_owned(), "The Millrace authors".into()),
            ("information".to_owned(), "Licensed under the Apache License 2.0".into()),
            ("platform".to_owned(), PLATFORM.into()),
            ("product".to_owned(), PRODUCT.into()),
            ("version".to_owned(), COMPATIBLE_VERSION.into()),
        ])
    }

    pub(crate) fn handshake_frame(
        &mut self,
        turn: &mut Turn<'_>,
        frame: &Frame<'_>,
    ) -> Result<(), Failure> {
        let payload = match *frame {
            Frame::Heartbeat { channel: 0 } => return Ok(()),
            Frame::Method { channel: 0, payload } => payload,
            Frame::Method { .. }
            | Frame::Header { .. }
            | Frame::Body { .. }
            | Frame::Heartbeat { .. } => {
                let text = "expected a method of class connection on channel 0";
                return Err(Failure::connection(ReplyCode::UnexpectedFrame, text));
            }
        };
        let ids = Method::peek_ids(payload).unwrap_or_default();
        let method = Method::decode(payload).map_err(|error| Failure { ids, ..error.into() })?;
        let done = match (&self.phase, &method) {
            (Phase::Start, Method::ConnectionStartOk(start)) => self.start_ok(turn, start),
            (Phase::Tune, Method::ConnectionTuneOk(tune)) => self.tune_ok(*tune),
            (Phase::Open, Method::ConnectionOpen(open)) => self.open(turn, open.virtual_host),
            (_, Method::ConnectionClose(_)) => {
                self.leave(turn);
                Ok(())
            }
            (_, other) => Err(errors::unexpected(other.name())),
        };
        done.map_err(|failure| Failure { ids, ..failure })
    }

    fn start_ok(
        &mut self,
        turn: &mut Turn<'_>,
        start: &connection::StartOk<'_>,
    ) -> Result<(), Failure> {
        self.trunk.capabilities = capabilities(start.client_properties);
        self.trunk.client = client_name(start.client_properties);
        let mechanism = start.mechanism;
        if !auth::MECHANISMS.split(' ').any(|known| known == mechanism) {
            let text = format!("unknown authentication mechanism '{mechanism}'");
            return Err(Failure::connection(ReplyCode::CommandInvalid, text));
        }
        let Some(credentials) = auth::credentials(mechanism, start.response) else {
            self.refuse(turn, mechanism, "", LoginRefusal::Unreadable);
            return Ok(());
        };
        let user = turn.view.catalog.user(&credentials.user);
        let (stored, refusal) = match user.map(|user| &user.password_hash) {
            None => (None, LoginRefusal::NoSuchUser),
            Some(hash) if hash.is_empty() => (None, LoginRefusal::NoPassword),
            // It learns nothing about the password, not even by the time that the check takes.
            Some(_) if !self.may_come_from_here(&credentials.user) => {
                (None, LoginRefusal::LoopbackOnly)
            }
            Some(hash) => (Some(hash.clone()), LoginRefusal::WrongPassword),
        };
        turn.out.verify = Some(Verify {
            user: credentials.user.clone(),
            password: credentials.password,
            peer: self.trunk.peer.ip(),
            stored,
        });
        let (user, mechanism) = (credentials.user, mechanism.to_owned());
        self.phase = Phase::Verifying(Box::new(Login { user, mechanism, refusal }));
        Ok(())
    }

    /// Some users only from this machine: judged by where the peer is, not by where we listen.
    fn may_come_from_here(&self, user: &str) -> bool {
        let is_bound = self.trunk.config.loopback_users.iter().any(|bound| bound == user);
        !is_bound || self.trunk.peer.ip().to_canonical().is_loopback()
    }

    pub(crate) fn verified(&mut self, turn: &mut Turn<'_>, is_right: bool) {
        let login = match std::mem::replace(&mut self.phase, Phase::Tune) {
            Phase::Verifying(login) => login,
            other => {
                // The connection did not wait for it.
                self.phase = other;
                return;
            }
        };
        let Login { user, mechanism, refusal } = *login;
        if !is_right {
            self.refuse(turn, &mechanism, &user, refusal);
            return;
        }
        let known = turn.view.catalog.user(&user);
        self.trunk.is_impersonator = known.is_some_and(|user| user.has_tag("impersonator"));
        self.trunk.user = user;
        let config = &self.trunk.config;
        let tune = connection::Tune {
            channel_max: config.channel_max,
            frame_max: config.frame_bytes_max,
            heartbeat: config.heartbeat_seconds,
        };
        self.trunk.send(turn, 0, &Method::ConnectionTune(tune));
    }

    /// The same words and the same wait for whatever was wrong.
    fn refuse(&mut self, turn: &mut Turn<'_>, mechanism: &str, user: &str, why: LoginRefusal) {
        self.trunk.counts.logins_refused += 1;
        turn.out.notice = Some(Notice::Refused {
            user: user.to_owned(),
            mechanism: mechanism.to_owned(),
            client: std::mem::take(&mut self.trunk.client),
            why,
        });
        if self.trunk.capabilities.authentication_failure_close {
            let text = format!(
                "Login was refused using authentication mechanism {mechanism}. For details see \
                 the broker logfile."
            );
            let error = amqp::Error::new(ReplyCode::AccessRefused, text);
            let close = connection::Close {
                reply_code: error.code.number(),
                reply_text: &error.reply_text(),
                class_id: 0,
                method_id: 0,
            };
            self.trunk.send(turn, 0, &Method::ConnectionClose(close));
            self.phase = Phase::Closing { until: turn.now + self.trunk.config.refusal_delay };
        } else {
            self.phase = Phase::Silent { until: turn.now + self.trunk.config.refusal_delay };
        }
    }

    fn tune_ok(&mut self, tune: connection::TuneOk) -> Result<(), Failure> {
        let config = &self.trunk.config;
        let (frame_max, channel_max) = (tune.frame_max, u32::from(tune.channel_max));
        if frame_max != 0 && frame_max < wire_limits::FRAME_BYTES_MIN {
            return Err(negotiated("frame_max", frame_max, wire_limits::FRAME_BYTES_MIN, true));
        }
        if frame_max > config.frame_bytes_max {
            return Err(negotiated("frame_max", frame_max, config.frame_bytes_max, false));
        }
        if channel_max > u32::from(config.channel_max) {
            return Err(negotiated("channel_max", channel_max, config.channel_max.into(), false));
        }
        // Zero is "no limit" and loses against ours.
        let frame_max = if frame_max == 0 { config.frame_bytes_max } else { frame_max };
        if tune.channel_max != 0 {
            self.channel_max = tune.channel_max;
        }
        self.trunk.frame_bytes_max = frame_max;
        self.decoder.set_frame_max(frame_max);
        self.heartbeat = Duration::from_secs(tune.heartbeat.into());
        self.phase = Phase::Open;
        Ok(())
    }

    fn open(&mut self, turn: &mut Turn<'_>, vhost: &str) -> Result<(), Failure> {
        let catalog = turn.view.catalog;
        if catalog.vhost(vhost).is_none() {
            return Err(unknown_vhost(vhost));
        }
        if catalog.permissions(&self.trunk.user, vhost).is_none() {
            let text = format!("access to vhost '{vhost}' refused for user '{}'", self.trunk.user);
            return Err(Failure::connection(ReplyCode::NotAllowed, text));
        }
        self.trunk.vhost = vhost.to_owned();
        self.catalog_seen = catalog.version();
        self.phase = Phase::Running;
        turn.out.notice = Some(Notice::Connected {
            user: self.trunk.user.clone(),
            vhost: vhost.to_owned(),
            client: std::mem::take(&mut self.trunk.client),
        });
        self.trunk.send(turn, 0, &Method::ConnectionOpenOk(connection::OpenOk));
        Ok(())
    }
}

/// What the client calls its connection, or the library that it is.
fn client_name(client_properties: TableRef<'_>) -> String {
    let text = |key| match client_properties.find(key) {
        Some(ValueRef::LongStr(text)) if !text.is_empty() => Some(String::from_utf8_lossy(text)),
        Some(_) | None => None,
    };
    let name = text("connection_name").or_else(|| text("product")).unwrap_or_default();
    name.chars().take(limits::CLIENT_NAME_LETTERS_MAX).collect()
}

fn capabilities(client_properties: TableRef<'_>) -> Capabilities {
    let Some(ValueRef::Table(table)) = client_properties.find("capabilities") else {
        return Capabilities::default();
    };
    let has = |name: &str| matches!(table.find(name), Some(ValueRef::Bool(true)));
    Capabilities {
        authentication_failure_close: has("authentication_failure_close"),
        consumer_cancel_notify: has("consumer_cancel_notify"),
        connection_blocked: has("connection.blocked"),
    }
}
