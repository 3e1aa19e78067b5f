//! A cluster of one node in a test's memory: the real machines, no log, no Raft. What is asked is done at once,
//! and answered when the script wants it.

use std::collections::BTreeMap;

use bytes::Bytes;
use cluster::{Alarms, Answer, Delivery, Request, Ticket};
use machine::{
    Applied, Batch, Catalog, CatalogCommand, CatalogEffect, CatalogReply, ConsumerId, Effect,
    GetReply, GroupId, Messages, Outcome, QueueId, QueueMachine, Ranges, SessionId,
};

pub(crate) struct FakeCluster {
    pub(crate) catalog: Catalog,
    queues: QueueMachine,
    index: u64,
    /// Every message, by queue and sequence number: head and body.
    messages: BTreeMap<(QueueId, u64), (Vec<u8>, Vec<u8>)>,
    effects: Vec<Effect>,
    pub(crate) alarms: Alarms,
    now_ms: u64,
    /// Answers that wait to be handed to their session.
    pub(crate) answers: Vec<(SessionId, Answer)>,
}

impl FakeCluster {
    pub(crate) fn new() -> Self {
        let mut queues = QueueMachine::new();
        queues.lead();
        queues.start_dispatch(&mut Vec::new());
        Self {
            catalog: Catalog::new(4),
            queues,
            index: 0,
            messages: BTreeMap::new(),
            effects: Vec::new(),
            alarms: Alarms::default(),
            now_ms: 0,
            answers: Vec::new(),
        }
    }

    fn next(&mut self) -> Applied {
        self.index += 1;
        Applied { index: self.index, time_ms: self.now_ms }
    }

    pub(crate) fn change(&mut self, command: CatalogCommand) -> CatalogReply {
        let at = self.next();
        let mut effects = Vec::new();
        let reply = self.catalog.apply(at, command, &mut effects);
        for effect in effects {
            let mut batch = Batch::new();
            match effect {
                CatalogEffect::QueueCreated { queue, settings, .. } => {
                    batch.create_queue(queue, &settings);
                }
                CatalogEffect::QueueChanged { queue, settings, revision, .. } => {
                    batch.set_settings(queue, revision, &settings);
                }
                CatalogEffect::QueueDeleted { queue, .. } => batch.drop_queue(queue),
            }
            self.apply(batch);
        }
        reply
    }

    fn apply(&mut self, batch: Batch) {
        let at = self.next();
        let entry = batch.stamp(self.now_ms);
        self.queues.apply(at, &entry, &mut self.effects).unwrap();
        for effect in &self.effects {
            let Effect::Enqueued { queue, first_seq, count, bytes } = effect else { continue };
            let found = Messages::of(*queue, &entry[bytes.clone()]).take(*count as usize);
            for (seq, (head, body)) in (*first_seq..).zip(found) {
                self.messages.insert((*queue, seq), (head.to_vec(), body.to_vec()));
            }
        }
        self.perform(None);
    }

