//! The entries that carry a plan out on this node.
//!
//! Everything in the log counts as committed from then on, with two changes of members behind it: this node
//! and the old voters together, then this node alone. Whoever joins later reads them as any others. In the
//! catalog's log the removal of the lost nodes follows: the same command as that of `millrace cluster remove`.

use machine::{Batch, CatalogCommand, GroupId, NodeId};
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState, Entry,
    EntryType, HardState,
};
use wal::{CommitBatch, Disk, Error, Identity, Item, Reader, Recovered, RecoveredGroup};

use super::{Plan, Survey, survey};
use crate::raft_log::encode_hard_state;
use crate::replica::Replica;
use crate::{change, entry};

/// What is to be written on the node that `survey` is of: all of it at once, or nothing.
pub(crate) fn write<D: Disk>(
    identity: &Identity,
    (survey, plan): (&Survey, &Plan),
    reader: &Reader<D>,
    recovered: &Recovered,
    wall_ms: u64,
) -> Result<CommitBatch, Error> {
    let nothing = RecoveredGroup::default();
    let mut batch = CommitBatch::new();
    for (&group, _) in plan.fates.iter().filter(|(_, fate)| fate.is_by(survey.node)) {
        let found = recovered.groups.get(&group.0).unwrap_or(&nothing);
        let founders = survey.founders.get(group.0 as usize).map_or(&[][..], Vec::as_slice);
        let mut replica = survey::replica(identity, founders, group.0, found)?;
        replay(&mut replica, reader, found)?;
        let mut tail = Tail { group, term: plan.term, last: survey::last(found).1, batch };
        for change in takeover(replica.log().members(), survey.node) {
            let entry = tail.change(&change);
            replica.apply_members(&entry);
        }
        assert!(
            replica.log().is_alone() && replica.is_voter(),
            "the changes make this node the only member of group {group:?}"
        );
        if group == GroupId::CATALOG && !plan.retired.is_empty() {
            tail.retire(plan.retired.iter().copied(), wall_ms);
        }
        batch = tail.end(survey.node, found);
    }
    Ok(batch)
}

fn replay<D: Disk>(
    replica: &mut Replica,
    reader: &Reader<D>,
    found: &RecoveredGroup,
) -> Result<(), Error> {
    for at in survey::above_checkpoint(found) {
        let data = reader.read(at.place)?;
        if entry::is_change(&data)
            && let Some(entry) = entry::from_disk(at, data)
        {
            replica.apply_members(&entry);
        }
    }
    Ok(())
}

/// What is appended to a group's log.
struct Tail {
    group: GroupId,
    term: u64,
    last: u64,
    batch: CommitBatch,
}

impl Tail {
    fn append(&mut self, kind: EntryType, data: bytes::Bytes) -> Entry {
        self.last += 1;
        let mut entry = Entry { data, ..Entry::default() };
        entry.set_entry_type(kind);
        (entry.index, entry.term) = (self.last, self.term);
        let data = entry::to_disk(&entry);
        self.batch.add(self.group.0, Item::Entry { index: self.last, term: self.term, data });
        entry
    }

    fn change(&mut self, change: &ConfChangeV2) -> Entry {
        self.append(EntryType::EntryConfChangeV2, change::write(change))
    }

    fn retire(&mut self, nodes: impl Iterator<Item = NodeId>, wall_ms: u64) {
        let mut commands = Batch::new();
        nodes.for_each(|node| commands.catalog(&CatalogCommand::RemoveNode { node }));
        self.append(EntryType::EntryNormal, commands.stamp(wall_ms).into());
    }

    /// All of it is committed, and nobody else was voted for in its term.
    fn end(mut self, me: NodeId, found: &RecoveredGroup) -> CommitBatch {
        let mut state = HardState::default();
        (state.term, state.vote, state.commit) = (self.term, me.0, self.last);
        self.batch.add(self.group.0, Item::HardState(encode_hard_state(&state)));
        if found.lost_state.any() {
            // Nobody is left who could make up for it.
            self.batch.add(self.group.0, Item::Rejoined);
        }
        self.batch
    }
}

/// The changes after which nobody but `me` belongs to the group.
fn takeover(members: &ConfState, me: NodeId) -> Vec<ConfChangeV2> {
    let mut changes = Vec::new();
    let leave = ConfChangeV2::default;
    if !members.voters_outgoing.is_empty() {
        changes.push(leave());
    }
    let single = |kind, node| {
        let mut single = ConfChangeSingle { node_id: node, ..ConfChangeSingle::default() };
        single.set_change_type(kind);
        single
    };
    let all = members.voters.iter().chain(&members.learners).chain(&members.learners_next);
    let mut others: Vec<u64> = all.copied().filter(|node| *node != me.0).collect();
    others.sort_unstable();
    others.dedup();
    let mut singles = vec![single(ConfChangeType::AddNode, me.0)];
    singles.extend(others.into_iter().map(|node| single(ConfChangeType::RemoveNode, node)));
    let mut joint = ConfChangeV2::default();
    joint.set_changes(singles.into());
    joint.set_transition(ConfChangeTransition::Explicit);
    changes.extend([joint, leave()]);
    changes
}
