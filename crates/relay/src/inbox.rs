//! The core of an inbox: deliveries of a queue become rows of a table, once for each message-id, and are
//! acknowledged after the commit.
//!
//! There is no timer: rows are stored at once when the database is idle, and whatever comes while it is busy
//! is the next batch. Rows are stored in the order of delivery. What is lost with a connection to the broker
//! comes again; what is lost with one to the database is stored again, and is there once.

mod config;
mod json;
mod key;
mod metrics;
pub mod mysql;
mod row;
mod statements;
mod workers;

use std::collections::VecDeque;
use std::sync::Arc;

pub use config::{Config, OnRefused};
pub use key::Key;
pub use metrics::{Metrics, Step};
pub use row::{Route, Row};
pub use statements::Statements;
pub use workers::{Outputs, Workers};

use crate::limits::BATCH_BYTES;
use crate::mapping::TableName;
use crate::mysql::is_mysql;

/// The SQL that makes the table in the kind of database that `url` names; PostgreSQL where it names none.
pub fn install_sql(url: &str, table: &TableName) -> String {
    match is_mysql(url) {
        true => mysql::install(table, mysql::Server::of_url(url)) + ";",
        false => Statements::new(table).install,
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// What came from the broker, in its order.
    Delivered(Vec<Row>),
    /// The connection to the broker is gone: it delivers again what was not acknowledged.
    BrokerLost,
    /// The table is there and can be written to.
    DatabaseReady,
    /// The batch is committed; so many of its rows were not there before.
    Stored { new: u64 },
    /// The database does not take what is in the batch, and says why; nothing of it is stored.
    Refused { why: String },
    /// The connection to the database is gone; what became of the batch is unknown.
    DatabaseLost,
    /// Store what is here, and no more.
    Stop,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Store these rows in one transaction.
    Store(Arc<Vec<Row>>),
    /// Acknowledge the oldest so many of the deliveries that the broker still waits for.
    Settle(usize),
    /// Reject the oldest of the deliveries that the broker still waits for, without requeue: the table refuses it, and
    /// says why.
    Reject {
        message_id: String,
        why: String,
    },
    /// More is here than the memory may hold: leave the broker, which forgets nothing, and take less at a time
    /// on the next connection.
    TakeLess,
    /// This row cannot be stored, not even without what looked wrong with it. It is tried again.
    Stuck {
        message_id: String,
        why: String,
    },
    Stopped,
}

/// How many messages went which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub stored: u64,
    /// Delivered again, and stored already.
    pub duplicates: u64,
    /// Without a message-id: kept, but not recognised when they come again.
    pub without_id: u64,
    /// Kept with an error: not all of it fits into the table.
    pub flawed: u64,
    /// Refused by the table, and rejected.
    pub rejected: u64,
    pub batches: u64,
}

impl Counts {
    fn plus(self, other: Self) -> Self {
        Self {
            stored: self.stored + other.stored,
            duplicates: self.duplicates + other.duplicates,
            without_id: self.without_id + other.without_id,
            flawed: self.flawed + other.flawed,
            rejected: self.rejected + other.rejected,
            batches: self.batches + other.batches,
        }
    }
}

/// Rows on their way from one queue to one table, on one connection.
#[derive(Debug)]
pub struct Inbox {
    batch_rows: usize,
    on_refused: OnRefused,
    /// Rows of the next batch at most: halved while the database refuses, to find the row that it is about.
    limit: usize,
    /// Delivered and in no batch yet.
    waiting: VecDeque<Row>,
    /// What is being stored, or was when the database was lost.
    batch: Option<Arc<Vec<Row>>>,
    is_storing: bool,
    /// How many of the oldest rows were delivered on a connection that is gone: nobody waits for their acks.
    orphans: usize,
    is_database_ready: bool,
    is_stopping: bool,
    counts: Counts,
}

