//! Carries out what was asked: reads how things stand, or changes the catalog's nodes and voters.

use std::time::Duration;

use cluster::{Answer as Told, ClusterHandle, Request as Ask, Ticket};
use machine::{CatalogCommand, CatalogReply, Goal, NodeId, NodeInfo, Standing};

use super::{Answer, Request, Status};

/// How long the catalog may take for a change.
const CHANGE: Duration = Duration::from_secs(10);

/// How long groups may take to let a node go.
const LEAVE: Duration = Duration::from_secs(60);

/// How often is looked meanwhile.
const LOOK: Duration = Duration::from_millis(200);

const NO_STATUS: &str = "the node is too busy to say how it stands; ask again";

/// Carries out one request.
pub(super) async fn carry_out(request: Request, cluster: &ClusterHandle) -> Answer {
    let done = match request {
        Request::Status => {
            return status(cluster).await.map_or_else(Answer::Refused, Answer::Status);
        }
        Request::Add { node, address } => add(cluster, node, address).await,
        Request::Remove { node } => remove(cluster, node).await,
        Request::Replace { node } => replace(cluster, node).await,
        Request::Rebalance => rebalance(cluster).await,
        Request::Drain { node } => drain(cluster, node).await,
    };
    done.map_or_else(Answer::Refused, Answer::Done)
}

/// Tells the cluster about this node.
pub(super) async fn announce(cluster: &ClusterHandle, ours: NodeInfo) -> Result<(), String> {
    let NodeInfo { node, address, incarnation } = ours;
    change(cluster, CatalogCommand::AddNode { node, address, incarnation }).await
}

/// Takes in a node that wants to join. Says who the members are then.
pub(super) async fn admit(
    cluster: &ClusterHandle,
    joiner: NodeInfo,
) -> Result<Vec<NodeInfo>, String> {
    let NodeInfo { node, address, incarnation } = joiner;
    let known = cluster.catalog().node(node).map(|known| known.incarnation);
    if known.is_some_and(|known| known != 0 && known != incarnation) {
        return Err(format!(
            "node {} is a member, and this is not its data directory: take a number that no member has, \
             or, if the old node's disk is lost, run `millrace cluster replace {}` on a member first",
            node.0, node.0
        ));
    }
    // Groups in which its number still votes count on what an earlier node of that number promised.
    let votes = |group: &super::Group| group.voters.contains(&node.0);
    if known.is_none() && status(cluster).await?.groups.iter().any(votes) {
        return Err(format!(
            "groups still count on an earlier node {}: run `millrace cluster remove {}` on a member, \
             and ask again when it is done",
            node.0, node.0
        ));
    }
    change(cluster, CatalogCommand::AddNode { node, address, incarnation }).await?;
    tracing::info!("node {} joins", node.0);
    Ok(cluster.catalog().nodes().cloned().collect())
}

async fn status(cluster: &ClusterHandle) -> Result<Status, String> {
    let cluster = cluster.clone();
    let asked = tokio::task::spawn_blocking(move || Status::of(&cluster)).await;
    asked.ok().flatten().ok_or_else(|| NO_STATUS.to_owned())
}

async fn add(cluster: &ClusterHandle, node: u64, address: String) -> Result<String, String> {
    let ours = status(cluster).await?.nodes.into_iter().find(|ours| ours.id == cluster.node().0);
    if ours.is_none_or(|ours| ours.address.is_empty()) {
        return Err("this node has no peer port, so nobody can join it: start it again with \
                    --peer-listen ADDR:PORT"
            .to_owned());
    }
    let said = format!(
        "Node {node} at {address} is a member. Start it with an empty data directory: millrace serve \
         --node-id {node} --peer-listen {address} --join {}",
        address_of(cluster, cluster.node())
    );
    // Its incarnation is told by the node itself, when it comes.
    let command = CatalogCommand::AddNode { node: NodeId(node), address, incarnation: 0 };
    change(cluster, command).await?;
    Ok(said)
}

async fn remove(cluster: &ClusterHandle, node: u64) -> Result<String, String> {
    take_out(cluster, node).await?;
    Ok(format!("Node {node} is no member any more. Its process can be stopped, its data removed."))
}

async fn replace(cluster: &ClusterHandle, node: u64) -> Result<String, String> {
    let address = address_of(cluster, NodeId(node));
    take_out(cluster, node).await?;
    Ok(format!(
        "The old node {node} is forgotten: it votes nowhere, and what others have of its messages is \
         complete. Start the new one with an empty data directory: millrace serve --node-id {node} \
         --peer-listen {address} --join {}",
        address_of(cluster, cluster.node())
    ))
}

