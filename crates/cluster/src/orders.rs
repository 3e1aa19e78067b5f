//! What an operator orders: members come, go and are replaced, groups move, the version is raised.
//!
//! A core: it is told how things stand and says what to change in the catalog. `millrace cluster` and the HTTP API run it on
//! the node that was asked, the simulator on nodes of its own.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use machine::limits::{REPLICAS, REPLICAS_MAX};
use machine::{
    Catalog, CatalogCommand, CatalogReply, Goal, GroupId, NodeId, NodeInfo, NodeStatus, Version,
};

use crate::shard::{Elsewhere, GroupReport};

/// Milliseconds that groups may take to let a node go.
pub const LEAVE_MS: u64 = 60_000;

/// The version since which leaders say who votes in their groups.
const VOTERS_SAID_SINCE: Version = Version::VOTERS_SAID;

/// One order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// A node may join, at this address.
    Add { node: NodeId, address: String },
    /// A node gives what it has to others and is no member any more. One that cannot be reached goes as it is.
    Remove { node: NodeId },
    /// The same, and another may join in its place.
    Replace { node: NodeId, by: NodeId },
    /// Groups go where they should be.
    Rebalance,
    /// So many nodes keep each group, or so many groups of each node if it says how many; the others keep three then.
    Replicas { count: usize, groups: Option<u32> },
    /// A node gives its groups away for a while.
    Drain { node: NodeId },
    /// The cluster agrees on the newest version that the node which is asked reads. `force`: also where others may be
    /// too old for it.
    Raise { force: bool },
}

/// How things stand, as the node sees it that carries an order out.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Milliseconds of a clock that only goes forward.
    pub now_ms: u64,
    pub node: NodeId,
    /// Where other nodes find it; empty: nowhere.
    pub address: &'a str,
    /// The newest version that it reads.
    pub speaks: Version,
    pub catalog: &'a Catalog,
    /// Without the node itself.
    pub peers: &'a [Peer],
    /// Of which the node has a replica.
    pub groups: &'a [GroupReport],
    /// Of which it has none.
    pub elsewhere: &'a [Elsewhere],
    pub catalog_leader: Option<NodeId>,
}

/// Another node.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub node: NodeId,
    /// It can be reached.
    pub is_up: bool,
    /// The newest version that it reads, as far as it is known.
    pub speaks: Option<Version>,
}

impl View<'_> {
    fn is_down(&self, node: NodeId) -> bool {
        self.peers.iter().any(|peer| peer.node == node && !peer.is_up)
    }

    fn is_up(&self, node: NodeId) -> bool {
        node == self.node || self.peers.iter().any(|peer| peer.node == node && peer.is_up)
    }

    /// How a node may be used.
    fn status(&self, node: NodeId, draining: Option<NodeId>) -> NodeStatus {
        if draining == Some(node) {
            NodeStatus::Draining
        } else if self.is_down(node) {
            NodeStatus::Down
        } else {
            NodeStatus::Serving
        }
    }

    /// Groups that have the node for a voter although the catalog does not want it, and those of which that is not
    /// known.
    fn counting_on(&self, node: NodeId) -> usize {
        let is_wanted = |group: GroupId| self.catalog.voters(group).contains(&node);
        let may_count = |leader: Option<NodeId>, counted: &Option<Vec<NodeId>>| {
            let says = counted.as_ref().map(|voters| voters.contains(&node));
            says.unwrap_or_else(|| !self.is_silent(leader))
        };
        // A replica here that is built anew knows of no change of voters.
        let counts = |group: &&GroupReport| {
            let knows = group.voters.contains(&node) || may_count(group.leader, &group.counted);
            !is_wanted(group.group) && knows
        };
        let may_count =
            |group: &&Elsewhere| !is_wanted(group.group) && may_count(group.leader, &group.counted);
        let elsewhere = self.elsewhere.iter().filter(may_count).count();
        self.groups.iter().filter(counts).count() + elsewhere
    }

    /// Whether the leader of a group is of a version that does not say who votes.
    fn is_silent(&self, leader: Option<NodeId>) -> bool {
        let leads = |peer: &&Peer| Some(peer.node) == leader;
        let peer = self.peers.iter().find(leads);
        peer.and_then(|peer| peer.speaks).is_some_and(|version| version < VOTERS_SAID_SINCE)
    }

    fn address_of(&self, node: NodeId) -> String {
        let address = self.catalog.node(node).map(|info| info.address.clone());
        address.filter(|address| !address.is_empty()).unwrap_or_else(|| "ADDR:PORT".to_owned())
    }

    /// What to start a node with, so that it joins.
    fn start_of(&self, node: NodeId, address: &str) -> String {
        format!(
            "Start it with an empty data directory, and what `millrace cluster token` prints in the file \
             SECRET: millrace serve --node-id {0} --peer-listen {address} --join {1} --set \
             cluster_secret_file=SECRET",
            node.0,
            self.address_of(self.node)
        )
    }
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Make these changes of the catalog, one after the other, each as soon as the one before it is made. One that
    /// the catalog refuses ends the order: [`refusal`] says why. At least one.
    Change(Vec<CatalogCommand>),
    /// Look again before long.
    Wait,
    /// It is carried out; for whoever gave it.
    Done(String),
    /// It is not carried out, or not to its end; for whoever gave it.
    Refused(String),
}

