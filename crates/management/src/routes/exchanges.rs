//! Exchanges.

use client::ExchangeSpec;
use machine::Exchange;
use serde_json::{Value, json};

use crate::asked::Asked;
use crate::node::View;
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::work::{Step, Work};
use crate::{access, arguments};

/// What the default exchange is called in paths.
const DEFAULT: &str = "amq.default";

/// The name that a path means.
pub(super) fn name(asked: &Asked, part: &str) -> String {
    match asked.part(part) {
        DEFAULT => String::new(),
        name => name.to_owned(),
    }
}

pub(super) fn list(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = asked.who(view.catalog)?;
    let seen = view.catalog.vhosts().filter(|vhost| access::sees(user, vhost.name()));
    let items =
        seen.flat_map(|vhost| vhost.exchanges().map(|exchange| listed(vhost.name(), exchange)));
    Ok(Work::Exchanges { items: items.collect(), shape: Shape::of(asked)?, is_one: false })
}

pub(super) fn of_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let vhost = view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    let items = vhost.exchanges().map(|exchange| listed(vhost.name(), exchange)).collect();
    Ok(Work::Exchanges { items, shape: Shape::of(asked)?, is_one: false })
}

pub(super) fn one(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let found = view.catalog.exchange(asked.vhost(), &name(asked, "exchange"));
    let exchange = found.ok_or(Problem::NotFound)?;
    let items = vec![listed(asked.vhost(), exchange)];
    Ok(Work::Exchanges { items, shape: Shape::of(asked)?, is_one: true })
}

/// How an exchange is written into definitions.
pub(super) fn shown(vhost: &str, exchange: &Exchange) -> Value {
    json!({
        "name": exchange.name,
        "vhost": vhost,
        "type": exchange.kind().name(),
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": arguments::shown(&exchange.arguments),
    })
}

/// The same with the policy that counts.
fn listed(vhost: &str, exchange: &Exchange) -> Value {
    let mut shown = shown(vhost, exchange);
    if let (Some(governed), Value::Object(fields)) = (exchange.governed(), &mut shown) {
        fields.insert("policy".to_owned(), governed.policy.clone().into());
    }
    shown
}

pub(super) fn put(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let name = name(asked, "exchange");
    let reply = Reply::put(view.catalog.exchange(asked.vhost(), &name).is_some());
    let body = asked.object()?;
    let spec = ExchangeSpec {
        name,
        kind: body.needed_short("type")?.to_owned(),
        durable: body.flag("durable", true)?,
        auto_delete: body.flag("auto_delete", false)?,
        internal: body.flag("internal", false)?,
        arguments: arguments::table(&body.object("arguments")?)?,
    };
    let (vhost, step) = (asked.vhost().to_owned(), Step::DeclareExchange(spec));
    Ok(Work::Client { vhost, step, reply })
}

pub(super) fn delete(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let name = name(asked, "exchange");
    view.catalog.exchange(asked.vhost(), &name).ok_or(Problem::NotFound)?;
    let step = Step::DeleteExchange { name, if_unused: asked.says("if-unused") };
    Ok(Work::Client { vhost: asked.vhost().to_owned(), step, reply: Reply::done() })
}
