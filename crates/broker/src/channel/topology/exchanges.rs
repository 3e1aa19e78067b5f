//! Exchanges: declared and deleted.

use amqp::{Method, ReplyCode, exchange};
use machine::{CatalogCommand, ExchangeKind};

use super::{Next, Pending, change, check_equivalent, tell, text_argument, without_line_ends};
use crate::arguments::exchange::Declaration;
use crate::auth::Verb;
use crate::channel::caller::Caller;
use crate::errors::{Failure, default_exchange, no_exchange};
use crate::refusals;
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
    let alternate = text_argument(declare.arguments, "alternate-exchange");
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
    refusals::told(declaration.judge(caller.catalog()))?;
    let command = declaration.into_command();
    if exists {
        check_equivalent(caller, &command)?;
        tell(caller, reply);
        return Ok(None);
    }
    change(caller, command, Pending::Change { reply })
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
