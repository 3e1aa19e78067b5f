//! Publishers and consumers of the simulated node: what a broker's sessions would ask of it.

use std::collections::{BTreeMap, VecDeque};

use cluster::{Answer, Delivery, Request, Ticket};
use machine::{
    Arguments, Batch, CatalogCommand, CatalogReply, ConsumerId, ConsumerSpec, GroupId, Messages,
    NodeId, Outcome, QueueId, Ranges, SessionId, SessionOwner,
};

use super::{Clock, session};
use crate::history::{Stage, What};
use crate::workload::{Chance, crc32};

/// Queues, and the consumers on each while there is load; the last is a backlog.
const QUEUES: [(&str, usize); 5] =
    [("orders", 1), ("fan-a", 1), ("fan-b", 1), ("work", 2), ("cold", 0)];
/// Where each publisher's messages go.
const PUBLISHERS: [&[usize]; 5] = [&[0], &[1, 2], &[3], &[3, 0], &[4]];
/// Unconfirmed messages of one publisher.
const WINDOW: usize = 60;
/// Messages that a consumer may hold, at most.
const CREDIT_MAX: u64 = 40;
/// A pause, or its end, in so many steps.
const PAUSE_STEPS: u64 = 40;
/// Largest body besides its id, in bytes.
const BODY_BYTES: u64 = 400;

pub(super) struct Clients {
    queues: Vec<Option<(QueueId, GroupId)>>,
    publishers: Vec<Publisher>,
    consumers: Vec<Consumer>,
    /// The one that declares and asks for counts.
    control: SessionId,
    sessions: u64,
    requests: VecDeque<(SessionId, Vec<Request>)>,
    /// Messages left per queue, as last told, while draining.
    left: Option<Vec<Option<u64>>>,
    asking: bool,
    /// Publishers pause now and then, so that what comes back meets a quiet queue.
    is_pausing: bool,
    /// Consumers keep their sessions.
    is_steady: bool,
}

struct Publisher {
    name: String,
    generation: u64,
    session: SessionId,
    next: u64,
    ticket: u64,
    /// Messages without an answer, with the appends they wait for.
    waiting: BTreeMap<String, usize>,
    tickets: BTreeMap<Ticket, Vec<String>>,
}

struct Consumer {
    name: String,
    queue: usize,
    session: SessionId,
    is_attached: bool,
    held: Vec<(u64, String)>,
}

impl Consumer {
    fn id(&self) -> ConsumerId {
        ConsumerId { session: self.session, number: 1 }
    }

    fn ep(&self) -> String {
        format!("{}.{}", self.name, self.session.0)
    }
}

impl Clients {
    pub(super) fn new(clock: &mut Clock) -> Self {
        for (name, consumers) in QUEUES {
            let single = consumers <= 1;
            clock.saw("world", What::Queue { q: name.to_owned(), single, dead: None });
        }
        let publisher = |(index, _)| Publisher {
            name: format!("pub-{index}"),
            generation: 0,
            session: session(0),
            next: 0,
            ticket: 0,
            waiting: BTreeMap::new(),
            tickets: BTreeMap::new(),
        };
        let consumers = QUEUES.iter().enumerate().flat_map(|(queue, (name, count))| {
            (0..*count).map(move |index| consumer(name, queue, index))
        });
        Self {
            queues: vec![None; QUEUES.len()],
            publishers: PUBLISHERS.iter().enumerate().map(publisher).collect(),
            consumers: consumers.collect(),
            control: session(0),
            sessions: 0,
            requests: VecDeque::new(),
            left: None,
            asking: false,
            is_pausing: false,
            is_steady: false,
        }
    }

    /// From now on no session ends.
    pub(super) fn stay(&mut self) {
        self.is_steady = true;
    }

    fn open(&mut self) -> SessionId {
        self.sessions += 1;
        session(self.sessions)
    }

    /// New sessions for everybody; queues are declared, or found again.
    pub(super) fn connect(&mut self, clock: &mut Clock) {
        self.control = self.open();
        self.asking = false;
        for index in 0..self.publishers.len() {
            let session = self.open();
            let publisher = &mut self.publishers[index];
            publisher.session = session;
            publisher.generation += 1;
            publisher.next = 0;
        }
        for index in 0..self.consumers.len() {
            self.attach(index, clock);
        }
        for (number, (name, _)) in QUEUES.iter().enumerate() {
            let command = CatalogCommand::DeclareQueue {
                vhost: "/".to_owned(),
                name: (*name).to_owned(),
                durable: true,
                auto_delete: false,
                exclusive: false,
                server_named: false,
                arguments: Arguments::new(),
                by: SessionOwner { node: NodeId(1), session: self.control },
            };
            let ticket = Ticket(number as u64);
            self.ask(self.control, Request::Catalog { ticket, command });
        }
    }

