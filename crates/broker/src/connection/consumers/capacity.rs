//! What consumers of queues whose partitions are assigned can do, so that who can do more gets more of them.
//!
//! A consumer does so many messages a second of the time in which it holds any. While it does not hold nearly all that its
//! prefetch allows, it might do more: then what is found counts if it is more than was known. The partitions' leaders hear of
//! it once it is another by two thirds, three times in a row: every change moves partitions.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use machine::{Capacity, ConsumerChange, Weight};

use super::Consumers;
use crate::channel::unacked::Source;

/// How long it is looked at until something is known: at least, and at most unless it did nothing.
const SHORTEST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(60);
/// Messages after which it is known before the longest time has passed.
const ENOUGH: u64 = 20;
/// It holds nearly all that it may if it does for so much of its time, in percent.
const FULL_PERCENT: u32 = 80;
/// Steps of [`Capacity`] that make a difference: 68 %.
const DIFFERENCE: u8 = 3;
/// So often in a row.
const TIMES: u8 = 3;

/// By the consumer that leads.
#[derive(Debug, Default)]
pub(super) struct Capacities(BTreeMap<u64, Measured>);

#[derive(Debug)]
struct Measured {
    /// Messages that its client is done with; what it refuses or gives back is no work.
    done: u64,
    /// Since when these are counted.
    since: Instant,
    /// Until when they are.
    until: Instant,
    /// It held something for so long, and nearly all that it may for so long.
    busy: Duration,
    full: Duration,
    is_busy: bool,
    is_full: bool,
    known: Option<Capacity>,
    told: Option<Capacity>,
    /// How often in a row it was found to be greater, or less if negative, than was told.
    differed: i8,
}

impl Measured {
    fn new(now: Instant) -> Self {
        Self {
            done: 0,
            since: now,
            until: now,
            busy: Duration::ZERO,
            full: Duration::ZERO,
            is_busy: false,
            is_full: false,
            known: None,
            told: None,
            differed: 0,
        }
    }

    /// It holds `held` messages from `now` on, of the `limit` that it may; 0 is no limit. Gives what is to be told.
    fn look(&mut self, now: Instant, held: u32, limit: u32) -> Option<Capacity> {
        let passed = now.saturating_duration_since(self.until);
        self.until = now;
        if self.is_busy {
            self.busy += passed;
        }
        if self.is_full {
            self.full += passed;
        }
        self.is_busy = held > 0;
        self.is_full = limit > 0 && held >= limit - limit / 4;
        let all = now.saturating_duration_since(self.since);
        let is_over = all >= LONGEST || (all >= SHORTEST && self.done >= ENOUGH);
        if !is_over || self.done == 0 {
            return None;
        }
        let found = Capacity::of(self.done, self.busy);
        let is_full = self.full >= all * FULL_PERCENT / 100;
        self.known = if is_full { found.or(self.known) } else { found.max(self.known) };
        (self.done, self.since) = (0, now);
        (self.busy, self.full) = (Duration::ZERO, Duration::ZERO);
        self.differs().then(|| {
            (self.told, self.differed) = (self.known, 0);
            self.told
        })?
    }

    fn differs(&mut self) -> bool {
        let Some(known) = self.known else { return false };
        let differs = match self.told {
            None => 1,
            Some(told) if known.step() >= told.step() + DIFFERENCE => 1,
            Some(told) if known.step() + DIFFERENCE <= told.step() => -1,
            Some(_) => 0,
        };
        self.differed = match (differs, self.differed) {
            (0, _) => 0,
            (one, before) if before.signum() == -one => one,
            (one, before) => before + one,
        };
        self.differed.unsigned_abs() >= TIMES
    }
}

impl Capacities {
    /// The client of the consumer that leads is done with `count` messages.
    #[inline]
    pub(super) fn done(&mut self, lead: u64, count: u32) {
        if let Some(measured) = self.0.get_mut(&lead) {
            measured.done += u64::from(count);
        }
    }
}

impl Consumers {
    /// It is to be found out what this consumer can do: its queue shares its partitions out by that.
    pub(crate) fn measure(&mut self, lead: u64, now: Instant) {
        self.capacities.0.insert(lead, Measured::new(now));
    }

    pub(super) fn forget_capacity(&mut self, lead: u64) {
        self.capacities.0.remove(&lead);
    }

    /// At the end of a step, of those that were given messages or settled some: which partitions are to be told what of a
    /// consumer.
    pub(crate) fn look_at_capacities(
        &mut self,
        now: Instant,
        mut tell: impl FnMut(Source, ConsumerChange),
    ) {
        let mut changed = Vec::new();
        for lead in &self.dirty {
            let Some(measured) = self.capacities.0.get_mut(lead) else { continue };
            let Some(lending) = self.lending.get(lead) else { continue };
            let Some(consumer) = self.all.get(lead).filter(|it| it.is_attached) else { continue };
            if let Some(capacity) = measured.look(now, lending.held(), consumer.limit) {
                changed.push((*lead, Weight::Measured(capacity)));
            }
        }
        for (lead, weight) in changed {
            for member in self.members(lead) {
                let Some(consumer) = self.all.get_mut(&member) else { continue };
                consumer.spec.weight = weight;
                tell(consumer.source, ConsumerChange::Weigh(weight));
            }
        }
    }
}

#[cfg(test)]
mod tests;
