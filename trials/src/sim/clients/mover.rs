//! Somebody who takes messages from a queue and, in one transaction, publishes others for them elsewhere.

use std::collections::BTreeMap;
use std::rc::Rc;

use cluster::{Answer, Delivery, Held, Request, Ticket};
use machine::{
    Attributes, Batch, ConsumerId, ConsumerSpec, GroupId, Messages, Outcome, QueueId, Ranges,
};

use super::publisher::body;
use super::{Home, Outside, Plan, head_of, id_of};
use crate::history::{Stage, What};
use crate::sim::Diary;
use crate::sim::agenda::Micros;
use crate::workload::crc32;

/// Messages that it may hold.
const CREDIT: u32 = 20;
/// A commit or an attachment that takes longer is given up with its connection.
const TIMEOUT: Micros = 6_000_000;
const ATTACH: Ticket = Ticket(1);
/// Appends are numbered from here.
const APPEND: u64 = 100;

pub(super) struct Mover {
    plans: Rc<[Plan]>,
    name: String,
    /// Where it takes messages from, and where it publishes to.
    from: usize,
    to: Vec<usize>,
    /// Half of its transactions publish to the group that it takes messages from, if one does: a hunt of planted bugs
    /// is about whole ones.
    stays: bool,
    pub(super) home: Option<Home>,
    generation: u64,
    next: u64,
    stage: Step,
    since: Micros,
    at: Option<(QueueId, GroupId)>,
    held: Vec<Given>,
    /// Transactions that were committed.
    pub(super) finished: u64,
}

/// How far it is. Whatever is refused or takes too long ends its connection, and with it all of this: `Idle`.
///
/// ```text
///   Idle ──> Attaching ──> Attached ──it holds messages──> Committing
///                             ^─────every append answered──────┘
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    Attaching,
    Attached,
    Committing(Commit),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Commit {
    name: String,
    /// Appends without an answer, and whether each has what is published.
    waits: BTreeMap<Ticket, bool>,
    pubs: Vec<String>,
    settled: Vec<Given>,
}

/// A message that it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    level: QueueId,
    seq: u64,
    message: String,
}

impl Mover {
    pub(super) fn new(plans: &Rc<[Plan]>, from: usize, to: &[usize], stays: bool) -> Self {
        Self {
            name: format!("mover-{}", plans[from].name),
            plans: Rc::clone(plans),
            from,
            to: to.to_vec(),
            stays,
            home: None,
            generation: 0,
            next: 0,
            stage: Step::Idle,
            since: 0,
            at: None,
            held: Vec::new(),
            finished: 0,
        }
    }

    fn ep(&self) -> String {
        format!("{}.{}", self.name, self.generation)
    }

    /// It has gone, and comes only where there is load.
    pub(super) fn is_quiet(&self) -> bool {
        self.home.is_none()
    }

    pub(super) fn act(&mut self, may_work: bool, may_leave: bool, outside: &mut Outside<'_>) {
        let Some(home) = self.home else {
            if may_work {
                self.connect(outside);
            }
            return;
        };
        let is_waiting = matches!(self.stage, Step::Attaching | Step::Committing(_));
        let leaves = match is_waiting {
            true => outside.now - self.since > TIMEOUT,
            false => !may_work,
        };
        if leaves || (may_leave && outside.chance.within(0, 200) == 0) {
            self.leave(home, outside);
            return;
        }
        match self.stage {
            Step::Idle => self.attach(home, outside),
            Step::Attached if !self.held.is_empty() && outside.chance.percent(40) => {
                self.commit(home, outside);
            }
            Step::Attached | Step::Attaching | Step::Committing(_) => {}
        }
    }

    fn connect(&mut self, outside: &mut Outside<'_>) {
        self.home = outside.connect();
        if self.home.is_none() {
            return;
        }
        (self.generation, self.next) = (self.generation + 1, 0);
        let q = self.plans[self.from].name.to_owned();
        outside.diary.saw(&self.name, What::Open { q, ep: self.ep() });
    }

