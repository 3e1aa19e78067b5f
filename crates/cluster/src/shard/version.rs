//! The cluster's version: raised when all members can read the next, and a node that cannot read it stops.

use std::collections::BTreeSet;

use machine::{Catalog, CatalogCommand, Corrupt, GroupId, NodeId, Version};

use super::{Now, Output, Shard};
use crate::waiter::Waiter;

/// Between two attempts to raise it, in milliseconds: one takes as long as any change of the catalog.
const RAISE_PAUSE_MS: u64 = 1000;

impl Shard {
    /// The catalog's leader raises the version as soon as everybody is there and can read it.
    pub(super) fn raise_version(&mut self, now: Now, outputs: &mut Vec<Output>) {
        let Some(catalog) = self.catalog.as_ref().filter(|catalog| catalog.group.serves()) else {
            return;
        };
        let is_soon = self.raised_ms.is_some_and(|last| now.mono_ms < last + RAISE_PAUSE_MS);
        let agreed = catalog.catalog().agreed();
        if is_soon || agreed >= self.me.speaks {
            return;
        }
        let Some(to) = self.common_version(catalog.catalog()).filter(|to| *to > agreed) else {
            return;
        };
        self.raised_ms = Some(now.mono_ms);
        self.change(now, &CatalogCommand::RaiseVersion { to }, Waiter::Nobody, outputs);
    }

    /// The newest version that everybody reads. `None`: one cannot be reached, so nobody knows.
    fn common_version(&self, catalog: &Catalog) -> Option<Version> {
        let members = catalog.nodes().map(|info| info.node);
        let mut asked: BTreeSet<NodeId> = members.collect();
        // One that was removed may still vote, until its groups have let it go.
        asked.extend(self.members.counted.all()?);
        asked.remove(&self.me.node);
        let speaks = self.peers.speaks();
        let each: Option<Vec<Version>> =
            asked.iter().map(|node| speaks.get(node).copied()).collect();
        Some(each?.into_iter().chain(speaks.values().copied()).fold(self.me.speaks, Version::min))
    }

    /// An entry cannot be applied, so nothing after it can.
    pub(super) fn stop_outdated(
        &mut self,
        group: GroupId,
        index: u64,
        why: Corrupt,
        outputs: &mut Vec<Output>,
    ) {
        assert!(why.is_newer, "entry {index} of group {} passed its checksum: {why}", group.0);
        self.is_outdated = true;
        let why = format!("entry {index} of group {} holds {why}", group.0);
        outputs.push(Output::Outdated { why });
    }
}
