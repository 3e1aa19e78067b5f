//! Which groups of queues are wide: these are to have five voters, the others three.
//!
//! An operator says how many groups of each node are wide. A group that is wide stays so while nodes come and
//! go; a node that joins brings its share.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::ids::{GroupId, NodeId};
use crate::limits::{REPLICAS, REPLICAS_MAX};
use crate::version::Version;

/// The version since which the catalog holds which groups are wide.
pub(in crate::catalog) const WIDE_SINCE: Version = Version::WIDE_GROUPS;

/// The groups that are wide. Replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::catalog) struct Wide {
    /// Of the groups that a node brings with it.
    pub(in crate::catalog) per_node: u32,
    pub(in crate::catalog) groups: BTreeSet<GroupId>,
}

impl Wide {
    /// How many voters a group is to have, where there are as many nodes.
    pub(super) fn replicas(&self, group: GroupId) -> usize {
        if self.groups.contains(&group) { REPLICAS_MAX } else { REPLICAS }
    }

    /// Takes `count` groups: those that are wide stay so, as long as no fewer are wanted, and others are taken in
    /// turn from all nodes that are to lead some.
    pub(super) fn choose(&mut self, count: usize, voters: &[Vec<NodeId>]) {
        let is_narrow = |group: GroupId| !self.groups.contains(&group);
        let mut groups: Vec<GroupId> = (1..voters.len() as u32).map(GroupId).collect();
        groups.sort_by_key(|group| (is_narrow(*group), *group));
        let mut led: BTreeMap<Option<NodeId>, usize> = BTreeMap::new();
        let turn = |group: GroupId| {
            let nth = led.entry(voters[group.0 as usize].first().copied()).or_default();
            *nth += 1;
            (is_narrow(group), *nth, group)
        };
        let mut turns: Vec<_> = groups.into_iter().map(turn).collect();
        turns.sort_unstable();
        self.groups = turns.into_iter().take(count).map(|(_, _, group)| group).collect();
    }

    /// A node brings these groups.
    pub(super) fn take_new(&mut self, new: RangeInclusive<u32>) {
        self.groups.extend(new.take(self.per_node as usize).map(GroupId));
    }
}
