//! Random commands against a naive model: one list of messages per queue, looked through from the
//! front. A follower applies the same log and must agree at every entry, also after it was restored
//! from a snapshot.
//!
//! `PROPTEST_CASES=100000 cargo test -p machine --release --test all model` runs it long.

use std::collections::BTreeMap;

use machine::{
    Applied, AttachError, Attached, Batch, CloseError, Command, ConsumerId, ConsumerSpec, Effect,
    EntryReader, GetReply, Messages, Outcome, QueueId, QueueMachine, QueueSettings, Ranges, Seqs,
    SessionId, Weight,
};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Held(ConsumerId),
    /// Settled as it goes out, which it does when its mark is logged.
    Unmarked(ConsumerId),
    /// Settled, and not in the log yet.
    Unlogged(Outcome),
    Gone,
}

#[derive(Clone, Debug)]
struct Message {
    state: State,
    was_seen: bool,
    body: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Consumer {
    spec: ConsumerSpec,
    credit: u32,
}

#[derive(Clone, Debug, Default)]
struct ModelQueue {
    is_auto_delete: bool,
    is_closing: bool,
    /// A consumer went before dispatch began.
    has_lost: bool,
    /// Deliveries from here on wait for the log, if marks are kept.
    mark: Option<u64>,
    /// Sequence number is index + 1.
    messages: Vec<Message>,
    consumers: BTreeMap<ConsumerId, Consumer>,
    settled: u64,
    dropped: u64,
    purged: u64,
}

impl ModelQueue {
    /// What becomes of a message that goes to a consumer, and whether the delivery waits.
    fn given(&self, seqs: std::ops::Range<u64>, who: ConsumerId, no_ack: bool) -> (State, bool) {
        let waits = self.mark.is_some_and(|mark| seqs.end > mark);
        let state = match (no_ack, waits) {
            (false, _) => State::Held(who),
            (true, true) => State::Unmarked(who),
            (true, false) => State::Unlogged(Outcome::Done),
        };
        (state, waits)
    }

    fn count(&self, is: impl Fn(State) -> bool) -> u64 {
        self.messages.iter().filter(|message| is(message.state)).count() as u64
    }

    fn first_ready(&self) -> Option<u64> {
        let found = self.messages.iter().position(|message| message.state == State::Ready);
        found.map(|index| index as u64 + 1)
    }

    fn at(&mut self, seq: u64) -> &mut Message {
        &mut self.messages[seq as usize - 1]
    }

    fn live(&self) -> Ranges {
        let live = self.messages.iter().enumerate();
        let live = live.filter(|(_, message)| message.state != State::Gone);
        live.map(|(index, _)| index as u64 + 1..index as u64 + 2).collect()
    }

    /// Says whether it may consume.
    fn attach(&mut self, who: ConsumerId, spec: ConsumerSpec) -> bool {
        let mut others = self.consumers.iter().filter(|(other, _)| **other != who).peekable();
        let clash = match others.peek() {
            None => false,
            Some(_) => spec.exclusive || others.any(|(_, other)| other.spec.exclusive),
        };
        if !clash {
            self.consumers.insert(who, Consumer { spec, credit: spec.credit });
        }
        !clash
    }

    /// The sessions are gone for now: what they held, and whether one consumed.
    fn let_go(&mut self, is_of: &impl Fn(SessionId) -> bool) -> (Vec<usize>, bool) {
        let mut held = Vec::new();
        for (index, message) in self.messages.iter_mut().enumerate() {
            if matches!(message.state, State::Held(consumer) if is_of(consumer.session)) {
                message.state = State::Ready;
                held.push(index);
            }
        }
        let before = self.consumers.len();
        self.consumers.retain(|consumer, _| !is_of(consumer.session));
        (held, self.consumers.len() < before)
    }

