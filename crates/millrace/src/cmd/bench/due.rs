//! When messages of a run are due: to be delivered, or to expire.

/// Times on the clock of `tally::now_ns`, between which each message draws its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) how: How,
    from_ns: u64,
    pub(super) to_ns: u64,
}

/// What a message says of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// The header `x-delay`: it is delivered then.
    Delayed,
    /// The property `expiration`: it is dead then.
    Expires,
}

/// Width of an expiration: such a number of digits.
const DIGITS: u32 = 8;

impl Due {
    pub(super) fn delayed(from_ns: u64, to_ns: u64) -> Self {
        Self { how: How::Delayed, from_ns, to_ns }
    }

    pub(super) fn expires(at_ns: u64) -> Self {
        Self { how: How::Expires, from_ns: at_ns, to_ns: at_ns }
    }

    /// The time at which a message that goes at `now_ns` is due, and how many milliseconds that is: more
    /// than none, and rounded up, so that who keeps to them is never early.
    pub(super) fn draw(&self, now_ns: u64, chance: &mut Chance) -> (u64, u64) {
        let drawn = self.from_ns + chance.number() % (self.to_ns - self.from_ns + 1);
        let due_ns = drawn.max(now_ns + 1);
        (due_ns, (due_ns - now_ns).div_ceil(1_000_000))
    }

    /// Writes the milliseconds into a message, at the place for them.
    pub(super) fn write(&self, ms: u64, place: &mut [u8]) {
        match self.how {
            How::Delayed => {
                let ms = i32::try_from(ms).unwrap_or(i32::MAX);
                place[..4].copy_from_slice(&ms.to_be_bytes());
            }
            How::Expires => {
                let mut rest = ms.min(10u64.pow(DIGITS) - 1);
                for digit in place[..DIGITS as usize].iter_mut().rev() {
                    *digit = b'0' + (rest % 10) as u8;
                    rest /= 10;
                }
            }
        }
    }
}

/// Chance that a run repeats: splitmix64.
#[derive(Clone, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[inline]
    pub(super) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 0 to below `count`, which is not 0.
    pub(super) fn below(&mut self, count: u64) -> u64 {
        self.number() % count
    }

    /// 0 to `highest`.
    pub(super) fn within(&mut self, highest: u8) -> u8 {
        (self.number() % (u64::from(highest) + 1)) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_drawn_from_all_of_the_window_and_lie_ahead() {
        let due = Due::delayed(1_000_000_000, 3_000_000_000);
        let mut chance = Chance::new(1);
        let drawn: Vec<_> = (0..1_000).map(|_| due.draw(500_000_000, &mut chance)).collect();
        for (at_ns, ms) in &drawn {
            assert!((1_000_000_000..=3_000_000_000).contains(at_ns));
            assert!(500_000_000 + ms * 1_000_000 >= *at_ns, "never early");
        }
        assert!(drawn.iter().any(|(at_ns, _)| *at_ns < 1_100_000_000));
        assert!(drawn.iter().any(|(at_ns, _)| *at_ns > 2_900_000_000));
        assert_eq!(due.draw(4_000_000_000, &mut chance), (4_000_000_001, 1), "too late is now");
    }

    #[test]
    fn milliseconds_are_written_with_a_fixed_width() {
        let mut place = *b"@@@@@@@@!";
        Due::expires(0).write(15_000, &mut place);
        assert_eq!(&place, b"00015000!");
        Due::delayed(0, 0).write(258, &mut place);
        assert_eq!(place[..4], [0, 0, 1, 2]);
    }
}
