//! One AMQP connection: methods in, requests to the cluster; answers in, methods out.
//!
//! ```text
//!   header -> start -> verifying -> tune -> open -> running ──client's close──> leaving -> over
//!      └────────┴─────────┴──────────┴───────┴─────────┴──────our close───────> closing ──> over
//! ```
//!
//! The session is a core: its shell (`io::connection`) reads into `buffer`, calls `step`, and does what
//! `Outputs` say. It is told the time and what it may look at, never waits and never asks. What the
//! channels share is in `connection`; what is one channel's is in `channel`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use amqp::{Decoder, Frame, Method, ReplyCode, channel as wire, connection};
use bytes::{Buf as _, Bytes, BytesMut};
use cluster::{Alarms, Answer, Request};
use machine::{Catalog, NodeId, SessionId};

use crate::channel::{CLOSE_OK, Channel, State};
use crate::config::Config;
use crate::connection::flow::Blocked;
use crate::connection::handshake::Login;
pub use crate::connection::login::{LoginRefusal, Notice, Verify};
use crate::connection::tickets::ChannelRef;
use crate::connection::{Trunk, Turn, WallTime};
use crate::errors::Failure;
use crate::limits;
use crate::metrics::Counts;

/// What a step may look at.
pub struct View<'a> {
    /// This node's applied copy.
    pub catalog: &'a Catalog,
    /// Why publishers have to wait, if they do.
    pub alarms: Alarms,
    /// Of all sessions of the node: see `Session::in_flight_bytes`.
    pub in_flight_bytes: u64,
    /// Which reply addresses somebody listens at.
    pub replies: &'a dyn ReplyAddresses,
}

/// Which reply addresses somebody listens at: the node's registry, or a test's list.
pub trait ReplyAddresses {
    /// Whether a reply to `address` would reach somebody now.
    fn is_open(&self, address: &str) -> bool;
}

/// What happens to a session.
#[derive(Debug)]
pub enum Input<'a> {
    /// More bytes are in `Session::buffer`.
    Received,
    /// The cluster has answered. What is taken is drained.
    Answered(&'a mut Vec<Answer>),
    /// Replies came for this session's reply consumers. What is taken is drained.
    Replied(&'a mut Vec<Reply>),
    /// The moment that `deadline` named has come.
    DeadlinePassed,
    /// The bytes that waited are with the socket.
    Written,
    /// The answer to `Outputs::verify`.
    Verified(bool),
    /// An operator closes the connection: 320 with this reason.
    Close(&'a str),
}

/// A message for a reply address: it goes from session to session and is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Where it goes; also its routing key.
    pub address: String,
    /// Flags and values, as on the wire.
    pub properties: Bytes,
    pub body: Bytes,
}

/// What a session wants of the node's registry of reply addresses. To be done in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyOrder {
    /// Replies to this address are for this session.
    Open(String),
    /// Nobody listens there any more.
    Close(String),
    /// To whoever listens there.
    Send(Reply),
}

/// What a session wants done. The shell empties it.
#[derive(Debug, Default)]
pub struct Outputs {
    /// For the socket, behind what waits there already.
    pub bytes: BytesMut,
    /// For the cluster, in order.
    pub requests: Vec<Request>,
    /// For the registry of reply addresses, in order.
    pub replies: Vec<ReplyOrder>,
    /// At most one at a time; answered by `Input::Verified`.
    pub verify: Option<Verify>,
    /// For the log, at most one a step.
    pub notice: Option<Notice>,
    /// Close the socket once the bytes are with it.
    pub close: bool,
}

/// Where a connection is in its life.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The protocol header is due.
    Header,
    /// `connection.start-ok` is due.
    Start,
    /// The password is being checked.
    Verifying(Box<Login>),
    /// `connection.tune-ok` is due.
    Tune,
    /// `connection.open` is due.
    Open,
    Running,
    /// The client closed: it is told when the cluster knows, or cannot say for too long.
    Leaving {
        until: Instant,
    },
    /// We closed: everything but the answer is dropped, until then.
    Closing {
        until: Instant,
    },
    /// Nothing is said and nothing heard until the socket is closed.
    Silent {
        until: Instant,
    },
    Over,
}

