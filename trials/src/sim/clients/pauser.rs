//! Somebody who pauses queues of the load for a while and lets them go on, one change after the other. In the end all go
//! on, and the last of them only while they are drained: what a queue has must come by that alone.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use cluster::{Answer, Request, Ticket};
use machine::{Catalog, CatalogCommand, CatalogReply};

use super::{Home, Kind, Outside, Plan};
use crate::history::{Stage, What};
use crate::sim::agenda::Micros;
use crate::sim::{Diary, VHOST};
use crate::workload::Chance;
use crate::workload::special::LIMBO;

const TICKET: Ticket = Ticket(1);
/// Queues that are paused at a time, at most.
const PAUSED_MAX: usize = 3;
/// How long a queue is paused, from and to: some for a moment, some over a change of leader.
const MOMENT: (Micros, Micros) = (50_000, 700_000);
const WHILE: (Micros, Micros) = (700_000, 4_000_000);
/// How long those that are paused when the drain begins stay so, at most.
const DRAINING: (Micros, Micros) = (500_000, 3_000_000);

pub(super) struct Pauser {
    plans: Rc<[Plan]>,
    chance: Chance,
    pub(super) home: Option<Home>,
    asked: Option<Asked>,
    /// Until when, by the place of the plan.
    paused: BTreeMap<usize, Micros>,
    /// The answer to something was lost: they are let go on.
    unsure: BTreeSet<usize>,
    is_draining: bool,
    /// Changes that were made.
    pub(super) done: u64,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    queue: usize,
    on: bool,
    at: Micros,
}

impl Pauser {
    pub(super) fn new(seed: u64, plans: &Rc<[Plan]>) -> Self {
        Self {
            plans: Rc::clone(plans),
            chance: Chance::named(seed, "pauser"),
            home: None,
            asked: None,
            paused: BTreeMap::new(),
            unsure: BTreeSet::new(),
            is_draining: false,
            done: 0,
        }
    }

    /// Whether every queue goes on, as far as it knows.
    pub(super) fn is_quiet(&self) -> bool {
        self.asked.is_none() && self.paused.is_empty() && self.unsure.is_empty()
    }

    /// From here on, or before the load goes on again.
    pub(super) fn drains(&mut self, is_draining: bool, outside: &Outside<'_>) {
        if is_draining && !self.is_draining {
            for until in self.paused.values_mut() {
                *until = outside.now + self.chance.within(DRAINING.0, DRAINING.1);
            }
        }
        self.is_draining = is_draining;
    }

    pub(super) fn act(&mut self, may_leave: bool, outside: &mut Outside<'_>) {
        let Some(home) = self.home else {
            self.home = outside.connect();
            return;
        };
        if may_leave && self.chance.within(0, 150) == 0 {
            outside.leave(home);
            return self.end(outside.diary);
        }
        if self.asked.is_some() {
            return;
        }
        let Some(life) = &outside.nodes[home.node].life else { return };
        let Some((queue, on)) = self.next(&life.catalog, outside.now) else { return };
        let (vhost, name) = (VHOST.to_owned(), self.plans[queue].name.to_owned());
        let by = on.then(|| "guest".to_owned());
        let command = CatalogCommand::PauseQueue { vhost, name, by };
        // As a session does, which proposes nothing that is refused.
        if life.catalog.check(&command).is_err() {
            return;
        }
        self.asked = Some(Asked { queue, on, at: outside.now });
        self.tell(Stage::Inv, queue, on, outside.diary);
        outside.ask(home, vec![Request::Catalog { ticket: TICKET, command }]);
    }

    /// What is to be asked: nothing that changes nothing, unless nobody knows.
    fn next(&mut self, catalog: &Catalog, now: Micros) -> Option<(usize, bool)> {
        let plans = Rc::clone(&self.plans);
        let is_paused = |queue: usize| {
            let found = catalog.queue(VHOST, plans[queue].name);
            found.map(|found| found.pause().is_some())
        };
        if let Some(queue) = self.unsure.first() {
            return Some((*queue, false));
        }
        if let Some(queue) = self.paused.iter().find(|(_, until)| **until <= now) {
            // The node may not have heard of the pause.
            return Some((*queue.0, false)).filter(|(queue, _)| is_paused(*queue) == Some(true));
        }
        // Something whose answer was lost is done late.
        let is_strange =
            |queue: &usize| is_paused(*queue) == Some(true) && !self.paused.contains_key(queue);
        if let Some(queue) = (0..plans.len()).find(is_strange) {
            return Some((queue, false));
        }
        if self.is_draining || self.paused.len() >= PAUSED_MAX || !self.chance.percent(25) {
            return None;
        }
        let durable = (0..plans.len()).filter(|queue| {
            let plan = &plans[*queue];
            plan.kind == Kind::Durable && (plan.consumers > 0 || plan.name == LIMBO)
        });
        let durable: Vec<usize> = durable.collect();
        let queue = durable[self.chance.within(0, durable.len() as u64) as usize];
        // A node that is cut off may not have heard of a pause.
        let goes_on = is_paused(queue) == Some(false) && !self.paused.contains_key(&queue);
        goes_on.then_some((queue, true))
    }

    pub(super) fn answered(&mut self, answer: Answer, outside: &mut Outside<'_>) {
        let Some(Asked { queue, on, .. }) = self.asked.take() else {
            let text = format!("the pauser asked nothing, and was told {answer:?}");
            return outside.diary.saw("pauser", What::Protocol { text });
        };
        match answer {
            Answer::Catalog { reply: CatalogReply::Done, .. } => {
                self.done += 1;
                self.unsure.remove(&queue);
                if on {
                    let (from, to) = if self.chance.percent(50) { MOMENT } else { WHILE };
                    let (from, to) = if self.is_draining { DRAINING } else { (from, to) };
                    self.paused.insert(queue, outside.now + self.chance.within(from, to));
                } else {
                    self.paused.remove(&queue);
                }
                self.tell(Stage::Ok, queue, on, outside.diary);
            }
            // Nobody knows whether it is done.
            Answer::AppendFailed { .. } => self.lose(queue, on, outside.diary),
            other => {
                let text = format!("the pauser was told {other:?}");
                outside.diary.saw("pauser", What::Protocol { text });
            }
        }
    }

    fn lose(&mut self, queue: usize, on: bool, diary: &mut Diary) {
        self.unsure.insert(queue);
        self.tell(Stage::Info, queue, on, diary);
    }

    fn tell(&self, k: Stage, queue: usize, on: bool, diary: &mut Diary) {
        diary.saw("pauser", What::Pause { k, q: self.plans[queue].name.to_owned(), on });
    }

    pub(super) fn disconnected(&mut self, node: usize, diary: &mut Diary) {
        if self.home.is_some_and(|home| home.node == node) {
            self.end(diary);
        }
    }

    fn end(&mut self, diary: &mut Diary) {
        self.home = None;
        if let Some(Asked { queue, on, .. }) = self.asked.take() {
            self.lose(queue, on, diary);
        }
    }

    /// At the end: an answer that never came, or queues that are paused still.
    pub(super) fn complain(&self, diary: &mut Diary) {
        if self.is_quiet() {
            return;
        }
        let asked = self.asked.map(|it| (self.plans[it.queue].name, it.on, it.at / 1000));
        let paused: Vec<&str> = self.paused.keys().map(|queue| self.plans[*queue].name).collect();
        let text = format!("the pauser waits for {asked:?}, and has paused {paused:?}");
        diary.saw("pauser", What::Protocol { text });
    }
}
