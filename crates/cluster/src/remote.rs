//! A group that another node leads, as this node's sessions see it.
//!
//! This node keeps what a new leader must learn from it: which consumers there are, their credit and the messages
//! that they hold, and which questions have no answer yet. This node joins every new leader, and each join begins a
//! new epoch. Answers and deliveries of an older epoch are dropped.

use std::collections::BTreeMap;

use machine::{ConsumerChange, ConsumerId, NodeId, QueueId, Ranges, SessionId, StreamOffset};

use crate::peer::message::Attachment;
use crate::request::{Answer, Delivery, Request, Ticket};

/// Where a group is led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Here,
    /// And joined, in that term.
    There {
        node: NodeId,
        term: u64,
    },
    /// No leader is known, or it cannot be reached.
    Nowhere,
}

/// What this node's sessions have in one group.
///
/// The producer's half: it says what this node believes the leader knows. While this node itself leads
/// (`Route::Here`) the group's own queues know it, and `consumers` and `asked` are empty.
#[derive(Debug)]
pub(crate) struct Remote {
    /// Where requests go now. The shard changes it when it learns of another leader, and when a leader says that it
    /// is none.
    pub(crate) route: Route,
    /// Counts how often a leader was joined. Answers and deliveries of an older epoch are not for anybody any more.
    /// A leader that misses the join knows an older epoch, so what it says is dropped.
    epoch: u64,
    /// Who consumes, with the credit that the leader was told of and the messages that it handed over. A delivery that
    /// is lost was never added here: the next join tells the leader so, and the leader delivers it again. A credit or
    /// settle that is lost is in here already, so the next join brings it.
    consumers: BTreeMap<(QueueId, ConsumerId), Attachment>,
    /// What is not answered. It is asked again of every leader that is joined, so a question or an answer
    /// that is lost only costs time; a question may reach two leaders, and its answer counts once.
    asked: BTreeMap<(SessionId, Ticket), Request>,
    /// Queues that a leader takes no consumers for, because a session is about to delete them. When that session ends
    /// first, the leader must hear of it.
    closed: BTreeMap<QueueId, SessionId>,
}

