//! The bytes of one queue that are in memory: runs by sequence number, none touching another's
//! messages, in the order in which they will go out.
//!
//! A slice keeps the whole buffer that it was cut from. So that what is accounted and what is kept do
//! not drift apart, a run that is a small part of its buffer gets a buffer of its own.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use machine::QueueId;

use super::{Run, split};
use crate::limits::RUN_BYTES;

/// A run smaller than its buffer by more than this factor is copied out of it.
const PINNED_FACTOR: usize = 4;
/// The same for a run that leaves at once: its buffer is kept only as long as the session needs.
const PINNED_FACTOR_LEAVING: usize = 16;

/// Bytes of one queue.
#[derive(Debug, Default)]
pub(super) struct Window {
    runs: VecDeque<Kept>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    run: Run,
    /// Bytes of the buffer that the run's bytes are a slice of.
    pinned: usize,
}

impl Kept {
    fn new(mut run: Run, mut pinned: usize) -> Self {
        if run.bytes.len() * PINNED_FACTOR < pinned {
            run.bytes = Bytes::copy_from_slice(&run.bytes);
            pinned = run.bytes.len();
        }
        Self { run, pinned }
    }

    fn weight(&self) -> usize {
        self.run.bytes.len() + RUN_BYTES
    }
}

impl Window {
    /// What all runs weigh.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The span and bytes of each run, in order.
    pub(super) fn runs(&self) -> impl Iterator<Item = (Range<u64>, usize)> + '_ {
        self.runs.iter().map(|kept| (kept.run.span(), kept.run.bytes.len()))
    }

    /// Whether the bytes of message `seq` are here.
    pub(super) fn holds(&self, seq: u64) -> bool {
        self.runs.get(self.at(seq)).is_some_and(|kept| kept.run.first_seq <= seq)
    }

    /// What of `span` is not here.
    pub(super) fn missing(&self, span: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut from = span.start;
        for kept in self.runs.range(self.at(from)..) {
            let here = kept.run.span();
            if here.start >= span.end {
                break;
            }
            if from < here.start {
                missing.push(from..here.start);
            }
            from = here.end;
        }
        if from < span.end {
            missing.push(from..span.end);
        }
        missing
    }

    /// Puts a run behind all others. `pinned`: the bytes of the buffer it is a slice of.
    pub(super) fn push(&mut self, run: Run, pinned: usize) {
        let end = self.runs.back().map_or(0, |kept| kept.run.end());
        assert!(end <= run.first_seq, "the newest messages come behind all others");
        self.insert(self.runs.len(), run, pinned);
    }

    /// Puts in what is not here yet of a run, wherever it belongs. Says whether that was anything.
    pub(super) fn fill(&mut self, queue: QueueId, run: Run) -> bool {
        let pinned = run.bytes.len();
        let mut rest = run;
        let mut is_changed = false;
        loop {
            let at = self.at(rest.first_seq);
            let Some(span) = self.runs.get(at).map(|kept| kept.run.span()) else {
                self.insert(at, rest, pinned);
                return true;
            };
            if span.start <= rest.first_seq {
                if span.end >= rest.end() {
                    return is_changed;
                }
                rest = split(queue, &rest, (span.end - rest.first_seq) as u32).1;
            } else if span.start < rest.end() {
                let (head, tail) = split(queue, &rest, (span.start - rest.first_seq) as u32);
                self.insert(at, head, pinned);
                is_changed = true;
                rest = tail;
            } else {
                self.insert(at, rest, pinned);
                return true;
            }
        }
    }

    /// Takes the messages from `first` on, at most `count`, as far as they lie together.
    pub(super) fn take(&mut self, queue: QueueId, first: u64, count: u32) -> Option<Run> {
        let mut at = self.at(first);
        self.runs.get(at).filter(|kept| kept.run.first_seq <= first)?;
        let kept = self.runs.remove(at)?;
        self.bytes -= kept.weight();
        let Kept { mut run, pinned } = kept;
        if run.first_seq < first {
            let (before, rest) = split(queue, &run, (first - run.first_seq) as u32);
            self.insert(at, before, pinned);
            at += 1;
            run = rest;
        }
        if run.count > count {
            let (taken, rest) = split(queue, &run, count);
            self.insert(at, rest, pinned);
            run = taken;
        }
        Some(leaving(run, pinned))
    }

    /// The same, and they stay.
    pub(super) fn copy(&self, queue: QueueId, first: u64, count: u32) -> Option<Run> {
        let kept = self.runs.get(self.at(first)).filter(|kept| kept.run.first_seq <= first)?;
        let mut run = kept.run.clone();
        if run.first_seq < first {
            run = split(queue, &run, (first - run.first_seq) as u32).1;
        }
        if run.count > count {
            run = split(queue, &run, count).0;
        }
        Some(leaving(run, kept.pinned))
    }

    /// The span of the first run.
    pub(super) fn front(&self) -> Option<Range<u64>> {
        self.runs.front().map(|kept| kept.run.span())
    }

    /// Forgets runs from the front while `is_done` says so of their spans.
    pub(super) fn forget_front(&mut self, is_done: impl Fn(Range<u64>) -> bool) {
        while self.runs.front().is_some_and(|kept| is_done(kept.run.span())) {
            self.pop_front();
        }
    }

    /// Forgets the first run. False: there is none.
    pub(super) fn forget_first(&mut self) -> bool {
        self.pop_front().is_some()
    }

    /// Forgets the run that would go out last. False: there is none.
    pub(super) fn forget_back(&mut self) -> bool {
        let Some(kept) = self.runs.pop_back() else { return false };
        self.bytes -= kept.weight();
        true
    }

    fn insert(&mut self, at: usize, run: Run, pinned: usize) {
        let kept = Kept::new(run, pinned);
        self.bytes += kept.weight();
        self.runs.insert(at, kept);
    }

    fn pop_front(&mut self) -> Option<Kept> {
        let kept = self.runs.pop_front()?;
        self.bytes -= kept.weight();
        Some(kept)
    }

    /// Where the run is that holds `seq`, or else the first one above it.
    fn at(&self, seq: u64) -> usize {
        if self.runs.front().is_some_and(|kept| seq < kept.run.end()) {
            return 0;
        }
        self.runs.partition_point(|kept| kept.run.end() <= seq)
    }

    /// What all runs weigh, counted now. For tests; no buffer may be much larger than what is counted.
    pub(super) fn counted_anew(&self) -> usize {
        let kept = self.runs.iter();
        kept.inspect(|kept| {
            let bytes = kept.run.bytes.len();
            assert!(kept.pinned <= bytes * PINNED_FACTOR, "{bytes} bytes keep {}", kept.pinned);
        })
        .map(Kept::weight)
        .sum()
    }
}

/// A run that leaves does not take along a buffer that is much larger.
fn leaving(mut run: Run, pinned: usize) -> Run {
    if run.bytes.len() * PINNED_FACTOR_LEAVING < pinned {
        run.bytes = Bytes::copy_from_slice(&run.bytes);
    }
    run
}
