//! What a relay is told. Judged once, at the start; all problems are told together.

use std::time::Duration;

use client::Url;
use service::Attempts;

use crate::attempts::default_attempts;
use crate::limits::{BATCH_DEADLINE_MAX, BATCH_ROWS_MAX, LANES_MAX, WINDOW_MAX, WORKERS_MAX};
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

/// What a dead row means for later rows of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDead {
    /// They wait until it is replayed or purged.
    Block,
    /// They go on.
    Skip,
}

/// A relay's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// `postgres://…`, as libpq reads it.
    pub database: String,
    pub broker: Url,
    pub mapping: Mapping,
    pub source: Source,
    /// Nobody has named the slot: it gets its name when the database is known.
    pub has_default_slot: bool,
    pub on_success: OnSuccess,
    pub order: Order,
    pub on_dead: OnDead,
    /// Connections that drain at the same time.
    pub workers: u32,
    /// Lanes that keys are spread over, under [`Order::Key`].
    pub lanes: u32,
    /// Unconfirmed messages of one key under [`Order::Key`], of all under [`Order::Strict`]. More than 1 lets what
    /// follows a failed message overtake it.
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
    /// Defaults for a database, a broker and a table.
    pub fn new(database: impl Into<String>, broker: Url, mapping: Mapping) -> Self {
        let on_success = match mapping.processed {
            Some(_) => OnSuccess::Update,
            None => OnSuccess::Delete,
        };
        Self {
            database: database.into(),
            broker,
            mapping,
            source: Source::Poll,
            has_default_slot: false,
            on_success,
            order: Order::None,
            on_dead: OnDead::Block,
            workers: 4,
            lanes: 64,
            order_window: 1,
            batch: 1000,
            window: 4096,
            batch_deadline: Duration::from_secs(5),
            poll_min: Duration::from_millis(10),
            poll_max: Duration::from_millis(500),
            listen: None,
            attempts: default_attempts(),
            body_bytes_max: 16 << 20,
            no_confirms: false,
        }
    }

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

    /// What is wrong with it, each in a sentence. Empty: it can run.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |is_right: bool, words: String| {
            if !is_right {
                problems.push(words);
            }
        };
        let range = |what: &str, value: u32, max: u32| {
            ((1..=max).contains(&value), format!("{what} is {value}: it is 1 to {max}"))
        };
        for (is_right, words) in [
            range("workers", self.workers, WORKERS_MAX),
            range("batch", self.batch, BATCH_ROWS_MAX),
            range("window", self.window, WINDOW_MAX),
            range("order_window", self.order_window, WINDOW_MAX),
            range("max_attempts", self.attempts.max, crate::limits::ATTEMPTS_MAX),
        ] {
            check(is_right, words);
        }
        check(
            self.lanes.is_power_of_two() && self.lanes <= LANES_MAX,
            format!("lanes is {}: it is a power of two up to {LANES_MAX}", self.lanes),
        );
        let deadline = self.batch_deadline;
        check(
            (Duration::from_millis(100)..=BATCH_DEADLINE_MAX).contains(&deadline),
            format!("batch_deadline is {deadline:?}: it is 100 ms to {BATCH_DEADLINE_MAX:?}"),
        );
        check(
            self.poll_min <= self.poll_max && self.poll_min >= Duration::from_millis(1),
            "poll_min is at least 1 ms and not above poll_max".into(),
        );
        check(
            self.mapping.layout().columns.len() <= crate::limits::COLUMNS_MAX,
            format!("more than {} columns are read", crate::limits::COLUMNS_MAX),
        );
        let is_poll = self.source == Source::Poll;
        check(
            !(is_poll && self.on_success == OnSuccess::Update && self.mapping.processed.is_none()),
            "on_success is update, but no processed column is named: name it (--processed-column), \
             or choose delete or archive"
                .into(),
        );
        let Mapping { processed, processed_value, dead_value, pending_where, .. } = &self.mapping;
        check(
            processed_value.is_none() || (processed.is_some() && pending_where.is_some()),
            "a processed value needs its column (--processed-column), and which rows wait: --pending-where \"NOT sent\", \
             or \"status = 'pending'\""
                .into(),
        );
        check(
            dead_value.is_none() || processed_value.is_some(),
            "a dead value needs a processed value (--processed-value)".into(),
        );
        check(
            self.order != Order::Key || self.mapping.key.is_some(),
            "order is key, but no key column is named: name it (--key-column)".into(),
        );
        check(
            !is_poll || self.order == Order::None || !self.mapping.order_by.is_empty(),
            "an order was asked for, but no column to order by is named (--order-by)".into(),
        );
        problems
    }
}