    fn attach(&mut self, home: Home, outside: &mut Outside<'_>) {
        let Some((queue, group)) = outside.queue(home, self.plans[self.from].name) else { return };
        let spec = ConsumerSpec { credit: CREDIT, ..ConsumerSpec::default() };
        let consumer = Self::id(home);
        (self.stage, self.since) = (Step::Attaching, outside.now);
        self.at = Some((queue, group));
        let attach = Request::Attach { ticket: ATTACH, group, queue, consumer, spec };
        outside.ask(home, vec![attach]);
    }

    fn id(home: Home) -> ConsumerId {
        ConsumerId { session: home.session, number: 1 }
    }

    /// Publishes a message for each of some that it holds, and acknowledges those, as a session does at a commit: an
    /// append per group, in which what is published comes first.
    fn commit(&mut self, home: Home, outside: &mut Outside<'_>) {
        let Some((_, from)) = self.at else { return };
        let drawn = self.to[outside.chance.within(0, self.to.len() as u64) as usize];
        let stays = self.stays && outside.chance.percent(50);
        let is_near = |to: &usize| {
            let found = outside.queue(home, self.plans[*to].name);
            stays && found.is_some_and(|(_, group)| group == from)
        };
        let to = self.plans[self.to.iter().copied().find(is_near).unwrap_or(drawn)].name;
        let Some((queue, group)) = outside.queue(home, to) else { return };
        let count = outside.chance.within(1, self.held.len() as u64 + 1) as usize;
        let settled: Vec<Given> = self.held.drain(..count).collect();
        let mut batches = BTreeMap::from([(group, Batch::new())]);
        let mut pubs = Vec::new();
        for _ in &settled {
            let id = format!("{}.{}:{}", self.name, self.generation, self.next);
            self.next += 1;
            let (q, h) = (vec![to.to_owned()], Some(crc32(&body(&id))));
            let (k, m) = (Stage::Inv, id.clone());
            outside.diary.saw(&self.name, What::Pub { k, m, n: 0, q, h, returned: false });
            let batch = batches.entry(group).or_default();
            let head = head_of(to, &id);
            batch.enqueue_with(&[queue], &Attributes::default(), &[&head], &body(&id));
            pubs.push(id);
        }
        let mut levels: BTreeMap<QueueId, Ranges> = BTreeMap::new();
        for Given { level, seq, message } in &settled {
            levels.entry(*level).or_default().insert(*seq..*seq + 1);
            let (q, m) = (self.plans[self.from].name.to_owned(), message.clone());
            outside.diary.saw(&self.name, What::Ack { q, m, ep: self.ep() });
        }
        let mut held = Vec::new();
        for (level, ranges) in levels {
            let outcome = Outcome::Done;
            batches.entry(from).or_default().settle(level, outcome, &ranges);
            let credit = u32::try_from(ranges.len()).expect("credit is small");
            held.push(Held { queue: level, consumer: Self::id(home), ranges, outcome, credit });
        }
        let name = format!("{}.{}/{}", self.name, self.generation, self.next);
        let acks = settled.iter().map(|given| given.message.clone()).collect();
        let (x, ep, whole) = (name.clone(), self.ep(), batches.len() == 1);
        let inv = What::Tx { k: Stage::Inv, x, ep, acks, pubs: pubs.clone(), whole };
        outside.diary.saw(&self.name, inv);
        let (mut requests, mut waits) = (Vec::new(), BTreeMap::new());
        for (at, batch) in batches {
            let ticket = Ticket(APPEND + self.next + requests.len() as u64 * APPEND * APPEND);
            let settles = if at == from { std::mem::take(&mut held) } else { Vec::new() };
            waits.insert(ticket, at == group);
            requests.push(Request::Append { group: at, ticket, batch, settles });
        }
        self.stage = Step::Committing(Commit { name, waits, pubs, settled });
        self.since = outside.now;
        outside.ask(home, requests);
    }

