//! Upgrades to a version that is not there yet: somebody uses what is new in it as soon as that may be, and may raise
//! the cluster's version by force before all nodes can read it.

use machine::{CatalogCommand, GroupId, Version};

use super::{Home, Outside};
use crate::sim::node::Place;

#[derive(Debug, Default)]
pub(super) struct Newer {
    /// Whether the version is raised by force. Decided when the question comes up.
    forces: Option<bool>,
    /// What is asked and not answered.
    asked: Option<CatalogCommand>,
    is_raised: bool,
    /// The catalog has taken the command that is new.
    pub(super) is_used: bool,
}

impl Newer {
    /// What is to be asked now.
    pub(super) fn next(&mut self, home: Home, outside: &mut Outside<'_>) -> Option<CatalogCommand> {
        let life = outside.nodes[home.node].life.as_ref()?;
        let remark = CatalogCommand::Remark { text: "of a version to come".to_owned() };
        // As a session does, which proposes nothing that is refused.
        let may_be_used = life.catalog.check(&remark).is_ok();
        self.asked = if may_be_used {
            (!self.is_used).then_some(remark)
        } else if !self.is_raised && self.may_force(home, outside) {
            Some(CatalogCommand::RaiseVersion { to: Version::TRIAL })
        } else {
            None
        };
        self.asked.clone()
    }

    /// Whether an order with `--force` is given, and not refused: see `cluster::orders`.
    fn may_force(&mut self, home: Home, outside: &mut Outside<'_>) -> bool {
        let reads = |node: usize| outside.nodes[node].speaks >= Version::TRIAL;
        let is_old = |node: usize| {
            outside.nodes[node].place == Place::Member
                && outside.nodes[node].life.is_some()
                && !reads(node)
        };
        let Some(life) = &outside.nodes[home.node].life else { return false };
        let reports = life.shards.iter().flat_map(|shard| shard.report_groups(false));
        let leader = reports.filter(|it| it.group == GroupId::CATALOG).find_map(|it| it.leader);
        let leads = |node: usize| leader == Some(outside.nodes[node].id);
        let is_due = life.catalog.agreed() >= Version::NEWEST
            && reads(home.node)
            && (0..outside.nodes.len()).any(is_old)
            && (0..outside.nodes.len()).any(|node| leads(node) && reads(node));
        is_due && *self.forces.get_or_insert_with(|| outside.chance.percent(60))
    }

    /// What was asked is done.
    pub(super) fn done(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        if matches!(asked, CatalogCommand::RaiseVersion { .. }) {
            self.is_raised = true;
        } else {
            self.is_used = true;
        }
    }
}
