//! What a connection asks of the cluster: messages to store, outcomes of deliveries, questions. They leave in the order
//! that their meaning needs.

use cluster::{Request, Ticket};
use machine::{GroupId, Outcome, QueueId, SessionId};

use super::appends::Appends;
use super::settles::Settles;
use super::tickets::{ChannelRef, Groups, Tickets, Waiting};
use crate::attributes::Asked;
use crate::capacity::{Candidate, CapacityChecks, Then};
use crate::channel::unacked::{Run, Source};
use crate::limits;
use crate::route_cache::Route;

/// What is gathered, asked and not answered.
#[derive(Debug)]
pub(crate) struct Requests {
    session: SessionId,
    pub(crate) tickets: Tickets,
    pub(crate) appends: Appends,
    pub(crate) capacity: CapacityChecks,
    pub(crate) settles: Settles,
    /// Questions that are asked once what was published before them is logged, oldest first.
    held_back: Vec<HeldBack>,
    /// Room for the queues of one message.
    pub(crate) levels: Vec<QueueId>,
    /// Which partition takes messages that have no key.
    pub(crate) turn: Turn,
}

/// Which partition takes messages that have no key.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// Another one with each flush.
    pub(crate) number: usize,
    /// Something goes to a stream of several partitions.
    pub(crate) is_used: bool,
    /// Groups that do not answer: other partitions are in their turn.
    pub(crate) silent: Vec<GroupId>,
}

/// A question, and what has to be logged before it is asked.
#[derive(Debug)]
struct HeldBack {
    /// Up to this number nothing may wait for room in its queue; its append may be newer than `mark`.
    reserving: Option<u64>,
    /// Up to this append all must be answered.
    mark: Option<Ticket>,
    /// Only what goes to these groups counts.
    groups: Groups,
    request: Request,
}

impl HeldBack {
    /// Whether it waits for nothing any more.
    fn is_free(&mut self, capacity: &CapacityChecks, tickets: &Tickets) -> bool {
        if let Some(number) = self.reserving {
            if !capacity.is_past(number, self.groups) {
                return false;
            }
            self.reserving = None;
            self.mark = tickets.last_append(self.groups);
        }
        self.mark.is_none_or(|mark| tickets.is_past(mark, self.groups))
    }
}

impl Requests {
    pub(crate) fn new(session: SessionId) -> Self {
        Self {
            session,
            tickets: Tickets::default(),
            appends: Appends::default(),
            capacity: CapacityChecks::default(),
            settles: Settles::default(),
            held_back: Vec::new(),
            levels: Vec::new(),
            turn: Turn { number: session.0 as usize, ..Turn::default() },
        }
    }

    /// Asks in the name of whoever waits. Acks gathered before go first.
    pub(crate) fn ask(
        &mut self,
        out: &mut Vec<Request>,
        waiting: Waiting,
        question: impl FnOnce(Ticket) -> Request,
    ) {
        self.settles.flush(self.session, out);
        let ticket = self.tickets.issue(waiting);
        out.push(question(ticket));
    }

    /// Asks in the name of whoever waits, once everything published so far to `groups` is logged: the answer has to
    /// know of it. What other groups have to log does not hold it up.
    pub(crate) fn ask_after(
        &mut self,
        out: &mut Vec<Request>,
        waiting: Waiting,
        groups: Groups,
        question: impl FnOnce(Ticket) -> Request,
    ) {
        self.flush_appends(out);
        if !self.has_unlogged(groups) {
            return self.ask(out, waiting, question);
        }
        self.settles.flush(self.session, out);
        let ticket = self.tickets.issue(waiting);
        self.held_back.push(HeldBack {
            reserving: (!self.capacity.is_empty(groups)).then(|| self.capacity.last()),
            mark: self.tickets.last_append(groups),
            groups,
            request: question(ticket),
        });
    }

    /// Whether something published to `groups` is not known to be logged. What is gathered counts once it is
    /// flushed.
    pub(crate) fn has_unlogged(&self, groups: Groups) -> bool {
        self.tickets.last_append(groups).is_some() || !self.capacity.is_empty(groups)
    }

    /// Bytes of messages that are sent, or wait for room in their queues, and are not known to be logged.
    #[inline]
    pub(crate) fn unlogged_bytes(&self) -> usize {
        self.appends.unlogged_bytes() + self.capacity.bytes
    }

