//! Bindings of queues and exchanges: made and taken back.

use amqp::{Method, exchange, queue};
use machine::{BindingChange, CatalogCommand, Destination};

use super::history::Replay;
use super::{Next, Pending, Topology, change, without_line_ends};
use crate::arguments::binding::Binding;
use crate::auth::Verb;
use crate::channel::caller::Caller;
use crate::connection::consumers::Consumers;
use crate::errors::{Failure, default_exchange};
use crate::values::arguments;

impl Topology {
    pub(crate) fn bind_queue(
        &self,
        caller: &mut Caller<'_, '_>,
        consumers: &mut Consumers,
        bind: &queue::Bind<'_>,
    ) -> Next {
        let queue = self.queue_name(&without_line_ends(bind.queue))?;
        let exchange = &*without_line_ends(bind.exchange);
        let key = match (bind.queue, bind.routing_key) {
            ("", "") => queue.clone(),
            (_, key) => key.to_owned(),
        };
        caller.allow(Verb::BindQueue { queue: &queue, exchange, key: &key })?;
        let binding = Binding {
            vhost: caller.client.vhost.clone(),
            source: exchange.to_owned(),
            destination: Destination::Queue(queue),
            key,
            arguments: arguments(bind.arguments),
            by: caller.client.owner(),
        };
        let reply = (!bind.no_wait).then_some(Method::QueueBindOk(queue::BindOk));
        self::bind(caller, consumers, binding, reply)
    }

    pub(crate) fn unbind_queue(
        &self,
        caller: &mut Caller<'_, '_>,
        unbind: &queue::Unbind<'_>,
    ) -> Next {
        let queue = self.queue_name(&without_line_ends(unbind.queue))?;
        let exchange = &*without_line_ends(unbind.exchange);
        let key = match (unbind.queue, unbind.routing_key) {
            ("", "") => queue.clone(),
            (_, key) => key.to_owned(),
        };
        caller.allow(Verb::BindQueue { queue: &queue, exchange, key: &key })?;
        let command = CatalogCommand::Unbind(BindingChange {
            vhost: caller.client.vhost.clone(),
            source: exchange.to_owned(),
            destination: Destination::Queue(queue),
            key,
            arguments: arguments(unbind.arguments),
            by: Some(caller.client.owner()),
        });
        let reply = Some(Method::QueueUnbindOk(queue::UnbindOk));
        change(caller, command, Pending::Change { reply })
    }
}

pub(crate) fn bind_exchange(
    caller: &mut Caller<'_, '_>,
    consumers: &mut Consumers,
    bind: &exchange::Bind<'_>,
) -> Next {
    let destination = &*without_line_ends(bind.destination);
    let source = &*without_line_ends(bind.source);
    allow_exchange_binding(caller, destination, source, bind.routing_key)?;
    let binding = Binding {
        vhost: caller.client.vhost.clone(),
        source: source.to_owned(),
        destination: Destination::Exchange(destination.to_owned()),
        key: bind.routing_key.to_owned(),
        arguments: arguments(bind.arguments),
        by: caller.client.owner(),
    };
    let reply = Method::ExchangeBindOk(exchange::BindOk);
    self::bind(caller, consumers, binding, (!bind.no_wait).then_some(reply))
}

pub(crate) fn unbind_exchange(caller: &mut Caller<'_, '_>, unbind: &exchange::Unbind<'_>) -> Next {
    let destination = &*without_line_ends(unbind.destination);
    let source = &*without_line_ends(unbind.source);
    allow_exchange_binding(caller, destination, source, unbind.routing_key)?;
    let command = CatalogCommand::Unbind(BindingChange {
        vhost: caller.client.vhost.clone(),
        source: source.to_owned(),
        destination: Destination::Exchange(destination.to_owned()),
        key: unbind.routing_key.to_owned(),
        arguments: arguments(unbind.arguments),
        by: Some(caller.client.owner()),
    });
    let reply = Method::ExchangeUnbindOk(exchange::UnbindOk);
    let reply = (!unbind.no_wait).then_some(reply);
    change(caller, command, Pending::Change { reply })
}

fn allow_exchange_binding(
    caller: &Caller<'_, '_>,
    destination: &str,
    source: &str,
    key: &str,
) -> Result<(), Failure> {
    if destination.is_empty() || source.is_empty() {
        return Err(default_exchange());
    }
    caller.allow(Verb::BindExchange { destination, source, key })
}

fn bind(
    caller: &mut Caller<'_, '_>,
    consumers: &mut Consumers,
    binding: Binding,
    reply: Option<Method<'static>>,
) -> Next {
    binding.judge(caller.catalog())?;
    let pending = match Replay::of(caller, consumers, &binding) {
        Some(replay) => Pending::Bind { replay, reply },
        None => Pending::Change { reply },
    };
    let command = binding.into_command(caller.catalog().agreed());
    change(caller, command, pending)
}
