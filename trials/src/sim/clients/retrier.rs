//! Somebody who sends dead letters on: the broker's own retry, with a session of its own, one after the other. It is held
//! to what an operator is promised: a message is let go of where it lay after a majority has it where it was sent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use broker::dead_letter::retry::{Filter, Input, Plan as Order, Retrier as Core, To, Which};
use cluster::{Alarms, Answer, Delivery, Request};
use machine::{
    Batch, Command, EntryReader, GroupId, Messages, Outcome, Position, QueueId, Version,
};

use super::{Home, Outside, id_of};
use crate::history::{Stage, What};
use crate::sim::VHOST;
use crate::sim::agenda::Micros;
use crate::sim::heads::{copy_of, retries_of};
use crate::workload::Chance;
use crate::workload::special::{CHAIN, DEAD, FAILS, LIMBO};

/// Of one append: well below what a group takes at once, whose log has small files here.
const APPEND_BYTES: usize = 4 << 10;
/// Where it takes messages from.
const FROM: [&str; 5] = [LIMBO, LIMBO, LIMBO, DEAD, CHAIN];
/// Where it sends some of them.
const NAMED: [&str; 4] = [FAILS, "work", "fan-a", DEAD];
/// The time when the first begins, in milliseconds since 1970.
const BEGAN_MS: u64 = 1_700_000_000_000;

pub(super) struct Retrier {
    chance: Chance,
    pub(super) home: Option<Home>,
    running: Option<Running>,
    /// Messages that were sent on by those that came to their end.
    pub(super) sent: u64,
}

/// One of them.
struct Running {
    core: Core,
    from: &'static str,
    began: Micros,
    is_dry: bool,
    is_stopped: bool,
    held: BTreeMap<(QueueId, u64), Taken>,
}

/// A message that it holds.
struct Taken {
    id: String,
    /// How often it will have been sent on.
    retries: u32,
    /// The copies of it that were sent, and the groups that are to have them.
    copies: BTreeSet<(GroupId, String)>,
}

impl Retrier {
    pub(super) fn new(seed: u64) -> Self {
        let chance = Chance::named(seed, "retrier");
        Self { chance, home: None, running: None, sent: 0 }
    }

    /// Nothing is on its way.
    pub(super) fn is_quiet(&self) -> bool {
        self.home.is_none()
    }

    pub(super) fn act(&mut self, may_work: bool, may_leave: bool, outside: &mut Outside<'_>) {
        let Some(home) = self.home else {
            if may_work && self.chance.percent(20) {
                self.begin(outside);
            }
            return;
        };
        // As when its node is told to end in the middle of it.
        if may_leave && self.chance.within(0, 250) == 0 {
            return self.leave(home, outside);
        }
        let Some(running) = &mut self.running else { return };
        let now = Duration::from_micros(outside.now - running.began);
        if !running.is_stopped && (!may_work || self.chance.within(0, 300) == 0) {
            running.is_stopped = true;
            self.step(home, Input::Stop, outside);
        } else if running.core.deadline().is_some_and(|at| at <= now) {
            self.step(home, Input::DeadlinePassed, outside);
        }
    }

    fn begin(&mut self, outside: &mut Outside<'_>) {
        let from = FROM[self.chance.within(0, FROM.len() as u64) as usize];
        let Some(home) = outside.connect() else { return };
        // As a node does, which refuses a retry before all nodes know how to take messages from their places.
        let life = outside.nodes[home.node].life.as_ref();
        let may_take = life.is_some_and(|life| life.catalog.agreed() >= Version::TAKES);
        let found = outside.queue(home, from).filter(|_| may_take);
        let Some((queue, group)) = found else { return outside.leave(home) };
        let order = Order {
            vhost: VHOST.to_owned(),
            queue: from.to_owned(),
            place: (group, queue),
            to: self.draw_target(),
            which: self.draw_messages(),
            count_max: if self.chance.percent(30) { self.chance.within(1, 20) } else { u64::MAX },
            rate: self.chance.percent(30).then(|| self.chance.within(5, 500) as u32),
            // Nothing goes round for ever.
            retries_max: Some(self.chance.within(1, 6) as u32),
            is_dry: self.chance.percent(5),
            edit: None,
            user: "guest".to_owned(),
            grant: None,
        };
        let is_dry = order.is_dry;
        let began_ms = BEGAN_MS + outside.now / 1000;
        let core = Core::new(home.session, order, began_ms, Alarms::default(), APPEND_BYTES);
        let (began, held) = (outside.now, BTreeMap::new());
        self.running = Some(Running { core, from, began, is_dry, is_stopped: false, held });
        self.home = Some(home);
        self.step(home, Input::DeadlinePassed, outside);
    }

    fn draw_target(&mut self) -> To {
        match self.chance.within(0, 10) {
            0..6 => To::Queue,
            6..8 => To::Exchange,
            _ => {
                let key = NAMED[self.chance.within(0, NAMED.len() as u64) as usize].to_owned();
                To::Named { exchange: String::new(), key }
            }
        }
    }

