//! One AMQP connection: methods in, requests to the cluster; answers in, methods out.
//!
//! ```text
//!   header -> start -> verifying -> tune -> open -> running ──client's close──> leaving -> over
//!      └────────┴─────────┼──────────┴───────┴─────────┴──────our close───────> closing ──> over
//!                         └──login refused, and the client knows no such close─> silent ──> over
//! ```
//!
//! A handshake that takes too long is over at once. A client whose certificate is its login goes from start to tune.
//!
//! The session is a core: its shell (`io::connection`) reads into `buffer`, calls `step`, and does what
//! `Outputs` say. It is told the time and what it may look at, never waits and never asks. What the
//! channels share is in `connection`; what is one channel's is in `channel`.

mod answers;
pub(crate) mod boundary;
mod closing;
pub mod describe;
pub mod driver;
mod opening;
mod pausing;
mod step_end;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use amqp::{Decoder, Frame, Method, ReplyCode, channel as wire};
use bytes::{Buf as _, BytesMut};
use machine::{NodeId, SessionId};

pub use self::boundary::{Input, Outputs, PauseOrder, Reply, ReplyAddresses, ReplyOrder, View};
use crate::channel::{CLOSE_OK, Channel, PUBLISH, State};
use crate::config::Config;
use crate::connection::ConnectionState;
use crate::connection::client::{Client, WallTime};
use crate::connection::events::tell_channel;
use crate::connection::flow::{Flow, Look, taken_back};
use crate::connection::handshake::Login;
use crate::connection::heartbeat::Heartbeat;
pub(crate) use crate::connection::login::Proven;
pub use crate::connection::login::{Certified, Judge, Judged, LoginRefusal, Notice, Verify};
use crate::connection::step::Step;
use crate::connection::tickets::ChannelRef;
use crate::errors::{Failure, unexpected};
use crate::exchange_counts::ExchangeCounts;
use crate::limits;
use crate::metrics::{Counts, Metrics};
use crate::spans::Spans;

