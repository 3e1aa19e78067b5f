//! How fast counts grow, of queues, clients and exchanges: the difference to the last time that somebody asked. Only what
//! is asked for is remembered, and only so much of it.

use std::collections::{BTreeMap, BTreeSet};

use broker::ConnectionId;
use machine::QueueId;
use serde_json::{Map, Value, json};

use crate::limits::{RATE_SPAN_MS, RATED_CLIENTS_MAX, RATED_QUEUES_MAX};

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

/// Totals of something at a time.
#[derive(Clone, Copy, Debug)]
struct Sample<const N: usize> {
    at_ms: u64,
    totals: [u64; N],
    /// For each second, between the sample before and this one.
    rates: [f64; N],
}

/// What was counted of things when it was asked for last: `N` totals of each.
#[derive(Debug)]
pub(crate) struct Meters<K, const N: usize> {
    samples: BTreeMap<K, Sample<N>>,
    /// The same by time: the first is forgotten first.
    ages: BTreeSet<(u64, K)>,
    max: usize,
}

impl<K: Ord + Clone, const N: usize> Meters<K, N> {
    /// Remembers so many things.
    pub(crate) const fn new(max: usize) -> Self {
        Self { samples: BTreeMap::new(), ages: BTreeSet::new(), max }
    }

    /// How fast the totals of a thing grow in a second that stand like this at `now_ms`: nothing at the first time.
    pub(crate) fn of(&mut self, key: K, now_ms: u64, totals: [u64; N]) -> [f64; N] {
        let rates = match self.samples.get(&key) {
            Some(last) if now_ms < last.at_ms + RATE_SPAN_MS => return last.rates,
            Some(last) => {
                let seconds = (now_ms - last.at_ms) as f64 / 1000.0;
                // What counts from nothing again has not grown by less than nothing.
                std::array::from_fn(|at| {
                    totals[at].saturating_sub(last.totals[at]) as f64 / seconds
                })
            }
            None => [0.0; N],
        };
        let sample = Sample { at_ms: now_ms, totals, rates };
        if let Some(last) = self.samples.insert(key.clone(), sample) {
            self.ages.remove(&(last.at_ms, key.clone()));
        }
        self.ages.insert((now_ms, key));
        while self.samples.len() > self.max {
            let Some((_, oldest)) = self.ages.pop_first() else { break };
            self.samples.remove(&oldest);
        }
        rates
    }
}

/// What was counted of queues when it was asked for last.
#[derive(Debug)]
pub(crate) struct Rates(Meters<QueueId, 3>);

impl Default for Rates {
    fn default() -> Self {
        Self(Meters::new(RATED_QUEUES_MAX))
    }
}

impl Rates {
    /// How fast the totals of a queue grow that stand like this at `now_ms`: nothing at the first time.
    pub(crate) fn of(&mut self, queue: QueueId, now_ms: u64, totals: Totals) -> PerSecond {
        let Totals { published, acked, given } = totals;
        let [published, acked, given] = self.0.of(queue, now_ms, [published, acked, given]);
        PerSecond { published, acked, given }
    }
}

/// What was counted of clients and exchanges when it was asked for last.
#[derive(Debug)]
pub(crate) struct ClientRates {
    /// Bytes received and sent; messages published, delivered, acked.
    pub(crate) connections: Meters<ConnectionId, 5>,
    /// By the connection's own number of the consumer: messages delivered and acked.
    pub(crate) consumers: Meters<(ConnectionId, u64), 2>,
    /// By vhost and name: messages published, and queues that they were routed to.
    pub(crate) exchanges: Meters<(String, String), 2>,
}

impl Default for ClientRates {
    fn default() -> Self {
        Self {
            connections: Meters::new(RATED_CLIENTS_MAX),
            consumers: Meters::new(RATED_CLIENTS_MAX),
            exchanges: Meters::new(RATED_CLIENTS_MAX),
        }
    }
}

/// A total and its rate, as the API shows them.
pub(crate) fn shown(fields: &mut Map<String, Value>, name: &str, total: u64, rate: f64) {
    fields.insert(name.to_owned(), total.into());
    fields.insert(format!("{name}_details"), json!({ "rate": rate }));
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
        let Rates(Meters { samples, ages, .. }) = rates;
        assert_eq!((samples.len(), ages.len()), (RATED_QUEUES_MAX, RATED_QUEUES_MAX));
        assert!(!samples.contains_key(&QueueId(0)));
    }
}
