//! Dead letters that are sent on: back to where they died, or elsewhere.

use std::collections::BTreeSet;

use amqp::TableRef;
use broker::dead_letter::retry::{
    Edit, Filter, LETTER_HEADERS_BYTES_MAX, Plan, Progress, RETRY_RATE_MAX, State, Stays, To, Which,
};
use bytes::Bytes;
use cluster::limits::SOUGHT_BYTES_MAX;
use machine::Version;
use serde_json::{Map, Value, json};

use super::messages::payload;
use super::peek::position;
use crate::access::{self, Named, Need};
use crate::arguments;
use crate::asked::{Asked, Body, missing};
use crate::limits::RETRIED_POSITIONS_MAX;
use crate::node::View;
use crate::page::Shape;
use crate::reply::Problem;
use crate::work::{Retries, Work};

/// Begins to send dead letters on.
pub(super) fn start(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let queue = view.catalog.queue(asked.vhost(), asked.part("queue")).ok_or(Problem::NotFound)?;
    let user = asked.who(view.catalog)?;
    if !user.reads(&queue.vhost, &queue.name) {
        let why = "Not a user that may read from the queue: a retry takes messages from it";
        return Err(Problem::NotAuthorised(why.to_owned()));
    }
    let (agreed, since) = (view.catalog.agreed(), Version::TAKES);
    if agreed < since {
        return Err(Problem::Unavailable(format!(
            "a retry needs version {since} of the cluster, which all nodes have not agreed on yet: it has {agreed}"
        )));
    }
    let body = asked.object()?;
    refuse_unknown(&body)?;
    let which = which(&body)?;
    let edit = edit(&body, &which)?;
    let plan = Plan {
        vhost: queue.vhost.clone(),
        queue: queue.name.clone(),
        place: (queue.group, queue.id),
        to: target(&body)?,
        which,
        count_max: bounded(&body, "limit", u64::MAX)?.unwrap_or(u64::MAX),
        rate: bounded(&body, "rate", RETRY_RATE_MAX.into())?.map(|rate| rate as u32),
        retries_max: bounded(&body, "max_retries", u32::MAX.into())?.map(|count| count as u32),
        edit,
        is_dry: body.flag("dry_run", false)?,
        user: asked.user.clone(),
        grant: asked.grant.clone(),
    };
    let looks_inside = match &plan.which {
        Which::At(_) => false,
        Which::All(filter) => !filter.contains.is_empty(),
    };
    let named = Named { vhost: Some(&queue.vhost), queue: Some(&queue.name) };
    if looks_inside && let Err(why) = access::allow(user, Need::Peek, false, named) {
        // Whether messages hold a text is private, too.
        return Err(Problem::NotAuthorised(why.to_owned()));
    }
    Ok(Work::Retry(Box::new(plan)))
}

fn refuse_unknown(body: &Body) -> Result<(), Problem> {
    let known = [
        "to",
        "queue",
        "exchange",
        "routing_key",
        "positions",
        "contains",
        "reason",
        "died_in",
        "limit",
        "rate",
        "max_retries",
        "payload",
        "payload_encoding",
        "headers",
        "dry_run",
    ];
    match body.0.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(Problem::bad(format!(
            "there is no field '{name}': the fields are {}",
            known.join(", ")
        ))),
        None => Ok(()),
    }
}

/// A whole number from 1 on.
fn bounded(body: &Body, name: &str, max: u64) -> Result<Option<u64>, Problem> {
    let count = body.count(name)?;
    match count.is_some_and(|count| count == 0 || count > max) {
        true => Err(Problem::bad(format!("{name} should be a whole number from 1 to {max}"))),
        false => Ok(count),
    }
}

fn target(body: &Body) -> Result<To, Problem> {
    let word = body.text("to")?;
    let (queue, exchange) = (body.short("queue")?, body.short("exchange")?);
    let key = body.short("routing_key")?;
    let named = |exchange: &str, key: &str| To::Named {
        exchange: if exchange == "amq.default" { String::new() } else { exchange.to_owned() },
        key: key.to_owned(),
    };
    match (word, queue, exchange, key) {
        (None | Some("queue"), None, None, None) => Ok(To::Queue),
        (Some("exchange"), None, None, None) => Ok(To::Exchange),
        (None, Some(queue), None, None) => Ok(named("", queue)),
        (None, None, Some(exchange), key) => Ok(named(exchange, key.unwrap_or_default())),
        (Some(word), None, None, None) => Err(Problem::bad(format!(
            "to should be queue (the one that each message died in) or exchange (the one that it had come by), not \
             '{word}'"
        ))),
        (_, _, _, _) => {
            Err(Problem::bad("a retry goes to one of: to, queue, or exchange with routing_key"))
        }
    }
}

