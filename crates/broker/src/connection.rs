//! What all channels of a session share, and what one step of it has at hand.

pub(crate) mod answers;
pub(crate) mod appends;
pub(crate) mod closing;
pub(crate) mod consumers;
pub(crate) mod flow;
pub(crate) mod handshake;
pub(crate) mod login;
pub(crate) mod names;
pub(crate) mod reserved;
pub(crate) mod settles;
pub(crate) mod step_end;
pub(crate) mod tickets;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use amqp::{Encoder, Method};
use cluster::{Request, Ticket};
use machine::{ConsumerId, GroupId, NodeId, Outcome, QueueId, SessionId, SessionOwner};

use crate::capacity::Guards;
use crate::channel::unacked::{Run, Source};
use crate::config::Config;
use crate::connection::appends::Appends;
use crate::connection::consumers::Consumers;
use crate::connection::names::{Chance, Names};
use crate::connection::settles::Settles;
use crate::connection::tickets::{ChannelRef, Groups, Tickets, Waiting};
use crate::metrics::Counts;
use crate::route_cache::Routes;
use crate::session::{Outputs, View};

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

/// The part of a session that is not any one channel's.
#[derive(Debug)]
pub(crate) struct Trunk {
    pub(crate) config: Arc<Config>,
    pub(crate) session: SessionId,
    pub(crate) node: NodeId,
    pub(crate) peer: SocketAddr,
    pub(crate) user: String,
    /// May publish in the name of others.
    pub(crate) is_impersonator: bool,
    pub(crate) vhost: String,
    pub(crate) capabilities: Capabilities,
    /// What the client calls itself, until it is in.
    pub(crate) client: String,
    /// Negotiated, in bytes with overhead.
    pub(crate) frame_bytes_max: u32,
    pub(crate) tickets: Tickets,
    pub(crate) appends: Appends,
    pub(crate) guards: Guards,
    /// Room for the queues of one message.
    pub(crate) lanes: Vec<QueueId>,
    pub(crate) settles: Settles,
    pub(crate) consumers: Consumers,
    pub(crate) routes: Routes,
    pub(crate) names: Names,
    pub(crate) chance: Chance,
    pub(crate) time: WallTime,
    pub(crate) counts: Counts,
    /// Something may be out that has to be acked.
    pub(crate) holds_unacked: bool,
    /// The shortest time that a queue of this session lets its messages be out. None: for ever.
    pub(crate) patience: Option<Duration>,
    /// Bytes of bodies that have begun and not ended.
    pub(crate) partial_bytes: u64,
    /// Bytes that those bodies will have when they are whole.
    pub(crate) announced_bytes: u64,
    /// Bytes of publishes in open transactions.
    pub(crate) tx_bytes: usize,
    /// Bytes of frames set aside for waiting channels.
    pub(crate) deferred_bytes: usize,
    /// Questions that are asked once what was published before them is logged, oldest first.
    held_back: Vec<HeldBack>,
    /// Channels whose confirms have moved.
    pub(crate) touched: Vec<u16>,
    /// Channels that wait for nothing any more and have frames set aside.
    pub(crate) resumable: Vec<ChannelRef>,
    /// Reply addresses of this session and whose they are.
    pub(crate) reply_addresses: Vec<(String, ChannelRef)>,
}

/// A question, and what has to be logged before it is asked.
#[derive(Debug)]
struct HeldBack {
    /// Up to this number nothing may wait to be let into its queue; its append may be newer than `mark`.
    guarded: Option<u64>,
    /// Up to this append all must be answered.
    mark: Option<Ticket>,
    /// Only what goes to these groups counts.
    groups: Groups,
    request: Request,
}

impl HeldBack {
    /// Whether it waits for nothing any more.
    fn is_free(&mut self, guards: &Guards, tickets: &Tickets) -> bool {
        if let Some(number) = self.guarded {
            if !guards.is_past(number, self.groups) {
                return false;
            }
            self.guarded = None;
            self.mark = tickets.last_append(self.groups);
        }
        self.mark.is_none_or(|mark| tickets.is_past(mark, self.groups))
    }
}

/// One step: the time, what may be looked at, and what comes of it.
pub(crate) struct Turn<'a> {
    pub(crate) now: Instant,
    pub(crate) view: &'a View<'a>,
    pub(crate) out: &'a mut Outputs,
}

impl Trunk {
    pub(crate) fn new(
        config: Arc<Config>,
        session: SessionId,
        node: NodeId,
        peer: SocketAddr,
        seed: [u8; 32],
        time: WallTime,
    ) -> Self {
        Self {
            frame_bytes_max: config.frame_bytes_max,
            config,
            session,
            node,
            peer,
            user: String::new(),
            is_impersonator: false,
            vhost: String::new(),
            capabilities: Capabilities::default(),
            client: String::new(),
            tickets: Tickets::default(),
            appends: Appends::default(),
            guards: Guards::default(),
            lanes: Vec::new(),
            settles: Settles::default(),
            consumers: Consumers::default(),
            routes: Routes::default(),
            names: Names::new(seed),
            chance: Chance::new(seed),
            time,
            counts: Counts::default(),
            holds_unacked: false,
            patience: None,
            partial_bytes: 0,
            announced_bytes: 0,
            tx_bytes: 0,
            deferred_bytes: 0,
            held_back: Vec::new(),
            touched: Vec::new(),
            resumable: Vec::new(),
            reply_addresses: Vec::new(),
        }
    }

