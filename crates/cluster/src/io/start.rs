//! Opens a data directory, brings every group back to where it was, and starts the threads.

use std::sync::{Arc, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use machine::{NodeId, Version};
use wal::{Boot, Error, FileDisk, Wal};

use super::config::Config;
use super::failure::{Failure, StartError};
use super::flusher::Flusher;
use super::handle::{ClusterHandle, Node};
use super::mailbox::Mailbox;
use super::neighbours::Identified;
use super::peers::draw;
use super::store::Store;
use super::threads::spawn;
use super::{neighbours, reading, shard_loop, writing};
use crate::commit_delay::CommitDelay;
use crate::limits::{MAILBOX_BYTES, Sizes};
use crate::reading::StoreReader;
use crate::recovery::{self, Opened};
use crate::request::Alarms;
use crate::shard::Member;

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
        why: format!("cannot be opened or created: {error}; check its path and permissions"),
    })?;
    let Identified { identity, admitted, secret } = neighbours::identify(config, &disk)?;
    let mut log_config = wal::Config::new(identity);
    log_config.file_bytes = config.wal_file_bytes;
    let (wal, recovered) = Wal::open(disk.clone(), log_config)?;
    // Before anything is done under it: no two starts have the same number.
    // A directory that replaces another under the same number begins above it: by the clock.
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let last_boot = Boot::last(&disk)?;
    let boot = Boot::next_from(&disk, wall.as_millis() as u64)?;
    let id = NodeId(identity.node);
    let speaks = config.version_max.min(Version::TRIAL);
    let me = Member { node: id, boot, seed: u64::from_le_bytes(draw()), speaks };
    if let Some(admitted) = &admitted {
        neighbours::settle(admitted, id, &disk)?;
    }
    let members = neighbours::members(config, id, &disk)?;
    let founding = neighbours::founding(config, id, &disk)?;
    let genesis = neighbours::genesis(&founding);
    let recovered = Opened::new(wal, recovered, &genesis)?.recover(me, &genesis)?;
    let recovery::Node { wal, keeper, segments: metas, groups } = recovered;
    let reader = wal.reader();
    let segments = Arc::new(reading::SharedSegments::default());
    let preparer = keeper.preparer();
    let (opened, limit) = (Arc::clone(&segments), config.disk_free_limit);
    let flusher = Flusher::new(keeper, reader.clone(), opened, metas, limit)?;
    let catalog = groups.catalog()?;
    let mailboxes: Vec<_> = (0..config.shards).map(|_| Mailbox::new(MAILBOX_BYTES)).collect();
    let peers = match config.peers.as_ref().zip(secret.as_deref()) {
        Some(peers) => {
            let members = (&members[..], &founding);
            let boots = (boot, last_boot);
            let told = neighbours::OwnNode { boots, speaks, members };
            Some(neighbours::connect(peers, identity, told, &disk, failure, &mailboxes)?)
        }
        None => None,
    };
    let node = Arc::new(Node::new(identity, speaks, mailboxes, peers, catalog));
    neighbours::follow(&node, &node.catalog.read().unwrap_or_else(PoisonError::into_inner));
    let store = Arc::new(Store::new(config.shards));
    let (sources, reader) = (reader.clone(), StoreReader::new(reader));
    let mut threads = Vec::new();
    let sizes = Sizes::of(config.wal_file_bytes);
    for (number, mut shard) in groups.into_shards(me, config.shards, sizes).into_iter().enumerate()
    {
        if config.reconcile_stop {
            shard.stop_at_differences();
        }
        let (node, store, failure) = (Arc::clone(&node), Arc::clone(&store), failure.clone());
        threads.push(spawn(format!("shard-{number}"), move || {
            shard_loop::run(number, shard, Arc::clone(&node), Arc::clone(&store), &failure);
            store.shard_ended();
        }));
    }
    {
        let (node, store, failure) = (Arc::clone(&node), Arc::clone(&store), failure.clone());
        let delay = CommitDelay::new(config.commit_delay_us);
        let write = move || writing::run(wal, delay, &node, &store, &failure);
        threads.push(spawn("wal".to_owned(), write));
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
    if node.peers.is_some() {
        let (node, disk, failure) = (Arc::clone(&node), disk.clone(), failure.clone());
        threads.push(spawn("renewal".to_owned(), move || {
            super::renewing::run(boot, &disk, &node, &failure);
        }));
    }
    {
        let (node, config) = (Arc::clone(&node), config.clone());
        let found = super::alarms::look(&node, &config, Alarms::default());
        threads.push(spawn("alarms".to_owned(), move || super::alarms::run(&node, &config, found)));
    }
    node.threads.lock().unwrap_or_else(PoisonError::into_inner).extend(threads);
    Ok(ClusterHandle { node, store })
}