    /// Sends the batches that are gathered.
    pub(crate) fn flush_appends(&mut self, out: &mut Vec<Request>) {
        self.appends.flush(&mut self.tickets, out);
    }

    /// Sends the batches that are gathered, the questions about room, and what was held back and need not be any
    /// more.
    pub(crate) fn flush_publishes(&mut self, out: &mut Vec<Request>) {
        self.turn.number = self.turn.number.wrapping_add(1);
        if self.turn.is_used
            && let Some(now) = self.appends.now()
        {
            self.tickets.silent_groups(now, limits::SILENT_GROUP, &mut self.turn.silent);
        }
        self.flush_appends(out);
        self.capacity.flush(&mut self.tickets, out);
        let (capacity, tickets) = (&self.capacity, &self.tickets);
        let free = self.held_back.extract_if(.., |held| held.is_free(capacity, tickets));
        out.extend(free.map(|held| held.request));
    }

    /// Sends the outcomes that are gathered.
    pub(crate) fn flush_settles(&mut self, out: &mut Vec<Request>) {
        self.settles.flush(self.session, out);
    }

    /// Nobody is left who could take messages: none are asked for any more. What else was asked is still done.
    pub(crate) fn take_no_messages(&mut self) {
        self.held_back
            .retain(|held| !matches!(held.request, Request::Attach { .. } | Request::Get { .. }));
    }

    /// Messages that came for a consumer and do not reach the client.
    pub(crate) fn hand_back(&mut self, source: Source, first_seq: u64, count: u32) {
        let run = Run { first_tag: 0, first_seq, count, source };
        self.settles.add(&run, Outcome::Undelivered);
    }

    /// Puts a message into the batches of its groups, which has none but plain queues and such as want to know more of
    /// it. Gives the slots it waits for, as bits.
    #[inline]
    pub(crate) fn append(
        &mut self,
        out: &mut Vec<Request>,
        route: &Route,
        asked: &Asked,
        head: &[&[u8]],
        body: &[u8],
    ) -> u64 {
        let Self { appends, tickets, levels, .. } = self;
        appends.make_room(route.parts_max(), tickets, out);
        let mut slots = 0;
        if route.is_plain() {
            let attributes = asked.attributes(false);
            for (group, queues) in &route.groups {
                slots |= appends.enqueue(*group, queues, &attributes, head, body);
            }
        } else {
            route.parts(asked, levels, |group, attributes, queues| {
                slots |= appends.enqueue(group, queues, attributes, head, body);
            });
        }
        slots
    }

    /// Puts a message into batches of any number, or behind the questions it needs. Each part counts for the
    /// run of confirms.
    pub(crate) fn put(
        &mut self,
        out: &mut Vec<Request>,
        route: &Route,
        asked: &Asked,
        head: &[&[u8]],
        body: &[u8],
        run: Option<(ChannelRef, u64)>,
    ) {
        let Self { appends, tickets, levels, .. } = self;
        route.parts(asked, levels, |group, attributes, queues| {
            appends.make_room(1, tickets, out);
            let slot = appends.enqueue(group, queues, attributes, head, body);
            if let Some((at, run)) = run {
                appends.remember(slot, at, run);
            }
        });
        for target in route.guarded() {
            let message = Candidate::new(target, asked, head, body, Then::Append(run));
            self.capacity.add(target.group, message);
        }
    }

    /// Cancels the delayed message of this key in queues of one group, which counts for the run of confirms.
    pub(crate) fn cancel_delayed(
        &mut self,
        out: &mut Vec<Request>,
        group: GroupId,
        queues: &[QueueId],
        key: u128,
        run: Option<(ChannelRef, u64)>,
    ) {
        self.appends.make_room(1, &mut self.tickets, out);
        let slot = self.appends.cancel(group, queues, key);
        if let Some((at, run)) = run {
            self.appends.remember(slot, at, run);
        }
    }

    /// A queue has room for a message that waited for it, which counts for the run of confirms.
    pub(crate) fn append_reserved(
        &mut self,
        out: &mut Vec<Request>,
        group: GroupId,
        message: &Candidate,
        run: Option<(ChannelRef, u64)>,
    ) {
        let Candidate { level, attributes, head, body, .. } = message;
        self.appends.make_room(1, &mut self.tickets, out);
        let slot = self.appends.enqueue(group, &[*level], attributes, &[head], body);
        if let Some((at, run)) = run {
            self.appends.remember(slot, at, run);
        }
    }
}
