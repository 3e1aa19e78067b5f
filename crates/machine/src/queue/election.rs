//! One active consumer for all partitions of a queue.
//!
//! The leader of the first partition elects: who consumes there and comes first stays the one until it is gone, as in any
//! queue with a single active consumer. Each election has a *generation*, greater than all before. The elected one's session
//! attaches it to every partition again, with the generation, and gives credit after the last answer. A partition serves the
//! consumer with the greatest generation that it has heard of. So the elected one gets its first message after all
//! partitions have stopped to serve who was elected before.
//!
//! ```text
//!   waiting (0) ──told of its generation──> attaches again to the others, then to the first ──all answered──> served
//!      ^                                                                                                        │
//!      └──────────────another was elected, while the first partition did not see it: told 0─────────────────────┘
//! ```
//!
//! Leader-local, and nothing of it is in the log: a consumer says its generation wherever it is attached, also to a new
//! leader. That elects again, and prefers who has the greatest generation.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::assignment::Assignment;
use super::holder::Holder;
use crate::ids::ConsumerId;

/// What one partition knows of the election.
#[derive(Clone, Debug)]
pub(crate) struct Election {
    /// It is the first partition.
    decides: bool,
    /// Who was elected here, and the generation. The first partition's alone.
    elected: Option<(ConsumerId, u64)>,
    /// Of the last election here.
    generation: u64,
    /// Consumers came or went since it was looked at.
    is_due: bool,
}

impl Election {
    /// Of a queue with several partitions.
    pub(super) fn of(Assignment { index, count }: Assignment) -> Option<Self> {
        let decides = index == 0;
        (count > 1).then_some(Self { decides, elected: None, generation: 0, is_due: true })
    }

    /// Consumers came or went.
    pub(super) fn changed(&mut self) {
        self.is_due = true;
    }

    /// The one to serve, of all holders.
    pub(super) fn served(&self, holders: &BTreeMap<ConsumerId, Holder>) -> Option<ConsumerId> {
        if self.decides {
            let (elected, generation) = self.elected?;
            let knows = holders.get(&elected).is_some_and(|it| it.spec.generation == generation);
            return knows.then_some(elected);
        }
        let attached = holders.iter().filter(|(_, holder)| holder.is_attached);
        let told = attached.filter(|(_, holder)| holder.spec.generation > 0);
        told.max_by_key(|(_, holder)| holder.spec.generation).map(|(id, _)| *id)
    }

    /// Elects one, if it is to be done here and now. Gives those who are to be told another generation than they were
    /// told last; 0 is none. `active`: who was served before.
    pub(super) fn elect(
        &mut self,
        holders: &mut BTreeMap<ConsumerId, Holder>,
        active: Option<ConsumerId>,
        now_ms: u64,
    ) -> Vec<(ConsumerId, u64)> {
        if !self.decides || !std::mem::take(&mut self.is_due) {
            return Vec::new();
        }
        let is_there =
            |(id, _): &(ConsumerId, u64)| holders.get(id).is_some_and(|holder| holder.is_attached);
        self.elected = self.elected.filter(is_there);
        if self.elected.is_none() {
            let attached = holders.iter().filter(|(_, holder)| holder.is_attached);
            let first = attached.min_by_key(|(id, holder)| {
                let generation = Reverse(holder.spec.generation);
                (generation, Some(**id) != active, holder.precedence())
            });
            let known = holders.values().map(|holder| holder.spec.generation).max().unwrap_or(0);
            if let Some((id, _)) = first {
                // The group's time, so that a leader goes on above what one before it gave, as far as it can know.
                self.generation = self.generation.max(known).max(now_ms) + 1;
                self.elected = Some((*id, self.generation));
            }
        }
        let mut told = Vec::new();
        for (id, holder) in holders.iter_mut().filter(|(_, holder)| holder.is_attached) {
            let is_elected = |elected: &ConsumerId| elected == id || planted::is("all_are_elected");
            let due = self.elected.filter(|(elected, _)| is_elected(elected));
            let due = due.map_or(0, |(_, generation)| generation);
            if holder.told != due {
                holder.told = due;
                told.push((*id, due));
            }
        }
        told
    }
}
