//! Brokers that form one cluster, each on a host of its own: three, but for trials of a rescue.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::Failure;
use super::broker::{Broker, Kind, Place, Setup, rabbitmq_node};
use super::clocks;
use super::net::{HTTP_PORT, NODES, Net, PEER_PORT, host};
use super::status::{self, Status};

/// Where clients connect, on every host.
const PORT: u16 = 5672;
const READY: Duration = Duration::from_secs(240);
const PAUSE: Duration = Duration::from_millis(20);
/// How long one of RabbitMQ's programs may take.
const ASKED: Duration = Duration::from_secs(15);
/// RabbitMQ's own programs, in Debian's package.
const RABBITMQ: &str = "/usr/lib/rabbitmq/bin";

/// The processes and the network between them. Dropping it kills.
#[derive(Debug)]
pub struct Cluster {
    pub kind: Kind,
    pub net: Net,
    nodes: Vec<Broker>,
    /// Numbers of nodes that are gone for good.
    lost: BTreeSet<u32>,
}

/// How to make one.
#[derive(Clone, Debug)]
pub struct Plan {
    pub kind: Kind,
    pub broker: PathBuf,
    /// Of nodes 1, 2, 3 and so on: as many as there are.
    pub data: Vec<PathBuf>,
    /// Where logs go.
    pub logs: PathBuf,
    pub arguments: Vec<String>,
    pub environment: Vec<(&'static str, String)>,
    /// Files that set the nodes' clocks, if they are to be set.
    pub clocks: Vec<PathBuf>,
}

impl Plan {
    fn environment(&self, node: u32) -> Vec<(&'static str, String)> {
        let mut environment = self.environment.clone();
        if let Some(file) = self.clocks.get(node as usize - 1) {
            environment.extend(clocks::environment(file));
        }
        environment
    }
}

impl Cluster {
    /// Starts every node and waits until all of them serve.
    pub fn start(plan: &Plan) -> Result<Self, Failure> {
        let of = plan.data.len() as u32;
        let net = Net::create(of)?;
        let setup = |node: u32| Setup {
            kind: plan.kind,
            path: plan.broker.clone(),
            node: Some(Place { number: node, of, peer_port: PEER_PORT, http_port: HTTP_PORT }),
            port: PORT,
            data: plan.data[node as usize - 1].clone(),
            log: plan.logs.join(format!("node-{node}.log")),
            arguments: plan.arguments.clone(),
            environment: plan.environment(node),
        };
        let nodes = (1..=of).map(|node| Broker::new(setup(node))).collect();
        let mut cluster = Self { kind: plan.kind, net, nodes, lost: BTreeSet::new() };
        for node in 1..=of {
            std::fs::create_dir_all(&plan.data[node as usize - 1])?;
            cluster.configure(node)?;
            cluster.node(node).start()?;
            if plan.kind == Kind::Rabbitmq {
                // The others find the first one, and make a cluster of it.
                cluster.node(node).wait_ready(READY)?;
            }
        }
        cluster.wait_ready(READY)?;
        Ok(cluster)
    }

    /// Kills a node whose disk is lost with it.
    pub fn lose(&mut self, node: u32) -> Result<(), Failure> {
        self.lost.insert(node);
        self.node(node).kill()?;
        std::fs::remove_dir_all(&self.node(node).setup.data).map_err(Failure::from)
    }

    /// Numbers of all nodes that are not lost.
    pub fn living(&self) -> Vec<u32> {
        (1..=self.nodes.len() as u32).filter(|node| !self.lost.contains(node)).collect()
    }

