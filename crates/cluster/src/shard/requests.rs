//! What sessions ask of a shard, and how they end.

use machine::{Batch, CatalogCommand, GroupId, QueueId, SessionId, SessionOwner, Version};

use super::Shard;
use crate::described::NotDescribed;
use crate::exchange::{Input, Now, Output};
use crate::group::catalog::CatalogGroup;
use crate::locked::NotLocked;
use crate::peer::message::Message;
use crate::queues::{Detached, GroupEffect, NO_QUEUE};
use crate::remote::Route;
use crate::request::{Answer, Held, Request, Ticket};
use crate::waiter::Waiter;

/// What one shard gets of what a session asks.
#[derive(Debug, Default)]
pub struct ForShard {
    /// Its requests, in order, and their weight in bytes.
    pub requests: Option<(Input, usize)>,
    /// The session's goodbye, which every shard gets. It comes behind the requests.
    pub goodbye: Option<Input>,
}

impl Shard {
    /// Parts what a session asks among the `shards` of its node.
    pub fn divide(
        session: SessionId,
        requests: impl IntoIterator<Item = Request>,
        shards: usize,
    ) -> Vec<ForShard> {
        let mut parts: Vec<Vec<Request>> = (0..shards).map(|_| Vec::new()).collect();
        let mut goodbye = None;
        for request in requests {
            match request {
                Request::EndSession { ticket } => goodbye = Some(ticket),
                other => parts[other.group().map_or(0, |it| Self::of(it, shards))].push(other),
            }
        }
        let for_shard = |requests: Vec<Request>| {
            let weight = requests.iter().map(Request::weight).sum();
            let asks = !requests.is_empty();
            ForShard {
                requests: asks.then(|| (Input::Requests { session, requests }, weight)),
                goodbye: goodbye.map(|ticket| Input::EndSession { session, ticket }),
            }
        };
        parts.into_iter().map(for_shard).collect()
    }