/// Where a connection is in its life.
#[derive(Debug)]
enum Phase {
    /// The protocol header is due.
    Header,
    /// `connection.start-ok` is due.
    Start,
    /// The password or the token is being checked.
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
    connection: ConnectionState,
    /// By number: any number is taken, and `channel_max` bounds how many are open.
    channels: BTreeMap<u16, Box<Channel>>,
    lives: u32,
    channel_max: u16,
    decoder: Decoder,
    received: BytesMut,
    phase: Phase,
    /// A token that takes the place of the client's is being judged: nothing is read meanwhile.
    is_renewing: bool,
    handshake_until: Instant,
    heartbeat: Heartbeat,
    flow: Flow,
    /// Confirms that finished behind unfinished ones are told then.
    late_confirms_at: Option<Instant>,
    /// The catalog's version for which the vhost and the user were last seen to exist.
    catalog_seen: u64,
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
        let (channel_max, handshake) = (config.channel_max, config.handshake);
        let frame_bytes_max = match config.takes_tokens {
            true => limits::FRAME_BYTES_WITH_TOKEN,
            false => amqp::limits::FRAME_BYTES_BEFORE_TUNE,
        };
        let client = Client::new(config, session, node, peer, WallTime { at: now, ms: wall_ms });
        Self {
            connection: ConnectionState::new(client, seed),
            channels: BTreeMap::new(),
            lives: 0,
            channel_max,
            decoder: Decoder::new(frame_bytes_max),
            received: BytesMut::new(),
            phase: Phase::Header,
            is_renewing: false,
            handshake_until: now + handshake,
            heartbeat: Heartbeat::new(now),
            flow: Flow::new(now),
            late_confirms_at: None,
            catalog_seen: 0,
        }
    }

    /// The same for a client whose certificate was verified: it may log in as whom that names.
    #[must_use]
    pub fn certified(self, certified: Certified) -> Self {
        self.proven(Proven::Certificate(certified))
    }

    /// The same for a client that is known.
    #[must_use]
    pub(crate) fn proven(mut self, proven: Proven) -> Self {
        self.connection.client.proven = Some(proven);
        self
    }

    /// The same where spans are collected. `server`: the node's address that the client has connected to.
    #[must_use]
    pub(crate) fn with_spans(mut self, server: Option<SocketAddr>) -> Self {
        self.connection.spans = Some(Box::new(Spans::new(server)));
        self
    }

    /// Where the shell puts received bytes before `Input::Received`.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.received
    }

    /// Does what follows from `input`. `out` may still hold bytes that the socket did not take.
    pub fn step(&mut self, now: Instant, view: &View<'_>, input: Input<'_>, out: &mut Outputs) {
        let waiting_bytes = out.bytes.len();
        let is_tapped = self.is_tapped(view);
        let step = &mut Step { now, view, out, is_tapped };
        self.connection.requests.appends.begin_step(now);
        self.look_at_token(step);
        self.begin_step(step);
        self.look_whether_blocked(step);
        match input {
            Input::Received => {
                self.heartbeat.received(now);
                self.read(step);
            }
            Input::Answered(answers) => {
                for answer in answers.drain(..) {
                    self.answered_in_turn(step, answer);
                }
                self.read(step);
            }
            Input::Replied(replies) => {
                for reply in replies.drain(..) {
                    self.replied(step, &reply);
                }
            }
            Input::DeadlinePassed => self.time_passed(step),
            Input::Written => self.read(step),
            Input::Verified(is_right) => {
                self.verified(step, is_right);
                self.read(step);
            }
            Input::Judged(judged) => {
                self.judged(step, judged);
                self.read(step);
            }
            Input::Close(reason) => self.close_forced(step, reason),
            Input::Pause(orders) => {
                orders.drain(..).for_each(|order| self.pause_consumer(step, order));
            }
        }
        self.finish(step);
        if step.out.bytes.len() > waiting_bytes {
            self.heartbeat.sent(now);
        }
        let is_read = self.wants_input(out.bytes.len());
        self.connection.outbound.end_step(out.bytes.len());
        self.heartbeat.reads(now, is_read);
        self.flow.stepped(now, self.in_flight_bytes());
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
                let (heartbeat, dead) = (self.heartbeat.next(), self.heartbeat.dead_at());
                let (late, acks) = (self.late_confirms_at, self.connection.ack_timeout.look_at);
                let flow = self.flow.look_at(&self.connection, self.heartbeat.received_at());
                let expires = self.connection.client.expires_at;
                let again = self.connection.consumers.tell_again_at();
                [heartbeat, dead, late, acks, flow, expires, again].into_iter().flatten().min()
            }
            Phase::Over => None,
        }
    }

    /// Bytes that this connection's publishers have in flight: bodies that have begun, at the size that was
    /// announced; open transactions; and what is whole and not known to be on a majority's disks.
    pub fn in_flight_bytes(&self) -> u64 {
        self.connection.in_flight_bytes()
    }

    /// Bytes on their way to the client: answers that wait their turn, and the `waiting_bytes` that its socket has not
    /// taken.
    pub fn outbound_bytes(&self, waiting_bytes: usize) -> u64 {
        self.connection.outbound.bytes(waiting_bytes)
    }

    /// Consumers of all its channels.
    pub fn consumer_count(&self) -> u64 {
        self.connection.consumers.count()
    }

    /// Channels that are open.
    pub fn channel_count(&self) -> u64 {
        self.channels.len() as u64
    }

    /// Whether this publisher waits: it goes on when others leave room.
    pub fn is_blocked(&self) -> bool {
        self.flow.is_blocked()
    }

    /// Whether the client is read, `waiting_bytes` being what its socket has not taken.
    pub fn wants_input(&self, waiting_bytes: usize) -> bool {
        !self.flow.is_blocked()
            && !self.connection.is_congested()
            && self.connection.outbound.has_room(waiting_bytes)
            && !self.is_renewing
            && !matches!(self.phase, Phase::Verifying(_) | Phase::Over)
    }

    /// Whether replies are taken: they become bytes for the socket at once. The cluster's answers are always taken.
    pub fn wants_replies(&self, waiting_bytes: usize) -> bool {
        self.connection.outbound.has_room(waiting_bytes)
    }

    /// Whether something waits for `Input::Written`: credit for consumers, answers, or the client to be read.
    pub fn wants_written(&self, waiting_bytes: usize) -> bool {
        self.connection.consumers.wants_credit() || self.connection.outbound.waits(waiting_bytes)
    }

    /// Whether the user is known and the vhost open.
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    /// Whether the user is known: the password, certificate or token was right.
    pub fn is_known(&self) -> bool {
        matches!(self.phase, Phase::Tune | Phase::Open | Phase::Running)
    }

    /// Whether the session only waits for a refused client to go away.
    pub fn is_lingering(&self) -> bool {
        matches!(self.phase, Phase::Silent { .. })
    }

    /// Channels that are open, and those of them that have published.
    pub fn channel_counts(&self) -> (u64, u64) {
        (self.channels.len() as u64, self.connection.publishers.count)
    }

    /// Bytes came from the client, or the socket has taken some.
    pub(crate) fn moved(&mut self, received_bytes: usize, sent_bytes: usize) {
        let traffic = &mut self.connection.traffic;
        traffic.received_bytes += received_bytes as u64;
        traffic.sent_bytes += sent_bytes as u64;
    }

    /// Adds what was counted to the node's totals, and to those of the connection.
    pub(crate) fn tell_counts(&mut self, metrics: &Metrics) {
        let ConnectionState { counts, traffic, .. } = &mut self.connection;
        counts.add_to(traffic);
        metrics.take(counts);
    }

    /// The vhost, and what was published there by exchange and not told.
    pub(crate) fn exchanges(&mut self) -> (&str, &mut ExchangeCounts) {
        let ConnectionState { client, publishers, .. } = &mut self.connection;
        (&client.vhost, &mut publishers.exchanges)
    }

    /// What was counted and is not told once the connection is over, however it ended: no channel is left.
    pub(crate) fn last_counts(&mut self) -> &mut Counts {
        self.end_channels();
        &mut self.connection.counts
    }

    /// The spans that are open once the connection is over, however it ended.
    pub(crate) fn last_spans(&mut self, now: Instant) -> Vec<otlp::Span> {
        let mut last = Vec::new();
        if let Some(spans) = &mut self.connection.spans {
            spans.end(now, &mut last);
        }
        last
    }

    /// Whether somebody wants to see what passes: see `tap`.
    fn is_tapped(&self, view: &View<'_>) -> bool {
        let ConnectionState { client, spans, .. } = &self.connection;
        spans.is_some() || view.catalog.traces(&client.vhost)
    }

    /// Looks how much may be on its way, and goes on with what waited for that.
    fn begin_step(&mut self, step: &mut Step<'_>) {
        let ConnectionState { client, consumers, outbound, .. } = &mut self.connection;
        let View { outbound_bytes, consumers: consumer_count, .. } = *step.view;
        outbound.begin_step(outbound_bytes, client.config.outbound_bytes_max, consumer_count);
        consumers.window_bytes = outbound.window_bytes();
        let mut has_gone_on = false;
        while let Some(answer) = self.connection.outbound.next(step.out.bytes.len()) {
            self.answered(step, answer);
            has_gone_on = true;
        }
        if has_gone_on {
            self.read(step);
        }
    }

    /// A publisher that waits goes on once there is room, or is closed because it holds what is short.
    fn look_whether_blocked(&mut self, step: &mut Step<'_>) {
        let (is_running, received_at) = (self.is_running(), self.heartbeat.received_at());
        match self.flow.look(&self.connection, step, is_running, received_at) {
            Look::Unchanged => {}
            Look::GoOn => self.read(step),
            Look::TakeBack => self.fail(step, &taken_back(&self.connection)),
        }
    }

    /// Whether the frame publishes, and publishers have to wait. A body that has begun has its room in memory, and
    /// its end frees that: only the disk holds it back.
    #[inline]
    fn must_wait(&self, step: &Step<'_>, frame: &Frame<'_>) -> bool {
        if !self.flow.is_short(&self.connection, step.view) || !self.is_running() {
            return false;
        }
        match frame {
            Frame::Method { payload, .. } => {
                Method::peek_ids(payload) == Some(PUBLISH) && self.is_open(frame.channel())
            }
            Frame::Header { channel, .. } => self.is_open(*channel),
            Frame::Body { channel, .. } => step.view.alarms.disk && self.is_open(*channel),
            Frame::Heartbeat { .. } => false,
        }
    }

    fn is_open(&self, channel: u16) -> bool {
        let channel = self.channels.get(&channel);
        channel.is_some_and(|channel| channel.state == State::Open)
    }

    /// Takes the frames that have come.
    fn read(&mut self, step: &mut Step<'_>) {
        if self.received.is_empty() {
            return;
        }
        let mut input = std::mem::take(&mut self.received);
        let used = self.frames(step, &input);
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
    fn frames(&mut self, step: &mut Step<'_>, input: &[u8]) -> usize {
        let mut at = 0;
        while !self.connection.is_congested() && !self.flow.is_blocked() && !self.is_renewing {
            match self.phase {
                Phase::Header => match self.protocol_header(step, &input[at..]) {
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
                        Ok(Some((frame, _))) if self.must_wait(step, &frame) => {
                            self.flow.block(&self.connection, step);
                            break;
                        }
                        Ok(Some((frame, used))) => {
                            let raw = &input[at..at + used];
                            at += used;
                            at += self.frame(step, &frame, raw, &input[at..]);
                        }
                        Err(_) if matches!(self.phase, Phase::Closing { .. }) => {
                            // What follows bad bytes cannot be read; the answer may never come.
                            return input.len();
                        }
                        Err(error) => {
                            self.fail(step, &Failure::from(error));
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
    fn frame(&mut self, step: &mut Step<'_>, frame: &Frame<'_>, raw: &[u8], rest: &[u8]) -> usize {
        let number = frame.channel();
        let result = match self.phase {
            Phase::Running if number > 0 => self.channel_frame(step, number, frame, raw, rest),
            Phase::Running => self.connection_frame(step, frame).map(|()| 0),
            Phase::Closing { .. } => {
                self.frame_while_closing(step, frame);
                Ok(0)
            }
            Phase::Header
            | Phase::Start
            | Phase::Verifying(_)
            | Phase::Tune
            | Phase::Open
            | Phase::Leaving { .. }
            | Phase::Silent { .. }
            | Phase::Over => self.handshake_frame(step, frame).map(|()| 0),
        };
        match result {
            Ok(used) => used,
            Err(failure) => {
                self.fail(step, &failure);
                0
            }
        }
    }

    #[inline]
    fn channel_frame(
        &mut self,
        step: &mut Step<'_>,
        number: u16,
        frame: &Frame<'_>,
        raw: &[u8],
        rest: &[u8],
    ) -> Result<usize, Failure> {
        let Some(channel) = self.channels.get_mut(&number) else {
            return self.frame_of_no_channel(step, number, frame).map(|()| 0);
        };
        let used = channel.frame(&mut self.connection, step, &self.decoder, frame, raw, rest)?;
        if channel.state == State::Gone {
            self.forget(number);
        }
        Ok(used)
    }

    fn frame_of_no_channel(
        &mut self,
        step: &mut Step<'_>,
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
        self.check_channels(step, open as u64)?;
        self.lives += 1;
        let at = ChannelRef { number, life: self.lives };
        self.channels.insert(number, Box::new(Channel::new(at)));
        self.connection.counts.channels_opened += 1;
        tell_channel(step, &self.connection.client, "channel.created", number);
        self.connection.client.send(step, number, &Method::ChannelOpenOk(wire::OpenOk));
        Ok(())
    }

    /// Whether the user may have one more channel.
    fn check_channels(&self, step: &Step<'_>, open: u64) -> Result<(), Failure> {
        let client = &self.connection.client;
        let user = step.catalog().user(&client.user);
        let Some(max) = user.and_then(|user| user.limits.max_channels) else { return Ok(()) };
        let others = step.view.quotas.channels_of_others(client.session, &client.user);
        if others + open < u64::from(max) {
            return Ok(());
        }
        let text = format!(
            "number of channels opened for user '{}' has reached the maximum allowed user limit of ({max})",
            client.user
        );
        Err(Failure::connection(ReplyCode::NotAllowed, text))
    }

    fn connection_frame(&mut self, step: &mut Step<'_>, frame: &Frame<'_>) -> Result<(), Failure> {
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
            Method::ConnectionClose(_) => self.leave(step),
            Method::ConnectionUpdateSecret(update) => self.update_secret(step, update.new_secret),
            other => return Err(Failure { ids: other.ids(), ..unexpected(other.name()) }),
        }
        Ok(())
    }

    /// The channel is over: its number is free.
    fn forget(&mut self, number: u16) {
        if let Some(mut channel) = self.channels.remove(&number) {
            channel.drop_deferred(&mut self.connection);
            self.connection.counts.channels_closed += 1;
        }
    }
}

/// The channel, if it still is in the life it is known by.
fn find(channels: &mut BTreeMap<u16, Box<Channel>>, at: ChannelRef) -> Option<&mut Channel> {
    let channel = channels.get_mut(&at.number)?;
    (channel.at == at).then_some(channel)
}
