//! Rows that failed before and are due: fetched from the failures, published again, and told to the database.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

/// A row among the failures that may be tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    pub row_id: String,
    /// Rows of one key come together, in their order.
    pub key: Option<String>,
    /// Attempts it has behind it.
    pub attempts: u32,
    /// How long ago it failed first.
    pub age: Duration,
    /// The row as a JSON object.
    pub stored_row: String,
}

/// Number of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RetrySeq(u64);

/// A row that is tried again.
#[derive(Debug)]
pub(super) struct Retry {
    pub(super) row_id: String,
    pub(super) key: Option<String>,
    pub(super) attempts: u32,
    pub(super) age: Duration,
    pub(super) row: Bytes,
}

/// What was fetched and is not done.
#[derive(Debug, Default)]
pub(super) struct Retries {
    all: BTreeMap<RetrySeq, Retry>,
    next: u64,
    /// Rows of a key behind the one that is tried.
    runs: BTreeMap<String, VecDeque<RetrySeq>>,
}

impl Retries {
    /// Nothing is left of what was fetched.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds a row; gives its number if it may be tried now, and is not behind another of its key.
    pub(super) fn add(&mut self, retry: Retry) -> Option<RetrySeq> {
        let seq = RetrySeq(self.next);
        self.next += 1;
        let key = retry.key.clone();
        self.all.insert(seq, retry);
        let Some(key) = key else { return Some(seq) };
        match self.runs.get_mut(&key) {
            Some(run) => {
                run.push_back(seq);
                None
            }
            None => {
                self.runs.insert(key, VecDeque::new());
                Some(seq)
            }
        }
    }

    /// The row of a retry that is not done.
    pub(super) fn row(&self, seq: RetrySeq) -> Option<&Bytes> {
        self.all.get(&seq).map(|retry| &retry.row)
    }

    /// What is known of a retry that is not done.
    pub(super) fn get(&self, seq: RetrySeq) -> Option<&Retry> {
        self.all.get(&seq)
    }

    /// It is confirmed, or failed and blocks nobody: it, and the next of its key.
    pub(super) fn done(&mut self, seq: RetrySeq) -> Option<(Retry, Option<RetrySeq>)> {
        let retry = self.all.remove(&seq)?;
        let next = retry.key.as_ref().and_then(|key| {
            let next = self.runs.get_mut(key)?.pop_front();
            if next.is_none() {
                self.runs.remove(key);
            }
            next
        });
        Some((retry, next))
    }

    /// It failed: the rest of its key stays where it is, untried.
    pub(super) fn failed(&mut self, seq: RetrySeq) -> Option<Retry> {
        let retry = self.all.remove(&seq)?;
        if let Some(run) = retry.key.as_ref().and_then(|key| self.runs.remove(key)) {
            for behind in run {
                self.all.remove(&behind);
            }
        }
        Some(retry)
    }
}
