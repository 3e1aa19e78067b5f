//! Limits of users and vhosts.

use machine::{CatalogCommand, User, UserLimits, Vhost, VhostLimits};
use serde_json::{Map, Value, json};

use crate::asked::{Asked, Body};
use crate::node::View;
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::work::Work;

const CONNECTIONS: &str = "max-connections";
const QUEUES: &str = "max-queues";
const CHANNELS: &str = "max-channels";

pub(super) fn of_users(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let items = view.catalog.users().filter_map(shown_user).collect();
    Ok(Work::list(&Shape::of(asked)?, items))
}

pub(super) fn of_user(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = view.catalog.user(asked.part("user")).ok_or(Problem::NotFound)?;
    Ok(Work::list(&Shape::of(asked)?, shown_user(user).into_iter().collect()))
}

fn shown_user(user: &User) -> Option<Value> {
    let value = user_value(user.limits);
    (!value.is_empty()).then(|| json!({ "user": user.name, "value": value }))
}

pub(super) fn of_vhosts(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let items = view.catalog.vhosts().filter_map(shown_vhost).collect();
    Ok(Work::list(&Shape::of(asked)?, items))
}

pub(super) fn of_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let vhost = view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    Ok(Work::list(&Shape::of(asked)?, shown_vhost(vhost).into_iter().collect()))
}

fn shown_vhost(vhost: &Vhost) -> Option<Value> {
    let value = vhost_value(vhost.limits);
    (!value.is_empty()).then(|| json!({ "vhost": vhost.name(), "value": value }))
}

/// As RabbitMQ writes them: only what is limited.
pub(super) fn user_value(limits: UserLimits) -> Map<String, Value> {
    let UserLimits { max_connections, max_channels } = limits;
    value([(CONNECTIONS, max_connections), (CHANNELS, max_channels)])
}

pub(super) fn vhost_value(limits: VhostLimits) -> Map<String, Value> {
    let VhostLimits { max_connections, max_queues } = limits;
    value([(CONNECTIONS, max_connections), (QUEUES, max_queues)])
}

fn value(limits: [(&str, Option<u32>); 2]) -> Map<String, Value> {
    let limited = limits.into_iter().filter_map(|(name, max)| Some((name, max?)));
    limited.map(|(name, max)| (name.to_owned(), max.into())).collect()
}

pub(super) fn put_of_user(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let max =
        limit_of(&asked.object()?, "value")?.ok_or_else(|| Problem::bad("value is missing"))?;
    change_user(view, asked, max)
}

pub(super) fn delete_of_user(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    change_user(view, asked, None)
}

fn change_user(view: &View<'_>, asked: &Asked, max: Option<u32>) -> Result<Work, Problem> {
    let user = view.catalog.user(asked.part("user")).ok_or(Problem::NotFound)?;
    let mut limits = user.limits;
    *user_limit(&mut limits, asked.part("limit"))? = max;
    let command = CatalogCommand::SetUserLimits { user: user.name.clone(), limits };
    Ok(Work::Change { commands: vec![command], reply: Reply::done() })
}

pub(super) fn put_of_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let max =
        limit_of(&asked.object()?, "value")?.ok_or_else(|| Problem::bad("value is missing"))?;
    change_vhost(view, asked, max)
}

pub(super) fn delete_of_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    change_vhost(view, asked, None)
}

fn change_vhost(view: &View<'_>, asked: &Asked, max: Option<u32>) -> Result<Work, Problem> {
    let vhost = view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    let mut limits = vhost.limits;
    *vhost_limit(&mut limits, asked.part("limit"))? = max;
    let command = CatalogCommand::SetVhostLimits { vhost: vhost.name().to_owned(), limits };
    Ok(Work::Change { commands: vec![command], reply: Reply::done() })
}

fn user_limit<'a>(limits: &'a mut UserLimits, name: &str) -> Result<&'a mut Option<u32>, Problem> {
    match name {
        CONNECTIONS => Ok(&mut limits.max_connections),
        CHANNELS => Ok(&mut limits.max_channels),
        other => Err(Problem::Bad(format!(
            "a user has no limit '{other}': there are {CONNECTIONS} and {CHANNELS}"
        ))),
    }
}

fn vhost_limit<'a>(
    limits: &'a mut VhostLimits,
    name: &str,
) -> Result<&'a mut Option<u32>, Problem> {
    match name {
        CONNECTIONS => Ok(&mut limits.max_connections),
        QUEUES => Ok(&mut limits.max_queues),
        other => Err(Problem::Bad(format!(
            "a vhost has no limit '{other}': there are {CONNECTIONS} and {QUEUES}"
        ))),
    }
}

/// A field that limits something. Outside: whether it is there; inside: below 0 is no limit, as in RabbitMQ.
fn limit_of(body: &Body, name: &str) -> Result<Option<Option<u32>>, Problem> {
    let number = match body.find(name) {
        None => return Ok(None),
        Some(Value::Number(number)) => number.as_i64(),
        Some(Value::String(text)) => text.parse().ok(),
        Some(_) => None,
    };
    let problem = || Problem::Bad(format!("{name} should be a whole number, and -1 for no limit"));
    let number = number.ok_or_else(problem)?;
    if number < 0 {
        return Ok(Some(None));
    }
    u32::try_from(number).map(|max| Some(Some(max))).map_err(|_| problem())
}

/// Limits of a user, as definitions have them.
pub(super) fn users(body: &Map<String, Value>) -> Result<UserLimits, Problem> {
    let mut limits = UserLimits::default();
    let body = Body(body.clone());
    for name in body.0.keys() {
        *user_limit(&mut limits, name)? = limit_of(&body, name)?.flatten();
    }
    Ok(limits)
}

/// Limits of a vhost, as definitions have them.
pub(super) fn vhosts(body: &Map<String, Value>) -> Result<VhostLimits, Problem> {
    let mut limits = VhostLimits::default();
    let body = Body(body.clone());
    for name in body.0.keys() {
        *vhost_limit(&mut limits, name)? = limit_of(&body, name)?.flatten();
    }
    Ok(limits)
}

/// Limits in definitions: an object; or a list of objects, each with one limit. `None`: nothing is said of them.
pub(super) fn said(body: &Body) -> Result<Option<Map<String, Value>>, Problem> {
    match body.find("limits") {
        None => Ok(None),
        Some(Value::Array(list)) if list.is_empty() => Ok(None),
        Some(Value::Object(fields)) if fields.is_empty() => Ok(None),
        Some(Value::Object(fields)) => Ok(Some(fields.clone())),
        Some(_) => Err(Problem::bad("limits should be an object")),
    }
}