impl Remote {
    pub(crate) fn new() -> Self {
        Self {
            route: Route::Nowhere,
            epoch: 0,
            consumers: BTreeMap::new(),
            asked: BTreeMap::new(),
            closed: BTreeMap::new(),
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Begins a new epoch with the leader `node`, and returns the consumers that the leader must hear of. Consumers
    /// that asked to be attached and have no answer are among them, as not attached and holding nothing: an earlier
    /// leader may have attached them, and the new one must not take their queues for unused.
    pub(crate) fn join(&mut self, node: NodeId, term: u64) -> Vec<Attachment> {
        self.epoch += 1;
        self.route = Route::There { node, term };
        let asking = self.asked.values().filter_map(|request| match request {
            Request::Attach { queue, consumer, spec, .. } => {
                let (queue, consumer, spec) = (*queue, *consumer, *spec);
                let is_new = !self.consumers.contains_key(&(queue, consumer));
                let (is_attached, held) = (false, Ranges::new());
                is_new.then_some(Attachment { queue, consumer, spec, is_attached, held })
            }
            Request::Append { .. }
            | Request::Catalog { .. }
            | Request::Detach { .. }
            | Request::Credit { .. }
            | Request::ChangeConsumer { .. }
            | Request::Settle { .. }
            | Request::Get { .. }
            | Request::Purge { .. }
            | Request::Withhold { .. }
            | Request::Status { .. }
            | Request::Describe { .. }
            | Request::Peek { .. }
            | Request::Lock { .. }
            | Request::CloseQueue { .. }
            | Request::Admit { .. }
            | Request::EndSession { .. } => None,
        });
        let consumers = self.consumers.values().cloned();
        let mut told: Vec<Attachment> = consumers.chain(asking).collect();
        if planted::is("held_not_told") {
            told.iter_mut().for_each(|attachment| attachment.held = Ranges::new());
        }
        told
    }

    /// This node leads: its groups take over what was kept here.
    pub(crate) fn take_over(&mut self) -> (Vec<Attachment>, Vec<(SessionId, Request)>) {
        self.epoch += 1;
        self.route = Route::Here;
        let consumers = std::mem::take(&mut self.consumers).into_values().collect();
        let asked = std::mem::take(&mut self.asked);
        let asked = asked.into_iter().map(|((session, _), request)| (session, request.again()));
        (consumers, asked.collect())
    }

    /// This node led until now.
    pub(crate) fn hand_over(
        &mut self,
        consumers: Vec<Attachment>,
        asked: Vec<(SessionId, Request)>,
    ) {
        self.route = Route::Nowhere;
        for attachment in consumers {
            self.consumers.insert((attachment.queue, attachment.consumer), attachment);
        }
        for (session, request) in asked {
            self.ask(session, &request);
        }
    }

    /// What is not answered yet, to be asked again.
    pub(crate) fn asked(&self) -> impl Iterator<Item = (SessionId, Request)> + '_ {
        self.asked.iter().map(|((session, _), request)| (*session, request.clone().again()))
    }

    /// A question is answered without its leader.
    pub(crate) fn take_back(&mut self, session: SessionId, ticket: Ticket) {
        self.asked.remove(&(session, ticket));
    }

    pub(crate) fn is_asking(&self) -> bool {
        !self.asked.is_empty()
    }

    /// No leader answers. Returns the questions that are given up, so that their sessions can be answered.
    pub(crate) fn give_up(&mut self) -> Vec<(SessionId, Ticket)> {
        let asked = std::mem::take(&mut self.asked);
        asked.values().for_each(|request| self.refuse(request));
        asked.into_keys().collect()
    }

    /// No leader can be asked. A consumer that its session wants to detach is dropped here all the same: the session
    /// forgets it, so the next leader must not hear of it.
    pub(crate) fn refuse(&mut self, request: &Request) {
        if let Request::Detach { queue, consumer, .. } = request {
            self.detach(*queue, *consumer);
        }
    }

    fn detach(&mut self, queue: QueueId, consumer: ConsumerId) {
        if let Some(found) = self.consumers.get_mut(&(queue, consumer)) {
            found.is_attached = false;
        }
        self.forget_idle(queue, consumer);
    }

    /// Takes note of a question before it is sent, if it can be.
    pub(crate) fn ask(&mut self, session: SessionId, request: &Request) {
        match request {
            // It stays attached until the leader says otherwise: what is on its way is still for it, and
            // a new leader is asked to detach it as this one was.
            Request::Detach { ticket, .. }
            | Request::Attach { ticket, .. }
            | Request::Get { ticket, .. }
            | Request::Purge { ticket, .. }
            | Request::Withhold { ticket, .. }
            | Request::Status { ticket, .. }
            | Request::Describe { ticket, .. }
            | Request::Peek { ticket, .. }
            | Request::Lock { ticket, .. }
            | Request::Admit { ticket, .. }
            | Request::CloseQueue { ticket, .. } => {
                self.asked.insert((session, *ticket), request.clone());
            }
            Request::Credit { queue, consumer, add, .. } => {
                self.add_credit(*queue, *consumer, *add);
            }
            Request::ChangeConsumer { queue, consumer, change, .. } => {
                self.change(*queue, *consumer, *change);
            }
            Request::Settle { queue, consumer, ranges, credit, .. } => {
                self.let_go(*queue, *consumer, ranges);
                self.add_credit(*queue, *consumer, *credit);
            }
            Request::Append { .. } | Request::Catalog { .. } | Request::EndSession { .. } => {}
        }
    }

    /// A consumer does not hold these any more.
    pub(crate) fn let_go(&mut self, queue: QueueId, consumer: ConsumerId, ranges: &Ranges) {
        let Some(found) = self.consumers.get_mut(&(queue, consumer)) else { return };
        found.held.remove_all(ranges);
        self.forget_idle(queue, consumer);
    }

    /// The next leader is to know it, too; also if the consumer asks again to be attached.
    fn change(&mut self, queue: QueueId, consumer: ConsumerId, change: ConsumerChange) {
        if let Some(found) = self.consumers.get_mut(&(queue, consumer)) {
            found.spec.change(change);
        }
        self.asked.values_mut().for_each(|request| request.change_attach(queue, consumer, change));
    }

    /// Credit is for the queue, whichever level a message came from.
    pub(crate) fn add_credit(&mut self, queue: QueueId, consumer: ConsumerId, add: u32) {
        let queue = queue.base();
        if let Some(found) = self.consumers.get_mut(&(queue, consumer)) {
            found.spec.credit = found.spec.credit.saturating_add(add);
            return;
        }
        for request in self.asked.values_mut() {
            if let Request::Attach { queue: asked, consumer: by, spec, .. } = request
                && (*asked, *by) == (queue, consumer)
            {
                spec.credit = spec.credit.saturating_add(add);
            }
        }
    }

    /// Takes note of an answer of epoch `epoch`. False: nobody is to hear it.
    pub(crate) fn answer(&mut self, epoch: u64, session: SessionId, answer: &Answer) -> bool {
        // What an earlier leader says is void: the present one was asked again.
        if epoch != self.epoch {
            return false;
        }
        match answer {
            Answer::Attached { ticket, result, at } => {
                let Some(Request::Attach { queue, consumer, mut spec, .. }) =
                    self.asked.remove(&(session, *ticket))
                else {
                    return false;
                };
                if result.is_ok() {
                    // What "next" is the next leader would answer otherwise.
                    if !planted::is("stream_next_again") {
                        spec.start = at.map(StreamOffset::At).or(spec.start);
                    }
                    let is_attached = true;
                    // One that is attached again holds what it held.
                    let before = self.consumers.remove(&(queue, consumer));
                    let held = before.map_or_else(Ranges::new, |before| before.held);
                    let attachment = Attachment { queue, consumer, spec, is_attached, held };
                    self.consumers.insert((queue, consumer), attachment);
                }
                true
            }
            Answer::Detached { ticket } => {
                let asked = self.asked.remove(&(session, *ticket));
                if let Some(Request::Detach { queue, consumer, .. }) = &asked {
                    self.detach(*queue, *consumer);
                }
                asked.is_some()
            }
            Answer::Delivered(delivery) => {
                let key = (delivery.queue.base(), delivery.consumer);
                let Some(found) = self.consumers.get_mut(&key) else { return false };
                found.spec.credit = found.spec.credit.saturating_sub(delivery.count);
                if found.spec.start.is_some() {
                    // Who reads a stream holds nothing: the next leader goes on behind what came.
                    let next = delivery.first_seq + u64::from(delivery.count);
                    if !planted::is("stream_place_forgotten") {
                        found.spec.start = Some(StreamOffset::At(next));
                    }
                } else if !found.spec.no_ack {
                    self.hold(delivery);
                }
                true
            }
            Answer::Got { ticket, delivery, .. } => {
                let Some(Request::Get { no_ack, .. }) = self.asked.remove(&(session, *ticket))
                else {
                    return false;
                };
                if let Some(delivery) = delivery.as_ref().filter(|_| !no_ack) {
                    self.hold(delivery);
                }
                true
            }
            Answer::Closed { ticket, result } => {
                let asked = self.asked.remove(&(session, *ticket));
                if let Some(Request::CloseQueue { queue, .. }) = &asked
                    && result.is_ok()
                {
                    self.closed.insert(*queue, session);
                }
                asked.is_some()
            }
            Answer::Purged { ticket, .. }
            | Answer::Withheld { ticket, .. }
            | Answer::Status { ticket, .. }
            | Answer::Described { ticket, .. }
            | Answer::Peeked { ticket, .. }
            | Answer::Locked { ticket, .. }
            | Answer::Admitted { ticket, .. }
            | Answer::AppendFailed { ticket } => self.asked.remove(&(session, *ticket)).is_some(),
            Answer::Cancelled { queue, consumer } => {
                let was_known = self.consumers.contains_key(&(*queue, *consumer));
                // With what it holds of its levels.
                self.consumers.retain(|(of, by), _| (of.base(), by) != (*queue, consumer));
                was_known
            }
            Answer::Elected { queue, consumer, .. } => {
                self.consumers.contains_key(&(*queue, *consumer))
            }
            Answer::Appended { .. }
            | Answer::Catalog { .. }
            | Answer::Leaving(_)
            | Answer::SessionEnded { .. }
            | Answer::Alarms(_)
            | Answer::Stopping => false,
        }
    }

    /// The session is over. Says whether it had anything here.
    pub(crate) fn end_session(&mut self, session: SessionId) -> bool {
        let before = self.consumers.len() + self.asked.len() + self.closed.len();
        self.consumers.retain(|(_, consumer), _| consumer.session != session);
        self.asked.retain(|(by, _), _| *by != session);
        self.closed.retain(|_, by| *by != session);
        self.consumers.len() + self.asked.len() + self.closed.len() != before
    }

    /// The queue is deleted: it need not be opened again.
    pub(crate) fn deleted(&mut self, queue: QueueId) {
        self.closed.remove(&queue);
    }

    /// The queue went with its node: who consumed from it, and what was asked about it. The node that had it may be
    /// none of the cluster any more and never hear of that: what it says of the queue is not heard.
    pub(crate) fn dropped(
        &mut self,
        queue: QueueId,
    ) -> (Vec<ConsumerId>, Vec<(SessionId, Request)>) {
        let mut attached = Vec::new();
        let is_about = |_: &(SessionId, Ticket), request: &mut Request| {
            request.queue().is_some_and(|of| of.base() == queue)
        };
        let asked = self.asked.extract_if(.., is_about);
        let asked = asked.map(|((session, _), request)| (session, request)).collect();
        self.consumers.retain(|(of, consumer), attachment| {
            if *of == queue && attachment.is_attached {
                attached.push(*consumer);
            }
            of.base() != queue
        });
        (attached, asked)
    }

    /// The queues that somebody consumes from or asks about.
    pub(crate) fn queues(&self) -> impl Iterator<Item = QueueId> {
        let asked = self.asked.values().filter_map(Request::queue);
        self.consumers.keys().map(|(queue, _)| *queue).chain(asked).map(QueueId::base)
    }

    /// A message of a level is held there; who holds it is attached to the queue, or not at all.
    fn hold(&mut self, delivery: &Delivery) {
        let (queue, consumer) = (delivery.queue, delivery.consumer);
        let found = self.consumers.entry((queue, consumer)).or_insert(Attachment {
            queue,
            consumer,
            spec: machine::ConsumerSpec::default(),
            is_attached: false,
            held: Ranges::new(),
        });
        found.held.insert(delivery.first_seq..delivery.first_seq + u64::from(delivery.count));
    }

    fn forget_idle(&mut self, queue: QueueId, consumer: ConsumerId) {
        let found = self.consumers.get(&(queue, consumer));
        if found.is_some_and(|found| !found.is_attached && found.held.is_empty()) {
            self.consumers.remove(&(queue, consumer));
        }
    }
}

#[cfg(test)]
mod tests {
    use machine::{ConsumerSpec, GroupId, Outcome};

