//! Who this node is, who the others are, and where both are written down.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use machine::{Catalog, NodeId, NodeInfo, Version};
use wal::{Error, FileDisk, Founding, Identity, Member};

use super::config::Config;
use super::failure::{Failure, StartError};
use super::handle::Node;
use super::mailbox::Mailbox;
use super::peers::{self, Address, Peers, Tls, draw};
use super::secret;
use crate::exchange::Input;
use crate::membership::{PeerConfig, refuse_alone};
use crate::peer::admission::Admitted;
use crate::peer::handshake::{Refusal, Secret};
use crate::recovery::Genesis;
use crate::secret::{Choice, Known, choose, warning};

/// The incarnation of a node that is not of a cluster: nobody could take it for another.
const ALONE: u64 = 1;

/// Who this node is.
pub(super) struct Identified {
    pub(super) identity: Identity,
    /// By whom it was taken in just now, and into what.
    pub(super) admitted: Option<Admitted>,
    /// Of its cluster; `None`: it talks to nobody.
    pub(super) secret: Option<String>,
}

/// Who this node is: as its directory says, or, if that is new, as the configuration does, or as the
/// member says that took it in. The secret is in the directory before anything says whose that is.
pub(super) fn identify(config: &Config, disk: &FileDisk) -> Result<Identified, StartError> {
    let existing = Identity::load(disk)?;
    let fresh = u64::from_le_bytes(draw());
    let Some(peers) = &config.peers else {
        return match existing {
            Some(identity) if !Member::load(disk)?.is_empty() => {
                Err(StartError::Cluster(refuse_alone(&identity)))
            }
            Some(identity) => Ok(Identified { identity, admitted: None, secret: None }),
            None => {
                let identity =
                    Identity { cluster: config.new_cluster, node: 1, incarnation: ALONE };
                Ok(Identified { identity, admitted: None, secret: None })
            }
        };
    };
    match (&peers.join, existing) {
        (Some(member), None) => {
            let ours = peers.joiner(fresh).map_err(StartError::Cluster)?;
            let tls = tls(peers)?;
            let secret = find_secret(config, peers, disk, None, None)?;
            let asked = peers::ask(member, &ours, &Secret::new(&secret), tls.as_ref());
            let (cluster, admitted) = asked.map_err(StartError::Cluster)?;
            let identity = Identity { cluster, node: ours.node.0, incarnation: fresh };
            secret::keep(&config.data_dir, &secret).map_err(StartError::Cluster)?;
            Ok(Identified { identity, admitted: Some(admitted), secret: Some(secret) })
        }
        (Some(_) | None, existing) => {
            let identity = peers.identify(existing, fresh).map_err(StartError::Cluster)?;
            let secret = find_secret(config, peers, disk, Some(identity), existing)?;
            match secret::keep(&config.data_dir, &secret) {
                // A node whose disk is full starts again; what is not kept now is at the next start.
                Err(why) if existing.is_some() => tracing::warn!("{why}"),
                kept => kept.map_err(StartError::Cluster)?,
            }
            Ok(Identified { identity, admitted: None, secret: Some(secret) })
        }
    }
}

/// Checks whether a start with this configuration would be refused. It makes nothing, opens no port and asks no other
/// node. Returns the address at which this node will listen for others, if it will.
///
/// # Errors
/// A sentence that says what to do.
pub fn foresee(data_dir: &Path, peers: Option<&PeerConfig>) -> Result<Option<String>, String> {
    let unreadable =
        |error: Error| format!("the data directory {} cannot be used: {error}", data_dir.display());
    // What is not there will be made.
    let disk = FileDisk::existing(data_dir).ok();
    let existing = disk.as_ref().map(Identity::load).transpose().map_err(unreadable)?.flatten();
    let Some(peers) = peers else {
        let members = disk.as_ref().map(Member::load).transpose().map_err(unreadable)?;
        let is_member = members.is_some_and(|members| !members.is_empty());
        return existing
            .filter(|_| is_member)
            .map_or(Ok(None), |identity| Err(refuse_alone(&identity)));
    };
    peers.tls.as_ref().map(Tls::load).transpose()?;
    let node = match (&peers.join, existing) {
        (Some(_), None) => peers.joiner(ALONE)?.node,
        (Some(_) | None, existing) => NodeId(peers.identify(existing, ALONE)?.node),
    };
    peers.listen_address(node).map(Some)
}

