//! Policies, and those of operators.

use machine::{
    AppliesTo, CatalogCommand, Foreseen, Governed, Policy, PolicyChange, PolicyKind, PolicySpec,
    Vhost,
};
use serde_json::{Value, json};

use super::queues;
use crate::access;
use crate::arguments;
use crate::asked::{Asked, Body};
use crate::limits::FORESEEN_QUEUES_MAX;
use crate::node::View;
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::work::Work;

pub(super) fn list(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    list_all(view, asked, PolicyKind::User)
}

pub(super) fn operators(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    list_all(view, asked, PolicyKind::Operator)
}

fn list_all(view: &View<'_>, asked: &Asked, kind: PolicyKind) -> Result<Work, Problem> {
    let user = asked.who(view.catalog)?;
    let seen = view.catalog.vhosts().filter(|vhost| access::sees_policies(user, vhost.name()));
    Ok(Work::list(&Shape::of(asked)?, seen.flat_map(|vhost| of(vhost, kind)).collect()))
}

pub(super) fn of_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    list_of_vhost(view, asked, PolicyKind::User)
}

pub(super) fn operators_of_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    list_of_vhost(view, asked, PolicyKind::Operator)
}

fn list_of_vhost(view: &View<'_>, asked: &Asked, kind: PolicyKind) -> Result<Work, Problem> {
    let vhost = view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    Ok(Work::list(&Shape::of(asked)?, of(vhost, kind).collect()))
}

/// How the policies of a vhost are shown, and written into definitions.
pub(super) fn of(vhost: &Vhost, kind: PolicyKind) -> impl Iterator<Item = Value> {
    vhost.policies(kind).map(|policy| shown(vhost.name(), policy))
}

fn shown(vhost: &str, policy: &Policy) -> Value {
    let spec = &policy.spec;
    json!({
        "vhost": vhost,
        "name": policy.name,
        "pattern": spec.pattern,
        "apply-to": spec.applies_to.name(),
        "definition": arguments::shown(&spec.definition),
        "priority": spec.priority,
    })
}

fn find<'a>(view: &View<'a>, asked: &Asked, kind: PolicyKind) -> Result<&'a Policy, Problem> {
    let vhost = view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    vhost.policy(kind, asked.part("policy")).ok_or(Problem::NotFound)
}

pub(super) fn one(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    Ok(Work::answer(shown(asked.vhost(), find(view, asked, PolicyKind::User)?)))
}

pub(super) fn operator(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    Ok(Work::answer(shown(asked.vhost(), find(view, asked, PolicyKind::Operator)?)))
}

pub(super) fn put(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    put_one(view, asked, PolicyKind::User)
}

pub(super) fn put_operator(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    put_one(view, asked, PolicyKind::Operator)
}

fn put_one(view: &View<'_>, asked: &Asked, kind: PolicyKind) -> Result<Work, Problem> {
    let vhost = view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    let name = asked.part("policy");
    let reply = Reply::put(vhost.policy(kind, name).is_some());
    let command = set(asked.vhost(), name, kind, &asked.object()?)?;
    Ok(Work::Change { commands: vec![command], reply })
}

/// What a body says.
pub(super) fn set(
    vhost: &str,
    name: &str,
    kind: PolicyKind,
    body: &Body,
) -> Result<CatalogCommand, Problem> {
    let applies_to = match body.text("apply-to")? {
        None => AppliesTo::All,
        Some(word) => AppliesTo::EACH
            .into_iter()
            .find(|it| it.name() == word)
            .ok_or_else(|| Problem::bad(format!("apply-to '{word}' unrecognised")))?,
    };
    if body.find("definition").is_none() {
        return Err(crate::asked::missing("definition"));
    }
    let table = arguments::table(&body.object("definition")?)?;
    let rules = broker::policy::rules(&table, kind)
        .map_err(|why| Problem::Bad(format!("Validation failed\n\n{why}\n")))?;
    let priority = match body.find("priority") {
        None => 0,
        Some(Value::Number(number)) => {
            let number = number.as_i64().and_then(|number| i32::try_from(number).ok());
            number.ok_or_else(|| Problem::bad("priority should be a whole number"))?
        }
        Some(Value::String(text)) => {
            text.parse().map_err(|_| Problem::bad("priority should be a whole number"))?
        }
        Some(_) => return Err(Problem::bad("priority should be a whole number")),
    };
    let spec = PolicySpec {
        pattern: body.needed("pattern")?.to_owned(),
        applies_to,
        priority,
        rules,
        definition: broker::operator::arguments(&table),
    };
    let (vhost, name, spec) = (vhost.to_owned(), name.to_owned(), Box::new(spec));
    Ok(CatalogCommand::PutPolicy { vhost, name, kind, spec })
}

pub(super) fn delete(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    delete_one(view, asked, PolicyKind::User)
}

pub(super) fn delete_operator(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    delete_one(view, asked, PolicyKind::Operator)
}

fn delete_one(view: &View<'_>, asked: &Asked, kind: PolicyKind) -> Result<Work, Problem> {
    let name = find(view, asked, kind)?.name.clone();
    let command = CatalogCommand::DeletePolicy { vhost: asked.vhost().to_owned(), name, kind };
    Ok(Work::Change { commands: vec![command], reply: Reply::done() })
}

/// What a policy would change, if it were put now.
pub(super) fn foresee(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    foreseen(view, asked, PolicyKind::User)
}

/// The same of one that the operators put.
pub(super) fn foresee_operator(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    foreseen(view, asked, PolicyKind::Operator)
}

fn foreseen(view: &View<'_>, asked: &Asked, kind: PolicyKind) -> Result<Work, Problem> {
    let (vhost, name) = (asked.vhost(), asked.part("policy"));
    let found = view.catalog.vhost(vhost).ok_or(Problem::NotFound)?;
    let command = set(vhost, name, kind, &asked.object()?)?;
    view.catalog.check(&command).map_err(|refusal| Problem::Bad(refusal.to_string()))?;
    let CatalogCommand::PutPolicy { spec, .. } = &command else { return Err(Problem::NotFound) };
    let Foreseen { matches, changes } = Foreseen::of(found, name, kind, spec);
    let definitions = |governed: Option<&Governed>, is_new: bool| {
        let new = is_new.then_some((kind, name, &spec.definition));
        queues::policy_definition(view.catalog, vhost, governed, new)
    };
    let shown = changes.iter().take(FORESEEN_QUEUES_MAX).map(|change| {
        let PolicyChange { queue, before, after } = change;
        let of = |governed: Option<&Governed>| {
            governed.and_then(|it| match kind {
                PolicyKind::User => it.policy.clone(),
                PolicyKind::Operator => it.operator_policy.clone(),
            })
        };
        json!({
            "queue": queue.name,
            "policy": { "before": of(*before), "after": of(after.as_deref()) },
            "definition": {
                "before": definitions(*before, false),
                "after": definitions(after.as_deref(), true),
            },
        })
    });
    Ok(Work::answer(json!({
        "queue_count": matches,
        "change_count": changes.len(),
        "changes": shown.collect::<Vec<Value>>(),
    })))
}