    /// What an outcome means for messages that `consumer` holds.
    fn settle(&mut self, consumer: ConsumerId, ranges: &Ranges, outcome: Outcome, logged: bool) {
        for message in ranges.iter().collect::<Vec<_>>() {
            let Some(message) = self.messages.get_mut(message as usize - 1) else { continue };
            if message.state != State::Held(consumer) {
                continue;
            }
            message.was_seen |= outcome == Outcome::Requeue;
            message.state = match (outcome.is_final(), logged) {
                (true, false) => State::Unlogged(outcome),
                (true, true) => State::Gone,
                (false, _) => State::Ready,
            };
        }
    }
}

struct World {
    leader: QueueMachine,
    follower: QueueMachine,
    queues: BTreeMap<QueueId, ModelQueue>,
    next_queue: u64,
    index: u64,
    bodies: u64,
    effects: Vec<Effect>,
    is_dispatching: bool,
    /// Of the leader before: whose node has not joined the new one yet.
    away: Vec<Attached>,
}

const SESSIONS: u64 = 3;

/// Sessions are on two nodes.
fn is_of_node(node: u64) -> impl Fn(SessionId) -> bool {
    move |session| session.0 % 2 == node
}

fn consumer(byte: u8) -> ConsumerId {
    let session = SessionId(u64::from(byte) % SESSIONS);
    ConsumerId { session, number: u64::from(byte) / 3 % 3 }
}

impl World {
    fn new() -> Self {
        let mut leader = QueueMachine::new();
        leader.lead();
        leader.start_dispatch(&mut Vec::new());
        Self {
            leader,
            is_dispatching: true,
            away: Vec::new(),
            follower: QueueMachine::new(),
            queues: BTreeMap::new(),
            next_queue: 1,
            index: 0,
            bodies: 0,
            effects: Vec::new(),
        }
    }

    /// Some queue, usually an existing one.
    fn queue(&self, byte: u8) -> QueueId {
        let ids: Vec<QueueId> = self.queues.keys().copied().collect();
        match ids.len() {
            0 => QueueId(99),
            count => ids.get(usize::from(byte) % (count + 1)).copied().unwrap_or(QueueId(99)),
        }
    }

    fn apply(&mut self, batch: Batch) {
        self.index += 1;
        let at = Applied { index: self.index, time_ms: self.index * 3 };
        let entry = batch.stamp(at.time_ms);
        let mut effects = Vec::new();
        self.leader.apply(at, &entry, &mut effects).expect("our own entry");
        let mut followed = Vec::new();
        self.follower.apply(at, &entry, &mut followed).expect("our own entry");
        let replicated = |effect: &&Effect| {
            let is_leaders = |effect: &Effect| {
                matches!(
                    effect,
                    Effect::Deliver { .. } | Effect::Cancelled { .. } | Effect::Marked { .. }
                )
            };
            !is_leaders(effect)
        };
        let lead: Vec<_> = effects.iter().filter(replicated).collect();
        let follow: Vec<_> = followed.iter().filter(replicated).collect();
        assert_eq!(lead, follow, "the follower saw something else");
        for effect in effects {
            if let Effect::Enqueued { queue, first_seq, count, bytes } = &effect {
                let queue = self.queues.get_mut(queue).map(|model| (*queue, model));
                let (id, model) = queue.expect("only known queues get messages");
                let found: Vec<_> = Messages::of(id, &entry[bytes.clone()]).collect();
                assert_eq!(found.len(), *count as usize, "the run does not hold its messages");
                for (offset, (head, body)) in found.into_iter().enumerate() {
                    let message = model.at(first_seq + offset as u64);
                    assert_eq!([head, body].concat(), message.body);
                }
            }
            self.effects.push(effect);
        }
        assert_eq!(self.leader.digest(), self.follower.digest());
    }

    fn enqueue(&mut self, batch: &mut Batch, ids: &[QueueId]) {
        self.bodies += 1;
        let body = self.bodies.to_string().into_bytes();
        batch.enqueue(ids, &[&body[..1]], &body[1..]);
        for id in ids {
            if let Some(queue) = self.queues.get_mut(id) {
                let message = Message { state: State::Ready, was_seen: false, body: body.clone() };
                queue.messages.push(message);
            }
        }
    }

