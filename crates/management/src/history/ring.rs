//! How something stood over two days: points of 10 seconds, of a minute and of five minutes, each so many and no more.
//!
//! A number of a point is a *height* (how many there are: the highest of the time counts) or a *count* (how many came:
//! those of the time are added up). So a point of a minute says the same as its six points of 10 seconds together.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// A point's numbers. A number above `u32::MAX` stays there: as a count of five minutes that is 14 million a second.
pub(crate) type Numbers<const N: usize> = [u32; N];

/// Seconds of a point, and how many points of it are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolution {
    pub(crate) step_s: u64,
    pub(crate) points_max: usize,
}

/// The finest first. Each step is a multiple of the one before.
pub(crate) const RESOLUTIONS: [Resolution; 3] = [
    Resolution { step_s: 10, points_max: 360 },
    Resolution { step_s: 60, points_max: 360 },
    Resolution { step_s: 300, points_max: 576 },
];

/// How far back the coarsest points go.
pub(crate) const SPAN_S_MAX: u64 = RESOLUTIONS[2].step_s * RESOLUTIONS[2].points_max as u64;

const _: () = assert!(SPAN_S_MAX == 48 * 60 * 60, "today can be compared with yesterday");

/// How many places a ring takes from memory at a time.
const GROWTH: usize = 30;

/// Some points that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Window {
    pub(crate) step_s: u64,
    /// Number of the first: seconds since 1970 by the step.
    pub(crate) first: u64,
    pub(crate) count: usize,
}

impl Window {
    /// The last whole points of so many seconds, as fine as they are kept.
    pub(crate) fn back(seconds: u64, now_ms: u64) -> Self {
        Self::before(seconds, 0, now_ms)
    }

    /// The same as it would have been `ago` seconds ago, as fine as that is still kept. What is kept no longer is cut off.
    pub(crate) fn before(seconds: u64, ago: u64, now_ms: u64) -> Self {
        let ago = ago.min(SPAN_S_MAX - RESOLUTIONS[0].step_s);
        let seconds = seconds.clamp(RESOLUTIONS[0].step_s, SPAN_S_MAX - ago);
        let fits = |it: &Resolution| it.step_s * it.points_max as u64 >= seconds + ago;
        let coarsest = RESOLUTIONS[RESOLUTIONS.len() - 1];
        let Resolution { step_s, .. } = RESOLUTIONS.into_iter().find(fits).unwrap_or(coarsest);
        let count = seconds.div_ceil(step_s);
        let end = (now_ms / 1000).saturating_sub(ago) / step_s;
        Self { step_s, first: end.saturating_sub(count), count: count as usize }
    }

    /// When the first point begins, in milliseconds since 1970.
    pub(crate) fn starts_ms(self) -> u64 {
        self.first * self.step_s * 1000
    }

    /// When the last point ends.
    pub(crate) fn ends_ms(self) -> u64 {
        (self.first + self.count as u64) * self.step_s * 1000
    }

    /// Whether it is one that can be asked for: it comes from another node.
    pub(crate) fn is_kept(self) -> bool {
        let known = RESOLUTIONS.into_iter().find(|it| it.step_s == self.step_s);
        known.is_some_and(|it| self.count <= it.points_max) && self.first < u64::MAX / 1_000_000
    }
}

/// Points of all resolutions. The first `HEIGHTS` of their `N` numbers are heights, the others counts.
#[derive(Clone, Debug)]
pub(crate) struct Series<const N: usize, const HEIGHTS: usize> {
    rings: [Ring<N>; RESOLUTIONS.len()],
}

/// Points of one resolution. A time of which nothing is known has a place, too.
#[derive(Clone, Debug)]
struct Ring<const N: usize> {
    /// Number of the last point.
    last: u64,
    points: VecDeque<Option<Numbers<N>>>,
}

impl<const N: usize, const HEIGHTS: usize> Default for Series<N, HEIGHTS> {
    fn default() -> Self {
        Self { rings: std::array::from_fn(|_| Ring { last: 0, points: VecDeque::new() }) }
    }
}

impl<const N: usize, const HEIGHTS: usize> Series<N, HEIGHTS> {
    /// Adds what was seen at this second. Time does not go back: what is older than the last point belongs to it.
    pub(crate) fn add(&mut self, now_s: u64, seen: Numbers<N>) {
        for (ring, resolution) in self.rings.iter_mut().zip(RESOLUTIONS) {
            ring.reach(now_s / resolution.step_s, resolution.points_max);
            let last = ring.points.back_mut().expect("it reaches to a point");
            *last = Some(last.map_or(seen, |known| Self::together(known, seen)));
        }
    }

    /// Two points as one.
    pub(crate) fn together(mut one: Numbers<N>, other: Numbers<N>) -> Numbers<N> {
        for (place, number) in other.into_iter().enumerate() {
            one[place] = match place < HEIGHTS {
                true => one[place].max(number),
                false => one[place].saturating_add(number),
            };
        }
        one
    }

    /// The points of a window: `None` where nothing is known.
    pub(crate) fn read(&self, window: Window) -> Vec<Option<Numbers<N>>> {
        let of = RESOLUTIONS.iter().position(|it| it.step_s == window.step_s);
        let Some(ring) = of.map(|place| &self.rings[place]) else { return Vec::new() };
        (window.first..).take(window.count).map(|number| ring.point(number)).collect()
    }

    /// Bytes that its points take.
    pub(crate) fn bytes(&self) -> usize {
        let places: usize = self.rings.iter().map(|ring| ring.points.capacity()).sum();
        places * size_of::<Option<Numbers<N>>>()
    }
}