/// One AMQP connection.
#[derive(Debug)]
pub struct Session {
    pub(crate) trunk: Trunk,
    /// By number: any number is taken, and `channel_max` bounds how many are open.
    pub(crate) channels: BTreeMap<u16, Box<Channel>>,
    pub(crate) lives: u32,
    pub(crate) channel_max: u16,
    pub(crate) decoder: Decoder,
    pub(crate) received: BytesMut,
    pub(crate) phase: Phase,
    pub(crate) handshake_until: Instant,
    /// The agreed interval; zero is none.
    pub(crate) heartbeat: Duration,
    pub(crate) received_at: Instant,
    pub(crate) stepped_at: Instant,
    pub(crate) sent_at: Instant,
    /// Whether the client was read after the last step.
    pub(crate) is_read: bool,
    /// What it had in flight after the last step: the view counts it.
    pub(crate) in_flight_told: u64,
    /// This publisher waits.
    pub(crate) blocked: Option<Blocked>,
    /// Confirms that finished behind unfinished ones are told then.
    pub(crate) late_confirms_at: Option<Instant>,
    /// When it looks for messages that are out for too long.
    pub(crate) look_at: Option<Instant>,
    /// The catalog's version for which the vhost was last seen to exist.
    pub(crate) catalog_seen: u64,
}

impl Session {
    /// A session for a connection from `peer` that was accepted at `now`, when the wall clock said `wall_ms`
    /// since 1970. `seed` is 32 bytes of chance.
    pub fn new(
        config: Arc<Config>,
        session: SessionId,
        node: NodeId,
        peer: SocketAddr,
        seed: [u8; 32],
        now: Instant,
        wall_ms: u64,
    ) -> Self {
        Self {
            channel_max: config.channel_max,
            handshake_until: now + config.handshake,
            trunk: Trunk::new(config, session, node, peer, seed, WallTime { at: now, ms: wall_ms }),
            channels: BTreeMap::new(),
            lives: 0,
            decoder: Decoder::new(amqp::limits::FRAME_BYTES_BEFORE_TUNE),
            received: BytesMut::new(),
            phase: Phase::Header,
            heartbeat: Duration::ZERO,
            received_at: now,
            stepped_at: now,
            in_flight_told: 0,
            sent_at: now,
            is_read: true,
            blocked: None,
            late_confirms_at: None,
            look_at: None,
            catalog_seen: 0,
        }
    }

