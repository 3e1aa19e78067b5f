//! How all that the administrator changes is to be in the end, and what is otherwise in a node's catalog.

use std::collections::BTreeMap;
use std::rc::Rc;

use broker::QueueDeclaration;
use machine::limits::TIME_MS_MAX;
use machine::{
    Arguments, Catalog, CatalogCommand, PolicyKind, Queue, QueueSpec, SessionOwner, Value, Version,
};

use super::super::{Kind, Plan};
use super::policies::{self, Place, Slot};
use super::rights::{Rights, SPARES};
use super::rules::{Rule, governed};
use crate::sim::VHOST;
use crate::workload::Chance;

/// No queue has so many messages.
const MANY: u64 = 1_000_000_000;

pub(super) struct Goal {
    pub(super) rights: Rights,
    /// The policies that there may be, and those that there are in the end.
    pub(super) slots: Vec<Slot>,
    policies: BTreeMap<Place, Rule>,
    /// Whether queues of the load get limits of their own which nothing comes of: a time, a length.
    changed: BTreeMap<&'static str, [bool; 2]>,
    /// What queues of the load are without policies, as they were found before there were any.
    pub(super) found: BTreeMap<&'static str, QueueSpec>,
    /// What queues of other vhosts are without policies.
    spares: BTreeMap<&'static str, QueueSpec>,
}

impl Goal {
    pub(super) fn draw(plans: &Rc<[Plan]>, chance: &mut Chance) -> Self {
        let slots = policies::slots(plans, chance);
        let rights = Rights::draw(chance);
        let stays = |slot: &&Slot| {
            let vhost = slot.place.0;
            !slot.is_about_load() && (vhost == VHOST || rights.sides.contains_key(vhost))
        };
        let mut policies = BTreeMap::new();
        for slot in slots.iter().filter(stays) {
            if chance.percent(60) {
                policies.insert(slot.place.clone(), slot.draw(chance));
            }
        }
        let durable = plans.iter().filter(|plan| plan.kind == Kind::Durable);
        let changed = durable.map(|plan| (plan.name, [chance.percent(50), chance.percent(50)]));
        let changed: BTreeMap<&'static str, [bool; 2]> = changed.collect();
        let (found, spares) = (BTreeMap::new(), BTreeMap::new());
        Self { rights, slots, policies, changed, found, spares }
    }

    /// Whether it has seen every queue of the load as it is without policies.
    pub(super) fn has_found_all(&mut self, catalog: &Catalog) -> bool {
        if self.found.len() < self.changed.len() {
            let found = self
                .changed
                .keys()
                .filter_map(|name| Some((*name, unpaused(catalog.queue(VHOST, name)?))));
            self.found = found.collect();
        }
        self.found.len() == self.changed.len()
    }

    /// A queue of the load is to have these limits of its own, or not.
    pub(super) fn change(
        &self,
        catalog: &Catalog,
        name: &'static str,
        kept: [bool; 2],
    ) -> Option<CatalogCommand> {
        let queue = catalog.queue(VHOST, name)?.id;
        let spec = Box::new(with_limits(self.found.get(name)?, kept));
        let (vhost, name) = (VHOST.to_owned(), name.to_owned());
        Some(CatalogCommand::ChangeQueue { vhost, name, queue, spec })
    }

    pub(super) fn create_spare(
        &mut self,
        catalog: &Catalog,
        vhost: &str,
        name: &'static str,
        by: SessionOwner,
    ) -> Option<CatalogCommand> {
        let is_second = name == SPARES[1];
        let arguments = match is_second {
            true => Arguments::new()
                .with("x-max-length", Value::I64(50))
                .with("x-overflow", Value::LongStr(b"reject-publish".to_vec())),
            false => Arguments::new(),
        };
        let declaration = QueueDeclaration {
            vhost: vhost.to_owned(),
            name: name.to_owned(),
            durable: true,
            auto_delete: false,
            exclusive: false,
            server_named: false,
            arguments,
            by,
        };
        // What it is must be known, to tell what policies make of it.
        if catalog.agreed() < Version::POLICIES {
            return None;
        }
        let command = declaration.into_command(catalog.agreed());
        if let CatalogCommand::CreateQueue { spec, .. } = &command {
            self.spares.insert(name, (**spec).clone());
        }
        Some(command)
    }

    /// The first thing that is otherwise in a catalog than it is to be, and what makes it so.
    pub(super) fn difference(
        &mut self,
        catalog: &Catalog,
        owner: SessionOwner,
    ) -> Option<CatalogCommand> {
        if let Some(command) = self.rights.difference(catalog) {
            return Some(command).filter(|command| command.since() <= catalog.agreed());
        }
        if catalog.agreed() < Version::POLICIES {
            return None;
        }
        self.policies_differ(catalog).or_else(|| self.queues_differ(catalog, owner))
    }

