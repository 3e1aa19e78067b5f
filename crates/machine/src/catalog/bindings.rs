//! Bindings: from an exchange to a queue or exchange, with a key and arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::refusal::{Kind, Refusal};
use super::routing::{Dest, Target};
use super::vhosts::Vhost;
use super::{Catalog, CatalogCommand, CatalogEffect, Destination, ExchangeKind, not_found};
use crate::ids::SessionOwner;
use crate::limits::{HEADERS_BINDINGS_MAX, NAME_BYTES_MAX};
use crate::value::Arguments;

/// One binding: equal ones are one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    pub source: String,
    pub destination: Destination,
    pub key: String,
    /// Sorted by name: their order does not tell bindings apart.
    pub arguments: Arguments,
}

impl Binding {
    pub(super) fn new(
        source: String,
        destination: Destination,
        key: String,
        mut arguments: Arguments,
    ) -> Self {
        arguments.0.sort_by(|(one, _), (two, _)| one.cmp(two));
        Self { source, destination, key, arguments }
    }
}

/// All bindings of a vhost, by either end. Those of the default exchange are not in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Bindings {
    by_source: BTreeMap<String, BTreeSet<Arc<Binding>>>,
    by_destination: BTreeMap<Destination, BTreeSet<Arc<Binding>>>,
    /// What their arguments weigh.
    weight: usize,
}

impl Bindings {
    fn contains(&self, binding: &Binding) -> bool {
        self.by_source.get(&binding.source).is_some_and(|bindings| bindings.contains(binding))
    }

    fn insert(&mut self, binding: Arc<Binding>) {
        self.weight += binding.arguments.weight();
        self.by_source.entry(binding.source.clone()).or_default().insert(binding.clone());
        self.by_destination.entry(binding.destination.clone()).or_default().insert(binding);
    }

    fn remove(&mut self, binding: &Binding) {
        self.weight -= binding.arguments.weight();
        remove_from(&mut self.by_source, &binding.source, binding);
        remove_from(&mut self.by_destination, &binding.destination, binding);
    }

    pub(super) fn remove_source(&mut self, source: &str) {
        for binding in self.by_source.remove(source).unwrap_or_default() {
            self.weight -= binding.arguments.weight();
            remove_from(&mut self.by_destination, &binding.destination, &binding);
        }
    }

    pub(super) fn remove_destination(
        &mut self,
        destination: &Destination,
    ) -> BTreeSet<Arc<Binding>> {
        let all = self.by_destination.remove(destination).unwrap_or_default();
        for binding in &all {
            self.weight -= binding.arguments.weight();
            remove_from(&mut self.by_source, &binding.source, binding);
        }
        all
    }

    pub(super) fn to_destination(
        &self,
        destination: &Destination,
    ) -> impl Iterator<Item = &Binding> {
        self.by_destination.get(destination).into_iter().flatten().map(Arc::as_ref)
    }

    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    pub(super) fn has_source(&self, source: &str) -> bool {
        self.by_source.contains_key(source)
    }

    pub(super) fn source_count(&self, source: &str) -> usize {
        self.by_source.get(source).map_or(0, BTreeSet::len)
    }

    /// By source, destination, key.
    pub(super) fn all(&self) -> impl Iterator<Item = &Binding> {
        self.by_source.values().flatten().map(Arc::as_ref)
    }
}

/// Sets that become empty go: an exchange without bindings costs nothing.
fn remove_from<K: Ord + Clone>(
    sets: &mut BTreeMap<K, BTreeSet<Arc<Binding>>>,
    key: &K,
    binding: &Binding,
) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(binding);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

impl Vhost {
    /// All bindings but those of the default exchange, by source, destination and key.
    pub fn bindings(&self) -> impl Iterator<Item = &Binding> {
        self.bindings.all()
    }

    pub fn bindings_of_source(&self, source: &str) -> impl Iterator<Item = &Binding> {
        self.bindings.by_source.get(source).into_iter().flatten().map(Arc::as_ref)
    }

    pub fn bindings_of_destination(
        &self,
        destination: &Destination,
    ) -> impl Iterator<Item = &Binding> {
        self.bindings.to_destination(destination)
    }

    /// A binding is durable if both its ends are.
    pub fn is_durable(&self, binding: &Binding) -> bool {
        let source = self.exchanges.get(&binding.source).is_some_and(|exchange| exchange.durable);
        source
            && match &binding.destination {
                Destination::Queue(name) => {
                    self.queues.get(name).is_some_and(|queue| queue.durable)
                }
                Destination::Exchange(name) => {
                    self.exchanges.get(name).is_some_and(|exchange| exchange.durable)
                }
            }
    }

    /// The end of a binding as routing knows it.
    fn dest(&self, destination: &Destination) -> Option<Dest> {
        match destination {
            Destination::Queue(name) => {
                self.queues.get(name).map(|queue| Dest::Queue(queue.target()))
            }
            Destination::Exchange(name) => self
                .exchanges
                .get(name)
                .map(|exchange| Dest::Exchange(exchange.name.as_str().into())),
        }
    }

    /// Adds a binding whose ends exist; false: it was there, or an end is missing.
    pub(super) fn bind(&mut self, binding: Binding) -> bool {
        if self.bindings.contains(&binding) {
            return false;
        }
        let Some(dest) = self.dest(&binding.destination) else { return false };
        let Some(exchange) = self.exchanges.get_mut(&binding.source) else { return false };
        exchange.routes.insert(&binding, dest);
        self.bindings.insert(Arc::new(binding));
        true
    }

