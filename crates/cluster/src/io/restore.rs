//! Makes the data directory of a new cluster's node from a backup, or checks a backup's groups.
//!
//! Each group begins with a checkpoint that has the backup's index, state and messages, and the new cluster's nodes as its
//! voters. So a restored node starts as one that has just made a checkpoint of everything. All nodes of a new cluster are
//! restored from the same backup: their replicas are equal.

use std::io::Read;
use std::path::Path;

use bytes::Bytes;
use machine::{Catalog, GroupId, NodeId, NodeInfo, Version};
use raft::eraftpb::ConfState;
use wal::{Boot, Checkpoint, Error, FileDisk, Founding, Identity, Keeper, Member, Wal};

use super::peers::draw;
use crate::checkpoint::State;
use crate::snapshot::{StoredGroup, Taken};

/// Bytes that are read of a backup at a time.
const READ_BYTES: usize = 1 << 20;

/// Incarnation of a node that has no cluster.
const ALONE: u64 = 1;

/// A group of a backup.
pub struct BackupGroup {
    pub group: GroupId,
    pub index: u64,
    pub term: u64,
    /// Its stream, which ends where the group does.
    pub stream: Box<dyn Read>,
}

/// Whose directory is made.
#[derive(Clone, Debug)]
pub struct Home {
    pub cluster: u128,
    pub node: NodeId,
    /// All nodes of the new cluster, with their addresses; of a node alone, an empty one.
    pub nodes: Vec<(NodeId, String)>,
}

/// What a backup's groups hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub groups: u64,
    /// Messages, each once for each queue that has it.
    pub messages: u64,
    pub queues: u64,
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.groups += other.groups;
        self.messages += other.messages;
        self.queues += other.queues;
    }
}

/// Reads a group of a backup as a restore does, and writes nothing.
///
/// # Errors
/// What is wrong with it.
pub fn check_backup_group(backed: BackupGroup) -> Result<Totals, String> {
    let (group, taken) = (backed.group, read(backed, None)?);
    let queues = match group {
        GroupId::CATALOG => catalog(&taken)?.queues().count() as u64,
        _ => 0,
    };
    Ok(Totals { groups: 1, messages: taken.messages, queues })
}

/// Makes `data_dir`, which must not be there, from a backup: the catalog's group first.
///
/// # Errors
/// A sentence that says why not. What was written is left where it is.
pub fn restore_directory(
    data_dir: &Path,
    home: &Home,
    groups: impl Iterator<Item = Result<BackupGroup, String>>,
) -> Result<Totals, String> {
    let explain = |error: Error| match error.is_full() {
        true => format!("the disk of {} is full: {error}", data_dir.display()),
        false => format!("{} cannot be written: {error}", data_dir.display()),
    };
    let disk = FileDisk::new(data_dir).map_err(|error| explain(unusable(data_dir, &error)))?;
    let is_alone = home.nodes.len() == 1;
    let identity = Identity {
        cluster: home.cluster,
        node: home.node.0,
        incarnation: if is_alone { ALONE } else { u64::from_le_bytes(draw()) },
    };
    let (mut wal, _) = Wal::open(disk.clone(), wal::Config::new(identity)).map_err(explain)?;
    let mut keeper = wal.keeper();
    let mut totals = Totals::default();
    let mut known: Option<Catalog> = None;
    for backed in groups {
        let backed = backed?;
        let (group, index, term) = (backed.group, backed.index, backed.term);
        let voters = match &known {
            None if group != GroupId::CATALOG => {
                return Err("the catalog must come first".to_owned());
            }
            None => home.nodes.iter().map(|(node, _)| *node).collect(),
            Some(catalog) => catalog.voters(group).to_vec(),
        };
        // A group that the catalog does not have is of a node that came while the backup was made.
        if !voters.contains(&home.node) {
            continue;
        }
        let taken = read(backed, Some(&mut keeper))?;
        let machine = match group {
            GroupId::CATALOG => {
                let mut catalog = catalog(&taken)?;
                totals.queues = catalog.queues().count() as u64;
                catalog.refound(&infos(home, is_alone));
                let snapshot = Bytes::from(catalog.snapshot());
                known = Some(catalog);
                snapshot
            }
            _ => taken.state.machine,
        };
        let members = ConfState {
            voters: voters.iter().map(|node| node.0).collect(),
            ..ConfState::default()
        };
        let state = State::encode(&members, &machine);
        let segments = taken.segments;
        keeper
            .install(Checkpoint { group: group.0, index, term, state, segments })
            .map_err(explain)?;
        totals += Totals { groups: 1, messages: taken.messages, queues: 0 };
    }
    let catalog = known.ok_or("the backup has no catalog")?;
    drop(keeper);
    beside(&disk, home, &catalog).map_err(explain)?;
    // Writes down which checkpoints there are.
    wal.commit(Vec::new()).map_err(explain)?;
    wal.close().map_err(explain)?;
    Ok(totals)
}

/// The small files beside the log.
fn beside(disk: &FileDisk, home: &Home, catalog: &Catalog) -> Result<(), Error> {
    let nodes = home.nodes.len() as u32;
    let founding = Founding {
        // A start looks at as many groups as nodes bring together.
        groups_per_node: catalog.group_count().div_ceil(nodes),
        nodes: home.nodes.iter().map(|(node, address)| (node.0, address.clone())).collect(),
    };
    founding.store(disk)?;
    let others = home.nodes.iter().filter(|(node, _)| *node != home.node);
    let member = |(node, address): &(NodeId, String)| Member {
        node: node.0,
        incarnation: None,
        boot: 0,
        stamp: 0,
        address: address.clone(),
    };
    if nodes > 1 {
        Member::store(disk, &others.map(member).collect::<Vec<_>>())?;
    }
    // The machines know starts of the former node of this number: this one's begin above them.
    Boot::next_from(disk, catalog.latest_boot(home.node) + 1).map(|_| ())
}

fn infos(home: &Home, is_alone: bool) -> Vec<NodeInfo> {
    let incarnation = if is_alone { ALONE } else { 0 };
    let info = |(node, address): &(NodeId, String)| NodeInfo {
        node: *node,
        address: address.clone(),
        incarnation,
    };
    home.nodes.iter().map(info).collect()
}

fn catalog(taken: &Taken) -> Result<Catalog, String> {
    let catalog = Catalog::restore(&taken.state.machine)
        .map_err(|error| format!("the catalog cannot be read: {error}"))?;
    let newest = Version::NEWEST;
    if catalog.agreed() > newest {
        return Err(format!(
            "the backup is of a cluster of version {}, and this program reads up to version {newest}: use a newer program",
            catalog.agreed()
        ));
    }
    Ok(catalog)
}

fn read(backed: BackupGroup, mut keeper: Option<&mut Keeper<FileDisk>>) -> Result<Taken, String> {
    let BackupGroup { group, index, term, mut stream } = backed;
    let explain = |why: String| format!("group {} of the backup: {why}", group.0);
    let mut stored = StoredGroup::<FileDisk>::new(group, (index, term));
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = stream.read(&mut buffer).map_err(|error| explain(error.to_string()))?;
        if count == 0 {
            return stored.end().map_err(explain);
        }
        let bytes = Bytes::copy_from_slice(&buffer[..count]);
        stored.take(keeper.as_deref_mut(), &bytes).map_err(explain)?;
    }
}

fn unusable(data_dir: &Path, error: &std::io::Error) -> Error {
    Error::Refused { path: data_dir.display().to_string(), why: error.to_string() }
}
