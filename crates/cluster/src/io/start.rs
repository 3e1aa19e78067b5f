//! Opens a data directory, brings every group back to where it was, and starts the threads.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use machine::{Applied, Catalog, EntryReader, GroupId, NodeId, QueueMachine};
use wal::{EntryAt, Error, FileDisk, Identity, Reader, Recovered, RecoveredGroup, Wal};

use super::flusher::Flusher;
use super::handle::{ClusterHandle, Node};
use super::mailbox::Mailbox;
use super::{shard_loop, store};
use crate::catalog_group::{self, CatalogGroup};
use crate::checkpoint::State;
use crate::limits::MAILBOX_BYTES;
use crate::queue_group::QueueGroup;
use crate::queues::{Origin, Queues};
use crate::raft_log::{RaftLog, decode_hard_state};
use crate::replica::Replica;
use crate::shard::Shard;
use store::{Segments, Store};

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
    /// Drawn by the caller; the identity of a directory that is new.
    pub new_cluster: u128,
}

/// Told of the first failure of the disk; is expected to end the process.
#[derive(Clone)]
pub struct Failure(Arc<dyn Fn(&str) + Send + Sync>);

impl Failure {
    /// Calls `tell` with a sentence for the operator.
    pub fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    pub(crate) fn tell(&self, error: &Error) {
        (self.0)(&format!("{error}"));
    }
}

impl std::fmt::Debug for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Failure")
    }
}

/// Opens the data directory and starts the node. Returns when its groups can serve.
pub fn start(config: &Config, failure: &Failure) -> Result<ClusterHandle, Error> {
    let disk = FileDisk::new(&config.data_dir).map_err(|error| Error::Refused {
        path: config.data_dir.display().to_string(),
        why: format!("cannot be opened or made: {error}"),
    })?;
    let fresh = Identity { cluster: config.new_cluster, node: 1, incarnation: 1 };
    let identity = Identity::load(&disk)?.unwrap_or(fresh);
    let mut log_config = wal::Config::new(identity);
    log_config.file_bytes = config.wal_file_bytes;
    let (mut wal, recovered) = Wal::open(disk, log_config)?;
    let reader = wal.reader();
    let keeper = wal.keeper();
    let id = NodeId(identity.node);
    let metas = recovered
        .groups
        .iter()
        .filter_map(|(&group, found)| {
            Some((GroupId(group), found.checkpoint.as_ref()?.segments.clone()))
        })
        .collect();
    let groups = Recovery { id, reader: &reader }.groups(recovered, config.groups)?;
    let segments = Arc::new(Segments::default());
    let flusher = Flusher::new(keeper, reader.clone(), Arc::clone(&segments), metas)?;
    let catalog = groups.catalog.catalog().snapshot();
    let catalog = Catalog::restore(&catalog).map_err(|corrupt| unreadable(0, &corrupt))?;
    let mailboxes: Vec<_> = (0..config.shards).map(|_| Mailbox::new(MAILBOX_BYTES)).collect();
    let node = Arc::new(Node::new(id, mailboxes, catalog));
    let store = Arc::new(Store::new(config.shards));
    let mut threads = Vec::new();
    for (number, shard) in groups.into_shards(id, config.shards).into_iter().enumerate() {
        let (node, store) = (Arc::clone(&node), Arc::clone(&store));
        threads.push(spawn(format!("shard-{number}"), move || {
            shard_loop::run(number, shard, Arc::clone(&node), Arc::clone(&store));
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
            store::read(&reader, &segments, &node, &store, &failure);
        }));
    }
    {
        let (node, store, failure) = (Arc::clone(&node), Arc::clone(&store), failure.clone());
        threads.push(spawn("flusher".to_owned(), move || {
            super::flusher::run(flusher, &node, &store, &failure);
        }));
    }
    {
        let (node, config) = (Arc::clone(&node), config.clone());
        threads.push(spawn("alarms".to_owned(), move || super::alarms::run(&node, &config)));
    }
    node.threads.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(threads);
    store.wait_reconciled(config.shards);
    Ok(ClusterHandle { node })
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    let builder = thread::Builder::new().name(name);
    builder.spawn(run).expect("the system can start a handful of threads")
}

/// Brings groups back from the log.
struct Recovery<'a> {
    id: NodeId,
    reader: &'a Reader<FileDisk>,
}

/// All groups of the node.
struct Groups {
    catalog: CatalogGroup,
    data: BTreeMap<GroupId, QueueGroup>,
}

