//! What is counted of each queue while it is moved, and how that is shown: a line on a terminal, lines of JSON.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use service::io::screen::Shown;

/// How much a new rate weighs against those before.
const NEW_RATE_WEIGHS: f64 = 0.3;

/// Of one queue. The one who moves it writes, everybody may read.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Confirmed by the target and settled at the source.
    pub(super) moved: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Published with the mark of what may be there twice.
    pub(super) repeats: AtomicU64,
    /// `basic.nack` of the target.
    pub(super) refused: AtomicU64,
    pub(super) source_losses: AtomicU64,
    pub(super) target_losses: AtomicU64,
    /// Here, and not settled.
    pub(super) in_flight: AtomicU64,
    /// Ready at the source when somebody looked last.
    pub(super) ready: AtomicU64,
    /// 1 once it has ended.
    pub(super) ended: AtomicU64,
}

/// A queue and what is counted of it.
pub(super) type Counted = (String, Arc<Counts>);

pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Relaxed);
}

/// The sum of one counter over all queues.
pub(super) fn sum(queues: &[Counted], of: impl Fn(&Counts) -> &AtomicU64) -> u64 {
    queues.iter().map(|(_, counts)| of(counts).load(Relaxed)).sum()
}

/// What is shown while queues are moved.
pub(super) struct Screen {
    queues: Arc<[Counted]>,
    /// New messages come all the time: there is no end to be told.
    is_endless: bool,
    moved: u64,
    rate: Option<f64>,
    begun: Instant,
}

/// How it stands.
struct Standing {
    ended: u64,
    moved: u64,
    repeats: u64,
    in_flight: u64,
    /// In flight, too.
    left: u64,
    rate: f64,
    eta_s: Option<f64>,
}

impl Screen {
    pub(super) fn new(queues: Arc<[Counted]>, is_endless: bool) -> Self {
        Self { queues, is_endless, moved: 0, rate: None, begun: Instant::now() }
    }

    fn standing(&mut self, since: Duration) -> Standing {
        let moved = sum(&self.queues, |counts| &counts.moved);
        let now = (moved - self.moved) as f64 / since.as_secs_f64().max(1e-9);
        self.moved = moved;
        let before = self.rate.unwrap_or(now);
        let rate = before + (now - before) * NEW_RATE_WEIGHS;
        self.rate = Some(rate);
        let in_flight = sum(&self.queues, |counts| &counts.in_flight);
        let left = sum(&self.queues, |counts| &counts.ready) + in_flight;
        let eta_s = (!self.is_endless && rate >= 0.1).then(|| left as f64 / rate);
        Standing {
            ended: sum(&self.queues, |counts| &counts.ended),
            moved,
            repeats: sum(&self.queues, |counts| &counts.repeats),
            in_flight,
            left,
            rate,
            eta_s,
        }
    }
}

impl Shown for Screen {
    fn line(&mut self, since: Duration) -> String {
        let Standing { ended, moved, repeats, left, rate, eta_s, in_flight: _ } =
            self.standing(since);
        let mut line = format!(
            "{ended} of {} queues done, {moved} messages moved, {rate:.0}/s, {left} left",
            self.queues.len()
        );
        if let Some(seconds) = eta_s.filter(|_| left > 0) {
            line += &format!(", {} to go", words(seconds));
        }
        if repeats > 0 {
            line += &format!(", {repeats} may be there twice");
        }
        line
    }

    fn json(&mut self, since: Duration) -> String {
        let Standing { ended, moved, repeats, in_flight, left, rate, eta_s } = self.standing(since);
        json!({
            "event": "progress",
            "seconds": round(self.begun.elapsed().as_secs_f64()),
            "queues": self.queues.len(),
            "ended": ended,
            "moved": moved,
            "repeats": repeats,
            "in_flight": in_flight,
            "left": left,
            "per_s": round(rate),
            "eta_s": eta_s.map(round),
        })
        .to_string()
    }
}

impl Counts {
    /// The counters of a queue that has ended.
    pub(super) fn to_json(&self) -> Value {
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        json!({
            "moved": count(&self.moved),
            "bytes": count(&self.bytes),
            "repeats": count(&self.repeats),
            "refused": count(&self.refused),
            "source_losses": count(&self.source_losses),
            "target_losses": count(&self.target_losses),
        })
    }
}

/// One digit behind the point.
pub(super) fn round(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// A length of time, roughly.
fn words(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6000 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues() -> Arc<[Counted]> {
        ["a", "b"].map(|name| (name.to_owned(), Arc::default())).into()
    }

    #[test]
    fn the_line_says_how_fast_it_goes_and_when_it_ends() {
        let queues = queues();
        let mut screen = Screen::new(queues.clone(), false);
        add(&queues[0].1.moved, 500);
        add(&queues[1].1.ready, 990);
        add(&queues[1].1.in_flight, 10);
        let line = screen.line(Duration::from_secs(1));
        assert_eq!(line, "0 of 2 queues done, 500 messages moved, 500/s, 1000 left, 2 s to go");
        let json: Value = serde_json::from_str(&screen.json(Duration::from_secs(1))).unwrap();
        assert_eq!((&json["moved"], &json["left"]), (&json!(500), &json!(1000)));
        assert_eq!(json["per_s"], json!(350.0), "a pause does not make the rate jump");
    }

    #[test]
    fn who_follows_is_told_no_end() {
        let queues = queues();
        add(&queues[0].1.moved, 500);
        add(&queues[0].1.ready, 500);
        let line = Screen::new(queues, true).line(Duration::from_secs(1));
        assert!(!line.contains("to go"), "{line}");
    }

    #[test]
    fn lengths_of_time_are_rough() {
        let told = [0.2, 99.0, 100.1, 5999.0, 6001.0].map(words);
        assert_eq!(told, ["1 s", "99 s", "2 min", "100 min", "2 h"]);
    }
}