    pub(super) fn answered(&mut self, answer: Answer, outside: &mut Outside<'_>) {
        let Some(home) = self.home else { return };
        match answer {
            Answer::Attached { result: Ok(()), .. } => self.stage = Step::Attached,
            Answer::Delivered(delivery) => self.delivered(&delivery, outside),
            Answer::Appended { ticket } => self.appended(ticket, outside),
            // A session that cannot commit everything closes the channel; what it holds goes back.
            Answer::AppendFailed { .. } | Answer::Attached { .. } => self.leave(home, outside),
            other => {
                let text = format!("{} was told {other:?}", self.name);
                outside.diary.saw(&self.name, What::Protocol { text });
            }
        }
    }

    fn appended(&mut self, ticket: Ticket, outside: &mut Outside<'_>) {
        let Step::Committing(commit) = &mut self.stage else { return };
        match commit.waits.remove(&ticket) {
            Some(true) => {
                for m in std::mem::take(&mut commit.pubs) {
                    let (k, q) = (Stage::Ok, Vec::new());
                    let what = What::Pub { k, m, n: 0, q, h: None, returned: false };
                    outside.diary.saw(&self.name, what);
                }
            }
            Some(false) => {}
            None => {
                let text = format!("{}: {ticket:?} was answered twice, or never asked", self.name);
                outside.diary.saw(&self.name, What::Protocol { text });
            }
        }
        if commit.waits.is_empty() {
            let session = self.home.map(|home| home.session);
            for Given { level, seq, .. } in std::mem::take(&mut commit.settled) {
                session
                    .into_iter()
                    .for_each(|by| outside.watch.holds.let_go((level, seq), by, true));
            }
            let x = std::mem::take(&mut commit.name);
            tell(&self.name, Stage::Ok, x, outside.diary);
            self.finished += 1;
            self.stage = Step::Attached;
        }
    }

    fn delivered(&mut self, delivery: &Delivery, outside: &mut Outside<'_>) {
        let messages = Messages::of(delivery.queue, &delivery.bytes);
        for (seq, (head, body)) in (delivery.first_seq..).zip(messages) {
            let m = id_of(head);
            outside.watch.delivered(delivery.queue, seq, &m, false);
            let session = delivery.consumer.session;
            outside.watch.holds.given((delivery.queue, seq), session, &m);
            let (q, ep) = (self.plans[self.from].name.to_owned(), self.ep());
            let (red, h) = (delivery.redelivered, crc32(body));
            outside.diary.saw(&self.name, What::Dlv { q, m: m.clone(), tag: seq, red, h, ep });
            self.held.push(Given { level: delivery.queue, seq, message: m });
        }
    }

    fn leave(&mut self, home: Home, outside: &mut Outside<'_>) {
        outside.watch.holds.left(home.session);
        outside.leave(home);
        self.end(outside.diary);
    }

    pub(super) fn disconnected(&mut self, node: usize, diary: &mut Diary) {
        if self.home.is_some_and(|home| home.node == node) {
            self.end(diary);
        }
    }

    /// What has no answer by now never gets one.
    fn end(&mut self, diary: &mut Diary) {
        if let Step::Committing(Commit { name, pubs, .. }) = &mut self.stage {
            for m in std::mem::take(pubs) {
                let (k, q) = (Stage::Info, Vec::new());
                diary.saw(&self.name, What::Pub { k, m, n: 0, q, h: None, returned: false });
            }
            tell(&self.name, Stage::Info, std::mem::take(name), diary);
        }
        if self.home.take().is_some() {
            diary.saw(&self.name, What::Closed { ch: self.ep() });
        }
        self.stage = Step::Idle;
        self.at = None;
        self.held.clear();
    }
}

fn tell(name: &str, k: Stage, x: String, diary: &mut Diary) {
    let (ep, acks, pubs) = (String::new(), Vec::new(), Vec::new());
    diary.saw(name, What::Tx { k, x, ep, acks, pubs, whole: false });
}