    /// A session for the consumer, and its queue if that is known.
    fn attach(&mut self, index: usize, clock: &mut Clock) {
        let session = self.open();
        let consumer = &mut self.consumers[index];
        consumer.session = session;
        consumer.is_attached = false;
        consumer.held.clear();
        let q = QUEUES[consumer.queue].0.to_owned();
        clock.saw(&consumer.name, What::Open { q, ep: consumer.ep() });
        let Some((queue, group)) = self.queues[consumer.queue] else { return };
        let mut chance = Chance::new(session.0);
        let credit = chance.within(1, CREDIT_MAX + 1) as u32;
        let spec = ConsumerSpec { credit, ..ConsumerSpec::default() };
        let consumer = consumer.id();
        let ticket = Ticket(0);
        self.ask(session, Request::Attach { ticket, group, queue, consumer, spec });
    }

    fn ask(&mut self, session: SessionId, request: Request) {
        self.requests.push_back((session, vec![request]));
    }

    pub(super) fn take_requests(
        &mut self,
    ) -> impl Iterator<Item = (SessionId, Vec<Request>)> + use<> {
        std::mem::take(&mut self.requests).into_iter()
    }

    /// Perhaps one publisher sends a few messages.
    pub(super) fn publish(&mut self, chance: &mut Chance, clock: &mut Clock) {
        if self.left.is_none() && chance.within(0, PAUSE_STEPS) == 0 {
            self.is_pausing = !self.is_pausing;
        }
        if self.is_pausing {
            return;
        }
        let index = chance.within(0, PUBLISHERS.len() as u64) as usize;
        let targets: Option<Vec<(QueueId, GroupId)>> =
            PUBLISHERS[index].iter().map(|queue| self.queues[*queue]).collect();
        let (Some(targets), true) = (targets, chance.percent(60)) else { return };
        let publisher = &mut self.publishers[index];
        let mut batches: BTreeMap<GroupId, (Batch, Vec<String>)> = BTreeMap::new();
        for _ in 0..chance.within(1, 16) {
            if publisher.waiting.len() >= WINDOW {
                break;
            }
            let id = format!("{}.{}:{}", publisher.name, publisher.generation, publisher.next);
            publisher.next += 1;
            let body = body(&id);
            let q = PUBLISHERS[index].iter().map(|queue| QUEUES[*queue].0.to_owned()).collect();
            let (k, h) = (Stage::Inv, Some(crc32(&body)));
            clock.saw(&publisher.name, What::Pub { k, m: id.clone(), n: 0, q, h, returned: false });
            // As a broker does: one command per group, with all its queues of that group.
            let mut groups: BTreeMap<GroupId, Vec<QueueId>> = BTreeMap::new();
            for (queue, group) in &targets {
                groups.entry(*group).or_default().push(*queue);
            }
            publisher.waiting.insert(id.clone(), groups.len());
            for (group, queues) in groups {
                let (batch, ids) = batches.entry(group).or_default();
                batch.enqueue(&queues, &[id.as_bytes()], &body);
                ids.push(id.clone());
            }
        }
        let session = publisher.session;
        let mut requests = Vec::new();
        for (group, (batch, ids)) in batches {
            publisher.ticket += 1;
            let ticket = Ticket(publisher.ticket);
            publisher.tickets.insert(ticket, ids);
            requests.push(Request::Append { group, ticket, batch, settles: Vec::new() });
        }
        if !requests.is_empty() {
            self.requests.push_back((session, requests));
        }
    }

