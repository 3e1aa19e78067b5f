//! What the dead-letter worker counts, and what it tells the node's log: rarely, however much happens.

use std::time::Duration;

use machine::Outcome;

use super::limits::NOTICE_INTERVAL;
use super::route::{Fate, Origin};

/// Something an operator should know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) fate: Fate,
    /// Messages of this fate since the last notice of it.
    pub(crate) count: u64,
    /// Where the last of them was from.
    pub(crate) vhost: String,
    pub(crate) queue: String,
}

/// What was counted and not added to the node's totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Messages, in the order of `Outcome::DEAD`.
    pub(crate) dead: [u64; Outcome::DEAD.len()],
    /// Of these: dropped, because nobody takes them.
    pub(crate) unroutable: u64,
    /// Dropped, because they went round.
    pub(crate) cycles: u64,
    /// Kept aside.
    pub(crate) aside: u64,
    /// Batches that were sent again.
    pub(crate) retries: u64,
}

/// Fates that the log tells of.
const TOLD: [Fate; 4] = [Fate::Aside, Fate::Unroutable, Fate::NoExchange, Fate::Cycle];

/// How often a fate came, and when it may be told.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    count: u64,
    not_before: Option<Duration>,
}

/// Counts fates, and says when one is worth a line.
#[derive(Debug, Default)]
pub(super) struct Notices {
    pub(super) counts: Counts,
    tallies: [Tally; TOLD.len()],
}

impl Notices {
    /// One message more.
    pub(super) fn add(
        &mut self,
        now: Duration,
        reason: Outcome,
        fate: Fate,
        origin: &Origin<'_>,
        notices: &mut Vec<Notice>,
    ) {
        let dead = Outcome::DEAD.iter().position(|dead| *dead == reason);
        if let Some(count) = dead.and_then(|place| self.counts.dead.get_mut(place)) {
            *count += 1;
        }
        match fate {
            Fate::Routed => return,
            Fate::Aside => self.counts.aside += 1,
            Fate::Unroutable | Fate::NoExchange => self.counts.unroutable += 1,
            Fate::Cycle => self.counts.cycles += 1,
        }
        let place = TOLD.iter().position(|told| *told == fate);
        let Some(tally) = place.and_then(|place| self.tallies.get_mut(place)) else { return };
        tally.count += 1;
        if tally.not_before.is_some_and(|at| now < at) {
            return;
        }
        tally.not_before = Some(now + NOTICE_INTERVAL);
        let count = std::mem::take(&mut tally.count);
        let (vhost, queue) = (origin.source().vhost.clone(), origin.source().name.clone());
        notices.push(Notice { fate, count, vhost, queue });
    }
}
