//! How far a replay is, and how that is shown: a line on a terminal, lines of JSON.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde_json::json;
use service::io::screen::Shown;

use super::place::Range;

/// Where it stands before it is known.
const UNKNOWN: u64 = u64::MAX;

/// The one who copies writes, everybody may read.
#[derive(Debug)]
pub(super) struct Progress {
    /// Confirmed by the target.
    pub(super) copied: AtomicU64,
    /// The filter did not match.
    pub(super) passed: AtomicU64,
    next: AtomicU64,
    end: AtomicU64,
}

impl Default for Progress {
    fn default() -> Self {
        let [copied, passed, end] = Default::default();
        Self { copied, passed, next: AtomicU64::new(UNKNOWN), end }
    }
}

impl Progress {
    pub(super) fn begin(&self, range: &Range) {
        self.next.store(range.from, Relaxed);
        self.end.store(range.to, Relaxed);
    }

    /// Everything before is done with.
    pub(super) fn at(&self, next: u64) {
        self.next.store(next, Relaxed);
    }

    /// The first offset that is not done with, if it is known.
    pub(super) fn next(&self) -> Option<u64> {
        Some(self.next.load(Relaxed)).filter(|next| *next != UNKNOWN)
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
        let next = self.progress.next().unwrap_or_default();
        (copied, rate, next, self.progress.end.load(Relaxed).saturating_sub(next))
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
