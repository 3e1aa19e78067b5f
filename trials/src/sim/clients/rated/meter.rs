//! What went through a queue with a rate, held against the rate.
//!
//! | What is judged | When |
//! | --- | --- |
//! | R1: in no time, however it is chosen, more goes than the rate brings in it and one burst, whoever leads | at each message |
//! | R2: where there is work and credit and nobody fails, at least nine tenths of the rate go | while all is drained |
//!
//! What went is counted where it arrives. So as much as was on its way may come at once with what goes then.

use crate::sim::agenda::Micros;

/// Clocks of nodes and ours are the same but for rounding; a percent is far more.
const SLACK_PERCENT: u128 = 1;
/// So long is looked at for what comes at least. Leaders may still move in the first, and then there are others.
const WINDOW: Micros = 3_000_000;

pub(super) struct Meter {
    pub(super) name: &'static str,
    /// Messages in a time.
    count: u64,
    per: Micros,
    /// What may come at once: a burst, and what may be on its way.
    at_once: u64,
    /// Messages times `per`: what came, less what the rate has brought since. Above `at_once` there is a time in which
    /// too much came.
    level: u128,
    last: Micros,
    /// When the present window began, and what came in it.
    window: Option<(Micros, u64)>,
    /// One window had what is due.
    pub(super) is_fed: bool,
    pub(super) went: u64,
    violation: Option<String>,
}

impl Meter {
    pub(super) fn new(name: &'static str, (count, per_ms): (u64, u64), at_once: u64) -> Self {
        Self {
            name,
            count,
            per: per_ms * 1_000,
            at_once,
            level: 0,
            last: 0,
            window: None,
            is_fed: false,
            went: 0,
            violation: None,
        }
    }

    /// So many messages arrive.
    pub(super) fn arrive(&mut self, messages: u64, now: Micros) {
        let passed = u128::from(now - self.last);
        let brought = passed * u128::from(self.count) * (100 + SLACK_PERCENT) / 100;
        let come = u128::from(messages) * u128::from(self.per);
        self.level = self.level.saturating_sub(brought) + come;
        self.last = now;
        self.went += messages;
        if let Some((_, in_window)) = &mut self.window {
            *in_window += messages;
        }
        let over = self.level / u128::from(self.per);
        if over > u128::from(self.at_once) && self.violation.is_none() {
            let Self { name, count, per, at_once, .. } = self;
            let ms = *per / 1_000;
            self.violation = Some(format!(
                "{name}: {over} messages came beside the rate of {count} in {ms} ms, where {at_once} may"
            ));
        }
    }

    /// From here on there is work and credit, and nobody fails.
    pub(super) fn begin(&mut self) {
        (self.window, self.is_fed) = (None, false);
    }

    /// Time passes while that is so.
    pub(super) fn look(&mut self, now: Micros) {
        let Some((began, came)) = self.window else {
            self.window = Some((now, 0));
            return;
        };
        if now - began < WINDOW {
            return;
        }
        self.is_fed |= came * self.per * 10 >= self.count * (now - began) * 9;
        self.window = Some((now, 0));
    }

    pub(super) fn take_violation(&mut self) -> Option<String> {
        let text = self.violation.take()?;
        // It is told once: one bug shows in many places.
        self.at_once = u64::MAX;
        Some(text)
    }

    pub(super) fn complaint(&self) -> Option<String> {
        let Self { name, count, per, window, .. } = self;
        (!self.is_fed).then(|| {
            let ms = per / 1_000;
            format!(
                "{name} starves: less than nine tenths of {count} in {ms} ms came, now {window:?}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred in a second, and five at once.
    fn meter() -> Meter {
        Meter::new("q", (100, 1_000), 5)
    }

    #[test]
    fn the_rate_and_a_burst_may_come_and_nothing_more() {
        let mut meter = meter();
        meter.arrive(5, 0);
        for now in (0..1_000_000).step_by(10_000) {
            meter.arrive(1, now + 10_000);
        }
        assert_eq!(meter.take_violation(), None);
        meter.arrive(5, 1_000_000);
        assert!(meter.take_violation().unwrap().contains("beside the rate"));
    }

    #[test]
    fn bursts_that_come_again_and_again_are_too_much() {
        let mut meter = meter();
        for now in 1..4 {
            // A fiftieth of a second brings two.
            meter.arrive(5, now * 20_000);
        }
        assert!(meter.take_violation().is_some());
    }

    #[test]
    fn who_gets_too_little_in_every_window_starves() {
        let mut meter = meter();
        meter.begin();
        let mut run = |every: Micros, from: Micros| {
            for now in (from..from + 7_000_000).step_by(every as usize) {
                meter.look(now);
                meter.arrive(1, now);
            }
            meter.is_fed
        };
        assert!(!run(12_000, 0));
        assert!(run(11_000, 7_000_000));
    }
}
