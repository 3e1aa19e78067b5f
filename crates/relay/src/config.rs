//! What a relay is told. `settings` makes it and judges it.

use std::time::Duration;

use client::Url;
use service::Attempts;

use crate::mapping::Mapping;

/// Where rows come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `SELECT … FOR UPDATE SKIP LOCKED`.
    Poll,
    /// Logical replication (pgoutput) of the table's inserts, in commit order.
    Wal { slot: String, publication: String },
    /// Messages of `pg_logical_emit_message(true, prefix, json)`: no table.
    Messages { slot: String, publication: String, prefix: String },
}

/// What happens to a row whose message is confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSuccess {
    /// The processed column gets the time.
    Update,
    /// The row is deleted.
    Delete,
    /// The row is moved to `TABLE_archive`.
    Archive,
}

/// Which rows must not overtake which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    None,
    /// Rows of the same key.
    Key,
    /// All rows.
    Strict,
}

/// How rows of one key are published, under an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipeline {
    /// One after the other: each after the confirm of the one before.
    Wait,
    /// Several are in flight. Rows that were stored behind one that failed are published again behind it.
    Repeat,
    /// Several are in flight. Rows that were stored behind one that failed stay there, and are told.
    Report,
}

/// What a dead row means for later rows of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDead {
    /// They wait until it is replayed or purged.
    Block,
    /// They go on.
    Skip,
}

/// A relay's settings, or those of one of its sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `postgres://…`, as libpq reads it.
    pub database: String,
    pub broker: Url,
    pub mapping: Mapping,
    pub source: Source,
    /// Its name among the sources of a relay. `None`: it is the only one, without a name.
    pub source_name: Option<String>,
    /// Nobody has named the slot: it gets its name when the database is known.
    pub has_default_slot: bool,
    pub on_success: OnSuccess,
    pub order: Order,
    pub on_dead: OnDead,
    /// Connections that drain at the same time.
    pub workers: u32,
    /// Lanes that keys are spread over, under [`Order::Key`].
    pub lanes: u32,
    pub pipeline: Pipeline,
    /// Messages in flight of one key under [`Order::Key`], of all under [`Order::Strict`], where they are pipelined.
    pub order_window: u32,
    /// Rows of one batch.
    pub batch: u32,
    /// Unconfirmed messages of one worker.
    pub window: u32,
    /// How long a batch may hold its transaction.
    pub batch_deadline: Duration,
    /// Shortest and longest wait while there is nothing to do.
    pub poll_min: Duration,
    pub poll_max: Duration,
    /// LISTEN on this channel and look at once when it speaks.
    pub listen: Option<String>,
    pub attempts: Attempts,
    pub body_bytes_max: usize,
    /// No confirms: a crash of the broker loses messages that were marked as sent.
    pub no_confirms: bool,
}

impl Config {
    /// Lanes there are: one under a strict order.
    pub fn lane_count(&self) -> u32 {
        match self.order {
            Order::Strict => 1,
            Order::Key | Order::None => self.lanes,
        }
    }

    /// Columns whose values tell rows apart or put them in order. Polling compares them as text.
    pub fn compared(&self) -> impl Iterator<Item = &str> {
        let Mapping { id, key, order_by, .. } = &self.mapping;
        let key = key.as_ref().filter(|_| self.order == Order::Key);
        [id].into_iter().chain(key).chain(order_by).map(String::as_str)
    }
}
