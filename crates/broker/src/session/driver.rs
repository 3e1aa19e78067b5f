//! A session with the bytes that wait for its socket: what it may be given next, and what a step means for whoever
//! moves the bytes.
//!
//! There are two shells around a session: `io::connection` with a socket, and the simulator's with bytes that travel
//! through a simulated network. Both ask here and decide nothing.
//!
//! ```text
//!   wants ──> the shell waits for one of these ──> received, written, or an input of another kind ──> step
//!     ^                                                                                                 │
//!     └──────────── the shell empties `outputs`, sends what waits, and asks `end` ──────────────────────┘
//! ```

use std::time::{Duration, Instant};

use bytes::BytesMut;
use cluster::Alarms;

use super::describe::{ConnectionLine, HeldBy};
use super::{Input, Outputs, Session, View};
use crate::exchange_counts::ExchangeCounts;
use crate::limits;
use crate::metrics::{Counts, Metrics};

/// A buffer of bytes to send that is larger than this is given back once it is empty.
const KEPT_OUT_BYTES: usize = 256 * 1024;

/// A session, and what waits for its socket.
#[derive(Debug)]
pub struct Driver {
    session: Session,
    outputs: Outputs,
    /// How much is read at once.
    read_bytes: usize,
    /// A client that takes no bytes for so long is given up.
    write_stall: Duration,
    /// Since when bytes wait that the socket does not take.
    stalled_since: Option<Instant>,
    /// Bytes that waited when this was last looked at.
    waited_bytes: usize,
    load: Load,
    blocked: Option<Short>,
}

/// What a session may be given now, besides answers, which are always taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    /// The socket is to be read, at most so many bytes at once. `None`: not now.
    pub read_bytes: Option<usize>,
    /// Replies are taken.
    pub replies: bool,
    /// [`Driver::written`] is to be called when everything that waits is with the socket.
    pub written: bool,
    /// The publisher waits: `Input::DeadlinePassed` when other sessions of the node leave room.
    pub room: bool,
    /// When `Input::DeadlinePassed` is due, at the latest.
    pub deadline: Option<Instant>,
}

/// What a connection has of what its node counts. Counted in whole steps, so that small messages cost no count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Of its publishers, in whole [`limits::IN_FLIGHT_STEP`]s.
    pub in_flight_bytes: u64,
    /// On their way to the client, in whole [`limits::OUTBOUND_BYTES_FLOOR`]s.
    pub outbound_bytes: u64,
    pub consumers: u64,
    pub channels: u64,
    /// Channels that have published.
    pub publishers: u64,
}

impl std::ops::AddAssign for Load {
    fn add_assign(&mut self, other: Self) {
        self.in_flight_bytes += other.in_flight_bytes;
        self.outbound_bytes += other.outbound_bytes;
        self.consumers += other.consumers;
        self.channels += other.channels;
        self.publishers += other.publishers;
    }
}

/// What is short while publishers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    Memory,
    Disk,
    /// The node's publishers together have in flight what they may.
    InFlight,
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything is said.
    Done,
    /// The client, or the node, is gone.
    Lost,
    /// The client has taken no bytes for too long.
    Stalled,
}

/// What publishers wait for that do.
fn short(alarms: Alarms) -> Short {
    match alarms {
        Alarms { memory: true, .. } => Short::Memory,
        Alarms { disk: true, .. } => Short::Disk,
        Alarms { memory: false, disk: false } => Short::InFlight,
    }
}

fn held_by(short: Short) -> HeldBy {
    match short {
        Short::Memory => HeldBy::Memory,
        Short::Disk => HeldBy::Disk,
        Short::InFlight => HeldBy::InFlight,
    }
}