/// The secret that this node goes by. `identity`: who it is, unless it is about to join; `existing`: whose
/// the directory is already.
fn find_secret(
    config: &Config,
    peers: &PeerConfig,
    disk: &FileDisk,
    identity: Option<Identity>,
    existing: Option<Identity>,
) -> Result<String, StartError> {
    let refused = StartError::Cluster;
    let of_file = match &peers.secret_file {
        Some(path) => {
            let text = secret::load(path).map_err(refused)?;
            let missing =
                || format!("cluster_secret_file names {}, which does not exist", path.display());
            Some(text.ok_or_else(|| refused(missing()))?)
        }
        None => None,
    };
    let kept = secret::kept(&config.data_dir).map_err(refused)?;
    let founders = Founding::load(disk)?.map_or(Vec::new(), |founding| founding.nodes);
    let me = identity.map(|identity| identity.node);
    let founders = founders.iter().map(|(node, address)| (*node, address.clone()));
    let listed = peers.peers.iter().map(|(node, address)| (node.0, address.clone()));
    let met = Member::load(disk)?.into_iter().map(|member| (member.node, member.address));
    let others: Vec<_> =
        founders.chain(listed).chain(met).filter(|(node, _)| Some(*node) != me).collect();
    let known = Known {
        configured: peers.secret.as_deref().or(of_file.as_deref()),
        kept: kept.as_deref(),
        cluster: existing.map(|existing| existing.cluster),
        is_joining: identity.is_none(),
        others: others.iter().map(|(_, address)| address.as_str()).collect(),
    };
    let text = match choose(&known).map_err(refused)? {
        Choice::Use(text) => text,
        Choice::Make => secret::new_secret(),
        Choice::OfMachine => {
            secret::of_machine(identity.map_or(0, |it| it.cluster)).map_err(refused)?
        }
    };
    if let Some(words) = warning(&text) {
        tracing::warn!("{words}");
    }
    Ok(text)
}

fn tls(config: &PeerConfig) -> Result<Option<Tls>, StartError> {
    config.tls.as_ref().map(Tls::load).transpose().map_err(StartError::Cluster)
}

/// Keeps what the member said that took this node in.
pub(super) fn settle(admitted: &Admitted, node: NodeId, disk: &FileDisk) -> Result<(), Error> {
    let founders = admitted.founders.iter();
    let founding = Founding {
        groups_per_node: admitted.groups_per_node,
        nodes: founders.map(|(node, address)| (node.0, address.clone())).collect(),
    };
    founding.store(disk)?;
    let others = admitted.members.iter().filter(|info| info.node != node);
    let member = |info: &NodeInfo| Member {
        node: info.node.0,
        incarnation: Some(info.incarnation).filter(|incarnation| *incarnation != 0),
        boot: 0,
        stamp: 0,
        address: info.address.clone(),
    };
    Member::store(disk, &others.map(member).collect::<Vec<_>>())
}

/// The other nodes: those of the configuration, or, if it names none, those that were known last.
pub(super) fn members(
    config: &Config,
    node: NodeId,
    disk: &FileDisk,
) -> Result<Vec<Address>, Error> {
    let Some(config) = &config.peers else { return Ok(Vec::new()) };
    let known = Member::load(disk)?;
    if config.peers.is_empty() || config.join.is_some() {
        let address = |known: Member| Address {
            node: NodeId(known.node),
            address: known.address,
            incarnation: known.incarnation,
            boot: known.boot,
            stamp: known.stamp,
        };
        return Ok(known.into_iter().map(address).collect());
    }
    let known = |node: NodeId| known.iter().find(|known| known.node == node.0);
    let address = |(node, address): &(NodeId, String)| Address {
        node: *node,
        address: address.clone(),
        incarnation: known(*node).and_then(|known| known.incarnation),
        boot: known(*node).map_or(0, |known| known.boot),
        stamp: known(*node).map_or(0, |known| known.stamp),
    };
    Ok(config.peers.iter().filter(|(peer, _)| *peer != node).map(address).collect())
}

