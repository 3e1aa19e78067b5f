//! Limits of users and vhosts.

use machine::{
    CatalogCommand, LimitChange, User, UserLimits, UserLimitsChange, Vhost, VhostLimits,
    VhostLimitsChange,
};
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
    change_user(view, asked, wanted(asked)?)
}

pub(super) fn delete_of_user(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    change_user(view, asked, None)
}

fn change_user(view: &View<'_>, asked: &Asked, max: Option<u32>) -> Result<Work, Problem> {
    let user = view.catalog.user(asked.part("user")).ok_or(Problem::NotFound)?;
    let mut change = UserLimitsChange::default();
    *user_limit(&mut change, asked.part("limit"))? = LimitChange::To(max);
    let command = CatalogCommand::SetUserLimits { user: user.name.clone(), change };
    Ok(Work::Change { commands: vec![command], reply: Reply::done() })
}

pub(super) fn put_of_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    change_vhost(view, asked, wanted(asked)?)
}

pub(super) fn delete_of_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    change_vhost(view, asked, None)
}

fn change_vhost(view: &View<'_>, asked: &Asked, max: Option<u32>) -> Result<Work, Problem> {
    let vhost = view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    let mut change = VhostLimitsChange::default();
    *vhost_limit(&mut change, asked.part("limit"))? = LimitChange::To(max);
    let command = CatalogCommand::SetVhostLimits { vhost: vhost.name().to_owned(), change };
    Ok(Work::Change { commands: vec![command], reply: Reply::done() })
}

fn wanted(asked: &Asked) -> Result<Option<u32>, Problem> {
    limit_of(&asked.object()?, "value")
}

fn user_limit<'a>(
    change: &'a mut UserLimitsChange,
    name: &str,
) -> Result<&'a mut LimitChange, Problem> {
    match name {
        CONNECTIONS => Ok(&mut change.max_connections),
        CHANNELS => Ok(&mut change.max_channels),
        other => Err(Problem::Bad(format!(
            "a user has no limit '{other}': there are {CONNECTIONS} and {CHANNELS}"
        ))),
    }
}

fn vhost_limit<'a>(
    change: &'a mut VhostLimitsChange,
    name: &str,
) -> Result<&'a mut LimitChange, Problem> {
    match name {
        CONNECTIONS => Ok(&mut change.max_connections),
        QUEUES => Ok(&mut change.max_queues),
        other => Err(Problem::Bad(format!(
            "a vhost has no limit '{other}': there are {CONNECTIONS} and {QUEUES}"
        ))),
    }
}

/// A limit that must be there. Below 0 is no limit, as in RabbitMQ.
fn limit_of(body: &Body, name: &str) -> Result<Option<u32>, Problem> {
    let number = match body.find(name) {
        None => return Err(crate::asked::missing(name)),
        Some(Value::Number(number)) => number.as_i64(),
        Some(Value::String(text)) => text.parse().ok(),
        Some(_) => None,
    };
    let problem = || Problem::Bad(format!("{name} should be a whole number, and -1 for no limit"));
    let number = number.ok_or_else(problem)?;
    if number < 0 {
        return Ok(None);
    }
    u32::try_from(number).map(Some).map_err(|_| problem())
}

/// Limits of a user, as definitions have them: those that are not named go.
pub(super) fn users(body: &Map<String, Value>) -> Result<UserLimitsChange, Problem> {
    let mut change = UserLimitsChange::from(UserLimits::default());
    let body = Body(body.clone());
    for name in body.0.keys() {
        *user_limit(&mut change, name)? = LimitChange::To(limit_of(&body, name)?);
    }
    Ok(change)
}

/// Limits of a vhost, as definitions have them: those that are not named go.
pub(super) fn vhosts(body: &Map<String, Value>) -> Result<VhostLimitsChange, Problem> {
    let mut change = VhostLimitsChange::from(VhostLimits::default());
    let body = Body(body.clone());
    for name in body.0.keys() {
        *vhost_limit(&mut change, name)? = LimitChange::To(limit_of(&body, name)?);
    }
    Ok(change)
}

/// Limits in a definition. `None`: nothing is said of them, in RabbitMQ's ways, of which an empty list is one. RabbitMQ
/// writes those of vhosts as a list of names with their numbers.
pub(super) fn said(body: &Body) -> Result<Option<Map<String, Value>>, Problem> {
    let problem = || Problem::bad("limits should be an object");
    let fields = match body.find("limits") {
        None => return Ok(None),
        Some(Value::Array(list)) => {
            list.iter().map(pair).collect::<Option<_>>().ok_or_else(problem)?
        }
        Some(Value::Object(fields)) => fields.clone(),
        Some(_) => return Err(problem()),
    };
    Ok((!fields.is_empty()).then_some(fields))
}

fn pair(item: &Value) -> Option<(String, Value)> {
    match item.as_array()?.as_slice() {
        [Value::String(name), number] => Some((name.clone(), number.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_in_each_of_rabbitmqs_forms() {
        let said = |limits: Value| {
            let fields = Map::from_iter([("limits".to_owned(), limits)]);
            super::said(&Body(fields)).map_err(|_| ())
        };
        let wanted = Map::from_iter([(QUEUES.to_owned(), 5.into())]);
        assert_eq!(said(json!({ "max-queues": 5 })), Ok(Some(wanted.clone())));
        assert_eq!(said(json!([["max-queues", 5]])), Ok(Some(wanted)));
        assert_eq!(said(json!([])), Ok(None));
        assert_eq!(said(json!({})), Ok(None));
        assert_eq!(said(json!(["max-queues"])), Err(()));
        assert_eq!(said(json!(5)), Err(()));
    }
}
