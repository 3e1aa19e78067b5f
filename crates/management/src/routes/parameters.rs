//! What RabbitMQ keeps as parameters. Here each has a place of its own; definitions and `/parameters` show them so.

use machine::{CatalogCommand, PolicyKind, Vhost};
use serde_json::{Map, Value, json};

use super::{limits, policies};
use crate::access;
use crate::asked::{Asked, Body};
use crate::node::View;
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::work::Work;

/// What a parameter is that is an operator's policy.
const OPERATOR_POLICY: &str = "operator_policy";
/// What a parameter is that limits a vhost.
const VHOST_LIMITS: &str = "vhost-limits";

pub(super) fn list(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = asked.who(view.catalog)?;
    let seen = view.catalog.vhosts().filter(|vhost| access::sees_policies(user, vhost.name()));
    let component = asked.part("component");
    let all = seen.flat_map(of);
    let items = all.filter(|it| component.is_empty() || it["component"] == component).collect();
    Ok(Work::list(&Shape::of(asked)?, items))
}

pub(super) fn of_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let vhost = view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    let items = of(vhost).into_iter().filter(|it| it["component"] == asked.part("component"));
    Ok(Work::list(&Shape::of(asked)?, items.collect()))
}

pub(super) fn one(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let found = find(view, asked)?.ok_or(Problem::NotFound)?;
    Ok(Work::answer(Shape::of(asked)?.columns_of(found)))
}

fn find(view: &View<'_>, asked: &Asked) -> Result<Option<Value>, Problem> {
    let vhost = view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    let (component, name) = (asked.part("component"), asked.part("name"));
    let mut all = of(vhost).into_iter();
    Ok(all.find(|it| it["component"] == component && it["name"] == name))
}

pub(super) fn put(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let is_there = find(view, asked)?.is_some();
    let value = asked.object()?.object("value")?;
    let command = set(asked.part("component"), asked.vhost(), asked.part("name"), value)?;
    let command = command.ok_or_else(|| unknown(asked))?;
    Ok(Work::Change { commands: vec![command], reply: Reply::put(is_there) })
}

pub(super) fn delete(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    find(view, asked)?.ok_or(Problem::NotFound)?;
    let (vhost, name) = (asked.vhost().to_owned(), asked.part("name").to_owned());
    let command = match asked.part("component") {
        OPERATOR_POLICY => CatalogCommand::DeletePolicy { vhost, name, kind: PolicyKind::Operator },
        VHOST_LIMITS => {
            let change = limits::vhosts(&Map::new())?;
            CatalogCommand::SetVhostLimits { vhost, change }
        }
        _ => return Err(unknown(asked)),
    };
    Ok(Work::Change { commands: vec![command], reply: Reply::done() })
}

/// In the words of RabbitMQ without that plugin.
fn unknown(asked: &Asked) -> Problem {
    let component = asked.part("component");
    Problem::Bad(format!("Validation failed\n\ncomponent {component} not found\n"))
}

/// What a parameter is here; none of a component that is not there.
pub(super) fn set(
    component: &str,
    vhost: &str,
    name: &str,
    value: Map<String, Value>,
) -> Result<Option<CatalogCommand>, Problem> {
    let command = match component {
        OPERATOR_POLICY => policies::set(vhost, name, PolicyKind::Operator, &Body(value))?,
        VHOST_LIMITS => {
            let change = limits::vhosts(&value)?;
            CatalogCommand::SetVhostLimits { vhost: vhost.to_owned(), change }
        }
        _ => return Ok(None),
    };
    Ok(Some(command))
}

pub(super) fn global(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    Ok(Work::list(&Shape::of(asked)?, globals(view.catalog.name())))
}

/// As definitions have them.
pub(super) fn globals(cluster_name: &str) -> Vec<Value> {
    match cluster_name {
        "" => Vec::new(),
        name => vec![json!({ "name": "cluster_name", "value": name })],
    }
}

/// Those of a vhost.
pub(super) fn of(vhost: &Vhost) -> Vec<Value> {
    let operators = policies::of(vhost, PolicyKind::Operator).map(operator_policy);
    let limits = limits::vhost_value(vhost.limits);
    let limits = (!limits.is_empty()).then(|| {
        json!({
            "vhost": vhost.name(),
            "name": "limits",
            "component": VHOST_LIMITS,
            "value": limits,
        })
    });
    operators.chain(limits).collect()
}

fn operator_policy(mut policy: Value) -> Value {
    let mut value = Map::new();
    if let Value::Object(fields) = &mut policy {
        for field in ["pattern", "apply-to", "definition", "priority"] {
            value.extend(fields.remove_entry(field));
        }
        fields.insert("component".to_owned(), OPERATOR_POLICY.into());
        fields.insert("value".to_owned(), value.into());
    }
    policy
}
