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
        Request::Replace { node, by } => replace(cluster, node, by).await,
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
             and, if the old node's disk is lost, run `millrace cluster replace {} NEW` on a member first",
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

async fn replace(cluster: &ClusterHandle, node: u64, by: u64) -> Result<String, String> {
    let is_taken = |catalog: &machine::Catalog| {
        catalog.node(NodeId(by)).is_some() || catalog.is_retired(NodeId(by))
    };
    if by == node || is_taken(&cluster.catalog()) {
        return Err(format!(
            "node {by} cannot take the place of node {node}: take another number, one that no node ever \
             had. Who comes without what node {node} has promised must not be taken for it"
        ));
    }
    let address = address_of(cluster, NodeId(node));
    take_out(cluster, node).await?;
    Ok(format!(
        "The old node {node} is forgotten: it votes nowhere, and what others have of its messages is \
         complete. Start the new one with an empty data directory: millrace serve --node-id {by} \
         --peer-listen {address} --join {}",
        address_of(cluster, cluster.node())
    ))
}

async fn rebalance(cluster: &ClusterHandle) -> Result<String, String> {
    let down = down(cluster).await?;
    let count = place(cluster, |node| standing(&down, node, None), Goal::Balance).await?;
    Ok(format!("{count} group(s) get other voters or leaders; see millrace cluster status"))
}

async fn drain(cluster: &ClusterHandle, node: u64) -> Result<String, String> {
    known(cluster, node)?;
    let down = down(cluster).await?;
    let draining = |other| standing(&down, other, Some(node));
    let count = place(cluster, draining, Goal::Balance).await?;
    Ok(format!(
        "{count} group(s) move away from node {node}. When millrace cluster status shows that it leads \
         none, it can be stopped; millrace cluster rebalance brings them back."
    ))
}

/// Sends the changes that bring groups where they should be.
async fn place(
    cluster: &ClusterHandle,
    standing: impl Fn(NodeId) -> Standing,
    goal: Goal,
) -> Result<usize, String> {
    let changes = cluster.catalog().placement_changes(standing, goal);
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
    let down = down(cluster).await?;
    let rest: Vec<u64> =
        cluster.catalog().nodes().map(|info| info.node.0).filter(|other| *other != node).collect();
    let reached = rest.iter().filter(|other| !down.contains(other)).count();
    if reached * 2 <= rest.len() && !rest.is_empty() {
        return Err(format!(
            "without node {node} only {reached} of {} nodes could be reached, which is no majority: \
             bring the others back first",
            rest.len()
        ));
    }
    if !down.contains(&node) {
        // What it has goes to others while it can still give it.
        place(cluster, |other| standing(&down, other, Some(node)), Goal::Repair).await?;
        until_nobody_counts_on(cluster, node, "is still a member").await?;
    }
    change(cluster, CatalogCommand::RemoveNode { node: NodeId(node) }).await?;
    until_nobody_counts_on(cluster, node, "is no member any more").await
}

/// How `node` may be used.
fn standing(down: &[u64], node: NodeId, draining: Option<u64>) -> Standing {
    if draining == Some(node.0) {
        Standing::Draining
    } else if down.contains(&node.0) {
        Standing::Down
    } else {
        Standing::Serving
    }
}

/// Waits until no group that is kept here has a voter that the catalog does not want.
async fn until_nobody_counts_on(
    cluster: &ClusterHandle,
    node: u64,
    state: &str,
) -> Result<(), String> {
    let deadline = tokio::time::Instant::now() + LEAVE;
    loop {
        let status = status(cluster).await?;
        let is_wanted =
            |group: u32| cluster.catalog().voters(machine::GroupId(group)).contains(&NodeId(node));
        let counts =
            |group: &&super::Group| group.voters.contains(&node) && !is_wanted(group.group);
        let left = status.groups.iter().filter(counts).count();
        if left == 0 {
            return Ok(());
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(format!(
                "node {node} {state}, but {left} group(s) still count on it: those who take over are \
                 not near yet, or most voters cannot be reached; see millrace cluster status, and ask \
                 again"
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
                    | Told::Admitted { .. }
                    | Told::Leaving(_)
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
