//! Opens a data directory, brings every group back to where it was, and starts the threads.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use machine::{GroupId, NodeId, Version};
use wal::{Boot, Error, FileDisk, Wal};

use super::flusher::Flusher;
use super::handle::{ClusterHandle, Node};
use super::mailbox::Mailbox;
use super::neighbours::Identified;
use super::peers::draw;
use super::{neighbours, reading, shard_loop, store};
use crate::limits::{MAILBOX_BYTES, Sizes};
use crate::membership::PeerConfig;
use crate::recovery::Groups;
use crate::shard::Member;
use reading::Segments;
use store::Store;

/// How to start a node.
#[derive(Clone, Debug)]
pub struct Config {
    pub data_dir: PathBuf,
    /// Data groups of a new directory; an old one keeps its own.
    pub groups: u32,
    /// Threads that own groups.
    pub shards: usize,
    /// Size of one file of the log.
    pub wal_file_bytes: u64,
    /// Publishers wait while the process holds more memory than this, in bytes.
    pub memory_limit: u64,
    /// Publishers wait while the disk has less free than this, in bytes.
    pub disk_free_limit: u64,
    /// Drawn by the caller; the identity of a directory that is new and of no cluster.
    pub new_cluster: u128,
    /// The other nodes. `None`: this one is alone.
    pub peers: Option<PeerConfig>,
    /// The node reads and writes no newer version than this, so its cluster agrees on none.
    pub version_max: Version,
}

/// Why a node does not start: a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The data directory cannot be used.
    Directory(Error),
    /// The configuration does not fit the data directory, or the peer port is not free.
    Cluster(String),
}

impl From<Error> for StartError {
    fn from(error: Error) -> Self {
        Self::Directory(error)
    }
}

impl std::fmt::Display for StartError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory(error) => write!(out, "the data directory cannot be used: {error}"),
            Self::Cluster(why) => out.write_str(why),
        }
    }
}

impl std::error::Error for StartError {}

/// Why a node ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A write or a sync failed, or what was read is damaged.
    Disk,
    /// The log has what this program is too old to read.
    Outdated,
}

/// Told why the node ends, at the first reason; is expected to end the process.
#[derive(Clone)]
pub struct Failure(Arc<Tell>);

type Tell = dyn Fn(Cause, &str) + Send + Sync;

impl Failure {
    /// Calls `tell` with a sentence for the operator.
    pub fn new(tell: impl Fn(Cause, &str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Does not come back: a node that cannot write must not look as if it could.
    pub(crate) fn tell(&self, error: &Error) -> ! {
        self.end(Cause::Disk, &error.to_string())
    }

    /// Does not come back: what comes after in the log may hang on what cannot be read.
    pub(crate) fn tell_outdated(&self, why: &str) -> ! {
        self.end(Cause::Outdated, why)
    }

    fn end(&self, cause: Cause, why: &str) -> ! {
        (self.0)(cause, why);
        std::process::abort();
    }
}

impl std::fmt::Debug for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Failure")
    }
}

/// Opens the data directory and starts the node. Returns when its groups can serve.
pub fn start(config: &Config, failure: &Failure) -> Result<ClusterHandle, StartError> {
    let cluster = launch(config, failure)?;
    cluster.wait_ready();
    Ok(cluster)
}

