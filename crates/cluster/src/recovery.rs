//! Brings a node's groups back to where they were: checkpoints, then the entries above them.

use std::collections::BTreeMap;

use bytes::Bytes;
use machine::{Applied, Catalog, EntryReader, GroupId, NodeId, QueueMachine};
use raft::eraftpb::HardState;
use wal::{Disk, EntryAt, Error, Reader, Recovered, RecoveredGroup};

use crate::catalog_group::{self, CatalogGroup};
use crate::checkpoint::State;
use crate::limits::Sizes;
use crate::queue_group::QueueGroup;
use crate::queues::{Origin, Queues};
use crate::raft_log::{RaftLog, decode_hard_state};
use crate::replica::Replica;
use crate::shard::Shard;

/// All groups of a node, as its disk has them.
pub struct Groups {
    catalog: CatalogGroup,
    data: BTreeMap<GroupId, QueueGroup>,
}

impl Groups {
    /// Restores every group from its checkpoint and applies every entry above it. A directory that
    /// is new gets `groups` data groups.
    pub fn recover<D: Disk>(
        id: NodeId,
        reader: &Reader<D>,
        recovered: Recovered,
        groups: u32,
    ) -> Result<Self, Error> {
        Recovery { id, reader }.groups(recovered, groups)
    }

    /// A copy of the catalog, for sessions to route by.
    pub fn catalog(&self) -> Result<Catalog, Error> {
        let snapshot = self.catalog.catalog().snapshot();
        Catalog::restore(&snapshot).map_err(|corrupt| unreadable(0, &corrupt))
    }

    /// The groups as `shards` cores on a log of such sizes.
    pub fn into_shards(self, id: NodeId, shards: usize, sizes: Sizes) -> Vec<Shard> {
        let mut catalog = Some(self.catalog);
        let mut parts: Vec<BTreeMap<GroupId, QueueGroup>> =
            (0..shards).map(|_| BTreeMap::new()).collect();
        for (group, queues) in self.data {
            parts[Shard::of(group, shards)].insert(group, queues);
        }
        let shard =
            |(number, groups)| Shard::new(id, number, shards, catalog.take(), groups, sizes);
        parts.into_iter().enumerate().map(shard).collect()
    }
}

struct Recovery<'a, D: Disk> {
    id: NodeId,
    reader: &'a Reader<D>,
}

impl<D: Disk> Recovery<'_, D> {
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
        let losses = std::mem::take(&mut recovered.losses);
        // A group that has nothing was never written to, or everything of it was lost.
        let begin = |group: u32, found: &Option<RecoveredGroup>| match losses.first() {
            Some(loss) if found.is_none() => Err(Error::Refused {
                path: loss.path.clone(),
                why: format!(
                    "damaged at byte {}: {}. It was durable once, and nothing is left of group \
                     {group}, which is not begun anew: restore the directory from a backup",
                    loss.offset, loss.what
                ),
            }),
            Some(_) | None => Ok(()),
        };
        let found = recovered.groups.remove(&0);
        begin(0, &found)?;
        let catalog = self.catalog(found, groups)?;
        let mut data = BTreeMap::new();
        for group in 1..=catalog.catalog().group_count() {
            let found = recovered.groups.remove(&group);
            begin(group, &found)?;
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
        let (mut log, state, entries) = self.log(GroupId::CATALOG, found)?;
        let mut catalog = match state {
            Some(state) => Catalog::restore(&state).map_err(|corrupt| unreadable(0, &corrupt))?,
            None => Catalog::new(groups),
        };
        let mut applied = log.compacted().0;
        for entry in entries {
            let data = self.reader.read(entry.place)?;
            if !data.is_empty() {
                catalog_group::apply(&mut catalog, entry.index, &data)
                    .map_err(|corrupt| unreadable(0, &corrupt))?;
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
        let (mut log, state, entries) = self.log(group, found)?;
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
                queues.stored(queue, extent.first_seq, extent.last_seq, segment.number);
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
        group: GroupId,
        found: Option<RecoveredGroup>,
    ) -> Result<(RaftLog, Option<Bytes>, Vec<EntryAt>), Error> {
        let found = found.unwrap_or_default();
        let mut hard_state = match &found.hard_state {
            Some(bytes) => decode_hard_state(bytes)
                .ok_or_else(|| unreadable(group.0, &"its hard state is of another version"))?,
            None => HardState::default(),
        };
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

fn unreadable(group: u32, what: &dyn std::fmt::Debug) -> Error {
    Error::Refused {
        path: format!("group {group}"),
        why: format!("its log passes its checksums but cannot be applied: {what:?}"),
    }
}