    pub fn node(&mut self, node: u32) -> &mut Broker {
        &mut self.nodes[node as usize - 1]
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.setup.address()).collect()
    }

    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().filter_map(Broker::working_pid).collect()
    }

    /// Waits until every node answers clients, all agree who leads, and none is behind what any had
    /// when this was asked.
    pub fn wait_ready(&mut self, within: Duration) -> Result<(), Failure> {
        for node in self.living() {
            self.node(node).wait_ready(within)?;
        }
        if self.kind == Kind::Rabbitmq {
            return self.wait_members(within);
        }
        let before = RefCell::new(None);
        self.wait_views(within, |views| {
            let mut before = before.borrow_mut();
            status::are_whole(views, before.get_or_insert_with(|| status::furthest(views)))
        })
        .map(drop)
    }

    /// Starts whoever does not run.
    pub fn restart_dead(&mut self) -> Result<u32, Failure> {
        let mut started = 0;
        for node in self.living() {
            let node = self.node(node);
            if node.exited()?.is_none() && node.pid().is_some() {
                continue;
            }
            node.start()?;
            started += 1;
        }
        Ok(started)
    }

    /// Waits until every node knows the same leaders, has applied the same, and is in the same state:
    /// where there is no load.
    pub fn wait_agreed(&mut self, within: Duration) -> Result<Vec<Status>, Failure> {
        if self.kind == Kind::Rabbitmq {
            return self.wait_members(within).map(|()| Vec::new());
        }
        self.wait_views(within, status::agree)
    }

    /// What every node that lives says.
    pub fn views(&self) -> Result<Vec<Status>, String> {
        let setups = self.living().into_iter().map(|node| &self.nodes[node as usize - 1].setup);
        setups.map(status::ask).collect()
    }

    /// Waits until all of them say what is right.
    pub fn wait_views(
        &self,
        within: Duration,
        is_right: impl Fn(&[Status]) -> Result<(), String>,
    ) -> Result<Vec<Status>, Failure> {
        let deadline = Instant::now() + within;
        loop {
            let seen = self.views();
            let why = match seen.and_then(|seen| is_right(&seen).map(|()| seen)) {
                Ok(seen) => return Ok(seen),
                Err(why) => why,
            };
            if Instant::now() > deadline {
                return Err(Failure::Broken(format!("no agreement after {within:?}: {why}")));
            }
            std::thread::sleep(PAUSE * 5);
        }
    }

    /// Who leads `queue`, as one of `asked` sees it.
    pub fn leader_of(&self, queue: &str, asked: &[u32]) -> Result<Option<u32>, Failure> {
        for node in asked {
            let leader = match self.kind {
                Kind::Millrace => status::ask(&self.nodes[*node as usize - 1].setup)
                    .map(|status| status.leader_of(queue)),
                Kind::Rabbitmq => self.rabbitmq_leader(*node, queue),
            };
            if let Ok(Some(leader)) = leader {
                return Ok(Some(leader));
            }
        }
        Ok(None)
    }

    /// Waits until somebody leads `queue`.
    pub fn wait_leader(&self, queue: &str, within: Duration) -> Result<u32, Failure> {
        let deadline = Instant::now() + within;
        let asked: Vec<u32> = (1..=NODES).collect();
        loop {
            if let Some(leader) = self.leader_of(queue, &asked)? {
                return Ok(leader);
            }
            if Instant::now() > deadline {
                return Err(Failure::Broken(format!("nobody leads {queue} after {within:?}")));
            }
            std::thread::sleep(PAUSE * 5);
        }
    }

    /// Waits until every replica of `queue` has what its leader has.
    pub fn wait_caught_up(&mut self, queue: &str, within: Duration) -> Result<(), Failure> {
        if self.kind == Kind::Millrace {
            return self.wait_ready(within);
        }
        let deadline = Instant::now() + within;
        loop {
            let members = self.rabbitmq_members(queue);
            if members.as_ref().is_ok_and(|members| is_level(members)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let text = format!("{queue} is not level after {within:?}: {members:?}");
                return Err(Failure::Broken(text));
            }
            std::thread::sleep(PAUSE * 10);
        }
    }

    fn configure(&self, node: u32) -> Result<(), Failure> {
        if self.kind == Kind::Millrace {
            return Ok(());
        }
        let data = &self.nodes[node as usize - 1].setup.data;
        let mut settings = "loopback_users = none\nlog.file.level = warning\n\
            cluster_partition_handling = pause_minority\n\
            cluster_formation.peer_discovery_backend = classic_config\n"
            .to_owned();
        for node in 1..=NODES {
            let name = rabbitmq_node(node);
            settings.push_str(&format!("cluster_formation.classic_config.nodes.{node} = {name}\n"));
        }
        let files =
            [("rabbitmq.conf", settings.as_str()), ("plugins", "[].\n"), ("environment", "")];
        for (name, text) in files {
            std::fs::write(data.join(name), text)?;
        }
        Ok(())
    }

    /// Runs one of RabbitMQ's programs on the host of `node`.
    fn rabbitmq(&self, node: u32, program: &str, words: &[&str]) -> Result<String, String> {
        let setup = &self.nodes[node as usize - 1].setup;
        let mut command: Command = setup.on_host(Path::new("timeout"));
        let output = command
            .arg(ASKED.as_secs().to_string())
            .arg(Path::new(RABBITMQ).join(program))
            .args(words)
            .envs(setup.rabbitmq())
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        let complaint = String::from_utf8_lossy(&output.stderr);
        Err(format!("{program} {}: {}{text}", words.join(" "), complaint.trim()))
    }

    fn wait_members(&self, within: Duration) -> Result<(), Failure> {
        let deadline = Instant::now() + within;
        loop {
            let status = self.rabbitmq(1, "rabbitmqctl", &["-q", "cluster_status"]);
            let running = status.as_deref().unwrap_or_default();
            let running = running.split("Running Nodes").nth(1).unwrap_or_default();
            let running = running.split("Versions").next().unwrap_or_default();
            if (1..=NODES).all(|node| running.contains(&rabbitmq_node(node))) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Failure::Trial(format!("RabbitMQ makes no cluster: {status:?}")));
            }
            std::thread::sleep(PAUSE * 10);
        }
    }

    fn rabbitmq_members(&self, queue: &str) -> Result<Vec<Member>, String> {
        let words = ["--quiet", "--formatter=json", "quorum_status", queue];
        let mut told = Err("there is no node".to_owned());
        for node in 1..=NODES {
            told = self.rabbitmq(node, "rabbitmq-queues", &words);
            if told.is_ok() {
                break;
            }
        }
        let text = told?;
        serde_json::from_str(&text).map_err(|error| format!("quorum_status said {text}: {error}"))
    }

    /// Out of the node's own table of leaders: other ways ask every member, and wait for those that
    /// are away.
    fn rabbitmq_leader(&self, node: u32, queue: &str) -> Result<Option<u32>, String> {
        let expression = format!("ra_leaderboard:lookup_leader('%2F_{queue}').");
        let text = self.rabbitmq(node, "rabbitmqctl", &["--quiet", "eval", &expression])?;
        Ok((1..=NODES).find(|node| text.contains(&rabbitmq_node(*node))))
    }
}

/// A member of a quorum queue, as `rabbitmq-queues quorum_status` tells it. What a dead member has
/// in place of a number is text.
#[derive(Debug, Deserialize)]
struct Member {
    #[serde(rename = "Raft State")]
    state: String,
    #[serde(rename = "Log Index")]
    last: serde_json::Value,
}

/// Whether there are three members, one of them the leader, all with the same last entry.
fn is_level(members: &[Member]) -> bool {
    let count = |state: &str| members.iter().filter(|member| member.state == state).count();
    let last = members.first().map(|member| &member.last);
    count("leader") == 1
        && count("follower") + 1 == NODES as usize
        && members.iter().all(|member| Some(&member.last) == last && member.last.is_number())
}

/// The node that lives at an address.
pub fn node_at(address: SocketAddr) -> Option<u32> {
    (1..=NODES).find(|node| address.ip() == host(*node))
}
