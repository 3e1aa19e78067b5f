//! What a node says about its cluster: `millrace cluster status --json`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;

use super::broker::Setup;

/// One node's view.
#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    pub node: u32,
    /// The members that it knows.
    #[serde(default)]
    pub nodes: Vec<Member>,
    pub groups: Vec<Group>,
    /// Groups that others keep.
    #[serde(default)]
    pub elsewhere: Vec<Elsewhere>,
    #[serde(default)]
    pub queues: Vec<Queue>,
}

/// One group, as a member sees it.
#[derive(Clone, Debug, Deserialize)]
pub struct Group {
    pub group: u32,
    pub leader: Option<u32>,
    pub term: u64,
    /// The last entry that this member has applied.
    pub applied: u64,
    #[serde(default)]
    pub committed: u64,
    /// The last entry on this member's disk.
    #[serde(default)]
    pub persisted: u64,
    #[serde(default)]
    pub voters: BTreeSet<u32>,
    /// Of its state at that entry, where it tells.
    #[serde(default)]
    pub digest: Option<String>,
}

/// A member, as another sees it.
#[derive(Clone, Debug, Deserialize)]
pub struct Member {
    pub id: u32,
}

/// A group that this node has no replica of.
#[derive(Clone, Debug, Deserialize)]
pub struct Elsewhere {
    pub group: u32,
    /// As was last heard.
    pub leader: Option<u32>,
}

/// Where a queue lives.
#[derive(Clone, Debug, Deserialize)]
pub struct Queue {
    pub name: String,
    pub group: u32,
}

impl Status {
    pub fn leader_of(&self, queue: &str) -> Option<u32> {
        let group = self.queues.iter().find(|known| known.name == queue)?.group;
        self.groups.iter().find(|known| known.group == group)?.leader
    }

    /// How many groups each node leads.
    pub fn leaders(&self) -> BTreeMap<u32, usize> {
        let mut leaders = BTreeMap::new();
        for leader in self.groups.iter().filter_map(|group| group.leader) {
            *leaders.entry(leader).or_default() += 1;
        }
        leaders
    }
}

/// Asks the node that was started with `setup`.
pub fn ask(setup: &Setup) -> Result<Status, String> {
    let mut command = setup.on_host(&setup.path);
    command.args(["cluster", "status", "--json", "--data-dir"]).arg(&setup.data);
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let node = setup.node.map_or(0, |node| node.number);
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("node {node} does not report its status: {complaint}"));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("node {node}, status: {error}"))
}

/// The same over the node's own socket: without a process, and a node that is silent for so long is given up.
pub fn ask_within(data: &Path, within: Duration) -> io::Result<Status> {
    // Through the open directory: a socket's address does not hold a long path.
    let directory = File::open(data)?;
    let path = format!("/proc/self/fd/{}/control.sock", directory.as_raw_fd());
    let mut socket = UnixStream::connect(path)?;
    socket.set_read_timeout(Some(within))?;
    socket.set_write_timeout(Some(within))?;
    socket.write_all(b"{\"command\":\"status\"}\n")?;
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line)?;
    let Answer { status } = serde_json::from_str(&line)?;
    Ok(status)
}

/// What the socket answers.
#[derive(Deserialize)]
struct Answer {
    status: Status,
}

/// The last entry of every group that anybody has applied.
pub fn furthest(views: &[Status]) -> BTreeMap<u32, u64> {
    let mut furthest = BTreeMap::new();
    for group in views.iter().flat_map(|view| &view.groups) {
        let applied = furthest.entry(group.group).or_insert(0);
        *applied = group.applied.max(*applied);
    }
    furthest
}

/// Whether each replica has on its disk what was committed `before` as far as anybody knew, and every group has a
/// leader.
pub fn are_level(views: &[Status], before: &BTreeMap<u32, u64>) -> Result<(), String> {
    for (view, group) in views.iter().flat_map(|it| it.groups.iter().map(move |group| (it, group)))
    {
        let name = group.group;
        let committed = before.get(&name).copied().unwrap_or(0);
        if group.persisted < committed || group.leader.is_none() {
            return Err(format!(
                "node {}: group {name} is not at {committed}: {group:?}",
                view.node
            ));
        }
    }
    Ok(())
}