impl Driver {
    pub fn new(session: Session, write_stall: Duration) -> Self {
        Self {
            session,
            outputs: Outputs::default(),
            read_bytes: limits::READ_BYTES_BEFORE_AUTH,
            write_stall,
            stalled_since: None,
            waited_bytes: 0,
            load: Load::default(),
            blocked: None,
        }
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    /// What the last step wants done. The shell empties it; `bytes` as the socket takes them.
    pub fn outputs(&mut self) -> &mut Outputs {
        &mut self.outputs
    }

    /// Where received bytes go, and the bytes to send.
    pub fn socket(&mut self) -> (&mut BytesMut, &mut BytesMut) {
        (self.session.buffer(), &mut self.outputs.bytes)
    }

    /// Bytes that wait for the socket.
    pub fn waiting_bytes(&self) -> usize {
        self.outputs.bytes.len()
    }

    /// What the connection is doing now.
    pub fn describe_line(&self) -> ConnectionLine {
        let line = self.session.describe_line(self.waiting_bytes());
        let blocked_by = self.blocked.map(held_by).or(line.blocked_by);
        ConnectionLine { blocked_by, ..line }
    }

    /// As of the last step.
    pub fn load(&self) -> Load {
        self.load
    }

    /// Why its publishers wait, if they do, as of the last step.
    pub fn blocked(&self) -> Option<Short> {
        self.blocked
    }

    /// Adds what was counted to the node's totals, and to those of the connection.
    pub(crate) fn tell_counts(&mut self, metrics: &Metrics) {
        self.session.tell_counts(metrics);
    }

    /// The vhost, and what was published there by exchange and not told.
    pub(crate) fn exchanges(&mut self) -> (&str, &mut ExchangeCounts) {
        self.session.exchanges()
    }

    /// What was counted and is not told once the connection is over.
    pub(crate) fn last_counts(&mut self) -> &mut Counts {
        self.session.last_counts()
    }

    /// What the session may be given now. It changes with every step, and with the bytes that the socket takes.
    pub fn wants(&self) -> Wants {
        let waiting_bytes = self.waiting_bytes();
        let may_read = self.session.wants_input(waiting_bytes) && !self.outputs.close;
        let stalled = self.stalled_since.map(|since| since + self.write_stall);
        Wants {
            read_bytes: may_read.then_some(self.read_bytes),
            replies: self.session.wants_replies(waiting_bytes),
            written: self.session.wants_written(waiting_bytes)
                || self.load.outbound_bytes > 0
                || self.outputs.close,
            room: self.session.is_blocked(),
            deadline: [self.session.deadline(), stalled].into_iter().flatten().min(),
        }
    }

    /// So many bytes came from the client, and are in the session's buffer. 0: nothing comes any more.
    pub fn received(&mut self, count: usize) -> Result<Input<'static>, End> {
        if count == 0 {
            return Err(End::Lost);
        }
        self.session.moved(count, 0);
        if self.session.is_running() {
            let is_busy = count >= self.read_bytes / 2;
            self.read_bytes = if is_busy { limits::READ_BYTES_BUSY } else { limits::READ_BYTES };
        }
        Ok(Input::Received)
    }

