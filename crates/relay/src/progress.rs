//! How far the log is done: what may be told to PostgreSQL, which forgets everything before it.
//!
//! The confirmed place is the end of the last transaction all of whose rows are settled (confirmed by the broker, or
//! stored among the failures), and all transactions before it. Nothing else moves it, but a keepalive while nothing
//! is open.

use std::collections::VecDeque;

use crate::lsn::Lsn;

/// Microseconds since 2000-01-01, as PostgreSQL tells commit times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitTime(pub i64);

/// PostgreSQL counts from 2000, systems from 1970.
const EPOCH_SECONDS: i64 = 946_684_800;

impl CommitTime {
    /// Of a time that is told in seconds since 1970.
    pub(crate) fn of_unix(seconds: u64) -> Self {
        Self((seconds as i64).saturating_sub(EPOCH_SECONDS).saturating_mul(1_000_000))
    }

    /// Seconds since 1970.
    pub(crate) fn unix_seconds(self) -> f64 {
        self.0 as f64 / 1e6 + EPOCH_SECONDS as f64
    }
}

/// How far the log is done, as it is written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Everything before it is done.
    pub confirmed: Lsn,
    /// When the last transaction that is done was committed.
    pub last_commit: Option<CommitTime>,
    /// What is done of the transaction behind that.
    pub partial: Option<Partial>,
}

/// A transaction that is done in part.
///
/// Named by places, not by a count of rows: its changes come in the order of the log each time, whatever else was
/// published or left out between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Where its commit is written, which names it.
    pub commit: Lsn,
    /// Its rows that were written before this place are done.
    pub below: Lsn,
}

/// Number of a transaction, in commit order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TransactionSeq(u64);

/// The transactions that are not done, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    confirmed: Lsn,
    last_commit: Option<CommitTime>,
    open: VecDeque<Transaction>,
    /// Number of the oldest in `open`.
    first: u64,
}

#[derive(Debug, Default)]
struct Transaction {
    commit: Lsn,
    /// When it was committed, as far as is known.
    at: Option<CommitTime>,
    unsettled: u64,
    /// None: more of its rows may come.
    end: Option<(Lsn, Option<CommitTime>)>,
}

impl Progress {
    /// Begins at a place that was confirmed before.
    pub(crate) fn new(reached: Reached) -> Self {
        let Reached { confirmed, last_commit, .. } = reached;
        Self { confirmed, last_commit, ..Self::default() }
    }

    /// The transaction whose commit is written at `commit` begins to arrive.
    pub(crate) fn begin(&mut self, commit: Lsn, at: Option<CommitTime>) {
        assert!(self.is_closed(), "transactions arrive one after another");
        self.open.push_back(Transaction { commit, at, ..Transaction::default() });
    }

    /// A row of the transaction that arrives.
    pub(crate) fn row(&mut self) -> TransactionSeq {
        let last = self.open.back_mut().expect("a row is part of a transaction");
        assert!(last.end.is_none(), "a row arrives before its commit");
        last.unsettled += 1;
        TransactionSeq(self.first + self.open.len() as u64 - 1)
    }

    /// The transaction has arrived as a whole; it ends before `end`.
    pub(crate) fn commit(&mut self, end: Lsn, at: Option<CommitTime>) {
        let last = self.open.back_mut().expect("a commit follows its begin");
        assert!(last.end.is_none(), "a transaction ends once");
        last.end = Some((end, at));
        // Empty ones behind one that waits are one: they cost no memory.
        if last.unsettled == 0
            && let Some(before) = self.open.len().checked_sub(2).map(|index| &mut self.open[index])
            && before.unsettled == 0
            && let Some((before_end, before_at)) = &mut before.end
        {
            (*before_end, *before_at) = (end.max(*before_end), at.or(*before_at));
            self.open.pop_back();
        }
        self.advance();
    }

    /// A row is done for good.
    pub(crate) fn settle(&mut self, of: TransactionSeq) {
        let index = of.0.checked_sub(self.first).expect("its transaction was not done") as usize;
        let transaction = &mut self.open[index];
        assert!(transaction.unsettled > 0, "each row is settled once");
        transaction.unsettled -= 1;
        self.advance();
    }

