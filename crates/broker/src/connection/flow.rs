//! Publishers wait while the node is low on memory or disk. Who does not publish is served: a connection waits from
//! its next `basic.publish`, or the next part of a message that has begun, and nothing behind that is looked at.

use std::time::Instant;

use amqp::{Method, ReplyCode, connection};
use cluster::Alarms;

use super::ConnectionState;
use super::step::Step;
use crate::errors::Failure;
use crate::limits;
use crate::session::boundary::View;

/// Whether this connection's publishers wait.
#[derive(Debug)]
pub(crate) struct Flow {
    blocked: Option<Blocked>,
    /// What the connection had in flight after the last step: the view counts it.
    in_flight_told: u64,
    stepped_at: Instant,
}

/// A publisher that waits: what it sent lies in `Session::received`, and its socket is not read.
#[derive(Clone, Copy, Debug)]
struct Blocked {
    since: Instant,
    /// When to look again whether it still has to wait.
    look_at: Instant,
    /// The client was told, if it understands.
    is_told: bool,
}

/// What follows from a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// All stays as it is.
    Unchanged,
    /// The publisher goes on.
    GoOn,
    /// The connection is closed: it holds memory that is short, and does not give it back.
    TakeBack,
}

impl Flow {
    pub(crate) fn new(now: Instant) -> Self {
        Self { blocked: None, in_flight_told: 0, stepped_at: now }
    }

    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// A step is over that leaves so much in flight.
    pub(crate) fn stepped(&mut self, now: Instant, in_flight_bytes: u64) {
        self.stepped_at = now;
        self.in_flight_told = in_flight_bytes;
    }

    /// Whether all publishers of the node together have in flight what they may. The view is of before this step.
    #[inline]
    fn is_full(&self, connection: &ConnectionState, view: &View<'_>) -> bool {
        let others = view.in_flight_bytes.saturating_sub(self.in_flight_told);
        others + connection.in_flight_bytes() >= connection.client.config.in_flight_bytes_max
    }

    /// Whether publishers have to wait.
    #[inline]
    pub(crate) fn is_short(&self, connection: &ConnectionState, view: &View<'_>) -> bool {
        view.alarms.any() || self.is_full(connection, view)
    }

    /// Why publishers have to wait.
    fn shortage(&self, connection: &ConnectionState, view: &View<'_>) -> Alarms {
        let memory = view.alarms.memory || self.is_full(connection, view);
        Alarms { memory, disk: view.alarms.disk }
    }

    /// The client waits. Of an alarm it is told at once; that too much is in flight passes by itself, mostly
    /// within milliseconds, and is TCP's to say unless it lasts.
    pub(crate) fn block(&mut self, connection: &ConnectionState, step: &mut Step<'_>) {
        let look_at = step.now + limits::BLOCKED_LOOK;
        let is_told = step.view.alarms.any();
        self.blocked = Some(Blocked { since: step.now, look_at, is_told });
        if is_told {
            self.tell_blocked(connection, step);
        }
    }

    fn tell_blocked(&self, connection: &ConnectionState, step: &mut Step<'_>) {
        if !connection.client.capabilities.connection_blocked {
            return;
        }
        let alarms = self.shortage(connection, step.view);
        let reason = match (alarms.memory, alarms.disk) {
            (true, true) => "low on memory & low on disk",
            (true, false) => "low on memory",
            (false, _) => "low on disk",
        };
        let blocked = connection::Blocked { reason };
        connection.client.send(step, 0, &Method::ConnectionBlocked(blocked));
    }

    /// A publisher that waits goes on once there is room. One that itself holds memory which is short does not
    /// hold it for ever. `received_at` is when its bytes came last.
    pub(crate) fn look(
        &mut self,
        connection: &ConnectionState,
        step: &mut Step<'_>,
        is_running: bool,
        received_at: Instant,
    ) -> Look {
        let Some(blocked) = self.blocked else {
            return self.look_whether_silent(connection, step, is_running, received_at);
        };
        if !is_running {
            self.blocked = None;
            return Look::Unchanged;
        }
        let alarms = self.shortage(connection, step.view);
        if !alarms.any() {
            self.blocked = None;
            if blocked.is_told && connection.client.capabilities.connection_blocked {
                let unblocked = connection::Unblocked;
                connection.client.send(step, 0, &Method::ConnectionUnblocked(unblocked));
            }
            return Look::GoOn;
        }
        if alarms.memory
            && connection.publishers.unfinished.bytes() > 0
            && step.now >= blocked.since + limits::UNFINISHED_WAIT
        {
            self.blocked = None;
            return Look::TakeBack;
        }
        let is_late = step.now >= blocked.look_at;
        if is_late && !blocked.is_told {
            self.tell_blocked(connection, step);
        }
        let look_at = step.now + limits::BLOCKED_LOOK;
        let is_told = blocked.is_told || is_late;
        self.blocked = Some(Blocked { look_at, is_told, ..blocked });
        Look::Unchanged
    }

    /// A client that is free to end what it has begun, and says nothing for long, does not keep others waiting.
    fn look_whether_silent(
        &self,
        connection: &ConnectionState,
        step: &Step<'_>,
        is_running: bool,
        received_at: Instant,
    ) -> Look {
        let is_silent = connection.publishers.unfinished.bytes() > 0
            && step.now >= received_at + limits::UNFINISHED_WAIT
            && is_running;
        let is_short = || step.view.alarms.memory || self.is_full(connection, step.view);
        if is_silent && is_short() { Look::TakeBack } else { Look::Unchanged }
    }

    /// When to look again.
    pub(crate) fn look_at(
        &self,
        connection: &ConnectionState,
        received_at: Instant,
    ) -> Option<Instant> {
        if let Some(blocked) = self.blocked {
            return Some(blocked.look_at);
        }
        if connection.publishers.unfinished.bytes() == 0 {
            return None;
        }
        // Whether a client that has begun something is silent.
        let first = received_at + limits::UNFINISHED_WAIT;
        Some(first.max(self.stepped_at + limits::BLOCKED_LOOK))
    }
}

/// Why a connection is closed that does not give back what is short.
pub(crate) fn taken_back(connection: &ConnectionState) -> Failure {
    let text = format!(
        "low on memory, of which this connection holds {} bytes in messages that have \
         begun or a transaction: send them again later",
        connection.publishers.unfinished.bytes()
    );
    Failure::connection(ReplyCode::ResourceError, text)
}
