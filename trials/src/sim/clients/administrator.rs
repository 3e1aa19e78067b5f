//! An administrator: changes policies, users, what they may do, limits and vhosts while everything else goes on. After the
//! heal all of it is brought to what the seed has drawn for the end, and every node is held against that.

mod goal;
mod policies;
pub(super) mod rights;
mod rules;

use std::collections::BTreeMap;
use std::rc::Rc;

use cluster::{Answer, Request, Ticket};
use machine::{Catalog, CatalogCommand, CatalogReply, SessionOwner};

use super::{Home, Outside, Plan};
use crate::history::What;
use crate::sim::Diary;
use crate::sim::agenda::Micros;
use crate::workload::Chance;
use goal::{Goal, delete_spare};
use policies::{Forces, Slot};
use rights::{Rights, SIDES, SPARES};

const TICKET: Ticket = Ticket(1);
/// How often one and the same thing is made right at the end, beside what may be done late: once is enough.
const REPAIRS_MAX: u32 = 1;

pub(super) struct Administrator {
    plans: Rc<[Plan]>,
    chance: Chance,
    pub(super) home: Option<Home>,
    goal: Goal,
    forces: Forces,
    asked: Option<Asked>,
    /// Questions whose answer is lost: what they ask for may be done late.
    lost: u32,
    repairs: BTreeMap<String, u32>,
    /// Changes that were made.
    pub(super) done: u64,
}

struct Asked {
    command: CatalogCommand,
    at: Micros,
}

impl Administrator {
    pub(super) fn new(seed: u64, plans: &Rc<[Plan]>) -> Self {
        let mut chance = Chance::named(seed, "administrator");
        let goal = Goal::draw(plans, &mut chance);
        Self {
            plans: Rc::clone(plans),
            chance,
            home: None,
            goal,
            forces: Forces::default(),
            asked: None,
            lost: 0,
            repairs: BTreeMap::new(),
            done: 0,
        }
    }

    /// What users may do in the end.
    pub(super) fn rights(&self) -> &Rights {
        &self.goal.rights
    }

    /// What is otherwise in a node's catalog than it is to be, in the end.
    pub(super) fn differs(&self, catalog: &Catalog) -> Option<String> {
        self.goal.differs(catalog)
    }

    pub(super) fn act(&mut self, is_steady: bool, outside: &mut Outside<'_>) {
        let Some(home) = self.home else {
            self.home = outside.connect();
            // The catalog of another node may be behind.
            self.repairs.clear();
            return;
        };
        if self.asked.is_some() {
            // It does not give up: what is asked is answered some day, if the node lives.
            return;
        }
        if !is_steady && outside.chance.within(0, 200) == 0 {
            outside.leave(home);
            self.home = None;
            return;
        }
        let Some(life) = &outside.nodes[home.node].life else { return };
        if !self.goal.has_found_all(&life.catalog) {
            return;
        }
        let owner = SessionOwner { node: outside.nodes[home.node].id, session: home.session };
        let command = match is_steady {
            true => self.goal.difference(&life.catalog, owner),
            false => self.any_change(&life.catalog, owner),
        };
        // As a session does, which proposes nothing that is refused.
        let Some(command) = command.filter(|command| life.catalog.check(command).is_ok()) else {
            return;
        };
        if is_steady {
            self.note_repair(&command, outside.diary);
        }
        self.note_asked(&command, outside.diary);
        self.asked = Some(Asked { command: command.clone(), at: outside.now });
        outside.ask(home, vec![Request::Catalog { ticket: TICKET, command }]);
    }

