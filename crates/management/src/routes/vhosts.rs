//! Virtual hosts.

use machine::{CatalogCommand, QueueType, Vhost, VhostMetadata};
use serde_json::{Map, Value};

use crate::access;
use crate::asked::{Asked, Body};
use crate::node::{View, name_of};
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::work::Work;

/// The one that every broker begins with.
const DEFAULT: &str = "/";
/// What is said of it, as in RabbitMQ, if operators say nothing else.
const DEFAULT_DESCRIPTION: &str = "Default virtual host";

pub(super) fn list(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = asked.who(view.catalog)?;
    let seen = view.catalog.vhosts().filter(|vhost| access::sees(user, vhost.name()));
    let items = seen.map(|vhost| stated(view, vhost)).collect();
    Ok(Work::list(&Shape::of(asked)?, items))
}

pub(super) fn one(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let vhost = view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    Ok(Work::answer(Shape::of(asked)?.columns_of(stated(view, vhost))))
}

/// As it is shown: a vhost runs on all nodes.
fn stated(view: &View<'_>, vhost: &Vhost) -> Value {
    let mut shown = shown(vhost);
    let nodes = view.catalog.nodes().map(|node| (name_of(node.node), Value::from("running")));
    shown["cluster_state"] = nodes.collect::<Map<_, _>>().into();
    shown
}

/// How a vhost is written into definitions.
pub(super) fn shown(vhost: &Vhost) -> Value {
    let metadata = metadata(vhost);
    let queue_type = vhost.metadata.default_queue_type.unwrap_or(QueueType::Classic).name();
    let mut fields = Map::new();
    fields.insert("name".to_owned(), vhost.name().into());
    fields.extend(metadata.clone());
    fields.insert("default_queue_type".to_owned(), queue_type.into());
    fields.insert("metadata".to_owned(), metadata.into());
    fields.insert("tracing".to_owned(), vhost.metadata.is_traced.into());
    fields.into()
}

/// What operators said of it, as RabbitMQ has it.
fn metadata(vhost: &Vhost) -> Map<String, Value> {
    let VhostMetadata { description, tags, default_queue_type, is_traced: _ } = &vhost.metadata;
    let is_untold = vhost.name() == DEFAULT && description.is_empty();
    let description = if is_untold { DEFAULT_DESCRIPTION } else { description };
    let mut fields = Map::from_iter([
        ("description".to_owned(), description.into()),
        ("tags".to_owned(), tags.clone().into()),
    ]);
    if let Some(queue_type) = default_queue_type {
        fields.insert("default_queue_type".to_owned(), queue_type.name().into());
    }
    fields
}

pub(super) fn put(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let name = asked.vhost().to_owned();
    let known = view.catalog.vhost(&name);
    let reply = Reply::put(known.is_some());
    let mut commands = Vec::new();
    if known.is_none() {
        commands.push(CatalogCommand::CreateVhost { name: name.clone() });
        // As in RabbitMQ: whoever makes a vhost may use it. What a token allows stands in the token.
        if asked.grant.is_none() {
            commands.push(super::permissions::all(&asked.user, &name));
        }
    }
    let before = known.map(|vhost| vhost.metadata.clone()).unwrap_or_default();
    commands.extend(set(&name, before, &asked.object()?)?);
    Ok(Work::Change { commands, reply })
}

/// What a body says of a vhost, which is `before` so far; what it does not name stays.
pub(super) fn set(
    name: &str,
    before: VhostMetadata,
    body: &Body,
) -> Result<Vec<CatalogCommand>, Problem> {
    let inner = Body(body.object("metadata")?);
    let text = |name: &str| -> Result<Option<&str>, Problem> {
        Ok(body.text(name)?.or(inner.text(name)?))
    };
    let mut metadata = before.clone();
    metadata.is_traced = body.flag("tracing", before.is_traced)?;
    if let Some(description) = text("description")? {
        // What is shown where nothing was said is nothing, when it comes back.
        let is_shown = name == DEFAULT && description == DEFAULT_DESCRIPTION;
        metadata.description = if is_shown { String::new() } else { description.to_owned() };
    }
    if let Some(from) = [body, &inner].into_iter().find(|it| it.find("tags").is_some()) {
        metadata.tags = super::users::tags(from)?;
    }
    if let Some(word) = text("default_queue_type")?.or(text("defaultqueuetype")?) {
        metadata.default_queue_type = queue_type(word)?;
    }
    let mut commands = Vec::new();
    if metadata != before {
        commands.push(CatalogCommand::SetVhostMetadata { vhost: name.to_owned(), metadata });
    }
    if let Some(limits) = super::limits::said(body)? {
        let change = super::limits::vhosts(&limits)?;
        commands.push(CatalogCommand::SetVhostLimits { vhost: name.to_owned(), change });
    }
    Ok(commands)
}

fn queue_type(word: &str) -> Result<Option<QueueType>, Problem> {
    match word {
        "" | "undefined" | "classic" => Ok(None),
        "quorum" => Ok(Some(QueueType::Quorum)),
        "stream" => Ok(Some(QueueType::Stream)),
        other => Err(Problem::Bad(format!(
            "'{other}' cannot be a default queue type: there are classic, quorum and stream"
        ))),
    }
}

pub(super) fn delete(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let name = asked.vhost().to_owned();
    if view.catalog.vhost(&name).is_none() {
        return Err(Problem::NotFound);
    }
    Ok(Work::DeleteVhost { name, groups: view.catalog.lock_groups().collect() })
}
