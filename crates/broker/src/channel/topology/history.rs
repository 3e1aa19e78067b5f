//! A queue that is bound to an exchange of recent history gets the history, before the client is told of the
//! binding.
//!
//! The exchange keeps its history in a queue of its own (`machine::Exchange::history`). Its messages are
//! fetched one after the other, copied, and given back unseen. Who binds while another does so may find
//! less of it.

use amqp::Properties;
use cluster::{Delivery, Request};
use machine::{Destination, Messages, PublishedBy, Target};

use crate::arguments::binding::Binding;
use crate::attributes::{self, Asked};
use crate::channel::caller::Caller;
use crate::channel::unacked::Source;
use crate::connection::consumers::Consumers;
use crate::connection::names::Chance;
use crate::limits;
use crate::partitions;
use crate::route_cache::Route;
use crate::stored::{destination_texts, split_head};
use crate::values::Observed;

/// A history on its way into what was bound.
#[derive(Debug)]
pub(crate) struct Replay {
    history: Target,
    destination: Destination,
    /// In whose name its messages are fetched.
    fetch: u64,
    fetched: Vec<Delivery>,
    bytes: usize,
}

impl Replay {
    /// What a binding, which is not there yet, brings with it.
    pub(super) fn of(
        caller: &Caller<'_, '_>,
        consumers: &mut Consumers,
        binding: &Binding,
    ) -> Option<Box<Self>> {
        let Binding { source, destination, key, arguments, .. } = binding;
        let (catalog, vhost) = (caller.catalog(), &caller.client.vhost);
        let bindings = catalog.vhost(vhost)?;
        let history = catalog.exchange(vhost, source)?.history()?;
        let mut others = bindings.bindings_of_source(source);
        let is_there = others.any(|other| {
            (&other.destination, &other.key, &other.arguments) == (destination, key, arguments)
        });
        let fetch = consumers.draw();
        let destination = destination.clone();
        let replay = Self { history, destination, fetch, fetched: Vec::new(), bytes: 0 };
        (!is_there).then(|| Box::new(replay))
    }

    /// Asks for the next message of the history.
    pub(super) fn ask(&self, caller: &mut Caller<'_, '_>) {
        let Target { group, queue, .. } = self.history;
        let consumer = caller.client.consumer_id(self.fetch);
        caller.ask(|ticket| Request::Get {
            ticket,
            group,
            queue,
            consumer,
            no_ack: false,
            at: None,
        });
    }

    /// A message of the history has come, `ready` being how many more there are. Whether another is to be asked for.
    pub(super) fn wants_more(&mut self, delivery: Option<Delivery>, ready: u64) -> bool {
        let Some(delivery) = delivery else { return false };
        self.bytes += delivery.bytes.len();
        self.fetched.push(delivery);
        ready > 0 && self.bytes < limits::HISTORY_BYTES_MAX
    }

    /// Gives back what was fetched, and stores it where it goes.
    pub(super) fn copy(&self, caller: &mut Caller<'_, '_>, chance: &mut Chance) {
        for delivery in &self.fetched {
            let Delivery { group, queue, first_seq, count, .. } = *delivery;
            let source = Source { group, queue, consumer: self.fetch };
            caller.requests.hand_back(source, first_seq, count);
            copy(caller, chance, &self.destination, delivery);
        }
    }
}

/// Stores a message of the history where the destination of the binding has it.
fn copy(
    caller: &mut Caller<'_, '_>,
    chance: &mut Chance,
    destination: &Destination,
    delivery: &Delivery,
) {
    let (catalog, vhost) = (caller.catalog(), &caller.client.vhost);
    for (head, body) in Messages::of(delivery.store, &delivery.bytes) {
        let Some((address, raw)) = split_head(head) else { continue };
        let properties = Properties::decode(raw).unwrap_or_default();
        let (_, key) = destination_texts(address);
        let mut targets = Vec::new();
        match destination {
            Destination::Queue(name) => {
                targets.extend(catalog.queue(vhost, name).map(machine::Queue::target));
            }
            Destination::Exchange(name) => {
                let observed = Observed::new(properties, chance.draw(), caller.client.node);
                // An exchange that is gone again takes nothing.
                _ = catalog.route_keys(
                    PublishedBy::Broker,
                    vhost,
                    name,
                    &[key],
                    &observed,
                    &mut targets,
                );
            }
        }
        partitions::place(catalog, &mut targets, key, raw, chance.draw() as usize);
        let asked = Asked {
            ttl_ms: attributes::ttl_ms(&properties).unwrap_or_default(),
            priority: properties.priority.unwrap_or(0),
            key: attributes::key(&properties),
            ..Asked::default()
        };
        let out = &mut caller.step.out.requests;
        caller.requests.put(out, &Route::of(&targets), &asked, &[head], body, None);
    }
}
