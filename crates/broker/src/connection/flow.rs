//! Publishers wait while the node is low on memory or disk. Who does not publish is served: a connection waits from
//! its next `basic.publish`, or the next part of a message that has begun, and nothing behind that is looked at.

use std::time::Instant;

use amqp::{Frame, Method, ReplyCode, connection};
use cluster::Alarms;

use crate::channel::{PUBLISH, State};
use crate::connection::Turn;
use crate::errors::Failure;
use crate::limits;
use crate::session::{Session, View};

/// A publisher that waits: what it sent lies in `Session::received`, and its socket is not read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked {
    since: Instant,
    /// When to look again whether it still has to wait.
    pub(crate) look_at: Instant,
    /// The client was told, if it understands.
    is_told: bool,
}

impl Session {
    /// Bytes that this connection's publishers have in flight: bodies that have begun, at the size that was
    /// announced; open transactions; and what is whole and not known to be on a majority's disks.
    pub fn in_flight_bytes(&self) -> u64 {
        let trunk = &self.trunk;
        let whole = trunk.appends.unlogged_bytes + trunk.guards.bytes + trunk.deferred_bytes;
        self.unfinished_bytes() + whole as u64
    }

    /// Whether this publisher waits: it goes on when others leave room.
    pub fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// The part of what is in flight that only the client can end.
    fn unfinished_bytes(&self) -> u64 {
        self.trunk.announced_bytes + self.trunk.tx_bytes as u64
    }

    /// Whether all publishers of the node together have in flight what they may. The view is of before this step.
    fn is_full(&self, view: &View<'_>) -> bool {
        let others = view.in_flight_bytes.saturating_sub(self.in_flight_told);
        others + self.in_flight_bytes() >= self.trunk.config.in_flight_bytes_max
    }

    /// Why publishers have to wait.
    fn shortage(&self, view: &View<'_>) -> Alarms {
        Alarms { memory: view.alarms.memory || self.is_full(view), disk: view.alarms.disk }
    }

    /// Whether the frame publishes, and publishers have to wait. A body that has begun has its room in memory, and
    /// its end frees that: only the disk holds it back.
    #[inline]
    pub(crate) fn must_wait(&self, turn: &Turn<'_>, frame: &Frame<'_>) -> bool {
        let is_short = turn.view.alarms.any() || self.is_full(turn.view);
        if !is_short || !self.is_running() {
            return false;
        }
        match frame {
            Frame::Method { payload, .. } => {
                Method::peek_ids(payload) == Some(PUBLISH) && self.is_open(frame.channel())
            }
            Frame::Header { channel, .. } => self.is_open(*channel),
            Frame::Body { channel, .. } => turn.view.alarms.disk && self.is_open(*channel),
            Frame::Heartbeat { .. } => false,
        }
    }

    fn is_open(&self, channel: u16) -> bool {
        let channel = self.channels.get(&channel);
        channel.is_some_and(|channel| channel.state == State::Open)
    }

    /// The client waits. Of an alarm it is told at once; that too much is in flight passes by itself, mostly
    /// within milliseconds, and is TCP's to say unless it lasts.
    pub(crate) fn block(&mut self, turn: &mut Turn<'_>) {
        let look_at = turn.now + limits::BLOCKED_LOOK;
        let is_told = turn.view.alarms.any();
        self.blocked = Some(Blocked { since: turn.now, look_at, is_told });
        if is_told {
            self.tell_blocked(turn);
        }
    }

    fn tell_blocked(&mut self, turn: &mut Turn<'_>) {
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
    pub(crate) fn look_whether_blocked(&mut self, turn: &mut Turn<'_>) {
        let Some(blocked) = self.blocked else { return self.look_whether_silent(turn) };
        if !self.is_running() {
            self.blocked = None;
            return;
        }
        let alarms = self.shortage(turn.view);
        if !alarms.any() {
            self.blocked = None;
            if blocked.is_told && self.trunk.capabilities.connection_blocked {
                let unblocked = connection::Unblocked;
                self.trunk.send(turn, 0, &Method::ConnectionUnblocked(unblocked));
            }
            self.read(turn);
        } else if alarms.memory
            && self.unfinished_bytes() > 0
            && turn.now >= blocked.since + limits::UNFINISHED_WAIT
        {
            self.blocked = None;
            self.take_back(turn);
        } else {
            let is_late = turn.now >= blocked.look_at;
            if is_late && !blocked.is_told {
                self.tell_blocked(turn);
            }
            let look_at = turn.now + limits::BLOCKED_LOOK;
            let is_told = blocked.is_told || is_late;
            self.blocked = Some(Blocked { look_at, is_told, ..blocked });
        }
    }

    /// A client that is free to end what it has begun, and says nothing for long, does not keep others waiting.
    fn look_whether_silent(&mut self, turn: &mut Turn<'_>) {
        let is_silent = self.unfinished_bytes() > 0
            && turn.now >= self.received_at + limits::UNFINISHED_WAIT
            && self.is_running();
        if is_silent && (turn.view.alarms.memory || self.is_full(turn.view)) {
            self.take_back(turn);
        }
    }

    /// When to look whether a client that has begun something is silent.
    pub(crate) fn silence_look(&self) -> Option<Instant> {
        if self.unfinished_bytes() == 0 || self.blocked.is_some() {
            return None;
        }
        let first = self.received_at + limits::UNFINISHED_WAIT;
        Some(first.max(self.stepped_at + limits::BLOCKED_LOOK))
    }

    fn take_back(&mut self, turn: &mut Turn<'_>) {
        let text = format!(
            "low on memory, of which this connection holds {} bytes in messages that have \
             begun or a transaction: send them again later",
            self.unfinished_bytes()
        );
        self.fail(turn, &Failure::connection(ReplyCode::ResourceError, text));
    }
}
