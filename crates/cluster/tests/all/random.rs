//! A node under random work, random timing and power cuts, against a naive model of its queues.
//!
//! The model knows promises, not code: what was confirmed and not settled is there, once, with the
//! bytes it was published with; first deliveries come in the order of publishing; whatever a client
//! may have seen before is flagged; what was settled for good never comes again; nobody waits for
//! ever. Between steps the shard compares what it has with what it accounts (`Shard::check`).
//!
//! A failing run prints its seed; `CLUSTER_SEED=7 cargo test -p cluster --test all random::` runs that one.
#![allow(clippy::print_stderr, reason = "this is test code")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::node::{self, Kind, Node, opened};
use cluster::exchange::Input;
use cluster::{Answer, Delivery, Held, Request, Ticket};
use machine::{
    Batch, CatalogCommand, ConsumerId, ConsumerSpec, GroupId, Outcome, QueueId, Ranges, SessionId,
};
use wal::sim::Random;

const GROUPS: u32 = 2;
/// The last one is in memory only.
const QUEUES: usize = 5;
const CONSUMERS_MAX: usize = 8;
const PUBLISHER: SessionId = SessionId(1);
const ADMIN: SessionId = SessionId(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Held(ConsumerId),
    /// Settled by an entry that is not answered.
    InTransaction(ConsumerId),
    /// Settled, and perhaps logged.
    Settled,
    /// Settled and logged.
    Gone,
    /// Settled before a crash, or handed out to somebody who needs no ack: there or not.
    Perhaps,
}

#[derive(Clone, Debug)]
struct Message {
    body: String,
    is_confirmed: bool,
    state: State,
    /// A client has seen it and not said otherwise.
    is_seen: bool,
    was_seen_before: bool,
    may_be_flagged: bool,
    /// It came back to its place, so it may come after younger ones.
    is_out_of_order: bool,
}

struct Queue {
    name: String,
    kind: Kind,
    place: (QueueId, GroupId),
    messages: Vec<Message>,
    /// Of the last delivery that had to be in order.
    last_seq: u64,
}

impl Queue {
    fn message(&mut self, seq: u64) -> &mut Message {
        &mut self.messages[seq as usize - 1]
    }

    fn count(&self, is_it: impl Fn(State) -> bool) -> u64 {
        self.messages.iter().filter(|message| is_it(message.state)).count() as u64
    }

    /// Somebody who may have been about to get some of what is ready went away.
    fn disturb(&mut self, may_be_flagged: bool) {
        for message in &mut self.messages {
            message.is_out_of_order = true;
            message.may_be_flagged |= may_be_flagged;
        }
    }
}

struct Consumer {
    id: ConsumerId,
    queue: usize,
    no_ack: bool,
    is_attached: bool,
    is_attaching: bool,
    credit: u64,
    held: Ranges,
    /// It waits for the answer to a transaction.
    is_in_transaction: bool,
}

/// What a ticket of the publisher, or of a consumer, is about.
struct Append {
    messages: Vec<(usize, u64)>,
    settles: Option<(ConsumerId, usize, Ranges, Outcome)>,
}

struct World {
    seed: u64,
    random: Random,
    node: Option<Node>,
    queues: Vec<Queue>,
    consumers: BTreeMap<SessionId, Consumer>,
    appends: BTreeMap<Ticket, Append>,
    purges: BTreeMap<Ticket, (usize, Range<u64>, Vec<u64>)>,
    gets: BTreeMap<Ticket, SessionId>,
    tickets: u64,
    sessions: u64,
    bodies: u64,
    seen: Seen,
}

