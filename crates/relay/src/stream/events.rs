//! What a stream is told, and what it says.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

use super::retries::Due;
use crate::attempts::Reason;
use crate::error::Error;
use crate::lsn::Lsn;
use crate::progress::{CommitTime, Reached};

/// What happened to the log, to the failures and to time. What happens to the broker is told to the publisher.
#[derive(Debug)]
pub enum Input {
    /// The transaction whose commit is written at `commit` arrives.
    Begin { commit: Lsn, at: Option<CommitTime> },
    /// A change, as pgoutput has it.
    Change { lsn: Lsn, data: Bytes },
    /// A row of the transaction that arrives, in the form of [`crate::pgoutput::encode_row`].
    Row { lsn: Lsn, data: Bytes },
    /// A message of `pg_logical_emit_message`. Outside a transaction it stands alone.
    Message { lsn: Lsn, content: Bytes },
    /// A row that was read from the table, in the form of [`crate::pgoutput::encode_row`].
    Scanned(Bytes),
    /// The transaction has arrived.
    Commit { end: Lsn, at: Option<CommitTime> },
    /// Everything before has been sent.
    KeepAlive { wal_end: Lsn },
    /// The oldest so many of [`Output::Store`] are in the database.
    Stored(usize),
    /// The answer to [`Output::FetchDue`], and whether there may be more.
    Due { rows: Vec<Due>, is_full: bool },
    /// The answer to [`Output::Sweep`]: which keys have rows among the failures.
    Swept(BTreeSet<String>),
    /// These have none any more.
    Free(Vec<String>),
    /// Read and publish no more.
    Stop,
    /// Time has passed, or the publisher was told something.
    Time,
}

/// What to do. Everything for the database is done in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Put a row among the failures, then say [`Input::Stored`].
    Store(Failure),
    /// A row among the failures has failed again: write down its attempts and its next one.
    Retry(Failure),
    /// A row among the failures is confirmed: remove it.
    Remove {
        row_id: String,
        key: Option<String>,
    },
    FetchDue,
    Sweep,
    /// It cannot go on.
    GiveUp(Error),
}

/// A row that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub row_id: String,
    pub key: Option<String>,
    /// Order among the failures; none if it is there already.
    pub position: Option<i64>,
    pub attempts: u32,
    /// None: it waits behind another of its key.
    pub reason: Option<Reason>,
    pub error: String,
    pub next: NextAttempt,
    /// The row as a JSON object; empty if it is there already.
    pub stored_row: String,
}

/// When a failed row is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextAttempt {
    After(Duration),
    /// Once those before it are done.
    Behind,
    /// Never: it is dead.
    Never,
}

/// Where a stream begins.
#[derive(Clone, Debug, Default)]
pub struct Start {
    pub reached: Reached,
    /// Keys that have rows among the failures.
    pub parked: Vec<String>,
    /// Above every position that is in use there.
    pub position: i64,
    pub seed: u64,
}

/// What was confirmed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub rows: u64,
    /// Of their bodies.
    pub bytes: u64,
    /// Rows that were stored behind one of their key that failed, and the key of the last of them.
    pub overtaken: u64,
    pub overtaken_key: Option<String>,
}