/// How the cluster began. Written down at the first start, and then never changed: every replay of
/// the catalog's first log begins with it.
pub(super) fn founding(
    config: &Config,
    node: NodeId,
    disk: &FileDisk,
) -> Result<Founding, StartError> {
    if let Some(founding) = Founding::load(disk)? {
        return Ok(founding);
    }
    let mut nodes: Vec<_> = match &config.peers {
        Some(peers) if !peers.peers.is_empty() => {
            peers.peers.iter().map(|(node, address)| (node.0, address.clone())).collect()
        }
        Some(_) | None => vec![(node.0, String::new())],
    };
    nodes.sort();
    let founding = Founding { groups_per_node: config.groups, nodes };
    founding.store(disk)?;
    Ok(founding)
}

/// The catalog that the cluster began with.
pub(super) fn genesis(founding: &Founding) -> Genesis {
    let info = |(node, address): &(u64, String)| NodeInfo {
        node: NodeId(*node),
        address: address.clone(),
        incarnation: if address.is_empty() { ALONE } else { 0 },
    };
    Genesis {
        nodes: founding.nodes.iter().map(info).collect(),
        groups_per_node: founding.groups_per_node,
    }
}

/// Connects to the nodes that the catalog has, and to those that were removed while a group here counts on them.
/// A catalog without this node is that of one that has not joined yet, or is a member no longer: it knows nothing
/// better.
pub(super) fn follow(node: &Node, catalog: &Catalog) {
    let Some(peers) = &node.peers else { return };
    let me = node.id;
    let counted = node.counted.read().unwrap_or_else(PoisonError::into_inner);
    // One that is still counted on is told by the others when it is not any more.
    if counted.is_gone(catalog, me) {
        peers.expel(Refusal::Removed { node: me }.to_string());
    }
    if catalog.latest_boot(me) > peers.boot() {
        let (theirs, known) = (peers.boot(), catalog.latest_boot(me));
        peers.expel(Refusal::EarlierBoot { node: me, theirs, known }.to_string());
    }
    let (kept, gone): (BTreeSet<NodeId>, _) =
        catalog.retired().partition(|retired| counted.is_on(*retired));
    peers.set_retired(gone);
    if catalog.node(node.id).is_some() {
        let address = |info: &NodeInfo| Address {
            node: info.node,
            address: info.address.clone(),
            incarnation: Some(info.incarnation).filter(|incarnation| *incarnation != 0),
            boot: catalog.latest_boot(info.node),
            stamp: catalog.latest_boot(info.node),
        };
        let mut addresses: Vec<_> = catalog.nodes().map(address).collect();
        addresses.extend(peers.addresses().into_iter().filter(|it| kept.contains(&it.node)));
        peers.set_agreed(catalog.agreed());
        peers.set_members(&addresses);
    }
}

/// What a node tells the others of itself, and what it knows of them.
pub(super) struct OwnNode<'a> {
    /// Of this start and the one before.
    pub(super) boots: (u64, u64),
    pub(super) speaks: Version,
    pub(super) members: (&'a [Address], &'a Founding),
}

/// Opens the peer port, and connects to the members.
pub(super) fn connect(
    (config, secret): (&PeerConfig, &str),
    identity: Identity,
    OwnNode { boots: (boot, last_boot), speaks, members: (members, founding) }: OwnNode<'_>,
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
            boot: address.boot,
            stamp: address.stamp,
            address: address.address.clone(),
        };
        let members: Vec<_> = members.iter().map(member).collect();
        match Member::store(&disk, &members) {
            // It is told again with the next news.
            Err(error) if error.is_full() => tracing::warn!(
                "disk full: cannot store the list of members: {error}. The node tries again when the list changes; \
                 free space on the disk of the data directory"
            ),
            stored => stored.unwrap_or_else(|error| failure.report(&error)),
        }
    };
    let config = peers::Config {
        node,
        cluster: identity.cluster,
        incarnation: identity.incarnation,
        boot,
        last_boot,
        speaks,
        secret: Secret::new(secret),
        listen: config.listen_address(node).map_err(StartError::Cluster)?,
        advertised: config.advertised_address(node),
        members: members.to_vec(),
        founding: {
            let founders = founding.nodes.iter();
            let founders = founders.map(|(node, address)| (NodeId(*node), address.clone()));
            (founding.groups_per_node, founders.collect())
        },
        bulk_bytes_per_second: config.bulk_bytes_per_second,
        tls: tls(config)?,
        remember: Box::new(remember),
    };
    Peers::start(config, mailboxes.to_vec()).map_err(StartError::Cluster)
}
