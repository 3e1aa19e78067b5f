//! How the shards' groups stand, for whoever asks. Shards look at one number per step.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::mailbox::Mailbox;
use crate::exchange::Input;
use crate::shard::{Report, Shard};

/// The latest report of each shard, and how many were asked for.
#[derive(Debug)]
pub(crate) struct Reports {
    asked: AtomicU64,
    latest: Mutex<Vec<(u64, Report)>>,
    changed: Condvar,
}

impl Reports {
    pub(crate) fn new(shards: usize) -> Self {
        let latest = Mutex::new(vec![(0, Report::default()); shards]);
        Self { asked: AtomicU64::new(0), latest, changed: Condvar::new() }
    }

    /// Called by a shard's thread after a step: reports if somebody has asked since `last`.
    pub(crate) fn answer(&self, shard: usize, last: &mut u64, state: &Shard) {
        let asked = self.asked.load(Ordering::Relaxed);
        if asked == *last {
            return;
        }
        *last = asked;
        let report = state.report();
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest[shard] = (asked, report);
        drop(latest);
        self.changed.notify_all();
    }

    /// Asks all shards. `None`: one of them took longer than `timeout`. Blocks.
    pub(crate) fn ask(
        &self,
        shards: &[std::sync::Arc<Mailbox<Input>>],
        timeout: Duration,
    ) -> Option<Report> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        for shard in shards {
            shard.push(Input::TimePassed);
        }
        let deadline = Instant::now() + timeout;
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        while latest.iter().any(|(answered, _)| *answered < number) {
            let left = deadline.checked_duration_since(Instant::now())?;
            let waited = self.changed.wait_timeout(latest, left);
            latest = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let mut all = Report::default();
        for (_, report) in latest.iter() {
            all.up.clone_from(&report.up);
            all.groups.extend(report.groups.iter().cloned());
            all.elsewhere.extend(report.elsewhere.iter().cloned());
        }
        all.groups.sort_by_key(|report| report.group);
        all.elsewhere.sort_by_key(|report| report.group);
        Some(all)
    }
}
