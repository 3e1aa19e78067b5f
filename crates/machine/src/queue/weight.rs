//! How many of the partitions of a queue a consumer is to have, beside the others.
//!
//! A consumer says it (`x-weight`), or its session finds out what it can do: messages settled in a second in which it had
//! some. Only the ratio of weights counts. What was found out is kept in coarse steps, so that it seldom changes.

use std::time::Duration;

/// A consumer's weight among those that consume from the same queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    /// It says none, and nothing is known: as much as the others have on average.
    #[default]
    Unknown,
    /// It says so itself: 1 to [`crate::limits::CONSUMER_WEIGHT_MAX`].
    Said(u16),
    /// Its session found out what it can do.
    Measured(Capacity),
}

impl Weight {
    /// As it is written: 0 is unknown.
    pub const fn to_u16(self) -> u16 {
        match self {
            Self::Unknown => 0,
            Self::Said(weight) => weight,
            Self::Measured(Capacity(step)) => MEASURED | step as u16,
        }
    }

    /// `None`: it is no weight.
    pub fn from_u16(written: u16) -> Option<Self> {
        match written {
            0 => Some(Self::Unknown),
            1..=crate::limits::CONSUMER_WEIGHT_MAX => Some(Self::Said(written)),
            MEASURED.. => {
                let step = u8::try_from(written & !MEASURED).ok()?;
                (step <= STEP_MAX).then_some(Self::Measured(Capacity(step)))
            }
            _ => None,
        }
    }
}

const MEASURED: u16 = 1 << 15;

/// Messages that a consumer can do in a second, in steps of a quarter of an octave (19 %): step 0 is one in 1,000 s, the
/// last one is 17 million in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Capacity(u8);

const STEP_MAX: u8 = 135;
/// 1,024 times 2 to the power of 0, 1/4, 1/2 and 3/4.
const QUARTERS: [u64; 4] = [1_024, 1_218, 1_448, 1_722];

impl Capacity {
    /// Of `settled` messages in `busy`, the time in which the consumer had something to do. `None`: nothing is known.
    pub fn of(settled: u64, busy: Duration) -> Option<Self> {
        if settled == 0 || busy.is_zero() {
            return None;
        }
        let in_1000_s = u128::from(settled) * 1_000_000_000_000 / busy.as_nanos();
        let is_as_much = |step: &u8| u128::from(Self(*step).share()) <= in_1000_s * 1_024;
        Some(Self((0..=STEP_MAX).take_while(is_as_much).last().unwrap_or(0)))
    }

    /// Which step it is.
    pub const fn step(self) -> u8 {
        self.0
    }

    /// Messages in a second.
    pub fn per_second(self) -> f64 {
        self.share() as f64 / 1_024.0 / 1_000.0
    }

    /// In proportion to that of others.
    pub(super) const fn share(self) -> u64 {
        QUARTERS[self.0 as usize % 4] << (self.0 / 4)
    }
}

/// What may change of a consumer while it consumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerChange {
    /// It is given nothing from now on, or goes on. What it holds stays with it.
    Pause(bool),
    /// It can do more, or less, than was known.
    Weigh(Weight),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weight_is_read_as_it_was_written_and_nothing_else_is_one() {
        let mut read = 0;
        for written in 0..=u16::MAX {
            if let Some(weight) = Weight::from_u16(written) {
                assert_eq!(weight.to_u16(), written);
                read += 1;
            }
        }
        let all = 1 + u32::from(crate::limits::CONSUMER_WEIGHT_MAX) + u32::from(STEP_MAX) + 1;
        assert_eq!(read, all);
    }

    #[test]
    fn a_capacity_is_within_a_quarter_of_an_octave_of_what_was_done() {
        for (settled, seconds) in [(1, 1_000), (1, 60), (5, 1), (100, 5), (1_000_000, 3)] {
            let found = Capacity::of(settled, Duration::from_secs(seconds)).expect("something");
            let done = settled as f64 / seconds as f64;
            let ratio = done / found.per_second();
            assert!((0.999..1.2).contains(&ratio), "{settled} in {seconds} s: {ratio}");
        }
        assert_eq!(Capacity::of(0, Duration::from_secs(1)), None);
        assert_eq!(Capacity::of(1, Duration::ZERO), None);
        assert_eq!(Capacity::of(u64::MAX, Duration::from_nanos(1)), Some(Capacity(STEP_MAX)));
        assert_eq!(Capacity::of(1, Duration::MAX), Some(Capacity(0)));
    }
}
