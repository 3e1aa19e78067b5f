//! The time as a shard has been told it, and when it ticks.

use crate::exchange::Now;
use crate::limits::{AWAY_MS, TICK_MS};

/// Times are in `Now::mono_ms`, unless they say otherwise.
#[derive(Debug, Default)]
pub(super) struct Clock {
    pub(super) now: Now,
    /// When the shard was first stepped.
    started_ms: Option<u64>,
    last_step_ms: Option<u64>,
    next_tick_ms: u64,
    ticks: u64,
}

impl Clock {
    /// A step begins. Whether the process was stopped for so long that others may have taken over.
    pub(super) fn begin_step(&mut self, now: Now) -> bool {
        let was_away = self.last_step_ms.is_some_and(|last| now.mono_ms > last + AWAY_MS);
        self.last_step_ms = Some(now.mono_ms);
        self.started_ms.get_or_insert(now.mono_ms);
        was_away
    }

    /// Whether a tick is due. The next one is then, too, some time later.
    pub(super) fn ticks_at(&mut self, now: Now) -> bool {
        let is_due = now.mono_ms >= self.next_tick_ms;
        if is_due {
            self.next_tick_ms = now.mono_ms + TICK_MS;
        }
        is_due
    }

    /// The next step ticks.
    pub(super) fn tick_now(&mut self, now: Now) {
        self.next_tick_ms = now.mono_ms;
    }

    pub(super) fn next_tick_ms(&self) -> u64 {
        self.next_tick_ms
    }

    /// A tick is done.
    pub(super) fn count_tick(&mut self) {
        self.ticks += 1;
    }

    /// Whether this tick is one of each `ticks`.
    pub(super) fn is_each(&self, ticks: u64) -> bool {
        self.ticks.is_multiple_of(ticks)
    }

    /// When the shard was first stepped, if it was.
    pub(super) fn started_ms(&self) -> Option<u64> {
        self.started_ms
    }
}
