//! How the cluster stands, as one node sees it: for programs as JSON, for people as a table.

use std::collections::BTreeMap;
use std::fmt;

use cluster::ClusterHandle;
use cluster::shard::GroupReport;
use machine::{Catalog, GroupId};
use serde::{Deserialize, Serialize};

/// What `millrace cluster status --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// Who says so.
    pub(crate) node: u64,
    /// In hexadecimal.
    pub(crate) cluster: String,
    /// The version that the cluster has agreed on: nothing newer is written.
    #[serde(default)]
    pub(crate) version: u16,
    pub(crate) nodes: Vec<Node>,
    /// How many groups of queues are to have so many voters, where there are as many nodes.
    #[serde(default)]
    pub(crate) replicas: BTreeMap<usize, usize>,
    /// Of which the node has a replica.
    pub(crate) groups: Vec<Group>,
    /// Groups of which it has none.
    #[serde(default)]
    pub(crate) elsewhere: Vec<Elsewhere>,
    pub(crate) queues: Vec<Queue>,
}

/// A group that other nodes keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Elsewhere {
    pub(crate) group: u32,
    /// As was last heard.
    pub(crate) leader: Option<u64>,
    pub(crate) voters: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) address: String,
    pub(crate) connected: bool,
    /// The newest version that it reads, as far as it is known.
    #[serde(default)]
    pub(crate) version_max: Option<u16>,
    /// Why it is not connected, as far as is known.
    pub(crate) trouble: Option<String>,
    /// Groups that it leads, as far as the node that was asked knows: of all groups.
    pub(crate) leads: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) group: u32,
    pub(crate) leader: Option<u64>,
    pub(crate) term: u64,
    pub(crate) applied: u64,
    pub(crate) committed: u64,
    pub(crate) persisted: u64,
    pub(crate) voters: Vec<u64>,
    pub(crate) learners: Vec<u64>,
    /// Entries that each replica has not on its disk yet; the leader knows.
    pub(crate) lag: BTreeMap<u64, u64>,
    /// Of the state at `applied`, in hexadecimal.
    pub(crate) digest: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Queue {
    pub(crate) vhost: String,
    pub(crate) name: String,
    pub(crate) group: u32,
}

impl Status {
    /// How it stands now. Blocks for a step of the shards; `None`: they do not come to it.
    pub(super) fn of(cluster: &ClusterHandle) -> Option<Self> {
        let cluster::Status { identity, address, peers, groups, elsewhere } = cluster.status()?;
        let groups: Vec<Group> = groups.iter().map(Group::of).collect();
        let elsewhere: Vec<Elsewhere> = elsewhere.iter().map(Elsewhere::of).collect();
        let leads = |id| {
            let here = groups.iter().map(|group| group.leader);
            let all = here.chain(elsewhere.iter().map(|group| group.leader));
            all.filter(|leader| *leader == Some(id)).count()
        };
        let catalog = cluster.catalog();
        let mut nodes: Vec<Node> = peers
            .into_iter()
            .map(|peer| Node {
                id: peer.node.0,
                address: peer.address,
                connected: peer.is_up,
                version_max: peer.speaks.map(|version| version.0),
                trouble: peer.trouble.filter(|_| !peer.is_up),
                leads: leads(peer.node.0),
            })
            .collect();
        nodes.push(Node {
            id: identity.node,
            address,
            connected: true,
            version_max: Some(cluster.speaks().0),
            trouble: None,
            leads: leads(identity.node),
        });
        nodes.sort_by_key(|node| node.id);
        Some(Self {
            node: identity.node,
            cluster: format!("{:032x}", identity.cluster),
            version: catalog.agreed().0,
            nodes,
            replicas: replicas(&catalog),
            groups,
            elsewhere,
            queues: queues(&catalog),
        })
    }
}

fn replicas(catalog: &Catalog) -> BTreeMap<usize, usize> {
    let mut groups = BTreeMap::new();
    for group in 1..=catalog.group_count() {
        *groups.entry(catalog.replicas(GroupId(group))).or_default() += 1;
    }
    groups
}

