//! An operator changes settings of queues while they are used, in ways that take no message from anybody: what is checked
//! is that every replica of a queue's group comes to have what the catalog says.

use machine::{CatalogCommand, Features};

use super::{Home, Kind, Outside, Plan};
use crate::sim::VHOST;
use crate::workload::Chance;

/// No message lives so long here, however far clocks jump: ten years.
const LONG_MS: u64 = machine::limits::TIME_MS_MAX;
/// No queue has so many messages.
const MANY: u64 = 1_000_000_000;
const PERCENT: u64 = 20;

pub(super) struct Changer {
    chance: Chance,
}

impl Changer {
    pub(super) fn new(seed: u64) -> Self {
        Self { chance: Chance::named(seed, "changer") }
    }

    /// A change of a queue that is there, now and then.
    pub(super) fn next(
        &mut self,
        plans: &[Plan],
        home: Home,
        outside: &Outside<'_>,
    ) -> Option<CatalogCommand> {
        if !self.chance.percent(PERCENT) {
            return None;
        }
        let plan = &plans[self.chance.within(0, plans.len() as u64) as usize];
        let kept = [self.chance.percent(50), self.chance.percent(50)];
        let catalog = &outside.nodes[home.node].life.as_ref()?.catalog;
        let queue = catalog.queue(VHOST, plan.name).filter(|_| plan.kind == Kind::Durable)?;
        let mut spec = Box::new(queue.spec().clone());
        let mut features = spec.settings.features.as_deref().cloned().unwrap_or_default();
        let [lives, is_bounded] = kept;
        let harmless = |limit: Option<u64>, max| limit.is_none_or(|limit| limit == max);
        if harmless(features.message_ttl_ms, LONG_MS) {
            features.message_ttl_ms = lives.then_some(LONG_MS);
        }
        if harmless(features.max_length, MANY) {
            features.max_length = is_bounded.then_some(MANY);
        }
        let has_any = features != Features::default();
        spec.settings.features = has_any.then(|| Box::new(features));
        let command = CatalogCommand::ChangeQueue {
            vhost: VHOST.to_owned(),
            name: plan.name.to_owned(),
            queue: queue.id,
            spec,
        };
        // As a session does, which proposes nothing that is refused.
        catalog.check(&command).is_ok().then_some(command)
    }
}