    fn create(&mut self, byte: u8) {
        let id = QueueId(self.next_queue);
        self.next_queue += 1;
        let is_auto_delete = byte.is_multiple_of(4);
        let settings =
            QueueSettings { is_durable: true, is_auto_delete, features: None, is_paused: false };
        let mut batch = Batch::new();
        batch.keep_chain();
        batch.create_queue(id, &settings);
        batch.create_queue(id, &QueueSettings::default());
        let mark = byte.is_multiple_of(3).then_some(1);
        if mark.is_some() {
            batch.keep_marks(id);
        }
        self.queues.insert(id, ModelQueue { is_auto_delete, mark, ..ModelQueue::default() });
        self.apply(batch);
    }

    fn log_settles(&mut self) {
        let mut batch = Batch::new();
        while self.leader.take_settled(&mut batch) {}
        assert_eq!(self.leader.settled_waiting(), 0);
        for queue in self.queues.values_mut() {
            for message in &mut queue.messages {
                if let State::Unlogged(outcome) = message.state {
                    message.state = State::Gone;
                    match outcome {
                        Outcome::Done => queue.settled += 1,
                        Outcome::Rejected => queue.dropped += 1,
                        Outcome::Purged => queue.purged += 1,
                        _ => unreachable!(),
                    }
                }
            }
        }
        let marks = marks_of(batch.clone());
        self.apply(batch);
        for (id, to) in marks {
            let queue = self.queues.get_mut(&id).expect("only known queues have marks");
            assert!(queue.mark < Some(to), "a mark does not go back");
            queue.mark = Some(to);
            for message in queue.messages.iter_mut().take(to as usize - 1) {
                if matches!(message.state, State::Unmarked(_)) {
                    message.state = State::Unlogged(Outcome::Done);
                }
            }
        }
        let waits = |state| matches!(state, State::Unmarked(_));
        let waiting: u64 = self.queues.values().map(|queue| queue.count(waits)).sum();
        assert_eq!(waiting, 0, "what waited for the log has been heard of");
    }

    fn step(&mut self, [op, a, b, c]: [u8; 4]) {
        let id = self.queue(a);
        let who = consumer(b);
        match op % 22 {
            0 => self.create(a),
            1..=4 => {
                let mut batch = Batch::new();
                for _ in 0..c % 30 {
                    self.enqueue(&mut batch, &[id]);
                }
                self.apply(batch);
            }
            5 => {
                let mut batch = Batch::new();
                let other = self.queue(b);
                for number in 0..c % 40 {
                    match number % 13 {
                        0..4 => self.enqueue(&mut batch, &[id, other]),
                        _ => self.enqueue(&mut batch, &[other]),
                    }
                }
                self.apply(batch);
            }
            6 | 7 => self.attach(id, who, c),
            8 => {
                let (before, is_known) = match self.queues.get_mut(&id) {
                    Some(queue) => (queue.consumers.remove(&who).is_some(), true),
                    None => (false, false),
                };
                self.leader.detach(id, who, &mut self.effects);
                if is_known && before {
                    self.expect_unused(id);
                }
            }
            9 => {
                if let Some(held) = self.queues.get_mut(&id).and_then(|q| q.consumers.get_mut(&who))
                {
                    held.credit += u32::from(c % 8);
                }
                self.leader.credit(id, who, u32::from(c % 8), &mut self.effects);
            }
            10 => self.get(id, who, c),
            11..=14 => self.settle(id, who, c, op),
            15 => self.log_settles(),
            16 => self.end_session(who.session),
            17 => self.purge_or_close(id, c),
            18 => self.transaction(id, who, c),
            19 => self.join(u64::from(c % 2), [a, b]),
            20 if !self.is_dispatching => self.start_dispatch(),
            _ => match c % 4 {
                0 => self.drop_queue(id),
                1 => self.change_leader(),
                _ => self.follower = restored(&self.follower),
            },
        }
        self.deliver();
        self.check();
    }

