//! Holders and granters among lost, late and repeated messages, clocks that drift, and deaths.
#![allow(clippy::disallowed_methods, reason = "a test has to begin at some time")]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const RATE: f64 = 100.0;

fn ask(worker: &str, seq: u64, wish: f64) -> Ask {
    Ask { worker: worker.into(), seq, wish }
}

#[test]
fn shares_follow_wishes_and_what_nobody_wishes_is_parted() {
    let start = Instant::now();
    let mut granter = Granter::new(RATE, LEASE, start);
    let mut at = |seconds: u64, worker: &str, wish: f64| {
        let now = start + Duration::from_secs(seconds);
        granter.ask(&ask(worker, seconds, wish), now).rate
    };
    assert_eq!(at(1, "a", 500.0), 0.0, "a new granter waits for a lease");
    assert_eq!(at(4, "a", 500.0), 100.0);
    assert_eq!(at(5, "b", 10.0), 0.0, "everything is granted");
    // What a is told to give back is free when its larger grants have run out.
    assert_eq!(at(5, "a", 500.0), 90.0);
    assert_eq!(at(6, "b", 10.0), 0.0);
    for second in 6..9 {
        at(second, "a", 500.0);
    }
    assert_eq!(at(9, "b", 10.0), 10.0);
    assert_eq!(at(9, "a", 500.0), 90.0);
    // Both idle: half each.
    for second in 10..20 {
        at(second, "a", 0.0);
        at(second, "b", 0.0);
    }
    assert_eq!((at(20, "a", 0.0), at(20, "b", 0.0)), (50.0, 50.0));
    // One that is gone leaves its part to the other.
    for second in 21..25 {
        at(second, "a", 500.0);
    }
    assert_eq!(at(25, "a", 500.0), 100.0);
}

#[test]
fn a_holder_uses_nothing_without_a_share_and_counts_from_before_it_asked() {
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let mut holder = Holder::new("a".into(), RATE, LEASE);
    assert_eq!(holder.rate(at(0)), 0.0);
    let first = holder.ask(RATE, at(0));
    let second = holder.ask(RATE, at(1000));
    holder.granted(Grant { seq: second.seq, rate: 40.0 }, at(1500));
    assert_eq!(holder.rate(at(1500)), 40.0);
    holder.granted(Grant { seq: first.seq, rate: 90.0 }, at(1600));
    assert_eq!(holder.rate(at(1600)), 40.0, "a late grant does not replace a newer one");
    assert_eq!((holder.rate(at(3999)), holder.rate(at(4000))), (40.0, 0.0));
    let third = holder.ask(RATE, at(5000));
    holder.granted(Grant { seq: third.seq, rate: 90.0 }, at(8001));
    assert_eq!(holder.rate(at(8001)), 0.0, "its lease was over before it came");
    holder.granted(Grant { seq: 77, rate: 90.0 }, at(8001));
    assert_eq!(holder.rate(at(8001)), 0.0, "nobody asked for it");
}

/// What happens, at true times in milliseconds.
#[derive(Clone, Debug)]
enum Event {
    Ask(usize),
    /// An ask arrives at the granter who lived when it was delivered to.
    Asked(Ask, usize),
    Granted(Grant, usize),
    /// The granter dies or is cut off; another takes over. What was delivered to the old one it still answers.
    TakeOver,
}

struct World {
    start: Instant,
    /// How fast the clock of each holder runs, in thousandths.
    speeds: Vec<u64>,
    holders: Vec<Holder>,
    wishes: Vec<f64>,
    granters: Vec<(Granter, u64)>,
    /// By time, then by number.
    events: BTreeMap<(u64, u64), Event>,
    next: u64,
    chance: u64,
}

impl World {
    fn new(seed: u64, count: usize) -> Self {
        let mut world = Self {
            start: Instant::now(),
            speeds: Vec::new(),
            holders: Vec::new(),
            wishes: Vec::new(),
            granters: Vec::new(),
            events: BTreeMap::new(),
            next: 0,
            chance: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        };
        for place in 0..count {
            let (speed, wish) = (960 + world.draw(81), world.draw(200) as f64);
            world.speeds.push(speed);
            world.holders.push(Holder::new(format!("w{place}"), RATE, LEASE));
            world.wishes.push(wish);
            let at = world.draw(1000);
            world.at(at, Event::Ask(place));
        }
        world.at(0, Event::TakeOver);
        for _ in 0..world.draw(6) {
            let at = world.draw(60_000);
            world.at(at, Event::TakeOver);
        }
        world
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance % below
    }