/// An order that is carried out.
#[derive(Debug)]
pub struct Task {
    order: Order,
    has_begun: bool,
    steps: VecDeque<Step>,
    /// Changes of groups that were needed.
    placed: usize,
    /// Of the node that is replaced.
    address: String,
    /// Since when groups are to let a node go, and how many were left when that was said last.
    waits_since_ms: Option<u64>,
    left: Option<usize>,
    words: Vec<String>,
}

#[derive(Clone, Debug)]
enum Step {
    Say(String),
    /// Without the node a majority of the others is in reach.
    HasMajorityWithout(NodeId),
    Place {
        draining: Option<NodeId>,
        goal: Goal,
    },
    Change(CatalogCommand),
    /// Until no group counts on the node.
    LetGo {
        node: NodeId,
        is_member: bool,
    },
}

impl Task {
    pub fn new(order: Order) -> Self {
        Self {
            order,
            has_begun: false,
            steps: VecDeque::new(),
            placed: 0,
            address: String::new(),
            waits_since_ms: None,
            left: None,
            words: Vec::new(),
        }
    }

    /// How far it is, in words that have not been taken yet.
    pub fn take_words(&mut self) -> Vec<String> {
        std::mem::take(&mut self.words)
    }

    /// What to do, as things stand. To be asked again when changes are made, or after a while.
    pub fn next(&mut self, view: &View<'_>) -> Next {
        self.go_on(view).unwrap_or_else(Next::Refused)
    }

    fn go_on(&mut self, view: &View<'_>) -> Result<Next, String> {
        if !self.has_begun {
            self.begin(view)?;
            self.has_begun = true;
        }
        let mut changes = Vec::new();
        while let Some(step) = self.steps.front().cloned() {
            match step {
                Step::Change(command) => changes.push(command),
                // What follows is about how things stand after the changes.
                _ if !changes.is_empty() => break,
                Step::Say(text) => self.words.push(text),
                Step::HasMajorityWithout(node) => has_majority_without(view, node)?,
                Step::Place { draining, goal } => {
                    let status = |node| view.status(node, draining);
                    let needed = view.catalog.placement_changes(status, goal);
                    self.steps.pop_front();
                    self.placed += needed.len();
                    for command in needed.into_iter().rev() {
                        self.steps.push_front(Step::Change(command));
                    }
                    continue;
                }
                Step::LetGo { node, is_member } => {
                    if !self.is_let_go(view, node, is_member)? {
                        return Ok(Next::Wait);
                    }
                }
            }
            self.steps.pop_front();
        }
        match changes.is_empty() {
            true => Ok(Next::Done(self.closing_words(view))),
            false => Ok(Next::Change(changes)),
        }
    }

