//! Brings a node's groups back to where they were: checkpoints, then the entries above them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use machine::{Applied, Catalog, EntryReader, GroupId, NodeId, NodeInfo, QueueMachine};
use raft::eraftpb::{ConfState, HardState};
use wal::segments::SegmentMeta;
use wal::{Disk, EntryAt, Error, Keeper, LostState, Reader, Recovered, RecoveredGroup, Wal};

use crate::checkpoint::State;
use crate::group::catalog::CatalogGroup;
use crate::group::queues::QueueGroup;
use crate::limits::Sizes;
use crate::queues::{Origin, Queues};
use crate::raft_log::{RaftLog, decode_hard_state};
use crate::replica::Replica;
use crate::shard::{Member, Shard};
use crate::{entry, group};

/// A data directory whose log was opened, with what was found there.
pub struct Opened<D: Disk> {
    wal: Wal<D>,
    keeper: Keeper<D>,
    recovered: Recovered,
}

impl<D: Disk> Opened<D> {
    /// Takes what [`Wal::open`] gave. Where the cluster began with several nodes, what is damaged here is whole on the
    /// others: it is quarantined, and they send it again.
    pub fn new(
        mut wal: Wal<D>,
        mut recovered: Recovered,
        genesis: &Genesis,
    ) -> Result<Self, Error> {
        let mut keeper = wal.keeper();
        if genesis.nodes.len() > 1 {
            let groups = genesis.groups_per_node * genesis.nodes.len() as u32;
            wal.quarantine_damaged(&mut keeper, &mut recovered, 0..=groups)?;
        }
        Ok(Self { wal, keeper, recovered })
    }

    /// What is left for the groups.
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// Reads the log. Entries are read with this.
    pub fn reader(&self) -> Reader<D> {
        self.wal.reader()
    }

    /// Brings every group back to where it was: see [`Groups::recover`].
    pub fn recover(self, me: Member, genesis: &Genesis) -> Result<Node<D>, Error> {
        let Self { wal, keeper, recovered } = self;
        let of_group = |(&group, found): (&u32, &RecoveredGroup)| {
            Some((GroupId(group), found.checkpoint.as_ref()?.segments.clone()))
        };
        let segments = recovered.groups.iter().filter_map(of_group).collect();
        let groups = Groups::recover(me, genesis, &wal.reader(), recovered)?;
        Ok(Node { wal, keeper, segments, groups })
    }
}

/// A node as its disk has it.
pub struct Node<D: Disk> {
    pub wal: Wal<D>,
    pub keeper: Keeper<D>,
    /// The segments of each group's checkpoint.
    pub segments: BTreeMap<GroupId, Vec<SegmentMeta>>,
    pub groups: Groups,
}

/// All groups of a node, as its disk has them.
pub struct Groups {
    catalog: CatalogGroup,
    data: BTreeMap<GroupId, QueueGroup>,
}

impl Groups {
    /// Restores every group from its checkpoint and applies every entry above it that is known to be
    /// committed. A group that has nothing begins as `genesis` says.
    pub fn recover<D: Disk>(
        me: Member,
        genesis: &Genesis,
        reader: &Reader<D>,
        recovered: Recovered,
    ) -> Result<Self, Error> {
        Recovery { me, genesis, reader }.groups(recovered)
    }

    /// A copy of the catalog, for sessions to route by.
    pub fn catalog(&self) -> Result<Catalog, Error> {
        let snapshot = self.catalog.catalog().snapshot();
        Catalog::restore(&snapshot).map_err(|corrupt| unreadable(0, &corrupt))
    }

    /// The groups as `shards` cores on a log of such sizes.
    pub fn into_shards(self, me: Member, shards: usize, sizes: Sizes) -> Vec<Shard> {
        let mut catalog = Some(self.catalog);
        let mut parts: Vec<BTreeMap<GroupId, QueueGroup>> =
            (0..shards).map(|_| BTreeMap::new()).collect();
        for (group, queues) in self.data {
            parts[Shard::of(group, shards)].insert(group, queues);
        }
        let shard =
            |(number, groups)| Shard::new(me, number, shards, catalog.take(), groups, sizes);
        parts.into_iter().enumerate().map(shard).collect()
    }
}

/// How a cluster begins: the same on each of its first nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Genesis {
    /// Its first nodes.
    pub nodes: Vec<NodeInfo>,
    /// Data groups of each.
    pub groups_per_node: u32,
}

impl Genesis {
    /// One node by itself.
    pub fn alone(node: NodeId, groups: u32) -> Self {
        let node = NodeInfo { node, address: String::new(), incarnation: 1 };
        Self { nodes: vec![node], groups_per_node: groups }
    }

    pub(crate) fn catalog(&self) -> Catalog {
        Catalog::genesis(&self.nodes, self.groups_per_node)
    }
}

