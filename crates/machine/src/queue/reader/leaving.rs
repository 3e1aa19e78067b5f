//! Dead messages on their way out: stored elsewhere first, then gone.
//!
//! That they are dead, and why, is replicated. Which of them are out with the dead-letter worker is not: a new
//! leader hands all of them out again, so that each is stored at least once.

use crate::command::Outcome;
use crate::encoding::{Corrupt, Reader};
use crate::limits::{LEAVING_OUT_MAX, LEAVING_RUN_MAX};
use crate::ranges::Ranges;

/// Sequence numbers by the reason why they are dead.
type ByReason = [Ranges; Outcome::DEAD.len()];

/// The dead messages of a level.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeavingMessages {
    // Replicated.
    all: ByReason,
    // Leader-local.
    waiting: ByReason,
    out: Ranges,
}

/// A run to hand out: reason, first number, count.
pub(crate) type LeavingRun = (Outcome, u64, u32);

impl LeavingMessages {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.iter().all(Ranges::is_empty)
    }

    pub(crate) fn len(&self) -> u64 {
        self.all.iter().map(Ranges::len).sum()
    }

    pub(crate) fn insert(&mut self, reason: Outcome, ranges: &Ranges, is_leading: bool) {
        let Some(at) = place(reason) else { return };
        self.all[at].insert_all(ranges);
        if is_leading {
            self.waiting[at].insert_all(ranges);
        }
    }

    /// Takes out what is dead of `ranges`.
    pub(crate) fn take(&mut self, ranges: &Ranges) -> Ranges {
        let mut gone = Ranges::new();
        for range in ranges.ranges() {
            for dead in &mut self.all {
                dead.take(range.clone(), &mut gone);
            }
        }
        for waiting in &mut self.waiting {
            waiting.remove_all(&gone);
        }
        self.out.remove_all(&gone);
        gone
    }

    /// Every dead message, by its reason.
    pub(crate) fn by_reason(&self) -> impl Iterator<Item = (Outcome, &Ranges)> {
        Outcome::DEAD.into_iter().zip(&self.all)
    }

    /// What of `ranges` is dead.
    pub(crate) fn within(&self, ranges: &Ranges) -> Ranges {
        let mut found = Ranges::new();
        self.all.iter().for_each(|dead| {
            found.insert_all(&dead.intersect(ranges));
        });
        found
    }

    /// Takes out of `ranges` what is dead.
    pub(crate) fn exclude(&self, ranges: &mut Ranges) {
        self.all.iter().for_each(|dead| {
            ranges.remove_all(&dead.intersect(ranges));
        });
    }

    /// All are to be handed out, those too that were.
    pub(crate) fn lead(&mut self) {
        self.waiting = self.all.clone();
        self.out = Ranges::new();
    }

    pub(crate) fn follow(&mut self) {
        self.waiting = ByReason::default();
        self.out = Ranges::new();
    }

    /// The next run to hand out, if not too many are out.
    pub(crate) fn next(&mut self) -> Option<LeavingRun> {
        let room = LEAVING_OUT_MAX.saturating_sub(self.out.len());
        let (reason, waiting) =
            Outcome::DEAD.into_iter().zip(&mut self.waiting).find(|(_, it)| !it.is_empty())?;
        let run = waiting.pop_front(room.min(u64::from(LEAVING_RUN_MAX)))?;
        self.out.insert(run.clone());
        Some((reason, run.start, (run.end - run.start) as u32))
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.all.iter().for_each(|dead| dead.encode(out));
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let mut leaving = Self::default();
        for dead in &mut leaving.all {
            *dead = Ranges::read(reader)?;
        }
        Ok(leaving)
    }

    /// Every dead message, once. None: one is dead for two reasons.
    pub(crate) fn union(&self) -> Option<Ranges> {
        let mut all = Ranges::new();
        for dead in &self.all {
            if all.insert_all(dead) != dead.len() {
                return None;
            }
        }
        Some(all)
    }
}

fn place(reason: Outcome) -> Option<usize> {
    Outcome::DEAD.iter().position(|dead| *dead == reason)
}
