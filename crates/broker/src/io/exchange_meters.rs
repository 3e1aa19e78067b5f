//! What was published to each exchange of the node, by all its connections.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::exchange_counts::{ExchangeCounts, ExchangeTotals};
use crate::limits::{EXCHANGE_METERS_MAX, EXCHANGES_COUNTED_MAX};

/// One exchange. Connections add to it once a step.
#[derive(Debug, Default)]
struct Meter {
    published: AtomicU64,
    routed: AtomicU64,
}

/// Vhost, and name of the exchange.
type Key = (Arc<str>, Arc<str>);

/// All exchanges that something was published to, at most [`EXCHANGE_METERS_MAX`].
#[derive(Debug, Default)]
pub(super) struct ExchangeMeters(Mutex<BTreeMap<Key, Arc<Meter>>>);

/// The meters that a connection adds to.
#[derive(Debug, Default)]
pub(super) struct OwnMeters {
    vhost: Arc<str>,
    known: BTreeMap<Arc<str>, Option<Arc<Meter>>>,
}

impl OwnMeters {
    /// Adds what a session in this vhost has counted.
    pub(super) fn add(&mut self, all: &ExchangeMeters, vhost: &str, counts: &mut ExchangeCounts) {
        counts.tell(|exchange, totals| {
            if *self.vhost != *vhost {
                *self = Self { vhost: vhost.into(), known: BTreeMap::new() };
            }
            let meter = match self.known.get(exchange) {
                Some(meter) => meter.clone(),
                None => self.find(all, exchange),
            };
            if let Some(meter) = meter {
                meter.published.fetch_add(totals.published, Ordering::Relaxed);
                meter.routed.fetch_add(totals.routed, Ordering::Relaxed);
            }
        });
    }

    /// `None`: the node counts too many exchanges already.
    fn find(&mut self, all: &ExchangeMeters, exchange: &Arc<str>) -> Option<Arc<Meter>> {
        if self.known.len() >= EXCHANGES_COUNTED_MAX {
            self.known.clear();
        }
        let meter = all.find((Arc::clone(&self.vhost), Arc::clone(exchange)));
        self.known.insert(Arc::clone(exchange), meter.clone());
        meter
    }
}

impl ExchangeMeters {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<Meter>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, key: Key) -> Option<Arc<Meter>> {
        let mut meters = self.lock();
        let has_room = meters.len() < EXCHANGE_METERS_MAX;
        match meters.get(&key) {
            Some(meter) => Some(Arc::clone(meter)),
            None if has_room => Some(Arc::clone(meters.entry(key).or_default())),
            None => None,
        }
    }

    /// What was published to each exchange that something was published to since the node started. One that is not
    /// there any more is forgotten once no connection has published to it.
    pub(super) fn totals(
        &self,
        is_there: impl Fn(&str, &str) -> bool,
    ) -> Vec<(Arc<str>, Arc<str>, ExchangeTotals)> {
        let mut meters = self.lock();
        meters.retain(|(vhost, name), meter| Arc::strong_count(meter) > 1 || is_there(vhost, name));
        let shown = meters.iter().map(|((vhost, name), meter)| {
            let totals = ExchangeTotals {
                published: meter.published.load(Ordering::Relaxed),
                routed: meter.routed.load(Ordering::Relaxed),
            };
            (Arc::clone(vhost), Arc::clone(name), totals)
        });
        shown.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(own: &mut OwnMeters, all: &ExchangeMeters, vhost: &str, exchange: &str) {
        let mut counts = ExchangeCounts::default();
        let place = counts.place(exchange);
        counts.count(place, || exchange, 2);
        own.add(all, vhost, &mut counts);
    }

    fn shown(all: &ExchangeMeters, is_there: bool) -> Vec<(String, String, u64, u64)> {
        let totals = all.totals(|_, _| is_there).into_iter();
        totals
            .map(|(vhost, name, it)| (vhost.to_string(), name.to_string(), it.published, it.routed))
            .collect()
    }

    #[test]
    fn connections_add_up_and_what_is_gone_is_forgotten() {
        let all = ExchangeMeters::default();
        let (mut one, mut other) = (OwnMeters::default(), OwnMeters::default());
        publish(&mut one, &all, "/", "in");
        publish(&mut other, &all, "/", "in");
        publish(&mut other, &all, "shop", "in");
        let of = |vhost: &str, count| (vhost.to_owned(), "in".to_owned(), count, 2 * count);
        assert_eq!(shown(&all, true), [of("/", 2), of("shop", 1)]);
        drop(one);
        assert_eq!(shown(&all, false), [of("shop", 1)], "a connection still publishes there");
        drop(other);
        assert_eq!(shown(&all, true), [of("shop", 1)], "it is there");
        assert_eq!(shown(&all, false), []);
    }

    #[test]
    fn so_many_exchanges_have_meters() {
        let (all, mut own) = (ExchangeMeters::default(), OwnMeters::default());
        for number in 0..=EXCHANGE_METERS_MAX {
            publish(&mut own, &all, "/", &number.to_string());
        }
        assert_eq!(shown(&all, true).len(), EXCHANGE_METERS_MAX);
        assert!(own.known.len() <= EXCHANGES_COUNTED_MAX);
    }
}
