//! Whose data directory this is, and which cluster the configuration means. Decides; reads nothing.

use std::path::PathBuf;

use machine::limits::NODE_ID_MAX;
use machine::{NodeId, NodeInfo};
use sha2::{Digest, Sha256};
use wal::Identity;

/// Beginnings of addresses that one can listen on, and not dial.
const EVERYWHERE: [&str; 2] = ["0.0.0.0:", "[::]:"];

/// What the configuration says of this node's place in a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerConfig {
    /// This node. `None`: as its data directory says.
    pub node: Option<NodeId>,
    /// Address and port for the other nodes. `None`: as `peers` has it for this node.
    pub listen: Option<String>,
    /// All nodes that make the cluster, this one too, with their addresses. Empty: the data directory
    /// knows them.
    pub peers: Vec<(NodeId, String)>,
    /// A member that is asked to take this node in, if its data directory is new.
    pub join: Option<String>,
    /// Proves that a node belongs to the cluster. `None`: what the data directory keeps, or what
    /// `secret_file` holds.
    pub secret: Option<String>,
    /// A file with the secret.
    pub secret_file: Option<PathBuf>,
    /// Certificates for the connections between nodes. `None`: no TLS.
    pub tls: Option<TlsFiles>,
    /// What snapshots may take of the network, in bytes per second.
    pub bulk_bytes_per_second: u64,
}

/// PEM files for TLS between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The cluster's authority: both sides of a connection show a certificate that it signed.
    pub authority: PathBuf,
    /// This node's; it names the host of the node's address.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The id of the cluster that these nodes make. The same wherever the list is read.
pub fn cluster_of(peers: &[(NodeId, String)]) -> u128 {
    let mut lines: Vec<_> =
        peers.iter().map(|(node, address)| format!("{}={address}", node.0)).collect();
    lines.sort();
    let digest = Sha256::digest(lines.join(","));
    let first = digest.first_chunk::<16>().expect("a digest has 32 bytes");
    u128::from_be_bytes(*first)
}

impl PeerConfig {
    /// Which node of which cluster this is. `existing`: whose the data directory is; `fresh`: what a
    /// new directory's incarnation is to be. A refusal is a sentence that says what to do.
    pub fn identify(&self, existing: Option<Identity>, fresh: u64) -> Result<Identity, String> {
        self.check()?;
        let node = match (self.node, existing) {
            (Some(node), Some(identity)) if node.0 != identity.node => {
                return Err(format!(
                    "the data directory belongs to node {}, but --node-id is {}: start this node with \
                     its own data directory, or with --node-id {}",
                    identity.node, node.0, identity.node
                ));
            }
            (Some(node), _) => node,
            (None, Some(identity)) => NodeId(identity.node),
            (None, None) => {
                return Err("a node of a cluster needs --node-id, a number that no other node \
                            has"
                .to_owned());
            }
        };
        if self.peers.is_empty() {
            return existing.ok_or_else(|| {
                "the data directory is new and no cluster is named: give --peers \
                 1=ADDR:PORT,2=ADDR:PORT,... with all nodes of a new cluster, or --join ADDR:PORT of \
                 a member"
                    .to_owned()
            });
        }
        if self.peers.iter().all(|(peer, _)| *peer != node) {
            return Err(format!(
                "--peers does not name this node, which is node {}: add {}=ADDR:PORT on every node",
                node.0, node.0
            ));
        }
        let cluster = cluster_of(&self.peers);
        match existing {
            Some(identity) if identity.cluster != cluster => Err(format!(
                "the data directory belongs to cluster {:032x}, but this --peers list makes cluster \
                 {cluster:032x}: give the list of the first start (members change with `millrace \
                 cluster add` and `remove`, not with the list), leave it out, or use the data \
                 directory of that cluster",
                identity.cluster
            )),
            Some(identity) => Ok(identity),
            None => Ok(Identity { cluster, node: node.0, incarnation: fresh }),
        }
    }

    /// Where this node is to listen.
    pub fn listen_address(&self, node: NodeId) -> Result<String, String> {
        let listed = || self.peers.iter().find(|(peer, _)| *peer == node);
        match (&self.listen, listed()) {
            (Some(address), _) => Ok(address.clone()),
            (None, Some((_, address))) => Ok(address.clone()),
            (None, None) => Err("a node of a cluster needs --peer-listen ADDR:PORT, where the \
                                 other nodes reach it"
                .to_owned()),
        }
    }

    /// Where the others are to find this node. `None`: where they found it so far.
    pub fn advertised_address(&self, node: NodeId) -> Option<String> {
        let listed = self.peers.iter().find(|(peer, _)| *peer == node);
        let listed = listed.map(|(_, address)| address.clone());
        let is_somewhere =
            |address: &String| !EVERYWHERE.iter().any(|all| address.starts_with(all));
        listed.or_else(|| self.listen.clone().filter(is_somewhere))
    }

    /// How this node asks to be taken in, `fresh` being its incarnation.
    pub fn joiner(&self, fresh: u64) -> Result<NodeInfo, String> {
        self.check()?;
        let node = self.node.ok_or_else(|| {
            "a node that joins a cluster needs --node-id, a number that no member has".to_owned()
        })?;
        let address = self.advertised_address(node).ok_or_else(|| {
            "a node that joins a cluster needs --peer-listen ADDR:PORT with the address at which the \
             other nodes reach it"
                .to_owned()
        })?;
        Ok(NodeInfo { node, address, incarnation: fresh })
    }