    use super::*;

    const ANN: SessionId = SessionId(1 << 48 | 1);
    const QUEUE: QueueId = QueueId(7);
    const GROUP: GroupId = GroupId(1);

    fn delivery(consumer: ConsumerId, first_seq: u64) -> Answer {
        let (group, queue, bytes) = (GROUP, QUEUE, bytes::Bytes::new());
        let (count, redelivered, returns) = (1, false, 0);
        Answer::Delivered(Delivery {
            group,
            queue,
            store: queue,
            consumer,
            first_seq,
            count,
            redelivered,
            returns,
            bytes,
        })
    }

    #[test]
    fn a_session_that_closed_a_queue_and_goes_without_deleting_it_leaves_something() {
        let mut remote = Remote::new();
        remote.join(NodeId(2), 1);
        for is_deleted in [true, false] {
            let (ticket, group, queue) = (Ticket(1), GROUP, QUEUE);
            let (if_unused, if_empty) = (false, false);
            remote.ask(ANN, &Request::CloseQueue { ticket, group, queue, if_unused, if_empty });
            assert!(remote.answer(1, ANN, &Answer::Closed { ticket, result: Ok(0) }));
            if is_deleted {
                remote.deleted(QUEUE);
            }
            assert_eq!(remote.end_session(ANN), !is_deleted, "its leader is to hear of it");
        }
    }