    fn draw_messages(&mut self) -> Which {
        if self.chance.percent(15) {
            let place = |chance: &mut Chance| Position { priority: 0, seq: chance.within(1, 200) };
            let count = self.chance.within(1, 10);
            return Which::At((0..count).map(|_| place(&mut self.chance)).collect());
        }
        let reason = self.chance.percent(15).then(|| "rejected".to_owned());
        let died_in = self.chance.percent(15).then(|| FAILS.to_owned());
        Which::All(Filter { reason, died_in, ..Filter::default() })
    }

    pub(super) fn answered(&mut self, answer: Answer, outside: &mut Outside<'_>) {
        let Some(home) = self.home else { return };
        if let Answer::Got { delivery: Some(delivery), .. } = &answer {
            self.taken(home, delivery, outside);
        }
        self.step(home, Input::Answered(&mut vec![answer]), outside);
    }

    fn taken(&mut self, home: Home, delivery: &Delivery, outside: &mut Outside<'_>) {
        let Some(running) = &mut self.running else { return };
        let messages = Messages::of(delivery.queue, &delivery.bytes);
        for (seq, (head, _)) in (delivery.first_seq..).zip(messages) {
            let (id, retries) = (id_of(head), retries_of(head) + 1);
            let place = (delivery.queue, seq);
            outside.watch.delivered(delivery.queue, seq, &id, true);
            outside.watch.holds.given(place, home.session, &id);
            let (k, q, m) = (Stage::Fail, running.from.to_owned(), Some(id.clone()));
            outside.diary.saw("retrier", What::Retry { k, q, m, to: Vec::new() });
            running.held.insert(place, Taken { id, retries, copies: BTreeSet::new() });
        }
    }

    fn step(&mut self, home: Home, input: Input<'_>, outside: &mut Outside<'_>) {
        let Some(running) = &mut self.running else { return };
        let Some(life) = &outside.nodes[home.node].life else { return };
        let now = Duration::from_micros(outside.now - running.began);
        let mut requests = Vec::new();
        running.core.step(now, &life.catalog, input, &mut requests);
        for request in &requests {
            running.look(home, request, outside);
        }
        if !requests.is_empty() {
            outside.ask(home, requests);
        }
        let is_over = running.core.is_over();
        if is_over {
            let is_dry = running.is_dry;
            self.sent += if is_dry { 0 } else { running.core.progress().sent };
            if !running.held.is_empty() {
                let held = running.held.len();
                let text = format!("a retry is over, and has {held} messages of {}", running.from);
                outside.diary.saw("retrier", What::Protocol { text });
            }
            self.leave(home, outside);
        }
    }

    /// Its session ends, and what it holds goes back.
    fn leave(&mut self, home: Home, outside: &mut Outside<'_>) {
        outside.watch.holds.left(home.session);
        outside.leave(home);
        self.end();
    }

    pub(super) fn disconnected(&mut self, node: usize) {
        if self.home.is_some_and(|home| home.node == node) {
            self.end();
        }
    }

    fn end(&mut self) {
        self.home = None;
        self.running = None;
    }
}

impl Running {
    /// Holds what it asks for against what is promised.
    fn look(&mut self, home: Home, request: &Request, outside: &mut Outside<'_>) {
        if let Request::Append { group, batch, .. } = request {
            self.sends(home, *group, batch, outside);
        }
        if let Request::Settle { queue, ranges, outcome, .. } = request {
            for seq in ranges.iter() {
                self.lets_go(home, (*queue, seq), *outcome, outside);
            }
        }
    }

    fn sends(&mut self, home: Home, group: GroupId, batch: &Batch, outside: &mut Outside<'_>) {
        let entry = batch.clone().stamp(0);
        let commands = EntryReader::new(&entry).into_iter().flatten().flatten();
        for (_, command) in commands {
            let Command::Enqueue(enqueue) = command else { continue };
            let (id, retries) = (id_of(enqueue.head), retries_of(enqueue.head));
            for taken in self.held.values_mut().filter(|it| it.id == id && it.retries == retries) {
                let copies = enqueue.queues.iter().map(|queue| copy_of(&id, retries, queue));
                taken.copies.extend(copies.map(|copy| (group, copy)));
            }
            let to = enqueue.queues.iter();
            let to = to.filter_map(|queue| outside.queue_name(home, queue.base())).collect();
            outside.watch.retried(&id);
            let (k, q) = (Stage::Inv, self.from.to_owned());
            outside.diary.saw("retrier", What::Retry { k, q, m: Some(id), to });
        }
    }

    fn lets_go(
        &mut self,
        home: Home,
        place: (QueueId, u64),
        outcome: Outcome,
        outside: &mut Outside<'_>,
    ) {
        let Some(Taken { id, copies, .. }) = self.held.remove(&place) else {
            let (text, at) =
                (format!("a retry settles what it does not hold: {place:?}"), "retrier");
            return outside.diary.saw(at, What::Protocol { text });
        };
        outside.watch.holds.let_go(place, home.session, outcome.is_final());
        if !outcome.is_final() {
            return;
        }
        if copies.is_empty() {
            let text = format!("{id} let go of first: it was sent nowhere");
            outside.diary.saw("retrier", What::Protocol { text });
        }
        for (group, copy) in copies {
            outside.watch.sent_on(group, &copy);
        }
        let (k, q, to) = (Stage::Ok, self.from.to_owned(), Vec::new());
        outside.diary.saw("retrier", What::Retry { k, q, m: Some(id), to });
    }
}