    fn attach(&mut self, id: QueueId, who: ConsumerId, c: u8) {
        let spec = ConsumerSpec {
            credit: u32::from(c % 7),
            no_ack: c.is_multiple_of(5),
            exclusive: c.is_multiple_of(11),
            priority: i32::from(c.is_multiple_of(3)),
            start: None,
            weight: Weight::Unknown,
            generation: 0,
            is_paused: false,
        };
        let result = self.leader.attach(id, who, spec, &mut self.effects);
        let Some(queue) = self.queues.get_mut(&id).filter(|queue| !queue.is_closing) else {
            assert_eq!(result, Err(AttachError::NoQueue));
            return;
        };
        if queue.attach(who, spec) {
            assert_eq!(result, Ok(()));
        } else {
            assert_eq!(result, Err(AttachError::ExclusiveUse));
        }
    }

    /// A node says what its sessions have: what it had at the leader before, or has at this one. Some
    /// of it got lost on the way, or never was.
    fn join(&mut self, node: u64, [a, b]: [u8; 2]) {
        let is_of_node = is_of_node(node);
        let (mut attachments, away) = std::mem::take(&mut self.away)
            .into_iter()
            .partition(|it| is_of_node(it.consumer.session));
        self.away = away;
        if Vec::is_empty(&attachments) {
            attachments = self.leader.attachments();
        }
        for (number, attached) in attachments.iter_mut().enumerate() {
            match (usize::from(a) + number) % 5 {
                0 => attached.held.pop_front(u64::from(b) % 4).is_some(),
                1 => attached.held.insert_all(&some_ranges(b)) > 0,
                _ => true,
            };
        }
        attachments.retain(|attached| attached.consumer.number != u64::from(b % 7));
        // Who has nothing yet has asked to be attached and heard no answer: it stays if it was there.
        let is_asking = |it: &&Attached| !it.is_attached && it.held.is_empty();
        let is_here = |it: &&Attached| {
            self.queues
                .get(&it.queue)
                .is_some_and(|queue| queue.consumers.contains_key(&it.consumer))
        };
        let keep = |it: &Attached| {
            let spec = ConsumerSpec { credit: 0, ..it.spec };
            Attached { spec, is_attached: true, ..it.clone() }
        };
        let kept: Vec<_> = attachments.iter().filter(is_asking).filter(is_here).map(keep).collect();
        self.leader.join(&is_of_node, &attachments, &mut self.effects);
        let before: BTreeMap<QueueId, (Vec<usize>, bool)> =
            self.queues.iter_mut().map(|(id, queue)| (*id, queue.let_go(&is_of_node))).collect();
        for attached in attachments.iter().filter(|it| !is_asking(it)).chain(&kept) {
            let Attached { queue: id, consumer, spec, is_attached, ref held } = *attached;
            if !is_of_node(consumer.session) {
                continue;
            }
            let mut is_refused = is_attached;
            if let Some(queue) = self.queues.get_mut(&id) {
                for seq in held.iter() {
                    if let Some(message) = queue.messages.get_mut(seq as usize - 1)
                        && message.state == State::Ready
                    {
                        message.state = State::Held(consumer);
                    }
                }
                is_refused = is_attached && !queue.attach(consumer, spec);
            }
            let effect = Effect::Cancelled { queue: id, consumer };
            assert_eq!(self.effects.contains(&effect), is_refused);
        }
        for (id, (held, was_attached)) in before {
            let Some(queue) = self.queues.get_mut(&id) else { continue };
            for index in held {
                let message = &mut queue.messages[index];
                message.was_seen |= message.state == State::Ready;
            }
            if was_attached {
                self.expect_unused(id);
            }
        }
        assert!(!self.effects.iter().any(|effect| matches!(effect, Effect::Unused { .. })));
    }

