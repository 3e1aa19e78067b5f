//! Somebody who reads a stream: from some place on, with some credit, until he is cancelled or loses his connection.
//! Then he goes on behind the last message that he got, or somewhere else.

use std::collections::VecDeque;

use cluster::{Answer, Delivery, Held, Request, Ticket};
use machine::{
    AttachError, Batch, ConsumerId, ConsumerSpec, Messages, Outcome, Ranges, StreamOffset,
};

use super::super::{Home, Outside, id_of};
use super::shelf::{Shelf, Start};
use super::{At, Mood};
use crate::sim::agenda::Micros;
use crate::workload::{Chance, crc32};

const ATTACH: Ticket = Ticket(1);
const DETACH: Ticket = Ticket(2);
const COMMIT: Ticket = Ticket(3);
const END: Ticket = Ticket(9);
/// What a reader is given at a time while it is to come to the end, and when it has less.
const CREDIT_DRAINING: u32 = 300;
/// The wall clock when the simulation begins, in milliseconds since 1970.
const BEGAN_MS: u64 = 1_700_000_000_000;

pub(super) struct Reader {
    name: String,
    pub(super) stream: usize,
    pub(super) home: Option<Home>,
    state: State,
    /// Of the attachment: each has a number of its own.
    number: u64,
    at: Option<At>,
    start: Start,
    since: Micros,
    /// The message that comes next.
    next: u64,
    /// Messages that it may be sent.
    credit: u32,
    held: VecDeque<u64>,
    /// It acknowledges in a transaction that is not answered.
    is_committing: bool,
    /// Behind the last that it got.
    behind: Option<u64>,
    /// It is to begin with the first, in a new session, and has not begun.
    begins_again: bool,
}

/// How far it is with its stream. Without a connection it is `Idle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Attaching,
    Attached,
    Detaching,
}

impl Reader {
    pub(super) fn new(stream_name: &str, stream: usize, nth: usize) -> Self {
        Self {
            name: format!("reader-{stream_name}-{nth}"),
            stream,
            home: None,
            state: State::Idle,
            number: 0,
            at: None,
            start: Start::At(0),
            since: 0,
            next: 0,
            credit: 0,
            held: VecDeque::new(),
            is_committing: false,
            behind: None,
            begins_again: false,
        }
    }

    /// It is to read all that there is, in a session of its own.
    pub(super) fn begin_again(&mut self) {
        self.begins_again = true;
    }

    pub(super) fn act(
        &mut self,
        mood: Mood,
        shelf: &Shelf,
        chance: &mut Chance,
        outside: &mut Outside<'_>,
    ) {
        let Some(home) = self.home else {
            self.home = outside.connect();
            return;
        };
        let may_leave = !mood.is_steady && chance.within(0, 250) == 0;
        if may_leave || (self.begins_again && self.state != State::Idle) {
            // Some say goodbye, some just go.
            if chance.percent(60) {
                outside.ask(home, vec![Request::EndSession { ticket: END }]);
            } else {
                outside.leave(home);
            }
            return self.end();
        }
        match self.state {
            State::Idle => self.attach(home, shelf, chance, outside),
            State::Attaching | State::Detaching => {}
            State::Attached if !mood.is_draining && chance.within(0, 120) == 0 => {
                self.detach(home, outside);
            }
            State::Attached => self.settle(home, mood, chance, outside),
        }
    }

    fn attach(
        &mut self,
        home: Home,
        shelf: &Shelf,
        chance: &mut Chance,
        outside: &mut Outside<'_>,
    ) {
        let Some((queue, group)) = outside.partition(home, shelf.name, shelf.partition) else {
            return;
        };
        self.start = self.draw_start(shelf, chance, outside.now);
        let start = match self.start {
            Start::First => StreamOffset::First,
            Start::Last => StreamOffset::Last,
            Start::Next => StreamOffset::Next,
            Start::At(seq) => StreamOffset::At(seq),
            Start::Since(time) => StreamOffset::Since(BEGAN_MS + time / 1000),
        };
        self.credit = match chance.within(0, 10) {
            0..3 => 0,
            3..7 => chance.within(1, 8) as u32,
            _ => chance.within(20, 400) as u32,
        };
        self.number += 1;
        (self.state, self.since, self.at) = (State::Attaching, outside.now, Some((queue, group)));
        self.is_committing = false;
        self.held.clear();
        let spec =
            ConsumerSpec { credit: self.credit, start: Some(start), ..ConsumerSpec::default() };
        let consumer = self.id(home);
        let attach = Request::Attach { ticket: ATTACH, group, queue, consumer, spec };
        outside.ask(home, vec![attach]);
    }

    fn draw_start(&mut self, shelf: &Shelf, chance: &mut Chance, now: Micros) -> Start {
        if std::mem::take(&mut self.begins_again) {
            return Start::First;
        }
        if let Some(behind) = self.behind.filter(|_| chance.percent(60)) {
            return Start::At(behind);
        }
        match chance.within(0, 10) {
            0..2 => Start::First,
            2..6 => Start::Next,
            6 => Start::Last,
            7..9 => Start::At(chance.within(0, shelf.end() + 20)),
            _ => Start::Since(chance.within(0, now + 500_000)),
        }
    }

    fn id(&self, home: Home) -> ConsumerId {
        ConsumerId { session: home.session, number: self.number }
    }