    /// Whether the order may be carried out, and by which steps.
    fn begin(&mut self, view: &View<'_>) -> Result<(), String> {
        let mut steps = Vec::new();
        match &self.order {
            Order::Add { node, address } => {
                may_add(view, *node)?;
                // Its incarnation is told by the node itself, when it comes.
                let (node, address) = (*node, address.clone());
                steps.push(Step::Change(CatalogCommand::AddNode { node, address, incarnation: 0 }));
            }
            Order::Remove { node } => steps = leaving(view, *node)?,
            Order::Replace { node, by } => {
                may_replace(view, *node, *by)?;
                self.address = view.address_of(*node);
                steps = leaving(view, *node)?;
                // It may come at another address: then it says so.
                let (node, address) = (*by, self.address.clone());
                steps.push(Step::Change(CatalogCommand::AddNode { node, address, incarnation: 0 }));
            }
            Order::Rebalance => steps.push(Step::Place { draining: None, goal: Goal::Balance }),
            Order::Replicas { count, groups } => {
                may_keep(view, *count, *groups)?;
                let all = if *count == REPLICAS { 0 } else { view.catalog.groups_per_node() };
                let per_node = groups.unwrap_or(all);
                let command = CatalogCommand::SetWideGroups { per_node };
                if view.catalog.agreed() >= command.since() {
                    steps.push(Step::Change(command));
                    steps.push(Step::Place { draining: None, goal: Goal::Balance });
                } else {
                    let changes =
                        view.catalog.replica_changes(|node| view.status(node, None), *count);
                    self.placed = changes.len();
                    steps.extend(changes.into_iter().map(Step::Change));
                }
            }
            Order::Drain { node } => {
                is_member(view, *node)?;
                steps.push(Step::Place { draining: Some(*node), goal: Goal::Balance });
            }
            Order::Raise { force } => {
                if view.catalog.agreed() < view.speaks {
                    may_raise(view, *force)?;
                    steps.push(Step::Change(CatalogCommand::RaiseVersion { to: view.speaks }));
                    self.placed = 1;
                }
            }
        }
        self.steps = steps.into();
        Ok(())
    }

    fn closing_words(&self, view: &View<'_>) -> String {
        let count = self.placed;
        match &self.order {
            Order::Add { node, address } => {
                format!("Node {} at {address} may join. {}", node.0, view.start_of(*node, address))
            }
            Order::Remove { node }
                if view.elsewhere.iter().any(|group| view.is_silent(group.leader)) =>
            {
                format!(
                    "Node {} is no member any more. Leaders that run a program before version {VOTERS_SAID_SINCE} do not \
                 say who votes in their groups: if the node's process runs, leave it running until it ends by \
                 itself. Then its data can be removed.",
                    node.0
                )
            }
            Order::Remove { node } => format!(
                "Node {} is no member any more, and votes in no group. If its process runs, it ends by itself. Then \
                 its data can be removed.",
                node.0
            ),
            Order::Replace { node, by } => format!(
                "The old node {} is removed: it votes in no group, and the other nodes have all messages of its groups. \
                 Node {} may join. {}",
                node.0,
                by.0,
                view.start_of(*by, &self.address)
            ),
            Order::Rebalance => {
                format!("{count} group(s) get other voters or leaders; see millrace cluster status")
            }
            Order::Replicas { count: replicas, groups: Some(groups) } => format!(
                "{groups} group(s) of each node get {replicas} replicas, the others {REPLICAS}. {count} group(s) change, \
                 each as soon as a new replica has caught up; see millrace cluster status"
            ),
            Order::Replicas { count: replicas, groups: None } => format!(
                "{count} group(s) get {replicas} replicas, each as soon as a new one has caught up; see \
                 millrace cluster status"
            ),
            Order::Drain { node } => format!(
                "{count} group(s) move away from node {}. Stop the node when millrace cluster status shows that it \
                 leads no group; millrace cluster rebalance brings the groups back.",
                node.0
            ),
            Order::Raise { .. } if count == 0 => format!(
                "The cluster is at version {}, and this node knows no newer one.",
                view.catalog.agreed()
            ),
            Order::Raise { .. } => format!(
                "The cluster is at version {}. Nodes that cannot read it stop until they are upgraded.",
                view.speaks
            ),
        }
    }