    fn start_dispatch(&mut self) {
        self.is_dispatching = true;
        self.leader.start_dispatch(&mut self.effects);
        let lost: Vec<_> =
            self.queues.iter().filter(|(_, it)| it.has_lost).map(|(id, _)| *id).collect();
        lost.into_iter().for_each(|id| self.expect_unused(id));
    }

    fn get(&mut self, id: QueueId, who: ConsumerId, c: u8) {
        let no_ack = c.is_multiple_of(3);
        let reply = self.leader.get(id, who, no_ack, &mut self.effects);
        let Some(queue) = self.queues.get_mut(&id) else {
            assert_eq!(reply, GetReply::NoQueue);
            return;
        };
        if !self.is_dispatching {
            assert_eq!(reply, GetReply::NotYet);
            return;
        }
        let Some(seq) = queue.first_ready() else {
            assert_eq!(reply, GetReply::Empty);
            return;
        };
        let redelivered = queue.at(seq).was_seen;
        let (state, waits) = queue.given(seq..seq + 1, who, no_ack);
        queue.at(seq).state = state;
        let ready = queue.count(|state| state == State::Ready);
        assert_eq!(reply, GetReply::Delivered { ready });
        let delivery = Effect::Deliver {
            queue: id,
            consumer: who,
            first_seq: seq,
            count: 1,
            redelivered,
            no_ack,
            returns: 0,
            waits,
        };
        assert_eq!(self.effects.pop(), Some(delivery));
    }

    fn settle(&mut self, id: QueueId, who: ConsumerId, c: u8, op: u8) {
        let outcome = match op % 20 {
            11 | 12 => Outcome::Done,
            13 => Outcome::Requeue,
            _ if c < 128 => Outcome::Undelivered,
            _ => Outcome::Rejected,
        };
        let ranges = some_ranges(c);
        self.leader.settle(id, who, &ranges, outcome, &mut self.effects);
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.settle(who, &ranges, outcome, false);
        }
    }