    fn detach(&mut self, home: Home, outside: &mut Outside<'_>) {
        let Some((queue, group)) = self.at else { return };
        let (ticket, consumer, takes_back) = (DETACH, self.id(home), true);
        (self.state, self.since) = (State::Detaching, outside.now);
        let detach = Request::Detach { ticket, group, queue, consumer, takes_back };
        outside.ask(home, vec![detach]);
    }

    /// Perhaps acknowledges some of what it got, or asks for more.
    fn settle(&mut self, home: Home, mood: Mood, chance: &mut Chance, outside: &mut Outside<'_>) {
        let Some((queue, group)) = self.at else { return };
        let consumer = self.id(home);
        let hurries = mood.is_draining;
        if self.held.is_empty() && self.credit == 0 && (hurries || chance.percent(8)) {
            let add = chance.within(1, 60) as u32;
            self.credit += add;
            return outside.ask(home, vec![Request::Credit { group, queue, consumer, add }]);
        }
        let mut requests = Vec::new();
        if hurries || chance.percent(60) {
            let held = self.held.len() as u64;
            let count = if hurries { held } else { chance.within(0, held + 1) };
            let seqs = self.held.drain(..count as usize).map(|seq| seq..seq + 1);
            let (ranges, add): (Ranges, u32) = (seqs.collect(), count as u32);
            let outcome = Outcome::Done;
            if count > 0 && !self.is_committing && !hurries && chance.percent(10) {
                // A session brings no such settles into the log. If one did, nothing would go.
                let mut batch = Batch::new();
                batch.settle(queue, outcome, &ranges);
                let settles = vec![Held { queue, consumer, ranges, outcome, credit: 0 }];
                self.is_committing = true;
                requests.push(Request::Append { group, ticket: COMMIT, batch, settles });
                requests.push(Request::Credit { group, queue, consumer, add });
            } else if count > 0 {
                let credit = add;
                requests.push(Request::Settle { group, queue, consumer, ranges, outcome, credit });
            }
            self.credit += add;
        }
        if hurries && self.credit < CREDIT_DRAINING {
            let add = CREDIT_DRAINING;
            self.credit += add;
            requests.push(Request::Credit { group, queue, consumer, add });
        }
        if !requests.is_empty() {
            outside.ask(home, requests);
        }
    }

    pub(super) fn answered(
        &mut self,
        answer: Answer,
        shelf: &mut Shelf,
        outside: &mut Outside<'_>,
    ) {
        match answer {
            Answer::Attached { ticket: ATTACH, result: Ok(()), at: Some(at) } => {
                (self.state, self.next) = (State::Attached, at);
                shelf.attached(&self.name, self.start, at, outside.now);
            }
            // The declaration's group knows the stream a moment later.
            Answer::Attached { ticket: ATTACH, result: Err(AttachError::NoQueue), .. }
            | Answer::AppendFailed { ticket: ATTACH }
            | Answer::Detached { ticket: DETACH }
            | Answer::AppendFailed { ticket: DETACH } => self.state = State::Idle,
            Answer::Appended { ticket: COMMIT } | Answer::AppendFailed { ticket: COMMIT } => {
                self.is_committing = false;
            }
            Answer::Delivered(delivery) => self.delivered(&delivery, shelf),
            other => shelf.violated(format!("{} was told {other:?}", self.name)),
        }
    }

    fn delivered(&mut self, delivery: &Delivery, shelf: &mut Shelf) {
        let Self { name, number, next, .. } = self;
        let messages: Vec<_> = Messages::of(delivery.queue, &delivery.bytes).collect();
        let is_right = messages.len() == delivery.count as usize
            && self.at.is_some_and(|(queue, _)| queue == delivery.queue)
            && !delivery.redelivered
            && delivery.returns == 0;
        let is_expected = delivery.consumer.number == *number
            && matches!(self.state, State::Attached | State::Detaching);
        if !is_right || !is_expected {
            let state = self.state;
            return shelf.violated(format!("{name} is {state:?}, and was sent {delivery:?}"));
        }
        shelf.goes_on(name, *next, delivery.first_seq);
        for (seq, (head, body)) in (delivery.first_seq..).zip(messages) {
            shelf.read(seq, &id_of(head), crc32(body));
            self.held.push_back(seq);
        }
        *next = delivery.first_seq + u64::from(delivery.count);
        self.behind = Some(*next);
        match self.credit.checked_sub(delivery.count) {
            Some(left) => self.credit = left,
            None => {
                let (had, count) = (self.credit, delivery.count);
                shelf.violated(format!("{name} had credit {had}, and was sent {count}"));
                self.credit = 0;
            }
        }
    }

    pub(super) fn reads(&self) -> bool {
        self.state == State::Attached
    }

    /// Whether it reads, and has read all that there is.
    pub(super) fn has_all(&self, shelf: &Shelf) -> bool {
        shelf.place.is_none()
            || (self.state == State::Attached && !self.begins_again && shelf.is_read(self.next))
    }

    /// At the end: what it waits for.
    pub(super) fn complaint(&self, shelf: &Shelf) -> String {
        let Self { name, state, next, credit, home, since, .. } = self;
        let (end, ms) = (shelf.end(), since / 1000);
        format!(
            "{name} stalls: {state:?} since {ms} ms at {home:?}, next {next} of {end}, {credit}"
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
    }
}