impl<const N: usize> Ring<N> {
    /// Makes the point of this number the last, if it is behind the last.
    fn reach(&mut self, number: u64, points_max: usize) {
        let ahead = match self.points.is_empty() {
            true => 1,
            false => number.saturating_sub(self.last),
        };
        if ahead >= points_max as u64 {
            self.points.clear();
        }
        for _ in 0..ahead.min(points_max as u64) {
            if self.points.len() == points_max {
                self.points.pop_front();
            }
            if self.points.len() == self.points.capacity() {
                self.points.reserve_exact(GROWTH.min(points_max - self.points.len()));
            }
            self.points.push_back(None);
        }
        if ahead > 0 {
            self.last = number;
        }
        assert!(self.points.len() <= points_max, "a ring has so many points");
    }

    fn point(&self, number: u64) -> Option<Numbers<N>> {
        let back = self.last.checked_sub(number)?;
        let place = (self.points.len() as u64).checked_sub(back + 1)?;
        self.points.get(place as usize).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Two = Series<2, 1>;

    #[test]
    fn points_say_what_was_seen_in_their_time() {
        let mut series = Two::default();
        for (second, height, count) in [(100, 5, 1), (109, 3, 2), (110, 4, 4), (135, 1, 8)] {
            series.add(second, [height, count]);
        }
        let fine = series.read(Window { step_s: 10, first: 9, count: 5 });
        assert_eq!(fine, [None, Some([5, 3]), Some([4, 4]), None, Some([1, 8])]);
        let minutes = series.read(Window { step_s: 60, first: 1, count: 2 });
        assert_eq!(minutes, [Some([5, 7]), Some([1, 8])]);
        series.add(90, [9, 16]);
        let last = series.read(Window { step_s: 10, first: 13, count: 1 });
        assert_eq!(last, [Some([9, 24])], "a clock that goes back adds to the last point");
    }

    #[test]
    fn a_window_is_as_fine_as_it_can_be_and_ends_with_a_whole_point() {
        let now_ms = 1_000_005_000;
        let of = |seconds| Window::back(seconds, now_ms);
        assert_eq!(of(3600), Window { step_s: 10, first: 100_000 - 360, count: 360 });
        assert_eq!(of(3601).step_s, 60);
        assert_eq!((of(86_400).step_s, of(86_400).count), (300, 288));
        assert_eq!(of(u64::MAX), of(172_800));
        assert_eq!((of(172_800).step_s, of(172_800).count), (300, 576));
        assert_eq!(of(0).count, 1);
        assert!(of(3600).ends_ms() <= now_ms && of(3600).is_kept());
        assert!(!Window { step_s: 10, first: 1, count: 361 }.is_kept());
        assert!(!Window { step_s: 7, first: 1, count: 1 }.is_kept());
    }

    #[test]
    fn yesterday_is_as_long_as_today_and_coarser() {
        let now_ms = 1_000_005_000;
        let yesterday = Window::before(3600, 86_400, now_ms);
        assert_eq!(yesterday, Window { step_s: 300, first: 3_333 - 288 - 12, count: 12 });
        assert!(yesterday.ends_ms() <= now_ms - 86_400_000 && yesterday.is_kept());
        assert_eq!(Window::before(60, 600, now_ms).step_s, 10, "not long ago it is as fine");
        assert_eq!(Window::before(100_000, 100_000, now_ms).count, 243, "two days are kept");
        assert_eq!(Window::before(1, u64::MAX, now_ms).count, 1);
    }

    #[test]
    fn a_leap_of_the_clock_takes_no_memory() {
        let mut series = Two::default();
        series.add(10, [1, 1]);
        series.add(u64::MAX / 2_000_000, [2, 2]);
        let bytes_max: usize = RESOLUTIONS.iter().map(|it| it.points_max).sum();
        assert!(series.bytes() <= bytes_max * size_of::<Option<Numbers<2>>>());
        for second in 0..100_000 {
            series.add(u64::MAX / 2_000_000 + second, [2, 2]);
        }
        assert!(series.bytes() <= bytes_max * size_of::<Option<Numbers<2>>>());
    }

    proptest! {
        /// What points of any resolution count is what came in their time, and their height is the highest of it.
        #[test]
        fn coarse_points_say_what_came(
            steps in proptest::collection::vec((0_u64..400, 0_u32..1000, 0_u32..1000), 1..300),
            start in 0_u64..100_000,
        ) {
            let mut series = Two::default();
            let mut seen = Vec::new();
            let mut now = start;
            for (pause, height, count) in steps {
                now += pause;
                series.add(now, [height, count]);
                seen.push((now, height, count));
            }
            for resolution in RESOLUTIONS {
                let step_s = resolution.step_s;
                let last = now / step_s;
                let first = last.saturating_sub(resolution.points_max as u64 - 1);
                let count = (last - first + 1) as usize;
                let mut came = BTreeMap::<u64, Numbers<2>>::new();
                for (second, height, count) in &seen {
                    let point = came.entry(second / step_s).or_default();
                    *point = [point[0].max(*height), point[1] + count];
                }
                let points = series.read(Window { step_s, first, count });
                for (number, point) in (first..).zip(points) {
                    prop_assert_eq!(point, came.get(&number).copied());
                }
                let before = series.read(Window { step_s, first: first.saturating_sub(3), count: 1 });
                prop_assert!(first == 0 || before == [None] || first < 3);
            }
        }
    }
}