    /// Settles in an entry, with the hint of who held them.
    fn transaction(&mut self, id: QueueId, who: ConsumerId, c: u8) {
        let ranges = some_ranges(c);
        let held: Ranges = match self.queues.get(&id) {
            Some(queue) => {
                let all = ranges.iter().filter(|seq| {
                    let message = queue.messages.get(*seq as usize - 1);
                    message.is_some_and(|message| message.state == State::Held(who))
                });
                all.map(|seq| seq..seq + 1).collect()
            }
            None => Ranges::new(),
        };
        let outcome = if c.is_multiple_of(4) { Outcome::Requeue } else { Outcome::Done };
        let mut batch = Batch::new();
        batch.settle(id, outcome, &held);
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.settle(who, &held, outcome, true);
            if outcome == Outcome::Done {
                queue.settled += held.len();
            }
        }
        self.leader.settle_committed(id, who, &held, outcome, &mut self.effects);
        self.apply(batch);
    }

    fn end_session(&mut self, session: SessionId) {
        self.leader.end_session(session, &mut self.effects);
        let ids: Vec<QueueId> = self.queues.keys().copied().collect();
        for id in ids {
            let Some(queue) = self.queues.get_mut(&id) else { continue };
            for message in &mut queue.messages {
                if matches!(message.state, State::Held(consumer) if consumer.session == session) {
                    message.state = State::Ready;
                    message.was_seen = true;
                }
            }
            let before = queue.consumers.len();
            queue.consumers.retain(|consumer, _| consumer.session != session);
            if queue.consumers.len() < before {
                self.expect_unused(id);
            }
        }
        self.deliver();
        // What waited for the log has not left.
        for (id, queue) in &mut self.queues {
            let mut back = Ranges::new();
            for (seq, message) in (1..).zip(&mut queue.messages) {
                if matches!(message.state, State::Unmarked(who) if who.session == session) {
                    message.state = State::Ready;
                    back.insert(seq..seq + 1);
                }
            }
            self.leader.take_back(*id, &back, &mut self.effects);
        }
    }

    fn expect_unused(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.has_lost = !self.is_dispatching;
        if queue.has_lost {
            return;
        }
        if queue.is_auto_delete && queue.consumers.is_empty() && !queue.is_closing {
            queue.is_closing = true;
            let effect = Effect::Unused { queue: id };
            let found = self.effects.iter().position(|other| *other == effect);
            self.effects.remove(found.expect("an unused queue says so"));
        }
    }

    fn purge_or_close(&mut self, id: QueueId, c: u8) {
        let Some(queue) = self.queues.get_mut(&id) else {
            assert_eq!(self.leader.purge(id), None);
            assert_eq!(self.leader.close_queue(id, true, true), Err(CloseError::NoQueue));
            return;
        };
        let ready = queue.count(|state| state == State::Ready);
        if c.is_multiple_of(2) {
            let (if_unused, if_empty) = (c & 4 != 0, c & 8 != 0);
            let result = self.leader.close_queue(id, if_unused, if_empty);
            if if_empty && ready > 0 {
                assert_eq!(result, Err(CloseError::NotEmpty));
            } else if if_unused && !queue.consumers.is_empty() {
                assert_eq!(result, Err(CloseError::InUse));
            } else {
                assert_eq!(result, Ok(ready));
                self.leader.reopen_queue(id);
                queue.is_closing = false;
            }
            return;
        }
        assert_eq!(self.leader.purge(id), Some(ready));
        for message in &mut queue.messages {
            if message.state == State::Ready {
                message.state = State::Unlogged(Outcome::Purged);
            }
        }
    }

    fn drop_queue(&mut self, id: QueueId) {
        let model = self.queues.remove(&id);
        let mut batch = Batch::new();
        batch.drop_queue(id);
        batch.enqueue(&[id], &[b"late"], b"");
        self.apply(batch);
        for who in model.iter().flat_map(|queue| queue.consumers.keys()) {
            let effect = Effect::Cancelled { queue: id, consumer: *who };
            assert!(self.effects.contains(&effect), "a consumer was not told");
        }
        assert_eq!(self.leader.status(id), None);
    }

    /// The follower leads, with nothing but what was in the log.
    fn change_leader(&mut self) {
        self.away = self.leader.attachments();
        self.is_dispatching = false;
        std::mem::swap(&mut self.leader, &mut self.follower);
        self.leader.lead();
        self.follower.follow();
        self.effects.clear();
        for queue in self.queues.values_mut() {
            queue.consumers.clear();
            queue.is_closing = false;
            queue.has_lost = false;
            for (seq, message) in (1..).zip(&mut queue.messages) {
                if message.state != State::Gone {
                    message.state = State::Ready;
                    message.was_seen = queue.mark.is_none_or(|mark| seq < mark);
                }
            }
        }
    }

    /// Every delivery is the oldest ready message's, to a consumer of the highest priority that has
    /// credit, and flagged if it was seen.
    fn deliver(&mut self) {
        for effect in std::mem::take(&mut self.effects) {
            let Effect::Deliver {
                queue,
                consumer,
                first_seq,
                count,
                redelivered,
                no_ack,
                waits,
                ..
            } = effect
            else {
                continue;
            };
            let queue = self.queues.get_mut(&queue).expect("only known queues deliver");
            let with_credit = queue.consumers.values().filter(|consumer| consumer.credit > 0);
            let highest = with_credit.map(|consumer| consumer.spec.priority).max();
            let taker = queue.consumers.get_mut(&consumer).expect("only consumers get messages");
            assert_eq!(Some(taker.spec.priority), highest);
            assert_eq!(taker.spec.no_ack, no_ack);
            assert!(taker.credit >= count && count > 0);
            taker.credit -= count;
            let seqs = first_seq..first_seq + u64::from(count);
            let (state, is_unmarked) = queue.given(seqs.clone(), consumer, no_ack);
            assert_eq!(waits, is_unmarked, "what the log has not heard of waits");
            for seq in seqs {
                assert_eq!(queue.first_ready(), Some(seq), "out of order");
                let message = queue.at(seq);
                assert_eq!(message.was_seen, redelivered, "flagged wrongly");
                message.state = state;
            }
        }
    }

    fn check(&self) {
        for (id, queue) in &self.queues {
            let status = self.leader.status(*id).expect("the queue exists");
            let ready = queue.count(|state| state == State::Ready);
            assert_eq!(status.ready, ready);
            assert_eq!(status.unsettled, queue.count(|state| matches!(state, State::Held(_))));
            assert_eq!(status.consumers as usize, queue.consumers.len());
            assert_eq!(status.counters.enqueued, queue.messages.len() as u64);
            assert_eq!(status.counters.settled, queue.settled);
            assert_eq!(status.counters.dropped, queue.dropped);
            assert_eq!(status.counters.purged, queue.purged);
            assert_eq!(self.leader.kept(*id).map(Seqs::to_ranges), Some(queue.live()));
            assert_eq!(self.follower.kept(*id).map(Seqs::to_ranges), Some(queue.live()));
            let has_credit = queue.consumers.values().any(|consumer| consumer.credit > 0);
            let may_wait = !self.is_dispatching || ready == 0 || !has_credit;
            assert!(may_wait, "a message waits beside a consumer with credit");
        }
        self.check_attachments();
        assert_eq!(self.leader.queues().count(), self.queues.len());
    }
}

