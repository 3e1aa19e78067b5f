//! Who this node is, who the others are, and where both are written down.

use std::sync::Arc;

use machine::{Catalog, NodeId, NodeInfo};
use wal::{Error, FileDisk, Identity, Member};

use super::handle::Node;
use super::mailbox::Mailbox;
use super::peers::{self, Address, Peers, draw};
use super::start::{Config, Failure, StartError};
use crate::membership::{PeerConfig, refuse_alone};
use crate::peer::handshake::Secret;
use crate::recovery::Genesis;
use crate::shard::Input;

/// Who this node is: as its directory says, or, if that is new, as the configuration does.
pub(super) fn identify(config: &Config, disk: &FileDisk) -> Result<Identity, StartError> {
    let existing = Identity::load(disk)?;
    let fresh = u64::from_le_bytes(draw());
    if let Some(peers) = &config.peers {
        return peers.identify(existing, fresh).map_err(StartError::Cluster);
    }
    match existing {
        Some(identity) if !Member::load(disk)?.is_empty() => {
            Err(StartError::Cluster(refuse_alone(&identity)))
        }
        Some(identity) => Ok(identity),
        None => Ok(Identity { cluster: config.new_cluster, node: 1, incarnation: fresh }),
    }
}

/// The other nodes: those of the configuration, or, if it names none, those that were known last.
pub(super) fn members(
    config: &Config,
    node: NodeId,
    disk: &FileDisk,
) -> Result<Vec<Address>, Error> {
    let Some(config) = &config.peers else { return Ok(Vec::new()) };
    let known = Member::load(disk)?;
    if config.peers.is_empty() {
        let address = |known: Member| Address {
            node: NodeId(known.node),
            address: known.address,
            incarnation: known.incarnation,
        };
        return Ok(known.into_iter().map(address).collect());
    }
    let incarnation = |node: NodeId| {
        known.iter().find(|known| known.node == node.0).and_then(|known| known.incarnation)
    };
    let address = |(node, address): &(NodeId, String)| Address {
        node: *node,
        address: address.clone(),
        incarnation: incarnation(*node),
    };
    Ok(config.peers.iter().filter(|(peer, _)| *peer != node).map(address).collect())
}

/// How the cluster began, told the same way by all its first nodes.
pub(super) fn genesis(config: &Config, node: NodeId, members: &[Address]) -> Genesis {
    let Some(peers) = &config.peers else { return Genesis::alone(node, config.groups) };
    let info = |node, address: &str| NodeInfo { node, address: address.to_owned(), incarnation: 0 };
    let ours = peers.advertised_address(node).unwrap_or_default();
    let mut nodes: Vec<_> = if peers.peers.is_empty() {
        let others = members.iter().map(|member| info(member.node, &member.address));
        others.chain([info(node, &ours)]).collect()
    } else {
        peers.peers.iter().map(|(node, address)| info(*node, address)).collect()
    };
    nodes.sort_by_key(|info| info.node);
    Genesis { nodes, groups_per_node: config.groups }
}

/// Connects to the nodes that the catalog has, and to no others. A catalog without this node is that
/// of one that has not joined yet, or is a member no longer: it knows nothing better.
pub(super) fn follow(node: &Node, catalog: &Catalog) {
    let Some(peers) = &node.peers else { return };
    if catalog.node(node.id).is_some() {
        let address = |info: &NodeInfo| Address {
            node: info.node,
            address: info.address.clone(),
            incarnation: Some(info.incarnation).filter(|incarnation| *incarnation != 0),
        };
        let addresses: Vec<_> = catalog.nodes().map(address).collect();
        peers.set_members(&addresses);
    }
}

/// Opens the peer port, and connects to the members.
pub(super) fn connect(
    config: &PeerConfig,
    identity: Identity,
    boot: u64,
    members: &[Address],
    disk: &FileDisk,
    failure: &Failure,
    mailboxes: &[Arc<Mailbox<Input>>],
) -> Result<Peers, StartError> {
    let node = NodeId(identity.node);
    let (disk, failure) = (disk.clone(), failure.clone());
    let remember = move |members: &[Address]| {
        let member = |address: &Address| Member {
            node: address.node.0,
            incarnation: address.incarnation,
            address: address.address.clone(),
        };
        let members: Vec<_> = members.iter().map(member).collect();
        Member::store(&disk, &members).unwrap_or_else(|error| failure.tell(&error));
    };
    let config = peers::Config {
        node,
        cluster: identity.cluster,
        incarnation: identity.incarnation,
        boot,
        secret: match &config.secret {
            Some(secret) => Secret::new(secret),
            None => Secret::of_cluster(identity.cluster),
        },
        listen: config.listen_address(node).map_err(StartError::Cluster)?,
        advertised: config.advertised_address(node).map_err(StartError::Cluster)?,
        members: members.to_vec(),
        bulk_bytes_per_second: config.bulk_bytes_per_second,
        remember: Box::new(remember),
    };
    Peers::start(config, mailboxes.to_vec()).map_err(StartError::Cluster)
}
