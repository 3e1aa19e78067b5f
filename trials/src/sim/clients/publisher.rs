//! One channel of a publisher with confirms.

use std::collections::BTreeMap;
use std::rc::Rc;

use cluster::{Answer, Request, Ticket};
use machine::{Batch, GroupId, QueueId};

use super::plans::{PUBLISHERS, Plan, attributes};
use super::{Home, Outside, head_of};
use crate::history::{Marks, Stage, What};
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
const TIMEOUT: Micros = 6_000_000;

pub(super) struct Publisher {
    pub(super) name: String,
    plans: Rc<[Plan]>,
    targets: Vec<usize>,
    /// It sends to one of its targets at a time.
    is_rover: bool,
    pub(super) home: Option<Home>,
    generation: u64,
    next: u64,
    ticket: u64,
    /// Messages without an answer, with the number of appends they wait for.
    waiting: BTreeMap<String, usize>,
    tickets: BTreeMap<Ticket, Sent>,
    /// Messages for a queue that may have no room for them.
    asked: BTreeMap<Ticket, Asked>,
    is_pausing: bool,
}

/// One append.
struct Sent {
    at: Micros,
    group: GroupId,
    ids: Vec<String>,
}

/// Messages that wait to be let in.
struct Asked {
    at: Micros,
    group: GroupId,
    queue: QueueId,
    plan: usize,
    messages: Vec<(String, Marks)>,
}

impl Publisher {
    pub(super) fn new(plans: &Rc<[Plan]>, number: usize) -> Self {
        let special =
            || plans.iter().enumerate().filter(|(_, plan)| !plan.is_plain()).map(|(at, _)| at);
        Self {
            name: format!("pub-{number}"),
            plans: Rc::clone(plans),
            targets: PUBLISHERS.get(number).map_or_else(|| special().collect(), |to| to.to_vec()),
            is_rover: number >= PUBLISHERS.len(),
            home: None,
            generation: 0,
            next: 0,
            ticket: 0,
            waiting: BTreeMap::new(),
            tickets: BTreeMap::new(),
            asked: BTreeMap::new(),
            is_pausing: false,
        }
    }

    /// One more, to a single queue.
    pub(super) fn to(plans: &Rc<[Plan]>, queue: usize) -> Self {
        let name = format!("pub-{}", plans[queue].name);
        Self { name, targets: vec![queue], is_rover: false, ..Self::new(plans, PUBLISHERS.len()) }
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
        let asked = self.asked.values().map(|asked| asked.at);
        let oldest = self.tickets.values().map(|sent| sent.at).chain(asked).min();
        let is_late = oldest.is_some_and(|at| outside.now - at > TIMEOUT);
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
        let plans = Rc::clone(&self.plans);
        let mut targets = self.targets.clone();
        if self.is_rover {
            let one = outside.chance.within(0, targets.len() as u64) as usize;
            targets = vec![targets[one]];
        }
        // What the node cannot route is not sent at all.
        let routed = |at: &usize| {
            outside.queue(home, plans[*at].name).map(|(queue, group)| (*at, queue, group))
        };
        let targets: Vec<(usize, QueueId, GroupId)> = targets.iter().filter_map(routed).collect();
        let Some((first, queue, group)) = targets.first().copied() else { return };
        let mut messages = Vec::new();
        for _ in 0..outside.chance.within(1, BURST) {
            if self.waiting.len() >= WINDOW {
                break;
            }
            let id = format!("{}.{}:{}", self.name, self.generation, self.next);
            self.next += 1;
            let marks = plans[first].marks(outside.chance);
            if marks != Marks::default() {
                let (m, marks) = (id.clone(), marks.clone());
                outside.diary.saw(&self.name, What::Marks { m, marks });
            }
            let q = targets.iter().map(|(at, ..)| plans[*at].name.to_owned()).collect();
            let (k, h) = (Stage::Inv, Some(crc32(&body(&id))));
            let inv = What::Pub { k, m: id.clone(), n: 0, q, h, returned: false };
            outside.diary.saw(&self.name, inv);
            messages.push((id, marks));
        }
        // As a broker does: what waits to be let in is not overtaken once the queue lets everything in.
        let waits = self.asked.values().any(|asked| asked.queue == queue);
        let is_guarded = outside.is_guarded(home, plans[first].name) || waits;
        if plans[first].refuses() || (targets.len() == 1 && is_guarded) {
            self.ask(Asked { at: outside.now, group, queue, plan: first, messages }, home, outside);
        } else {
            self.append(&targets, messages, home, outside);
        }
    }

