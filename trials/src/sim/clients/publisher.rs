//! One channel of a publisher with confirms.

use std::collections::BTreeMap;

use cluster::{Answer, Request, Ticket};
use machine::{Batch, GroupId, QueueId};

use super::{Home, Outside, PUBLISHERS, QUEUES};
use crate::history::{Stage, What};
use crate::sim::Diary;
use crate::sim::agenda::Micros;
use crate::workload::{Chance, crc32};

/// Unconfirmed messages of one publisher.
const WINDOW: usize = 60;
/// Messages sent at once, at most.
const BURST: u64 = 12;
/// Largest body besides its id, in bytes.
const BODY_BYTES: u64 = 300;
/// A client that waits so long for an answer may give up.
const PATIENCE: Micros = 6_000_000;

pub(super) struct Publisher {
    name: String,
    targets: &'static [usize],
    pub(super) home: Option<Home>,
    generation: u64,
    next: u64,
    ticket: u64,
    /// Messages without an answer, with the number of appends they wait for.
    waiting: BTreeMap<String, usize>,
    tickets: BTreeMap<Ticket, Sent>,
    is_pausing: bool,
}

/// One append.
struct Sent {
    at: Micros,
    group: GroupId,
    ids: Vec<String>,
}

impl Publisher {
    pub(super) fn new(number: usize) -> Self {
        Self {
            name: format!("pub-{number}"),
            targets: PUBLISHERS[number],
            home: None,
            generation: 0,
            next: 0,
            ticket: 0,
            waiting: BTreeMap::new(),
            tickets: BTreeMap::new(),
            is_pausing: false,
        }
    }

    /// Everything it asked is answered.
    pub(super) fn is_quiet(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn act(&mut self, may_publish: bool, may_leave: bool, outside: &mut Outside<'_>) {
        let Some(home) = self.home else {
            self.home = outside.connect();
            self.generation += 1;
            self.next = 0;
            return;
        };
        let oldest = self.tickets.values().map(|sent| sent.at).min();
        let is_late = oldest.is_some_and(|at| outside.now - at > PATIENCE);
        if may_leave
            && (outside.chance.within(0, 400) == 0 || (is_late && outside.chance.percent(10)))
        {
            self.end(outside.diary);
            outside.leave(home);
            return;
        }
        if outside.chance.within(0, 30) == 0 {
            self.is_pausing = !self.is_pausing;
        }
        // After the heal everybody goes on: a queue that stalls is found out.
        if may_publish && (!self.is_pausing || !may_leave) {
            self.publish(home, outside);
        }
    }

    fn publish(&mut self, home: Home, outside: &mut Outside<'_>) {
        // What the node cannot route is not sent at all.
        let routed = |queue: &usize| {
            let name = QUEUES[*queue].name;
            outside.queue(home, name).map(|(queue, group)| (name, queue, group))
        };
        let targets: Vec<(&str, QueueId, GroupId)> =
            self.targets.iter().filter_map(routed).collect();
        if targets.is_empty() {
            return;
        }
        let mut batches: BTreeMap<GroupId, (Batch, Vec<String>)> = BTreeMap::new();
        for _ in 0..outside.chance.within(1, BURST) {
            if self.waiting.len() >= WINDOW {
                break;
            }
            let id = format!("{}.{}:{}", self.name, self.generation, self.next);
            self.next += 1;
            let body = body(&id);
            let q = targets.iter().map(|(name, ..)| (*name).to_owned()).collect();
            let (k, h) = (Stage::Inv, Some(crc32(&body)));
            outside
                .diary
                .saw(&self.name, What::Pub { k, m: id.clone(), n: 0, q, h, returned: false });
            // As a broker does: one command per group, with all its queues of that group.
            let mut groups: BTreeMap<GroupId, Vec<QueueId>> = BTreeMap::new();
            for (_, queue, group) in &targets {
                groups.entry(*group).or_default().push(*queue);
            }
            self.waiting.insert(id.clone(), groups.len());
            for (group, queues) in groups {
                let (batch, ids) = batches.entry(group).or_default();
                batch.enqueue(&queues, &[id.as_bytes()], &body);
                ids.push(id.clone());
            }
        }
        let mut requests = Vec::new();
        for (group, (batch, ids)) in batches {
            self.ticket += 1;
            let ticket = Ticket(self.ticket);
            self.tickets.insert(ticket, Sent { at: outside.now, group, ids });
            requests.push(Request::Append { group, ticket, batch, settles: Vec::new() });
        }
        if !requests.is_empty() {
            outside.ask(home, requests);
        }
    }

    pub(super) fn answered(&mut self, answer: Answer, outside: &mut Outside<'_>) {
        let (ticket, appended) = match answer {
            Answer::Appended { ticket } => (ticket, true),
            Answer::AppendFailed { ticket } => (ticket, false),
            other => {
                let text = format!("{} was told {other:?}", self.name);
                return outside.diary.saw(&self.name, What::Protocol { text });
            }
        };
        let Some(Sent { group, ids, .. }) = self.tickets.remove(&ticket) else {
            let text = format!("{}: {ticket:?} was answered twice, or never asked", self.name);
            return outside.diary.saw(&self.name, What::Protocol { text });
        };
        for id in ids {
            if appended {
                outside.watch.confirmed(group, &id);
            }
            let Some(parts) = self.waiting.get_mut(&id) else { continue };
            *parts -= 1;
            if appended && *parts > 0 {
                continue;
            }
            self.waiting.remove(&id);
            self.tell(if appended { Stage::Ok } else { Stage::Info }, id, outside.diary);
        }
    }

    fn tell(&self, k: Stage, m: String, diary: &mut Diary) {
        diary.saw(&self.name, What::Pub { k, m, n: 0, q: Vec::new(), h: None, returned: false });
    }

    pub(super) fn disconnected(&mut self, node: usize, diary: &mut Diary) {
        if self.home.is_some_and(|home| home.node == node) {
            self.end(diary);
        }
    }

    /// What has no answer by now never gets one.
    fn end(&mut self, diary: &mut Diary) {
        self.home = None;
        self.tickets.clear();
        for id in std::mem::take(&mut self.waiting).into_keys() {
            self.tell(Stage::Info, id, diary);
        }
        let ch = format!("{}.{}", self.name, self.generation);
        diary.saw(&self.name, What::Closed { ch });
    }

    pub(super) fn complain(&self, diary: &mut Diary) {
        let oldest = self.tickets.values().min_by_key(|sent| sent.at);
        let group = oldest.map(|sent| sent.group);
        let (count, home) = (self.waiting.len(), self.home);
        let text = format!("{}: {count} without an answer, {group:?}, {home:?}", self.name);
        diary.saw(&self.name, What::Protocol { text });
    }

    pub(super) fn waits_since(&self, node: usize, before: Micros) -> Option<String> {
        self.home.filter(|home| home.node == node)?;
        let late = |sent: &&Sent| sent.at < before && !sent.group.is_local();
        let sent = self.tickets.values().find(late)?;
        Some(format!("{} waits for {:?} since {} ms", self.name, sent.group, sent.at / 1000))
    }
}

fn body(id: &str) -> Vec<u8> {
    let mut chance = Chance::named(2, id);
    let bytes = chance.within(0, BODY_BYTES);
    let mut body = id.as_bytes().to_vec();
    body.extend((0..bytes).map(|_| chance.number() as u8));
    body
}
