//! How much was how large, or took how long: counts by size, as Prometheus reads them.
//!
//! Who measures owns an [`Observed`], a few numbers without an atomic, and adds it to the node's [`Histogram`] when a
//! step is over. What lies between two bounds is not known any more.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of what took how long, in microseconds: from a fast disk's sync to what no client waits for.
pub const TIME_BOUNDS_US: [u64; 12] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 250_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// A place for each bound, and one for what is above all of them.
pub const TIME_PLACES: usize = TIME_BOUNDS_US.len() + 1;

/// How long things took.
pub type Times = Histogram<TIME_PLACES>;

/// What one owner has seen and not added to a [`Histogram`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed<const PLACES: usize> {
    counts: [u64; PLACES],
    sum: u64,
}

impl<const PLACES: usize> Default for Observed<PLACES> {
    fn default() -> Self {
        Self { counts: [0; PLACES], sum: 0 }
    }
}

impl<const PLACES: usize> Observed<PLACES> {
    /// Counts one value at the first of the ascending `bounds` that it does not exceed.
    #[inline]
    pub fn add(&mut self, bounds: &[u64], value: u64) {
        let place = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
        self.counts[place] += 1;
        self.sum += value;
    }
}

/// The same of a whole node, since it started.
#[derive(Debug)]
pub struct Histogram<const PLACES: usize> {
    counts: [AtomicU64; PLACES],
    sum: AtomicU64,
}

impl<const PLACES: usize> Default for Histogram<PLACES> {
    fn default() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; PLACES], sum: AtomicU64::new(0) }
    }
}

impl<const PLACES: usize> Histogram<PLACES> {
    /// Adds what was seen, and forgets it there.
    pub fn take(&self, observed: &mut Observed<PLACES>) {
        for (total, count) in self.counts.iter().zip(&observed.counts) {
            if *count > 0 {
                total.fetch_add(*count, Ordering::Relaxed);
            }
        }
        self.sum.fetch_add(observed.sum, Ordering::Relaxed);
        *observed = Observed::default();
    }

    /// How many values each place has, not those below it; and the sum of all values.
    pub fn read(&self) -> (Vec<u64>, u64) {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        (counts, self.sum.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_at_the_first_bound_that_it_does_not_exceed() {
        let bounds = [10, 20];
        let mut observed = Observed::<3>::default();
        for value in [0, 10, 11, 20, 21] {
            observed.add(&bounds, value);
        }
        let histogram = Histogram::default();
        histogram.take(&mut observed);
        assert_eq!(histogram.read(), (vec![2, 2, 1], 62));
        assert_eq!(observed, Observed::default(), "what was added is not added again");
        histogram.take(&mut observed);
        assert_eq!(histogram.read(), (vec![2, 2, 1], 62));
    }

    #[test]
    fn bounds_ascend() {
        assert!(TIME_BOUNDS_US.is_sorted_by(|one, next| one < next));
    }
}
