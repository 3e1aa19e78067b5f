//! Carries out what was asked: reads how things stand, or changes the catalog's nodes and voters.

use std::time::Duration;

use cluster::{Answer as Told, ClusterHandle, Request as Ask, Ticket};
use machine::limits::{REPLICAS, REPLICAS_MAX};
use machine::{CatalogCommand, CatalogReply, Goal, GroupId, NodeId, NodeInfo, Standing};

use tokio::sync::mpsc;

use super::status::Node;
use super::{Answer, Request, Status};

/// How long the catalog may take for a change.
const CHANGE: Duration = Duration::from_secs(10);

/// How long groups may take to let a node go.
const LEAVE: Duration = Duration::from_secs(60);

/// How often is looked meanwhile.
const LOOK: Duration = Duration::from_millis(200);

const NO_STATUS: &str = "the node is too busy to say how it stands; ask again";

/// Carries out one request. What takes long says how far it is in `words`.
pub(super) async fn carry_out(
    request: Request,
    cluster: &ClusterHandle,
    words: mpsc::Sender<String>,
) -> Answer {
    let done = match request {
        Request::Status => {
            return status(cluster).await.map_or_else(Answer::Refused, Answer::Status);
        }
        Request::Add { node, address } => add(cluster, node, address).await,
        Request::Remove { node } => remove(cluster, node, &words).await,
        Request::Replace { node, by } => replace(cluster, node, by, &words).await,
        Request::Rebalance => rebalance(cluster).await,
        Request::Replicas { count } => replicas(cluster, count).await,
        Request::Drain { node } => drain(cluster, node).await,
        Request::Raise { force } => raise(cluster, force).await,
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
    let Some(known) = cluster.catalog().node(node).map(|known| known.incarnation) else {
        tracing::warn!("node {} at {address} wants to join, and nobody has added it", node.0);
        return Err(format!(
            "node {} may not join: nobody has added it. Run `millrace cluster add {} {address}` on a \
             member first",
            node.0, node.0
        ));
    };
    if known != 0 && known != incarnation {
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
    let nodes = status(cluster).await?.nodes;
    // A founder that is there and has not told of itself yet has come.
    let is_here = |id: u64| nodes.iter().any(|it| it.id == id && it.connected);
    let is_absent = |info: &&NodeInfo| is_absent(info, node) && !is_here(info.node.0);
    let absent = cluster.catalog().nodes().find(is_absent).cloned();
    if let Some(NodeInfo { node: absent, .. }) = absent {
        return Err(format!(
            "node {} was added and has not come yet: start it with --join first, or take it out with \
             `millrace cluster remove {}`. Groups would count on too many that are not there",
            absent.0, absent.0
        ));
    }
    let ours = nodes.into_iter().find(|ours| ours.id == cluster.node().0);
    if ours.is_none_or(|ours| ours.address.is_empty()) {
        return Err("this node has no peer port, so nobody can join it: start it again with \
                    --peer-listen ADDR:PORT"
            .to_owned());
    }
    let said = format!(
        "Node {node} at {address} may join. Start it with an empty data directory, and what `millrace \
         cluster token` prints in the file SECRET: millrace serve --node-id {node} --peer-listen \
         {address} --join {} --set cluster_secret_file=SECRET",
        address_of(cluster, cluster.node())
    );
    // Its incarnation is told by the node itself, when it comes.
    let command = CatalogCommand::AddNode { node: NodeId(node), address, incarnation: 0 };
    change(cluster, command).await?;
    Ok(said)
}

async fn remove(cluster: &ClusterHandle, node: u64, words: &Words) -> Result<String, String> {
    take_out(cluster, node, words).await?;
    Ok(format!("Node {node} is no member any more. Its process can be stopped, its data removed."))
}

async fn replace(
    cluster: &ClusterHandle,
    node: u64,
    by: u64,
    words: &Words,
) -> Result<String, String> {
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
    take_out(cluster, node, words).await?;
    // It may come at another address: then it says so.
    let (by_id, at) = (NodeId(by), address.clone());
    change(cluster, CatalogCommand::AddNode { node: by_id, address: at, incarnation: 0 }).await?;
    Ok(format!(
        "The old node {node} is forgotten: it votes nowhere, and what others have of its messages is \
         complete. Node {by} may join. Start it with an empty data directory, and what `millrace \
         cluster token` prints in the file SECRET: millrace serve --node-id {by} --peer-listen \
         {address} --join {} --set cluster_secret_file=SECRET",
        address_of(cluster, cluster.node())
    ))
}

/// Whether a node was added and did not come so far. `but`: the one that is added again.
fn is_absent(info: &NodeInfo, but: u64) -> bool {
    info.incarnation == 0 && !info.address.is_empty() && info.node.0 != but
}

async fn rebalance(cluster: &ClusterHandle) -> Result<String, String> {
    let down = down(cluster).await?;
    let count = place(cluster, |node| standing(&down, node, None), Goal::Balance).await?;
    Ok(format!("{count} group(s) get other voters or leaders; see millrace cluster status"))
}

async fn replicas(cluster: &ClusterHandle, count: usize) -> Result<String, String> {
    if ![REPLICAS, REPLICAS_MAX].contains(&count) {
        return Err(format!("{count} replicas: give {REPLICAS} or {REPLICAS_MAX}"));
    }
    let down = down(cluster).await?;
    let nodes = cluster.catalog().nodes().count();
    if nodes < count {
        return Err(format!(
            "there are {nodes} nodes, too few for {count} replicas: add nodes first; with fewer than \
             {REPLICAS}, each keeps all"
        ));
    }
    let changes = cluster.catalog().replica_changes(|node| standing(&down, node, None), count);
    let groups = carry(cluster, changes).await?;
    Ok(format!(
        "{groups} group(s) get {count} replicas, each as soon as a new one has caught up; see millrace \
         cluster status"
    ))
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

/// Raises the version to the newest that this node reads.
async fn raise(cluster: &ClusterHandle, force: bool) -> Result<String, String> {
    let (to, agreed) = (cluster.speaks(), cluster.catalog().agreed());
    if agreed >= to {
        return Ok(format!(
            "The cluster is at version {agreed}, and this node knows no newer one."
        ));
    }
    let status = status(cluster).await?;
    let lacks = |node: &&Node| node.version_max.is_none_or(|version| version < to.0);
    let lacking: Vec<&Node> = status.nodes.iter().filter(lacks).collect();
    if !lacking.is_empty() && !force {
        return Err(format!(
            "version {to} is not raised: of node(s) {} it is not known that they can read it. Upgrade them, or \
             raise it all the same with --force: a node that cannot read it stops, and goes on once it is \
             upgraded",
            lacking.iter().map(|node| node.id.to_string()).collect::<Vec<String>>().join(", ")
        ));
    }
    // It would leave the command out of the log.
    let leader = status.leader(GroupId::CATALOG.0);
    if let Some(old) = lacking.iter().find(|node| Some(node.id) == leader) {
        return Err(format!(
            "version {to} is not raised: node {} leads the catalog, and it is not known that it can read it. \
             Upgrade or stop that node, and ask again once another leads",
            old.id
        ));
    }
    change(cluster, CatalogCommand::RaiseVersion { to }).await?;
    Ok(format!(
        "The cluster is at version {to}. Nodes that cannot read it stop until they are upgraded."
    ))
}

/// Sends the changes that bring groups where they should be.
async fn place(
    cluster: &ClusterHandle,
    standing: impl Fn(NodeId) -> Standing,
    goal: Goal,
) -> Result<usize, String> {
    let changes = cluster.catalog().placement_changes(standing, goal);
    carry(cluster, changes).await
}

async fn carry(cluster: &ClusterHandle, changes: Vec<CatalogCommand>) -> Result<usize, String> {
    let count = changes.len();
    for command in changes {
        change(cluster, command).await?;
    }
    Ok(count)
}

/// Removes a node, and waits until no group that is kept here counts on it.
async fn take_out(cluster: &ClusterHandle, node: u64, words: &Words) -> Result<(), String> {
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
        tell(words, format!("node {node} gives its groups to others"));
        place(cluster, |other| standing(&down, other, Some(node)), Goal::Repair).await?;
        until_nobody_counts_on(cluster, node, "is still a member", words).await?;
    }
    tell(words, format!("node {node} is taken out of the list of members"));
    change(cluster, CatalogCommand::RemoveNode { node: NodeId(node) }).await?;
    until_nobody_counts_on(cluster, node, "is no member any more", words).await
}

/// To whoever asked. Who does not listen misses it.
type Words = mpsc::Sender<String>;

fn tell(words: &Words, text: String) {
    let _ = words.try_send(text);
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
    words: &Words,
) -> Result<(), String> {
    let deadline = tokio::time::Instant::now() + LEAVE;
    let mut told = None;
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
        if told != Some(left) {
            told = Some(left);
            tell(words, format!("{left} group(s) still count on node {node}"));
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
