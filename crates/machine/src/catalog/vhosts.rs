//! Virtual hosts: each with its own exchanges, queues and bindings.

mod bindings;
mod exchanges;
mod histories;
mod queues;

use std::collections::BTreeMap;

use super::bindings::Bindings;
use super::exchanges::Exchange;
use super::queues::Queue;
use super::refusal::{Kind, Refusal};
use super::{Catalog, CatalogEffect, check_name, not_found};
use crate::ids::{NodeId, QueueId, SessionOwner};
use crate::limits::VHOSTS_MAX;
use crate::value::Arguments;

/// One virtual host.
#[derive(Clone, Debug)]
pub struct Vhost {
    pub(super) name: String,
    pub(super) exchanges: BTreeMap<String, Exchange>,
    pub(super) queues: BTreeMap<String, Queue>,
    pub(super) bindings: Bindings,
    /// What the arguments of its exchanges and queues weigh.
    pub(super) weight: usize,
}

impl Vhost {
    /// With the predeclared exchanges.
    pub(super) fn new(name: &str) -> Self {
        let mut vhost = Self::empty(name);
        for exchange in Exchange::predeclared() {
            vhost.exchanges.insert(exchange.name.clone(), exchange);
        }
        vhost
    }

    pub(super) fn empty(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            exchanges: BTreeMap::new(),
            queues: BTreeMap::new(),
            bindings: Bindings::default(),
            weight: 0,
        }
    }

    /// What all arguments in it weigh.
    fn arguments_weight(&self) -> usize {
        self.weight + self.bindings.weight()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn exchange(&self, name: &str) -> Option<&Exchange> {
        self.exchanges.get(name)
    }

    pub fn queue(&self, name: &str) -> Option<&Queue> {
        self.queues.get(name)
    }

    /// By name.
    pub fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges.values()
    }

    /// By name.
    pub fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.queues.values()
    }
}

impl Catalog {
    pub(super) fn vhost_or_refusal(&self, name: &str) -> Result<&Vhost, Refusal> {
        self.vhosts.get(name).ok_or_else(|| not_found(Kind::Vhost, name, ""))
    }

    /// Whether there is room for one more table of arguments. Those of the usual size always have room.
    pub(super) fn check_arguments(
        &self,
        vhost: &Vhost,
        arguments: &Arguments,
    ) -> Result<(), Refusal> {
        if !arguments.is_within_limits() {
            return Err(Refusal::ArgumentsTooLarge);
        }
        let more = arguments.weight();
        if more == 0 {
            return Ok(());
        }
        let max = self.bounds.vhost_arguments_bytes;
        if vhost.arguments_weight() + more > max {
            return Err(Refusal::TooLarge { what: "bytes of arguments in a vhost", max });
        }
        let all: usize = self.vhosts.values().map(Vhost::arguments_weight).sum();
        let max = self.bounds.arguments_bytes;
        if all + more > max {
            return Err(Refusal::TooLarge { what: "bytes of arguments in the cluster", max });
        }
        Ok(())
    }

    pub(super) fn check_create_vhost(&self, name: &str) -> Result<(), Refusal> {
        if self.vhosts.contains_key(name) {
            return Ok(());
        }
        check_name(Kind::Vhost, name)?;
        if self.vhosts.len() >= VHOSTS_MAX {
            return Err(Refusal::LimitReached { kind: Kind::Vhost, max: VHOSTS_MAX });
        }
        self.check_exchange_count(Exchange::predeclared().count())
    }

    pub(super) fn create_vhost(&mut self, name: String) -> bool {
        if self.vhosts.contains_key(&name) {
            return false;
        }
        let vhost = Vhost::new(&name);
        self.vhosts.insert(name, vhost);
        true
    }

    pub(super) fn delete_vhost(&mut self, name: &str, effects: &mut Vec<CatalogEffect>) -> bool {
        let Some(vhost) = self.vhosts.remove(name) else { return false };
        for queue in vhost.queues.values() {
            self.forget_queue(queue, effects);
        }
        for user in self.users.values_mut() {
            user.permissions.remove(name);
        }
        true
    }

    pub(super) fn end_session(
        &mut self,
        owner: SessionOwner,
        effects: &mut Vec<CatalogEffect>,
    ) -> bool {
        let first = (owner, QueueId(0));
        let last = (owner, QueueId(u64::MAX));
        let queues: Vec<QueueId> = self.exclusive.range(first..=last).map(|(_, id)| *id).collect();
        self.delete_queues_by_id(&queues, effects)
    }

    /// What lived in the node's memory is gone. Queues first, then exchanges: all in order of ids and names.
    pub(super) fn start_node(&mut self, node: NodeId, effects: &mut Vec<CatalogEffect>) -> bool {
        let first = (node, QueueId(0));
        let last = (node, QueueId(u64::MAX));
        let queues: Vec<QueueId> = self.local.range(first..=last).map(|(_, id)| *id).collect();
        let mut has_changed = self.delete_queues_by_id(&queues, effects);
        let mut histories = Vec::new();
        for vhost in self.vhosts.values_mut() {
            let transient = vhost.exchanges.values().filter(|exchange| exchange.node == Some(node));
            let names: Vec<String> = transient.map(|exchange| exchange.name.clone()).collect();
            has_changed |= !names.is_empty();
            histories.extend(vhost.delete_exchanges(names));
        }
        self.delete_queues_by_id(&histories, effects);
        has_changed
    }
}
