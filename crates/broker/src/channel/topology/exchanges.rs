//! Exchanges: declared and deleted.

use amqp::{Method, ReplyCode, exchange};
use machine::{CatalogCommand, CatalogReply, ExchangeKind};

use super::{Next, Pending, change, tell, text_argument, without_line_ends};
use crate::arguments::exchange::Declaration;
use crate::auth::Verb;
use crate::channel::caller::Caller;
use crate::errors::{Failure, default_exchange, no_exchange, not_done};
use crate::values::arguments;

pub(crate) fn declare_exchange(
    caller: &mut Caller<'_, '_>,
    declare: &exchange::Declare<'_>,
) -> Next {
    let name = &*without_line_ends(declare.exchange);
    if name.is_empty() {
        return Err(default_exchange());
    }
    let answer = Method::ExchangeDeclareOk(exchange::DeclareOk);
    let reply = (!declare.no_wait).then_some(answer);
    let exists = caller.catalog().exchange(&caller.client.vhost, name).is_some();
    if declare.passive {
        if !exists {
            return Err(no_exchange(name, &caller.client.vhost));
        }
        tell(caller, reply);
        return Ok(None);
    }
    let Some(kind) = ExchangeKind::parse(declare.kind) else {
        let text = format!("unknown exchange type '{}'", declare.kind);
        return Err(Failure::connection(ReplyCode::CommandInvalid, text));
    };
    // As in RabbitMQ: only who makes the exchange has to be allowed what it leads to.
    let alternate = text_argument(declare.arguments, "alternate-exchange").filter(|_| !exists);
    caller.allow(Verb::DeclareExchange { exchange: name, alternate })?;
    let declaration = Declaration {
        vhost: caller.client.vhost.clone(),
        name: name.to_owned(),
        kind,
        durable: declare.durable,
        auto_delete: declare.auto_delete,
        internal: declare.internal,
        arguments: arguments(declare.arguments),
        by: caller.client.owner(),
    };
    declaration.judge(caller.catalog())?;
    if exists {
        tell(caller, reply);
        return Ok(None);
    }
    let command = declaration.clone().into_command(caller.catalog().agreed());
    let declaration = Box::new(declaration);
    change(caller, command, Pending::DeclareExchange { declaration, reply })
}

/// The catalog has the exchange, or had one of its name before.
pub(super) fn exchange_declared(
    caller: &mut Caller<'_, '_>,
    declaration: &Declaration,
    reply: Option<Method<'static>>,
    answer: &CatalogReply,
) -> Next {
    let CatalogReply::ExchangeDeclared { created } = *answer else {
        return Err(not_done("the change"));
    };
    let found = caller.catalog().exchange(&declaration.vhost, &declaration.name);
    if let Some(existing) = found.filter(|_| !created) {
        declaration.judge_again(existing)?;
    }
    tell(caller, reply);
    Ok(None)
}

pub(crate) fn delete_exchange(caller: &mut Caller<'_, '_>, delete: &exchange::Delete<'_>) -> Next {
    let name = &*without_line_ends(delete.exchange);
    if name.is_empty() {
        return Err(default_exchange());
    }
    caller.allow(Verb::DeleteExchange { exchange: name })?;
    let reply = Method::ExchangeDeleteOk(exchange::DeleteOk);
    let command = CatalogCommand::DeleteExchange {
        vhost: caller.client.vhost.clone(),
        name: name.to_owned(),
        if_unused: delete.if_unused,
    };
    let reply = (!delete.no_wait).then_some(reply);
    change(caller, command, Pending::Change { reply })
}
