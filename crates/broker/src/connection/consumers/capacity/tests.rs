//! What is found out of one consumer that works.
#![allow(clippy::disallowed_methods, reason = "a test: the time begins now")]

use super::*;

const LIMIT: u32 = 8;

struct One {
    measured: Measured,
    now: Instant,
    told: Vec<f64>,
}

impl One {
    fn new() -> Self {
        let now = Instant::now();
        Self { measured: Measured::new(now), now, told: Vec::new() }
    }

    fn look(&mut self, held: u32) {
        let told = self.measured.look(self.now, held, LIMIT);
        self.told.extend(told.map(Capacity::per_second));
    }

    /// Messages come with `gap_ms` of nothing between, and take `ms` each.
    fn works(&mut self, messages: u32, ms: u64, gap_ms: u64, held: u32) {
        for _ in 0..messages {
            self.look(held);
            self.now += Duration::from_millis(ms);
            self.measured.done += 1;
            self.look(if gap_ms == 0 { held } else { 0 });
            self.now += Duration::from_millis(gap_ms);
        }
    }

    /// The ratio of what was told last to what it is.
    fn told_is(&self, per_second: f64) -> bool {
        self.told.last().is_some_and(|told| (1.0..1.2).contains(&(per_second * 1.000_01 / told)))
    }
}

#[test]
fn what_it_can_do_is_told_after_three_looks_that_agree_and_then_no_more() {
    let mut one = One::new();
    one.works(280, 50, 0, LIMIT);
    assert!(one.told.is_empty(), "two looks");
    one.works(1_000, 50, 0, LIMIT);
    assert_eq!(one.told.len(), 1);
    assert!(one.told_is(20.0), "{:?}", one.told);
    // A little faster, or for a short time.
    one.works(1_000, 40, 0, LIMIT);
    one.works(150, 10, 0, LIMIT);
    one.works(1_000, 50, 0, LIMIT);
    assert_eq!(one.told.len(), 1);
}

#[test]
fn it_is_known_of_one_that_has_little_to_do_as_well() {
    let mut one = One::new();
    one.works(2_000, 2, 98, 1);
    assert_eq!(one.told.len(), 1, "{:?}", one.told);
    assert!(one.told_is(500.0), "{:?}", one.told);
}

#[test]
fn it_becomes_less_only_while_the_consumer_holds_all_that_it_may() {
    let mut one = One::new();
    one.works(2_000, 10, 0, LIMIT);
    assert!(one.told_is(100.0), "{:?}", one.told);
    // It settles seldom, as one that collects its acknowledgements does, and could have more.
    one.works(2_000, 100, 0, 2);
    assert_eq!(one.told.len(), 1);
    one.works(300, 100, 0, LIMIT);
    assert!(one.told_is(10.0), "{:?}", one.told);
    one.works(3_000, 10, 0, LIMIT);
    assert!(one.told_is(100.0), "{:?}", one.told);
}

#[test]
fn one_that_does_nothing_is_not_known() {
    let mut one = One::new();
    for _ in 0..1_000 {
        one.look(LIMIT);
        one.now += Duration::from_secs(1);
    }
    assert!(one.told.is_empty());
    // One message in two minutes is something.
    one.works(8, 120_000, 0, LIMIT);
    assert_eq!(one.told.len(), 1);
}
