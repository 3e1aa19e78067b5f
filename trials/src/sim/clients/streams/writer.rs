//! Somebody who publishes to a stream with confirms: as the publishers of other queues, but that a stream refuses
//! nothing.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{Answer, Request, Ticket};
use machine::{Attributes, Batch, GroupId};

use super::super::{Home, Outside, head_of};
use super::shelf::{Published, Shelf};
use super::{Mood, Plan, routing_key};
use crate::sim::agenda::Micros;
use crate::workload::{Chance, crc32};

/// Unconfirmed messages of one of them.
const WINDOW: usize = 60;
/// Messages sent at once, at most: with those of fixed size a few, as the log's files are small.
const BURST: u64 = 10;
const BURST_OF_LARGE: u64 = 4;
/// Largest body besides its id where they differ, in bytes.
const BODY_BYTES: u64 = 250;
/// A client that waits so long for an answer may give up.
const TIMEOUT: Micros = 6_000_000;

pub(super) struct Writer {
    name: String,
    pub(super) stream: usize,
    body_bytes: Option<usize>,
    is_keyed: bool,
    pub(super) home: Option<Home>,
    generation: u64,
    next: u64,
    ticket: u64,
    /// Appends without an answer: since when, in which group, and their messages.
    waiting: BTreeMap<Ticket, (Micros, GroupId, Vec<String>)>,
    /// Tickets that were answered.
    answered: BTreeSet<Ticket>,
    is_pausing: bool,
}

impl Writer {
    pub(super) fn new(plan: &Plan, stream: usize, nth: usize) -> Self {
        Self {
            name: format!("pub-{}-{}-{nth}", plan.name, plan.partition.0),
            stream,
            body_bytes: plan.body_bytes,
            is_keyed: plan.is_keyed,
            home: None,
            generation: 0,
            next: 0,
            ticket: 0,
            waiting: BTreeMap::new(),
            answered: BTreeSet::new(),
            is_pausing: false,
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn act(
        &mut self,
        mood: Mood,
        shelf: &mut Shelf,
        chance: &mut Chance,
        outside: &mut Outside<'_>,
    ) {
        let Some(home) = self.home else {
            self.home = outside.connect();
            (self.generation, self.next) = (self.generation + 1, 0);
            return;
        };
        let oldest = self.waiting.values().map(|(since, ..)| *since).min();
        let is_late = oldest.is_some_and(|since| outside.now - since > TIMEOUT);
        let may_leave = !mood.is_steady;
        if may_leave && (chance.within(0, 300) == 0 || (is_late && chance.percent(10))) {
            self.end();
            return outside.leave(home);
        }
        // Over a pause nobody who reads from the next message on is sent anything.
        if chance.within(0, 25) == 0 {
            self.is_pausing = !self.is_pausing;
        }
        let is_blocked = outside.nodes[home.node].is_short();
        if !mood.is_draining && !is_blocked && (!self.is_pausing || mood.is_steady) {
            self.publish(home, shelf, chance, outside);
        }
    }

    fn publish(
        &mut self,
        home: Home,
        shelf: &mut Shelf,
        chance: &mut Chance,
        outside: &mut Outside<'_>,
    ) {
        let Some((queue, group)) = outside.partition(home, shelf.name, shelf.partition) else {
            return;
        };
        let unanswered: usize = self.waiting.values().map(|(.., ids)| ids.len()).sum();
        let burst = if self.body_bytes.is_some() { BURST_OF_LARGE } else { BURST };
        let count = chance.within(1, burst).min(WINDOW.saturating_sub(unanswered) as u64);
        let (mut batch, mut ids) = (Batch::new(), Vec::new());
        for _ in 0..count {
            let channel = format!("{}.{}", self.name, self.generation);
            let id = format!("{channel}:{}", self.next);
            let key = if self.is_keyed { routing_key(self.next) } else { shelf.name.to_owned() };
            let (head, body) = (head_of(&key, &id), self.body(&id));
            batch.enqueue_with(&[queue], &Attributes::default(), &[&head], &body);
            shelf.sent(
                &id,
                Published {
                    channel,
                    number: self.next,
                    at: outside.now,
                    crc: crc32(&body),
                    bytes: (head.len() + body.len()) as u64,
                },
            );
            self.next += 1;
            ids.push(id);
        }
        if ids.is_empty() {
            return;
        }
        self.ticket += 1;
        let ticket = Ticket(self.ticket);
        self.waiting.insert(ticket, (outside.now, group, ids));
        outside.ask(home, vec![Request::Append { group, ticket, batch, settles: Vec::new() }]);
    }

    fn body(&self, id: &str) -> Vec<u8> {
        let mut chance = Chance::named(3, id);
        let mut body = id.as_bytes().to_vec();
        let more = chance.within(0, BODY_BYTES) as usize;
        let bytes = self.body_bytes.unwrap_or(body.len() + more);
        body.resize_with(bytes, || chance.number() as u8);
        body
    }

    pub(super) fn answered(
        &mut self,
        answer: Answer,
        shelf: &mut Shelf,
        outside: &mut Outside<'_>,
    ) {
        let (ticket, is_safe) = match answer {
            Answer::Appended { ticket } => (ticket, true),
            Answer::AppendFailed { ticket } => (ticket, false),
            other => return shelf.violated(format!("{} was told {other:?}", self.name)),
        };
        let Some((_, group, ids)) = self.waiting.remove(&ticket) else {
            let is_known = self.answered.contains(&ticket);
            let how = if is_known { "answered twice" } else { "never asked" };
            return shelf.violated(format!("{}: {ticket:?} was {how}", self.name));
        };
        self.answered.insert(ticket);
        for id in ids.iter().filter(|_| is_safe) {
            outside.watch.confirmed(group, id);
            shelf.confirmed(id);
        }
    }

    pub(super) fn disconnected(&mut self, node: usize) {
        if self.home.is_some_and(|home| home.node == node) {
            self.end();
        }
    }

    /// What has no answer by now never gets one.
    fn end(&mut self) {
        self.home = None;
        self.waiting.clear();
    }

    /// At the end: an answer that never came.
    pub(super) fn complaint(&self) -> String {
        let since = self.waiting.values().map(|(since, ..)| since / 1000).min();
        format!("{}: no answer since {since:?} ms, {:?}", self.name, self.home)
    }
}
