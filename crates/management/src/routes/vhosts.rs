//! Virtual hosts.

use machine::{CatalogCommand, Vhost};
use serde_json::{Value, json};

use crate::access;
use crate::asked::{Asked, Body};
use crate::node::View;
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::work::Work;

/// The one that every broker begins with.
const DEFAULT: &str = "/";

pub(super) fn list(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = asked.who(view.catalog)?;
    let seen = view.catalog.vhosts().filter(|vhost| access::sees(user, vhost.name()));
    let items = seen.map(shown).collect();
    Ok(Work::list(&Shape::of(asked)?, items))
}

pub(super) fn one(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let vhost = view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    Ok(Work::answer(Shape::of(asked)?.columns_of(shown(vhost))))
}

fn shown(vhost: &Vhost) -> Value {
    let is_default = vhost.name() == DEFAULT;
    let description = if is_default { "Default virtual host" } else { "" };
    json!({
        "name": vhost.name(),
        "description": description,
        "tags": [],
        "default_queue_type": "classic",
        "metadata": { "description": description, "tags": [], "default_queue_type": "classic" },
        "tracing": false,
    })
}

pub(super) fn put(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    check(&asked.object()?)?;
    let name = asked.vhost().to_owned();
    let reply = Reply::put(view.catalog.vhost(&name).is_some());
    let mut commands = Vec::new();
    if reply.status == http::StatusCode::CREATED {
        commands.push(CatalogCommand::CreateVhost { name: name.clone() });
        // As in RabbitMQ: whoever makes a vhost may use it. What a token allows stands in the token.
        if asked.grant.is_none() {
            commands.push(super::permissions::all(&asked.user, &name));
        }
    }
    Ok(Work::Change { commands, reply })
}

/// Refuses what a vhost cannot be here. A description and tags are taken and not kept: nothing depends on them.
pub(super) fn check(body: &Body) -> Result<(), Problem> {
    if body.flag("tracing", false)? {
        return Err(Problem::bad("tracing is not supported"));
    }
    let metadata = Body(body.object("metadata")?);
    let of = |name: &str| -> Result<Option<String>, Problem> {
        Ok(body.text(name)?.or(metadata.text(name)?).map(str::to_owned))
    };
    let kind = of("default_queue_type")?.or(of("defaultqueuetype")?);
    if let Some(kind) = kind.filter(|kind| !["classic", "undefined", ""].contains(&kind.as_str())) {
        let why = format!("a default queue type other than classic is not supported: '{kind}'");
        return Err(Problem::Bad(why));
    }
    no_limits(body)
}

/// Refuses limits, which nothing would obey.
pub(super) fn no_limits(body: &Body) -> Result<(), Problem> {
    let is_empty = match body.find("limits") {
        None => true,
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(_) => false,
    };
    match is_empty {
        true => Ok(()),
        false => Err(Problem::bad("limits of users and vhosts are not supported yet")),
    }
}

pub(super) fn delete(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let name = asked.vhost().to_owned();
    if view.catalog.vhost(&name).is_none() {
        return Err(Problem::NotFound);
    }
    let commands = vec![CatalogCommand::DeleteVhost { name }];
    Ok(Work::Change { commands, reply: Reply::done() })
}
