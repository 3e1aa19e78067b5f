//! What an inbox is told at its start.

use client::Url;

use super::Key;
use crate::config::Order;
use crate::limits::{BATCH_ROWS_MAX, SHORT_STRING_BYTES_MAX, WORKERS_MAX};
use crate::mapping::TableName;

/// Batches that may be delivered ahead of the database, unless it is said otherwise.
const BATCHES_AHEAD: u32 = 4;

/// What becomes of a message that the table refuses, whatever is left out of it (a check, a trigger).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnRefused {
    /// It is tried again until the table takes it, and what is behind it waits.
    #[default]
    Wait,
    /// `basic.reject` without requeue: dead-lettered, or dropped by a queue without a dead-letter exchange.
    Reject,
}

/// One queue into one table.
#[derive(Clone)]
pub struct Config {
    pub database: String,
    pub broker: Url,
    pub queue: String,
    /// Who takes the messages: a message-id is kept once for each of them.
    pub consumer: String,
    pub table: TableName,
    /// Rows of one transaction at most.
    pub batch: u32,
    /// Messages that the broker hands out ahead of their commit: the bound of the memory.
    pub prefetch: u16,
    /// Make the table if it is not there.
    pub install: bool,
    /// Let other consumers have the queue, too. That loses the order.
    pub shared: bool,
    pub on_refused: OnRefused,
    /// Connections to the database that store at the same time.
    pub workers: u32,
    /// What must not overtake what, where there are several workers.
    pub order: Order,
    /// What of a message is its key.
    pub key: Key,
}

impl Config {
    /// With defaults for what has any.
    pub fn new(database: &str, broker: Url, queue: &str, consumer: &str) -> Self {
        let table = TableName { schema: None, name: "inbox_messages".into() };
        let (queue, consumer) = (queue.to_owned(), consumer.to_owned());
        let database = database.to_owned();
        let prefetch = Self::prefetch_for(500, 1);
        let (batch, install, shared) = (500, false, false);
        let on_refused = OnRefused::default();
        Self {
            database,
            broker,
            queue,
            consumer,
            table,
            batch,
            prefetch,
            install,
            shared,
            on_refused,
            workers: 1,
            order: Order::Key,
            key: Key::default(),
        }
    }

    /// Enough that each worker has a batch when the one before it is committed.
    pub fn prefetch_for(batch: u32, workers: u32) -> u16 {
        let ahead = batch.saturating_mul(BATCHES_AHEAD).saturating_mul(workers);
        u16::try_from(ahead).unwrap_or(u16::MAX)
    }

    /// What is wrong with it, in words.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (what, name) in [("queue", &self.queue), ("consumer", &self.consumer)] {
            if name.is_empty() || name.len() > SHORT_STRING_BYTES_MAX || name.contains('\0') {
                problems.push(format!("the {what}'s name has 1 to {SHORT_STRING_BYTES_MAX} bytes"));
            }
        }
        if !(1..=BATCH_ROWS_MAX).contains(&self.batch) {
            problems.push(format!("a batch has 1 to {BATCH_ROWS_MAX} rows, not {}", self.batch));
        }
        if self.prefetch == 0 {
            problems.push("a prefetch of 0 has no bound: it is 1 to 65535".into());
        }
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            problems.push(format!("there are 1 to {WORKERS_MAX} workers, not {}", self.workers));
        }
        if self.order == Order::Strict && self.workers > 1 {
            problems.push("--order strict has one worker: take --order key or none".into());
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_bound_is_refused() {
        let url = || "amqp://localhost".parse().expect("it is a URL");
        let good = Config::new("postgres://localhost/shop", url(), "orders", "billing");
        assert_eq!(good.problems(), [""; 0]);
        assert_eq!(Config { prefetch: 0, ..good.clone() }.problems().len(), 1);
        let two = Config { workers: 2, ..good.clone() };
        assert_eq!(two.problems(), [""; 0]);
        assert_eq!(Config { order: Order::Strict, ..two }.problems().len(), 1);
        assert_eq!(Config { workers: 0, ..good.clone() }.problems().len(), 1);
        assert_eq!(Config { batch: 0, consumer: String::new(), ..good }.problems().len(), 2);
        assert_eq!(
            (Config::prefetch_for(500, 4), Config::prefetch_for(50_000, 1)),
            (8_000, u16::MAX)
        );
    }
}
