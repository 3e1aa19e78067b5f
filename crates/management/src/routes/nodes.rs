//! Nodes of the cluster.

use std::path::Path;

use cluster::{NotTold, Part, Taken, Usage};
use machine::{Catalog, NodeId};
use serde_json::{Value, json};

use super::overview::exchange_types;
use crate::asked::Asked;
use crate::history::samples::Ranges;
use crate::node::{Facts, View, name_of};
use crate::page::Shape;
use crate::reply::Problem;
use crate::work::Work;

pub(super) fn list(_: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    Ok(Work::Nodes { shape: Shape::of(asked)?, one: None, ranges: Ranges::default() })
}

pub(super) fn one(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let node = member(view, asked)?;
    Ok(Work::Nodes { shape: Shape::of(asked)?, one: Some(node), ranges: Ranges::of(asked)? })
}

/// The node that the path names.
pub(super) fn member(view: &View<'_>, asked: &Asked) -> Result<NodeId, Problem> {
    let mut nodes = view.catalog.nodes().map(|node| node.node);
    nodes.find(|node| name_of(*node) == asked.part("node")).ok_or(Problem::NotFound)
}

/// A node that has not said how it stands.
pub(crate) fn silent(node: NodeId, why: NotTold) -> Value {
    let mut shown = json!({ "name": name_of(node), "type": "disc", "zone": null });
    // One that is too old to be asked, or has too much to do, does run.
    if let (NotTold::Unreachable, Value::Object(fields)) = (why, &mut shown) {
        fields.insert("running".to_owned(), false.into());
    }
    shown
}

/// How this node is.
pub(crate) fn shown(facts: &Facts) -> Value {
    let resources = &facts.resources;
    json!({
        "name": facts.name(),
        "type": "disc",
        "running": true,
        "version": env!("CARGO_PKG_VERSION"),
        "os_pid": std::process::id().to_string(),
        "uptime": facts.uptime_ms,
        "processors": facts.processors,
        "zone": facts.zone.as_deref(),
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

pub(super) fn disk(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    Ok(Work::Disk(member(view, asked)?))
}

pub(super) fn groups(_: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    Ok(Work::Groups { shape: Shape::of(asked)? })
}

/// What a data directory takes, and the file system that it is on.
pub(crate) fn disk_shown(dir: &Path, usage: &Usage) -> Value {
    let parts = usage.parts.iter().map(|(part, Taken { bytes, files })| {
        let name = match part {
            Part::Log => "log".to_owned(),
            Part::Segments { group } => format!("segments/{group}"),
            Part::Checkpoints => "checkpoints".to_owned(),
            Part::Quarantined => "damaged".to_owned(),
            Part::Others => "others".to_owned(),
        };
        json!({ "name": name, "bytes": bytes, "files": files })
    });
    json!({
        "path": dir.display().to_string(),
        "total": usage.total,
        "free": usage.free,
        "parts": parts.collect::<Vec<_>>(),
    })
}

/// Adds where the other nodes reach it. A node alone has no such address.
pub(crate) fn add_address(catalog: &Catalog, node: NodeId, shown: &mut Value) {
    let known = catalog.nodes().find(|known| known.node == node);
    let address = known.map(|known| known.address.as_str()).filter(|address| !address.is_empty());
    if let (Some(address), Value::Object(fields)) = (address, shown) {
        fields.insert("address".to_owned(), address.into());
    }
}

/// What changes about a node, as `/nodes` shows it.
pub(crate) fn brief(shown: &Value) -> Value {
    let fields = [
        "name",
        "running",
        "uptime",
        "mem_used",
        "mem_limit",
        "mem_alarm",
        "disk_free",
        "disk_free_limit",
        "disk_free_alarm",
        "sockets_used",
    ];
    let known =
        fields.iter().filter_map(|name| Some(((*name).to_owned(), shown.get(name)?.clone())));
    Value::Object(known.collect())
}
