//! How far a replay is, and how that is shown: a line on a terminal, lines of JSON.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::json;
use service::io::screen::Shown;

use super::place::Range;

/// What is copied of one partition, or of a stream that has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) partition: Option<u16>,
    pub(super) range: Range,
}

/// The one who copies writes, everybody may read.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Confirmed by the target.
    pub(super) copied: AtomicU64,
    /// The filter did not match.
    pub(super) passed: AtomicU64,
    parts: OnceLock<Vec<Part>>,
    /// Which of them is being copied, and the first of its offsets that is not done with.
    turn: AtomicUsize,
    next: AtomicU64,
}

/// Where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) partition: Option<u16>,
    pub(super) next: u64,
    /// Offsets that are still to be copied, in this partition and those behind it.
    pub(super) left: u64,
    /// Partitions whose turn has not come.
    pub(super) not_begun: Vec<u16>,
}

impl Place {
    /// Said behind a replay that is done.
    pub(super) fn after(&self) -> String {
        match self.partition {
            // Each has a next offset of its own.
            Some(_) => String::new(),
            None => format!("; the next offset is {}", self.next),
        }
    }

    /// Said behind one that is not: how to go on.
    pub(super) fn to_go_on(&self) -> String {
        let mut text = String::from("; ");
        if let Some(partition) = self.partition {
            let _ = write!(text, "--partition {partition} ");
        }
        let _ = write!(text, "--from {} goes on", self.next);
        if !self.not_begun.is_empty() {
            text += "; not begun:";
            self.not_begun.iter().for_each(|number| {
                let _ = write!(text, " --partition {number}");
            });
        }
        text
    }
}

impl Progress {
    pub(super) fn begin(&self, parts: Vec<Part>) {
        let _ = self.parts.set(parts);
        self.turn(0);
    }

    /// This one of the parts is copied now.
    pub(super) fn turn(&self, turn: usize) {
        let part = self.parts.get().and_then(|parts| parts.get(turn));
        self.turn.store(turn, Relaxed);
        self.next.store(part.map_or(0, |part| part.range.from), Relaxed);
    }

    /// Everything before is done with.
    pub(super) fn at(&self, next: u64) {
        self.next.store(next, Relaxed);
    }

    /// Where it stands, if it has begun.
    pub(super) fn place(&self) -> Option<Place> {
        let mut parts = self.parts.get()?.iter().skip(self.turn.load(Relaxed));
        let Part { partition, range } = parts.next()?;
        let next = self.next.load(Relaxed);
        let mut place = Place {
            partition: *partition,
            next,
            left: range.to.saturating_sub(next),
            not_begun: Vec::new(),
        };
        for Part { partition, range } in parts.filter(|part| !part.range.is_empty()) {
            place.left += range.to - range.from;
            place.not_begun.extend(*partition);
        }
        Some(place)
    }
}

pub(super) struct Screen {
    progress: Arc<Progress>,
    copied: u64,
}

impl Screen {
    pub(super) fn new(progress: Arc<Progress>) -> Self {
        Self { progress, copied: 0 }
    }

    /// Copied, messages a second, the next offset and how many are left.
    fn standing(&mut self, since: Duration) -> (u64, f64, u64, u64) {
        let copied = self.progress.copied.load(Relaxed);
        let rate = (copied - self.copied) as f64 / since.as_secs_f64().max(1e-9);
        self.copied = copied;
        let (next, left) = self.progress.place().map_or((0, 0), |place| (place.next, place.left));
        (copied, rate, next, left)
    }
}

impl Shown for Screen {
    fn line(&mut self, since: Duration) -> String {
        let (copied, rate, next, left) = self.standing(since);
        format!("{copied} messages copied, {rate:.0}/s, at offset {next}, {left} to go")
    }

    fn json(&mut self, since: Duration) -> String {
        let (copied, rate, next_offset, left) = self.standing(since);
        let passed_over = self.progress.passed.load(Relaxed);
        json!({
            "event": "progress",
            "copied": copied,
            "passed_over": passed_over,
            "per_s": rate.round(),
            "next_offset": next_offset,
            "left": left,
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_it_stands_says_how_to_go_on_and_which_partitions_are_not_begun() {
        let part = |partition, from, to| Part { partition, range: Range { from, to } };
        let progress = Progress::default();
        assert_eq!(progress.place(), None);
        progress.begin(vec![part(Some(0), 0, 10), part(Some(1), 5, 5), part(Some(2), 3, 7)]);
        progress.at(4);
        let place = progress.place().unwrap();
        assert_eq!((place.left, &*place.not_begun), (10, &[2][..]));
        assert_eq!(place.to_go_on(), "; --partition 0 --from 4 goes on; not begun: --partition 2");
        progress.turn(2);
        assert_eq!(progress.place().unwrap().to_go_on(), "; --partition 2 --from 3 goes on");

        let progress = Progress::default();
        progress.begin(vec![part(None, 2, 10)]);
        progress.at(10);
        let place = progress.place().unwrap();
        assert_eq!((place.left, place.after()), (0, "; the next offset is 10".to_owned()));
    }
}
