//! How a connection opens: which of the handshake's methods may come now, and what comes after it.

use amqp::{Frame, Method, PROTOCOL_HEADER, ReplyCode, connection};
use oauth::limits::TOKEN_BYTES_MAX;

use super::{Phase, Session};
use crate::connection::handshake::{self, Refused, Started};
use crate::connection::login::{Judge, Judged, Notice};
use crate::connection::step::Step;
use crate::errors::{Failure, unexpected};
use crate::rights::Rights;
use crate::route_cache::RouteCache;

/// Class and method of `connection.update-secret`.
const UPDATE_SECRET: (u16, u16) = (10, 70);

impl Session {
    /// The first eight bytes. None: there are fewer.
    pub(super) fn protocol_header(&mut self, step: &mut Step<'_>, input: &[u8]) -> Option<usize> {
        let header = input.get(..PROTOCOL_HEADER.len())?;
        if *header != PROTOCOL_HEADER {
            step.out.bytes.extend_from_slice(&PROTOCOL_HEADER);
            self.over(step);
            return Some(input.len());
        }
        handshake::greet(&self.connection.client, step);
        self.phase = Phase::Start;
        Some(PROTOCOL_HEADER.len())
    }

    pub(super) fn handshake_frame(
        &mut self,
        step: &mut Step<'_>,
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
            (Phase::Start, Method::ConnectionStartOk(start)) => self.start_ok(step, start),
            (Phase::Tune, Method::ConnectionTuneOk(tune)) => self.tune_ok(*tune),
            (Phase::Open, Method::ConnectionOpen(open)) => self.open(step, open.virtual_host),
            (_, Method::ConnectionClose(_)) => {
                self.leave(step);
                Ok(())
            }
            (_, other) => Err(unexpected(other.name())),
        };
        done.map_err(|failure| Failure { ids, ..failure })
    }

    fn start_ok(
        &mut self,
        step: &mut Step<'_>,
        start: &connection::StartOk<'_>,
    ) -> Result<(), Failure> {
        match handshake::start_ok(&mut self.connection.client, step, start)? {
            Started::Verifying(login) => self.phase = Phase::Verifying(Box::new(login)),
            Started::Known => self.phase = Phase::Tune,
            Started::Refused(refused) => self.refused(step, refused),
        }
        Ok(())
    }

    pub(super) fn verified(&mut self, step: &mut Step<'_>, is_right: bool) {
        let login = match std::mem::replace(&mut self.phase, Phase::Tune) {
            Phase::Verifying(login) => login,
            other => {
                // The connection did not wait for it.
                self.phase = other;
                return;
            }
        };
        let verified = handshake::verified(&mut self.connection.client, step, *login, is_right);
        if let Err(refused) = verified {
            self.refused(step, refused);
        }
    }

    /// A token was judged: that of a login, or one in its place.
    pub(super) fn judged(&mut self, step: &mut Step<'_>, judged: Judged) {
        if self.is_renewing {
            self.is_renewing = false;
            if self.is_running() {
                self.renewed(step, judged);
            }
            return;
        }
        let login = match std::mem::replace(&mut self.phase, Phase::Tune) {
            Phase::Verifying(login) => login,
            other => {
                self.phase = other;
                return;
            }
        };
        let judged = handshake::judged(&mut self.connection.client, step, *login, judged);
        if let Err(refused) = judged {
            self.refused(step, refused);
        }
    }

    /// `connection.update-secret`: the frames behind it are taken once the token is judged. As with RabbitMQ, a password
    /// is not looked at: nothing depends on it any more.
    pub(super) fn update_secret(&mut self, step: &mut Step<'_>, secret: &[u8]) {
        let client = &self.connection.client;
        match client.rights {
            Rights::Catalog => {
                let answer = Method::ConnectionUpdateSecretOk(connection::UpdateSecretOk);
                client.send(step, 0, &answer);
            }
            Rights::Token(_) => {
                self.is_renewing = true;
                let token = secret[..secret.len().min(TOKEN_BYTES_MAX + 1)].to_vec();
                step.out.token = Some(Judge { token, peer: client.peer.ip() });
            }
        }
    }

    fn renewed(&mut self, step: &mut Step<'_>, judged: Judged) {
        let client = &mut self.connection.client;
        match handshake::renew(client, step, judged) {
            Ok(()) => {
                // What the token before allowed is asked again.
                self.connection.publishers.routes = RouteCache::default();
                self.channels.values_mut().for_each(|channel| channel.rights_changed());
                let answer = Method::ConnectionUpdateSecretOk(connection::UpdateSecretOk);
                client.send(step, 0, &answer);
            }
            Err(why) => {
                step.out.notice = Some(Notice::Refused {
                    user: client.user.clone(),
                    mechanism: "update-secret".to_owned(),
                    client: client.name.clone(),
                    why,
                });
                self.connection.counts.logins_refused += 1;
                let text = "New secret was refused by one of the backends";
                let failure = Failure::connection(ReplyCode::NotAllowed, text);
                self.fail(step, &Failure { ids: UPDATE_SECRET, ..failure });
            }
        }
    }

    fn refused(&mut self, step: &Step<'_>, Refused { is_told }: Refused) {
        self.connection.counts.logins_refused += 1;
        let until = step.now + self.connection.client.config.refusal_delay;
        self.phase = if is_told { Phase::Closing { until } } else { Phase::Silent { until } };
    }

    fn tune_ok(&mut self, tune: connection::TuneOk) -> Result<(), Failure> {
        let agreed = handshake::tune_ok(&self.connection.client.config, tune)?;
        self.channel_max = agreed.channel_max;
        self.connection.client.frame_bytes_max = agreed.frame_bytes_max;
        self.decoder.set_frame_max(agreed.frame_bytes_max);
        self.heartbeat.interval = agreed.heartbeat;
        self.phase = Phase::Open;
        Ok(())
    }

    fn open(&mut self, step: &mut Step<'_>, vhost: &str) -> Result<(), Failure> {
        handshake::open(&mut self.connection.client, step, vhost)?;
        self.catalog_seen = step.catalog().version();
        step.is_tapped = self.is_tapped(step.view);
        self.phase = Phase::Running;
        Ok(())
    }
}
