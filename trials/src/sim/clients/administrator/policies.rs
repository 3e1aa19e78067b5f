//! The policies that an administrator may set: which there are in which vhost, and what they say this time. Those that
//! let messages of the load go are about a few queues, so that the others are held to every promise.

use std::collections::BTreeMap;
use std::rc::Rc;

use machine::limits::TIME_MS_MAX;
use machine::{AppliesTo, CatalogCommand, Overflow, PolicyKind, PolicyRules};

use super::super::{Kind, Plan};
use super::rights::SIDES;
use super::rules::{Names, Rule};
use crate::history::{Stage, Traits, What};
use crate::sim::{Diary, VHOST};
use crate::workload::Chance;
use crate::workload::special::{CHAIN, DEAD};

/// No queue has so many messages, or bytes.
const MANY: u64 = 1_000_000_000;
/// Queues whose messages policies may let go.
const BITTEN_PERCENT: u64 = 45;

/// Where a policy stands: its vhost, kind and name.
pub(super) type Place = (&'static str, PolicyKind, String);

/// A policy that may be set.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) place: Place,
    names: Names,
    priority: i32,
    /// It may let messages go. Otherwise it says what nothing comes of.
    bites: bool,
    /// Where it may send dead letters.
    dead: Option<&'static str>,
}

/// What was asked of policies that let messages go, as far as it may be in force.
#[derive(Debug, Default)]
pub(super) struct Forces {
    /// By their names: the policy's place, and whether it is about one queue.
    open: BTreeMap<String, (Place, bool)>,
    /// Places of which something was asked that is not known to be done.
    unknown: Vec<Place>,
    count: u64,
}

/// Those of a run.
pub(super) fn slots(plans: &Rc<[Plan]>, chance: &mut Chance) -> Vec<Slot> {
    let harmless = |name: &str, kind, names, priority| Slot {
        place: (VHOST, kind, name.to_owned()),
        names,
        priority,
        bites: false,
        dead: None,
    };
    let mut slots = vec![
        harmless("base", PolicyKind::User, Names::All, 0),
        harmless("most", PolicyKind::User, Names::Beginning("o"), 1),
        harmless("ceiling", PolicyKind::Operator, Names::All, 0),
    ];
    let has_chain = plans.iter().any(|plan| plan.dead() == Some(CHAIN));
    for (priority, plan) in (10..).zip(plans.iter()) {
        let may_be = plan.kind == Kind::Durable && !plan.is_changed();
        if !may_be || !chance.percent(BITTEN_PERCENT) {
            continue;
        }
        // Every way of dead letters ends: those of a queue go to one that is no source of others.
        let target = if has_chain && chance.percent(50) { CHAIN } else { DEAD };
        let dead =
            Some(target).filter(|_| plan.dead().is_none() && ![CHAIN, DEAD].contains(&plan.name));
        let names = Names::One(plan.name);
        let (bites, name) = (true, format!("bite-{}", plan.name));
        let place = (VHOST, PolicyKind::User, name);
        slots.push(Slot { place, names, priority, bites, dead });
        if chance.percent(40) {
            let place = (VHOST, PolicyKind::Operator, format!("cap-{}", plan.name));
            slots.push(Slot { place, names, priority, bites, dead: None });
        }
    }
    for side in SIDES {
        let names = Names::Beginning("spare");
        let tight = (side, PolicyKind::User, "tight".to_owned());
        slots.push(Slot { place: tight, names, priority: 3, bites: true, dead: Some(DEAD) });
        let cap = (side, PolicyKind::Operator, "cap".to_owned());
        slots.push(Slot { place: cap, names: Names::All, priority: 3, bites: true, dead: None });
    }
    slots
}

impl Slot {
    /// Whether messages of the load may go by it.
    pub(super) fn is_about_load(&self) -> bool {
        self.bites && self.place.0 == VHOST
    }