/// What the run went through: a test that never crashes proves nothing about crashes.
#[derive(Debug, Default)]
struct Seen {
    crashes: u64,
    deliveries: u64,
    flagged: u64,
    fetches: u64,
    checkpoints: u64,
    transactions: u64,
    gets: u64,
    purges: u64,
    drops: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            seed,
            random: Random::new(seed),
            node: Some(Node::new(GROUPS)),
            queues: Vec::new(),
            consumers: BTreeMap::new(),
            appends: BTreeMap::new(),
            purges: BTreeMap::new(),
            gets: BTreeMap::new(),
            tickets: 100,
            sessions: 100,
            bodies: 0,
            seen: Seen::default(),
        };
        for nth in 0..QUEUES {
            let kind = Kind { transient: nth == QUEUES - 1, ..Kind::default() };
            let name = format!("queue-{nth}");
            let place = world.node().declare(ADMIN, &name, kind);
            world.queues.push(Queue { name, kind, place, messages: Vec::new(), last_seq: 0 });
        }
        world
    }

    fn node(&mut self) -> &mut Node {
        self.node.as_mut().unwrap()
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    fn session(&mut self) -> SessionId {
        self.sessions += 1;
        SessionId(self.sessions)
    }

    fn body(&mut self) -> String {
        self.bodies += 1;
        let filler = if self.random.chance(5) { self.below(3000) } else { self.below(40) };
        format!("{}-{}", self.bodies, "x".repeat(filler))
    }

    fn act(&mut self) {
        match self.below(100) {
            0..22 => self.publish(),
            22..28 => self.attach(),
            28..44 => self.settle(),
            44..47 => self.transact(),
            47..50 => self.give_credit(),
            50..52 => self.detach(),
            52..54 => self.end_session(),
            54..57 => self.get(),
            57..58 => self.purge(),
            58..74 => {
                let count = 1 + self.below(3);
                self.node().sync(count);
            }
            74..84 => self.node().fetch(),
            84..86 => self.want_checkpoint(),
            86..89 => self.checkpoint(),
            89..90 => self.node().recycle(),
            _ => self.pass_time(),
        }
        if self.random.chance(60) {
            self.node().step();
        }
        self.hear();
        match self.random.below(1000) {
            0..3 => self.crash(),
            3..9 => self.rest(),
            9..10 => self.drop_queue(),
            _ => {}
        }
    }

    fn pass_time(&mut self) {
        let ms = self.random.below(8);
        self.node().ms += ms;
        self.node().step();
    }

    fn publish(&mut self) {
        for group in 0..=GROUPS {
            if !self.random.chance(50) {
                continue;
            }
            let is_of = |queue: &Queue| match group {
                0 => queue.place.1.is_local(),
                group => queue.place.1 == GroupId(group),
            };
            let purging = self.purging();
            let is_known = |nth: &usize| is_of(&self.queues[*nth]) && !purging.contains(nth);
            let known: Vec<usize> = (0..QUEUES).filter(is_known).collect();
            if known.is_empty() {
                continue;
            }
            let mut batch = Batch::new();
            let messages = self.fill(&mut batch, &known);
            let ticket = self.ticket();
            let group = self.queues[known[0]].place.1;
            self.appends.insert(ticket, Append { messages, settles: None });
            let settles = Vec::new();
            self.node().submit(PUBLISHER, Request::Append { group, ticket, batch, settles });
        }
    }

    /// A few messages, each for some of `known`.
    fn fill(&mut self, batch: &mut Batch, known: &[usize]) -> Vec<(usize, u64)> {
        let mut messages = Vec::new();
        for _ in 0..1 + self.below(6) {
            let body = self.body();
            let mut ids = Vec::new();
            for &nth in known {
                if ids.is_empty() || self.random.chance(30) {
                    let queue = &mut self.queues[nth];
                    ids.push(queue.place.0);
                    queue.messages.push(Message {
                        body: body.clone(),
                        is_confirmed: false,
                        state: State::Ready,
                        is_seen: false,
                        was_seen_before: false,
                        may_be_flagged: false,
                        is_out_of_order: false,
                    });
                    messages.push((nth, queue.messages.len() as u64));
                }
            }
            batch.enqueue(&ids, &[b"head"], body.as_bytes());
        }
        messages
    }

    fn attach(&mut self) {
        if self.consumers.len() >= CONSUMERS_MAX {
            return;
        }
        let session = self.session();
        let id = ConsumerId { session, number: 1 };
        let queue_nth = self.below(QUEUES);
        if self.purging().contains(&queue_nth) {
            return;
        }
        let credit = self.random.below(30);
        let no_ack = self.random.chance(15);
        let consumer = Consumer {
            id,
            queue: queue_nth,
            no_ack,
            is_attached: true,
            is_attaching: true,
            credit,
            held: Ranges::new(),
            is_in_transaction: false,
        };
        self.consumers.insert(session, consumer);
        let (queue, group) = self.queues[queue_nth].place;
        let spec = ConsumerSpec { credit: credit as u32, no_ack, ..ConsumerSpec::default() };
        let ticket = self.ticket();
        self.node().submit(session, Request::Attach { ticket, group, queue, consumer: id, spec });
    }

    fn any_consumer(&mut self, is_it: impl Fn(&Consumer) -> bool) -> Option<SessionId> {
        let found: Vec<SessionId> =
            self.consumers.iter().filter(|(_, it)| is_it(it)).map(|(id, _)| *id).collect();
        if found.is_empty() { None } else { Some(found[self.below(found.len())]) }
    }

    /// Takes some of what a consumer holds out of its hands.
    fn some_held(&mut self, session: SessionId) -> Ranges {
        let held = self.consumers[&session].held.clone();
        let mut some = Ranges::new();
        match self.random.below(3) {
            0 => some = held,
            1 => {
                let upto = held.first().unwrap() + 1 + self.random.below(10);
                some.insert_all(&held.within(0..upto));
            }
            _ => {
                for seq in held.iter() {
                    if self.random.chance(30) {
                        some.insert(seq..seq + 1);
                    }
                }
            }
        }
        self.consumers.get_mut(&session).unwrap().held.remove_all(&some);
        some
    }

    fn settle(&mut self) {
        let purging = self.purging();
        let free = |it: &Consumer| !it.held.is_empty() && !purging.contains(&it.queue);
        let Some(session) = self.any_consumer(free) else { return };
        let ranges = self.some_held(session);
        let outcome = match self.random.below(100) {
            0..70 => Outcome::Done,
            70..85 => Outcome::Requeue,
            85..90 => Outcome::Rejected,
            _ => Outcome::Undelivered,
        };
        let consumer = self.consumers.get_mut(&session).unwrap();
        let credit = if consumer.is_attached { ranges.len() as u32 } else { 0 };
        consumer.credit += u64::from(credit);
        let (id, nth) = (consumer.id, consumer.queue);
        self.outcome(nth, &ranges, outcome);
        let (queue, group) = self.queues[nth].place;
        let request = Request::Settle { group, queue, consumer: id, ranges, outcome, credit };
        self.node().submit(session, request);
    }

    fn outcome(&mut self, nth: usize, ranges: &Ranges, outcome: Outcome) {
        for seq in ranges.iter() {
            let message = self.queues[nth].message(seq);
            match outcome {
                Outcome::Done | Outcome::Rejected | Outcome::Purged => {
                    message.state = State::Settled;
                }
                Outcome::Requeue => {
                    message.state = State::Ready;
                    message.is_out_of_order = true;
                }
                Outcome::Undelivered => {
                    message.state = State::Ready;
                    message.is_out_of_order = true;
                    message.is_seen = message.was_seen_before;
                }
                other => unreachable!("no client says {other:?}"),
            }
        }
    }

    fn transact(&mut self) {
        let purging = self.purging();
        let free = |it: &Consumer| {
            !it.held.is_empty() && !it.is_in_transaction && !purging.contains(&it.queue)
        };
        let Some(session) = self.any_consumer(free) else { return };
        let ranges = self.some_held(session);
        if ranges.is_empty() {
            return;
        }
        let outcome = if self.random.chance(70) { Outcome::Done } else { Outcome::Requeue };
        let consumer = self.consumers.get_mut(&session).unwrap();
        let credit = if consumer.is_attached { ranges.len() as u32 } else { 0 };
        consumer.is_in_transaction = true;
        let (id, nth) = (consumer.id, consumer.queue);
        for seq in ranges.iter() {
            self.queues[nth].message(seq).state = State::InTransaction(id);
        }
        let (queue, group) = self.queues[nth].place;
        let mut batch = Batch::new();
        batch.settle(queue, outcome, &ranges);
        let messages = self.fill(&mut batch, &[nth]);
        let ticket = self.ticket();
        let held = Held { queue, consumer: id, ranges: ranges.clone(), outcome, credit };
        let settles = Some((id, nth, ranges, outcome));
        self.appends.insert(ticket, Append { messages, settles });
        let settles = vec![held];
        self.node().submit(session, Request::Append { group, ticket, batch, settles });
        self.seen.transactions += 1;
    }

    fn give_credit(&mut self) {
        let Some(session) = self.any_consumer(|it| it.is_attached) else { return };
        let add = 1 + self.random.below(20);
        let consumer = self.consumers.get_mut(&session).unwrap();
        consumer.credit += add;
        let (id, nth) = (consumer.id, consumer.queue);
        let (queue, group) = self.queues[nth].place;
        let add = add as u32;
        self.node().submit(session, Request::Credit { group, queue, consumer: id, add });
    }

    fn detach(&mut self) {
        let Some(session) = self.any_consumer(|it| it.is_attached) else { return };
        let consumer = self.consumers.get_mut(&session).unwrap();
        consumer.is_attached = false;
        consumer.credit = 0;
        let (id, nth) = (consumer.id, consumer.queue);
        self.queues[nth].disturb(false);
        let (queue, group) = self.queues[nth].place;
        let ticket = self.ticket();
        self.node().submit(
            session,
            Request::Detach { ticket, group, queue, consumer: id, takes_back: true },
        );
    }

    /// Whether deliveries of this queue may be waiting for the disk.
    fn may_wait(&mut self, nth: usize) -> bool {
        let queue = self.queues[nth].place.0;
        let node = self.node();
        !node.inputs.is_empty() || node.fetches.iter().any(|fetch| fetch.queue == queue)
    }

    fn end_session(&mut self) {
        let purging = self.purging();
        let free = |it: &Consumer| !it.is_in_transaction && !purging.contains(&it.queue);
        let Some(session) = self.any_consumer(free) else { return };
        let nth = self.consumers[&session].queue;
        // What needs no ack and waits for the disk would be lost with the session, and rightly so.
        if self.consumers[&session].no_ack && self.may_wait(nth)
            || self.gets.values().any(|by| *by == session)
        {
            return;
        }
        let consumer = self.consumers.remove(&session).unwrap();
        for seq in consumer.held.iter() {
            self.queues[nth].message(seq).state = State::Ready;
        }
        self.queues[nth].disturb(true);
        self.node().inputs.push(Input::SessionGone { session });
    }

    fn get(&mut self) {
        if self.consumers.len() >= CONSUMERS_MAX {
            return;
        }
        let session = self.session();
        let id = ConsumerId { session, number: 1 };
        let nth = self.below(QUEUES);
        if self.purging().contains(&nth) {
            return;
        }
        let no_ack = self.random.chance(30);
        let consumer = Consumer {
            id,
            queue: nth,
            no_ack,
            is_attached: false,
            is_attaching: false,
            credit: 0,
            held: Ranges::new(),
            is_in_transaction: false,
        };
        self.consumers.insert(session, consumer);
        let ticket = self.ticket();
        self.gets.insert(ticket, session);
        let (queue, group) = self.queues[nth].place;
        self.node()
            .submit(session, Request::Get { ticket, group, queue, consumer: id, no_ack, at: None });
        self.seen.gets += 1;
    }

    /// Queues whose purge is not answered. It waits for what is proposed, so nobody knows whether what is done
    /// meanwhile comes before it: nothing is.
    fn purging(&self) -> BTreeSet<usize> {
        self.purges.values().map(|(nth, _, _)| *nth).collect()
    }

    fn purge(&mut self) {
        let nth = self.below(QUEUES);
        let consumes = |it: &Consumer| it.queue == nth && (it.is_attached || it.is_in_transaction);
        let gets = self.gets.values().any(|by| self.consumers[by].queue == nth);
        if self.consumers.values().any(consumes) || gets || self.may_wait(nth) {
            return;
        }
        // Those whose entry is not applied yet are not ready; which that are nobody knows.
        if self.appends.values().any(|append| append.messages.iter().any(|(of, _)| *of == nth)) {
            return;
        }
        let queue = &mut self.queues[nth];
        let least = queue.count(|state| state == State::Ready);
        let most = least + queue.count(|state| state == State::Perhaps);
        let mut purged = Vec::new();
        for (seq, message) in (1..).zip(&mut queue.messages) {
            if matches!(message.state, State::Ready | State::Perhaps) {
                message.state = State::Settled;
                purged.push(seq);
            }
        }
        let (queue, group) = queue.place;
        let ticket = self.ticket();
        self.purges.insert(ticket, (nth, least..most + 1, purged));
        self.node().ask(PUBLISHER, Request::Purge { ticket, group, queue });
        self.seen.purges += 1;
    }

    fn want_checkpoint(&mut self) {
        let group = GroupId(self.random.below(u64::from(GROUPS) + 1) as u32);
        if self.random.chance(50) {
            self.node().review(group);
        } else {
            self.node().want_checkpoint(group);
        }
    }

    fn checkpoint(&mut self) {
        if self.random.chance(10) {
            let Some(job) = self.node().jobs.pop_front() else { return };
            self.node().inputs.push(Input::CheckpointFailed { group: job.group });
        } else if !self.node().jobs.is_empty() {
            self.node().checkpoint();
            self.seen.checkpoints += 1;
        }
    }

    /// Takes what the node told.
    fn hear(&mut self) {
        for (session, answer) in std::mem::take(&mut self.node().answers) {
            match answer {
                Answer::Appended { ticket } => self.appended(ticket),
                Answer::Delivered(delivery) => {
                    assert!(self.consumers.get(&session).is_none_or(|it| !it.is_attaching));
                    self.delivered(session, &delivery, false);
                }
                Answer::Got { ticket, delivery, .. } => {
                    let by = self.gets.remove(&ticket).expect("each get is answered once");
                    assert_eq!(by, session);
                    match delivery {
                        Some(delivery) => self.delivered(session, &delivery, true),
                        None => drop(self.consumers.remove(&session)),
                    }
                }
                Answer::Purged { ticket, count } => {
                    let (nth, expected, purged) = self.purges.remove(&ticket).unwrap();
                    assert!(expected.contains(&count), "{count} purged, not {expected:?}");
                    for seq in purged {
                        self.queues[nth].message(seq).state = State::Gone;
                    }
                }
                Answer::Attached { result, .. } => {
                    assert_eq!(result, Ok(()));
                    if let Some(consumer) = self.consumers.get_mut(&session) {
                        consumer.is_attaching = false;
                    }
                }
                Answer::Detached { .. } | Answer::Cancelled { .. } => {}
                other => panic!("{session:?} is told {other:?}"),
            }
        }
    }

    fn appended(&mut self, ticket: Ticket) {
        let append = self.appends.remove(&ticket).expect("each append is answered once");
        for (nth, seq) in append.messages {
            self.queues[nth].message(seq).is_confirmed = true;
        }
        let Some((id, nth, ranges, outcome)) = append.settles else { return };
        self.outcome(nth, &ranges, outcome);
        if outcome.is_final() {
            for seq in ranges.iter() {
                self.queues[nth].message(seq).state = State::Gone;
            }
        }
        let consumer = self.consumers.get_mut(&id.session).unwrap();
        consumer.is_in_transaction = false;
        if consumer.is_attached {
            consumer.credit += ranges.len();
        }
    }

    fn delivered(&mut self, session: SessionId, delivery: &Delivery, is_get: bool) {
        let Some(consumer) = self.consumers.get_mut(&session) else { return };
        let nth = consumer.queue;
        assert_eq!(delivery.consumer, consumer.id);
        assert_eq!(delivery.queue, self.queues[nth].place.0);
        let count = u64::from(delivery.count);
        if !is_get && consumer.is_attached {
            assert!(consumer.credit >= count, "more is sent than there is credit for");
            consumer.credit -= count;
        }
        for got in opened(delivery) {
            self.seen.deliveries += 1;
            self.seen.flagged += u64::from(got.again);
            let queue = &mut self.queues[nth];
            let last_seq = queue.last_seq;
            let message = queue.message(got.seq);
            let what = format!("message {} of queue {nth}: {message:?}", got.seq);
            assert_eq!(got.body, message.body, "{what}");
            assert!(matches!(message.state, State::Ready | State::Perhaps), "{what}");
            assert!(got.again || !message.is_seen, "it comes again unflagged: {what}");
            assert!(
                !got.again || message.is_seen || message.may_be_flagged,
                "nobody has seen it, and it is flagged: {what}"
            );
            message.was_seen_before = message.is_seen;
            message.is_seen = true;
            message.state = match consumer.no_ack {
                true => State::Settled,
                false => State::Held(consumer.id),
            };
            if !consumer.no_ack {
                consumer.held.insert(got.seq..got.seq + 1);
            }
            if !message.is_out_of_order {
                assert!(got.seq > last_seq, "it comes after message {last_seq}: {what}");
                queue.last_seq = got.seq;
            }
        }
    }

    /// Everything is written, read, logged: the model and the node must agree.
    fn rest(&mut self) {
        self.node().run_to_quiet();
        self.hear();
        assert!(self.appends.is_empty() && self.gets.is_empty() && self.purges.is_empty());
        for nth in 0..QUEUES {
            for message in &mut self.queues[nth].messages {
                assert!(message.is_confirmed);
                if message.state == State::Settled {
                    message.state = State::Gone;
                }
            }
            let place = self.queues[nth].place;
            let status = self.node().status(place).unwrap();
            let of_queue = |it: &&Consumer| it.queue == nth;
            let held: u64 = self.consumers.values().filter(of_queue).map(|it| it.held.len()).sum();
            assert_eq!(status.unsettled, held, "held of queue {nth}");
            let queue = &self.queues[nth];
            let least = queue.count(|state| state == State::Ready);
            let most = least + queue.count(|state| state == State::Perhaps);
            assert!(
                (least..=most).contains(&status.ready),
                "{} of queue {nth} are ready, not {least} to {most}",
                status.ready
            );
            let mut attached = self.consumers.values().filter(of_queue).filter(|it| it.is_attached);
            if attached.any(|it| it.credit > 0) {
                assert_eq!(status.ready, 0, "queue {nth} stalls");
            }
        }
    }

    fn crash(&mut self) {
        self.seen.crashes += 1;
        self.seen.fetches += self.node().fetch_count;
        // Handed out to somebody who needs no ack, logged, and not sent: gone with the crash.
        let mut unsure = BTreeSet::new();
        for nth in 0..QUEUES {
            let no_ack = self.consumers.values().any(|it| it.no_ack && it.queue == nth);
            if no_ack && self.may_wait(nth) {
                unsure.insert(nth);
            }
        }
        let seed = self.random.number();
        let node = self.node.take().unwrap();
        self.node = Some(node.power_cut(seed, GROUPS));
        self.node().answers.clear();
        self.consumers.clear();
        self.gets.clear();
        self.purges.clear();
        self.appends.clear();
        for nth in 0..QUEUES {
            self.recover(nth, unsure.contains(&nth));
        }
    }

    /// What the node says of a queue after a crash, and what must be so.
    fn recover(&mut self, nth: usize, is_unsure: bool) {
        let queue = &mut self.queues[nth];
        queue.last_seq = 0;
        if queue.kind.transient {
            queue.messages.clear();
            let (name, kind) = (queue.name.clone(), queue.kind);
            self.queues[nth].place = self.node().declare(ADMIN, &name, kind);
            return;
        }
        let place = queue.place;
        let status = self.node().status(place).expect("a declared queue is there");
        let queue = &mut self.queues[nth];
        let enqueued = status.counters.enqueued as usize;
        assert!(enqueued <= queue.messages.len(), "queue {nth} has messages nobody published");
        for message in queue.messages.drain(enqueued..) {
            assert!(!message.is_confirmed, "confirmed and lost: {message:?} of queue {nth}");
        }
        for message in &mut queue.messages {
            message.is_confirmed = true;
            message.may_be_flagged = true;
            message.is_out_of_order = false;
            message.state = match message.state {
                State::Ready if is_unsure => State::Perhaps,
                State::Ready | State::Held(_) => State::Ready,
                State::InTransaction(_) | State::Settled | State::Perhaps => State::Perhaps,
                State::Gone => State::Gone,
            };
        }
        let least = queue.count(|state| state == State::Ready);
        let most = least + queue.count(|state| state == State::Perhaps);
        assert!(
            (least..=most).contains(&status.ready),
            "after the crash {} of queue {nth} are ready, not {least} to {most}",
            status.ready
        );
    }

    /// Deletes a queue while much is under way, and declares it again.
    fn drop_queue(&mut self) {
        self.seen.drops += 1;
        let nth = self.below(QUEUES);
        self.hear();
        let (queue, group) = self.queues[nth].place;
        let name = self.queues[nth].name.clone();
        let command = CatalogCommand::DeleteQueue {
            vhost: "/".to_owned(),
            name: name.clone(),
            queue: Some(queue),
            by: None,
        };
        let (if_unused, if_empty) = (false, false);
        let ticket = self.ticket();
        self.node()
            .submit(ADMIN, Request::CloseQueue { ticket, group, queue, if_unused, if_empty });
        self.node().submit(ADMIN, Request::Catalog { ticket, command });
        self.node().run_to_quiet();
        let told = self.node().told(ADMIN);
        assert_eq!(told.len(), 2, "{told:?}");
        self.hear();
        assert!(self.node().status((queue, group)).is_none());
        let gone: Vec<SessionId> =
            self.consumers.iter().filter(|(_, it)| it.queue == nth).map(|(id, _)| *id).collect();
        for session in gone {
            self.consumers.remove(&session);
            self.node().inputs.push(Input::SessionGone { session });
        }
        let kind = self.queues[nth].kind;
        let place = self.node().declare(ADMIN, &name, kind);
        assert_ne!(place.0, queue);
        let queue = &mut self.queues[nth];
        queue.place = place;
        queue.messages.clear();
        queue.last_seq = 0;
    }

    /// Everybody leaves; then one consumer per queue gets everything that is left.
    fn finish(&mut self) {
        self.rest();
        // First those who need no ack: what is handed to one that leaves is lost with it.
        let mut leaving: Vec<_> = std::mem::take(&mut self.consumers).into_iter().collect();
        leaving.sort_by_key(|(_, consumer)| !consumer.no_ack);
        for (session, consumer) in leaving {
            for seq in consumer.held.iter() {
                self.queues[consumer.queue].message(seq).state = State::Ready;
            }
            self.queues[consumer.queue].disturb(true);
            self.node().inputs.push(Input::SessionGone { session });
        }
        self.rest();
        for nth in 0..QUEUES {
            self.queues[nth].last_seq = 0;
            for message in &mut self.queues[nth].messages {
                message.is_out_of_order = false;
            }
            let session = self.session();
            let id = ConsumerId { session, number: 1 };
            let consumer = Consumer {
                id,
                queue: nth,
                no_ack: false,
                is_attached: true,
                is_attaching: true,
                credit: u64::from(u32::MAX),
                held: Ranges::new(),
                is_in_transaction: false,
            };
            self.consumers.insert(session, consumer);
            let (queue, group) = self.queues[nth].place;
            let spec = node::credit(u32::MAX);
            let ticket = self.ticket();
            self.node()
                .submit(session, Request::Attach { ticket, group, queue, consumer: id, spec });
        }
        self.rest();
        for (nth, queue) in self.queues.iter().enumerate() {
            let left = queue.count(|state| state == State::Ready);
            assert_eq!(left, 0, "messages of queue {nth} never came");
        }
        self.seen.fetches += self.node().fetch_count;
    }
}

