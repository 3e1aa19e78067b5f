//! Bindings come and go: whether both ends are there, whether there is room, and what goes with the last one.

use std::sync::Arc;

use super::super::binding::{Binding, BindingChange};
use super::super::exchanges::ExchangeKind;
use super::super::refusal::{Kind, Refusal};
use super::super::routing::Dest;
use super::super::target::Target;
use super::super::{Catalog, CatalogCommand, CatalogEffect, Destination, not_found};
use super::Vhost;
use crate::limits::{HEADERS_BINDINGS_MAX, NAME_BYTES_MAX};

impl Vhost {
    /// All bindings but those of the default exchange, by source, destination and key.
    pub fn bindings(&self) -> impl Iterator<Item = &Binding> {
        self.bindings.all()
    }

    pub fn bindings_of_source(&self, source: &str) -> impl Iterator<Item = &Binding> {
        self.bindings.of_source(source)
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
    pub(in crate::catalog) fn dest(&self, destination: &Destination) -> Option<Dest> {
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
    pub(in crate::catalog) fn bind(&mut self, binding: Binding) -> bool {
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
    pub(in crate::catalog) fn retarget(
        &mut self,
        destination: &Destination,
        before: Target,
        now: Target,
    ) {
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
    pub(in crate::catalog) fn check_bind(&self, change: &BindingChange) -> Result<(), Refusal> {
        let BindingChange { vhost: vhost_name, source, destination, key, arguments, by } = change;
        let vhost = self.vhost_or_refusal(vhost_name)?;
        check_not_default(source, destination)?;
        let Some(exchange) = vhost.exchanges.get(source) else {
            return Err(not_found(Kind::Exchange, source, vhost_name));
        };
        // Whether they exist is looked at first, as RabbitMQ does; then whose they are.
        match destination {
            Destination::Queue(name) => match vhost.queues.get(name) {
                Some(queue) => {
                    queue.check_access(vhost_name, *by)?;
                    if queue.settings().subscription().is_some() {
                        let (name, vhost) = (name.clone(), vhost_name.clone());
                        return Err(Refusal::NoDestination { name, vhost });
                    }
                }
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
            | ExchangeKind::RecentHistory
            | ExchangeKind::LocalRandom => self.bounds.bindings_per_source,
        };
        let has_room = self.check_arguments(vhost, arguments);
        if vhost.bindings.source_count(source) < max && has_room.is_ok() {
            return Ok(());
        }
        if vhost.bindings.contains(&change.binding()) {
            return Ok(());
        }
        has_room?;
        Err(Refusal::LimitReached { kind: Kind::Binding, max })
    }

    /// Whether the command asks for a binding that there is.
    pub fn is_bound(&self, command: &CatalogCommand) -> bool {
        let (CatalogCommand::Bind(change) | CatalogCommand::CreateBinding(change)) = command else {
            return false;
        };
        let vhost = self.vhosts.get(&change.vhost);
        vhost.is_some_and(|vhost| vhost.bindings.contains(&change.binding()))
    }

    /// What is not bound may be unbound by everybody.
    pub(in crate::catalog) fn check_unbind(&self, change: &BindingChange) -> Result<(), Refusal> {
        let BindingChange { vhost: vhost_name, source, destination, by, .. } = change;
        let vhost = self.vhost_or_refusal(vhost_name)?;
        check_not_default(source, destination)?;
        let Destination::Queue(name) = destination else { return Ok(()) };
        let Some(queue) = vhost.queues.get(name) else { return Ok(()) };
        queue.check_access(vhost_name, *by).or_else(|refusal| {
            if vhost.bindings.contains(&change.binding()) { Err(refusal) } else { Ok(()) }
        })
    }

    pub(in crate::catalog) fn bind(&mut self, vhost: &str, binding: Binding) -> bool {
        self.vhosts.get_mut(vhost).is_some_and(|vhost| vhost.bind(binding))
    }

    pub(in crate::catalog) fn unbind(
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
