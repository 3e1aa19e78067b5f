//! Writing down how a batch ended, in its own transaction.
//!
//! As for PostgreSQL: everything with as few statements as possible. If the data of some row makes one of them fail,
//! nothing is written; then the same is done once more *apart*: under savepoints, in halves, until the failing rows stand
//! alone and all others are written.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use client::Chance;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as MyError, Row, Value};
use service::Next;

use super::connection::{cell, database, filled, is_of_a_row, number, params, text, words};
use super::shared::Shared;
use super::table::id_value;
use crate::attempts::{Fault, Reason};
use crate::batch::{Batch, Failed};
use crate::config::Order;
use crate::error::Error;
use crate::io::poll::written::{Unwritten, Written};
use crate::limits::shortened;
use crate::mysql::sql::list_length;
use crate::poll::halves::Halves;

/// Writes down how `batch` ended. The commit is the caller's.
pub(super) struct Writer<'a> {
    pub(super) shared: &'a Shared,
    pub(super) conn: &'a mut Conn,
    pub(super) batch: &'a Batch,
    pub(super) chance: &'a mut Chance,
    /// There were failures before the batch began.
    pub(super) had_failures: bool,
    /// Find rows that the database refuses, until then at most; None: all or nothing.
    pub(super) apart_until: Option<Instant>,
}

/// Rows that are marked, rows that are refused and why, rows for which there was no time.
type Marked = (Vec<usize>, Vec<(usize, String)>, Vec<usize>);

impl<'a> Writer<'a> {
    pub(super) async fn write(mut self) -> Result<Written, Unwritten> {
        let mut confirmed = self.batch.confirmed().to_vec();
        confirmed.sort_unstable();
        let mut failed_rows = self.batch.failed().to_vec();
        let mut written = Written::default();
        if !confirmed.is_empty() {
            let (marked, refused, rest) = self.mark_all(confirmed).await?;
            failed_rows.extend(refused.into_iter().map(|(row, words)| {
                let text = format!("it was published, but its row cannot be marked: {words}");
                Failed { row, fault: Fault { reason: Reason::Unmarked, text }, is_charged: true }
            }));
            if !marked.is_empty() && (self.had_failures || self.shared.failures.has_some()) {
                let length = list_length(marked.len());
                let ids = filled(marked.iter().map(|&row| Value::from(self.id(row))), length);
                self.execute(&self.shared.statements.clear_failures(length), ids).await?;
            }
            written = Written { marked, rest, writing: None };
        }
        if !failed_rows.is_empty() {
            written.writing = Some(self.shared.failures.write());
            self.fail(&failed_rows).await?;
        }
        Ok(written)
    }

    async fn mark_all(&mut self, rows: Vec<usize>) -> Result<Marked, Unwritten> {
        let Some(until) = self.apart_until else {
            return match self.mark(&rows).await? {
                Ok(()) => Ok((rows, Vec::new(), Vec::new())),
                Err(words) => Err(Unwritten::ByRow(words)),
            };
        };
        let mut halves = Halves::of(rows);
        while let Some(rows) = halves.take_next() {
            self.execute("SAVEPOINT apart", Vec::new()).await?;
            let outcome = self.mark(&rows).await?;
            if outcome.is_err() {
                self.execute("ROLLBACK TO SAVEPOINT apart", Vec::new()).await?;
            }
            halves.tried(rows, outcome);
            // Something is known each time, so that it comes to an end.
            if halves.has_some() && Instant::now() > until {
                break;
            }
        }
        Ok(halves.end())
    }

    /// Marks `rows`, or says why some row of them refuses it.
    async fn mark(&mut self, rows: &[usize]) -> Result<Result<(), String>, Unwritten> {
        let length = list_length(rows.len());
        let ids = filled(rows.iter().map(|&row| self.id_value(row)), length);
        let mut count = 0;
        for sql in self.shared.statements.mark(length) {
            match self.conn.exec_drop(sql, params(ids.clone())).await {
                Ok(()) => count = self.conn.affected_rows(),
                Err(error) if is_of_a_row(&error) => return Ok(Err(words(&error))),
                Err(error) => return Err(Unwritten::Failed(database("marking rows", &error))),
            }
        }
        if let Some(sql) = self.shared.statements.still_waiting(length) {
            let row: Option<Row> = self.conn.exec_first(sql, params(ids)).await.map_err(failed)?;
            let waiting = row.and_then(|mut row| number(row.take(0))).unwrap_or(0.0);
            if waiting > 0.0 {
                let mapping = &self.shared.config.mapping;
                return Err(Unwritten::Failed(Error::setup(mapping.still_waits())));
            }
        }
        match count == rows.len() as u64 {
            true => Ok(Ok(())),
            false => Ok(Err(format!("{count} of {} rows were found again", rows.len()))),
        }
    }

