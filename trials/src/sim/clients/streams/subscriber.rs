//! Somebody who consumes a subscription: takes messages, settles them or gives them back, loses his connection, and now
//! and then has the subscription set to another place. What he sees is judged as it comes.
//!
//! | What is judged | When |
//! | --- | --- |
//! | B1: what comes unflagged comes in order, and nobody has got it since the subscription was set there | at each delivery |
//! | B2: all from its beginning on comes, however often nodes fail | when all is quiet |
//! | B3: its stream keeps what it has not settled | at each look |
//! | B4: of several consumers of a partition nobody is sent anything while another holds something | at each delivery |
//! | B5: where messages have keys nobody is sent one for the first time before those in front of it with the same key are done, nor one without | at each delivery |

use std::collections::{BTreeMap, BTreeSet};

use cluster::{Answer, Delivery, Request, Ticket};
use machine::{
    Arguments, AttachError, CatalogCommand, ConsumerId, ConsumerSpec, Messages, Outcome, QueueId,
    Ranges, StreamOffset, Value,
};

use super::super::{Home, Outside, id_of};
use super::shelf::Shelf;
use super::{At, KEYS, Mood, Plan};
use crate::sim::VHOST;
use crate::workload::{Chance, crc32};

const ATTACH: Ticket = Ticket(1);
const SEEK: Ticket = Ticket(2);
const END: Ticket = Ticket(9);
const CREDIT_DRAINING: u32 = 200;

/// A subscription, and the one who consumes it.
pub(super) struct Subscriber {
    pub(super) name: String,
    /// Which stream, or partition of one, it reads.
    pub(super) stream: usize,
    partition: usize,
    pub(super) home: Option<Home>,
    /// It is declared.
    pub(super) is_there: bool,
    state: State,
    /// Of the attachment: each has a number of its own.
    number: u64,
    at: Option<At>,
    credit: u32,
    /// Level and number of what it was sent and has not settled.
    held: Vec<(At, u64)>,
    is_seeking: bool,
    may_seek: bool,
    is_keyed: bool,
}

/// What all consumers of a subscription, or of one of its partitions, saw since it was set to where it is.
#[derive(Default)]
pub(super) struct Seen {
    /// Says how often it was set to another place.
    level: Option<u8>,
    /// Where it began.
    from: Option<u64>,
    got: BTreeSet<u64>,
    /// Said to be done with.
    done: BTreeSet<u64>,
    /// All below is.
    done_below: u64,
    newest_unflagged: u64,
    /// What came of each key and is not done with, where messages have keys.
    of_key: BTreeMap<u64, BTreeSet<u64>>,
    /// It was asked to be set to another place: until something comes from there nobody knows where it stands.
    is_sought: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Attaching,
    Attached,
}

impl Subscriber {
    pub(super) fn new(plan: &Plan, stream: usize, may_seek: bool) -> Self {
        Self {
            name: format!("subscription-of-{}", plan.name),
            partition: plan.partition.0,
            stream,
            home: None,
            is_there: false,
            state: State::Idle,
            number: 0,
            at: None,
            credit: 0,
            held: Vec::new(),
            is_seeking: false,
            may_seek,
            is_keyed: plan.is_keyed,
        }
    }

    /// What it is declared with.
    pub(super) fn arguments(plan: &Plan) -> Arguments {
        let text = |text: &str| Value::LongStr(text.as_bytes().to_vec());
        let arguments = Arguments::new()
            .with("x-queue-type", text("subscription"))
            .with("x-stream", text(plan.name))
            .with("x-stream-offset", text("first"));
        match plan.partition.1 {
            ..=1 if plan.is_keyed => arguments
                .with("x-order", text("key"))
                .with("x-partition-by", text("routing-key"))
                .with("x-filter", text("key.*")),
            ..=1 => arguments,
            _ => arguments.with("x-assign", text("partition")),
        }
    }

    /// A message that it holds, if it does.
    pub(super) fn holds(&self) -> Option<(QueueId, u64)> {
        self.held.first().map(|((level, _), seq)| (*level, *seq))
    }

    pub(super) fn act(
        &mut self,
        mood: Mood,
        (shelf, seen): (&Shelf, &mut Seen),
        chance: &mut Chance,
        outside: &mut Outside<'_>,
    ) {
        let Some(home) = self.home else {
            self.home = outside.connect();
            return;
        };
        let may_leave = !mood.is_steady && !mood.is_draining && chance.within(0, 150) == 0;
        if may_leave {
            if chance.percent(60) {
                outside.ask(home, vec![Request::EndSession { ticket: END }]);
            } else {
                outside.leave(home);
            }
            return self.end();
        }
        match self.state {
            State::Idle => self.attach(home, chance, outside),
            State::Attaching => {}
            State::Attached if self.seeks(mood, chance) => {
                seen.is_sought = true;
                self.seek(home, shelf, chance, outside);
            }
            State::Attached => self.settle(home, seen, mood, chance, outside),
        }
    }

