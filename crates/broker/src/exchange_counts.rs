//! What a session has published by exchange, and has not told its node: one sum for each exchange and step, so that no
//! message costs a look at what sessions share.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::limits::EXCHANGES_COUNTED_MAX;

/// Messages that went to an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeTotals {
    /// Messages that were published to it.
    pub published: u64,
    /// Queues that they were routed to, for each message.
    pub routed: u64,
}

impl std::ops::AddAssign for ExchangeTotals {
    fn add_assign(&mut self, other: Self) {
        self.published += other.published;
        self.routed += other.routed;
    }
}

/// Where an exchange is counted: good until the session has counted too many others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    era: u32,
    index: u32,
}

/// One exchange.
#[derive(Debug)]
struct Counted {
    exchange: Arc<str>,
    totals: ExchangeTotals,
}

/// What was published and not told, at most [`EXCHANGES_COUNTED_MAX`] exchanges at a time.
#[derive(Debug, Default)]
pub(crate) struct ExchangeCounts {
    era: u32,
    all: Vec<Counted>,
    places: BTreeMap<Arc<str>, u32>,
    /// Those in which there is something to tell.
    touched: Vec<u32>,
}

impl ExchangeCounts {
    /// Where an exchange is counted from now on. What others have counted and not told goes with them if there are too
    /// many.
    pub(crate) fn place(&mut self, exchange: &str) -> Place {
        if let Some(index) = self.places.get(exchange) {
            return Place { era: self.era, index: *index };
        }
        if self.all.len() >= EXCHANGES_COUNTED_MAX {
            let era = self.era.wrapping_add(1);
            *self = Self { era, ..Self::default() };
        }
        let index = u32::try_from(self.all.len()).expect("few exchanges are counted at a time");
        let exchange: Arc<str> = exchange.into();
        self.places.insert(Arc::clone(&exchange), index);
        self.all.push(Counted { exchange, totals: ExchangeTotals::default() });
        Place { era: self.era, index }
    }

    /// Counts a message that goes to so many queues. `name` says which exchange it is if `place` is good no more.
    #[inline]
    pub(crate) fn count<'a>(&mut self, place: Place, name: impl FnOnce() -> &'a str, routed: u64) {
        let place = if place.era == self.era { place } else { self.place(name()) };
        let Some(Counted { totals, .. }) = self.all.get_mut(place.index as usize) else { return };
        if totals.published == 0 {
            self.touched.push(place.index);
        }
        *totals += ExchangeTotals { published: 1, routed };
    }

    /// Tells what was counted since it was told last.
    pub(crate) fn tell(&mut self, mut told: impl FnMut(&Arc<str>, ExchangeTotals)) {
        for index in self.touched.drain(..) {
            if let Some(Counted { exchange, totals }) = self.all.get_mut(index as usize) {
                told(exchange, std::mem::take(totals));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(counts: &mut ExchangeCounts) -> Vec<(String, u64, u64)> {
        let mut all = Vec::new();
        counts.tell(|exchange, it| all.push((exchange.to_string(), it.published, it.routed)));
        all
    }

    #[test]
    fn what_was_published_is_told_once_by_exchange() {
        let mut counts = ExchangeCounts::default();
        let (a, b) = (counts.place("a"), counts.place("b"));
        assert_eq!(counts.place("a"), a);
        counts.count(a, || "a", 2);
        counts.count(b, || "b", 0);
        counts.count(a, || "a", 3);
        assert_eq!(told(&mut counts), [("a".to_owned(), 2, 5), ("b".to_owned(), 1, 0)]);
        assert_eq!(told(&mut counts), []);
    }

    #[test]
    fn so_many_exchanges_are_counted_at_a_time_and_an_old_place_is_found_anew() {
        let mut counts = ExchangeCounts::default();
        let first = counts.place("0");
        for number in 1..=EXCHANGES_COUNTED_MAX {
            counts.place(&number.to_string());
        }
        assert_eq!(counts.all.len(), 1);
        counts.count(first, || "0", 1);
        assert_eq!(told(&mut counts), [("0".to_owned(), 1, 1)]);
    }
}
