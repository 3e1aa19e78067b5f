//! Exchanges of recent history: each has a queue of its own that holds its last messages.
//!
//! The queue is hidden in so far as clients neither declare nor delete it: it comes and goes with its
//! exchange, wherever that lives. It is an ordinary queue otherwise, limited in length, so that the
//! history is as safe as the exchange is. Who binds a queue has to copy it: see `Exchange::history`.

use super::super::exchanges::{Exchange, ExchangeKind};
use super::super::history_names::{exchange_of, history_of};
use super::super::queues::{NewQueue, Queue, QueueHome, QueueSpec, QueueType};
use super::super::refusal::{Kind, Refusal};
use super::super::target::Target;
use super::super::{Catalog, CatalogEffect};
use super::Vhost;
use crate::settings::{Features, QueueSettings};
use crate::value::{Arguments, Value};

impl Exchange {
    /// The queue that it must have.
    pub(in crate::catalog) fn history_queue(&self, vhost: &str) -> Option<NewQueue> {
        let length = self.spec.history_length?;
        let features = Features { max_length: Some(length), ..Features::default() };
        let spec = QueueSpec {
            queue_type: QueueType::Classic,
            settings: QueueSettings {
                is_durable: self.durable,
                is_auto_delete: false,
                features: Some(Box::new(features)),
                is_paused: false,
            },
            dead_letter: None,
            consumer_timeout_ms: None,
            members: None,
            partitions: 1,
        };
        let shown = Value::I64(i64::try_from(length).unwrap_or(i64::MAX));
        Some(NewQueue {
            vhost: vhost.to_owned(),
            name: history_of(&self.name),
            home: self.node.map_or(QueueHome::Group, QueueHome::Node),
            spec,
            arguments: Arguments::new().with("x-max-length", shown),
        })
    }
}

impl Vhost {
    /// A queue has come or was changed: if it is a history, its exchange is told.
    pub(in crate::catalog) fn note_history(&mut self, queue: &str, target: Target) {
        if let Some(exchange) = exchange_of(queue)
            && let Some(exchange) = self.exchanges.get_mut(exchange)
            && exchange.spec.routing == ExchangeKind::RecentHistory
        {
            exchange.history = Some(target);
        }
    }

    /// A queue has gone.
    pub(in crate::catalog) fn forget_history(&mut self, queue: &str) {
        let exchange = exchange_of(queue).and_then(|name| self.exchanges.get_mut(name));
        if let Some(exchange) = exchange {
            exchange.history = None;
        }
    }
}

impl Catalog {
    /// Deletes exchanges with all their bindings, the auto-delete exchanges whose last binding as a
    /// source goes with them, and what they had as histories.
    pub(in crate::catalog) fn delete_exchanges(
        &mut self,
        vhost: &str,
        names: Vec<String>,
        effects: &mut Vec<CatalogEffect>,
    ) {
        let histories = match self.vhosts.get_mut(vhost) {
            Some(vhost) => vhost.delete_exchanges(names),
            None => return,
        };
        self.delete_queues_by_id(&histories, effects);
    }

    /// Nobody deletes a history but with its exchange.
    pub(in crate::catalog) fn check_no_history(&self, queue: &Queue) -> Result<(), Refusal> {
        let exchange = exchange_of(&queue.name);
        match exchange.and_then(|name| self.exchange(&queue.vhost, name)?.history) {
            Some(_) => Err(Refusal::Reserved { kind: Kind::Queue, name: queue.name.clone() }),
            None => Ok(()),
        }
    }
}
