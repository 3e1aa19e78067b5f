//! What sessions ask of a shard, and how they end.

use machine::{Batch, CatalogCommand, GroupId, QueueId, SessionId, SessionOwner};

use super::{Input, Now, Output, Shard, refuse, tell};
use crate::proposals::Waiter;
use crate::queues::{Detached, NO_QUEUE, Wish};
use crate::request::{Answer, Request, Ticket};

impl Shard {
    pub(super) fn request(
        &mut self,
        now: Now,
        session: SessionId,
        request: Request,
        outputs: &mut Vec<Output>,
    ) {
        match request {
            Request::Append { group, ticket, batch, settles } => {
                let waiter = Waiter::Appended { session, ticket, settles };
                self.append(now, group, batch, waiter, outputs);
            }
            Request::Catalog { ticket, command } => match &mut self.catalog {
                Some(catalog) => {
                    let waiter = Waiter::Catalog { session, ticket };
                    let bytes = catalog.propose(now.wall_ms, command, waiter, outputs);
                    self.gathered(now, bytes, outputs);
                }
                None => {
                    let request = Request::Catalog { ticket, command };
                    let input = Input::Requests { session, requests: vec![request] };
                    self.forward(0, input, outputs);
                }
            },
            Request::Attach { ticket, group, queue, consumer, spec } => {
                if let Some(queues) = self.queues(group) {
                    let mut wishes = Vec::new();
                    queues.attach(queue, consumer, spec, ticket, &mut wishes);
                    self.wishes.append(&mut wishes);
                } else {
                    let answer = Answer::Attached { ticket, result: Err(NO_QUEUE) };
                    outputs.push(Output::Answer { session, answer });
                }
                self.grant(group, outputs);
            }
            Request::Detach { ticket, group, queue, consumer } => {
                let mut wishes = Vec::new();
                let detached = match self.queues(group) {
                    Some(queues) => queues.detach(queue, consumer, ticket, &mut wishes),
                    None => Detached::Now,
                };
                self.wishes.append(&mut wishes);
                self.grant(group, outputs);
                match detached {
                    Detached::Now => {
                        let answer = Answer::Detached { ticket };
                        outputs.push(Output::Answer { session, answer });
                    }
                    Detached::QueueIsOver => {
                        let detached = Some((session, ticket));
                        self.forward(0, Input::DeleteUnused { queue, detached }, outputs);
                    }
                    Detached::AfterDeliveries => {}
                }
            }
            Request::Credit { group, queue, consumer, add } => {
                let mut wishes = Vec::new();
                if let Some(queues) = self.queues(group) {
                    queues.credit(queue, consumer, add, &mut wishes);
                }
                self.wishes.append(&mut wishes);
                self.grant(group, outputs);
            }
            Request::Settle { group, queue, consumer, ranges, outcome, credit } => {
                let mut wishes = Vec::new();
                if let Some(queues) = self.queues(group) {
                    queues.settle(queue, consumer, &ranges, outcome, credit, &mut wishes);
                }
                self.wishes.append(&mut wishes);
                self.grant(group, outputs);
            }
            Request::Get { ticket, group, queue, consumer, no_ack } => {
                let mut wishes = Vec::new();
                match self.queues(group) {
                    Some(queues) => {
                        queues.get(queue, consumer, no_ack, ticket, &mut wishes);
                    }
                    None => {
                        let answer = Answer::Got { ticket, delivery: None, ready: 0 };
                        wishes.push(Wish::Answer(session, answer));
                    }
                }
                self.wishes.append(&mut wishes);
                self.grant(group, outputs);
            }
            Request::Purge { ticket, group, queue } => {
                self.purge(now, session, ticket, group, queue, outputs);
            }
            Request::Status { ticket, group, queue } => {
                let status = self.queues(group).and_then(|queues| queues.machine().status(queue));
                let answer = Answer::Status { ticket, status };
                outputs.push(Output::Answer { session, answer });
            }
            Request::CloseQueue { ticket, group, queue, if_unused, if_empty } => {
                let result = match self.queues(group) {
                    Some(queues) => queues.close_queue(session, queue, if_unused, if_empty),
                    None => Ok(0),
                };
                let answer = Answer::Closed { ticket, result };
                outputs.push(Output::Answer { session, answer });
            }
            Request::EndSession { ticket } => {
                for shard in 0..self.shards {
                    self.forward(shard, Input::EndSession { session, ticket }, outputs);
                }
            }
        }
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
        // What is purged must get into the log, or nobody would ever see it again.
        let may_log = match self.groups.get(&group) {
            Some(found) => found.replica.is_leader(),
            None => group == GroupId::local(self.node) && self.local.is_some(),
        };
        let waiter = |count| Waiter::Purged { session, ticket, count };
        if !may_log {
            return refuse(vec![waiter(0)], outputs);
        }
        let Some(queues) = self.queues(group) else { return };
        let count = queues.purge(queue);
        let mut batches = Vec::new();
        while queues.settle_deadline_ms().is_some() {
            let mut batch = Batch::new();
            queues.take_settled(&mut batch);
            batches.push(batch);
        }
        let last = batches.pop().unwrap_or_default();
        for batch in batches {
            self.append(now, group, batch, Waiter::Nobody, outputs);
        }
        self.append(now, group, last, waiter(count), outputs);
    }

    /// Ends the session's part in this shard; shard 0 hears of it.
    pub(super) fn end_session(
        &mut self,
        session: SessionId,
        ticket: Option<Ticket>,
        outputs: &mut Vec<Output>,
    ) {
        let (mut unused, mut wishes) = (Vec::new(), Vec::new());
        let local = GroupId::local(self.node);
        let groups: Vec<GroupId> = self.groups.keys().copied().chain([local]).collect();
        for group in groups {
            if let Some(queues) = self.queues(group) {
                queues.end_session(session, &mut wishes);
            }
            for wish in wishes.drain(..) {
                match wish {
                    Wish::Unused(queue) => unused.push(queue),
                    other @ (Wish::Answer(..) | Wish::Fetch { .. }) => self.wishes.push(other),
                }
            }
            self.grant(group, outputs);
        }
        self.forward(0, Input::SessionEnded { session, ticket, unused }, outputs);
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
        let ending = self.ending.entry((session, ticket)).or_default();
        ending.shards += 1;
        ending.unused.extend(unused);
        if ending.shards < self.shards {
            return;
        }
        let Some(ending) = self.ending.remove(&(session, ticket)) else { return };
        let Some(catalog) = &mut self.catalog else { return };
        let mut waiter = ticket.map(|ticket| Waiter::SessionEnded { session, ticket });
        let owner = SessionOwner { node: self.node, session };
        // A declaration that is under way may still make it an owner.
        let has_exclusive =
            catalog.catalog().has_exclusive(owner) || catalog.is_waiting_for(session);
        let last = ending.unused.len().saturating_sub(1);
        for (nth, queue) in ending.unused.into_iter().enumerate() {
            let is_last = nth == last && !has_exclusive;
            let told = if is_last { waiter.take() } else { None };
            waiter = catalog
                .delete_unused(now.wall_ms, queue, told.unwrap_or(Waiter::Nobody), outputs)
                .filter(|waiter| !matches!(waiter, Waiter::Nobody))
                .or(waiter);
        }
        if has_exclusive {
            let command = CatalogCommand::SessionEnded { node: owner.node, session };
            let waiter = waiter.unwrap_or(Waiter::Nobody);
            catalog.propose(now.wall_ms, command, waiter, outputs);
        } else if let Some(waiter) = waiter {
            tell(waiter, outputs);
        }
    }
}
