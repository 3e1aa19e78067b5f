//! What a command does to the catalog, as an event: RabbitMQ's names, and never a secret.

use super::super::command::CatalogCommand;
use super::super::limits::{LimitChange, UserLimitsChange, VhostLimitsChange};
use super::super::policies::PolicySpec;
use super::super::{BindingChange, Catalog, Destination};
use super::Event;
use crate::queue::StreamOffset;
use crate::value::{Arguments, Value};

/// What the command would do now. `None`: nothing that an operator, or a client, does to a thing.
pub(in crate::catalog) fn event(catalog: &Catalog, command: &CatalogCommand) -> Option<Event> {
    use CatalogCommand as C;
    Some(match command {
        C::CreateVhost { name } => Event::new("vhost.created", name, name),
        C::DeleteVhost { name } => Event::new("vhost.deleted", name, name),
        C::SetVhostMetadata { vhost, metadata } => {
            let details = Arguments::new()
                .with("description", text(&metadata.description))
                .with("tags", texts(&metadata.tags))
                .with("tracing", Value::Bool(metadata.is_traced));
            Event::new("vhost.updated", vhost, vhost).with(details)
        }
        C::SetVhostLimits { vhost, change } => vhost_limits(vhost, *change),
        C::PutUser { name, password_hash, tags } => user_event(catalog, name, password_hash, tags),
        C::DeleteUser { name } => Event::new("user.deleted", "", name),
        C::SetUserLimits { user, change } => user_limits(user, *change),
        C::SetPermissions { user, vhost, configure, write, read } => {
            let details = Arguments::new()
                .with("user", text(user))
                .with("configure", text(configure))
                .with("write", text(write))
                .with("read", text(read));
            Event::new("permission.created", vhost, user).with(details)
        }
        C::ClearPermissions { user, vhost } => Event::new("permission.deleted", vhost, user)
            .with(Arguments::new().with("user", text(user))),
        C::SetTopicPermissions { user, vhost, exchange, write, read } => {
            let details = Arguments::new()
                .with("user", text(user))
                .with("exchange", text(exchange))
                .with("write", text(write))
                .with("read", text(read));
            Event::new("topic.permission.created", vhost, user).with(details)
        }
        C::ClearTopicPermissions { user, vhost, exchange } => {
            let details = Arguments::new().with("user", text(user));
            let details = match exchange {
                Some(exchange) => details.with("exchange", text(exchange)),
                None => details,
            };
            Event::new("topic.permission.deleted", vhost, user).with(details)
        }
        C::PutPolicy { vhost, name, kind, spec } => {
            let details = policy(spec).with("operator", Value::Bool(kind.is_operator()));
            Event::new("policy.set", vhost, name).with(details)
        }
        C::DeletePolicy { vhost, name, kind } => {
            let details = Arguments::new().with("operator", Value::Bool(kind.is_operator()));
            Event::new("policy.cleared", vhost, name).with(details)
        }
        C::SetClusterName { name } => Event::new("parameter.set", "", "cluster_name")
            .with(Arguments::new().with("value", text(name))),
        C::CreateQueue { vhost, name, home, arguments, .. } => {
            queue(vhost, name, home.is_durable(), home.exclusive().is_some(), arguments)
        }
        C::DeclareQueue { vhost, name, durable, exclusive, arguments, .. } => {
            queue(vhost, name, *durable, *exclusive, arguments)
        }
        C::ChangeQueue { vhost, name, .. } => Event::new("queue.changed", vhost, name),
        C::DeleteQueue { vhost, name, .. } => Event::new("queue.deleted", vhost, name),
        C::PauseQueue { vhost, name, by: Some(_) } => Event::new("queue.paused", vhost, name),
        C::PauseQueue { vhost, name, by: None } => Event::new("queue.resumed", vhost, name),
        C::SeekQueue { vhost, name, to } => {
            let to = match to {
                StreamOffset::First => text("first"),
                StreamOffset::Last => text("last"),
                StreamOffset::Next => text("next"),
                StreamOffset::At(seq) => text(&format!("offset {}", seq.saturating_sub(1))),
                StreamOffset::Since(ms) => text(&format!("{ms} ms since 1970")),
                StreamOffset::Ago(ms) => text(&format!("{ms} ms ago")),
            };
            Event::new("queue.sought", vhost, name).with(Arguments::new().with("to", to))
        }
        C::CreateExchange { vhost, name, node, spec, auto_delete, internal, arguments } => {
            let flags = [node.is_none(), *auto_delete, *internal];
            exchange(vhost, name, spec.kind.name(), flags, arguments)
        }
        C::DeclareExchange {
            vhost,
            name,
            kind,
            durable,
            auto_delete,
            internal,
            arguments,
            by: _,
        } => {
            let flags = [*durable, *auto_delete, *internal];
            exchange(vhost, name, kind.name(), flags, arguments)
        }
        C::DeleteExchange { vhost, name, .. } => Event::new("exchange.deleted", vhost, name),
        C::Bind(change) | C::CreateBinding(change) => binding("binding.created", change),
        C::Unbind(change) => binding("binding.deleted", change),
        C::AddNode { node, address, .. } => Event::new("node.added", "", &node.0.to_string())
            .with(Arguments::new().with("address", text(address))),
        C::RemoveNode { node } => Event::new("node.removed", "", &node.0.to_string()),
        C::Administered { command, .. } => return inner_event(catalog, command),
        C::Note { event, .. } => (**event).clone(),
        C::SessionEnded { .. }
        | C::NodeStarted { .. }
        | C::NodeGone { .. }
        | C::SetVoters { .. }
        | C::RaiseVersion { .. }
        | C::SetWideGroups { .. }
        | C::Remark { .. } => return None,
    })
}