/// What is committed of every group, as far as anybody knows.
pub fn committed(views: &[Status]) -> BTreeMap<u32, u64> {
    let mut all = BTreeMap::new();
    for group in views.iter().flat_map(|view| &view.groups) {
        let committed = all.entry(group.group).or_insert(0);
        *committed = group.committed.max(*committed);
    }
    all
}

/// Whether all views have the same leaders, and every node has applied what somebody had `before`:
/// as much as can be asked under load.
pub fn are_whole(views: &[Status], before: &BTreeMap<u32, u64>) -> Result<(), String> {
    for (name, applied) in before {
        let mut leaders = Vec::new();
        for view in views {
            let elsewhere = view.elsewhere.iter().find(|group| group.group == *name);
            let Some(group) = view.groups.iter().find(|group| group.group == *name) else {
                let elsewhere =
                    elsewhere.ok_or_else(|| format!("node {} has no group {name}", view.node))?;
                leaders.push(elsewhere.leader);
                continue;
            };
            if group.applied < *applied {
                return Err(format!(
                    "group {name}: node {} is at {}, another was at {applied} before",
                    view.node, group.applied
                ));
            }
            leaders.push(group.leader);
        }
        if leaders.contains(&None) || leaders.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(format!("group {name} is led by {leaders:?}, as nodes see it"));
        }
    }
    Ok(())
}

/// Whether all views are the same: one leader and one last applied entry for every group, and the
/// same state there.
pub fn agree(views: &[Status]) -> Result<(), String> {
    if views.is_empty() {
        return Err("nobody tells".to_owned());
    }
    for (first, group) in views.iter().flat_map(|it| it.groups.iter().map(move |group| (it, group)))
    {
        let name = group.group;
        if group.leader.is_none() {
            return Err(format!("node {} knows no leader of group {name}", first.node));
        }
        for view in views {
            let Some(other) = view.groups.iter().find(|other| other.group == name) else {
                if view.elsewhere.iter().any(|other| other.group == name) {
                    continue;
                }
                return Err(format!("node {} has no group {name}", view.node));
            };
            if (other.leader, other.applied) != (group.leader, group.applied) {
                return Err(format!(
                    "group {name}: node {} sees leader {:?} at {}, node {} sees {:?} at {}",
                    first.node, group.leader, group.applied, view.node, other.leader, other.applied
                ));
            }
            if other.digest != group.digest {
                return Err(format!(
                    "group {name} at {}: node {} has state {:?}, node {} has {:?}",
                    group.applied, first.node, group.digest, view.node, other.digest
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(node: u32, leader: &str, applied: u64, digest: &str) -> Status {
        let text = format!(
            r#"{{"node":{node},"more":1,"groups":[{{"group":3,"leader":{leader},"term":2,
                "applied":{applied},"digest":"{digest}"}}],"queues":[{{"name":"q","group":3}}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn the_leader_of_a_queue_is_its_groups() {
        assert_eq!(view(1, "2", 7, "a").leader_of("q"), Some(2));
        assert_eq!(view(1, "null", 7, "a").leader_of("q"), None);
        assert_eq!(view(1, "2", 7, "a").leader_of("other"), None);
    }

    #[test]
    fn a_cluster_is_whole_when_all_have_what_somebody_had_before() {
        let before = furthest(&[view(1, "2", 7, "a"), view(2, "2", 5, "b")]);
        assert_eq!(are_whole(&[view(1, "2", 9, "a"), view(2, "2", 7, "b")], &before), Ok(()));
        assert!(are_whole(&[view(1, "2", 9, "a"), view(2, "2", 6, "b")], &before).is_err());
        assert!(are_whole(&[view(1, "2", 9, "a"), view(2, "1", 8, "b")], &before).is_err());
        assert!(are_whole(&[view(1, "2", 9, "a"), view(2, "null", 8, "b")], &before).is_err());
    }

    #[test]
    fn nodes_agree_when_leader_place_and_state_are_the_same() {
        let same = [view(1, "2", 7, "a"), view(2, "2", 7, "a")];
        assert_eq!(agree(&same), Ok(()));
        for other in [view(2, "1", 7, "a"), view(2, "2", 6, "a"), view(2, "2", 7, "b")] {
            assert!(agree(&[view(1, "2", 7, "a"), other]).is_err());
        }
        assert!(agree(&[view(1, "null", 7, "a"), view(2, "null", 7, "a")]).is_err());
    }
}