    fn seeks(&self, mood: Mood, chance: &mut Chance) -> bool {
        let may = self.may_seek && !self.is_seeking && !mood.is_draining && !mood.is_steady;
        may && chance.within(0, 150) == 0
    }

    fn attach(&mut self, home: Home, chance: &mut Chance, outside: &mut Outside<'_>) {
        let Some((queue, group)) = outside.partition(home, &self.name, self.partition) else {
            return;
        };
        self.is_there = true;
        self.credit = chance.within(1, 60) as u32;
        self.number += 1;
        (self.state, self.at) = (State::Attaching, Some((queue, group)));
        self.held.clear();
        let spec = ConsumerSpec { credit: self.credit, ..ConsumerSpec::default() };
        let consumer = self.id(home);
        let attach = Request::Attach { ticket: ATTACH, group, queue, consumer, spec };
        outside.ask(home, vec![attach]);
    }

    fn id(&self, home: Home) -> ConsumerId {
        ConsumerId { session: home.session, number: self.number }
    }

    fn seek(&mut self, home: Home, shelf: &Shelf, chance: &mut Chance, outside: &mut Outside<'_>) {
        let to = match chance.within(0, 4) {
            0 => StreamOffset::First,
            1 => StreamOffset::Next,
            _ => StreamOffset::At(chance.within(1, shelf.end() + 3)),
        };
        self.is_seeking = true;
        let (vhost, name) = (VHOST.to_owned(), self.name.clone());
        let command = CatalogCommand::SeekQueue { vhost, name, to };
        outside.ask(home, vec![Request::Catalog { ticket: SEEK, command }]);
    }

    /// Perhaps settles some of what it got.
    fn settle(
        &mut self,
        home: Home,
        seen: &mut Seen,
        mood: Mood,
        chance: &mut Chance,
        outside: &mut Outside<'_>,
    ) {
        let consumer = self.id(home);
        let hurries = mood.is_draining;
        let mut requests = Vec::new();
        if !self.held.is_empty() && (hurries || chance.percent(50)) {
            let count = if hurries {
                self.held.len() as u64
            } else {
                1 + chance.within(0, self.held.len() as u64)
            };
            let comes_back = !hurries && chance.percent(15);
            let outcome = if comes_back { Outcome::Requeue } else { Outcome::Done };
            for ((queue, group), seq) in self.held.drain(..count as usize) {
                let is_of_now = seen.level == Some(queue.priority());
                if outcome == Outcome::Done && is_of_now {
                    seen.done(seq);
                }
                let (ranges, credit) = (Ranges::from(seq..seq + 1), 1);
                requests.push(Request::Settle { group, queue, consumer, ranges, outcome, credit });
            }
            self.credit += count as u32;
        }
        if hurries
            && self.credit < CREDIT_DRAINING
            && let Some((queue, group)) = self.at
        {
            let add = CREDIT_DRAINING;
            self.credit += add;
            requests.push(Request::Credit { group, queue, consumer, add });
        }
        if !requests.is_empty() {
            outside.ask(home, requests);
        }
    }

    pub(super) fn answered(&mut self, answer: Answer, shelf: &mut Shelf, seen: &mut Seen) {
        match answer {
            Answer::Attached { ticket: ATTACH, result: Ok(()), .. } => self.state = State::Attached,
            // Its group knows it a moment later.
            Answer::Attached { ticket: ATTACH, result: Err(AttachError::NoQueue), .. }
            | Answer::AppendFailed { ticket: ATTACH } => self.state = State::Idle,
            Answer::Catalog { ticket: SEEK, .. } | Answer::AppendFailed { ticket: SEEK } => {
                self.is_seeking = false;
            }
            Answer::Delivered(delivery) => self.delivered(&delivery, shelf, seen),
            other => shelf.violated(format!("{} was told {other:?}", self.name)),
        }
    }

    fn delivered(&mut self, delivery: &Delivery, shelf: &mut Shelf, seen: &mut Seen) {
        let messages: Vec<_> = Messages::of(delivery.store, &delivery.bytes).collect();
        let is_right = messages.len() == delivery.count as usize
            && self.at.is_some_and(|(queue, _)| queue == delivery.queue.base())
            && shelf.place.is_some_and(|(stream, _)| stream == delivery.store);
        if !is_right || delivery.consumer.number != self.number {
            return shelf.violated(format!("{} was sent {delivery:?}", self.name));
        }
        for (seq, (head, body)) in (delivery.first_seq..).zip(messages) {
            let id = id_of(head);
            shelf.read(seq, &id, crc32(body));
            self.held.push(((delivery.queue, delivery.group), seq));
            if self.is_keyed {
                seen.comes_with_key(&self.name, seq, key_of(&id), shelf);
            } else {
                seen.comes_in_order(&self.name, delivery, seq, shelf);
            }
            seen.comes(delivery, seq, shelf);
        }
        match self.credit.checked_sub(delivery.count) {
            Some(left) => self.credit = left,
            None => {
                let (had, count) = (self.credit, delivery.count);
                shelf.violated(format!("{} had credit {had}, and was sent {count}", self.name));
                self.credit = 0;
            }
        }
    }