impl Inbox {
    /// An inbox that has nothing and waits for its database.
    pub fn new(batch_rows: usize, on_refused: OnRefused) -> Self {
        assert!(batch_rows > 0, "a batch has at least one row");
        Self {
            batch_rows,
            on_refused,
            limit: batch_rows,
            waiting: VecDeque::new(),
            batch: None,
            is_storing: false,
            orphans: 0,
            is_database_ready: false,
            is_stopping: false,
            counts: Counts::default(),
        }
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// How many rows are here and not stored.
    pub fn held(&self) -> usize {
        self.waiting.len() + self.batch.as_ref().map_or(0, |batch| batch.len())
    }

    /// How many rows and bytes are here of what this connection has delivered.
    fn held_of_connection(&self) -> (usize, usize) {
        let batch = self.batch.iter().flat_map(|batch| batch.iter());
        let rows = batch.chain(&self.waiting).skip(self.orphans);
        (self.held() - self.orphans, rows.map(Row::bytes).sum())
    }

    /// It was told to stop, and has nothing.
    fn is_done(&self) -> bool {
        self.is_stopping && self.held() == 0
    }

    /// Takes in what happened and appends what to do.
    pub fn step(&mut self, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Delivered(rows) => self.waiting.extend(rows),
            Input::BrokerLost => {
                self.waiting.clear();
                self.orphans = self.held();
            }
            Input::DatabaseReady => self.is_database_ready = true,
            Input::Stored { new } => self.stored(new, out),
            Input::Refused { why } => self.refused(why, out),
            Input::DatabaseLost => (self.is_database_ready, self.is_storing) = (false, false),
            Input::Stop => self.is_stopping = true,
        }
        self.go_on(out);
    }

    fn stored(&mut self, new: u64, out: &mut Vec<Output>) {
        let batch = self.take_batch();
        for row in batch.iter() {
            self.counts.without_id += u64::from(row.is_without_id);
            self.counts.flawed += u64::from(row.error.is_some());
        }
        self.counts.batches += 1;
        self.counts.stored += new;
        self.counts.duplicates += (batch.len() as u64).saturating_sub(new);
        self.limit = (self.limit * 2).min(self.batch_rows);
        let orphans = self.orphans.min(batch.len());
        self.orphans -= orphans;
        if batch.len() > orphans {
            out.push(Output::Settle(batch.len() - orphans));
        }
    }

    fn refused(&mut self, why: String, out: &mut Vec<Output>) {
        let batch = self.take_batch();
        self.limit = (batch.len() / 2).max(1);
        if let [row] = batch.as_slice() {
            if row.is_plain() && self.on_refused == OnRefused::Reject {
                if self.orphans > 0 {
                    // It comes again, on another connection, and is refused again.
                    self.orphans -= 1;
                } else {
                    self.counts.rejected += 1;
                    out.push(Output::Reject { message_id: row.message_id.clone(), why });
                }
            } else if row.is_plain() {
                // Something of the table itself is in the way. Nothing may overtake it.
                out.push(Output::Stuck { message_id: row.message_id.clone(), why });
                self.batch = Some(batch);
                self.is_database_ready = false;
            } else {
                self.waiting.push_front(row.plain(why));
            }
            return;
        }
        for row in batch.iter().rev() {
            self.waiting.push_front(row.clone());
        }
    }

    fn take_batch(&mut self) -> Arc<Vec<Row>> {
        assert!(self.is_storing, "the database answered what it was not asked");
        self.is_storing = false;
        self.batch.take().expect("a batch is being stored")
    }

    fn go_on(&mut self, out: &mut Vec<Output>) {
        if self.is_storing {
            return;
        }
        if self.held() == 0 {
            if self.is_stopping {
                out.push(Output::Stopped);
            }
            return;
        }
        if self.is_database_ready {
            let batch = self.batch.take().unwrap_or_else(|| Arc::new(self.next_batch()));
            self.batch = Some(Arc::clone(&batch));
            self.is_storing = true;
            out.push(Output::Store(batch));
        }
    }

    fn next_batch(&mut self) -> Vec<Row> {
        let mut bytes = 0;
        let fits = |row: &&Row| {
            bytes += row.bytes();
            bytes <= BATCH_BYTES
        };
        let count = self.waiting.iter().take(self.limit).take_while(fits).count();
        // One that is larger than a batch may be goes alone.
        self.waiting.drain(..count.max(1)).collect()
    }
}

#[cfg(test)]
mod tests;
