//! Exchanges come and go: whether there is room for one more, and who goes with whom.

use super::super::exchanges::Exchange;
use super::super::policies::Subject;
use super::super::refusal::{Kind, Refusal};
use super::super::routing::Dest;
use super::super::{Catalog, CatalogEffect, CatalogReply, Destination, check_name};
use super::Vhost;
use crate::ids::QueueId;
use crate::limits::EXCHANGES_MAX;
use crate::value::Arguments;

impl Catalog {
    /// Whether an exchange can be stored. What a client may ask for is the broker's to judge: `broker::arguments`. It
    /// has done so before this is proposed, and compares its declaration with the exchange that it finds.
    pub(in crate::catalog) fn check_create_exchange(
        &self,
        vhost_name: &str,
        name: &str,
        arguments: &Arguments,
        has_history: bool,
    ) -> Result<(), Refusal> {
        let vhost = self.vhost_or_refusal(vhost_name)?;
        if vhost.exchanges.contains_key(name) {
            return Ok(());
        }
        check_name(Kind::Exchange, name)?;
        self.check_arguments(vhost, arguments)?;
        if has_history {
            self.check_queue_count(1)?;
        }
        self.check_exchange_count(1)
    }

    pub(in crate::catalog) fn check_exchange_count(&self, more: usize) -> Result<(), Refusal> {
        let count: usize = self.vhosts.values().map(|vhost| vhost.exchanges.len()).sum();
        if count + more > EXCHANGES_MAX {
            return Err(Refusal::LimitReached { kind: Kind::Exchange, max: EXCHANGES_MAX });
        }
        Ok(())
    }

    /// Makes the exchange, or finds that there is one of its name.
    pub(in crate::catalog) fn declare_exchange(
        &mut self,
        vhost_name: &str,
        exchange: Exchange,
        effects: &mut Vec<CatalogEffect>,
    ) -> (CatalogReply, bool) {
        let created = self.create_exchange(vhost_name, exchange, effects);
        (CatalogReply::ExchangeDeclared { created }, created)
    }

    fn create_exchange(
        &mut self,
        vhost_name: &str,
        mut exchange: Exchange,
        effects: &mut Vec<CatalogEffect>,
    ) -> bool {
        let Some(vhost) = self.vhosts.get_mut(vhost_name) else { return false };
        if vhost.exchanges.contains_key(&exchange.name) {
            return false;
        }
        exchange.governed = vhost.policies.govern(Subject::Exchange, &exchange.name);
        let history = exchange.history_queue(vhost_name);
        vhost.weight += exchange.arguments.weight();
        vhost.exchanges.insert(exchange.name.clone(), exchange);
        if let Some(queue) = history {
            self.create_queue(queue, effects);
        }
        true
    }

    pub(in crate::catalog) fn check_delete_exchange(
        &self,
        vhost_name: &str,
        name: &str,
        if_unused: bool,
    ) -> Result<(), Refusal> {
        let vhost = self.vhost_or_refusal(vhost_name)?;
        let (name, vhost_name) = (name.to_owned(), vhost_name.to_owned());
        if name.is_empty() {
            return Err(Refusal::DefaultExchange);
        }
        if name.starts_with("amq.") {
            return Err(Refusal::SystemExchange { name, vhost: vhost_name });
        }
        if if_unused && vhost.bindings.has_source(&name) {
            return Err(Refusal::InUse { kind: Kind::Exchange, name, vhost: vhost_name });
        }
        Ok(())
    }

    pub(in crate::catalog) fn delete_exchange(
        &mut self,
        vhost: &str,
        name: String,
        effects: &mut Vec<CatalogEffect>,
    ) -> bool {
        if self.exchange(vhost, &name).is_none() {
            return false;
        }
        self.delete_exchanges(vhost, vec![name], effects);
        true
    }
}

impl Vhost {
    /// Deletes exchanges with all their bindings, and the auto-delete exchanges whose last binding
    /// as a source goes with them. Returns the queues that go too: histories.
    #[must_use]
    pub(in crate::catalog) fn delete_exchanges(&mut self, mut names: Vec<String>) -> Vec<QueueId> {
        let mut histories = Vec::new();
        while let Some(name) = names.pop() {
            let Some(exchange) = self.exchanges.remove(&name) else { continue };
            self.weight -= exchange.arguments.weight();
            histories.extend(exchange.history.map(|target| target.queue));
            self.bindings.remove_source(&name);
            let dest = Dest::Exchange(name.as_str().into());
            names.extend(self.unbind_destination(&Destination::Exchange(name), &dest));
        }
        histories
    }

    /// Removes all bindings to a destination that is gone. Returns the auto-delete exchanges that
    /// had their last binding there.
    pub(in crate::catalog) fn unbind_destination(
        &mut self,
        destination: &Destination,
        dest: &Dest,
    ) -> Vec<String> {
        let mut unused = Vec::new();
        for binding in self.bindings.remove_destination(destination) {
            if let Some(exchange) = self.exchanges.get_mut(&binding.source) {
                exchange.routes.remove(&binding, dest);
                if exchange.auto_delete && !self.bindings.has_source(&binding.source) {
                    unused.push(binding.source.clone());
                }
            }
        }
        unused
    }
}