    fn policies_differ(&self, catalog: &Catalog) -> Option<CatalogCommand> {
        self.slots.iter().find_map(|slot| {
            let (vhost, kind, name) = &slot.place;
            let vhost = catalog.vhost(vhost)?;
            let found = vhost.policy(*kind, name).map(|policy| &policy.spec);
            match (found, self.policies.get(&slot.place)) {
                (None, None) => None,
                (Some(_), None) => Some(slot.delete()),
                (Some(spec), Some(rule)) if *spec == rule.spec() => None,
                (Some(_) | None, Some(rule)) => Some(slot.put(rule)),
            }
        })
    }

    fn queues_differ(&mut self, catalog: &Catalog, owner: SessionOwner) -> Option<CatalogCommand> {
        for side in self.rights.sides.keys().copied().collect::<Vec<_>>() {
            for name in SPARES {
                let is_wanted = self.rights.sides[side].queues.contains(name);
                match (catalog.queue(side, name).is_some(), is_wanted) {
                    (true, false) => return delete_spare(side, name),
                    (false, true) => return self.create_spare(catalog, side, name, owner),
                    (true, true) | (false, false) => {}
                }
            }
        }
        self.changed.iter().find_map(|(name, kept)| {
            let found = catalog.queue(VHOST, name)?;
            let expected = self.expected(VHOST, name)?;
            let command = self.change(catalog, name, *kept);
            (unpaused(found) != expected).then_some(command).flatten()
        })
    }

    /// What a queue is in the end.
    fn expected(&self, vhost: &str, name: &str) -> Option<QueueSpec> {
        let declared = match self.found.get(name).filter(|_| vhost == VHOST) {
            Some(found) => with_limits(found, *self.changed.get(name)?),
            None => self.spares.get(name)?.clone(),
        };
        let policies = self.policies.iter();
        let policies = policies.filter(|((of, _, _), _)| *of == vhost);
        let policies = policies.map(|((_, kind, _), rule)| (*kind, rule));
        Some(governed(&declared, name, policies))
    }

    /// What is otherwise in a node's catalog than it is to be, in the end.
    pub(super) fn differs(&self, catalog: &Catalog) -> Option<String> {
        if let Some(command) = self.rights.difference(catalog) {
            return Some(format!("it takes {command:?}"))
                .filter(|_| command.since() <= catalog.agreed());
        }
        if catalog.agreed() < Version::POLICIES {
            return None;
        }
        if let Some(command) = self.policies_differ(catalog) {
            return Some(format!("it takes {command:?}"));
        }
        let of_vhost = |vhost: &machine::Vhost| {
            let all = [PolicyKind::User, PolicyKind::Operator];
            let all = all.map(|kind| vhost.policies(kind).count());
            (vhost.name().to_owned(), all.iter().sum::<usize>())
        };
        for (vhost, count) in catalog.vhosts().map(of_vhost) {
            let expected = self.policies.keys().filter(|(of, _, _)| *of == vhost).count();
            if count != expected {
                return Some(format!("{vhost} has {count} policies, and is to have {expected}"));
            }
        }
        let wrong = catalog.queues().find_map(|queue| {
            let expected = self.expected(&queue.vhost, &queue.name)?;
            let spec = unpaused(queue);
            (spec != expected).then(|| {
                let name = &queue.name;
                format!("{name} is {spec:?}, and policies make it {expected:?}")
            })
        });
        wrong.or_else(|| self.spares_differ(catalog))
    }

    fn spares_differ(&self, catalog: &Catalog) -> Option<String> {
        self.rights.sides.iter().find_map(|(name, side)| {
            let found = catalog.vhost(name)?.queues().count();
            let expected = side.queues.len();
            (found != expected).then(|| format!("{name} has {found} queues, and not {expected}"))
        })
    }
}

/// What a queue is, but for a pause: others pause queues.
fn unpaused(queue: &Queue) -> QueueSpec {
    let mut spec = queue.spec().clone();
    spec.settings.is_paused = false;
    spec
}

/// A queue of the load with limits of its own which nothing comes of, if it has none.
fn with_limits(found: &QueueSpec, [lives, is_bounded]: [bool; 2]) -> QueueSpec {
    let mut spec = found.clone();
    let mut features = spec.settings.features.as_deref().cloned().unwrap_or_default();
    if lives {
        features.message_ttl_ms.get_or_insert(TIME_MS_MAX);
    }
    if is_bounded {
        features.max_length.get_or_insert(MANY);
    }
    let has_any = features != machine::Features::default();
    spec.settings.features = has_any.then(|| Box::new(features));
    spec
}

pub(super) fn delete_spare(vhost: &str, name: &str) -> Option<CatalogCommand> {
    let (vhost, name) = (vhost.to_owned(), name.to_owned());
    Some(CatalogCommand::DeleteQueue { vhost, name, queue: None, by: None })
}