    /// A session of this node asks.
    pub(super) fn request(
        &mut self,
        now: Now,
        session: SessionId,
        request: Request,
        outputs: &mut Vec<Output>,
    ) {
        let group = match &request {
            Request::Append { .. } => {
                let Request::Append { group, ticket, batch, settles } = request else { return };
                return self.append_for(now, session, ticket, group, batch, settles, outputs);
            }
            Request::Catalog { .. } if self.number == 0 => {
                let Request::Catalog { ticket, command } = request else { return };
                let waiter = Waiter::Catalog { session, ticket };
                return self.change(now, &command, waiter, outputs);
            }
            Request::Catalog { .. } => {
                let input = Input::Requests { session, requests: vec![request] };
                return self.forward(0, input, outputs);
            }
            Request::EndSession { ticket } => {
                for shard in 0..self.shards {
                    self.forward(shard, Input::EndSession { session, ticket: *ticket }, outputs);
                }
                return;
            }
            Request::Attach { group, .. }
            | Request::Detach { group, .. }
            | Request::Credit { group, .. }
            | Request::ChangeConsumer { group, .. }
            | Request::Settle { group, .. }
            | Request::Get { group, .. }
            | Request::Purge { group, .. }
            | Request::Withhold { group, .. }
            | Request::Status { group, .. }
            | Request::Describe { group, .. }
            | Request::Peek { group, .. }
            | Request::Lock { group, .. }
            | Request::Admit { group, .. }
            | Request::CloseQueue { group, .. } => *group,
        };
        if self.is_local_here(group) {
            return self.request_here(now, session, group, request, outputs);
        }
        if request.queue().is_some_and(|queue| self.is_gone_elsewhere(group, queue)) {
            let answer = request.answer_without_queue();
            return outputs.extend(answer.map(|answer| Output::Answer { session, answer }));
        }
        if let Some(answer) = self.refuse_abroad(group, &request) {
            return outputs.push(Output::Answer { session, answer });
        }
        let out = self.outbound(group);
        let epoch = out.remote.epoch();
        match out.remote.route {
            Route::Here => self.request_here(now, session, group, request, outputs),
            Route::There { node, .. } => {
                out.remote.ask(session, &request);
                if let Request::Settle { queue, ranges, outcome, .. } = &request {
                    out.unlogged_settles.note(now.mono_ms, *queue, *outcome, ranges);
                }
                let requests = vec![self.readable(node, request)];
                self.send(node, Message::Requests { group, epoch, session, requests }, outputs);
            }
            Route::Nowhere => {
                // A settle that no leader hears is appended: it must not be lost with the next.
                if let Request::Settle { queue, ranges, outcome, .. } = &request
                    && outcome.is_final()
                {
                    let mut batch = Batch::new();
                    batch.settle(*queue, *outcome, ranges);
                    out.batches.add(now.wall_ms, batch, Waiter::Nobody, Vec::new());
                }
                match request.ticket() {
                    Some(ticket) if out.is_refusing => {
                        out.remote.refuse(&request);
                        let answer = Answer::AppendFailed { ticket };
                        outputs.push(Output::Answer { session, answer });
                    }
                    Some(_) | None => out.remote.ask(session, &request),
                }
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "they are the fields of one request")]
    fn append_for(
        &mut self,
        now: Now,
        session: SessionId,
        ticket: Ticket,
        group: GroupId,
        batch: Batch,
        settles: Vec<Held>,
        outputs: &mut Vec<Output>,
    ) {
        if !self.is_local_here(group) && !settles.is_empty() {
            let remote = &mut self.outbound(group).remote;
            if remote.route != Route::Here {
                for held in &settles {
                    remote.let_go(held.queue, held.consumer, &held.ranges);
                    remote.add_credit(held.queue, held.consumer, held.credit);
                }
            }
        }
        let waiter = Waiter::Appended { session, ticket };
        self.append(now, group, batch, settles, waiter, outputs);
    }

    /// A session of any node asks something of a group that is led here.
    pub(super) fn request_here(
        &mut self,
        now: Now,
        session: SessionId,
        group: GroupId,
        request: Request,
        outputs: &mut Vec<Output>,
    ) {
        let request = match self.groups.get_mut(&group) {
            Some(found) => found.ask(now, session, request),
            None => Some(request),
        };
        if let Some(request) = request {
            self.request_now(now, session, group, request, outputs);
        }
    }

    /// The same, when everything that it is about is known.
    pub(super) fn request_now(
        &mut self,
        now: Now,
        session: SessionId,
        group: GroupId,
        request: Request,
        outputs: &mut Vec<Output>,
    ) {
        let mut group_effects = Vec::new();
        match request {
            Request::Append { .. } | Request::Catalog { .. } | Request::EndSession { .. } => {}
            Request::Attach { ticket, queue, consumer, spec, .. } => match self.queues(group) {
                Some(queues) => queues.attach(queue, consumer, spec, ticket, &mut group_effects),
                None => {
                    let answer = Answer::Attached { ticket, result: Err(NO_QUEUE), at: None };
                    group_effects.push(GroupEffect::Answer(session, answer));
                }
            },
            Request::Detach { ticket, queue, consumer, takes_back, .. } => {
                let detached = match self.queues(group) {
                    Some(queues) => {
                        queues.detach(queue, consumer, ticket, takes_back, &mut group_effects)
                    }
                    None => Detached::Now,
                };
                self.group_effects.append(&mut group_effects);
                self.grant(group, outputs);
                match detached {
                    Detached::Now => {
                        let answer = Answer::Detached { ticket };
                        self.answer(group, session, answer, outputs);
                    }
                    Detached::QueueIsOver if !Self::is_ours(self.me.node, session) => {
                        // The catalog's shard knows nothing of what other nodes ask.
                        self.forward(0, Input::DeleteUnused { queue, detached: None }, outputs);
                        let answer = Answer::Detached { ticket };
                        self.answer(group, session, answer, outputs);
                    }
                    Detached::QueueIsOver => {
                        let detached = Some((session, ticket));
                        self.forward(0, Input::DeleteUnused { queue, detached }, outputs);
                    }
                    Detached::AfterDeliveries => {}
                }
            }
            Request::Credit { queue, consumer, add, .. } => {
                if let Some(queues) = self.queues(group) {
                    queues.credit(queue, consumer, add, &mut group_effects);
                }
            }
            Request::ChangeConsumer { queue, consumer, change, .. } => {
                if let Some(queues) = self.queues(group) {
                    queues.change_consumer(queue, consumer, change, &mut group_effects);
                }
            }
            Request::Settle { queue, consumer, ranges, outcome, credit, .. } => {
                if let Some(queues) = self.queues(group) {
                    queues.settle(queue, consumer, &ranges, outcome, credit, &mut group_effects);
                }
            }
            Request::Get { ticket, queue, consumer, no_ack, at, .. } => match self.queues(group) {
                Some(queues) => {
                    if !queues.get(queue, consumer, (no_ack, at), ticket, &mut group_effects)
                        && let Some(found) = self.groups.get_mut(&group)
                    {
                        found.ask_later(session, request);
                    }
                }
                None => {
                    let answer = Answer::Got { ticket, delivery: None, ready: 0 };
                    group_effects.push(GroupEffect::Answer(session, answer));
                }
            },
            Request::Purge { ticket, queue, .. } => {
                self.purge(now, session, ticket, group, queue, outputs);
            }
            Request::Withhold { ticket, queue, step, .. } => {
                self.withhold(now, (session, ticket), (group, queue), step, outputs);
            }
            Request::Status { ticket, queue, .. } => {
                let status = self.queues(group).and_then(|queues| queues.status(queue));
                group_effects.push(GroupEffect::Answer(session, Answer::Status { ticket, status }));
            }
            Request::Describe { ticket, queue, .. } => {
                let result = self.describe(group, queue).ok_or(NotDescribed::NoQueue);
                let result = result.map(Box::new);
                group_effects
                    .push(GroupEffect::Answer(session, Answer::Described { ticket, result }));
            }
            Request::Peek { ticket, queue, spec, .. } => {
                self.peek(session, ticket, (group, queue), *spec, outputs);
            }
            Request::Lock { ticket, spec, .. } => {
                let since = Version::LOCKS;
                let not_locked = match self.groups.get_mut(&group) {
                    Some(found) if self.members.agreed >= since => {
                        found.queues.ask_lock(session, ticket, *spec, &mut group_effects);
                        None
                    }
                    Some(_) => Some(NotLocked::NotYet { since }),
                    None => Some(NotLocked::NoLeader),
                };
                group_effects.extend(not_locked.map(|why| {
                    GroupEffect::Answer(session, Answer::Locked { ticket, result: Err(why) })
                }));
            }
            Request::Admit { ticket, queue, sizes, .. } => match self.queues(group) {
                Some(queues) => queues.admit((session, ticket), queue, sizes, &mut group_effects),
                None => {
                    let answer = Answer::Admitted { ticket, refused: Vec::new() };
                    group_effects.push(GroupEffect::Answer(session, answer));
                }
            },
            Request::CloseQueue { ticket, queue, if_unused, if_empty, .. } => {
                let result = match self.queues(group) {
                    Some(queues) => queues.close_queue(session, queue, if_unused, if_empty),
                    None => Ok(0),
                };
                group_effects.push(GroupEffect::Answer(session, Answer::Closed { ticket, result }));
            }
        }
        self.group_effects.append(&mut group_effects);
        self.grant(group, outputs);
    }

    fn purge(
        &mut self,
        now: Now,
        session: SessionId,
        ticket: Ticket,
        group: GroupId,
        queue: QueueId,
        outputs: &mut Vec<Output>,
    ) {
        let is_refusing = self.out.get(&group).is_some_and(|out| out.is_refusing);
        if is_refusing && !planted::is("purge_dropped") {
            // Before anything is taken out of the queue.
            self.group_effects.push(GroupEffect::Answer(session, Answer::AppendFailed { ticket }));
            return;
        }
        let Some(queues) = self.queues(group) else { return };
        let count = queues.purge(queue);
        let mut batches = Vec::new();
        while queues.settle_deadline_ms().is_some() {
            let mut batch = Batch::new();
            queues.take_settled(&mut batch);
            if batch.is_empty() {
                break;
            }
            batches.push(batch);
        }
        if planted::is("purge_forgotten") {
            batches.clear();
        }
        let last = batches.pop().unwrap_or_default();
        for batch in batches {
            self.append(now, group, batch, Vec::new(), Waiter::Nobody, outputs);
        }
        let waiter = Waiter::Purged { session, ticket, count };
        self.append(now, group, last, Vec::new(), waiter, outputs);
    }

    /// Ends the session's part in this shard; shard 0 hears of it.
    pub(super) fn end_session(
        &mut self,
        session: SessionId,
        ticket: Option<Ticket>,
        outputs: &mut Vec<Output>,
    ) {
        let (mut unused, mut group_effects) = (Vec::new(), Vec::new());
        let local = self.local.iter().map(|local| local.group);
        let groups: Vec<GroupId> = self.groups.keys().copied().chain(local).collect();
        for group in groups {
            if let Some(found) = self.groups.get_mut(&group) {
                found.early_asked.retain(|asked| asked.session != session);
            }
            if let Some(queues) = self.queues(group) {
                queues.end_session(session, &mut group_effects);
            }
            for group_effect in group_effects.drain(..) {
                match group_effect {
                    GroupEffect::Unused(queue) => unused.push(queue),
                    other @ (GroupEffect::Answer(..)
                    | GroupEffect::Leaving(_)
                    | GroupEffect::Borrow { .. }
                    | GroupEffect::Fetch { .. }) => {
                        self.group_effects.push(other);
                    }
                }
            }
            self.grant(group, outputs);
        }
        self.leave_others(session, outputs);
        self.forward(0, Input::SessionEnded { session, ticket, unused }, outputs);
    }

    /// There is a dead-letter worker from now on: it hears of everything that is to leave.
    pub(super) fn open_dead_letter_worker(&mut self, outputs: &mut Vec<Output>) {
        self.has_dead_letter_worker = true;
        let local = self.local.iter().map(|local| local.group);
        let groups: Vec<GroupId> = self.groups.keys().copied().chain(local).collect();
        for group in groups {
            self.in_queues(group, outputs, |queues, group_effects| {
                queues.leave_again(group_effects)
            });
        }
    }

    /// Groups that are led elsewhere hear that the session is over.
    fn leave_others(&mut self, session: SessionId, outputs: &mut Vec<Output>) {
        let mut gone = Vec::new();
        for (&group, out) in &mut self.out {
            if out.remote.end_session(session)
                && let Route::There { node, .. } = out.remote.route
            {
                gone.push((node, group, out.remote.epoch()));
            }
        }
        for (node, group, epoch) in gone {
            self.send(node, Message::SessionGone { group, epoch, session }, outputs);
        }
    }

    /// Once every shard has ended the session, what goes with it is deleted, then it is answered.
    pub(super) fn session_ended(
        &mut self,
        now: Now,
        session: SessionId,
        ticket: Option<Ticket>,
        unused: Vec<QueueId>,
        outputs: &mut Vec<Output>,
    ) {
        let ending = self.node_wide.ending.entry((session, ticket)).or_default();
        ending.shards += 1;
        ending.unused.extend(unused);
        if ending.shards < self.shards {
            return;
        }
        let Some(ending) = self.node_wide.ending.remove(&(session, ticket)) else { return };
        let mut waiter = ticket.map(|ticket| Waiter::SessionEnded { session, ticket });
        let owner = SessionOwner { node: self.me.node, session };
        let is_owner = |catalog: &CatalogGroup| catalog.catalog().has_exclusive(owner);
        // A declaration that is under way may still make it one, though it was given up.
        let has_exclusive = self.catalog.as_ref().is_some_and(is_owner)
            || self.outbound(GroupId::CATALOG).batches.may_bring(session);
        let last = ending.unused.len().saturating_sub(1);
        for (nth, queue) in ending.unused.into_iter().enumerate() {
            let is_last = nth == last && !has_exclusive;
            let told = if is_last { waiter.take() } else { None };
            waiter = self
                .delete_unused(now, queue, told.unwrap_or(Waiter::Nobody), outputs)
                .filter(|waiter| !matches!(waiter, Waiter::Nobody))
                .or(waiter);
        }
        if has_exclusive {
            let command = CatalogCommand::SessionEnded { node: owner.node, session };
            self.change(now, &command, waiter.unwrap_or(Waiter::Nobody), outputs);
        } else if let Some(waiter) = waiter {
            outputs.extend(waiter.committed());
        }
    }
}