struct Recovery<'a, D: Disk> {
    me: Member,
    genesis: &'a Genesis,
    reader: &'a Reader<D>,
}

/// A group's log as it was found.
struct Found {
    log: RaftLog,
    machine: Option<Bytes>,
    /// Known to be committed, to be applied at once.
    entries: Vec<EntryAt>,
    /// Committed or not: `raft` finds out.
    tail: Vec<EntryAt>,
}

impl<D: Disk> Recovery<'_, D> {
    fn groups(&self, mut recovered: Recovered) -> Result<Groups, Error> {
        for (group, found) in &recovered.groups {
            if let Some(damage) = &found.damage {
                return Err(Error::Refused {
                    path: damage.path.clone(),
                    why: format!(
                        "damaged at byte {}: {} (group {group}). The damaged part was durable, so the node does \
                         not start without it: restore the directory from a backup",
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
                    "damaged at byte {}: {}. The damaged part was durable, and nothing is left of group \
                     {group}. The node does not begin the group anew: restore the directory from a backup",
                    loss.offset, loss.what
                ),
            }),
            Some(_) | None => Ok(()),
        };
        let found = recovered.groups.remove(&0);
        begin(0, &found)?;
        let (catalog, outlook) = self.catalog(found)?;
        let mut data = BTreeMap::new();
        let known = catalog.catalog();
        let is_member = |group: &u32| known.voters(GroupId(*group)).contains(&self.me.node);
        let mut members: BTreeSet<u32> = (1..=known.group_count()).filter(is_member).collect();
        if outlook.nodes().count().max(self.genesis.nodes.len()) > 1 {
            // This node may not have heard yet what the cluster made of it.
            members.extend(recovered.groups.keys().copied());
        }
        for group in members {
            let found = recovered.groups.remove(&group);
            begin(group, &found)?;
            let group = GroupId(group);
            data.insert(group, self.queues(group, outlook.founders(group), found)?);
        }
        if let Some(group) = recovered.groups.keys().next() {
            return Err(Error::Refused {
                path: format!("groups/{group}"),
                why: "the catalog has no such group, and the node deletes nothing that it cannot explain: restore the \
                      directory from a backup".to_owned(),
            });
        }
        Ok(Groups { catalog, data })
    }

    /// The catalog as far as it is known to be committed, and as it is with all that the log has.
    fn catalog(&self, found: Option<RecoveredGroup>) -> Result<(CatalogGroup, Catalog), Error> {
        let lost_state = found.as_ref().map_or(LostState::default(), |found| found.lost_state);
        let genesis = self.genesis.catalog();
        let founders = genesis.founders(GroupId::CATALOG);
        let Found { mut log, machine, entries, tail } =
            self.log(GroupId::CATALOG, founders, found)?;
        let mut catalog = match machine {
            Some(state) => Catalog::restore(&state).map_err(|corrupt| unreadable(0, &corrupt))?,
            None => self.genesis.catalog(),
        };
        let speaks = self.me.speaks;
        if catalog.agreed() > speaks {
            return Err(unreadable(0, &machine::Corrupt::newer("a catalog")));
        }
        let mut applied = log.compacted().0;
        for entry in entries {
            let data = self.reader.read(entry.place)?;
            if !data.is_empty() {
                group::catalog::apply(&mut catalog, speaks, entry.index, &data)
                    .map_err(|corrupt| unreadable(0, &corrupt))?;
            }
            log.recover(entry.index, entry.term, entry.place);
            applied = entry.index;
        }
        // What this node did before it stopped may hang on entries that it does not know any more to
        // be committed: with which voters a group began, whose replica it has.
        let mut outlook = catalog.clone();
        for at in &tail {
            let data = self.reader.read(at.place)?;
            if !data.is_empty() && !entry::is_change(&data) {
                group::catalog::apply(&mut outlook, speaks, at.index, &data)
                    .map_err(|corrupt| unreadable(0, &corrupt))?;
            }
        }
        self.tail(0, &mut log, tail)?;
        let mut replica = Replica::new(GroupId::CATALOG, self.me.node, log, applied, self.me.seed);
        replica.set_lost_state(lost_state);
        Ok((CatalogGroup::new(replica, catalog, applied, speaks), outlook))
    }

    fn queues(
        &self,
        group: GroupId,
        founders: &[NodeId],
        found: Option<RecoveredGroup>,
    ) -> Result<QueueGroup, Error> {
        let segments = found.as_ref().and_then(|found| found.checkpoint.as_ref());
        let segments = segments.map(|found| found.segments.clone()).unwrap_or_default();
        let lost_state = found.as_ref().map_or(LostState::default(), |found| found.lost_state);
        let has_checkpoint = found.as_ref().is_some_and(|found| found.checkpoint.is_some());
        let Found { mut log, machine, entries, tail } = self.log(group, founders, found)?;
        let machine = match machine {
            Some(state) => {
                QueueMachine::restore(&state).map_err(|corrupt| unreadable(group.0, &corrupt))?
            }
            None => QueueMachine::new(),
        };
        let mut queues = Queues::new(group, machine.reading(self.me.speaks));
        for segment in &segments {
            for extent in &segment.extents {
                let queue = machine::QueueId(extent.queue);
                queues.stored(queue, extent.first_seq, extent.last_seq, segment.number);
            }
        }
        let mut applied = log.compacted().0;
        let mut group_effects = Vec::new();
        for EntryAt { index, term, place } in entries {
            let data = self.reader.read(place)?;
            if !data.is_empty() {
                let reader =
                    EntryReader::new(&data).map_err(|corrupt| unreadable(group.0, &corrupt))?;
                let at = Applied { index, time_ms: reader.time_ms() };
                queues.expect_entry(place.checksum);
                queues
                    .apply(at, &data, Origin::Replayed, &mut group_effects)
                    .map_err(|corrupt| unreadable(group.0, &corrupt))?;
            }
            log.recover(index, term, place);
            applied = index;
        }
        assert!(group_effects.is_empty(), "a replayed log asks for nothing");
        self.tail(group.0, &mut log, tail)?;
        let mut replica = Replica::new(group, self.me.node, log, applied, self.me.seed);
        replica.set_lost_state(lost_state);
        let mut queues = QueueGroup::new(replica, queues, group, applied);
        if founders.is_empty() && !has_checkpoint {
            // The group came after the cluster's beginning, and the catalog that says with which voters was damaged.
            tracing::warn!(
                group = group.0,
                "catalog damaged: this node does not know who votes in the group. Its replica neither votes nor takes \
                 messages until the other nodes have sent the catalog; nothing of its log is lost. If this lasts, \
                 start the other nodes"
            );
            queues.group.await_founders();
        }
        Ok(queues)
    }

    fn tail(&self, group: u32, log: &mut RaftLog, tail: Vec<EntryAt>) -> Result<(), Error> {
        for at in tail {
            let data = self.reader.read(at.place)?;
            let entry =
                entry::from_disk(&at, data).ok_or_else(|| unreadable(group, &"an entry"))?;
            log.recover_tail(entry, at.place);
        }
        Ok(())
    }

    /// The group's log before its entries, the machine's state, and the entries.
    fn log(
        &self,
        group: GroupId,
        founders: &[NodeId],
        found: Option<RecoveredGroup>,
    ) -> Result<Found, Error> {
        let found = found.unwrap_or_default();
        let mut hard_state = match &found.hard_state {
            Some(bytes) => decode_hard_state(bytes)
                .ok_or_else(|| unreadable(group.0, &"its hard state is of another version"))?,
            None => HardState::default(),
        };
        let (mut index, mut term, mut machine) = (0, 0, None);
        let voters = founders.iter().map(|node| node.0).collect();
        let mut members = ConfState { voters, ..ConfState::default() };
        if let Some(checkpoint) = &found.checkpoint {
            let decoded = State::decode(&checkpoint.state)
                .ok_or_else(|| unreadable(checkpoint.group, &"the checkpoint's state"))?;
            (index, term) = (checkpoint.index, checkpoint.term);
            if !planted::is("founders_for_ever") {
                members = decoded.members();
            }
            machine = Some(decoded.machine);
        }
        let knows_voters = !members.voters.is_empty();
        let last = found.entries.last().map_or(index, |entry| entry.index).max(index);
        // The only voter's disk is the majority, so every entry on it is committed.
        let is_alone = members.voters == [self.me.node.0] && members.learners.is_empty();
        let known = hard_state.commit.clamp(index, last);
        hard_state.commit = if is_alone { last } else { known };
        hard_state.term = hard_state.term.max(found.entries.last().map_or(term, |last| last.term));
        let (mut entries, mut tail) = (Vec::new(), Vec::new());
        for at in found.entries.into_iter().filter(|entry| entry.index > index) {
            // From a change of membership on, `raft` has to see what is applied. Where the voters are not known yet,
            // nothing is applied, so `raft` sees every entry later.
            let is_known = at.index <= hard_state.commit && tail.is_empty() && knows_voters;
            if is_known && !entry::is_change(&self.reader.read(at.place)?) {
                entries.push(at);
                continue;
            }
            if is_known && is_alone {
                // It was alone up to here: of what follows, others have to have it, too.
                hard_state.commit = known.max(at.index);
            }
            tail.push(at);
        }
        let log = RaftLog::new(hard_state, members, index, term);
        Ok(Found { log, machine, entries, tail })
    }
}

fn unreadable(group: u32, what: &dyn std::fmt::Display) -> Error {
    Error::Refused {
        path: format!("group {group}"),
        why: format!("the checksums of its log are right, but the log cannot be applied: {what}"),
    }
}
