//! Checks for whoever watches a node: 200 if all is well, 503 with the reason if not.

use serde_json::{Value, json};

use crate::asked::Asked;
use crate::node::View;
use crate::reply::{Problem, Reply};
use crate::work::{Step, Work};

pub(super) fn aliveness(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    let reply = Reply::of(json!({ "status": "ok" }));
    Ok(Work::Client { vhost: asked.vhost().to_owned(), step: Step::Alive, reply })
}

/// Of all nodes.
pub(super) fn alarms(_: &View<'_>, _: &Asked) -> Result<Work, Problem> {
    Ok(Work::Alarms)
}

pub(super) fn local_alarms(view: &View<'_>, _: &Asked) -> Result<Work, Problem> {
    let shown = super::nodes::shown(view.facts);
    alarms_of([&shown], "There are alarms in effect on the node").map(|()| Work::well())
}

/// Alarms of these nodes, as `/nodes` shows them.
pub(crate) fn raised<'a>(nodes: impl IntoIterator<Item = &'a Value>) -> Vec<Value> {
    let raised = |node: &Value| {
        let all = [("memory", &node["mem_alarm"]), ("disk", &node["disk_free_alarm"])];
        let raised = all.into_iter().filter(|(_, is_raised)| **is_raised == true);
        let told =
            raised.map(|(resource, _)| json!({ "node": node["name"], "resource": resource }));
        told.collect::<Vec<_>>()
    };
    nodes.into_iter().flat_map(raised).collect()
}

/// Refuses if one of these nodes, as `/nodes` shows them, has an alarm.
pub(crate) fn alarms_of<'a>(
    nodes: impl IntoIterator<Item = &'a Value>,
    reason: &str,
) -> Result<(), Problem> {
    let raised = raised(nodes);
    match raised.is_empty() {
        true => Ok(()),
        false => Err(Problem::Failed(json!({
            "status": "failed",
            "reason": reason,
            "alarms": raised,
        }))),
    }
}

pub(super) fn vhosts(_: &View<'_>, _: &Asked) -> Result<Work, Problem> {
    Work::healthy(true, "")
}

pub(super) fn always(_: &View<'_>, _: &Asked) -> Result<Work, Problem> {
    Work::healthy(true, "")
}

/// Whether the certificate that clients are shown is still good in so long.
pub(super) fn certificates(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let days = match asked.part("unit") {
        "days" => Some(1),
        "weeks" => Some(7),
        "months" => Some(30),
        "years" => Some(365),
        _ => None,
    };
    let seconds = asked.part("count").parse::<i64>().ok().zip(days).and_then(|(count, days)| {
        (count >= 0).then(|| count.saturating_mul(days).saturating_mul(24 * 60 * 60))
    });
    let seconds = seconds.ok_or_else(|| Problem::bad("Invalid expiration value or unit"))?;
    let facts = view.facts;
    match facts.certificate_expires_s {
        Some(end) if end <= facts.now_s.saturating_add(seconds) => Err(Problem::Failed(json!({
            "status": "failed",
            "reason": "Certificates expiring",
            "expired": [{ "node": facts.name(), "not_after": end }],
        }))),
        Some(_) | None => Work::healthy(true, ""),
    }
}

pub(super) fn port(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let port = asked.part("port").parse::<u16>();
    let port = port.map_err(|_| Problem::bad("Invalid port"))?;
    let listening = view.facts.listening();
    if listening.iter().any(|(_, address)| address.port() == port) {
        return Ok(Work::answer(json!({ "status": "ok", "port": port })));
    }
    let ports: Vec<u16> = listening.iter().map(|(_, address)| address.port()).collect();
    Err(Problem::Failed(json!({
        "status": "failed",
        "reason": "No active listener",
        "missing": port,
        "ports": ports,
    })))
}

pub(super) fn protocol(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let protocol = asked.part("protocol");
    let asked = match protocol.to_ascii_lowercase().as_str() {
        "amqp091" | "amqp0-9-1" => "amqp".to_owned(),
        "amqps" => "amqp/ssl".to_owned(),
        other => other.to_owned(),
    };
    let listening = view.facts.listening();
    if listening.iter().any(|(protocol, _)| *protocol == asked) {
        return Ok(Work::answer(json!({ "status": "ok", "protocol": protocol })));
    }
    let protocols: Vec<&str> = listening.iter().map(|(protocol, _)| *protocol).collect();
    Err(Problem::Failed(json!({
        "status": "failed",
        "reason": "No active listener",
        "missing": protocol,
        "protocols": protocols,
    })))
}

pub(super) fn quorum_critical(_: &View<'_>, _: &Asked) -> Result<Work, Problem> {
    Ok(Work::QuorumCheck)
}
