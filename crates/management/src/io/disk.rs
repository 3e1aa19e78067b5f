//! What a node's data directory takes of its disk.

use machine::NodeId;
use serde_json::Value;

use super::api::Api;
use super::aside::aside;
use super::asking;
use crate::neighbour::Question;
use crate::node::name_of;
use crate::reply::{Problem, Reply};
use crate::routes::nodes;

/// Of the node that is meant.
pub(super) async fn disk(api: &Api, node: NodeId) -> Result<Reply, Problem> {
    let told = match node == api.0.cluster.node() {
        true => own(api).await,
        false => {
            let told = asking::ask_one::<Result<Value, String>>(api, node, &Question::Disk).await;
            told.unwrap_or_else(|why| Err(why.to_string()))
        }
    };
    let why = |why: String| Problem::Unavailable(format!("{}: {why}", name_of(node)));
    told.map(Reply::of).map_err(why)
}

/// Of this node.
pub(super) async fn own(api: &Api) -> Result<Value, String> {
    let Some(dir) = api.0.data_dir.get().cloned() else {
        return Err("the node does not know its data directory".to_owned());
    };
    let looked = aside(move || (cluster::usage(&dir), dir)).await;
    let (told, dir) = looked.map_err(|_| "the node is stopping".to_owned())?;
    let told = told.map_err(|error| format!("{} cannot be looked at: {error}", dir.display()))?;
    Ok(nodes::disk_shown(&dir, &told))
}