impl Recovery<'_> {
    fn groups(&self, mut recovered: Recovered, groups: u32) -> Result<Groups, Error> {
        for (group, found) in &recovered.groups {
            if let Some(damage) = &found.damage {
                return Err(Error::Refused {
                    path: damage.path.clone(),
                    why: format!(
                        "damaged at byte {}: {} (group {group}). It was durable once, so it is not \
                         cut: restore the directory from a backup",
                        damage.offset, damage.what
                    ),
                });
            }
        }
        let catalog = self.catalog(recovered.groups.remove(&0), groups)?;
        let mut data = BTreeMap::new();
        for group in 1..=catalog.catalog().group_count() {
            let found = recovered.groups.remove(&group);
            data.insert(GroupId(group), self.queues(GroupId(group), found)?);
        }
        if let Some(group) = recovered.groups.keys().next() {
            return Err(Error::Refused {
                path: format!("groups/{group}"),
                why: "the catalog knows no such group; nothing unexplained is deleted".to_owned(),
            });
        }
        Ok(Groups { catalog, data })
    }

    fn catalog(&self, found: Option<RecoveredGroup>, groups: u32) -> Result<CatalogGroup, Error> {
        let (mut log, state, entries) = self.log(found)?;
        let mut catalog = match state {
            Some(state) => Catalog::restore(&state).map_err(|corrupt| unreadable(0, &corrupt))?,
            None => Catalog::new(groups),
        };
        let mut applied = log.compacted().0;
        for entry in entries {
            let data = self.reader.read(entry.place)?;
            if !data.is_empty() {
                catalog_group::apply(&mut catalog, entry.index, &data);
            }
            log.recover(entry.index, entry.term, entry.place);
            applied = entry.index;
        }
        let replica = Replica::new(GroupId::CATALOG, self.id, log, applied);
        Ok(CatalogGroup::new(replica, catalog, applied))
    }

    fn queues(&self, group: GroupId, found: Option<RecoveredGroup>) -> Result<QueueGroup, Error> {
        let segments = found.as_ref().and_then(|found| found.checkpoint.as_ref());
        let segments = segments.map(|found| found.segments.clone()).unwrap_or_default();
        let (mut log, state, entries) = self.log(found)?;
        let machine = match state {
            Some(state) => {
                QueueMachine::restore(&state).map_err(|corrupt| unreadable(group.0, &corrupt))?
            }
            None => QueueMachine::new(),
        };
        let mut queues = Queues::new(group, machine);
        for segment in &segments {
            for extent in &segment.extents {
                let queue = machine::QueueId(extent.queue);
                let bodies = queues.bodies_mut();
                bodies.stored(queue, extent.first_seq, extent.last_seq, segment.number);
            }
        }
        let mut applied = log.compacted().0;
        let mut wishes = Vec::new();
        for EntryAt { index, term, place } in entries {
            let data = self.reader.read(place)?;
            if !data.is_empty() {
                let reader =
                    EntryReader::new(&data).map_err(|corrupt| unreadable(group.0, &corrupt))?;
                let at = Applied { index, time_ms: reader.time_ms() };
                queues
                    .apply(at, &data, Origin::Replayed, &mut wishes)
                    .map_err(|corrupt| unreadable(group.0, &corrupt))?;
            }
            log.recover(index, term, place);
            applied = index;
        }
        assert!(wishes.is_empty(), "a replayed log asks for nothing");
        let replica = Replica::new(group, self.id, log, applied);
        Ok(QueueGroup::new(replica, queues, group, applied))
    }

    /// The group's log before its entries, the machine's state, and the entries to be applied.
    ///
    /// The only voter's disk is the majority, so every entry on it is committed.
    fn log(
        &self,
        found: Option<RecoveredGroup>,
    ) -> Result<(RaftLog, Option<Bytes>, Vec<EntryAt>), Error> {
        let found = found.unwrap_or_default();
        let mut hard_state =
            found.hard_state.as_deref().and_then(decode_hard_state).unwrap_or_default();
        let (mut index, mut term, mut state) = (0, 0, None);
        let mut voters = vec![self.id.0];
        if let Some(checkpoint) = &found.checkpoint {
            let decoded = State::decode(&checkpoint.state)
                .ok_or_else(|| unreadable(checkpoint.group, &"the checkpoint's state"))?;
            (index, term) = (checkpoint.index, checkpoint.term);
            voters = decoded.voters;
            state = Some(decoded.machine);
        }
        let last = found.entries.last().map_or(index, |entry| entry.index);
        assert_eq!(voters, [self.id.0], "one node is its own majority");
        hard_state.commit = last.max(index);
        hard_state.term = hard_state.term.max(found.entries.last().map_or(term, |last| last.term));
        let entries = found.entries.into_iter().filter(|entry| entry.index > index).collect();
        Ok((RaftLog::new(hard_state, voters, index, term), state, entries))
    }
}

impl Groups {
    fn into_shards(self, id: NodeId, shards: usize) -> Vec<Shard> {
        let mut catalog = Some(self.catalog);
        let mut parts: Vec<BTreeMap<GroupId, QueueGroup>> =
            (0..shards).map(|_| BTreeMap::new()).collect();
        for (group, queues) in self.data {
            parts[Shard::of(group, shards)].insert(group, queues);
        }
        let shard = |(number, groups)| Shard::new(id, number, shards, catalog.take(), groups);
        parts.into_iter().enumerate().map(shard).collect()
    }
}

fn unreadable(group: u32, what: &dyn std::fmt::Debug) -> Error {
    Error::Refused {
        path: format!("group {group}"),
        why: format!("its log passes its checksums but cannot be applied: {what:?}"),
    }
}