    /// Whether there is room.
    fn ask(&mut self, asked: Asked, home: Home, outside: &mut Outside<'_>) {
        if asked.messages.is_empty() {
            return;
        }
        self.ticket += 1;
        let ticket = Ticket(self.ticket);
        let sizes = asked.messages.iter().map(|(id, _)| body(id).len() as u32).collect();
        for (id, _) in &asked.messages {
            self.waiting.insert(id.clone(), 1);
        }
        let (group, queue) = (asked.group, asked.queue);
        self.asked.insert(ticket, asked);
        outside.ask(home, vec![Request::Admit { ticket, group, queue, sizes }]);
    }

    fn admitted(&mut self, ticket: Ticket, refused: &[u32], outside: &mut Outside<'_>) {
        let (Some(asked), Some(home)) = (self.asked.remove(&ticket), self.home) else {
            let text = format!("{}: {ticket:?} was answered twice, or never asked", self.name);
            return outside.diary.saw(&self.name, What::Protocol { text });
        };
        let mut messages = Vec::new();
        for (place, message) in (0..).zip(asked.messages) {
            if refused.contains(&place) {
                self.waiting.remove(&message.0);
                self.tell(Stage::Fail, message.0, outside.diary);
            } else {
                messages.push(message);
            }
        }
        self.append(&[(asked.plan, asked.queue, asked.group)], messages, home, outside);
    }

    fn append(
        &mut self,
        targets: &[(usize, QueueId, GroupId)],
        messages: Vec<(String, Marks)>,
        home: Home,
        outside: &mut Outside<'_>,
    ) {
        let mut batches: BTreeMap<GroupId, (Batch, Vec<String>)> = BTreeMap::new();
        for (id, marks) in messages {
            // As a broker does: one command per group, with all its queues of that group.
            let mut groups: BTreeMap<GroupId, Vec<QueueId>> = BTreeMap::new();
            for (at, queue, group) in targets {
                let level = queue.level(self.plans[*at].level(marks.priority));
                groups.entry(*group).or_default().push(level);
            }
            self.waiting.insert(id.clone(), groups.len());
            for (group, queues) in groups {
                let (batch, ids) = batches.entry(group).or_default();
                let head = head_of(self.plans[targets[0].0].name, &id);
                batch.enqueue_with(&queues, &attributes(&marks), &[&head], &body(&id));
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
            Answer::Admitted { ticket, refused } => {
                return self.admitted(ticket, &refused, outside);
            }
            other => {
                let text = format!("{} was told {other:?}", self.name);
                return outside.diary.saw(&self.name, What::Protocol { text });
            }
        };
        if let Some(asked) = self.asked.remove(&ticket).filter(|_| !appended) {
            // Not let in, as far as anybody knows; nothing was sent.
            for (id, _) in asked.messages {
                self.waiting.remove(&id);
                self.tell(Stage::Info, id, outside.diary);
            }
            return;
        }
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
        self.asked.clear();
        for id in std::mem::take(&mut self.waiting).into_keys() {
            self.tell(Stage::Info, id, diary);
        }
        let ch = format!("{}.{}", self.name, self.generation);
        diary.saw(&self.name, What::Closed { ch });
    }

    pub(super) fn complain(&self, diary: &mut Diary) {
        let oldest = self.tickets.values().min_by_key(|sent| sent.at);
        let oldest = oldest.map(|sent| (sent.group, sent.at / 1000));
        let (count, home) = (self.waiting.len(), self.home);
        let text = format!("{}: {count} without an answer, {oldest:?}, {home:?}", self.name);
        diary.saw(&self.name, What::Protocol { text });
    }

    pub(super) fn waits_since(
        &self,
        (node, group): (usize, GroupId),
        before: Micros,
    ) -> Option<String> {
        self.home.filter(|home| home.node == node)?;
        let late = |sent: &&Sent| sent.at < before && sent.group == group;
        let sent = self.tickets.values().find(late)?;
        Some(format!("{} waits for {:?} since {} ms", self.name, sent.group, sent.at / 1000))
    }
}

pub(super) fn body(id: &str) -> Vec<u8> {
    let mut chance = Chance::named(2, id);
    let bytes = chance.within(0, BODY_BYTES);
    let mut body = id.as_bytes().to_vec();
    body.extend((0..bytes).map(|_| chance.number() as u8));
    body
}