    /// Perhaps one consumer settles some of what it holds, or ends its session.
    pub(super) fn settle(&mut self, chance: &mut Chance, clock: &mut Clock) {
        if self.consumers.is_empty() {
            return;
        }
        let index = chance.within(0, self.consumers.len() as u64) as usize;
        let consumer = &mut self.consumers[index];
        let is_draining = self.left.is_some();
        if consumer.is_attached && !self.is_steady && chance.within(0, 600) == 0 {
            let session = consumer.session;
            self.ask(session, Request::EndSession { ticket: Ticket(9) });
            return self.attach(index, clock);
        }
        let Some((queue, group)) = self.queues[consumer.queue] else { return };
        let (q, single) = (QUEUES[consumer.queue].0, QUEUES[consumer.queue].1 <= 1);
        // Some settle one by one, others many at once; some put much back.
        let alone = chance.percent(50);
        let mut settled: BTreeMap<Outcome, Ranges> = BTreeMap::new();
        let draw = |chance: &mut Chance| match chance.within(0, 100) {
            0..20 if !single && !is_draining => Outcome::Requeue,
            20..24 if !single && !is_draining => Outcome::Rejected,
            _ => Outcome::Done,
        };
        let mut outcome = draw(chance);
        let (ep, name) = (consumer.ep(), consumer.name.clone());
        consumer.held.retain(|(seq, id)| {
            let keep = !is_draining && chance.percent(if alone { 70 } else { 40 });
            if !keep {
                if alone {
                    outcome = draw(chance);
                }
                let (q, m, ep) = (q.to_owned(), id.clone(), ep.clone());
                let what = match outcome {
                    Outcome::Requeue => What::Nack { q, m, ep },
                    Outcome::Rejected => What::Reject { q, m, ep },
                    Outcome::Done | Outcome::Purged | Outcome::Undelivered => {
                        What::Ack { q, m, ep }
                    }
                };
                clock.saw(&name, what);
                settled.entry(outcome).or_default().insert(*seq..seq + 1);
            }
            keep
        });
        let (session, consumer) = (consumer.session, consumer.id());
        for (outcome, ranges) in settled {
            let credit = u32::try_from(ranges.len()).expect("credit is small");
            let settle = Request::Settle { group, queue, consumer, ranges, outcome, credit };
            self.ask(session, settle);
        }
    }

    pub(super) fn answered(&mut self, session: SessionId, answer: Answer, clock: &mut Clock) {
        if session == self.control {
            return self.control_answered(answer, clock);
        }
        if let Some(publisher) = self.publishers.iter_mut().find(|p| p.session == session) {
            return publisher.answered(answer, clock);
        }
        // An older session's answers are on a connection that nobody reads.
        if let Some(consumer) = self.consumers.iter_mut().find(|c| c.session == session) {
            let queue = self.queues[consumer.queue];
            consumer.answered(queue, answer, clock);
        }
    }

    fn control_answered(&mut self, answer: Answer, clock: &mut Clock) {
        match answer {
            Answer::Catalog { ticket, reply } => {
                let CatalogReply::QueueDeclared { queue, group, .. } = reply else {
                    let text = format!("a queue cannot be declared: {reply:?}");
                    return clock.saw("control", What::Protocol { text });
                };
                let number = ticket.0 as usize;
                let before = self.queues[number].replace((queue, group));
                if before.is_some_and(|before| before != (queue, group)) {
                    let text = format!("{} is another queue than before", QUEUES[number].0);
                    clock.saw("control", What::Protocol { text });
                }
                if before.is_none() {
                    let of_queue = |index: &usize| self.consumers[*index].queue == number;
                    let waiting: Vec<usize> = (0..self.consumers.len()).filter(of_queue).collect();
                    for index in waiting {
                        self.attach(index, clock);
                    }
                }
            }
            Answer::Status { ticket, status } => {
                let Some(left) = &mut self.left else { return };
                left[ticket.0 as usize] = status.map(|status| status.ready + status.unsettled);
                self.asking = left.iter().any(Option::is_none);
            }
            _ => {}
        }
    }

    /// The node is gone, and with it every session.
    pub(super) fn disconnected(&mut self, clock: &mut Clock) {
        self.requests.clear();
        for publisher in &mut self.publishers {
            publisher.disconnected(clock);
        }
        if let Some(left) = &mut self.left {
            left.fill(None);
        }
    }

    /// From now on consumers settle all they get, and nothing comes in: their queues must empty.
    pub(super) fn calm(&mut self) {
        self.left = Some(vec![None; QUEUES.len()]);
        self.asking = false;
        self.is_pausing = true;
    }

    /// Writes down which queues with consumers stall, and goes on as before.
    pub(super) fn calmed(&mut self, clock: &mut Clock) {
        let left = self.left.take().unwrap_or_default();
        for (number, left) in left.into_iter().enumerate() {
            let Some(left) = left.filter(|left| *left > 0) else { continue };
            if self.has_consumer(number) {
                let text = format!("{} stalls with {left} messages", QUEUES[number].0);
                clock.saw("control", What::Protocol { text });
            }
        }
        self.is_pausing = false;
    }

    fn has_consumer(&self, queue: usize) -> bool {
        self.consumers.iter().any(|consumer| consumer.queue == queue)
    }

    /// From now on every queue has a consumer that settles all it gets.
    pub(super) fn drain(&mut self, clock: &mut Clock) {
        self.calm();
        for (number, (name, _)) in QUEUES.iter().enumerate() {
            if !self.has_consumer(number) {
                self.consumers.push(consumer(name, number, 0));
                self.attach(self.consumers.len() - 1, clock);
            }
        }
    }