fn which(body: &Body) -> Result<Which, Problem> {
    let positions = body.list("positions")?;
    let contains = body.text("contains")?.unwrap_or_default();
    if contains.len() > SOUGHT_BYTES_MAX {
        return Err(Problem::bad(format!("contains should have at most {SOUGHT_BYTES_MAX} bytes")));
    }
    let filter = Filter {
        contains: Bytes::copy_from_slice(contains.as_bytes()),
        reason: body.short("reason")?.map(str::to_owned),
        died_in: body.short("died_in")?.map(str::to_owned),
    };
    if body.find("positions").is_none() {
        return Ok(Which::All(filter));
    }
    if filter != Filter::default() {
        return Err(Problem::bad(
            "positions name the messages: with them there is no other filter",
        ));
    }
    if positions.len() > RETRIED_POSITIONS_MAX {
        return Err(Problem::bad(format!("there may be {RETRIED_POSITIONS_MAX} positions")));
    }
    let read = |it: &Value| {
        it.as_str().and_then(position).ok_or_else(|| {
            Problem::bad(
                "positions should be a list of positions that messages shows, such as \"17\"",
            )
        })
    };
    Ok(Which::At(positions.iter().map(read).collect::<Result<_, _>>()?))
}

/// What one message is sent on with instead of its own.
fn edit(body: &Body, which: &Which) -> Result<Option<Edit>, Problem> {
    let fields = ["payload", "payload_encoding", "headers"];
    if fields.iter().all(|name| body.find(name).is_none()) {
        return Ok(None);
    }
    let is_one = matches!(which, Which::At(positions) if positions.len() == 1);
    if !is_one {
        let why = "payload and headers are for one message: with them, positions names one";
        return Err(Problem::bad(why));
    }
    let encoding = body.text("payload_encoding")?;
    let payload = match body.text("payload")? {
        None if encoding.is_some() => return Err(missing("payload")),
        None => None,
        Some(text) => Some(payload(text, encoding.unwrap_or("string"))?),
    };
    let headers = match body.find("headers") {
        None => None,
        Some(_) => Some(headers(&body.object("headers")?)?),
    };
    Ok(Some(Edit { payload, headers }))
}

/// Headers as on the wire, as many as may be sent on.
fn headers(fields: &Map<String, Value>) -> Result<Bytes, Problem> {
    let raw = arguments::table(fields)?.to_bytes();
    TableRef::validate(&raw).map_err(|error| Problem::bad(error.to_string()))?;
    match raw.len() > LETTER_HEADERS_BYTES_MAX {
        true => Err(Problem::bad(format!(
            "headers should have at most {LETTER_HEADERS_BYTES_MAX} bytes, and they have {}",
            raw.len()
        ))),
        false => Ok(raw.into()),
    }
}

/// Retries of all nodes, as far as the user sees their vhosts.
pub(super) fn list(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let (vhosts, shape) = (seen(view, asked)?, Shape::of(asked)?);
    Ok(Work::Retries { what: Retries::All, vhosts, shape })
}

pub(super) fn one(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let what = Retries::One(asked.part("retry").to_owned());
    Ok(Work::Retries { what, vhosts: seen(view, asked)?, shape: Shape::of(asked)? })
}

/// Whoever may begin retries in the vhost may stop them.
pub(super) fn stop(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = asked.who(view.catalog)?;
    let may = |vhost: &str| access::allow(user, Need::Vhost, true, Named::vhost(vhost)).is_ok();
    let vhosts = view.catalog.vhosts().map(|vhost| vhost.name()).filter(|vhost| may(vhost));
    let vhosts = vhosts.map(str::to_owned).collect();
    let what = Retries::Stop(asked.part("retry").to_owned());
    Ok(Work::Retries { what, vhosts, shape: Shape::default() })
}

/// The vhosts that the user sees.
fn seen(view: &View<'_>, asked: &Asked) -> Result<BTreeSet<String>, Problem> {
    let user = asked.who(view.catalog)?;
    let seen = view.catalog.vhosts().map(|vhost| vhost.name());
    Ok(seen.filter(|vhost| access::sees(user, vhost)).map(str::to_owned).collect())
}

