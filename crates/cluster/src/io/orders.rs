//! Carries out what an operator orders: reads how things stand, and makes the changes that [`crate::orders`] says.

use std::time::Duration;

use machine::{CatalogCommand, GroupId};

use super::handle::{ClusterHandle, Status};
use crate::orders::{self, Next, Order, Peer, Task, View};

/// How long the catalog may take for a change.
const CHANGE_WAIT: Duration = Duration::from_secs(10);
/// How often is looked while an order waits.
const LOOK: Duration = Duration::from_millis(200);

const NO_STATUS: &str = "the node is too busy to report its status; repeat the command";
const NOT_AGREED: &str = "the cluster did not agree in time: a majority of the nodes must be reachable. See millrace \
                          cluster status";

/// Carries out an order to its end, and gives its closing words. `say` is told how far it is.
///
/// # Errors
/// In words: it is not carried out, or not to its end.
pub async fn carry_out(
    cluster: &ClusterHandle,
    order: Order,
    mut say: impl FnMut(String),
) -> Result<String, String> {
    let mut task = Task::new(order);
    let began = tokio::time::Instant::now();
    loop {
        let next = next_of(cluster, &mut task, began.elapsed()).await?;
        task.take_words().into_iter().for_each(&mut say);
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

/// The changes with which an order would begin, as things stand.
///
/// # Errors
/// In words: it would not be carried out.
pub async fn foresee(cluster: &ClusterHandle, order: Order) -> Result<Vec<CatalogCommand>, String> {
    match next_of(cluster, &mut Task::new(order), Duration::ZERO).await? {
        Next::Change(commands) => Ok(commands),
        Next::Wait | Next::Done(_) => Ok(Vec::new()),
        Next::Refused(why) => Err(why),
    }
}

/// One change of the catalog, on every node's way.
///
/// # Errors
/// In words: it was refused, or nobody knows whether it was made.
pub async fn change(cluster: &ClusterHandle, command: CatalogCommand) -> Result<(), String> {
    match cluster.change(command, CHANGE_WAIT).await {
        Ok(reply) => orders::refusal(&reply).map_or(Ok(()), Err),
        Err(_) => Err(NOT_AGREED.to_owned()),
    }
}

async fn next_of(
    cluster: &ClusterHandle,
    task: &mut Task,
    elapsed: Duration,
) -> Result<Next, String> {
    // It asks the shards, which takes a step of theirs.
    let asked = cluster.clone();
    let status = tokio::task::spawn_blocking(move || asked.status()).await;
    let status = status.ok().flatten().ok_or_else(|| NO_STATUS.to_owned())?;
    Ok(next_with(cluster, task, &status, elapsed))
}

fn next_with(cluster: &ClusterHandle, task: &mut Task, status: &Status, elapsed: Duration) -> Next {
    let peers = status.peers.iter();
    let peers = peers.map(|it| Peer { node: it.node, is_up: it.is_up, speaks: it.speaks });
    let peers: Vec<Peer> = peers.collect();
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
