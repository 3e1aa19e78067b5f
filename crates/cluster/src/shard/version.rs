//! The cluster's version: raised when all members can read the next, and a node that cannot read it stops.

use machine::{Catalog, CatalogCommand, Corrupt, GroupId, Version};

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
        let common = self.common_version(catalog.catalog());
        let Some(to) = common.filter(|to| *to > catalog.catalog().agreed() && !is_soon) else {
            return;
        };
        self.raised_ms = Some(now.mono_ms);
        self.change(now, &CatalogCommand::RaiseVersion { to }, Waiter::Nobody, outputs);
    }

    /// The newest version that everybody reads. `None`: a member cannot be reached, so nobody knows.
    fn common_version(&self, catalog: &Catalog) -> Option<Version> {
        let mut common = self.me.speaks;
        for info in catalog.nodes().filter(|info| info.node != self.me.node) {
            common = common.min(*self.peers.speaks().get(&info.node)?);
        }
        // One that was removed may still vote until its groups have let it go.
        Some(self.peers.speaks().values().fold(common, |common, speaks| common.min(*speaks)))
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