    /// Where the shell puts received bytes before `Input::Received`.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.received
    }

    /// Does what follows from `input`. `out` may still hold bytes that the socket did not take.
    pub fn step(&mut self, now: Instant, view: &View<'_>, input: Input<'_>, out: &mut Outputs) {
        let waiting_bytes = out.bytes.len();
        let turn = &mut Turn { now, view, out };
        self.look_whether_blocked(turn);
        match input {
            Input::Received => {
                self.received_at = now;
                self.read(turn);
            }
            Input::Answered(answers) => {
                for answer in answers.drain(..) {
                    self.answered(turn, answer);
                }
                self.read(turn);
            }
            Input::Replied(replies) => {
                for reply in replies.drain(..) {
                    self.replied(turn, &reply);
                }
            }
            Input::DeadlinePassed => self.time_passed(turn),
            Input::Written => self.read(turn),
            Input::Verified(is_right) => {
                self.verified(turn, is_right);
                self.read(turn);
            }
            Input::Close(reason) => self.close_forced(turn, reason),
        }
        self.finish(turn);
        if turn.out.bytes.len() > waiting_bytes {
            self.sent_at = now;
        }
        let was_read = self.is_read;
        self.is_read = self.wants_input(out.bytes.len());
        if !was_read || !self.is_read {
            // Who is not read cannot be heard: its silence counts from when it is read again.
            self.received_at = now;
        }
        self.stepped_at = now;
        self.in_flight_told = self.in_flight_bytes();
    }

    /// When the session wants `Input::DeadlinePassed` at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Header | Phase::Start | Phase::Verifying(_) | Phase::Tune | Phase::Open => {
                Some(self.handshake_until)
            }
            Phase::Leaving { until } | Phase::Closing { until } | Phase::Silent { until } => {
                Some(until)
            }
            Phase::Running => {
                let heartbeat = self.next_heartbeat();
                let late = self.late_confirms_at;
                let blocked = self.blocked.map(|blocked| blocked.look_at);
                let silence = self.silence_look();
                let all = [heartbeat, self.dead_at(), late, self.look_at, blocked, silence];
                all.into_iter().flatten().min()
            }
            Phase::Over => None,
        }
    }

    /// Whether the client is read, `waiting_bytes` being what its socket has not taken.
    pub fn wants_input(&self, waiting_bytes: usize) -> bool {
        self.blocked.is_none()
            && !self.trunk.is_congested()
            && waiting_bytes < limits::OUTBOUND_BYTES_MAX
            && !matches!(self.phase, Phase::Verifying(_) | Phase::Over)
    }

    /// Whether answers are taken: what they hold may become bytes for the socket.
    pub fn wants_answers(&self, waiting_bytes: usize) -> bool {
        waiting_bytes < limits::OUTBOUND_BYTES_MAX
    }

    /// Whether consumers wait for `Input::Written` to be given credit.
    pub fn wants_written(&self) -> bool {
        self.trunk.consumers.wants_credit()
    }

    /// Whether the user is known and the vhost open.
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    /// Whether the user is known: the password was right.
    pub fn is_known(&self) -> bool {
        matches!(self.phase, Phase::Tune | Phase::Open | Phase::Running)
    }

    /// Whether the session only waits for a refused client to go away.
    pub fn is_lingering(&self) -> bool {
        matches!(self.phase, Phase::Silent { .. })
    }

    /// What was counted since the last call.
    pub(crate) fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.trunk.counts)
    }

    /// Takes the frames that have come.
    pub(crate) fn read(&mut self, turn: &mut Turn<'_>) {
        if self.received.is_empty() {
            return;
        }
        let mut input = std::mem::take(&mut self.received);
        let used = self.frames(turn, &input);
        input.advance(used);
        match self.phase {
            Phase::Silent { .. } | Phase::Over | Phase::Leaving { .. } => {}
            Phase::Header
            | Phase::Start
            | Phase::Verifying(_)
            | Phase::Tune
            | Phase::Open
            | Phase::Running
            | Phase::Closing { .. } => self.received = input,
        }
    }

    /// Takes whole frames off the front of `input`. Says how many bytes that were.
    fn frames(&mut self, turn: &mut Turn<'_>, input: &[u8]) -> usize {
        let mut at = 0;
        while !self.trunk.is_congested() && self.blocked.is_none() {
            match self.phase {
                Phase::Header => match self.protocol_header(turn, &input[at..]) {
                    Some(used) => at += used,
                    None => break,
                },
                Phase::Verifying(_) => break,
                Phase::Leaving { .. } | Phase::Silent { .. } | Phase::Over => return input.len(),
                Phase::Start
                | Phase::Tune
                | Phase::Open
                | Phase::Running
                | Phase::Closing { .. } => {
                    match self.decoder.decode(&input[at..]) {
                        Ok(None) => break,
                        Ok(Some((frame, _))) if self.must_wait(turn, &frame) => {
                            self.block(turn);
                            break;
                        }
                        Ok(Some((frame, used))) => {
                            let raw = &input[at..at + used];
                            at += used;
                            at += self.frame(turn, &frame, raw, &input[at..]);
                        }
                        Err(_) if matches!(self.phase, Phase::Closing { .. }) => {
                            // What follows bad bytes cannot be read; the answer may never come.
                            return input.len();
                        }
                        Err(error) => {
                            self.fail(turn, &Failure::from(error));
                            return input.len();
                        }
                    }
                }
            }
        }
        at
    }

    /// Takes a frame and says how much of the `rest` behind it went with it.
    #[inline]
    fn frame(&mut self, turn: &mut Turn<'_>, frame: &Frame<'_>, raw: &[u8], rest: &[u8]) -> usize {
        let number = frame.channel();
        let result = match self.phase {
            Phase::Running if number > 0 => self.channel_frame(turn, number, frame, raw, rest),
            Phase::Running => self.connection_frame(turn, frame).map(|()| 0),
            Phase::Closing { .. } => {
                self.frame_while_closing(turn, frame);
                Ok(0)
            }
            Phase::Header
            | Phase::Start
            | Phase::Verifying(_)
            | Phase::Tune
            | Phase::Open
            | Phase::Leaving { .. }
            | Phase::Silent { .. }
            | Phase::Over => self.handshake_frame(turn, frame).map(|()| 0),
        };
        match result {
            Ok(used) => used,
            Err(failure) => {
                self.fail(turn, &failure);
                0
            }
        }
    }

    #[inline]
    fn channel_frame(
        &mut self,
        turn: &mut Turn<'_>,
        number: u16,
        frame: &Frame<'_>,
        raw: &[u8],
        rest: &[u8],
    ) -> Result<usize, Failure> {
        let Some(channel) = self.channels.get_mut(&number) else {
            return self.frame_of_no_channel(turn, number, frame).map(|()| 0);
        };
        let used = channel.frame(&mut self.trunk, turn, &self.decoder, frame, raw, rest)?;
        if channel.state == State::Gone {
            self.forget(number);
        }
        Ok(used)
    }

    fn frame_of_no_channel(
        &mut self,
        turn: &mut Turn<'_>,
        number: u16,
        frame: &Frame<'_>,
    ) -> Result<(), Failure> {
        let expected = || Failure::connection(ReplyCode::ChannelError, "expected 'channel.open'");
        let Frame::Method { payload, .. } = frame else { return Err(expected()) };
        let ids = Method::peek_ids(payload).unwrap_or_default();
        if ids == CLOSE_OK {
            return Ok(());
        }
        match Method::decode(payload) {
            Ok(Method::ChannelOpen(_)) => {}
            Ok(_) | Err(_) => return Err(Failure { ids, ..expected() }),
        }
        let (open, max) = (self.channels.len(), self.channel_max);
        if open >= usize::from(max) {
            let text = format!(
                "number of channels opened ({open}) has reached the negotiated channel_max ({max})"
            );
            return Err(Failure::connection(ReplyCode::NotAllowed, text));
        }
        self.lives += 1;
        let at = ChannelRef { number, life: self.lives };
        self.channels.insert(number, Box::new(Channel::new(at)));
        self.trunk.counts.channels_opened += 1;
        self.trunk.send(turn, number, &Method::ChannelOpenOk(wire::OpenOk));
        Ok(())
    }

    fn connection_frame(&mut self, turn: &mut Turn<'_>, frame: &Frame<'_>) -> Result<(), Failure> {
        let payload = match frame {
            Frame::Heartbeat { .. } => return Ok(()),
            Frame::Method { payload, .. } => payload,
            Frame::Header { .. } | Frame::Body { .. } => {
                let text = "expected method frame, got content frame instead";
                return Err(Failure::connection(ReplyCode::UnexpectedFrame, text));
            }
        };
        let method = Method::decode(payload)?;
        match method {
            Method::ConnectionClose(_) => self.leave(turn),
            Method::ConnectionUpdateSecret(_) => {
                let answer = connection::UpdateSecretOk;
                self.trunk.send(turn, 0, &Method::ConnectionUpdateSecretOk(answer));
            }
            other => {
                return Err(Failure { ids: other.ids(), ..crate::errors::unexpected(other.name()) });
            }
        }
        Ok(())
    }

    /// The channel is over: its number is free.
    pub(crate) fn forget(&mut self, number: u16) {
        if let Some(mut channel) = self.channels.remove(&number) {
            channel.drop_deferred(&mut self.trunk);
            self.trunk.counts.channels_closed += 1;
        }
    }
}

/// The channel, if it still is in the life it is known by.
pub(crate) fn find(
    channels: &mut BTreeMap<u16, Box<Channel>>,
    at: ChannelRef,
) -> Option<&mut Channel> {
    let channel = channels.get_mut(&at.number)?;
    (channel.at == at).then_some(channel)
}
