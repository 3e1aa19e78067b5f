//! What a data directory says of its groups, read as a start would read it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use machine::{Catalog, GroupId, NodeId, QueueId};
use raft::eraftpb::{ConfState, HardState};
use wal::{Disk, Error, Identity, Reader, Recovered, RecoveredGroup};

use super::{GroupCopy, Survey, Voters};
use crate::checkpoint::State;
use crate::raft_log::{RaftLog, decode_hard_state};
use crate::recovery::Genesis;
use crate::replica::Replica;
use crate::{entry, group};

/// The groups of a directory, and the catalog with all that its log has, committed or not.
pub(crate) fn survey<D: Disk>(
    identity: &Identity,
    genesis: &Genesis,
    reader: &Reader<D>,
    recovered: &Recovered,
) -> Result<Survey, Error> {
    if let Some(loss) = recovered.losses.first() {
        return Err(refused(
            &loss.path,
            &format!(
                "damaged at byte {}: {}. Millrace cannot know what is missing, so it rescues nothing from this \
                 directory: restore the directory from a backup",
                loss.offset, loss.what
            ),
        ));
    }
    let nothing = RecoveredGroup::default();
    let found = recovered.groups.get(&0).unwrap_or(&nothing);
    if let Some(damage) = &found.damage {
        return Err(refused(
            &damage.path,
            &format!(
                "damaged at byte {}: {}. Without its catalog nothing can be rescued from this node: restore the \
                 directory from a backup, or rescue with another node",
                damage.offset, damage.what
            ),
        ));
    }
    let catalog = catalog(genesis, reader, found)?;
    let mut copies = Vec::new();
    let mut term = 0;
    for (number, found) in &recovered.groups {
        let copy = copy(identity, catalog.founders(GroupId(*number)), reader, *number, found)?;
        let voted = hard_state(*number, found)?.term;
        term = term.max(voted).max(copy.last.0);
        if copy.last.1 > 0 || copy.is_damaged {
            copies.push(copy);
        }
    }
    let mut queues: BTreeMap<GroupId, Vec<String>> = BTreeMap::new();
    for queue in catalog.queues().filter(|queue| !queue.group.is_local()) {
        let name = format!("{} (vhost {})", queue.name, queue.vhost);
        let groups: BTreeSet<GroupId> = queue.partitions().map(|it| it.group).collect();
        for group in groups {
            queues.entry(group).or_default().push(name.clone());
        }
    }
    let groups = (0..=catalog.group_count()).map(GroupId);
    Ok(Survey {
        cluster: identity.cluster,
        node: NodeId(identity.node),
        nodes: catalog.nodes().map(|info| info.node).collect(),
        retired: catalog.retired().collect(),
        term,
        copies,
        founders: groups.map(|group| catalog.founders(group).to_vec()).collect(),
        queues,
    })
}

/// Vhost and name of every queue that the catalog of the directory has.
pub(crate) fn queue_names<D: Disk>(
    genesis: &Genesis,
    reader: &Reader<D>,
    recovered: &Recovered,
) -> Result<BTreeMap<QueueId, (String, String)>, Error> {
    let nothing = RecoveredGroup::default();
    let found = recovered.groups.get(&0).unwrap_or(&nothing);
    let catalog = catalog(genesis, reader, found)?;
    let named = |queue: &machine::Queue| (queue.vhost.clone(), queue.name.clone());
    let all = catalog.queues();
    let all = all.flat_map(|it| it.partitions().map(move |partition| (partition.queue, named(it))));
    Ok(all.collect())
}

fn catalog<D: Disk>(
    genesis: &Genesis,
    reader: &Reader<D>,
    found: &RecoveredGroup,
) -> Result<Catalog, Error> {
    let mut catalog = match &found.checkpoint {
        Some(checkpoint) => {
            let state = state(0, &checkpoint.state)?;
            Catalog::restore(&state.machine).map_err(|corrupt| unreadable(0, &corrupt))?
        }
        None => genesis.catalog(),
    };
    if catalog.agreed() > machine::Version::NEWEST {
        return Err(unreadable(0, &machine::Corrupt::newer("a catalog")));
    }
    for at in above_checkpoint(found) {
        let data = reader.read(at.place)?;
        if !data.is_empty() && !entry::is_change(&data) {
            group::catalog::apply(&mut catalog, machine::Version::NEWEST, at.index, &data)
                .map_err(|corrupt| unreadable(0, &corrupt))?;
        }
    }
    Ok(catalog)
}

