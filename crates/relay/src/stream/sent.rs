//! Which unconfirmed message stands for what.

use std::collections::VecDeque;
use std::time::Instant;

use client::{PublishSeq, Run};

use super::Job;

/// Messages without a verdict, in the order they were published.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// None: it has its verdict, one before it has not.
    jobs: VecDeque<Option<Sending>>,
    /// Number of the first.
    first: u64,
    count: usize,
    bytes: usize,
}

/// A message without a verdict.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    pub(super) job: Job,
    pub(super) bytes: usize,
    pub(super) at: Instant,
}

impl Sent {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of their rows.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the oldest was published.
    pub(super) fn oldest_at(&self) -> Option<Instant> {
        self.jobs.iter().flatten().next().map(|sending| sending.at)
    }

    /// A message was published; numbers follow each other on a connection.
    pub(super) fn push(&mut self, seq: PublishSeq, sending: Sending) {
        if self.jobs.is_empty() {
            self.first = seq.0;
        }
        assert_eq!(self.first + self.jobs.len() as u64, seq.0, "messages are numbered in order");
        self.bytes += sending.bytes;
        self.count += 1;
        self.jobs.push_back(Some(sending));
    }

    /// What stands for a message that has no verdict yet.
    pub(super) fn job(&self, seq: PublishSeq) -> Option<Job> {
        let index = seq.0.checked_sub(self.first)?;
        self.jobs.get(index as usize)?.as_ref().map(|sending| sending.job)
    }

    /// Takes those of a run that have no verdict yet.
    pub(super) fn take(&mut self, run: Run, out: &mut Vec<Job>) {
        let end = self.first + self.jobs.len() as u64;
        for seq in run.first.0.max(self.first)..(run.last.0 + 1).min(end) {
            let index = (seq - self.first) as usize;
            let Some(sending) = self.jobs[index].take() else { continue };
            self.count -= 1;
            self.bytes -= sending.bytes;
            out.push(sending.job);
        }
        while let Some(None) = self.jobs.front() {
            self.jobs.pop_front();
            self.first += 1;
        }
    }

    /// The connection is gone: all that had no verdict, in order.
    pub(super) fn take_all(&mut self) -> Vec<Job> {
        self.take_all_sent().into_iter().map(|sending| sending.job).collect()
    }

    /// The same, with when each was published.
    pub(super) fn take_all_sent(&mut self) -> Vec<Sending> {
        (self.count, self.bytes) = (0, 0);
        self.jobs.drain(..).flatten().collect()
    }

    /// The only one without a verdict, if there is exactly one.
    pub(super) fn sole(&self) -> Option<Job> {
        let mut jobs = self.jobs.iter().flatten();
        let first = jobs.next()?;
        jobs.next().is_none().then_some(first.job)
    }
}