/// Opens the data directory and starts the node. Its groups may have to wait for other nodes before
/// they can serve: see [`ClusterHandle::wait_ready`].
pub fn launch(config: &Config, failure: &Failure) -> Result<ClusterHandle, StartError> {
    let disk = FileDisk::new(&config.data_dir).map_err(|error| Error::Refused {
        path: config.data_dir.display().to_string(),
        why: format!("cannot be opened or made: {error}"),
    })?;
    let Identified { identity, admitted, secret } = neighbours::identify(config, &disk)?;
    let mut log_config = wal::Config::new(identity);
    log_config.file_bytes = config.wal_file_bytes;
    let (mut wal, mut recovered) = Wal::open(disk.clone(), log_config)?;
    // Before anything is done under it: no two starts have the same number.
    // A directory that replaces another under the same number begins above it: by the clock.
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let reader = wal.reader();
    let mut keeper = wal.keeper();
    let last_boot = Boot::last(&disk)?;
    let boot = Boot::next_from(&disk, wall.as_millis() as u64)?;
    let id = NodeId(identity.node);
    let speaks = config.version_max.min(Version::NEWEST);
    let me = Member { node: id, boot, seed: u64::from_le_bytes(draw()), speaks };
    if let Some(admitted) = &admitted {
        neighbours::settle(admitted, id, &disk)?;
    }
    let members = neighbours::members(config, id, &disk)?;
    let founding = neighbours::founding(config, id, &disk)?;
    let genesis = neighbours::genesis(&founding);
    if genesis.nodes.len() > 1 {
        // What is damaged here is whole on the other nodes.
        let groups = genesis.groups_per_node * genesis.nodes.len() as u32;
        wal.set_aside_damaged(&mut keeper, &mut recovered, 0..=groups)?;
    }
    let metas = recovered
        .groups
        .iter()
        .filter_map(|(&group, found)| {
            Some((GroupId(group), found.checkpoint.as_ref()?.segments.clone()))
        })
        .collect();
    let groups = Groups::recover(me, &genesis, &reader, recovered)?;
    let segments = Arc::new(Segments::default());
    let preparer = keeper.preparer();
    let (opened, limit) = (Arc::clone(&segments), config.disk_free_limit);
    let flusher = Flusher::new(keeper, reader.clone(), opened, metas, limit)?;
    let catalog = groups.catalog()?;
    let mailboxes: Vec<_> = (0..config.shards).map(|_| Mailbox::new(MAILBOX_BYTES)).collect();
    let peers = match config.peers.as_ref().zip(secret.as_deref()) {
        Some(peers) => {
            let members = (&members[..], &founding);
            let boots = (boot, last_boot);
            let told = neighbours::Told { boots, speaks, members };
            Some(neighbours::connect(peers, identity, told, &disk, failure, &mailboxes)?)
        }
        None => None,
    };
    let node = Arc::new(Node::new(identity, speaks, mailboxes, peers, catalog));
    neighbours::follow(&node, &node.catalog.read().unwrap_or_else(PoisonError::into_inner));
    let store = Arc::new(Store::new(config.shards));
    let sources = reader.clone();
    let mut threads = Vec::new();
    let sizes = Sizes::of(config.wal_file_bytes);
    for (number, shard) in groups.into_shards(me, config.shards, sizes).into_iter().enumerate() {
        let (node, store, failure) = (Arc::clone(&node), Arc::clone(&store), failure.clone());
        threads.push(spawn(format!("shard-{number}"), move || {
            shard_loop::run(number, shard, Arc::clone(&node), Arc::clone(&store), &failure);
            store.shard_ended();
        }));
    }
    {
        let (node, store, failure) = (Arc::clone(&node), Arc::clone(&store), failure.clone());
        threads.push(spawn("wal".to_owned(), move || store::write(wal, &node, &store, &failure)));
    }
    {
        let (node, store, failure) = (Arc::clone(&node), Arc::clone(&store), failure.clone());
        threads.push(spawn("reader".to_owned(), move || {
            reading::run(&reader, &segments, &node, &store, &failure);
        }));
    }
    {
        let (node, store, failure) = (Arc::clone(&node), Arc::clone(&store), failure.clone());
        threads.push(spawn("flusher".to_owned(), move || {
            super::flusher::run(flusher, &node, &store, &failure);
        }));
    }
    {
        let (node, store, failure) = (Arc::clone(&node), Arc::clone(&store), failure.clone());
        threads.push(spawn("log-files".to_owned(), move || {
            super::preparing::run(preparer, &node, &store, &failure);
        }));
    }
    {
        let (node, store, failure) = (Arc::clone(&node), Arc::clone(&store), failure.clone());
        threads.push(spawn("snapshots".to_owned(), move || {
            super::snapshots::run(&sources, &node, &store, &failure);
        }));
    }
    {
        let (node, config) = (Arc::clone(&node), config.clone());
        threads.push(spawn("alarms".to_owned(), move || super::alarms::run(&node, &config)));
    }
    node.threads.lock().unwrap_or_else(PoisonError::into_inner).extend(threads);
    Ok(ClusterHandle { node, store })
}

/// Ends the process if a thread of the node panics: the others would wait for it for ever, and its
/// groups would be led by nobody. The next start recovers from what is on the disk.
struct Alive;

impl Drop for Alive {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

pub(super) fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    let builder = thread::Builder::new().name(name);
    let run = || {
        let alive = Alive;
        run();
        drop(alive);
    };
    builder.spawn(run).expect("the system can start a handful of threads")
}