fn copy<D: Disk>(
    identity: &Identity,
    founders: &[NodeId],
    reader: &Reader<D>,
    number: u32,
    found: &RecoveredGroup,
) -> Result<GroupCopy, Error> {
    let group = GroupId(number);
    if found.damage.is_some() {
        let (last, committed, voters) = ((0, 0), 0, Vec::new());
        return Ok(GroupCopy {
            group,
            last,
            committed,
            voters,
            is_damaged: true,
            is_incomplete: true,
        });
    }
    let last = last(found);
    let floor = found.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.index);
    let committed = hard_state(number, found)?.commit.clamp(floor, last.1.max(floor));
    let mut replica = replica(identity, founders, number, found)?;
    let mut known = voters_of(replica.log().members());
    let mut voters = Vec::new();
    for at in above_checkpoint(found) {
        let data = reader.read(at.place)?;
        if !entry::is_change(&data) {
            continue;
        }
        let change = entry::from_disk(at, data)
            .ok_or_else(|| unreadable(number, &"an entry of a newer version"))?;
        let next = voters_of(replica.apply_members(&change));
        if at.index > committed {
            voters.push(known);
        }
        known = next;
    }
    voters.push(known);
    let is_incomplete = found.lost_state.any();
    Ok(GroupCopy { group, last, committed, voters, is_damaged: false, is_incomplete })
}

/// A replica with the members of the checkpoint, or the founders, to apply changes of members with.
pub(super) fn replica(
    identity: &Identity,
    founders: &[NodeId],
    number: u32,
    found: &RecoveredGroup,
) -> Result<Replica, Error> {
    let voters = founders.iter().map(|node| node.0).collect();
    let mut members = ConfState { voters, ..ConfState::default() };
    let (mut index, mut term) = (0, 0);
    if let Some(checkpoint) = &found.checkpoint {
        members = state(number, &checkpoint.state)?.members();
        (index, term) = (checkpoint.index, checkpoint.term);
    }
    let log = RaftLog::new(HardState::default(), members, index, term);
    Ok(Replica::new(GroupId(number), NodeId(identity.node), log, index, 0))
}

/// Term and index of the last entry; (0, 0): there is none.
pub(super) fn last(found: &RecoveredGroup) -> (u64, u64) {
    let floor = found.checkpoint.as_ref().map_or((0, 0), |it| (it.term, it.index));
    above_checkpoint(found).last().map_or(floor, |entry| (entry.term, entry.index))
}

pub(super) fn above_checkpoint(
    found: &RecoveredGroup,
) -> impl DoubleEndedIterator<Item = &wal::EntryAt> {
    let floor = found.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.index);
    found.entries.iter().filter(move |entry| entry.index > floor)
}

pub(super) fn voters_of(members: &ConfState) -> Voters {
    let nodes = |ids: &[u64]| ids.iter().copied().map(NodeId).collect::<BTreeSet<_>>();
    Voters { voters: nodes(&members.voters), outgoing: nodes(&members.voters_outgoing) }
}

fn hard_state(group: u32, found: &RecoveredGroup) -> Result<HardState, Error> {
    let Some(bytes) = &found.hard_state else { return Ok(HardState::default()) };
    decode_hard_state(bytes)
        .ok_or_else(|| unreadable(group, &"its hard state is of another version"))
}

fn state(group: u32, bytes: &Bytes) -> Result<State, Error> {
    State::decode(bytes)
        .ok_or_else(|| unreadable(group, &"the state in its checkpoint is of another version"))
}

fn unreadable(group: u32, what: &dyn std::fmt::Display) -> Error {
    let why = format!("the checksums of its log are right, but the log cannot be applied: {what}");
    refused(&format!("group {group}"), &why)
}

fn refused(path: &str, why: &str) -> Error {
    Error::Refused { path: path.to_owned(), why: why.to_owned() }
}
