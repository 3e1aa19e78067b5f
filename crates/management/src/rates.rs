//! How fast a queue's counts grow: the difference to the last time that somebody asked. Only queues that are asked for
//! are remembered, and only so many of them.

use std::collections::{BTreeMap, BTreeSet};

use machine::QueueId;

use crate::limits::{RATE_SPAN_MS, RATED_QUEUES_MAX};

/// Counts of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    pub(crate) published: u64,
    pub(crate) acked: u64,
    /// Messages that consumers were given: those they have acknowledged, and those that are out. A message that comes
    /// back is counted out again, so this one also falls.
    pub(crate) given: u64,
}

/// The same for each second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PerSecond {
    pub(crate) published: f64,
    pub(crate) acked: f64,
    pub(crate) given: f64,
}

impl PerSecond {
    /// How fast totals have grown in this time.
    pub(crate) fn between(before: Totals, now: Totals, span_ms: u64) -> Self {
        if span_ms == 0 {
            return Self::default();
        }
        let seconds = span_ms as f64 / 1000.0;
        // A new leader counts from its checkpoint on: never less than nothing.
        let grown = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        Self {
            published: grown(now.published, before.published),
            acked: grown(now.acked, before.acked),
            given: grown(now.given, before.given),
        }
    }
}

/// Totals at a time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ms: u64,
    totals: Totals,
    /// Between the sample before and this one.
    rates: PerSecond,
}

/// What was counted when it was asked for last.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    samples: BTreeMap<QueueId, Sample>,
    /// The same by time: the first is forgotten first.
    ages: BTreeSet<(u64, QueueId)>,
}

impl Rates {
    /// How fast the totals of a queue grow that stand like this at `now_ms`: nothing at the first time.
    pub(crate) fn of(&mut self, queue: QueueId, now_ms: u64, totals: Totals) -> PerSecond {
        let rates = match self.samples.get(&queue) {
            Some(last) if now_ms < last.at_ms + RATE_SPAN_MS => return last.rates,
            Some(last) => PerSecond::between(last.totals, totals, now_ms - last.at_ms),
            None => PerSecond::default(),
        };
        if let Some(last) = self.samples.insert(queue, Sample { at_ms: now_ms, totals, rates }) {
            self.ages.remove(&(last.at_ms, queue));
        }
        self.ages.insert((now_ms, queue));
        while self.samples.len() > RATED_QUEUES_MAX {
            let Some((_, oldest)) = self.ages.pop_first() else { break };
            self.samples.remove(&oldest);
        }
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(published: u64) -> Totals {
        Totals { published, acked: published / 2, given: published / 5 }
    }

    #[test]
    fn a_rate_is_what_came_between_two_looks() {
        let mut rates = Rates::default();
        let queue = QueueId(1);
        assert_eq!(rates.of(queue, 1000, totals(10)), PerSecond::default());
        let two = PerSecond { published: 5.0, acked: 2.5, given: 1.0 };
        assert_eq!(rates.of(queue, 3000, totals(20)), two);
        assert_eq!(rates.of(queue, 3500, totals(99)), two, "too soon to say something new");
        let none = PerSecond::default();
        assert_eq!(rates.of(queue, 9000, totals(0)), none, "never less than nothing");
    }

    #[test]
    fn the_queue_that_nobody_asks_for_is_forgotten() {
        let mut rates = Rates::default();
        for number in 0..=RATED_QUEUES_MAX as u64 {
            rates.of(QueueId(number), number, totals(1));
        }
        assert_eq!((rates.samples.len(), rates.ages.len()), (RATED_QUEUES_MAX, RATED_QUEUES_MAX));
        assert!(!rates.samples.contains_key(&QueueId(0)));
    }
}
