//! How fast messages may leave a queue, and come into it.
//!
//! A rate is two whole numbers, so every node reckons the same. Its tokens are counted by `scheduler::bucket`.

use crate::encoding::{Corrupt, Reader, put_u64};
use crate::limits::{BURST_MAX, RATE_COUNT_MAX, RATE_MS_MAX};

/// So much of a rate's time goes at once where no burst is said, ms.
const BURST_MS: u64 = 100;

/// So many messages, or bytes, in so many milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// From 1 to `limits::RATE_COUNT_MAX`.
    count: u64,
    /// From 1 to `limits::RATE_MS_MAX`.
    per_ms: u64,
}

impl Rate {
    /// `None`: a number is 0, or above its limit.
    pub fn new(count: u64, per_ms: u64) -> Option<Self> {
        let is_sound = (1..=RATE_COUNT_MAX).contains(&count) && (1..=RATE_MS_MAX).contains(&per_ms);
        is_sound.then_some(Self { count, per_ms })
    }

    pub fn count(self) -> u64 {
        self.count
    }

    pub fn per_ms(self) -> u64 {
        self.per_ms
    }

    /// What comes in so many milliseconds, in whole messages or bytes.
    pub(crate) fn in_ms(self, ms: u64) -> u64 {
        self.count.saturating_mul(ms) / self.per_ms
    }

    /// What may go at once where no burst is said: what comes in a tenth of a second, and at least 1.
    pub fn default_burst(self) -> u64 {
        self.in_ms(BURST_MS).clamp(1, BURST_MAX)
    }

    /// The slower of two.
    #[must_use]
    pub fn slower(self, other: Self) -> Self {
        let ours = u128::from(self.count) * u128::from(other.per_ms);
        let theirs = u128::from(other.count) * u128::from(self.per_ms);
        if theirs < ours { other } else { self }
    }
}

/// The rates of a queue. The default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Messages that are delivered.
    pub dequeue: Option<Rate>,
    /// Messages that may be delivered at once after a pause. Without `dequeue` it means nothing.
    pub dequeue_burst: Option<u64>,
    /// Bytes of the bodies of messages that are delivered.
    pub dequeue_bytes: Option<Rate>,
    /// Messages that publishers may publish.
    pub enqueue: Option<Rate>,
    /// Messages of each key that are delivered, in a queue with order by key. In others it means nothing.
    pub dequeue_per_key: Option<Rate>,
}

// Which parts follow: one bit each.
const DEQUEUE: u8 = 1;
const BURST: u8 = 1 << 1;
const BYTES: u8 = 1 << 2;
const ENQUEUE: u8 = 1 << 3;
const PER_KEY: u8 = 1 << 4;
const BITS: u8 = (1 << 5) - 1;

impl Rates {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether deliveries wait for tokens.
    pub fn limits_deliveries(&self) -> bool {
        self.dequeue.is_some() || self.dequeue_bytes.is_some()
    }

