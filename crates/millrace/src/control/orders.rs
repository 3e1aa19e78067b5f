//! Carries out what was asked.

use cluster::ClusterHandle;
use cluster::io::orders as carrying;
use cluster::orders::{self, Order};
use machine::{CatalogCommand, CatalogReply, NodeId, NodeInfo};

use tokio::sync::mpsc;

use super::{Answer, Described, Request, Running, Status};

const NO_STATUS: &str = "the node is too busy to report its status; repeat the command";

/// Carries out one request. What takes long says how far it is in `words`.
pub(super) async fn carry_out(
    request: Request,
    running: &Running,
    words: mpsc::Sender<String>,
) -> Answer {
    let cluster = &running.cluster;
    let order = match request {
        Request::Describe { what } => {
            let described = Described::of(what, running).await;
            return described.map_or_else(Answer::Refused, Answer::Described);
        }
        Request::Status => {
            let status = blocking(cluster, Status::of).await;
            return status.map_or_else(Answer::Refused, Answer::Status);
        }
        Request::Remark { text } => {
            return remark(cluster, text).await.map_or_else(Answer::Refused, Answer::Done);
        }
        Request::Add { node, address } => Order::Add { node: NodeId(node), address },
        Request::Remove { node } => Order::Remove { node: NodeId(node) },
        Request::Replace { node, by } => Order::Replace { node: NodeId(node), by: NodeId(by) },
        Request::Rebalance => Order::Rebalance,
        Request::Replicas { count, groups } => Order::Replicas { count, groups },
        Request::Drain { node } => Order::Drain { node: NodeId(node) },
        Request::Raise { force } => Order::Raise { force },
    };
    // Who does not listen misses it.
    let say = |said| drop(words.try_send(said));
    match carrying::carry_out(cluster, order, say).await {
        Ok(said) => Answer::Done(said),
        Err(why) => Answer::Refused(why),
    }
}

/// What is too new is refused before it is proposed, as a session does.
async fn remark(cluster: &ClusterHandle, text: String) -> Result<String, String> {
    let command = CatalogCommand::Remark { text };
    let checked = cluster.catalog().check(&command);
    if let Some(why) = checked.err().and_then(|why| orders::refusal(&CatalogReply::Refused(why))) {
        return Err(why);
    }
    carrying::change(cluster, command).await?;
    Ok("The catalog has taken the remark.".to_owned())
}

/// Tells the cluster about this node.
pub(super) async fn announce(cluster: &ClusterHandle, ours: NodeInfo) -> Result<(), String> {
    let NodeInfo { node, address, incarnation } = ours;
    carrying::change(cluster, CatalogCommand::AddNode { node, address, incarnation }).await
}

/// Takes in a node that wants to join. Says who the members are then.
pub(super) async fn admit(
    cluster: &ClusterHandle,
    joiner: NodeInfo,
) -> Result<Vec<NodeInfo>, String> {
    let (node, address) = (joiner.node, joiner.address.clone());
    let admitted = orders::admit(&cluster.catalog(), joiner);
    let command = admitted.inspect_err(|why| {
        tracing::warn!(
            "refused node {} at {address}, which wants to join the cluster: {why}",
            node.0
        );
    })?;
    carrying::change(cluster, command).await?;
    tracing::info!("node {} has joined the cluster", node.0);
    Ok(cluster.catalog().nodes().cloned().collect())
}

/// Asks the shards, which takes a step of theirs.
async fn blocking<T: Send + 'static>(
    cluster: &ClusterHandle,
    ask: impl FnOnce(&ClusterHandle) -> Option<T> + Send + 'static,
) -> Result<T, String> {
    let cluster = cluster.clone();
    let asked = tokio::task::spawn_blocking(move || ask(&cluster)).await;
    asked.ok().flatten().ok_or_else(|| NO_STATUS.to_owned())
}