    /// What can be told without the data directory.
    pub fn check(&self) -> Result<(), String> {
        let numbers = self.peers.iter().map(|(node, _)| *node).chain(self.node);
        for NodeId(number) in numbers {
            if number == 0 || number > NODE_ID_MAX {
                return Err(format!(
                    "node id {number} is not valid: it must be from 1 to {NODE_ID_MAX}"
                ));
            }
        }
        for (index, (node, address)) in self.peers.iter().enumerate() {
            for (other, other_address) in &self.peers[..index] {
                if node == other {
                    return Err(format!("--peers names node {} twice", node.0));
                }
                if address == other_address {
                    return Err(format!(
                        "--peers gives {address} to node {} and to node {}: give each its own address",
                        other.0, node.0
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Why a directory of a cluster's node is not started without the cluster.
pub fn refuse_alone(identity: &Identity) -> String {
    format!(
        "the data directory belongs to node {} of a cluster: start it with --node-id {} and \
         --peer-listen ADDR:PORT",
        identity.node, identity.node
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(list: &[(u64, &str)]) -> Vec<(NodeId, String)> {
        list.iter().map(|(node, address)| (NodeId(*node), (*address).to_owned())).collect()
    }

    fn config(node: u64) -> PeerConfig {
        let peers = peers(&[(1, "a:7000"), (2, "b:7000"), (3, "c:7000")]);
        PeerConfig { node: Some(NodeId(node)), peers, ..PeerConfig::default() }
    }

    #[test]
    fn the_order_of_the_list_does_not_matter_and_its_content_does() {
        let one = cluster_of(&peers(&[(1, "a:7000"), (2, "b:7000")]));
        assert_eq!(one, cluster_of(&peers(&[(2, "b:7000"), (1, "a:7000")])));
        assert_ne!(one, cluster_of(&peers(&[(1, "a:7000"), (2, "c:7000")])));
        // First 16 bytes of sha256 of `1=a:7000,2=b:7000`.
        assert_eq!(format!("{one:032x}"), "4d322846fb53bccb86e0f085e871f3eb");
    }

    #[test]
    fn a_new_directory_becomes_the_nodes_and_an_old_one_stays_what_it_was() {
        let new = config(2).identify(None, 77).unwrap();
        assert_eq!((new.node, new.incarnation), (2, 77));
        assert_eq!(new.cluster, cluster_of(&config(2).peers));
        assert_eq!(config(2).identify(Some(new), 88), Ok(new));
        let without_list = PeerConfig { node: None, peers: Vec::new(), ..config(2) };
        assert_eq!(without_list.identify(Some(new), 88), Ok(new));
    }

    #[test]
    fn every_refusal_says_what_to_do() {
        let ours = config(2).identify(None, 77).unwrap();
        let refusal = |config: PeerConfig, existing| config.identify(existing, 1).unwrap_err();
        let table = [
            (refusal(config(1), Some(ours)), "or with --node-id 2"),
            (refusal(config(2), Some(Identity { cluster: 5, ..ours })), "list of the first start"),
            (refusal(config(4), None), "add 4=ADDR:PORT"),
            (refusal(config(0), None), "from 1 to"),
            (refusal(PeerConfig { node: None, ..config(1) }, None), "needs --node-id"),
            (refusal(PeerConfig { peers: Vec::new(), ..config(1) }, None), "--join ADDR:PORT"),
            (
                refusal(PeerConfig { peers: peers(&[(1, "a:1"), (1, "b:1")]), ..config(1) }, None),
                "names node 1 twice",
            ),
            (
                refusal(PeerConfig { peers: peers(&[(1, "a:1"), (2, "a:1")]), ..config(1) }, None),
                "gives a:1 to node 1 and to node 2",
            ),
            (refuse_alone(&ours), "with --node-id 2"),
        ];
        for (text, words) in table {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn a_node_listens_where_the_list_says_unless_told_otherwise() {
        assert_eq!(config(3).listen_address(NodeId(3)), Ok("c:7000".to_owned()));
        let told = PeerConfig { listen: Some("0.0.0.0:1".to_owned()), ..config(3) };
        assert_eq!(told.listen_address(NodeId(3)), Ok("0.0.0.0:1".to_owned()));
        assert!(PeerConfig::default().listen_address(NodeId(3)).is_err());
        assert_eq!(told.advertised_address(NodeId(3)), Some("c:7000".to_owned()));
    }

    #[test]
    fn who_joins_says_where_it_can_be_reached() {
        let joins = |listen: &str| {
            let (node, listen) = (Some(NodeId(4)), Some(listen.to_owned()));
            PeerConfig { node, listen, ..PeerConfig::default() }.joiner(7)
        };
        assert_eq!(joins("10.0.0.4:7000").unwrap().address, "10.0.0.4:7000");
        assert!(joins("0.0.0.0:7000").unwrap_err().contains("--peer-listen"));
        assert!(PeerConfig::default().joiner(7).unwrap_err().contains("--node-id"));
    }
}