    /// The server has sent everything before `wal_end`.
    pub(crate) fn keepalive(&mut self, wal_end: Lsn) {
        if self.open.is_empty() {
            self.confirmed = self.confirmed.max(wal_end);
        }
    }

    /// Everything before it is done.
    pub(crate) fn confirmed(&self) -> Lsn {
        self.confirmed
    }

    /// When the last transaction that is done was committed.
    pub(crate) fn last_commit(&self) -> Option<CommitTime> {
        self.last_commit
    }

    /// The oldest transaction that is not done, and where its commit is written.
    pub(crate) fn oldest(&self) -> Option<(TransactionSeq, Lsn)> {
        self.open.front().map(|oldest| (TransactionSeq(self.first), oldest.commit))
    }

    /// When the oldest transaction with rows that are not done was committed.
    pub(crate) fn oldest_at(&self) -> Option<CommitTime> {
        self.open.front().filter(|oldest| oldest.unsettled > 0)?.at
    }

    /// Where the commit of the transaction that arrives is written.
    pub(crate) fn arriving(&self) -> Option<Lsn> {
        self.open.back().filter(|last| last.end.is_none()).map(|last| last.commit)
    }

    /// Whether the last transaction has arrived as a whole.
    pub(crate) fn is_closed(&self) -> bool {
        self.open.back().is_none_or(|last| last.end.is_some())
    }

    fn advance(&mut self) {
        while let Some(Transaction { unsettled, end: Some((end, at)), .. }) = self.open.front() {
            if *unsettled > 0 {
                return;
            }
            self.confirmed = self.confirmed.max(*end);
            self.last_commit = at.or(self.last_commit).max(self.last_commit);
            self.open.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(confirmed: u64) -> Progress {
        Progress::new(Reached { confirmed: Lsn(confirmed), ..Reached::default() })
    }

    fn transaction(progress: &mut Progress, rows: usize, end: u64) -> Vec<TransactionSeq> {
        progress.begin(Lsn(end - 1), Some(CommitTime(end as i64)));
        let rows = (0..rows).map(|_| progress.row()).collect();
        progress.commit(Lsn(end), Some(CommitTime(end as i64)));
        rows
    }

    #[test]
    fn a_transaction_counts_when_its_last_row_and_all_before_it_are_settled() {
        let mut progress = progress(5);
        let first = transaction(&mut progress, 2, 10);
        let second = transaction(&mut progress, 1, 20);
        progress.settle(second[0]);
        progress.settle(first[1]);
        assert_eq!(progress.confirmed(), Lsn(5));
        progress.settle(first[0]);
        assert_eq!((progress.confirmed(), progress.last_commit()), (Lsn(20), Some(CommitTime(20))));
    }

    #[test]
    fn a_transaction_does_not_count_before_its_commit_has_arrived() {
        let mut progress = progress(5);
        progress.begin(Lsn(9), None);
        let row = progress.row();
        progress.settle(row);
        progress.keepalive(Lsn(30));
        assert_eq!(progress.confirmed(), Lsn(5));
        progress.commit(Lsn(10), None);
        assert_eq!(progress.confirmed(), Lsn(10));
    }

    #[test]
    fn a_keepalive_counts_only_while_nothing_is_open() {
        let mut progress = progress(5);
        let rows = transaction(&mut progress, 1, 10);
        progress.keepalive(Lsn(30));
        assert_eq!(progress.confirmed(), Lsn(5));
        progress.settle(rows[0]);
        assert_eq!(progress.confirmed(), Lsn(10));
        progress.keepalive(Lsn(30));
        progress.keepalive(Lsn(20));
        assert_eq!(progress.confirmed(), Lsn(30));
    }

    #[test]
    fn a_million_empty_transactions_behind_one_that_waits_take_no_room() {
        let mut progress = progress(0);
        let rows = transaction(&mut progress, 1, 1);
        for end in 2..1_000_000 {
            transaction(&mut progress, 0, end);
        }
        assert!(progress.open.len() <= 2);
        let last = transaction(&mut progress, 1, 1_000_000);
        progress.settle(rows[0]);
        assert_eq!(progress.confirmed(), Lsn(999_999));
        progress.settle(last[0]);
        assert_eq!(progress.confirmed(), Lsn(1_000_000));
    }
}
