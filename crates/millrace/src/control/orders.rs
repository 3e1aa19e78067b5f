//! Carries out what was asked: reads how things stand, and what `cluster::orders` says is to be changed.

use std::time::Duration;

use cluster::orders::{self, Next, Order, Peer, Task, View};
use cluster::{Answer as Told, ClusterHandle, Request as Ask, Ticket};
use machine::{CatalogCommand, CatalogReply, GroupId, NodeId, NodeInfo};

use tokio::sync::mpsc;

use super::{Answer, Described, Request, Running, Status};

/// How long the catalog may take for a change.
const CHANGE: Duration = Duration::from_secs(10);

/// How often is looked while an order waits.
const LOOK: Duration = Duration::from_millis(200);

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
    match run(cluster, Task::new(order), &words).await {
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
    change(cluster, command).await?;
    Ok("The catalog has taken the remark.".to_owned())
}

/// Carries out an order to its end.
async fn run(
    cluster: &ClusterHandle,
    mut task: Task,
    words: &mpsc::Sender<String>,
) -> Result<String, String> {
    let began = tokio::time::Instant::now();
    loop {
        let status = blocking(cluster, ClusterHandle::status).await?;
        let elapsed = began.elapsed();
        let next = next(&mut task, cluster, &status, elapsed);
        for said in task.take_words() {
            // Who does not listen misses it.
            let _ = words.try_send(said);
        }
        match next {
            Next::Change(commands) => {
                for command in commands {
                    change(cluster, command).await?;
                }
            }
            Next::Wait => tokio::time::sleep(LOOK).await,
            Next::Done(said) => return Ok(said),
            Next::Refused(why) => return Err(why),
        }
    }
}

fn next(
    task: &mut Task,
    cluster: &ClusterHandle,
    status: &cluster::Status,
    elapsed: Duration,
) -> Next {
    let peer = |peer: &cluster::PeerStatus| Peer {
        node: peer.node,
        is_up: peer.is_up,
        speaks: peer.speaks,
    };
    let peers: Vec<Peer> = status.peers.iter().map(peer).collect();
    let mut leaders = status
        .groups
        .iter()
        .map(|group| (group.group, group.leader))
        .chain(status.elsewhere.iter().map(|group| (group.group, group.leader)));
    let catalog_leader = leaders.find(|(group, _)| *group == GroupId::CATALOG);
    task.next(&View {
        now_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        node: cluster.node(),
        address: &status.address,
        speaks: cluster.speaks(),
        catalog: &cluster.catalog(),
        peers: &peers,
        groups: &status.groups,
        elsewhere: &status.elsewhere,
        catalog_leader: catalog_leader.and_then(|(_, leader)| leader),
    })
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
    let (node, address) = (joiner.node, joiner.address.clone());
    let admitted = orders::admit(&cluster.catalog(), joiner);
    let command = admitted.inspect_err(|why| {
        tracing::warn!(
            "refused node {} at {address}, which wants to join the cluster: {why}",
            node.0
        );
    })?;
    change(cluster, command).await?;
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
                    | Told::Withheld { .. }
                    | Told::Status { .. }
                    | Told::Described { .. }
                    | Told::Peeked { .. }
                    | Told::Locked { .. }
                    | Told::Closed { .. }
                    | Told::Admitted { .. }
                    | Told::Leaving(_)
                    | Told::Cancelled { .. }
                    | Told::SessionEnded { .. }
                    | Told::Alarms(_)
                    | Told::Elected { .. }
                    | Told::Stopping => {}
                }
            }
        }
        None
    };
    match tokio::time::timeout(CHANGE, asked).await {
        Ok(Some(reply)) => orders::refusal(&reply).map_or(Ok(()), Err),
        Ok(None) | Err(_) => Err(
            "the cluster did not agree in time: a majority of the nodes must be reachable. See \
             millrace cluster status"
                .to_owned(),
        ),
    }
}