fn queues(catalog: &Catalog) -> Vec<Queue> {
    let queue = |queue: &machine::Queue| Queue {
        vhost: queue.vhost.clone(),
        name: queue.name.clone(),
        group: queue.group.0,
    };
    catalog.queues().map(queue).collect()
}

impl Group {
    fn of(report: &GroupReport) -> Self {
        let last = report.matched.iter().map(|(_, matched)| *matched).max().unwrap_or(0);
        let last = last.max(report.persisted);
        let ids = |nodes: &[machine::NodeId]| {
            let mut ids: Vec<u64> = nodes.iter().map(|node| node.0).collect();
            ids.sort_unstable();
            ids
        };
        Self {
            group: report.group.0,
            leader: report.leader.map(|node| node.0),
            term: report.term,
            applied: report.applied,
            committed: report.committed,
            persisted: report.persisted,
            voters: ids(&report.voters),
            learners: ids(&report.learners),
            lag: report.matched.iter().map(|(node, at)| (node.0, last - at)).collect(),
            digest: format!("{:016x}", report.digest),
        }
    }
}

impl Elsewhere {
    fn of(report: &cluster::shard::Elsewhere) -> Self {
        let mut voters: Vec<u64> = report.voters.iter().map(|node| node.0).collect();
        voters.sort_unstable();
        Self { group: report.group.0, leader: report.leader.map(|node| node.0), voters }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, cluster, version, nodes, replicas, groups, elsewhere, queues } = self;
        writeln!(
            out,
            "Cluster {cluster} at version {version}, as node {node} sees it: {} queue(s)\n",
            queues.len()
        )?;
        writeln!(out, "{:<6}{:<24}{:<8}{:<9}Leads", "Node", "Address", "State", "Version")?;
        for node in nodes {
            let state = if node.connected { "up" } else { "DOWN" };
            let reads = node.version_max.map_or_else(|| "-".to_owned(), |reads| reads.to_string());
            writeln!(out, "{:<6}{:<24}{state:<8}{reads:<9}{}", node.id, node.address, node.leads)?;
            if let Some(trouble) = &node.trouble {
                writeln!(out, "      {trouble}")?;
            }
        }
        let class = |(count, groups): (&usize, &usize)| format!("{count} for {groups} group(s)");
        let classes: Vec<String> = replicas.iter().map(class).collect();
        writeln!(out, "\nReplicas wanted: {}", classes.join(", "))?;
        let heads = ["Group", "Leader", "Term", "Committed", "Applied", "Voters"];
        writeln!(out)?;
        for head in heads {
            write!(out, "{head:<11}")?;
        }
        writeln!(out, "Behind")?;
        for group in groups {
            let leader =
                group.leader.map_or_else(|| "none".to_owned(), |leader| leader.to_string());
            let mut voters = list(&group.voters);
            if !group.learners.is_empty() {
                voters.push_str(&format!("+{}", list(&group.learners)));
            }
            let columns = [
                if group.group == 0 { "catalog".to_owned() } else { group.group.to_string() },
                leader,
                group.term.to_string(),
                group.committed.to_string(),
                group.applied.to_string(),
                voters,
            ];
            for column in columns {
                write!(out, "{column:<11}")?;
            }
            writeln!(out, "{}", behind(group))?;
        }
        for Elsewhere { group, leader, voters } in elsewhere {
            let leader = leader.map_or_else(|| "none".to_owned(), |leader| leader.to_string());
            let (group, unknown) = (group.to_string(), "-");
            write!(out, "{group:<11}{leader:<11}{unknown:<11}{unknown:<11}{unknown:<11}")?;
            writeln!(out, "{:<11}run this on a voter", list(voters))?;
        }
        Ok(())
    }
}

fn list(nodes: &[u64]) -> String {
    nodes.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

/// Who is how far behind; only a group's leader can say.
fn behind(group: &Group) -> String {
    if group.lag.is_empty() {
        return "run this on its leader".to_owned();
    }
    let late: Vec<_> = group.lag.iter().filter(|(_, lag)| **lag > 0).collect();
    if late.is_empty() {
        return "nobody".to_owned();
    }
    let say = |(node, lag): &(&u64, &u64)| format!("node {node} by {lag}");
    late.iter().map(say).collect::<Vec<_>>().join(", ")
}
