//! What the nodes of `millrace dev` are started with, and where they listen. Pure: it is told which ports are free.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::ports::{Ports, Use};

/// Nodes that are started at most.
pub(super) const NODES_MAX: u16 = 7;

/// What is to be started.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) nodes: u16,
    pub(super) ports: Ports,
    /// Where data and logs are.
    pub(super) root: PathBuf,
    /// Settings of all nodes: KEY=VALUE.
    pub(super) settings: Vec<String>,
}

impl Plan {
    pub(super) fn numbers(&self) -> impl Iterator<Item = u16> + use<> {
        1..=self.nodes
    }

    pub(super) fn data_dir(&self, node: u16) -> PathBuf {
        self.root.join(format!("node-{node}"))
    }

    pub(super) fn log(&self, node: u16) -> PathBuf {
        self.root.join(format!("node-{node}.log"))
    }

    /// The secret by which the nodes know each other.
    pub(super) fn secret(root: &Path) -> PathBuf {
        root.join("secret")
    }

    fn address(&self, of: Use, node: u16) -> String {
        format!("127.0.0.1:{}", self.ports.of(of, node))
    }

    pub(super) fn http(&self, node: u16) -> String {
        format!("http://{}", self.address(Use::Http, node))
    }

    pub(super) fn metrics(&self, node: u16) -> String {
        format!("http://{}/metrics", self.address(Use::Metrics, node))
    }

    /// The command line of a node, behind the program's name. `parent`: with whose end the node ends.
    pub(super) fn arguments(&self, node: u16, parent: u32) -> Vec<OsString> {
        let mut line: Vec<OsString> =
            ["serve", "--end-with", &parent.to_string(), "--data-dir"].map(Into::into).to_vec();
        line.push(self.data_dir(node).into());
        let mut add = |option: &str, value: OsString| line.extend([option.into(), value]);
        add("--amqp", self.address(Use::Amqp, node).into());
        add("--http", self.address(Use::Http, node).into());
        add("--metrics", self.address(Use::Metrics, node).into());
        if self.nodes > 1 {
            let peer = |node| format!("{node}={}", self.address(Use::Peers, node));
            let peers: Vec<String> = self.numbers().map(peer).collect();
            add("--node-id", node.to_string().into());
            add("--peers", peers.join(",").into());
            let mut secret = OsString::from("cluster_secret_file=");
            secret.push(Self::secret(&self.root));
            add("--set", secret);
        }
        // The last: what somebody says goes before what is said here.
        self.settings.iter().for_each(|setting| add("--set", setting.into()));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(nodes: u16) -> Plan {
        let ports = Ports { amqp: 5672, http: 15672, metrics: 15692, peers: 25672 };
        let settings = vec!["log=debug".to_owned()];
        Plan { nodes, ports, root: "/dev-dir".into(), settings }
    }

    fn line(plan: &Plan, node: u16) -> String {
        let words = plan.arguments(node, 42);
        let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
        words.join(" ")
    }

    #[test]
    fn a_node_alone_has_no_peers() {
        let line = line(&plan(1), 1);
        assert_eq!(
            line,
            "serve --end-with 42 --data-dir /dev-dir/node-1 --amqp 127.0.0.1:5672 --http 127.0.0.1:15672 --metrics \
             127.0.0.1:15692 --set log=debug"
        );
    }

    #[test]
    fn nodes_of_a_cluster_get_the_same_list_and_secret_and_ports_of_their_own() {
        let line = line(&plan(3), 3);
        for words in [
            "--data-dir /dev-dir/node-3 --amqp 127.0.0.1:5674 --http 127.0.0.1:15674 --metrics 127.0.0.1:15694",
            "--node-id 3 --peers 1=127.0.0.1:25672,2=127.0.0.1:25673,3=127.0.0.1:25674",
            "--set cluster_secret_file=/dev-dir/secret",
        ] {
            assert!(line.contains(words), "{line}");
        }
    }
}
