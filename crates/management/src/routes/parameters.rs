//! What RabbitMQ keeps as parameters. Here each has a place of its own; definitions and `/parameters` show them so.

use machine::{PolicyKind, Vhost};
use serde_json::{Map, Value, json};

use super::{limits, policies};
use crate::access;
use crate::asked::Asked;
use crate::node::View;
use crate::page::Shape;
use crate::reply::Problem;
use crate::work::Work;

/// What a parameter is that is an operator's policy.
pub(super) const OPERATOR_POLICY: &str = "operator_policy";
/// What a parameter is that limits a vhost.
pub(super) const VHOST_LIMITS: &str = "vhost-limits";

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