    /// Whether no group counts on the node any more.
    fn is_let_go(
        &mut self,
        view: &View<'_>,
        node: NodeId,
        is_member: bool,
    ) -> Result<bool, String> {
        let left = view.counting_on(node);
        if left == 0 {
            (self.waits_since_ms, self.left) = (None, None);
            return Ok(true);
        }
        if self.left != Some(left) {
            self.left = Some(left);
            self.words.push(format!("{left} group(s) still count on node {}", node.0));
        }
        let since_ms = *self.waits_since_ms.get_or_insert(view.now_ms);
        if view.now_ms >= since_ms + LEAVE_MS {
            let state = if is_member { "is still a member" } else { "is no member any more" };
            return Err(format!(
                "node {} {state}, but {left} group(s) still count on it, or have no leader that says who votes: the \
                 replicas that take over are still behind, or most voters cannot be reached; see millrace cluster \
                 status, and ask again",
                node.0
            ));
        }
        Ok(false)
    }
}

/// Why the catalog did not make a change, if it refused it.
pub fn refusal(reply: &CatalogReply) -> Option<String> {
    match reply {
        CatalogReply::Refused(refusal) => Some(refusal.to_string()),
        CatalogReply::Done
        | CatalogReply::ExchangeDeclared { .. }
        | CatalogReply::QueueDeclared { .. }
        | CatalogReply::QueueDeleted { .. } => None,
    }
}

/// What makes a node a member that was added and has come now, with its own data directory.
pub fn admit(catalog: &Catalog, joiner: NodeInfo) -> Result<CatalogCommand, String> {
    let NodeInfo { node, address, incarnation } = joiner;
    let Some(known) = catalog.node(node).map(|known| known.incarnation) else {
        return Err(format!(
            "node {0} may not join: nobody has added it. Run `millrace cluster add {0} {address}` on a \
             member first",
            node.0
        ));
    };
    if known != 0 && known != incarnation {
        return Err(format!(
            "node {0} is a member, and this is not its data directory: take a number that no member has, \
             and, if the old node's disk is lost, run `millrace cluster replace {0} NEW` on a member first",
            node.0
        ));
    }
    Ok(CatalogCommand::AddNode { node, address, incarnation })
}

fn may_add(view: &View<'_>, node: NodeId) -> Result<(), String> {
    // A founder that is there and has not told of itself yet has come.
    let is_absent = |info: &&NodeInfo| {
        let has_come = info.incarnation != 0 || info.address.is_empty() || view.is_up(info.node);
        !has_come && info.node != node
    };
    if let Some(absent) = view.catalog.nodes().find(is_absent) {
        return Err(format!(
            "node {0} was added and has not come yet: start it with --join first, or take it out with \
             `millrace cluster remove {0}`. With more absent members, groups could lose their majority",
            absent.node.0
        ));
    }
    if view.address.is_empty() {
        return Err("this node has no peer port, so no node can join through it: start it \
                    again with --peer-listen ADDR:PORT"
            .to_owned());
    }
    Ok(())
}

fn may_replace(view: &View<'_>, node: NodeId, by: NodeId) -> Result<(), String> {
    let is_taken = view.catalog.node(by).is_some() || view.catalog.is_retired(by);
    if by == node || is_taken {
        return Err(format!(
            "node {0} cannot take the place of node {1}: take another number, one that no node ever had. \
             The new node does not have what node {1} has promised to keep, so it must not pass for that node",
            by.0, node.0
        ));
    }
    Ok(())
}

