//! Nodes of the cluster.

use machine::NodeId;
use serde_json::{Value, json};

use super::overview::exchange_types;
use crate::asked::Asked;
use crate::node::{View, name_of};
use crate::page::Shape;
use crate::reply::Problem;
use crate::work::Work;

pub(super) fn list(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let items = view.catalog.nodes().map(|node| shown(view, node.node)).collect();
    Ok(Work::list(&Shape::of(asked)?, items))
}

pub(super) fn one(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let mut nodes = view.catalog.nodes().map(|node| node.node);
    let node = nodes.find(|node| name_of(*node) == asked.part("node"));
    let node = node.ok_or(Problem::NotFound)?;
    Ok(Work::answer(Shape::of(asked)?.columns_of(shown(view, node))))
}

/// This node says how it is; of others only their names are known here.
fn shown(view: &View<'_>, node: NodeId) -> Value {
    let facts = view.facts;
    if node != facts.node {
        return json!({ "name": name_of(node), "type": "disc" });
    }
    let resources = &facts.resources;
    json!({
        "name": name_of(node),
        "type": "disc",
        "running": true,
        "os_pid": std::process::id().to_string(),
        "uptime": facts.uptime_ms,
        "processors": facts.processors,
        "run_queue": 0,
        "rates_mode": "basic",
        "mem_used": resources.memory_bytes,
        "mem_limit": resources.memory_limit_bytes,
        "mem_alarm": facts.alarms.memory,
        "disk_free": resources.disk_free_bytes,
        "disk_free_limit": resources.disk_free_limit_bytes,
        "disk_free_alarm": facts.alarms.disk,
        "sockets_used": facts.totals.connections,
        "partitions": [],
        "exchange_types": exchange_types(),
        "auth_mechanisms": [
            { "name": "PLAIN", "enabled": true },
            { "name": "AMQPLAIN", "enabled": true },
        ],
        "applications": [],
        "enabled_plugins": [],
        "net_ticktime": 60,
    })
}