    fn at(&mut self, ms: u64, event: Event) {
        self.next += 1;
        self.events.insert((ms, self.next), event);
    }

    fn clock(&self, speed: u64, ms: u64) -> Instant {
        self.start + Duration::from_micros(ms * speed)
    }

    /// Sends a message: it is lost, comes soon, late, or twice.
    fn send(&mut self, now: u64, event: &Event) {
        let copies = match self.draw(20) {
            0 => 0,
            1 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let delay = if self.draw(10) == 0 { self.draw(6000) } else { self.draw(50) };
            self.at(now + delay, event.clone());
        }
    }

    fn step(&mut self) -> Option<u64> {
        let ((now, _), event) = self.events.pop_first()?;
        if now > 70_000 {
            return None;
        }
        match event {
            Event::Ask(place) => {
                if self.draw(30) == 0 {
                    self.wishes[place] = self.draw(200) as f64;
                }
                let clock = self.clock(self.speeds[place], now);
                let ask = self.holders[place].ask(self.wishes[place], clock);
                let granter = self.granters.len().saturating_sub(1);
                self.send(now, &Event::Asked(ask, granter));
                let pause = if self.draw(20) == 0 { 8000 } else { 1000 };
                self.at(now + pause, Event::Ask(place));
            }
            Event::Asked(ask, of) => {
                let Some(&(_, speed)) = self.granters.get(of) else { return Some(now) };
                let clock = self.clock(speed, now);
                let place: usize = ask.worker[1..].parse().unwrap();
                let grant = self.granters[of].0.ask(&ask, clock);
                self.send(now, &Event::Granted(grant, place));
            }
            Event::Granted(grant, place) => {
                let clock = self.clock(self.speeds[place], now);
                self.holders[place].granted(grant, clock);
            }
            Event::TakeOver => {
                let speed = 960 + self.draw(81);
                let clock = self.clock(speed, now);
                self.granters.push((Granter::new(RATE, LEASE, clock), speed));
            }
        }
        Some(now)
    }

    fn sum(&self, now: u64) -> f64 {
        let rate = |(holder, speed): (&Holder, &u64)| holder.rate(self.clock(*speed, now));
        self.holders.iter().zip(&self.speeds).map(rate).sum()
    }
}

#[test]
fn the_sum_of_shares_is_never_above_the_rate_in_a_thousand_worlds() {
    let mut used = BTreeSet::new();
    for seed in 1..=1000 {
        let mut world = World::new(seed, 2 + (seed % 5) as usize);
        while let Some(now) = world.step() {
            let sum = world.sum(now);
            assert!(sum <= RATE + 1e-6, "seed {seed}: {sum} at {now} ms, the rate is {RATE}");
            used.insert((sum * 10.0) as u64);
        }
    }
    assert!(used.contains(&1000), "all of it is used at times");
}

proptest! {
    #[test]
    fn parts_are_fair_and_their_sum_is_the_rate(
        wishes in prop::collection::vec(0.0_f64..300.0, 1..20),
    ) {
        let start = Instant::now();
        let mut granter = Granter::new(RATE, LEASE, start);
        for (place, wish) in wishes.iter().enumerate() {
            granter.ask(&ask(&format!("w{place:02}"), 1, *wish), start);
        }
        let parts = (0..wishes.len()).map(|place| granter.part(&format!("w{place:02}")));
        let parts: Vec<f64> = parts.collect();
        prop_assert!((parts.iter().sum::<f64>() - RATE).abs() < 1e-6, "{parts:?}");
        for (wish, part) in wishes.iter().zip(&parts) {
            let equal = RATE / wishes.len() as f64;
            prop_assert!(*part + 1e-9 >= wish.min(equal), "{part} of {wish} is not fair");
        }
    }
}
