//! What users may publish to topic exchanges, and bind to them, by routing keys.

use machine::{CatalogCommand, User};
use serde_json::{Value, json};

use super::permissions::user;
use crate::asked::{Asked, Body};
use crate::node::View;
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::work::Work;

pub(super) fn list(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let items = view.catalog.users().flat_map(of).collect();
    Ok(Work::list(&Shape::of(asked)?, items))
}

pub(super) fn of_user(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = view.catalog.user(asked.part("user")).ok_or(Problem::NotFound)?;
    Ok(Work::list(&Shape::of(asked)?, of(user).collect()))
}

pub(super) fn of_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    let users = view.catalog.users();
    let items = users.flat_map(|user| in_vhost(user, asked.vhost())).collect();
    Ok(Work::list(&Shape::of(asked)?, items))
}

/// Of a user in a vhost.
pub(super) fn one(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let items: Vec<Value> = in_vhost(user(view, asked)?, asked.vhost()).collect();
    match items.is_empty() {
        true => Err(Problem::NotFound),
        false => Ok(Work::list(&Shape::of(asked)?, items)),
    }
}

/// All of a user.
pub(super) fn of(user: &User) -> impl Iterator<Item = Value> {
    user.all_topic_permissions().map(|(vhost, exchange, permissions)| {
        json!({
            "user": user.name,
            "vhost": vhost,
            "exchange": exchange,
            "write": permissions.write.text(),
            "read": permissions.read.text(),
        })
    })
}

fn in_vhost<'a>(user: &'a User, vhost: &'a str) -> impl Iterator<Item = Value> + 'a {
    of(user).filter(move |it| it["vhost"] == vhost)
}

pub(super) fn put(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = user(view, asked)?;
    let body = asked.object()?;
    let is_there = user.topic_permissions(asked.vhost(), body.needed_short("exchange")?).is_some();
    let command = set(&user.name, asked.vhost(), &body)?;
    Ok(Work::Change { commands: vec![command], reply: Reply::put(is_there) })
}

/// What a body says.
pub(super) fn set(user: &str, vhost: &str, body: &Body) -> Result<CatalogCommand, Problem> {
    Ok(CatalogCommand::SetTopicPermissions {
        user: user.to_owned(),
        vhost: vhost.to_owned(),
        exchange: body.needed_short("exchange")?.to_owned(),
        write: body.needed("write")?.to_owned(),
        read: body.needed("read")?.to_owned(),
    })
}

/// Of one exchange.
pub(super) fn delete_one(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let (user, exchange) = (user(view, asked)?, asked.part("exchange"));
    let (user, vhost) = (&user.name, asked.vhost());
    let known = view.catalog.user(user).and_then(|it| it.topic_permissions(vhost, exchange));
    known.ok_or(Problem::NotFound)?;
    let (user, vhost) = (user.clone(), vhost.to_owned());
    let exchange = Some(exchange.to_owned());
    let command = CatalogCommand::ClearTopicPermissions { user, vhost, exchange };
    Ok(Work::Change { commands: vec![command], reply: Reply::done() })
}

/// Of all exchanges of the vhost, as in RabbitMQ.
pub(super) fn delete(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = user(view, asked)?;
    if in_vhost(user, asked.vhost()).next().is_none() {
        return Err(Problem::NotFound);
    }
    let (user, vhost) = (user.name.clone(), asked.vhost().to_owned());
    let command = CatalogCommand::ClearTopicPermissions { user, vhost, exchange: None };
    Ok(Work::Change { commands: vec![command], reply: Reply::done() })
}