    pub(crate) fn owner(&self) -> SessionOwner {
        SessionOwner { node: self.node, session: self.session }
    }

    pub(crate) fn consumer_id(&self, number: u64) -> ConsumerId {
        ConsumerId { session: self.session, number }
    }

    pub(crate) fn encoder<'a>(&self, turn: &'a mut Turn<'_>) -> Encoder<'a> {
        Encoder::new(&mut turn.out.bytes, self.frame_bytes_max)
    }

    pub(crate) fn send(&self, turn: &mut Turn<'_>, channel: u16, method: &Method<'_>) {
        self.encoder(turn).method(channel, method);
    }

    /// Asks in the name of a channel. Acks gathered before go first.
    pub(crate) fn ask(
        &mut self,
        turn: &mut Turn<'_>,
        channel: ChannelRef,
        question: impl FnOnce(Ticket) -> Request,
    ) {
        self.ask_as(turn, Waiting::Channel(channel), question);
    }

    /// Asks in the name of whoever waits.
    pub(crate) fn ask_as(
        &mut self,
        turn: &mut Turn<'_>,
        waiting: Waiting,
        question: impl FnOnce(Ticket) -> Request,
    ) {
        self.settles.flush(self.session, &mut turn.out.requests);
        let ticket = self.tickets.issue(waiting);
        turn.out.requests.push(question(ticket));
    }

    /// Asks `group` once everything published to it so far is logged: the answer has to know of it. What
    /// other groups have to log does not hold it up.
    pub(crate) fn ask_after_appends(
        &mut self,
        turn: &mut Turn<'_>,
        channel: ChannelRef,
        group: GroupId,
        question: impl FnOnce(Ticket) -> Request,
    ) {
        self.ask_after(turn, Waiting::Channel(channel), Groups::One(group), question);
    }

    /// Asks in the name of whoever waits, once everything published so far to `groups` is logged.
    pub(crate) fn ask_after(
        &mut self,
        turn: &mut Turn<'_>,
        waiting: Waiting,
        groups: Groups,
        question: impl FnOnce(Ticket) -> Request,
    ) {
        self.appends.flush(&mut self.tickets, &mut turn.out.requests);
        if !self.has_unlogged(groups) {
            return self.ask_as(turn, waiting, question);
        }
        self.settles.flush(self.session, &mut turn.out.requests);
        let ticket = self.tickets.issue(waiting);
        self.held_back.push(HeldBack {
            guarded: (!self.guards.is_empty(groups)).then(|| self.guards.last()),
            mark: self.tickets.last_append(groups),
            groups,
            request: question(ticket),
        });
    }

    /// Whether something published to `groups` is not known to be logged. What is gathered counts once it is
    /// flushed.
    pub(crate) fn has_unlogged(&self, groups: Groups) -> bool {
        self.tickets.last_append(groups).is_some() || !self.guards.is_empty(groups)
    }

    /// Nobody is left who could take messages: none are asked for any more. What else was asked is still done.
    pub(crate) fn take_no_messages(&mut self) {
        self.held_back
            .retain(|held| !matches!(held.request, Request::Attach { .. } | Request::Get { .. }));
    }

    /// Asks what was held back and need not be any more. What was gathered is flushed.
    pub(crate) fn release(&mut self, turn: &mut Turn<'_>) {
        let (guards, tickets) = (&self.guards, &self.tickets);
        let free = self.held_back.extract_if(.., |held| held.is_free(guards, tickets));
        turn.out.requests.extend(free.map(|held| held.request));
    }

    /// The client, or the end of its channel, settled these messages.
    #[inline]
    pub(crate) fn settle(&mut self, run: &Run, outcome: Outcome) {
        self.settles.add(run, outcome);
        self.consumers.settled(run.source.consumer, run.count);
    }

    /// Messages that came for a consumer and do not reach the client.
    pub(crate) fn hand_back(&mut self, source: Source, first_seq: u64, count: u32) {
        let run = Run { first_tag: 0, first_seq, count, source };
        self.settles.add(&run, Outcome::Undelivered);
    }

    /// Why the client may not be read now, if so: too much is on its way already.
    pub(crate) fn is_congested(&self) -> bool {
        self.appends.unlogged_bytes + self.guards.bytes >= crate::limits::UNLOGGED_BYTES_MAX
            || self.deferred_bytes >= crate::limits::DEFERRED_BYTES_MAX
    }
}
