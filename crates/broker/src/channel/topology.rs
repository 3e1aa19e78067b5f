//! Exchanges, queues and bindings: declared, bound, purged and deleted.
//!
//! What the catalog would refuse is refused here by this node's copy of it; what it would not change is answered
//! at once; only changes go through the log. The catalog checks again when it applies.

use std::borrow::Cow;

use amqp::{Method, ReplyCode, TableRef, ValueRef, exchange, queue};
use cluster::{Answer, Request};
use machine::{
    CatalogCommand, CatalogReply, CloseError, Destination, ExchangeKind, GroupId, Queue, QueueId,
};

use crate::auth::{self, Verb};
use crate::channel::direct_reply_to::REPLY_TO;
use crate::channel::history::Replay;
use crate::channel::{Channel, Doing};
use crate::connection::{Trunk, Turn};
use crate::errors::{
    Failure, default_exchange, locked, low_on_memory, no_exchange, no_previous_queue, no_queue,
    not_done, queue_in_use, queue_not_empty,
};
use crate::refusals;
use crate::values::arguments;

/// A queue that this session may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) id: QueueId,
    pub(crate) group: GroupId,
}

/// What is new takes memory for good, on every node: not while there is too little here.
fn check_memory(turn: &Turn<'_>, command: &CatalogCommand) -> Result<(), Failure> {
    if !turn.view.alarms.memory || !command.adds() || turn.view.catalog.is_bound(command) {
        return Ok(());
    }
    Err(low_on_memory())
}

/// As RabbitMQ does: what some programs read from a line has its end with it.
fn without_line_ends(name: &str) -> Cow<'_, str> {
    match name.contains(['\r', '\n']) {
        true => Cow::Owned(name.replace(['\r', '\n'], "")),
        false => Cow::Borrowed(name),
    }
}

impl Channel {
    /// The name a client gave, or the channel's last declared queue for none.
    pub(crate) fn queue_name(&self, name: &str) -> Result<String, Failure> {
        match name {
            "" if self.last_queue.is_empty() => Err(no_previous_queue()),
            "" => Ok(self.last_queue.clone()),
            name => Ok(name.to_owned()),
        }
    }

