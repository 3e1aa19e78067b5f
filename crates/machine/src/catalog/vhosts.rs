//! Virtual hosts: each with its own exchanges, queues and bindings.

mod bindings;
mod exchanges;
mod histories;
mod metadata;
mod operations;
mod queues;

use std::collections::BTreeMap;

use super::bindings::Bindings;
use super::exchanges::Exchange;
use super::history_names::exchange_of;
use super::limits::{VhostLimits, VhostLimitsChange};
use super::policies::{Policies, Policy, PolicyKind, PolicySpec, Subject};
use super::queues::Queue;
use super::refusal::{Kind, Refusal};
use super::users::{Pattern, check_tags};
use super::{Catalog, CatalogEffect, check_name, not_found};
use crate::ids::{NodeId, QueueId, SessionOwner};
use crate::limits::{POLICIES_MAX, VHOST_DESCRIPTION_BYTES_MAX, VHOSTS_MAX};
use crate::value::Arguments;
use crate::version::Version;
pub use metadata::VhostMetadata;

/// The vhost that every cluster begins with, and that has the exchange of events.
const DEFAULT: &str = "/";

/// One virtual host.
#[derive(Clone, Debug)]
pub struct Vhost {
    pub(super) name: String,
    pub metadata: VhostMetadata,
    pub limits: VhostLimits,
    pub(super) exchanges: BTreeMap<String, Exchange>,
    pub(super) queues: BTreeMap<String, Queue>,
    pub(super) bindings: Bindings,
    pub(super) policies: Policies,
    /// What the arguments of its exchanges and queues, and the definitions of its policies, weigh.
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
            metadata: VhostMetadata::default(),
            limits: VhostLimits::default(),
            exchanges: BTreeMap::new(),
            queues: BTreeMap::new(),
            bindings: Bindings::default(),
            policies: Policies::default(),
            weight: 0,
        }
    }

    fn traces(&self) -> bool {
        self.metadata.is_traced && self.bindings.has_source(Exchange::TRACES)
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

    /// The subscriptions of a stream, by name.
    pub fn subscriptions_of(&self, stream: &Queue) -> impl Iterator<Item = &Queue> {
        let id = stream.settings().is_stream().then_some(stream.id);
        let all = self.queues.values().filter(move |_| id.is_some());
        all.filter(move |queue| queue.settings().subscription().map(|it| it.stream) == id)
    }

    /// By name.
    pub fn policies(&self, kind: PolicyKind) -> impl Iterator<Item = &Policy> {
        self.policies.of(kind).values()
    }

    /// Those that are about a queue, the one that counts first.
    pub fn policies_about(&self, kind: PolicyKind, queue: &Queue) -> Vec<&Policy> {
        if exchange_of(&queue.name).is_some() {
            return Vec::new();
        }
        self.policies.about(kind, Subject::Queue(queue.queue_type()), &queue.name)
    }

    pub fn policy(&self, kind: PolicyKind, name: &str) -> Option<&Policy> {
        self.policies.of(kind).get(name)
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
        // One more: the exchange of events.
        self.check_exchange_count(Exchange::predeclared().count() + usize::from(name == DEFAULT))
    }

    pub(super) fn create_vhost(&mut self, name: String) -> bool {
        if self.vhosts.contains_key(&name) {
            return false;
        }
        let vhost = Vhost::new(&name);
        self.vhosts.insert(name, vhost);
        self.open_events();
        true
    }

    /// Makes the exchange of events, as soon as all members know of it.
    pub(super) fn open_events(&mut self) {
        if self.agreed < Version::EVENTS {
            return;
        }
        if let Some(vhost) = self.vhosts.get_mut(DEFAULT) {
            vhost.exchanges.entry(Exchange::EVENTS.to_owned()).or_insert_with(Exchange::of_events);
        }
    }

    /// Whether something is bound to the exchange of events. If not, nobody need tell of any.
    pub fn has_listeners(&self) -> bool {
        let vhost = self.vhosts.get(DEFAULT);
        vhost.is_some_and(|vhost| vhost.bindings.has_source(Exchange::EVENTS))
    }

    /// Whether somebody wants to see what passes through the vhost: it is traced, and something is bound to its exchange
    /// of traces.
    #[inline]
    pub fn traces(&self, vhost: &str) -> bool {
        self.traced > 0 && self.vhosts.get(vhost).is_some_and(Vhost::traces)
    }

    /// Counts the vhosts that are traced, after one has changed or gone.
    pub(super) fn count_traced(&mut self) {
        self.traced = self.vhosts.values().filter(|vhost| vhost.metadata.is_traced).count();
    }

    pub(super) fn check_set_vhost_metadata(
        &self,
        name: &str,
        metadata: &VhostMetadata,
    ) -> Result<(), Refusal> {
        self.vhost_or_refusal(name)?;
        if metadata.description.len() > VHOST_DESCRIPTION_BYTES_MAX {
            let (what, max) = ("bytes of a description", VHOST_DESCRIPTION_BYTES_MAX);
            return Err(Refusal::TooLarge { what, max });
        }
        check_tags(&metadata.tags)
    }

    pub(super) fn set_vhost_metadata(&mut self, name: &str, metadata: VhostMetadata) -> bool {
        let Some(vhost) = self.vhosts.get_mut(name) else { return false };
        let has_changed = vhost.metadata != metadata;
        vhost.metadata = metadata;
        self.count_traced();
        has_changed
    }

    pub(super) fn set_vhost_limits(&mut self, name: &str, change: VhostLimitsChange) -> bool {
        let Some(vhost) = self.vhosts.get_mut(name) else { return false };
        let before = vhost.limits;
        vhost.limits = before.changed(change);
        before != vhost.limits
    }

    pub(super) fn delete_vhost(&mut self, name: &str, effects: &mut Vec<CatalogEffect>) -> bool {
        let Some(vhost) = self.vhosts.remove(name) else { return false };
        for queue in vhost.queues.values() {
            self.forget_queue(queue, effects);
        }
        for user in self.users.values_mut() {
            user.forget_vhost(name);
        }
        self.count_traced();
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

/// Policies of vhosts.
impl Catalog {
    pub(super) fn check_put_policy(
        &self,
        vhost: &str,
        name: &str,
        kind: PolicyKind,
        spec: &PolicySpec,
    ) -> Result<(), Refusal> {
        let vhost = self.vhost_or_refusal(vhost)?;
        check_name(Kind::Policy, name)?;
        Pattern::new(&spec.pattern)?;
        self.check_arguments(vhost, &spec.definition)?;
        let policies = vhost.policies.of(kind);
        if !policies.contains_key(name) && policies.len() >= POLICIES_MAX {
            return Err(Refusal::LimitReached { kind: Kind::Policy, max: POLICIES_MAX });
        }
        Ok(())
    }

    /// Whether anything is different now.
    pub(super) fn put_policy(
        &mut self,
        vhost_name: &str,
        name: String,
        kind: PolicyKind,
        spec: PolicySpec,
        effects: &mut Vec<CatalogEffect>,
    ) -> bool {
        let Some(vhost) = self.vhosts.get_mut(vhost_name) else { return false };
        if vhost.policy(kind, &name).is_some_and(|known| known.spec == spec) {
            return false;
        }
        let now = Policy::accepted(name, spec);
        let before = vhost.policies.insert(kind, now.clone());
        vhost.weight += now.spec.definition.weight();
        vhost.weight -= before.as_ref().map_or(0, |before| before.spec.definition.weight());
        self.govern_again(vhost_name, [Some(now), before], effects);
        true
    }

    pub(super) fn check_delete_policy(
        &self,
        vhost_name: &str,
        name: &str,
        kind: PolicyKind,
    ) -> Result<(), Refusal> {
        let vhost = self.vhost_or_refusal(vhost_name)?;
        match vhost.policy(kind, name) {
            Some(_) => Ok(()),
            None => Err(not_found(Kind::Policy, name, vhost_name)),
        }
    }

    pub(super) fn delete_policy(
        &mut self,
        vhost_name: &str,
        name: &str,
        kind: PolicyKind,
        effects: &mut Vec<CatalogEffect>,
    ) -> bool {
        let Some(vhost) = self.vhosts.get_mut(vhost_name) else { return false };
        let Some(before) = vhost.policies.of_mut(kind).remove(name) else { return false };
        vhost.weight -= before.spec.definition.weight();
        self.govern_again(vhost_name, [Some(before), None], effects);
        true
    }

    /// Looks again at everything that one of these policies is or was about.
    fn govern_again(
        &mut self,
        vhost_name: &str,
        changed: [Option<Policy>; 2],
        effects: &mut Vec<CatalogEffect>,
    ) {
        let Some(vhost) = self.vhosts.get_mut(vhost_name) else { return };
        let is_touched = |subject: Subject, name: &str| {
            changed.iter().flatten().any(|policy| policy.is_about(subject, name))
        };
        for exchange in vhost.exchanges.values_mut() {
            if is_touched(Subject::Exchange, &exchange.name) {
                exchange.governed = vhost.policies.govern(Subject::Exchange, &exchange.name);
            }
        }
        let touched = vhost
            .queues
            .values()
            .filter(|queue| is_touched(Subject::Queue(queue.queue_type()), &queue.name));
        let touched: Vec<(String, QueueId)> =
            touched.map(|queue| (queue.name.clone(), queue.id)).collect();
        for (name, id) in touched {
            self.change_queue(vhost_name, &name, id, None, effects);
        }
    }
}
