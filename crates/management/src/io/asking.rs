//! Questions to the other nodes of the cluster.

use bytes::Bytes;
use cluster::NotTold;
use machine::NodeId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::api::Api;
use crate::limits::NEIGHBOUR_WAIT;
use crate::neighbour::Question;

/// What the other nodes answer, all asked at once. Which one has not answered, and why, is said with it.
pub(super) async fn ask_others<T: DeserializeOwned + Send + 'static>(
    api: &Api,
    question: &Question,
) -> Vec<(NodeId, Result<T, NotTold>)> {
    let me = api.0.cluster.node();
    let others: Vec<NodeId> = {
        let catalog = api.0.cluster.catalog();
        catalog.nodes().map(|node| node.node).filter(|node| *node != me).collect()
    };
    let Some(body) = encoded(question).map(Bytes::from) else { return Vec::new() };
    let mut asking = JoinSet::new();
    for node in others {
        let (cluster, body) = (api.0.cluster.clone(), body.clone());
        asking.spawn(async move {
            let told = cluster.ask_node(node, body, NEIGHBOUR_WAIT).await;
            let read = |told: Vec<u8>| serde_json::from_slice(&told).map_err(|_| NotTold::TooOld);
            (node, told.and_then(read))
        });
    }
    let mut told = asking.join_all().await;
    told.sort_by_key(|(node, _)| *node);
    told
}

/// What one other node answers.
pub(super) async fn ask_one<T: DeserializeOwned>(
    api: &Api,
    node: NodeId,
    question: &Question,
) -> Result<T, NotTold> {
    let body = encoded(question).map(Bytes::from).ok_or(NotTold::TooOld)?;
    let told = api.0.cluster.ask_node(node, body, NEIGHBOUR_WAIT).await?;
    serde_json::from_slice(&told).map_err(|_| NotTold::TooOld)
}

pub(super) fn encoded<T: Serialize>(answer: &T) -> Option<Vec<u8>> {
    serde_json::to_vec(answer).ok()
}
