//! The core's orders about failures, as statements: those of the log of PostgreSQL, in this dialect. Each may be
//! repeated: what is done already changes nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as MyError, Row, Value};

use crate::config::OnDead;
use crate::error::Error;
use crate::io::mysql::connection::{database, number, params, text, words};
use crate::io::session::{Asked, Counted, Orders};
use crate::mysql::sql::FAILURES;
use crate::stream::{Due, Failure, Input, NextAttempt, Output};

/// Rows that are due, fetched at once; of one key.
const DUE_ROWS: usize = 256;
const KEY_ROWS: usize = 64;
/// Bytes of them.
const DUE_BYTES: usize = 8 << 20;
/// Names in one statement.
const NAMES: usize = 500;

/// The failures of one outbox.
#[derive(Clone, Debug)]
pub(super) struct Failures {
    pub(super) outbox: String,
    pub(super) on_dead: OnDead,
}

/// The table of failures has an order for those of the log: a column that older relays did not make.
pub(super) async fn prepare(conn: &mut Conn) -> Result<(), Error> {
    if conn.query_drop(format!("SELECT position FROM {FAILURES} LIMIT 0")).await.is_ok() {
        return Ok(());
    }
    let sql = crate::mysql::sql::ADD_POSITION;
    conn.query_drop(sql).await.map_err(|error| {
        Error::setup(format!(
            "the table {FAILURES} is of an older relay and cannot be changed: {}. Let its owner run `millrace relay install \
             --source wal` once",
            words(&error)
        ))
    })
}

fn failed(error: MyError) -> Error {
    database("writing failures", &error)
}

fn seconds(next: NextAttempt) -> Value {
    match next {
        NextAttempt::After(after) => Value::from(after.as_secs_f64()),
        NextAttempt::Behind | NextAttempt::Never => Value::NULL,
    }
}

/// So many seconds from now; NULL stays NULL.
const AFTER: &str = "NOW(6) + INTERVAL CAST(? * 1000000 AS SIGNED) MICROSECOND";