    /// B3, with what replicas keep now.
    pub(super) fn stands(&self, shelf: &mut Shelf, seen: &Seen) {
        let Some(from) = seen.from.filter(|_| !seen.is_sought) else { return };
        let Some(open) = (match self.is_keyed {
            // What has no key is settled without coming.
            true => seen.of_key.values().filter_map(BTreeSet::first).min().copied(),
            false => Some(seen.done_below.max(from)),
        }) else {
            return;
        };
        if shelf.first() > open {
            let (name, first) = (&self.name, shelf.first());
            let text = format!("{name} has not settled {open}, and its stream begins with {first}");
            shelf.violated(text);
        }
    }

    /// Whether it has all that there is.
    pub(super) fn has_all(&self, shelf: &Shelf, seen: &Seen) -> bool {
        !self.is_there
            || (self.state == State::Attached
                && !self.is_seeking
                && self.held.is_empty()
                && seen.missing(shelf, self.is_keyed).is_none())
    }

    pub(super) fn complaint(&self, shelf: &Shelf, seen: &Seen) -> String {
        let Self { name, state, home, credit, .. } = self;
        let (end, held, missing) =
            (shelf.end(), self.held.len(), seen.missing(shelf, self.is_keyed));
        format!(
            "{name} stalls: {state:?} at {home:?}, {held} held, never got {missing:?} of {end}, credit {credit}"
        )
    }

    pub(super) fn disconnected(&mut self, node: usize) {
        if self.home.is_some_and(|home| home.node == node) {
            self.end();
        }
    }

    fn end(&mut self) {
        self.home = None;
        self.state = State::Idle;
        self.at = None;
        self.held.clear();
        self.is_seeking = false;
    }
}

impl Seen {
    /// The first message that never came.
    fn missing(&self, shelf: &Shelf, is_keyed: bool) -> Option<u64> {
        let from = self.from.filter(|_| !self.is_sought).unwrap_or(shelf.end());
        // With keys, what no reader has seen may be without.
        let is_wanted =
            |seq: &u64| !is_keyed || shelf.id_at(*seq).is_some_and(|id| key_of(id) != 0);
        (from..shelf.end()).filter(|seq| !self.got.contains(seq)).find(is_wanted)
    }

    /// It was on its way when the subscription was set to another place.
    fn is_old(&self, level: u8) -> bool {
        self.level.is_some_and(|known| level < known)
    }

    /// B5.
    fn comes_with_key(&mut self, name: &str, seq: u64, key: u64, shelf: &mut Shelf) {
        if key == 0 {
            shelf.violated(format!("{name} gets {seq}, which its filter does not match"));
        }
        let of_key = self.of_key.entry(key).or_default();
        if self.got.contains(&seq) {
            return;
        }
        if let Some(first) = of_key.first() {
            shelf.violated(format!("{name} gets {seq} of key {key}, and {first} is not done"));
        }
        let later = self.got.range(seq..).find(|it| shelf.id_at(**it).map(key_of) == Some(key));
        if let Some(later) = later {
            shelf.violated(format!("{name} gets {seq} of key {key} behind {later}"));
        }
        of_key.insert(seq);
    }

    fn comes(&mut self, delivery: &Delivery, seq: u64, shelf: &mut Shelf) {
        let level = delivery.queue.priority();
        if self.is_old(level) {
            return;
        }
        shelf.counts.subscribed += 1;
        shelf.counts.flagged += u64::from(delivery.redelivered);
        if self.level != Some(level) {
            shelf.counts.seeks += u64::from(self.level.is_some());
            let of_key = std::mem::take(&mut self.of_key);
            *self = Self { level: Some(level), of_key, ..Self::default() };
        }
        self.from = Some(self.from.unwrap_or(seq).min(seq));
        self.got.insert(seq);
        if !delivery.redelivered {
            self.newest_unflagged = self.newest_unflagged.max(seq);
        }
    }

    /// B1.
    fn comes_in_order(&self, name: &str, delivery: &Delivery, seq: u64, shelf: &mut Shelf) {
        let level = delivery.queue.priority();
        // From another place on all may come again.
        if self.level == Some(level) && !delivery.redelivered {
            if self.got.contains(&seq) {
                shelf.violated(format!("{name} got {seq} before, and gets it again unflagged"));
            }
            if seq < self.newest_unflagged {
                let newest = self.newest_unflagged;
                shelf.violated(format!("{name} gets {seq} behind {newest}, both unflagged"));
            }
        }
    }

    fn done(&mut self, seq: u64) {
        self.done.insert(seq);
        self.of_key.values_mut().for_each(|open| _ = open.remove(&seq));
        let mut below = self.done_below.max(self.from.unwrap_or(seq));
        while self.done.contains(&below) {
            below += 1;
        }
        self.done_below = below;
    }
}

/// Of the message with this id, as [`super::routing_key`] gives it. 0: it has none.
fn key_of(id: &str) -> u64 {
    let number = id.rsplit(':').next().and_then(|number| number.parse::<u64>().ok());
    number.map_or(0, |number| number % KEYS)
}