    async fn fail(&mut self, rows: &[Failed]) -> Result<(), Unwritten> {
        let ids: BTreeSet<&str> = rows.iter().map(|failed| self.id(failed.row)).collect();
        let length = list_length(ids.len());
        let ids = filled(ids.into_iter().map(Value::from), length);
        let sql = self.shared.statements.attempts(length);
        let earlier: Vec<Row> = self.conn.exec(sql, params(ids)).await.map_err(failed)?;
        let mut before: BTreeMap<String, u32> = BTreeMap::new();
        for mut row in earlier {
            let attempts = number(row.take(1)).unwrap_or(0.0) as u32;
            before.extend(text(row.take(0)).map(|id| (id, attempts)));
        }
        let mut seen = BTreeSet::new();
        let mut told: BTreeMap<Reason, (usize, usize, &str)> = BTreeMap::new();
        for Failed { row, fault: Fault { reason, text }, is_charged } in rows {
            told.entry(*reason).or_insert((0, *row, text)).0 += 1;
            let id = self.id(*row);
            if !seen.insert(id) {
                continue;
            }
            let (attempts, bits) = (&self.shared.config.attempts, self.chance.next_bits());
            let before = before.get(id).copied().unwrap_or(0);
            let (made, next) = reason.after(attempts, before, *is_charged, bits);
            let after = match next {
                Next::Retry { after } => Value::from(after.as_secs_f64()),
                Next::Dead => Value::NULL,
            };
            self.shared.metrics.failed(*reason, next == Next::Dead);
            let values = vec![
                Value::from(id),
                Value::from(self.key(*row)),
                Value::from(made),
                Value::from(reason.name()),
                Value::from(shortened(text)),
                after.clone(),
                after,
            ];
            self.execute(&self.shared.statements.fail(), values).await?;
            if next == Next::Dead {
                self.bury(*row, &shortened(&format!("{}: {text}", reason.name()))).await?;
            }
        }
        for (reason, (count, row, text)) in told {
            let (id, error) = (self.id(row), shortened(text));
            self.shared.metrics.note_failure(reason, id, self.key(row).as_deref(), &error);
            tracing::warn!(
                reason = reason.name(),
                id,
                error,
                advice = reason.advice(),
                "the broker or the relay refused {count} rows, such as this one"
            );
        }
        Ok(())
    }

    /// A row that is dead leaves the outbox: it is marked, or kept among the failures.
    async fn bury(&mut self, row: usize, error: &str) -> Result<(), Unwritten> {
        let statements = &self.shared.statements;
        // What leaves the outbox is kept among the failures, by its id.
        if !statements.moves_dead() || self.id(row).is_empty() {
            return Ok(());
        }
        let id = self.id_value(row);
        let done = if statements.dead_stay_in_place() {
            let error = self.shared.config.mapping.error.as_ref().map(|_| Value::from(error));
            let values = error.into_iter().chain([id]).collect();
            self.conn.exec_drop(statements.mark_dead(), params(values)).await
        } else {
            self.keep_and_delete(row, id).await
        };
        match done {
            Err(error) if is_of_a_row(&error) => {
                let (id, words) = (self.id(row), words(&error));
                tracing::warn!(
                    id,
                    words,
                    "the database refuses to move a dead row out of the outbox; the row stays there and waits"
                );
                Ok(())
            }
            done => done.map_err(failed),
        }
    }

    async fn keep_and_delete(&mut self, row: usize, id: Value) -> Result<(), MyError> {
        let statements = &self.shared.statements;
        let whole: Option<Row> =
            self.conn.exec_first(statements.whole_row(), params(vec![id.clone()])).await?;
        let Some(whole) = whole else { return Ok(()) };
        let columns = self.shared.shape.columns.iter().filter(|column| !column.is_generated);
        let names: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
        let values = whole.unwrap().into_iter();
        let all = self.shared.shape.columns.iter().map(|column| column.name.as_str()).zip(values);
        let kept: serde_json::Map<String, serde_json::Value> = all
            .filter(|(name, _)| names.contains(name))
            .map(|(name, value)| {
                let text =
                    cell(Some(value)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
                (name.to_owned(), text.map_or(serde_json::Value::Null, serde_json::Value::String))
            })
            .collect();
        let json = serde_json::Value::Object(kept).to_string();
        let keep = vec![Value::from(json), Value::from(self.id(row))];
        self.conn.exec_drop(statements.keep_row(), params(keep)).await?;
        self.conn.exec_drop(statements.delete_row(), params(vec![id])).await
    }

    async fn execute(&mut self, sql: &str, values: Vec<Value>) -> Result<(), Unwritten> {
        // What takes no parameters is no statement to be prepared: a savepoint.
        match values.is_empty() {
            true => self.conn.query_drop(sql).await.map_err(failed),
            false => self.conn.exec_drop(sql, params(values)).await.map_err(failed),
        }
    }

    /// A row's id, as failures have it. A row without one cannot be published; it is written down under the empty text.
    fn id(&self, row: usize) -> &'a str {
        let batch: &'a Batch = self.batch;
        batch.rows()[row].fields.text(self.shared.layout.id).unwrap_or_default()
    }

    /// A row's id as a parameter that is compared with its column.
    fn id_value(&self, row: usize) -> Value {
        id_value(&self.shared.config.mapping.id, self.id(row), &self.shared.shape)
    }

    fn key(&self, row: usize) -> Option<String> {
        match self.shared.config.order {
            Order::None => None,
            Order::Strict => Some(String::new()),
            Order::Key => {
                let key = self.shared.layout.key;
                let key = key.and_then(|key| self.batch.rows()[row].fields.text(key));
                Some(key.unwrap_or_else(|| self.id(row)).to_owned())
            }
        }
    }
}

fn failed(error: MyError) -> Unwritten {
    Unwritten::Failed(database("writing down how a batch ended", &error))
}