/// What a plan says.
pub(crate) fn planned(plan: &Plan) -> Map<String, Value> {
    let to = match &plan.to {
        To::Queue => json!("queue"),
        To::Exchange => json!("exchange"),
        To::Named { exchange, key } => json!({ "exchange": exchange, "routing_key": key }),
    };
    let which = match &plan.which {
        Which::At(positions) => json!({ "positions": positions.len() }),
        Which::All(Filter { contains, reason, died_in }) => json!({
            "contains": String::from_utf8_lossy(contains),
            "reason": reason,
            "died_in": died_in,
        }),
    };
    let edited = plan.edit.as_ref().map(|edit| {
        let parts = [("payload", edit.payload.is_some()), ("headers", edit.headers.is_some())];
        let parts = parts.into_iter().filter_map(|(name, is_new)| is_new.then_some(name));
        parts.collect::<Vec<_>>()
    });
    let shown = json!({
        "vhost": plan.vhost,
        "queue": plan.queue,
        "user": plan.user,
        "dry_run": plan.is_dry,
        "to": to,
        "which": which,
        "limit": (plan.count_max < u64::MAX).then_some(plan.count_max),
        "rate": plan.rate,
        "max_retries": plan.retries_max,
        "edited": edited.unwrap_or_default(),
    });
    match shown {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

/// How far it has come.
pub(crate) fn progressed(progress: &Progress) -> Map<String, Value> {
    let state = match progress.state {
        State::Running => "running",
        State::Done => "done",
        State::Stopped => "stopped",
        State::NoQueue => "queue deleted",
    };
    let stays = |(why, count): (&Stays, &u64)| {
        let (word, text) = reason_of(*why);
        json!({ "reason": word, "count": count, "explanation": text })
    };
    let target = |((exchange, key), count): (&(String, String), &u64)| json!({ "exchange": exchange, "routing_key": key, "count": count });
    let shown = json!({
        "state": state,
        "seen": progress.seen,
        "matched": progress.matched,
        "sent": progress.sent,
        "gone": progress.gone,
        "stay": progress.stays.values().sum::<u64>(),
        "stay_reasons": progress.stays.iter().map(stays).collect::<Vec<_>>(),
        "targets": progress.targets.iter().map(target).collect::<Vec<_>>(),
        "other_targets": progress.other_targets,
        "waits_for": progress.waits_for,
    });
    match shown {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

fn reason_of(why: Stays) -> (&'static str, &'static str) {
    match why {
        Stays::NoDeath => (
            "no_death",
            "it does not tell where it died: name a queue or an exchange to send it to",
        ),
        Stays::TooOften => ("too_often", "it has been sent on as often as max_retries allows"),
        Stays::NoExchange => ("no_exchange", "its target is an exchange that does not exist"),
        Stays::Unroutable => {
            ("unroutable", "no queue takes it at its target: the queue is gone, or not bound")
        }
        Stays::SameQueue => ("same_queue", "its target leads back to the queue that it lies in"),
        Stays::NotAllowed => ("not_allowed", "the user may not publish to its target"),
    }
}

#[cfg(test)]
mod tests {
    use machine::Position;

    use super::*;

    fn edited(body: Value) -> Result<Option<Edit>, Problem> {
        let Value::Object(fields) = body else { panic!("an object") };
        let body = Body(fields);
        refuse_unknown(&body)?;
        edit(&body, &which(&body)?)
    }

    #[test]
    fn one_message_may_be_mended() {
        let one = |mut body: Value| {
            body["positions"] = json!(["7"]);
            edited(body)
        };
        assert_eq!(one(json!({})), Ok(None));
        let payload = |payload: &[u8]| Some(Bytes::copy_from_slice(payload));
        let text = Edit { payload: payload(b"new"), headers: None };
        assert_eq!(one(json!({ "payload": "new" })), Ok(Some(text)));
        let bytes = Edit { payload: payload(b"\xff"), headers: None };
        let told = json!({ "payload": "/w==", "payload_encoding": "base64" });
        assert_eq!(one(told), Ok(Some(bytes)));
        let none = Edit { payload: payload(b""), headers: payload(b"") };
        assert_eq!(one(json!({ "payload": "", "headers": {} })), Ok(Some(none)));
        let long = "x".repeat(LETTER_HEADERS_BYTES_MAX);
        for wrong in [
            json!({ "payload": 7 }),
            json!({ "payload": "?", "payload_encoding": "base64" }),
            json!({ "payload": "a", "payload_encoding": "hex" }),
            json!({ "payload_encoding": "string" }),
            json!({ "headers": "a" }),
            json!({ "headers": { "long": long } }),
        ] {
            assert!(matches!(one(wrong.clone()), Err(Problem::Bad(_))), "{wrong}");
        }
    }

    #[test]
    fn several_messages_are_not_mended_together() {
        for which in [json!({ "positions": ["7", "8"] }), json!({ "positions": [] }), json!({})] {
            for (name, value) in [("payload", json!("a")), ("headers", json!({}))] {
                let mut body = which.clone();
                body[name] = value;
                let Err(Problem::Bad(why)) = edited(body) else { panic!("{which} {name}") };
                assert!(why.contains("positions names one"), "{why}");
            }
        }
        let at = |seq| Position { priority: 0, seq };
        let Value::Object(fields) = json!({ "positions": ["7", "8"] }) else { unreachable!() };
        assert_eq!(which(&Body(fields)), Ok(Which::At(vec![at(7), at(8)])));
    }
}