impl Failures {
    fn blocking(&self) -> &'static str {
        match self.on_dead {
            OnDead::Block => "stored_row IS NOT NULL",
            OnDead::Skip => "stored_row IS NOT NULL AND dead_at IS NULL",
        }
    }

    /// Does what is asked, in order; says what the core has to know.
    pub(super) async fn apply(
        &self,
        conn: &mut Conn,
        orders: Vec<Output>,
    ) -> Result<Vec<Input>, Error> {
        let mut inputs = Vec::new();
        let Orders { stores, retries, removed, keys, asked } = Orders::of(orders, self.on_dead)?;
        conn.query_drop("START TRANSACTION").await.map_err(failed)?;
        for failure in &stores {
            self.store(conn, failure).await.map_err(failed)?;
        }
        for failure in &retries {
            self.retry(conn, failure).await.map_err(failed)?;
        }
        for names in removed.chunks(NAMES) {
            let places = vec!["?"; names.len()].join(", ");
            let sql = format!("DELETE FROM {FAILURES} WHERE outbox = ? AND row_id IN ({places})");
            conn.exec_drop(sql, self.with(names)).await.map_err(failed)?;
        }
        let mut free = Vec::new();
        for keys in keys.chunks(NAMES) {
            self.promote(conn, Some(keys)).await.map_err(failed)?;
            free.extend(self.free(conn, keys).await.map_err(failed)?);
        }
        conn.query_drop("COMMIT").await.map_err(failed)?;
        if !stores.is_empty() {
            inputs.push(Input::Stored(stores.len()));
        }
        if !free.is_empty() {
            inputs.push(Input::Free(free));
        }
        for asked in asked {
            inputs.push(match asked {
                Asked::Due => self.due(conn).await.map_err(failed)?,
                Asked::Swept => Input::Swept(self.sweep(conn).await?),
            });
        }
        Ok(inputs)
    }

    fn with(&self, names: &[String]) -> mysql_async::Params {
        let names = names.iter().map(|name| Value::from(name.as_str()));
        params(std::iter::once(Value::from(self.outbox.as_str())).chain(names).collect())
    }

    async fn store(&self, conn: &mut Conn, failure: &Failure) -> Result<(), MyError> {
        let sql = format!(
            "INSERT INTO {FAILURES} (outbox, row_id, row_key, position, attempts, reason, error, first_failed_at, \
               last_failed_at, next_attempt_at, dead_at, stored_row) \
             VALUES (?, ?, ?, ?, ?, ?, ?, NOW(6), NOW(6), {AFTER}, IF(?, NOW(6), NULL), ?) \
             ON DUPLICATE KEY UPDATE row_key = COALESCE(row_key, VALUES(row_key)), \
               position = COALESCE(position, VALUES(position)), stored_row = COALESCE(stored_row, VALUES(stored_row))"
        );
        let values = vec![
            Value::from(self.outbox.as_str()),
            Value::from(failure.row_id.as_str()),
            Value::from(failure.key.as_deref()),
            Value::from(failure.position),
            Value::from(failure.attempts),
            Value::from(failure.reason.map_or("waiting", |reason| reason.name())),
            Value::from(failure.error.as_str()),
            seconds(failure.next),
            Value::from(failure.next == NextAttempt::Never),
            Value::from(failure.stored_row.as_str()),
        ];
        conn.exec_drop(sql, params(values)).await
    }

    async fn retry(&self, conn: &mut Conn, failure: &Failure) -> Result<(), MyError> {
        let sql = format!(
            "UPDATE {FAILURES} SET attempts = ?, reason = ?, error = ?, last_failed_at = NOW(6), \
               next_attempt_at = {AFTER}, dead_at = IF(?, NOW(6), NULL) WHERE outbox = ? AND row_id = ?"
        );
        let values = vec![
            Value::from(failure.attempts),
            Value::from(failure.reason.map_or("waiting", |reason| reason.name())),
            Value::from(failure.error.as_str()),
            seconds(failure.next),
            Value::from(failure.next == NextAttempt::Never),
            Value::from(self.outbox.as_str()),
            Value::from(failure.row_id.as_str()),
        ];
        conn.exec_drop(sql, params(values)).await
    }

    /// The first row of each key is due if it was waiting; of these keys, or of all.
    async fn promote(&self, conn: &mut Conn, keys: Option<&[String]>) -> Result<(), MyError> {
        let among = match keys {
            Some(keys) => format!(" AND row_key IN ({})", vec!["?"; keys.len()].join(", ")),
            None => String::new(),
        };
        let sql = format!(
            "UPDATE {FAILURES} f JOIN ( \
               SELECT row_key, MIN(position) AS first FROM {FAILURES} \
               WHERE outbox = ? AND row_key IS NOT NULL AND {}{among} GROUP BY row_key) h \
             ON f.row_key = h.row_key AND f.position = h.first \
             SET f.next_attempt_at = NOW(6) \
             WHERE f.outbox = ? AND f.next_attempt_at IS NULL AND f.dead_at IS NULL",
            self.blocking()
        );
        let own = || Value::from(self.outbox.as_str());
        let keys = keys.unwrap_or_default().iter().map(|key| Value::from(key.as_str()));
        let values = std::iter::once(own()).chain(keys).chain([own()]).collect();
        conn.exec_drop(sql, params(values)).await
    }

    /// Which of these keys have no rows here any more.
    async fn free(&self, conn: &mut Conn, keys: &[String]) -> Result<Vec<String>, MyError> {
        let places = vec!["?"; keys.len()].join(", ");
        let sql = format!(
            "SELECT DISTINCT row_key FROM {FAILURES} WHERE outbox = ? AND row_key IN ({places}) AND {}",
            self.blocking()
        );
        let rows: Vec<Row> = conn.exec(sql, self.with(keys)).await?;
        let held: BTreeSet<String> =
            rows.into_iter().filter_map(|mut row| text(row.take(0))).collect();
        Ok(keys.iter().filter(|key| !held.contains(*key)).cloned().collect())
    }

    /// Rows that are due, each with those of its key behind it that wait.
    async fn due(&self, conn: &mut Conn) -> Result<Input, MyError> {
        const COLUMNS: &str = "row_id, row_key, attempts, stored_row, position, \
            GREATEST(TIMESTAMPDIFF(MICROSECOND, first_failed_at, NOW(6)), 0) / 1000000";
        let sql = format!(
            "SELECT {COLUMNS} FROM {FAILURES} WHERE outbox = ? AND dead_at IS NULL AND next_attempt_at <= NOW(6) \
             AND stored_row IS NOT NULL ORDER BY position LIMIT {DUE_ROWS}"
        );
        let heads: Vec<Row> = conn.exec(sql, (self.outbox.as_str(),)).await?;
        let mut is_full = heads.len() == DUE_ROWS;
        let mut found = Vec::new();
        let mut bytes = 0;
        for head in heads {
            let (head, position) = due_of(head);
            if bytes >= DUE_BYTES || found.len() >= DUE_ROWS {
                is_full = true;
                break;
            }
            bytes += head.stored_row.len();
            let key = head.key.clone();
            found.push(head);
            let Some(key) = key else { continue };
            let sql = format!(
                "SELECT {COLUMNS} FROM {FAILURES} WHERE outbox = ? AND row_key = ? AND position > ? AND dead_at IS NULL \
                 AND next_attempt_at IS NULL AND stored_row IS NOT NULL ORDER BY position LIMIT {KEY_ROWS}"
            );
            let behind: Vec<Row> = conn.exec(sql, (self.outbox.as_str(), key, position)).await?;
            // Whoever has rows behind them is asked for again at once.
            is_full |= behind.len() == KEY_ROWS;
            for row in behind {
                let (row, _) = due_of(row);
                if bytes >= DUE_BYTES {
                    is_full = true;
                    break;
                }
                bytes += row.stored_row.len();
                found.push(row);
            }
        }
        Ok(Input::Due { rows: found, is_full })
    }

    /// Wakes the first row of each key, and tells which keys have rows here.
    pub(super) async fn sweep(&self, conn: &mut Conn) -> Result<BTreeSet<String>, Error> {
        let failed = |error: MyError| database("looking through failures", &error);
        self.promote(conn, None).await.map_err(failed)?;
        let sql = format!(
            "SELECT DISTINCT row_key FROM {FAILURES} WHERE outbox = ? AND row_key IS NOT NULL AND {}",
            self.blocking()
        );
        let rows: Vec<Row> = conn.exec(sql, (self.outbox.as_str(),)).await.map_err(failed)?;
        Ok(rows.into_iter().filter_map(|mut row| text(row.take(0))).collect())
    }

    /// Above every position that is in use.
    pub(super) async fn next_position(&self, conn: &mut Conn) -> Result<i64, Error> {
        let sql = format!("SELECT COALESCE(MAX(position), 0) + 1 FROM {FAILURES} WHERE outbox = ?");
        let row: Option<Row> = conn
            .exec_first(sql, (self.outbox.as_str(),))
            .await
            .map_err(|error| database("reading failures", &error))?;
        Ok(row.and_then(|mut row| number(row.take(0))).unwrap_or(1.0) as i64)
    }

    /// How many there are.
    pub(super) async fn count(&self, conn: &mut Conn) -> Result<Counted, Error> {
        let sql = format!(
            "SELECT COALESCE(SUM(dead_at IS NULL), 0), COALESCE(SUM(dead_at IS NOT NULL), 0), \
               TIMESTAMPDIFF(MICROSECOND, MIN(IF(dead_at IS NULL, first_failed_at, NULL)), NOW(6)) / 1000000 \
             FROM {FAILURES} WHERE outbox = ?"
        );
        let row: Option<Row> = conn
            .exec_first(sql, (self.outbox.as_str(),))
            .await
            .map_err(|error| database("counting failures", &error))?;
        let mut row = row.map(Row::unwrap).unwrap_or_default().into_iter();
        let mut next = || number(row.next());
        let (waiting, dead) = (next().unwrap_or(0.0) as i64, next().unwrap_or(0.0) as i64);
        let oldest = next().map(|age| Duration::try_from_secs_f64(age).unwrap_or_default());
        Ok(Counted { waiting, dead, oldest })
    }
}

/// A row that is due, and its position.
fn due_of(mut row: Row) -> (Due, i64) {
    let age = number(row.take(5)).unwrap_or(0.0);
    let due = Due {
        row_id: text(row.take(0)).unwrap_or_default(),
        key: text(row.take(1)),
        attempts: number(row.take(2)).unwrap_or(0.0) as u32,
        stored_row: text(row.take(3)).unwrap_or_default(),
        age: Duration::try_from_secs_f64(age).unwrap_or_default(),
    };
    (due, number(row.take(4)).unwrap_or(0.0) as i64)
}