    /// Time passes: what falls due is done.
    #[allow(dead_code, reason = "not every test tells it the time")]
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.queues.set_now(self.now_ms);
        self.queues.tick(self.now_ms, &mut self.effects);
        self.perform(None);
    }

    /// Logs what was gathered for the log.
    fn log(&mut self) {
        while self.queues.has_settles() {
            let mut batch = Batch::new();
            self.queues.take_settled(&mut batch);
            self.apply(batch);
        }
    }

    /// What the machine wants: deliveries and cancellations; a fetch's delivery is given back.
    fn perform(&mut self, fetch: Option<ConsumerId>) -> Option<Delivery> {
        let mut fetched = None;
        let mut unused = Vec::new();
        let mut gone = Batch::new();
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Deliver {
                    queue, consumer, first_seq, count, redelivered, returns, ..
                } => {
                    let delivery = Delivery {
                        redelivered,
                        returns,
                        ..self.delivery(queue, consumer, first_seq, count)
                    };
                    if fetch == Some(consumer) {
                        fetched = Some(delivery);
                    } else {
                        self.answers.push((consumer.session, Answer::Delivered(delivery)));
                    }
                }
                Effect::Cancelled { queue, consumer } => {
                    self.answers.push((consumer.session, Answer::Cancelled { queue, consumer }));
                }
                Effect::Elected { queue, consumer, generation } => {
                    let answer = Answer::Elected { queue, consumer, generation };
                    self.answers.push((consumer.session, answer));
                }
                Effect::Unused { queue } => unused.push(queue),
                // What is dead is stored elsewhere, at once.
                Effect::Leave { queue, first_seq, count, .. } => {
                    let ranges = Ranges::from(first_seq..first_seq + u64::from(count));
                    gone.settle(queue, Outcome::DeadLettered, &ranges);
                }
                Effect::Enqueued { .. }
                | Effect::Settled { .. }
                | Effect::Created { .. }
                | Effect::Marked { .. }
                | Effect::Dropped { .. }
                | Effect::Borrow { .. }
                | Effect::Locked(_) => {}
            }
        }
        if !gone.is_empty() {
            self.apply(gone);
        }
        self.log();
        for queue in unused {
            if let Some(found) = self.catalog.queue_by_id(queue) {
                let (vhost, name) = (found.vhost.clone(), found.name.clone());
                self.change(CatalogCommand::DeleteQueue {
                    vhost,
                    name,
                    queue: Some(queue),
                    by: None,
                });
            }
        }
        fetched
    }

    fn delivery(
        &self,
        queue: QueueId,
        consumer: ConsumerId,
        first_seq: u64,
        count: u32,
    ) -> Delivery {
        let mut batch = Batch::new();
        let store = self.queues.store_of(queue);
        for seq in first_seq..first_seq + u64::from(count) {
            let (head, body) = &self.messages[&(store, seq)];
            batch.enqueue(&[store], &[head], body);
        }
        let bytes = Bytes::from(batch.stamp(0)).slice(machine::ENTRY_HEAD_BYTES..);
        let (group, redelivered, returns) = (GroupId(1), false, 0);
        Delivery { group, queue, store, consumer, first_seq, count, redelivered, returns, bytes }
    }

    fn answer(&mut self, session: SessionId, answer: Answer) {
        self.answers.push((session, answer));
    }

    fn attached_ok(result: &Result<(), machine::AttachError>) -> bool {
        result.is_ok()
    }

    /// Does what `session` asks.
    pub(crate) fn ask(&mut self, session: SessionId, request: Request) {
        match request {
            Request::Append { ticket, mut batch, settles, .. } => {
                for held in settles {
                    let (ranges, outcome) = (&held.ranges, held.outcome);
                    self.queues.settle(
                        held.queue,
                        held.consumer,
                        ranges,
                        outcome,
                        &mut self.effects,
                    );
                }
                self.queues.take_settled(&mut batch);
                self.answer(session, Answer::Appended { ticket });
                self.apply(batch);
            }
            Request::Catalog { ticket, command } => {
                let reply = self.change(command);
                self.answer(session, Answer::Catalog { ticket, reply });
            }
            Request::Attach { ticket, queue, consumer, spec, .. } => {
                let result = self.queues.attach(queue, consumer, spec, &mut self.effects);
                let is_ok = Self::attached_ok(&result);
                self.answer(session, Answer::Attached { ticket, result, at: None });
                assert!(is_ok || self.effects.is_empty());
                self.perform(None);
            }
            Request::Detach { ticket, queue, consumer, .. } => {
                self.queues.detach(queue, consumer, &mut self.effects);
                self.perform(None);
                self.answer(session, Answer::Detached { ticket });
            }
            Request::Credit { queue, consumer, add, .. } => {
                self.queues.credit(queue, consumer, add, &mut self.effects);
                self.perform(None);
            }
            Request::ChangeConsumer { queue, consumer, change, .. } => {
                self.queues.change_consumer(queue, consumer, change, &mut self.effects);
                self.perform(None);
            }
            Request::Settle { queue, consumer, ranges, outcome, credit, .. } => {
                self.settle(queue, consumer, &ranges, outcome);
                self.queues.credit(queue, consumer, credit, &mut self.effects);
                self.perform(None);
            }
            Request::Get { ticket, queue, consumer, no_ack, .. } => {
                let reply = self.queues.get(queue, consumer, no_ack, &mut self.effects);
                let delivery = self.perform(Some(consumer));
                let ready = match reply {
                    GetReply::Delivered { ready } => ready,
                    GetReply::Empty | GetReply::NotYet | GetReply::NoQueue => 0,
                };
                self.answer(session, Answer::Got { ticket, delivery, ready });
            }
            Request::Purge { ticket, queue, .. } => {
                let count = self.queues.purge(queue).unwrap_or(0);
                self.answer(session, Answer::Purged { ticket, count });
            }
            Request::Status { ticket, queue, .. } => {
                let status = self.queues.status(queue);
                self.answer(session, Answer::Status { ticket, status });
            }
            Request::Describe { .. }
            | Request::Peek { .. }
            | Request::Lock { .. }
            | Request::Withhold { .. } => {
                unreachable!("a session does not ask what operators ask")
            }
            Request::CloseQueue { ticket, queue, if_unused, if_empty, .. } => {
                let result = self.queues.close_queue(queue, if_unused, if_empty);
                self.answer(session, Answer::Closed { ticket, result });
            }
            Request::Admit { ticket, queue, sizes, .. } => {
                let refused = self.queues.admit(queue, &sizes);
                self.answer(session, Answer::Admitted { ticket, refused });
            }
            Request::EndSession { ticket } => self.end_session(session, Some(ticket)),
        }
    }

    pub(crate) fn end_session(&mut self, session: SessionId, ticket: Option<Ticket>) {
        self.queues.end_session(session, &mut self.effects);
        self.perform(None);
        self.change(CatalogCommand::SessionEnded { node: crate::NODE, session });
        if let Some(ticket) = ticket {
            self.answer(session, Answer::SessionEnded { ticket });
        }
    }

    fn settle(&mut self, queue: QueueId, consumer: ConsumerId, ranges: &Ranges, outcome: Outcome) {
        self.queues.settle(queue, consumer, ranges, outcome, &mut self.effects);
    }
}