    /// The routes of all exchanges that lead to a queue hold a copy of what its publishers must know.
    pub(super) fn retarget(&mut self, destination: &Destination, before: Target, now: Target) {
        if before == now {
            return;
        }
        for binding in self.bindings.to_destination(destination) {
            if let Some(exchange) = self.exchanges.get_mut(&binding.source) {
                exchange.routes.remove(binding, &Dest::Queue(before));
                exchange.routes.insert(binding, Dest::Queue(now));
            }
        }
        self.note_history(destination.name(), now);
    }

    /// Removes a binding. Returns its source, if that is to go with it.
    fn unbind(&mut self, binding: &Binding) -> Option<String> {
        self.bindings.remove(binding);
        let dest = self.dest(&binding.destination);
        let exchange = self.exchanges.get_mut(&binding.source)?;
        if let Some(dest) = dest {
            exchange.routes.remove(binding, &dest);
        }
        let is_unused = exchange.auto_delete && !self.bindings.has_source(&binding.source);
        is_unused.then(|| binding.source.clone())
    }
}

fn check_not_default(source: &str, destination: &Destination) -> Result<(), Refusal> {
    match destination {
        _ if source.is_empty() => Err(Refusal::DefaultExchange),
        Destination::Exchange(name) if name.is_empty() => Err(Refusal::DefaultExchange),
        Destination::Exchange(_) | Destination::Queue(_) => Ok(()),
    }
}

impl Catalog {
    /// Whether both ends are there, this session may use them, and there is room. What a client may ask for is the
    /// broker's to judge: `broker::arguments`. A binding that its exchange cannot route by takes no message.
    pub(super) fn check_bind(
        &self,
        vhost_name: &str,
        source: &str,
        destination: &Destination,
        key: &str,
        arguments: &Arguments,
        by: Option<SessionOwner>,
    ) -> Result<(), Refusal> {
        let vhost = self.vhost_or_refusal(vhost_name)?;
        check_not_default(source, destination)?;
        let Some(exchange) = vhost.exchanges.get(source) else {
            return Err(not_found(Kind::Exchange, source, vhost_name));
        };
        // Whether they exist is looked at first, as RabbitMQ does; then whose they are.
        match destination {
            Destination::Queue(name) => match vhost.queues.get(name) {
                Some(queue) => queue.check_access(vhost_name, by)?,
                None => return Err(not_found(Kind::Queue, name, vhost_name)),
            },
            Destination::Exchange(name) if !vhost.exchanges.contains_key(name) => {
                return Err(not_found(Kind::Exchange, name, vhost_name));
            }
            Destination::Exchange(_) => {}
        }
        if key.len() > NAME_BYTES_MAX {
            return Err(Refusal::InvalidName { kind: Kind::Binding, name: key.to_owned() });
        }
        let max = match exchange.spec.routing {
            ExchangeKind::Headers => self.bounds.bindings_per_source.min(HEADERS_BINDINGS_MAX),
            ExchangeKind::Direct
            | ExchangeKind::Fanout
            | ExchangeKind::Topic
            | ExchangeKind::ConsistentHash
            | ExchangeKind::DelayedMessage
            | ExchangeKind::Random
            | ExchangeKind::ModulusHash
            | ExchangeKind::RecentHistory => self.bounds.bindings_per_source,
        };
        let has_room = self.check_arguments(vhost, arguments);
        if vhost.bindings.source_count(source) < max && has_room.is_ok() {
            return Ok(());
        }
        let (source, key) = (source.to_owned(), key.to_owned());
        let (destination, arguments) = (destination.clone(), arguments.clone());
        if vhost.bindings.contains(&Binding::new(source, destination, key, arguments)) {
            return Ok(());
        }
        has_room?;
        Err(Refusal::LimitReached { kind: Kind::Binding, max })
    }

    /// Whether the command asks for a binding that there is.
    pub fn is_bound(&self, command: &CatalogCommand) -> bool {
        let (CatalogCommand::Bind { vhost, source, destination, arguments, key, by: _ }
        | CatalogCommand::CreateBinding { vhost, source, destination, arguments, key, by: _ }) =
            command
        else {
            return false;
        };
        let (source, key) = (source.clone(), key.clone());
        let binding = Binding::new(source, destination.clone(), key, arguments.clone());
        self.vhosts.get(vhost).is_some_and(|vhost| vhost.bindings.contains(&binding))
    }

    /// What is not bound may be unbound by everybody.
    pub(super) fn check_unbind(
        &self,
        vhost_name: &str,
        source: &str,
        destination: &Destination,
        key: &str,
        arguments: &Arguments,
        by: Option<SessionOwner>,
    ) -> Result<(), Refusal> {
        let vhost = self.vhost_or_refusal(vhost_name)?;
        check_not_default(source, destination)?;
        let Destination::Queue(name) = destination else { return Ok(()) };
        let Some(queue) = vhost.queues.get(name) else { return Ok(()) };
        queue.check_access(vhost_name, by).or_else(|refusal| {
            let (destination, arguments) = (destination.clone(), arguments.clone());
            let binding = Binding::new(source.into(), destination, key.into(), arguments);
            if vhost.bindings.contains(&binding) { Err(refusal) } else { Ok(()) }
        })
    }

    pub(super) fn bind(&mut self, vhost: &str, binding: Binding) -> bool {
        self.vhosts.get_mut(vhost).is_some_and(|vhost| vhost.bind(binding))
    }

    pub(super) fn unbind(
        &mut self,
        vhost_name: &str,
        binding: &Binding,
        effects: &mut Vec<CatalogEffect>,
    ) -> bool {
        let Some(vhost) = self.vhosts.get_mut(vhost_name) else { return false };
        if !vhost.bindings.contains(binding) {
            return false;
        }
        let unused = vhost.unbind(binding);
        self.delete_exchanges(vhost_name, unused.into_iter().collect(), effects);
        true
    }
}