    /// What it says this time.
    pub(super) fn draw(&self, chance: &mut Chance) -> Rule {
        let applies_to = match (self.bites, chance.within(0, 6)) {
            (true, 0..3) | (false, 0) => AppliesTo::All,
            (false, 1) => AppliesTo::ClassicQueues,
            (false, 2) => AppliesTo::QuorumQueues,
            (false, 3) => AppliesTo::Exchanges,
            (_, _) => AppliesTo::Queues,
        };
        let (is_operator, bites) = (self.place.1 == PolicyKind::Operator, self.bites);
        let mut number = |percent, low, high, harmless| {
            let drawn = if bites { chance.within(low, high) } else { harmless };
            chance.percent(percent).then_some(drawn)
        };
        let mut rules = PolicyRules {
            message_ttl_ms: number(40, 200, 3_000, TIME_MS_MAX),
            max_length: number(45, 2, 60, MANY),
            max_length_bytes: number(20, 500, 20_000, MANY),
            expires_ms: number(20, TIME_MS_MAX, TIME_MS_MAX, TIME_MS_MAX),
            consumer_timeout_ms: number(20, TIME_MS_MAX, TIME_MS_MAX, TIME_MS_MAX),
            ..PolicyRules::default()
        };
        if bites && chance.percent(20) {
            rules.delivery_limit = Some(chance.within(0, 4) as u32);
        }
        if !is_operator && chance.percent(40) {
            rules.overflow = Some(match chance.within(0, 3) {
                1 if bites => Overflow::RejectPublish,
                2 if bites => Overflow::RejectPublishDlx,
                _ => Overflow::DropHead,
            });
        }
        if let Some(dead) = self.dead.filter(|_| chance.percent(45)) {
            rules.dead_letter_exchange = Some(String::new());
            rules.dead_letter_key = Some(dead.to_owned());
        }
        Rule { names: self.names, applies_to, priority: self.priority, rules }
    }

    pub(super) fn put(&self, rule: &Rule) -> CatalogCommand {
        let (vhost, kind, name) = self.place.clone();
        let (vhost, spec) = (vhost.to_owned(), Box::new(rule.spec()));
        CatalogCommand::PutPolicy { vhost, name, kind, spec }
    }

    pub(super) fn delete(&self) -> CatalogCommand {
        let (vhost, kind, name) = self.place.clone();
        CatalogCommand::DeletePolicy { vhost: vhost.to_owned(), name, kind }
    }
}

impl Forces {
    /// A policy is asked for: from now on it may be in force.
    pub(super) fn asked(
        &mut self,
        slot: &Slot,
        rules: &PolicyRules,
        plans: &[Plan],
        diary: &mut Diary,
    ) {
        if !slot.is_about_load() {
            return;
        }
        self.count += 1;
        let (_, kind, name) = &slot.place;
        let x = format!("{kind:?} {name}.{}", self.count);
        let about = plans.iter().filter(|plan| slot.names.has(plan.name));
        let q = about.map(|plan| plan.name.to_owned()).collect();
        // That it is a limit of bytes makes no difference to the judge.
        let max_length = rules.max_length.or(rules.max_length_bytes);
        let refuses = !matches!(rules.overflow, None | Some(Overflow::DropHead));
        let (ttl_ms, delivery_limit) = (rules.message_ttl_ms, rules.delivery_limit);
        let traits = Traits { ttl_ms, max_length, refuses, delivery_limit, ..Traits::default() };
        let dead = rules.dead_letter_key.clone();
        diary.saw("administrator", What::Policy { k: Stage::Inv, x: x.clone(), q, traits, dead });
        let is_alone = matches!(slot.names, Names::One(_));
        self.open.insert(x, (slot.place.clone(), is_alone));
    }

    /// The last that was asked of this place is done, and with it all that was asked before is over. That is said once the
    /// group of the queue has it, where there is only one queue.
    pub(super) fn done(&mut self, place: &Place, is_put: bool, diary: &mut Diary) {
        if self.unknown.contains(place) {
            return;
        }
        let of_it = |(_, (at, is_alone)): &(&String, &(Place, bool))| at == place && *is_alone;
        let mut over: Vec<String> =
            self.open.iter().filter(of_it).map(|(x, _)| x.clone()).collect();
        if is_put {
            over.sort_by_key(|x| number(x));
            over.pop();
        }
        for x in over {
            self.end(x, diary);
        }
    }

    /// The last that was asked of this place was refused.
    pub(super) fn refused(&mut self, place: &Place, is_put: bool, diary: &mut Diary) {
        let of_it = self.open.iter().filter(|(_, (at, _))| at == place).map(|(x, _)| x.clone());
        if let Some(last) = of_it.max_by_key(|x| number(x)).filter(|_| is_put) {
            self.end(last, diary);
        }
    }

    /// What was asked of the place may be done one day.
    pub(super) fn lost(&mut self, place: &Place) {
        if !self.unknown.contains(place) {
            self.unknown.push(place.clone());
        }
    }

    /// All nodes and groups are as they should be, and nothing is on its way.
    pub(super) fn settled(&mut self, diary: &mut Diary) {
        for x in std::mem::take(&mut self.open).into_keys() {
            self.end(x, diary);
        }
        self.unknown.clear();
    }

    fn end(&mut self, x: String, diary: &mut Diary) {
        self.open.remove(&x);
        let (k, q, traits, dead) = (Stage::Ok, Vec::new(), Traits::default(), None);
        diary.saw("administrator", What::Policy { k, x, q, traits, dead });
    }
}

/// Which of all it was.
fn number(x: &str) -> u64 {
    x.rsplit_once('.').and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}
