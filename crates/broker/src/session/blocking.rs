//! Publishers wait while the node is low on memory or disk. Who does not publish is served: a connection waits from
//! its next `basic.publish`, or the next part of a message that has begun, and nothing behind that is looked at.

use std::time::Instant;

use amqp::{Frame, Method, ReplyCode, connection};
use cluster::Alarms;

use super::channel::{PUBLISH, State};
use super::errors::Failure;
use super::trunk::Turn;
use super::{Phase, Session, View};
use crate::limits;

/// A publisher that waits: what it sent lies in `Session::received`, and its socket is not read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocked {
    since: Instant,
    /// When to look again whether it still has to wait.
    pub(super) look_at: Instant,
}

impl Session {
    /// Bytes of messages that have begun and not ended, and of open transactions.
    pub fn unfinished_bytes(&self) -> u64 {
        self.trunk.partial_bytes + self.trunk.tx_bytes as u64
    }

    /// Why publishers have to wait.
    fn shortage(&self, view: &View<'_>) -> Alarms {
        let is_full = view.unfinished_bytes >= self.trunk.config.unfinished_bytes_max;
        Alarms { memory: view.alarms.memory || is_full, disk: view.alarms.disk }
    }

    /// Whether the frame publishes, and publishers have to wait.
    #[inline]
    pub(super) fn must_wait(&self, turn: &Turn<'_>, frame: &Frame<'_>) -> bool {
        matches!(self.phase, Phase::Running)
            && self.shortage(turn.view).any()
            && self.is_publish(frame)
    }

    fn is_publish(&self, frame: &Frame<'_>) -> bool {
        let place = usize::from(frame.channel()).checked_sub(1);
        let channel = place.and_then(|place| self.channels.get(place)?.as_deref());
        if channel.is_none_or(|channel| channel.state != State::Open) {
            return false;
        }
        match frame {
            Frame::Method { payload, .. } => Method::peek_ids(payload) == Some(PUBLISH),
            Frame::Header { .. } | Frame::Body { .. } => true,
            Frame::Heartbeat { .. } => false,
        }
    }

    /// The client waits, and is told so if it understands.
    pub(super) fn block(&mut self, turn: &mut Turn<'_>) {
        let look_at = turn.now + limits::BLOCKED_LOOK;
        self.blocked = Some(Blocked { since: turn.now, look_at });
        if !self.trunk.capabilities.connection_blocked {
            return;
        }
        let alarms = self.shortage(turn.view);
        let reason = match (alarms.memory, alarms.disk) {
            (true, true) => "low on memory & low on disk",
            (true, false) => "low on memory",
            (false, _) => "low on disk",
        };
        let blocked = connection::Blocked { reason };
        self.trunk.send(turn, 0, &Method::ConnectionBlocked(blocked));
    }

    /// A publisher that waits goes on once there is room. One that itself holds memory which is short does not
    /// hold it for ever.
    pub(super) fn look_whether_blocked(&mut self, turn: &mut Turn<'_>) {
        let Some(Blocked { since, .. }) = self.blocked else { return };
        if !self.is_running() {
            self.blocked = None;
            return;
        }
        let alarms = self.shortage(turn.view);
        if !alarms.any() {
            self.blocked = None;
            if self.trunk.capabilities.connection_blocked {
                let unblocked = connection::Unblocked;
                self.trunk.send(turn, 0, &Method::ConnectionUnblocked(unblocked));
            }
            self.read(turn);
        } else if alarms.memory
            && self.unfinished_bytes() > 0
            && turn.now >= since + limits::UNFINISHED_WAIT
        {
            self.blocked = None;
            let text = format!(
                "low on memory, of which this connection holds {} bytes in messages that have \
                 begun or a transaction: send them again later",
                self.unfinished_bytes()
            );
            self.fail(turn, &Failure::connection(ReplyCode::ResourceError, text));
        } else {
            let look_at = turn.now + limits::BLOCKED_LOOK;
            self.blocked = Some(Blocked { since, look_at });
        }
    }
}