async fn rebalance(cluster: &ClusterHandle) -> Result<String, String> {
    let down = down(cluster).await?;
    let standing = |node: NodeId| match down.contains(&node.0) {
        true => Standing::Down,
        false => Standing::Serving,
    };
    let count = place(cluster, standing).await?;
    Ok(format!("{count} group(s) get other voters or leaders; see millrace cluster status"))
}

async fn drain(cluster: &ClusterHandle, node: u64) -> Result<String, String> {
    known(cluster, node)?;
    let down = down(cluster).await?;
    let standing = |other: NodeId| match other.0 {
        other if other == node => Standing::Draining,
        other if down.contains(&other) => Standing::Down,
        _ => Standing::Serving,
    };
    let count = place(cluster, standing).await?;
    Ok(format!(
        "{count} group(s) move away from node {node}. When millrace cluster status shows that it leads \
         none, it can be stopped; millrace cluster rebalance brings them back."
    ))
}

/// Sends the changes that bring groups where they should be.
async fn place(
    cluster: &ClusterHandle,
    standing: impl Fn(NodeId) -> Standing,
) -> Result<usize, String> {
    let changes = cluster.catalog().placement_changes(standing, Goal::Balance);
    let count = changes.len();
    for command in changes {
        change(cluster, command).await?;
    }
    Ok(count)
}

/// Removes a node, and waits until no group that is kept here counts on it.
async fn take_out(cluster: &ClusterHandle, node: u64) -> Result<(), String> {
    known(cluster, node)?;
    if node == cluster.node().0 {
        return Err(format!(
            "this is node {node} itself: ask another node, with --data-dir of that one"
        ));
    }
    change(cluster, CatalogCommand::RemoveNode { node: NodeId(node) }).await?;
    let deadline = tokio::time::Instant::now() + LEAVE;
    loop {
        let status = status(cluster).await?;
        let counts = |group: &&super::Group| group.voters.contains(&node);
        let left = status.groups.iter().filter(counts).count();
        if left == 0 {
            return Ok(());
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(format!(
                "node {node} is no member any more, but {left} group(s) still count on it: most of \
                 their voters cannot be reached; see millrace cluster status, and ask again"
            ));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn known(cluster: &ClusterHandle, node: u64) -> Result<(), String> {
    let catalog = cluster.catalog();
    if catalog.node(NodeId(node)).is_some() {
        return Ok(());
    }
    let nodes: Vec<_> = catalog.nodes().map(|info| info.node.0.to_string()).collect();
    Err(format!("node {node} is not a member; the members are {}", nodes.join(", ")))
}

async fn down(cluster: &ClusterHandle) -> Result<Vec<u64>, String> {
    let nodes = status(cluster).await?.nodes;
    Ok(nodes.into_iter().filter(|node| !node.connected).map(|node| node.id).collect())
}

fn address_of(cluster: &ClusterHandle, node: NodeId) -> String {
    let catalog = cluster.catalog();
    let address = catalog.node(node).map(|info| info.address.clone());
    address.filter(|address| !address.is_empty()).unwrap_or_else(|| "ADDR:PORT".to_owned())
}

/// One change of the catalog, on every node's way.
async fn change(cluster: &ClusterHandle, command: CatalogCommand) -> Result<(), String> {
    let (session, mut told) = cluster.open_session();
    let ticket = Ticket(1);
    let asked = async {
        if !cluster.submit(session, &mut vec![Ask::Catalog { ticket, command }]).await {
            return None;
        }
        let mut answers = Vec::new();
        while told.recv(&mut answers).await {
            for answer in answers.drain(..) {
                match answer {
                    Told::Catalog { reply, .. } => return Some(reply),
                    Told::AppendFailed { .. } => return None,
                    Told::Appended { .. }
                    | Told::Attached { .. }
                    | Told::Detached { .. }
                    | Told::Delivered(_)
                    | Told::Got { .. }
                    | Told::Purged { .. }
                    | Told::Status { .. }
                    | Told::Closed { .. }
                    | Told::Cancelled { .. }
                    | Told::SessionEnded { .. }
                    | Told::Alarms(_)
                    | Told::Stopping => {}
                }
            }
        }
        None
    };
    match tokio::time::timeout(CHANGE, asked).await {
        Ok(Some(CatalogReply::Refused(refusal))) => Err(match refusal {
            machine::Refusal::Membership(problem) => problem.to_string(),
            other => format!("{other:?}"),
        }),
        Ok(Some(_)) => Ok(()),
        Ok(None) | Err(_) => Err("the cluster did not agree in time: most of the nodes must be \
                                  reachable; see millrace cluster status"
            .to_owned()),
    }
}