    #[test]
    fn a_leader_that_is_joined_again_hears_of_a_consumer_whose_attach_it_did_not_answer() {
        let mut remote = Remote::new();
        remote.join(NodeId(2), 1);
        let consumer = ConsumerId { session: ANN, number: 1 };
        let (group, queue) = (GROUP, QUEUE);
        let spec = ConsumerSpec { credit: 10, ..ConsumerSpec::default() };
        remote.ask(ANN, &Request::Attach { ticket: Ticket(1), group, queue, consumer, spec });
        let told = remote.join(NodeId(2), 1);
        assert_eq!(told.len(), 1);
        assert!(told[0].consumer == consumer && !told[0].is_attached && told[0].held.is_empty());
        assert!(remote.answer(
            2,
            ANN,
            &Answer::Attached { ticket: Ticket(1), result: Ok(()), at: None }
        ));
        assert!(matches!(&remote.join(NodeId(2), 1)[..], [only] if only.is_attached));
    }

    #[test]
    fn what_is_on_its_way_to_a_consumer_that_is_being_detached_reaches_it() {
        let mut remote = Remote::new();
        remote.join(NodeId(2), 1);
        let consumer = ConsumerId { session: ANN, number: 1 };
        let (group, queue) = (GROUP, QUEUE);
        let spec = ConsumerSpec { credit: 10, ..ConsumerSpec::default() };
        remote.ask(ANN, &Request::Attach { ticket: Ticket(1), group, queue, consumer, spec });
        assert!(remote.answer(
            1,
            ANN,
            &Answer::Attached { ticket: Ticket(1), result: Ok(()), at: None }
        ));
        assert!(remote.answer(1, ANN, &delivery(consumer, 1)));
        remote.ask(
            ANN,
            &Request::Detach { ticket: Ticket(2), group, queue, consumer, takes_back: true },
        );
        let (ranges, outcome) = (Ranges::from(1..2), Outcome::Done);
        remote.ask(ANN, &Request::Settle { group, queue, consumer, ranges, outcome, credit: 1 });
        assert!(remote.answer(1, ANN, &delivery(consumer, 2)), "the leader had sent it before");
        assert!(remote.answer(1, ANN, &Answer::Detached { ticket: Ticket(2) }));
        let attachments = remote.join(NodeId(3), 2);
        assert_eq!(attachments.len(), 1);
        assert!(!attachments[0].is_attached && attachments[0].held.contains(2));
    }

