//! What the workers count and when they are told to start and stop.
//!
//! Each worker owns its counters and adds to them once a batch; the main thread reads them each
//! second. Nothing is shared between workers, so counting costs the measurement nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::Thread;

use hdrhistogram::Histogram;

/// Longest latency that is told apart, in microseconds: one hour.
const LATENCY_MAX_US: u64 = 3_600_000_000;

/// `CLOCK_MONOTONIC`, in nanoseconds: the same for every process of a machine until it restarts.
pub(super) fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Where a run is. Only grows.
///
/// ```text
///   Starting ──> Warming ──> Measuring ──> Draining ──> Ending
/// ```
///
/// Without a warm-up there is no `Warming`. A run that fails goes from any of them to `Ending`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Workers connect.
    Starting,
    /// Load runs and is not measured yet.
    Warming,
    /// Load runs and latencies are recorded.
    Measuring,
    /// Publishers send nothing more and wait for their confirms; consumers go on.
    Draining,
    /// Everybody closes.
    Ending,
}

/// The phase, seen by all workers.
#[derive(Default)]
pub(super) struct Conductor {
    phase: AtomicU8,
    failed: AtomicBool,
}

impl Conductor {
    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Warming,
            2 => Phase::Measuring,
            3 => Phase::Draining,
            _ => Phase::Ending,
        }
    }

    /// Goes on to `phase` and wakes the workers that wait for it.
    pub(super) fn enter<'a>(&self, phase: Phase, workers: impl Iterator<Item = &'a Thread>) {
        self.phase.store(phase as u8, Ordering::Relaxed);
        workers.for_each(Thread::unpark);
    }

    /// A worker cannot go on: the run ends.
    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// One worker's counters, since it started.
#[derive(Default)]
// On a cache line of its own: two workers' counters never share one.
#[repr(align(128))]
pub(super) struct Counters {
    pub(super) ready: AtomicBool,
    pub(super) published: AtomicU64,
    pub(super) confirmed: AtomicU64,
    pub(super) nacked: AtomicU64,
    pub(super) returned: AtomicU64,
    pub(super) consumed: AtomicU64,
    pub(super) redelivered: AtomicU64,
    /// Bodies that are not as long as was published.
    pub(super) wrong_size: AtomicU64,
    /// Messages that came before they were due.
    pub(super) early: AtomicU64,
    /// When the last confirm or delivery came, in nanoseconds of `now_ns`.
    pub(super) last_ns: AtomicU64,
    /// When the first delivery came.
    pub(super) first_ns: AtomicU64,
    /// The server said `connection.blocked` and has not taken it back.
    pub(super) is_blocked: AtomicBool,
}

/// All counters of a run at one instant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) published: u64,
    pub(super) confirmed: u64,
    pub(super) nacked: u64,
    pub(super) returned: u64,
    pub(super) consumed: u64,
    pub(super) redelivered: u64,
    pub(super) wrong_size: u64,
    pub(super) early: u64,
    pub(super) blocked: u64,
}

impl Totals {
    pub(super) fn of<'a>(counters: impl Iterator<Item = &'a Arc<Counters>>) -> Self {
        let mut totals = Totals::default();
        for worker in counters {
            let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            totals.published += read(&worker.published);
            totals.confirmed += read(&worker.confirmed);
            totals.nacked += read(&worker.nacked);
            totals.returned += read(&worker.returned);
            totals.consumed += read(&worker.consumed);
            totals.redelivered += read(&worker.redelivered);
            totals.wrong_size += read(&worker.wrong_size);
            totals.early += read(&worker.early);
            totals.blocked += u64::from(worker.is_blocked.load(Ordering::Relaxed));
        }
        totals
    }

    /// What was counted since `before`.
    pub(super) fn since(self, before: Totals) -> Totals {
        Totals {
            published: self.published - before.published,
            confirmed: self.confirmed - before.confirmed,
            nacked: self.nacked - before.nacked,
            returned: self.returned - before.returned,
            consumed: self.consumed - before.consumed,
            redelivered: self.redelivered - before.redelivered,
            wrong_size: self.wrong_size - before.wrong_size,
            early: self.early - before.early,
            blocked: self.blocked,
        }
    }
}

/// Latencies in microseconds, three significant digits.
pub(super) struct Latencies {
    histogram: Histogram<u64>,
    /// A run of equal latencies that is not in the histogram yet.
    run: (u64, u64),
}

impl Latencies {
    pub(super) fn new() -> Self {
        let histogram =
            Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).expect("the bounds are in order");
        Self { histogram, run: (0, 0) }
    }

    /// Records one message sent at `sent_ns` and answered at `now_ns`. Messages of one batch come
    /// with equal times, so a run of them touches the histogram once.
    #[inline]
    pub(super) fn record(&mut self, sent_ns: u64, now_ns: u64) {
        let nanos = now_ns.saturating_sub(sent_ns);
        if nanos != self.run.0 {
            self.end_run();
            self.run.0 = nanos;
        }
        self.run.1 += 1;
    }

    fn end_run(&mut self) {
        let (nanos, count) = std::mem::take(&mut self.run);
        if count > 0 {
            self.histogram.saturating_record_n(nanos.div_ceil(1000).max(1), count);
        }
    }

    pub(super) fn into_histogram(mut self) -> Histogram<u64> {
        self.end_run();
        self.histogram
    }
}

/// All histograms as one.
pub(super) fn merged(parts: impl Iterator<Item = Histogram<u64>>) -> Histogram<u64> {
    let mut sum = Latencies::new().into_histogram();
    for part in parts {
        sum.add(part).expect("all have the same bounds");
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_rounded_up_to_microseconds_and_all_counted() {
        let mut latencies = Latencies::new();
        (0..3).for_each(|_| latencies.record(1_000, 51_001));
        latencies.record(2_000, 12_000);
        latencies.record(9, 3);
        let histogram = latencies.into_histogram();
        assert_eq!(histogram.len(), 5);
        assert_eq!((histogram.min(), histogram.max()), (1, 51));
        assert_eq!(histogram.count_at(10), 1);
    }

    #[test]
    fn phases_only_go_forward_in_the_order_of_their_names() {
        let conductor = Conductor::default();
        assert_eq!(conductor.phase(), Phase::Starting);
        for phase in [Phase::Warming, Phase::Measuring, Phase::Draining, Phase::Ending] {
            let before = conductor.phase();
            conductor.enter(phase, std::iter::empty());
            assert!(before < conductor.phase());
            assert_eq!(conductor.phase(), phase);
        }
    }
}
