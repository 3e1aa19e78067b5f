//! Consumers of queues with one active consumer for all partitions: which of them are elected, and how far their
//! partitions know it (`machine::queue::election`).
//!
//! ```text
//!   waiting ──elected──> telling the partitions, the first one last ──all answered──> active: it gets credit
//!      ^ ^                   │           │ one has no leader: again in a second          │
//!      │ └─elected again: with the new generation, from the start────────────────────────┤
//!      └──────────────another is elected: tells generation 0─────────────────────────────┘
//! ```

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Consumer, Consumers};

/// A partition that could not be told is told again after so long.
const AGAIN: Duration = Duration::from_secs(1);

/// The consumers whose partitions do not all know their generation.
#[derive(Debug, Default)]
pub(super) struct Elected {
    /// By the consumer that leads.
    telling: BTreeMap<u64, Telling>,
    /// Those whose next partition is to be told at the end of the step.
    due: Vec<u64>,
    /// Those whose next partition could not be told, and when it is tried again.
    failed: Vec<u64>,
    again_at: Option<Instant>,
}

#[derive(Debug)]
struct Telling {
    generation: u64,
    /// The consumers of the partitions that have not answered, the next one last. The first partition's comes first.
    left: Vec<u64>,
}

impl Elected {
    /// Whether a consumer of several partitions gets no credit: it is not elected, or not all partitions know.
    pub(super) fn holds_back(&self, lead: &Consumer) -> bool {
        let is_telling = self.telling.contains_key(&lead.source.consumer);
        lead.is_one_of_all && (lead.spec.generation == 0 || is_telling)
    }
}

impl Consumers {
    /// The leader of the first partition says what generation a consumer has; 0: another one is elected.
    pub(crate) fn elected(&mut self, number: u64, generation: u64) {
        let found = self.all.get(&number).filter(|it| !it.is_over && !it.is_ending);
        let Some(&Consumer { lead, is_attached, spec, .. }) = found else { return };
        if lead != number || spec.generation == generation {
            return;
        }
        let members = self.members(lead);
        for member in &members {
            if let Some(consumer) = self.all.get_mut(member) {
                consumer.spec.generation = generation;
            }
        }
        let mut left = members;
        left[1..].reverse();
        self.elected.telling.insert(lead, Telling { generation, left });
        // Otherwise its partitions are still asked to serve it at all.
        if is_attached {
            self.elected.due.push(lead);
        }
    }

    /// All partitions serve a new consumer: what came meanwhile is told now.
    pub(super) fn tell_from_now_on(&mut self, lead: u64) {
        if self.elected.telling.contains_key(&lead) {
            self.elected.due.push(lead);
        }
    }

    /// Nothing more is told of a consumer that ends.
    pub(crate) fn end_telling(&mut self, lead: u64) {
        self.elected.telling.remove(&lead);
        if let Some(consumer) = self.all.get_mut(&lead) {
            consumer.is_ending = true;
        }
    }

    pub(super) fn forget_telling(&mut self, lead: u64) {
        self.elected.telling.remove(&lead);
    }

    /// The consumers whose partitions are to be told now of the generation in their `spec`.
    pub(crate) fn take_untold(&mut self) -> Vec<u64> {
        let due = std::mem::take(&mut self.elected.due);
        due.into_iter().filter_map(|lead| self.next_untold(lead)).collect()
    }

    fn next_untold(&mut self, lead: u64) -> Option<u64> {
        let telling = self.elected.telling.get_mut(&lead)?;
        while let Some(next) = telling.left.last() {
            if self.all.get(next).is_some_and(|it| !it.is_over) {
                return Some(*next);
            }
            telling.left.pop();
        }
        self.elected.telling.remove(&lead);
        self.mark(lead);
        None
    }

    /// A partition knows the generation, or could not be told.
    pub(crate) fn told(&mut self, number: u64, generation: u64, knows: bool, now: Instant) {
        let Some(consumer) = self.all.get_mut(&number) else { return };
        let lead = consumer.lead;
        let Some(telling) = self.elected.telling.get_mut(&lead) else { return };
        if telling.generation != generation || telling.left.last() != Some(&number) {
            return;
        }
        if !knows {
            self.elected.failed.push(lead);
            self.elected.again_at.get_or_insert(now + AGAIN);
            return;
        }
        // What it had been given before is void there.
        (consumer.granted, consumer.is_returning) = (0, false);
        telling.left.pop();
        self.elected.due.push(lead);
    }

    /// When partitions are told again that could not be told.
    pub(crate) fn tell_again_at(&self) -> Option<Instant> {
        self.elected.again_at
    }

    pub(crate) fn tell_again(&mut self, now: Instant) {
        if self.elected.again_at.is_some_and(|at| now >= at) {
            self.elected.again_at = None;
            self.elected.due.append(&mut self.elected.failed);
        }
    }
}

#[cfg(test)]
mod tests;