    /// Everything that waited is with the socket.
    pub fn written(&self) -> Result<Input<'static>, End> {
        if self.outputs.close { Err(End::Done) } else { Ok(Input::Written) }
    }

    /// Gives the session what happened.
    pub fn step(&mut self, now: Instant, view: &View<'_>, input: Input<'_>) -> Result<(), End> {
        self.look_at_writes(now);
        if self.stalled_since.is_some_and(|since| now >= since + self.write_stall) {
            return Err(End::Stalled);
        }
        let is_quiet = matches!(input, Input::DeadlinePassed);
        self.session.step(now, view, input, &mut self.outputs);
        let waiting_bytes = self.waiting_bytes();
        self.waited_bytes = waiting_bytes;
        if waiting_bytes > 0 {
            // Nothing else may happen for long: the time runs from here, unless the socket takes something.
            self.stalled_since.get_or_insert(now);
        }
        let whole = |bytes: u64, step: u64| bytes - bytes % step;
        let outbound_bytes = self.session.outbound_bytes(waiting_bytes);
        let (channels, publishers) = self.session.channel_counts();
        self.load = Load {
            in_flight_bytes: whole(self.session.in_flight_bytes(), limits::IN_FLIGHT_STEP),
            outbound_bytes: whole(outbound_bytes, limits::OUTBOUND_BYTES_FLOOR as u64),
            consumers: self.session.consumer_count(),
            channels,
            publishers,
        };
        self.blocked = self.session.is_blocked().then(|| short(view.alarms));
        if is_quiet && self.session.buffer().is_empty() {
            // What a burst needed is given back when nothing comes.
            *self.session.buffer() = BytesMut::new();
        }
        Ok(())
    }

    /// The spans that are open once the connection is over, however it ended.
    pub(crate) fn last_spans(&mut self, now: Instant) -> Vec<otlp::Span> {
        self.session.last_spans(now)
    }

    /// Whether the connection is over once the outputs of a step are dealt with.
    pub fn end(&self) -> Option<End> {
        (self.outputs.close && self.outputs.bytes.is_empty()).then_some(End::Done)
    }

    /// Remembers since when the socket takes nothing.
    pub fn look_at_writes(&mut self, now: Instant) {
        let waiting = self.waiting_bytes();
        self.session.moved(0, self.waited_bytes.saturating_sub(waiting));
        if waiting == 0 {
            self.stalled_since = None;
            if self.outputs.bytes.capacity() > KEPT_OUT_BYTES {
                self.outputs.bytes = BytesMut::new();
            }
        } else if waiting < self.waited_bytes || self.stalled_since.is_none() {
            self.stalled_since = Some(now);
        }
        self.waited_bytes = waiting;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;

    use machine::{Catalog, NodeId, SessionId};

    use super::*;
    use crate::config::Config;
    use crate::population::Population;
    use crate::session::ReplyAddresses;

    const STALL: Duration = Duration::from_secs(1);

    struct NoAddresses;

    impl ReplyAddresses for NoAddresses {
        fn is_open(&self, _address: &str) -> bool {
            false
        }
    }

    struct World {
        driver: Driver,
        now: Instant,
        catalog: Catalog,
    }

    impl World {
        #[allow(clippy::disallowed_methods, reason = "somewhere to count from")]
        fn new() -> Self {
            let (now, peer) = (Instant::now(), ([127, 0, 0, 1], 40_000).into());
            let config = Arc::new(Config::default());
            let session = Session::new(config, SessionId(1), NodeId(1), peer, [0; 32], now, 0);
            let catalog = Catalog::new(1);
            Self { driver: Driver::new(session, STALL), now, catalog }
        }

        fn step(&mut self, input: Input<'_>) -> Result<(), End> {
            let view = View {
                catalog: &self.catalog,
                alarms: Alarms::default(),
                in_flight_bytes: 0,
                outbound_bytes: 0,
                consumers: 0,
                replies: &NoAddresses,
                quotas: &RefCell::new(Population::default()),
            };
            self.driver.step(self.now, &view, input)
        }

        /// The client sends this.
        fn receives(&mut self, bytes: &[u8]) {
            self.driver.socket().0.extend_from_slice(bytes);
            let input = self.driver.received(bytes.len()).unwrap();
            self.step(input).unwrap();
        }
    }

    #[test]
    fn a_connection_that_closes_is_read_no_more_and_ends_when_its_last_bytes_are_sent() {
        let mut world = World::new();
        assert!(world.driver.wants().read_bytes.is_some());
        world.receives(b"HTTP/1.1");
        assert!(world.driver.outputs().close, "it is no AMQP");
        let wants = world.driver.wants();
        assert!(wants.read_bytes.is_none() && wants.written);
        assert_eq!(world.driver.end(), None, "the client is told first");
        world.driver.socket().1.clear();
        assert_eq!(world.driver.end(), Some(End::Done));
        assert_eq!(world.driver.written().unwrap_err(), End::Done);
    }

    #[test]
    fn a_client_that_takes_no_byte_for_too_long_is_given_up_and_one_that_takes_some_is_not() {
        let mut world = World::new();
        world.receives(b"AMQP\0\0\x09\x01");
        assert_eq!(world.driver.wants().deadline, Some(world.now + STALL));
        world.now += STALL - Duration::from_millis(1);
        let _ = world.driver.socket().1.split_to(1);
        assert_eq!(world.step(Input::DeadlinePassed), Ok(()));
        world.now += Duration::from_millis(1);
        assert_eq!(world.step(Input::DeadlinePassed), Ok(()), "it took a byte");
        world.now += STALL;
        assert_eq!(world.step(Input::DeadlinePassed), Err(End::Stalled));
    }

    #[test]
    fn no_more_is_read_at_once_of_a_stranger_than_it_is_to_have() {
        let mut world = World::new();
        let most = limits::READ_BYTES_BEFORE_AUTH;
        world.receives(b"AMQP\0\0\x09\x01");
        assert!(world.driver.received(most).is_ok());
        assert_eq!(world.driver.wants().read_bytes, Some(most));
        assert_eq!(world.driver.received(0).unwrap_err(), End::Lost);
    }
}