fn may_keep(view: &View<'_>, replicas: usize, groups: Option<u32>) -> Result<(), String> {
    if ![REPLICAS, REPLICAS_MAX].contains(&replicas) {
        return Err(format!(
            "a group cannot have {replicas} replicas: give {REPLICAS} or {REPLICAS_MAX}"
        ));
    }
    if let Some(groups) = groups {
        let (most, agreed) = (view.catalog.groups_per_node(), view.catalog.agreed());
        let since = CatalogCommand::SetWideGroups { per_node: groups }.since();
        if replicas != REPLICAS_MAX {
            return Err(format!(
                "--groups says how many groups of each node get {REPLICAS_MAX} replicas: give \
                 `millrace cluster replicas {REPLICAS_MAX} --groups {groups}`, or leave it out"
            ));
        }
        if !(1..=most).contains(&groups) {
            return Err(format!(
                "--groups {groups} is out of range: each node has {most} groups, so give a number from 1 to {most}"
            ));
        }
        if agreed < since {
            return Err(format!(
                "the cluster is at version {agreed}, and all groups have the same number of replicas \
                 before version {since}: upgrade all nodes first, or leave --groups out"
            ));
        }
    }
    let nodes = view.catalog.nodes().count();
    if nodes < replicas {
        return Err(format!(
            "there are {nodes} nodes, too few for {replicas} replicas: add nodes first; with fewer than \
             {REPLICAS}, each keeps all"
        ));
    }
    Ok(())
}

fn may_raise(view: &View<'_>, force: bool) -> Result<(), String> {
    let to = view.speaks;
    let lacks = |peer: &&Peer| peer.speaks.is_none_or(|version| version < to);
    let lacking: Vec<NodeId> = view.peers.iter().filter(lacks).map(|peer| peer.node).collect();
    if !lacking.is_empty() && !force {
        return Err(format!(
            "the cluster stays below version {to}: node(s) {} may be unable to read that version. Upgrade them, or \
             repeat the command with --force: a node that cannot read the version stops until it is upgraded",
            list(&lacking)
        ));
    }
    // It would leave the command out of the log.
    if let Some(old) = lacking.iter().find(|node| Some(**node) == view.catalog_leader) {
        return Err(format!(
            "the cluster stays below version {to}: node {} leads the catalog, and may be unable to read that version. \
             Upgrade or stop that node, and repeat the command when another node leads",
            old.0
        ));
    }
    Ok(())
}

fn is_member(view: &View<'_>, node: NodeId) -> Result<(), String> {
    if view.catalog.node(node).is_some() {
        return Ok(());
    }
    let nodes: Vec<NodeId> = view.catalog.nodes().map(|info| info.node).collect();
    Err(format!("node {} is not a member; the members are {}", node.0, list(&nodes)))
}

/// The steps by which a node goes.
fn leaving(view: &View<'_>, node: NodeId) -> Result<Vec<Step>, String> {
    if view.catalog.is_retired(node) {
        // An order before this one was cut short when the node was no member any more, and groups still counted on it.
        return Ok(vec![Step::LetGo { node, is_member: false }]);
    }
    is_member(view, node)?;
    if node == view.node {
        return Err(format!(
            "node {} cannot take itself out: ask another node, with the --data-dir of that node",
            node.0
        ));
    }
    has_majority_without(view, node)?;
    let mut steps = Vec::new();
    if !view.is_down(node) {
        // What it has goes to others while it can still give it.
        steps.extend([
            Step::Say(format!("node {} gives its groups to others", node.0)),
            Step::Place { draining: Some(node), goal: Goal::Repair },
            Step::LetGo { node, is_member: true },
            Step::HasMajorityWithout(node),
        ]);
    }
    steps.extend([
        Step::Say(format!("node {} is taken out of the list of members", node.0)),
        Step::Change(CatalogCommand::RemoveNode { node }),
        Step::LetGo { node, is_member: false },
    ]);
    Ok(steps)
}

fn has_majority_without(view: &View<'_>, node: NodeId) -> Result<(), String> {
    let rest: Vec<NodeId> =
        view.catalog.nodes().map(|info| info.node).filter(|other| *other != node).collect();
    let reached = rest.iter().filter(|other| !view.is_down(**other)).count();
    if reached * 2 <= rest.len() && !rest.is_empty() {
        return Err(format!(
            "without node {} only {reached} of {} nodes could be reached, which is no majority: bring the \
             others back first",
            node.0,
            rest.len()
        ));
    }
    Ok(())
}

fn list(nodes: &[NodeId]) -> String {
    nodes.iter().map(|node| node.0.to_string()).collect::<Vec<_>>().join(", ")
}
