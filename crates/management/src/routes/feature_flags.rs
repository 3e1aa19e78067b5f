//! RabbitMQ's feature flags, for tools that wait until all are enabled. What may be mixed in a cluster of Millrace is
//! agreed on by versions of its own; these stand for what RabbitMQ's clients see.

use serde_json::{Value, json};

use crate::asked::Asked;
use crate::node::View;
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::work::Work;

/// Name, what it stands for. Of RabbitMQ 3.10's those that are true here.
const FLAGS: [(&str, &str); 5] = [
    ("implicit_default_bindings", "Every queue is bound to the default exchange by its name"),
    ("maintenance_mode_status", "Nodes hand over what they lead before they stop"),
    ("quorum_queue", "Queues of the type quorum"),
    ("user_limits", "Limits of users on connections and channels"),
    ("virtual_host_metadata", "Description, tags and default queue type of a vhost"),
];

pub(super) fn list(_: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    Ok(Work::list(&Shape::of(asked)?, FLAGS.iter().map(shown).collect()))
}

fn shown((name, text): &(&str, &str)) -> Value {
    json!({
        "name": name,
        "desc": text,
        "doc_url": "",
        "state": "enabled",
        "stability": "stable",
        "provided_by": "rabbit",
    })
}

/// They are enabled already.
pub(super) fn enable(_: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let flag = asked.part("flag");
    match FLAGS.iter().any(|(name, _)| *name == flag) {
        true => Ok(Work::Answer(Reply::done())),
        false => Err(Problem::Bad(format!("there is no feature flag '{flag}'"))),
    }
}