/// Nothing is administered inside what is administered: see `CatalogCommand::is_wrapped`.
fn inner_event(catalog: &Catalog, command: &CatalogCommand) -> Option<Event> {
    if command.is_wrapped() { None } else { event(catalog, command) }
}

fn user_event(catalog: &Catalog, name: &str, password_hash: &str, tags: &[String]) -> Event {
    let event = match catalog.user(name) {
        None => "user.created",
        Some(user) if user.password_hash == password_hash => "user.tags.set",
        Some(_) if password_hash.is_empty() => "user.password.cleared",
        Some(_) => "user.password.changed",
    };
    Event::new(event, "", name).with(Arguments::new().with("tags", texts(tags)))
}

fn text(text: &str) -> Value {
    Value::LongStr(text.as_bytes().to_vec())
}

fn texts(texts: &[String]) -> Value {
    Value::Array(texts.iter().map(|it| text(it)).collect())
}

fn policy(spec: &PolicySpec) -> Arguments {
    Arguments::new()
        .with("pattern", text(&spec.pattern))
        .with("apply-to", text(spec.applies_to.name()))
        .with("priority", Value::I32(spec.priority))
        .with("definition", Value::Table(spec.definition.clone()))
}

fn queue(vhost: &str, name: &str, durable: bool, exclusive: bool, arguments: &Arguments) -> Event {
    let details = Arguments::new()
        .with("durable", Value::Bool(durable))
        .with("exclusive", Value::Bool(exclusive))
        .with("arguments", Value::Table(arguments.clone()));
    Event::new("queue.created", vhost, name).with(details)
}

fn exchange(vhost: &str, name: &str, kind: &str, flags: [bool; 3], arguments: &Arguments) -> Event {
    let [durable, auto_delete, internal] = flags;
    let details = Arguments::new()
        .with("type", text(kind))
        .with("durable", Value::Bool(durable))
        .with("auto_delete", Value::Bool(auto_delete))
        .with("internal", Value::Bool(internal))
        .with("arguments", Value::Table(arguments.clone()));
    Event::new("exchange.created", vhost, name).with(details)
}

fn binding(name: &str, change: &BindingChange) -> Event {
    let BindingChange { vhost, source, destination, key, arguments, by: _ } = change;
    let kind = match destination {
        Destination::Queue(_) => "queue",
        Destination::Exchange(_) => "exchange",
    };
    let details = Arguments::new()
        .with("source_kind", text("exchange"))
        .with("source_name", text(source))
        .with("destination_kind", text(kind))
        .with("destination_name", text(destination.name()))
        .with("routing_key", text(key))
        .with("arguments", Value::Table(arguments.clone()));
    Event::new(name, vhost, source).with(details)
}

fn user_limits(user: &str, change: UserLimitsChange) -> Event {
    let UserLimitsChange { max_connections, max_channels } = change;
    let limits = [("max-connections", max_connections), ("max-channels", max_channels)];
    limit_event(["user.limits.set", "user.limits.cleared"], "", user, &limits)
}

fn vhost_limits(vhost: &str, change: VhostLimitsChange) -> Event {
    let VhostLimitsChange { max_connections, max_queues } = change;
    let limits = [("max-connections", max_connections), ("max-queues", max_queues)];
    limit_event(["vhost.limits.set", "vhost.limits.cleared"], vhost, vhost, &limits)
}

/// A limit that goes has no value any more.
fn limit_event(
    [set, cleared]: [&str; 2],
    vhost: &str,
    object: &str,
    limits: &[(&str, LimitChange)],
) -> Event {
    let mut details = Arguments::new();
    let mut is_set = false;
    for (name, change) in limits {
        match change {
            LimitChange::Stays => {}
            LimitChange::To(Some(max)) => {
                is_set = true;
                details = details.with(*name, Value::I64(i64::from(*max)));
            }
            LimitChange::To(None) => details = details.with(*name, Value::Void),
        }
    }
    Event::new(if is_set { set } else { cleared }, vhost, object).with(details)
}