    fn any_change(&mut self, catalog: &Catalog, owner: SessionOwner) -> Option<CatalogCommand> {
        match self.chance.within(0, 100) {
            0..50 => {
                let slots = &self.goal.slots;
                let slot = &slots[self.chance.within(0, slots.len() as u64) as usize];
                match self.chance.percent(60) {
                    true => Some(slot.put(&slot.draw(&mut self.chance))),
                    false => Some(slot.delete()),
                }
            }
            50..60 => {
                let plans: Vec<&'static str> = self.goal.found.keys().copied().collect();
                let name = plans[self.chance.within(0, plans.len() as u64) as usize];
                let kept = [self.chance.percent(50), self.chance.percent(50)];
                self.goal.change(catalog, name, kept)
            }
            60..70 => {
                let side = SIDES[self.chance.within(0, 2) as usize];
                let name = SPARES[self.chance.within(0, 2) as usize];
                match self.chance.percent(60) {
                    true => self.goal.create_spare(catalog, side, name, owner),
                    false => delete_spare(side, name),
                }
            }
            _ => {
                let password_hash = &catalog.user("guest")?.password_hash;
                Some(Rights::any_change(password_hash, &mut self.chance))
            }
        }
    }

    /// Whether there is nothing more to be asked for.
    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_none()
    }

    /// The same thing is not made right twice: what was answered stays.
    fn note_repair(&mut self, command: &CatalogCommand, diary: &mut Diary) {
        let repairs = self.repairs.entry(format!("{command:?}")).or_default();
        *repairs += 1;
        if *repairs == REPAIRS_MAX + self.lost + 1 {
            let text = format!("it was answered that {command:?} is done, and it is not so");
            diary.saw("administrator", What::Protocol { text });
        }
    }

    fn slot(&self, command: &CatalogCommand) -> Option<(&Slot, bool)> {
        let (CatalogCommand::PutPolicy { vhost, name, kind, .. }
        | CatalogCommand::DeletePolicy { vhost, name, kind }) = command
        else {
            return None;
        };
        let is_it = |slot: &&Slot| {
            let (of, is, named) = &slot.place;
            *of == vhost.as_str() && is == kind && named == name
        };
        let is_put = matches!(command, CatalogCommand::PutPolicy { .. });
        self.goal.slots.iter().find(is_it).map(|slot| (slot, is_put))
    }

    fn note_asked(&mut self, command: &CatalogCommand, diary: &mut Diary) {
        let CatalogCommand::PutPolicy { spec, .. } = command else { return };
        let Some((slot, _)) = self.slot(command) else { return };
        let (slot, rules) = (slot.clone(), spec.rules.clone());
        self.forces.asked(&slot, &rules, &self.plans, diary);
    }

    pub(super) fn answered(&mut self, answer: Answer, diary: &mut Diary) {
        let Some(Asked { command, .. }) = self.asked.take() else {
            let text = format!("the administrator asked nothing, and was told {answer:?}");
            return diary.saw("administrator", What::Protocol { text });
        };
        match answer {
            Answer::Catalog { reply: CatalogReply::Refused(_), .. } => {
                // Something else came first. If it was a policy, it is not there.
                if let Some((slot, is_put)) = self.slot(&command) {
                    let place = slot.place.clone();
                    self.forces.refused(&place, is_put, diary);
                }
            }
            Answer::Catalog { .. } => {
                self.done += 1;
                if let Some((slot, is_put)) = self.slot(&command) {
                    let place = slot.place.clone();
                    self.forces.done(&place, is_put, diary);
                }
            }
            // Nobody knows whether it is done.
            Answer::AppendFailed { .. } => self.lose(&command),
            other => {
                let text = format!("the administrator was told {other:?}");
                diary.saw("administrator", What::Protocol { text });
            }
        }
    }

    fn lose(&mut self, command: &CatalogCommand) {
        self.lost += 1;
        if let Some((slot, _)) = self.slot(command) {
            let place = slot.place.clone();
            self.forces.lost(&place);
        }
    }

    pub(super) fn disconnected(&mut self, node: usize) {
        if self.home.is_some_and(|home| home.node == node) {
            self.home = None;
            if let Some(Asked { command, .. }) = self.asked.take() {
                self.lose(&command);
            }
        }
    }

    /// Every node is as it is to be, and nothing is on its way that may change it.
    pub(super) fn settled(&mut self, diary: &mut Diary) {
        self.forces.settled(diary);
    }

    /// At the end: an answer that never came.
    pub(super) fn complain(&self, diary: &mut Diary) {
        if let Some(Asked { command, at }) = &self.asked {
            let since = at / 1000;
            let text = format!("the administrator waits since {since} ms for {command:?}");
            diary.saw("administrator", What::Protocol { text });
        }
    }
}
