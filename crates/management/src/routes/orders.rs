//! What an operator orders of the cluster: a node gives its groups away, or makes way for another; groups are spread anew.

use cluster::orders::Order;
use machine::{CatalogCommand, NodeId};
use serde_json::{Value, json};

use super::nodes::member;
use crate::asked::{Asked, Body, missing};
use crate::node::{View, name_of};
use crate::reply::Problem;
use crate::work::{Orders, Work};

pub(super) fn drain(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let node = member(view, asked)?;
    work(Order::Drain { node }, asked.part("node"), &asked.object()?)
}

pub(super) fn replace(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let (node, body) = (member(view, asked)?, asked.object()?);
    let by = body.count("by")?.filter(|number| *number > 0);
    let by = NodeId(by.ok_or_else(|| missing("by"))?);
    work(Order::Replace { node, by }, asked.part("node"), &body)
}

pub(super) fn rebalance(_: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    work(Order::Rebalance, "", &asked.object()?)
}

fn work(order: Order, node: &str, body: &Body) -> Result<Work, Problem> {
    let (node, is_dry) = (node.to_owned(), body.flag("dry_run", false)?);
    Ok(Work::Order(Orders { order, node, is_dry }))
}

/// The groups that would move, with the nodes that keep them, now and then. The first of them is to lead.
pub(crate) fn shown_moves(
    now: impl Fn(machine::GroupId) -> Vec<NodeId>,
    changes: &[CatalogCommand],
) -> Value {
    let names = |nodes: &[NodeId]| nodes.iter().map(|node| name_of(*node)).collect::<Vec<_>>();
    let moves = changes.iter().filter_map(|change| match change {
        CatalogCommand::SetVoters { group, voters } => Some(json!({
            "group": group.0,
            "nodes": names(&now(*group)),
            "nodes_then": names(voters),
        })),
        _ => None,
    });
    json!({ "moves": moves.collect::<Vec<_>>() })
}
