//! The one that declares the queues and asks what is left in them.

use std::rc::Rc;

use cluster::{Answer, Request, Ticket};
use machine::{CatalogReply, QueueId, QueueStatus};

use super::changer::Changer;
use super::newer::Newer;
use super::peeker::Peeker;
use super::{Home, Kind, Outside, Plan};
use crate::history::{Books, What};
use crate::sim::Diary;
use crate::sim::agenda::Micros;

/// A question that is not answered after so long is asked again over another connection.
const TIMEOUT: Micros = 10_000_000;
/// For a version that is not agreed on by then nobody waits.
const VERSION_WAIT: Micros = 3_000_000;
/// What is asked on a newer version's account. Queues have smaller numbers.
const NEWER: Ticket = Ticket(1_000);
/// A queue is changed.
const CHANGE: Ticket = Ticket(1_001);
/// Messages of a queue are looked at.
const PEEK: Ticket = Ticket(1_002);

pub(super) struct Control {
    plans: Rc<[Plan]>,
    pub(super) home: Option<Home>,
    queues: Vec<Option<QueueId>>,
    /// How the queues stand, as last told.
    told: Vec<Option<QueueStatus>>,
    /// Questions without an answer, and since when.
    asking: usize,
    asked: Micros,
    /// Whether it declares nothing before the version is agreed on.
    waits: Option<bool>,
    /// `None`: there is no version to come.
    newer: Option<Newer>,
    /// `None`: queues stay as they were declared.
    changer: Option<Changer>,
    /// `None`: nobody looks at messages.
    peeker: Option<Peeker>,
}

impl Control {
    pub(super) fn new(
        plans: &Rc<[Plan]>,
        uses_newer: bool,
        changer: Option<Changer>,
        peeker: Option<Peeker>,
    ) -> Self {
        let nothing = vec![None; plans.len()];
        let (plans, queues) = (Rc::clone(plans), nothing.clone());
        let told = vec![None; nothing.len()];
        Self {
            plans,
            home: None,
            queues,
            told,
            asking: 0,
            asked: 0,
            waits: None,
            newer: uses_newer.then(Newer::default),
            changer,
            peeker,
        }
    }

    /// Messages that were looked at.
    pub(super) fn looks(&self) -> u64 {
        self.peeker.as_ref().map_or(0, |peeker| peeker.shown)
    }

    pub(super) fn has_used_newer(&self) -> bool {
        self.newer.as_ref().is_none_or(|newer| newer.is_used)
    }

    pub(super) fn act(&mut self, asks: bool, outside: &mut Outside<'_>) {
        let Some(home) = self.home else {
            self.home = outside.connect();
            self.asking = 0;
            return;
        };
        if self.asking > 0 {
            if outside.now - self.asked > TIMEOUT {
                outside.leave(home);
                self.home = None;
            }
            return;
        }
        if self.waits_for_version(home, outside) {
            return;
        }
        let missing = |(number, plan): (usize, &Plan)| {
            (plan.kind == Kind::Durable && self.queues[number].is_none()).then_some(number)
        };
        let missing: Vec<usize> = self.plans.iter().enumerate().filter_map(missing).collect();
        let mut requests = Vec::new();
        for number in missing {
            let plan = &self.plans[number];
            let flags = [true, false, false];
            let command = outside.declaration(home, plan.name, flags, plan.arguments());
            requests.push(Request::Catalog { ticket: Ticket(number as u64), command });
        }
        if requests.is_empty() && asks {
            self.told.fill(None);
            for (number, plan) in self.plans.iter().enumerate() {
                let found = outside.queue(home, plan.name).filter(|_| plan.kind == Kind::Durable);
                let Some((queue, group)) = found else { continue };
                let ticket = Ticket(number as u64);
                requests.push(Request::Status { ticket, group, queue });
            }
        }
        if let Some(newer) = &mut self.newer
            && let Some(command) = newer.next(home, outside)
        {
            requests.push(Request::Catalog { ticket: NEWER, command });
        }
        if let Some(changer) = &mut self.changer
            && let Some(command) = changer.next(&self.plans, home, outside)
        {
            requests.push(Request::Catalog { ticket: CHANGE, command });
        }
        if let Some(peeker) = self.peeker.as_mut().filter(|_| !asks)
            && let Some((group, queue, spec)) = peeker.next(&self.plans, home, outside)
        {
            requests.push(Request::Peek { ticket: PEEK, group, queue, spec: Box::new(spec) });
        }
        if !requests.is_empty() {
            self.asking = requests.len();
            self.asked = outside.now;
            outside.ask(home, requests);
        }
    }