    /// Whether every queue reports nothing; asks again if not.
    pub(super) fn is_drained(&mut self) -> bool {
        let Some(left) = &self.left else { return false };
        let is_empty =
            |(number, left): (usize, &Option<u64>)| *left == Some(0) || !self.has_consumer(number);
        if left.iter().enumerate().all(is_empty) {
            return true;
        }
        // Only a round of questions asked after the last confirm counts.
        let publishes = self.publishers.iter().any(|publisher| !publisher.waiting.is_empty());
        if !self.asking && !publishes {
            self.asking = true;
            self.left = Some(vec![None; QUEUES.len()]);
            for (number, queue) in self.queues.clone().into_iter().enumerate() {
                let Some((queue, group)) = queue else { continue };
                let ticket = Ticket(number as u64);
                self.ask(self.control, Request::Status { ticket, group, queue });
            }
        }
        false
    }

    /// Writes down what was left.
    pub(super) fn drained(&mut self, clock: &mut Clock) {
        let left = self.left.take().unwrap_or_default();
        for ((name, _), left) in QUEUES.iter().zip(left) {
            if let Some(left) = left {
                clock.saw("control", What::Drained { q: (*name).to_owned(), node: 1, left });
            }
        }
    }
}

impl Publisher {
    fn answered(&mut self, answer: Answer, clock: &mut Clock) {
        let (ticket, appended) = match answer {
            Answer::Appended { ticket } => (ticket, true),
            Answer::AppendFailed { ticket } => (ticket, false),
            _ => return,
        };
        let Some(ids) = self.tickets.remove(&ticket) else {
            let text = format!("{}: {ticket:?} was answered twice, or never asked", self.name);
            return clock.saw(&self.name, What::Protocol { text });
        };
        for id in ids {
            let Some(parts) = self.waiting.get_mut(&id) else { continue };
            *parts -= 1;
            if appended && *parts > 0 {
                continue;
            }
            self.waiting.remove(&id);
            let k = if appended { Stage::Ok } else { Stage::Info };
            let (q, h) = (Vec::new(), None);
            clock.saw(&self.name, What::Pub { k, m: id, n: 0, q, h, returned: false });
        }
    }

    fn disconnected(&mut self, clock: &mut Clock) {
        self.tickets.clear();
        for id in std::mem::take(&mut self.waiting).into_keys() {
            let (k, q, h) = (Stage::Info, Vec::new(), None);
            clock.saw(&self.name, What::Pub { k, m: id, n: 0, q, h, returned: false });
        }
        let ch = format!("{}.{}", self.name, self.generation);
        clock.saw(&self.name, What::Closed { ch });
    }
}

impl Consumer {
    fn answered(&mut self, queue: Option<(QueueId, GroupId)>, answer: Answer, clock: &mut Clock) {
        match answer {
            Answer::Attached { result: Ok(()), .. } => self.is_attached = true,
            Answer::Attached { result: Err(error), .. } => {
                let text = format!("{} cannot consume: {error:?}", self.name);
                clock.saw(&self.name, What::Protocol { text });
            }
            Answer::Delivered(delivery) => self.delivered(queue, &delivery, clock),
            Answer::Cancelled { .. } => {
                let text = format!("{} was cancelled", self.name);
                clock.saw(&self.name, What::Protocol { text });
            }
            _ => {}
        }
    }

    fn delivered(
        &mut self,
        queue: Option<(QueueId, GroupId)>,
        delivery: &Delivery,
        clock: &mut Clock,
    ) {
        let messages: Vec<_> = Messages::of(delivery.queue, &delivery.bytes).collect();
        let is_right = messages.len() == delivery.count as usize
            && queue.is_some_and(|(queue, _)| queue == delivery.queue);
        if !is_right {
            let text = format!("{}: {delivery:?} is not what it says", self.name);
            clock.saw(&self.name, What::Protocol { text });
        }
        for (seq, (head, body)) in (delivery.first_seq..).zip(messages) {
            let m = String::from_utf8_lossy(head).into_owned();
            let what = What::Dlv {
                q: QUEUES[self.queue].0.to_owned(),
                m: m.clone(),
                tag: seq,
                red: delivery.redelivered,
                h: crc32(body),
                ep: self.ep(),
            };
            clock.saw(&self.name, what);
            self.held.push((seq, m));
        }
    }
}

fn consumer(name: &str, queue: usize, index: usize) -> Consumer {
    Consumer {
        name: format!("con-{name}-{index}"),
        queue,
        session: session(0),
        is_attached: false,
        held: Vec::new(),
    }
}

fn body(id: &str) -> Vec<u8> {
    let mut chance = Chance::named(2, id);
    let bytes = chance.within(0, BODY_BYTES);
    let mut body = id.as_bytes().to_vec();
    body.extend((0..bytes).map(|_| chance.number() as u8));
    body
}