/// Says which seed failed.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("CLUSTER_SEED={} fails", self.0);
        }
    }
}

fn run(seeds: Range<u64>, steps: usize) {
    let only = std::env::var("CLUSTER_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let seeds = only.map_or(seeds, |seed| seed..seed + 1);
    let mut seen = Seen::default();
    for seed in seeds {
        let mut world = World::new(seed);
        let told = Told(world.seed);
        for _ in 0..steps {
            world.act();
        }
        world.finish();
        drop(told);
        let Seen { crashes, deliveries, flagged, fetches, checkpoints, .. } = world.seen;
        seen.crashes += crashes;
        seen.deliveries += deliveries;
        seen.flagged += flagged;
        seen.fetches += fetches;
        seen.checkpoints += checkpoints;
        seen.transactions += world.seen.transactions;
        seen.gets += world.seen.gets;
        seen.purges += world.seen.purges;
        seen.drops += world.seen.drops;
    }
    eprintln!("{seen:?}");
    if only.is_none() {
        assert!(seen.crashes > 5 && seen.fetches > 100 && seen.checkpoints > 20, "{seen:?}");
        assert!(seen.flagged > 100 && seen.deliveries > 2 * seen.flagged / 3, "{seen:?}");
        assert!(seen.transactions > 20 && seen.gets > 20 && seen.purges > 5, "{seen:?}");
    }
}

#[test]
fn whatever_happens_no_promise_is_broken() {
    run(0..16, 1500);
}

#[test]
fn whatever_happens_to_other_seeds_no_promise_is_broken() {
    run(100..116, 1500);
}