    /// What a queue keeps follows from the version at its declaration. Mostly that is the one its nodes read; the other
    /// queues are of a cluster that has not agreed on anything yet.
    fn waits_for_version(&mut self, home: Home, outside: &mut Outside<'_>) -> bool {
        let waits = *self.waits.get_or_insert_with(|| outside.chance.percent(75));
        let node = &outside.nodes[home.node];
        let is_old = node.life.as_ref().is_some_and(|life| life.catalog.agreed() < node.speaks);
        waits && is_old && outside.now < VERSION_WAIT
    }

    pub(super) fn answered(&mut self, answer: Answer, outside: &mut Outside<'_>) {
        self.asking = self.asking.saturating_sub(1);
        match answer {
            Answer::Catalog { ticket, reply: CatalogReply::QueueDeclared { queue, .. } } => {
                let number = ticket.0 as usize;
                let before = self.queues[number].replace(queue);
                if before.is_some_and(|before| before != queue) {
                    let text = format!("{} is another queue than before", self.plans[number].name);
                    outside.diary.saw("control", What::Protocol { text });
                }
                if let Some(found) =
                    self.home.and_then(|home| outside.queue(home, self.plans[number].name))
                    && found.0 == queue
                {
                    return;
                }
                let text = format!("{} was declared and is not routed to", self.plans[number].name);
                outside.diary.saw("control", What::Protocol { text });
            }
            Answer::Catalog { ticket: NEWER, reply: CatalogReply::Done } => {
                self.newer.iter_mut().for_each(Newer::done);
            }
            // A queue is never deleted here, so it is there to be changed.
            Answer::Catalog { ticket: CHANGE, reply: CatalogReply::Done } => {}
            Answer::Status { ticket, status } => {
                self.told[ticket.0 as usize] = status;
            }
            Answer::Peeked { ticket: PEEK, result } => {
                if let Some(peeker) = &mut self.peeker {
                    peeker.answered(result, outside);
                }
            }
            // A change of the catalog that is not known to be made is asked for again.
            Answer::AppendFailed { .. } => {}
            other => {
                let text = format!("control was told {other:?}");
                outside.diary.saw("control", What::Protocol { text });
            }
        }
    }

    pub(super) fn disconnected(&mut self, node: usize) {
        if self.home.is_some_and(|home| home.node == node) {
            self.home = None;
            self.asking = 0;
        }
    }

    /// What was told so far does not count any more.
    pub(super) fn forget(&mut self) {
        self.told.fill(None);
    }

    pub(super) fn is_drained(&self) -> bool {
        let is_empty = |(plan, told): (&Plan, &Option<QueueStatus>)| {
            plan.kind != Kind::Durable || told.is_some_and(|status| left(&status) == 0)
        };
        self.plans.iter().zip(&self.told).all(is_empty)
    }

    pub(super) fn drained(&mut self, diary: &mut Diary) {
        for (plan, told) in self.plans.iter().zip(&self.told) {
            let (Kind::Durable, Some(status)) = (plan.kind, told) else { continue };
            let (q, left, counters) = (plan.name.to_owned(), left(status), status.counters);
            let books = Books {
                enqueued: counters.enqueued,
                settled: counters.settled,
                purged: counters.purged,
                dropped: counters.dropped,
                dead_lettered: counters.dead_lettered,
                duplicates: counters.duplicates,
                live: left,
            };
            diary.saw("control", What::Books { q: q.clone(), books });
            diary.saw("control", What::Drained { q, node: 1, left });
        }
    }
}

fn left(status: &QueueStatus) -> u64 {
    status.ready + status.unsettled + status.delayed + status.leaving
}