    /// Refuses a queue that is missing or another session's.
    pub(crate) fn usable_queue<'v>(
        &self,
        trunk: &Trunk,
        turn: &Turn<'v>,
        name: &str,
    ) -> Result<&'v Queue, Failure> {
        let Some(queue) = turn.view.catalog.queue(&trunk.vhost, name) else {
            return Err(no_queue(name, &trunk.vhost));
        };
        if queue.exclusive.is_some_and(|owner| owner != trunk.owner()) {
            return Err(locked(name, &trunk.vhost));
        }
        Ok(queue)
    }

    /// The same, as far as it is stored and routed to.
    pub(crate) fn find_queue(
        &self,
        trunk: &Trunk,
        turn: &Turn<'_>,
        name: &str,
    ) -> Result<Found, Failure> {
        let Queue { id, group, .. } = *self.usable_queue(trunk, turn, name)?;
        Ok(Found { id, group })
    }

    /// Puts a change to the catalog, if this node's copy would not refuse it.
    fn change(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        command: CatalogCommand,
        doing: Doing,
    ) -> Result<(), Failure> {
        turn.view.catalog.check(&command).map_err(|refusal| refusals::failure(&refusal))?;
        check_memory(turn, &command)?;
        trunk.ask(turn, self.at, |ticket| Request::Catalog { ticket, command });
        self.doing = Some(doing);
        Ok(())
    }

    fn bind(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        command: CatalogCommand,
        reply: Option<Method<'static>>,
    ) -> Result<(), Failure> {
        let doing = match Replay::of(trunk, turn, &command) {
            Some(replay) => Doing::Bind { replay, reply },
            None => Doing::Change { reply },
        };
        self.change(trunk, turn, command, doing)
    }

    pub(crate) fn declare_exchange(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        declare: &exchange::Declare<'_>,
    ) -> Result<(), Failure> {
        let name = &*without_line_ends(declare.exchange);
        if name.is_empty() {
            return Err(default_exchange());
        }
        let answer = Method::ExchangeDeclareOk(exchange::DeclareOk);
        let reply = (!declare.no_wait).then_some(answer);
        let catalog = turn.view.catalog;
        let exists = catalog.exchange(&trunk.vhost, name).is_some();
        if declare.passive {
            if !exists {
                return Err(no_exchange(name, &trunk.vhost));
            }
            self.tell(trunk, turn, reply);
            return Ok(());
        }
        let Some(kind) = ExchangeKind::parse(declare.kind) else {
            let text = format!("unknown exchange type '{}'", declare.kind);
            return Err(Failure::connection(ReplyCode::CommandInvalid, text));
        };
        let alternate = text_argument(declare.arguments, "alternate-exchange");
        let verb = Verb::DeclareExchange { exchange: name, alternate };
        auth::allow(catalog, &trunk.user, &trunk.vhost, verb)?;
        let command = CatalogCommand::DeclareExchange {
            vhost: trunk.vhost.clone(),
            name: name.to_owned(),
            kind,
            durable: declare.durable,
            auto_delete: declare.auto_delete,
            internal: declare.internal,
            arguments: arguments(declare.arguments),
            by: trunk.owner(),
        };
        if exists {
            catalog.check(&command).map_err(|refusal| refusals::failure(&refusal))?;
            self.tell(trunk, turn, reply);
            return Ok(());
        }
        self.change(trunk, turn, command, Doing::Change { reply })
    }

    pub(crate) fn delete_exchange(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        delete: &exchange::Delete<'_>,
    ) -> Result<(), Failure> {
        let name = &*without_line_ends(delete.exchange);
        if name.is_empty() {
            return Err(default_exchange());
        }
        let verb = Verb::DeleteExchange { exchange: name };
        auth::allow(turn.view.catalog, &trunk.user, &trunk.vhost, verb)?;
        let reply = Method::ExchangeDeleteOk(exchange::DeleteOk);
        let command = CatalogCommand::DeleteExchange {
            vhost: trunk.vhost.clone(),
            name: name.to_owned(),
            if_unused: delete.if_unused,
        };
        let reply = (!delete.no_wait).then_some(reply);
        self.change(trunk, turn, command, Doing::Change { reply })
    }

    pub(crate) fn bind_exchange(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        bind: &exchange::Bind<'_>,
    ) -> Result<(), Failure> {
        let destination = &*without_line_ends(bind.destination);
        let source = &*without_line_ends(bind.source);
        self.allow_exchange_binding(trunk, turn, destination, source)?;
        let command = CatalogCommand::Bind {
            vhost: trunk.vhost.clone(),
            source: source.to_owned(),
            destination: Destination::Exchange(destination.to_owned()),
            key: bind.routing_key.to_owned(),
            arguments: arguments(bind.arguments),
            by: Some(trunk.owner()),
        };
        let reply = Method::ExchangeBindOk(exchange::BindOk);
        self.bind(trunk, turn, command, (!bind.no_wait).then_some(reply))
    }

    pub(crate) fn unbind_exchange(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        unbind: &exchange::Unbind<'_>,
    ) -> Result<(), Failure> {
        let destination = &*without_line_ends(unbind.destination);
        let source = &*without_line_ends(unbind.source);
        self.allow_exchange_binding(trunk, turn, destination, source)?;
        let command = CatalogCommand::Unbind {
            vhost: trunk.vhost.clone(),
            source: source.to_owned(),
            destination: Destination::Exchange(destination.to_owned()),
            key: unbind.routing_key.to_owned(),
            arguments: arguments(unbind.arguments),
            by: Some(trunk.owner()),
        };
        let reply = Method::ExchangeUnbindOk(exchange::UnbindOk);
        let reply = (!unbind.no_wait).then_some(reply);
        self.change(trunk, turn, command, Doing::Change { reply })
    }

    fn allow_exchange_binding(
        &self,
        trunk: &Trunk,
        turn: &Turn<'_>,
        destination: &str,
        source: &str,
    ) -> Result<(), Failure> {
        if destination.is_empty() || source.is_empty() {
            return Err(default_exchange());
        }
        let verb = Verb::BindExchange { destination, source };
        auth::allow(turn.view.catalog, &trunk.user, &trunk.vhost, verb)
    }

    pub(crate) fn declare_queue(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        declare: &queue::Declare<'_>,
    ) -> Result<(), Failure> {
        let asked = &*without_line_ends(declare.queue);
        if asked.starts_with(REPLY_TO) {
            return self.declare_reply_address(trunk, turn, declare);
        }
        let catalog = turn.view.catalog;
        if declare.passive {
            // Unlike everywhere else, no name is not the last queue here: so does RabbitMQ.
            let name = asked.to_owned();
            let found = self.find_queue(trunk, turn, &name)?;
            self.ask_status(trunk, turn, found, name, declare.no_wait);
            return Ok(());
        }
        let server_named = asked.is_empty();
        let name = match asked {
            "" => trunk.names.draw("amq.gen-"),
            name => name.to_owned(),
        };
        let dead_letter = text_argument(declare.arguments, "x-dead-letter-exchange");
        let verb = Verb::DeclareQueue { queue: &name, dead_letter };
        auth::allow(catalog, &trunk.user, &trunk.vhost, verb)?;
        let exists = catalog.queue(&trunk.vhost, &name).is_some();
        let command = CatalogCommand::DeclareQueue {
            vhost: trunk.vhost.clone(),
            name: name.clone(),
            durable: declare.durable,
            auto_delete: declare.auto_delete,
            exclusive: declare.exclusive,
            // Who names an existing one of ours finds it.
            server_named: server_named || exists,
            arguments: arguments(declare.arguments),
            by: trunk.owner(),
        };
        let no_wait = declare.no_wait;
        if exists {
            catalog.check(&command).map_err(|refusal| refusals::failure(&refusal))?;
            let found = self.find_queue(trunk, turn, &name)?;
            self.ask_status(trunk, turn, found, name, no_wait);
            return Ok(());
        }
        self.change(trunk, turn, command, Doing::DeclareQueue { queue: name, no_wait })
    }

    /// Whether a requester is still there: a reply address is declared to find out.
    fn declare_reply_address(
        &mut self,
        trunk: &Trunk,
        turn: &mut Turn<'_>,
        declare: &queue::Declare<'_>,
    ) -> Result<(), Failure> {
        let name = declare.queue;
        if name != REPLY_TO && !turn.view.replies.is_open(name) {
            return Err(no_queue(name, &trunk.vhost));
        }
        if !declare.no_wait {
            let answer = queue::DeclareOk { queue: name, message_count: 0, consumer_count: 1 };
            trunk.send(turn, self.at.number, &Method::QueueDeclareOk(answer));
        }
        Ok(())
    }

    fn ask_status(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        found: Found,
        queue: String,
        no_wait: bool,
    ) {
        let Found { id, group } = found;
        self.last_queue.clone_from(&queue);
        if no_wait {
            return;
        }
        trunk.ask_after_appends(turn, self.at, group, |ticket| Request::Status {
            ticket,
            group,
            queue: id,
        });
        self.doing = Some(Doing::Status { queue, no_wait });
    }

    pub(crate) fn bind_queue(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        bind: &queue::Bind<'_>,
    ) -> Result<(), Failure> {
        let queue = self.queue_name(&without_line_ends(bind.queue))?;
        let exchange = &*without_line_ends(bind.exchange);
        let key = match (bind.queue, bind.routing_key) {
            ("", "") => queue.clone(),
            (_, key) => key.to_owned(),
        };
        let verb = Verb::BindQueue { queue: &queue, exchange };
        auth::allow(turn.view.catalog, &trunk.user, &trunk.vhost, verb)?;
        let command = CatalogCommand::Bind {
            vhost: trunk.vhost.clone(),
            source: exchange.to_owned(),
            destination: Destination::Queue(queue),
            key,
            arguments: arguments(bind.arguments),
            by: Some(trunk.owner()),
        };
        let reply = (!bind.no_wait).then_some(Method::QueueBindOk(queue::BindOk));
        self.bind(trunk, turn, command, reply)
    }

    pub(crate) fn unbind_queue(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        unbind: &queue::Unbind<'_>,
    ) -> Result<(), Failure> {
        let queue = self.queue_name(&without_line_ends(unbind.queue))?;
        let exchange = &*without_line_ends(unbind.exchange);
        let key = match (unbind.queue, unbind.routing_key) {
            ("", "") => queue.clone(),
            (_, key) => key.to_owned(),
        };
        let verb = Verb::BindQueue { queue: &queue, exchange };
        auth::allow(turn.view.catalog, &trunk.user, &trunk.vhost, verb)?;
        let command = CatalogCommand::Unbind {
            vhost: trunk.vhost.clone(),
            source: exchange.to_owned(),
            destination: Destination::Queue(queue),
            key,
            arguments: arguments(unbind.arguments),
            by: Some(trunk.owner()),
        };
        let reply = Some(Method::QueueUnbindOk(queue::UnbindOk));
        self.change(trunk, turn, command, Doing::Change { reply })
    }

    pub(crate) fn purge_queue(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        purge: &queue::Purge<'_>,
    ) -> Result<(), Failure> {
        let queue = self.queue_name(purge.queue)?;
        let verb = Verb::Read { queue: &queue };
        auth::allow(turn.view.catalog, &trunk.user, &trunk.vhost, verb)?;
        let Found { id, group } = self.find_queue(trunk, turn, &queue)?;
        trunk.ask_after_appends(turn, self.at, group, |ticket| Request::Purge {
            ticket,
            group,
            queue: id,
        });
        self.doing = Some(Doing::Purge { no_wait: purge.no_wait });
        Ok(())
    }

    pub(crate) fn delete_queue(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        delete: &queue::Delete<'_>,
    ) -> Result<(), Failure> {
        let queue = self.queue_name(&without_line_ends(delete.queue))?;
        let verb = Verb::DeleteQueue { queue: &queue };
        auth::allow(turn.view.catalog, &trunk.user, &trunk.vhost, verb)?;
        let no_wait = delete.no_wait;
        if turn.view.catalog.queue(&trunk.vhost, &queue).is_none() {
            let answer = Method::QueueDeleteOk(queue::DeleteOk { message_count: 0 });
            self.tell(trunk, turn, (!no_wait).then_some(answer));
            return Ok(());
        }
        let Found { id, group } = self.find_queue(trunk, turn, &queue)?;
        let (if_unused, if_empty) = (delete.if_unused, delete.if_empty);
        trunk.ask_after_appends(turn, self.at, group, |ticket| Request::CloseQueue {
            ticket,
            group,
            queue: id,
            if_unused,
            if_empty,
        });
        self.doing = Some(Doing::CloseQueue { queue, id, no_wait });
        Ok(())
    }

    /// The next step of what this file began.
    pub(crate) fn topology_answered(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        doing: Doing,
        answer: Answer,
    ) -> Result<(), Failure> {
        if let Answer::Catalog { reply: CatalogReply::Refused(refusal), .. } = &answer {
            return Err(refusals::failure(refusal));
        }
        match (doing, answer) {
            (Doing::Change { reply }, Answer::Catalog { .. } | Answer::Status { .. }) => {
                self.tell(trunk, turn, reply);
            }
            (Doing::Bind { replay, reply }, Answer::Catalog { .. }) => {
                self.fetch_history(trunk, turn, replay, reply);
            }
            (
                Doing::DeclareQueue { queue, no_wait },
                Answer::Catalog {
                    reply: CatalogReply::QueueDeclared { queue: id, group, created },
                    ..
                },
            ) => {
                self.last_queue.clone_from(&queue);
                if created {
                    self.tell_declared(trunk, turn, &queue, 0, 0, no_wait);
                } else {
                    self.ask_status(trunk, turn, Found { id, group }, queue, no_wait);
                }
            }
            (Doing::Status { queue, no_wait }, Answer::Status { status, .. }) => {
                let (ready, consumers) =
                    status.map_or((0, 0), |status| (status.ready, status.consumers));
                self.tell_declared(trunk, turn, &queue, ready, consumers, no_wait);
            }
            (Doing::Purge { no_wait }, Answer::Purged { count, .. }) => {
                let answer = queue::PurgeOk { message_count: saturated(count) };
                self.tell(trunk, turn, (!no_wait).then_some(Method::QueuePurgeOk(answer)));
            }
            (Doing::CloseQueue { queue, id, no_wait }, Answer::Closed { result, .. }) => {
                let count = match result {
                    Ok(count) => count,
                    Err(CloseError::NoQueue) => 0,
                    Err(CloseError::InUse) => return Err(queue_in_use(&queue, &trunk.vhost)),
                    Err(CloseError::NotEmpty) => return Err(queue_not_empty(&queue, &trunk.vhost)),
                };
                let command = CatalogCommand::DeleteQueue {
                    vhost: trunk.vhost.clone(),
                    name: queue,
                    queue: Some(id),
                    by: Some(trunk.owner()),
                };
                trunk.ask(turn, self.at, |ticket| Request::Catalog { ticket, command });
                self.doing = Some(Doing::DeleteQueue { count, no_wait });
            }
            (Doing::DeleteQueue { count, no_wait }, Answer::Catalog { .. }) => {
                let answer = queue::DeleteOk { message_count: saturated(count) };
                self.tell(trunk, turn, (!no_wait).then_some(Method::QueueDeleteOk(answer)));
            }
            (_, _) => return Err(not_done("the change")),
        }
        Ok(())
    }

    fn tell(&self, trunk: &Trunk, turn: &mut Turn<'_>, answer: Option<Method<'static>>) {
        if let Some(answer) = answer {
            trunk.send(turn, self.at.number, &answer);
        }
    }

    fn tell_declared(
        &self,
        trunk: &Trunk,
        turn: &mut Turn<'_>,
        queue: &str,
        ready: u64,
        consumers: u32,
        no_wait: bool,
    ) {
        if !no_wait {
            let answer = queue::DeclareOk {
                queue,
                message_count: saturated(ready),
                consumer_count: consumers,
            };
            trunk.send(turn, self.at.number, &Method::QueueDeclareOk(answer));
        }
    }
}

/// A count as the wire has it.
fn saturated(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn text_argument<'a>(table: TableRef<'a>, name: &str) -> Option<&'a str> {
    match table.find(name)? {
        ValueRef::LongStr(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}