    #[test]
    fn what_is_held_of_a_level_is_held_there_and_credit_is_the_consumers_at_its_queue() {
        let mut remote = Remote::new();
        remote.join(NodeId(2), 1);
        let consumer = ConsumerId { session: ANN, number: 1 };
        let (group, queue, high) = (GROUP, QUEUE, QUEUE.level(9));
        let spec = ConsumerSpec { credit: 3, ..ConsumerSpec::default() };
        remote.ask(ANN, &Request::Attach { ticket: Ticket(1), group, queue, consumer, spec });
        assert!(remote.answer(
            1,
            ANN,
            &Answer::Attached { ticket: Ticket(1), result: Ok(()), at: None }
        ));
        for (level, seq) in [(high, 1), (high, 2), (queue, 1)] {
            let Answer::Delivered(it) = delivery(consumer, seq) else { panic!("a delivery") };
            let answer = Answer::Delivered(Delivery { queue: level, ..it });
            assert!(remote.answer(1, ANN, &answer));
        }
        let (ranges, outcome) = (Ranges::from(1..2), Outcome::Done);
        let queue = high;
        remote.ask(ANN, &Request::Settle { group, queue, consumer, ranges, outcome, credit: 1 });
        let told: Vec<_> = remote
            .join(NodeId(3), 2)
            .into_iter()
            .map(|it| (it.queue, it.is_attached, it.spec.credit, it.held.len()))
            .collect();
        assert_eq!(told, [(QUEUE, true, 1, 1), (high, false, 0, 1)]);
        let queue = QUEUE;
        assert!(remote.answer(2, ANN, &Answer::Cancelled { queue, consumer }));
        assert!(remote.join(NodeId(2), 3).is_empty(), "its levels went with the queue");
    }
}