impl World {
    /// What the leader says that somebody has is what the model knows, and is nobody else's.
    fn check_attachments(&self) {
        let attachments = self.leader.attachments();
        for attached in &attachments {
            let queue = &self.queues[&attached.queue];
            let consumer = queue.consumers.get(&attached.consumer);
            let credit = consumer.map(|consumer| consumer.credit);
            assert_eq!(credit, Some(attached.spec.credit).filter(|_| attached.is_attached));
            assert!(attached.is_attached || !attached.held.is_empty());
            for seq in attached.held.iter() {
                let state = queue.messages[seq as usize - 1].state;
                assert_eq!(state, State::Held(attached.consumer));
            }
        }
        let held: u64 = attachments.iter().map(|attached| attached.held.len()).sum();
        let is_held = |state| matches!(state, State::Held(_));
        let expected: u64 = self.queues.values().map(|queue| queue.count(is_held)).sum();
        assert_eq!(held, expected);
    }
}

/// The marks in a batch.
fn marks_of(batch: Batch) -> Vec<(QueueId, u64)> {
    let entry = batch.stamp(0);
    let commands = EntryReader::new(&entry).expect("our own entry");
    let marks = commands.filter_map(|command| match command.expect("our own entry").1 {
        Command::MarkDelivered { queue, to } => Some((queue, to)),
        _ => None,
    });
    marks.collect()
}

fn some_ranges(c: u8) -> Ranges {
    let start = u64::from(c % 32) + 1;
    let count = u64::from(c / 32) * 4 + 1;
    [start..start + count, start + count + 1..start + count + 3].into_iter().collect()
}

fn restored(machine: &QueueMachine) -> QueueMachine {
    let restored = QueueMachine::restore(&machine.snapshot()).expect("our own snapshot");
    assert_eq!(restored.digest(), machine.digest());
    restored
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_queues_do_what_the_naive_model_does(
        ops in proptest::collection::vec(any::<[u8; 4]>(), 1..150),
    ) {
        let mut world = World::new();
        world.create(1);
        for op in ops {
            world.step(op);
        }
        world.start_dispatch();
        world.deliver();
        world.log_settles();
        world.deliver();
        world.check();
    }
}