    /// Of each the smaller.
    #[must_use]
    pub(crate) fn least(self, other: Self) -> Self {
        fn least<T>(one: Option<T>, other: Option<T>, of: impl Fn(T, T) -> T) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(of(one, other)),
                (one, other) => one.or(other),
            }
        }
        Self {
            dequeue: least(self.dequeue, other.dequeue, Rate::slower),
            dequeue_burst: least(self.dequeue_burst, other.dequeue_burst, u64::min),
            dequeue_bytes: least(self.dequeue_bytes, other.dequeue_bytes, Rate::slower),
            enqueue: least(self.enqueue, other.enqueue, Rate::slower),
            dequeue_per_key: least(self.dequeue_per_key, other.dequeue_per_key, Rate::slower),
        }
    }

    /// Bits, then the numbers that the bits announce.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let Self { dequeue, dequeue_burst, dequeue_bytes, enqueue, dequeue_per_key } = *self;
        let bits = [
            (dequeue.is_some(), DEQUEUE),
            (dequeue_burst.is_some(), BURST),
            (dequeue_bytes.is_some(), BYTES),
            (enqueue.is_some(), ENQUEUE),
            (dequeue_per_key.is_some(), PER_KEY),
        ];
        out.push(bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum());
        for rate in [dequeue, dequeue_bytes, enqueue, dequeue_per_key].into_iter().flatten() {
            put_u64(out, rate.count);
            put_u64(out, rate.per_ms);
        }
        if let Some(burst) = dequeue_burst {
            put_u64(out, burst);
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let bits = reader.u8()?;
        if bits & !BITS != 0 {
            return Err(Corrupt::newer("rates of another version"));
        }
        let rate = |reader: &mut Reader<'_>, bit| -> Result<Option<Rate>, Corrupt> {
            if bits & bit == 0 {
                return Ok(None);
            }
            let (count, per_ms) = (reader.u64()?, reader.u64()?);
            Rate::new(count, per_ms).map(Some).ok_or_else(|| reader.corrupt())
        };
        let dequeue = rate(reader, DEQUEUE)?;
        let dequeue_bytes = rate(reader, BYTES)?;
        let enqueue = rate(reader, ENQUEUE)?;
        let dequeue_per_key = rate(reader, PER_KEY)?;
        let dequeue_burst = if bits & BURST != 0 { Some(reader.u64()?) } else { None };
        if dequeue_burst.is_some_and(|burst| !(1..=BURST_MAX).contains(&burst)) {
            return Err(reader.corrupt());
        }
        Ok(Self { dequeue, dequeue_burst, dequeue_bytes, enqueue, dequeue_per_key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(count: u64, per_ms: u64) -> Rate {
        Rate::new(count, per_ms).unwrap()
    }

    #[test]
    fn the_slower_of_two_rates_counts_whatever_their_units() {
        assert_eq!(rate(500, 1_000).slower(rate(1_000, 60_000)), rate(1_000, 60_000));
        assert_eq!(rate(10, 3_600_000).slower(rate(1, 1_000)), rate(10, 3_600_000));
        let max = rate(RATE_COUNT_MAX, 1);
        assert_eq!(
            max.slower(rate(RATE_COUNT_MAX, RATE_MS_MAX)),
            rate(RATE_COUNT_MAX, RATE_MS_MAX)
        );
        assert_eq!((Rate::new(0, 1), Rate::new(1, 0)), (None, None));
        assert_eq!(Rate::new(RATE_COUNT_MAX + 1, 1), None);
    }

    #[test]
    fn a_burst_that_nobody_says_is_a_tenth_of_a_second_and_at_least_one() {
        assert_eq!(rate(1_000, 1_000).default_burst(), 100);
        assert_eq!(rate(10, 3_600_000).default_burst(), 1);
        assert_eq!(rate(RATE_COUNT_MAX, 1).default_burst(), BURST_MAX);
    }

    #[test]
    fn rates_come_back_from_their_bytes_and_others_are_refused() {
        let all = Rates {
            dequeue: Some(rate(500, 1_000)),
            dequeue_burst: Some(7),
            dequeue_bytes: Some(rate(1 << 20, 1_000)),
            enqueue: Some(rate(10, 3_600_000)),
            dequeue_per_key: Some(rate(5, 1_000)),
        };
        for rates in [all, Rates::default(), Rates { dequeue: None, ..all }] {
            let mut out = Vec::new();
            rates.encode(&mut out);
            let mut reader = Reader::new(&out, "test");
            assert_eq!((Rates::read(&mut reader), reader.end()), (Ok(rates), Ok(())));
        }
        let mut never = vec![DEQUEUE];
        put_u64(&mut never, 0);
        put_u64(&mut never, 1_000);
        assert!(Rates::read(&mut Reader::new(&never, "test")).is_err(), "no message ever");
        assert!(Rates::read(&mut Reader::new(&[1 << 5], "test")).is_err(), "another version");
    }
}
