//! How fast messages of one key may go out, where a queue has a rate for each: a bucket of tokens for each key that was
//! served lately.
//!
//! Leader-local, as all rates: of a key that a new leader has not served, the bucket is taken to be empty when it begins.
//! A key whose bucket is full again is forgotten. There are so many buckets at most; a key for which there is none waits
//! until one is full.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::KEY_BUCKETS_MAX;
use crate::scheduler::bucket::Bucket;
use crate::settings::Rate;

#[derive(Clone, Debug)]
pub(crate) struct KeyPace {
    rate: Rate,
    /// What a key has that was not served lately.
    unknown: Bucket,
    /// By the hash of the key.
    buckets: BTreeMap<u64, Bucket>,
    /// When each bucket is full, if nothing is taken from it.
    full: BTreeSet<(u64, u64)>,
}

impl KeyPace {
    /// Of a queue that nobody led before.
    pub(crate) fn full(rate: Rate, now_ms: u64) -> Self {
        Self::with(rate, Bucket::full(rate, rate.default_burst(), now_ms))
    }

    /// Of a queue that somebody else led. The first tokens come after `from_ms`.
    pub(crate) fn empty(rate: Rate, from_ms: u64) -> Self {
        Self::with(rate, Bucket::empty(rate, rate.default_burst(), from_ms))
    }

    fn with(rate: Rate, unknown: Bucket) -> Self {
        Self { rate, unknown, buckets: BTreeMap::new(), full: BTreeSet::new() }
    }

    /// The rate is another one from here on. Tokens stay, as far as they are within the new burst.
    pub(crate) fn change(&mut self, rate: Rate, now_ms: u64) {
        let burst = rate.default_burst();
        self.rate = rate;
        self.unknown = self.unknown.changed_to(rate, burst, now_ms);
        for bucket in self.buckets.values_mut() {
            *bucket = bucket.changed_to(rate, burst, now_ms);
        }
        let full = |(key, bucket): (&u64, &Bucket)| (bucket.due_ms(burst), *key);
        self.full = self.buckets.iter().map(full).collect();
    }

    /// Whether a message of this key may go. `Err`: not before this time, ms since 1970.
    pub(crate) fn has(&mut self, key: u64, now_ms: u64) -> Result<(), u64> {
        let bucket = match self.buckets.get_mut(&key) {
            Some(bucket) => bucket,
            None => {
                self.forget_full(now_ms);
                if self.buckets.len() >= KEY_BUCKETS_MAX {
                    let first = self.full.first();
                    return Err(first.map_or(now_ms, |(full_ms, _)| *full_ms).max(now_ms + 1));
                }
                &mut self.unknown
            }
        };
        bucket.fill(now_ms);
        if bucket.has(1) { Ok(()) } else { Err(bucket.due_ms(1).max(now_ms + 1)) }
    }

    /// A message of this key goes out.
    pub(crate) fn take(&mut self, key: u64) {
        let burst = self.rate.default_burst();
        let bucket = self.buckets.entry(key).or_insert(self.unknown);
        self.full.remove(&(bucket.due_ms(burst), key));
        bucket.take(1);
        self.full.insert((bucket.due_ms(burst), key));
    }

    fn forget_full(&mut self, now_ms: u64) {
        while let Some(&(full_ms, key)) =
            self.full.first().filter(|(full_ms, _)| *full_ms <= now_ms)
        {
            self.full.remove(&(full_ms, key));
            self.buckets.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn per_second(count: u64) -> Rate {
        Rate::new(count, 1_000).unwrap()
    }

    #[test]
    fn each_key_has_tokens_of_its_own() {
        let mut pace = KeyPace::full(per_second(10), 1_000);
        assert_eq!(pace.has(1, 1_000), Ok(()));
        pace.take(1);
        assert_eq!(pace.has(1, 1_000), Err(1_100));
        assert_eq!(pace.has(2, 1_000), Ok(()));
        assert_eq!(pace.has(1, 1_100), Ok(()));
    }

    #[test]
    fn a_new_leader_has_no_tokens_for_any_key() {
        let mut pace = KeyPace::empty(per_second(10), 5_000);
        assert_eq!(pace.has(1, 5_000), Err(5_100));
        assert_eq!(pace.has(2, 5_050), Err(5_100));
        assert_eq!(pace.has(2, 5_100), Ok(()));
    }

    #[test]
    fn there_are_so_many_buckets_and_full_ones_are_forgotten() {
        let mut pace = KeyPace::full(per_second(10), 0);
        for key in 0..KEY_BUCKETS_MAX as u64 {
            assert_eq!(pace.has(key, 0), Ok(()));
            pace.take(key);
        }
        assert_eq!(pace.has(1 << 40, 0), Err(100), "it waits until one is full");
        assert_eq!(pace.has(1 << 40, 100), Ok(()));
        assert_eq!((pace.buckets.len(), pace.full.len()), (0, 0));
    }

    #[test]
    fn a_changed_rate_counts_at_once() {
        let mut pace = KeyPace::full(per_second(10), 0);
        pace.take(1);
        assert_eq!(pace.has(1, 0), Err(100));
        pace.change(per_second(100), 0);
        assert_eq!(pace.has(1, 0), Err(10));
        pace.take(1);
        assert_eq!(pace.full.len(), 1, "each bucket is full at one time");
    }
}
