//! The core's orders about failures, as statements. Each may be repeated: what is done already changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Client;

use crate::config::OnDead;
use crate::error::Error;
use crate::io::postgres::database;
use crate::io::session::{Asked, Counted, Orders};
use crate::stream::{Due, Failure, Input, NextAttempt, Output};

/// Rows that are due, fetched at once; of one key.
const DUE_ROWS: i64 = 256;
const KEY_ROWS: i64 = 64;
/// Bytes of them.
const DUE_BYTES: i64 = 8 << 20;

/// The failures of one outbox.
#[derive(Clone)]
pub(super) struct Failures {
    pub(super) client: Arc<Client>,
    pub(super) outbox: String,
    pub(super) on_dead: OnDead,
}

const STORE: &str = "INSERT INTO millrace.relay_failures AS f \
      (outbox, row_id, key, position, attempts, reason, error, next_attempt_at, dead_at, stored_row) \
    SELECT $1, id, key, position, attempts, reason, error, now() + after * interval '1 second', \
      CASE WHEN is_dead THEN now() END, stored::jsonb \
    FROM unnest($2::text[], $3::text[], $4::int8[], $5::int4[], $6::text[], $7::text[], $8::float8[], \
      $9::bool[], $10::text[]) AS n(id, key, position, attempts, reason, error, after, is_dead, stored) \
    ON CONFLICT (outbox, row_id) DO UPDATE SET key = coalesce(f.key, excluded.key), \
      position = coalesce(f.position, excluded.position), \
      stored_row = coalesce(f.stored_row, excluded.stored_row)";

const RETRY: &str = "UPDATE millrace.relay_failures f SET attempts = n.attempts, reason = n.reason, \
      error = n.error, last_failed_at = now(), next_attempt_at = now() + n.after * interval '1 second', \
      dead_at = CASE WHEN n.is_dead THEN now() END \
    FROM unnest($2::text[], $3::int4[], $4::text[], $5::text[], $6::float8[], $7::bool[]) \
      AS n(id, attempts, reason, error, after, is_dead) \
    WHERE f.outbox = $1 AND f.row_id = n.id";

const REMOVE: &str =
    "DELETE FROM millrace.relay_failures WHERE outbox = $1 AND row_id = ANY($2::text[])";

/// The first row of each key is due if it was waiting; `$2`: these keys, NULL: all; `$3`: a dead one blocks.
const PROMOTE: &str = "UPDATE millrace.relay_failures f SET next_attempt_at = now() \
    FROM (SELECT DISTINCT ON (key) row_id, next_attempt_at, dead_at FROM millrace.relay_failures \
          WHERE outbox = $1 AND key IS NOT NULL AND ($2::text[] IS NULL OR key = ANY($2::text[])) \
            AND stored_row IS NOT NULL AND (dead_at IS NULL OR $3) \
          ORDER BY key, position) h \
    WHERE f.outbox = $1 AND f.row_id = h.row_id AND h.next_attempt_at IS NULL AND h.dead_at IS NULL";

const FREE: &str = "SELECT k FROM unnest($2::text[]) k WHERE NOT EXISTS \
    (SELECT FROM millrace.relay_failures f WHERE f.outbox = $1 AND f.key = k \
       AND f.stored_row IS NOT NULL AND (f.dead_at IS NULL OR $3))";

const PARKED: &str = "SELECT DISTINCT key FROM millrace.relay_failures \
    WHERE outbox = $1 AND key IS NOT NULL AND stored_row IS NOT NULL AND (dead_at IS NULL OR $2)";

/// Rows that are due, each with those of its key behind it that wait.
const DUE: &str = "WITH heads AS ( \
      SELECT row_id, key, position FROM millrace.relay_failures \
      WHERE outbox = $1 AND dead_at IS NULL AND next_attempt_at <= now() AND stored_row IS NOT NULL \
      ORDER BY position LIMIT $2), \
    rows AS ( \
      SELECT f.row_id, f.key, f.attempts, f.stored_row::text AS stored, f.position, 0 AS behind, f.first_failed_at \
      FROM heads JOIN millrace.relay_failures f ON f.outbox = $1 AND f.row_id = heads.row_id \
      UNION ALL \
      SELECT w.* FROM heads CROSS JOIN LATERAL ( \
        SELECT f.row_id, f.key, f.attempts, f.stored_row::text, f.position, 1, f.first_failed_at \
        FROM millrace.relay_failures f \
        WHERE f.outbox = $1 AND f.key = heads.key AND f.position > heads.position \
          AND f.dead_at IS NULL AND f.next_attempt_at IS NULL AND f.stored_row IS NOT NULL \
        ORDER BY f.position LIMIT $3) w), \
    sized AS (SELECT *, sum(length(stored)) OVER (ORDER BY position, row_id) - length(stored) AS before \
      FROM rows) \
    SELECT row_id, key, attempts, stored, greatest(extract(epoch FROM now() - first_failed_at), 0)::float8 \
    FROM sized WHERE before < $4 ORDER BY position, row_id";

impl Failures {
    fn dead_blocks(&self) -> bool {
        self.on_dead == OnDead::Block
    }

    /// Does what is asked, in order; says what the core has to know.
    pub(super) async fn apply(&self, orders: Vec<Output>) -> Result<Vec<Input>, Error> {
        let failed = |error: tokio_postgres::Error| database("writing failures", &error);
        let mut inputs = Vec::new();
        let Orders { stores, retries, removed, keys, asked } = Orders::of(orders, self.on_dead)?;
        if !stores.is_empty() {
            self.store(&stores).await.map_err(failed)?;
            inputs.push(Input::Stored(stores.len()));
        }
        if !retries.is_empty() {
            self.retry(&retries).await.map_err(failed)?;
        }
        if !removed.is_empty() {
            self.client.execute(REMOVE, &[&self.outbox, &removed]).await.map_err(failed)?;
        }
        if !keys.is_empty() {
            let blocks = self.dead_blocks();
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
                [&self.outbox, &keys, &blocks];
            self.client.execute(PROMOTE, &parameters).await.map_err(failed)?;
            let free = self.client.query(FREE, &parameters).await.map_err(failed)?;
            inputs.push(Input::Free(free.iter().map(|row| row.get(0)).collect()));
        }
        for asked in asked {
            inputs.push(match asked {
                Asked::Due => self.due().await.map_err(failed)?,
                Asked::Swept => Input::Swept(self.sweep().await?),
            });
        }
        Ok(inputs)
    }

    async fn store(&self, failures: &[Failure]) -> Result<(), tokio_postgres::Error> {
        let mut seen = BTreeSet::new();
        // One statement may touch a row once.
        let failures: Vec<&Failure> =
            failures.iter().filter(|failure| seen.insert(failure.row_id.as_str())).collect();
        let column =
            |of: fn(&Failure) -> &str| -> Vec<&str> { failures.iter().map(|f| of(f)).collect() };
        let keys: Vec<Option<&str>> = failures.iter().map(|f| f.key.as_deref()).collect();
        let positions: Vec<Option<i64>> = failures.iter().map(|f| f.position).collect();
        let attempts: Vec<i32> = failures.iter().map(|f| f.attempts as i32).collect();
        let after: Vec<Option<f64>> = failures.iter().map(|f| seconds(f.next)).collect();
        let dead: Vec<bool> = failures.iter().map(|f| f.next == NextAttempt::Never).collect();
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 10] = [
            &self.outbox,
            &column(|f| &f.row_id),
            &keys,
            &positions,
            &attempts,
            &column(reason),
            &column(|f| &f.error),
            &after,
            &dead,
            &column(|f| &f.stored_row),
        ];
        self.client.execute(STORE, &parameters).await.map(drop)
    }

    async fn retry(&self, failures: &[Failure]) -> Result<(), tokio_postgres::Error> {
        let column = |of: fn(&Failure) -> &str| -> Vec<&str> { failures.iter().map(of).collect() };
        let attempts: Vec<i32> = failures.iter().map(|f| f.attempts as i32).collect();
        let after: Vec<Option<f64>> = failures.iter().map(|f| seconds(f.next)).collect();
        let dead: Vec<bool> = failures.iter().map(|f| f.next == NextAttempt::Never).collect();
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 7] = [
            &self.outbox,
            &column(|f| &f.row_id),
            &attempts,
            &column(reason),
            &column(|f| &f.error),
            &after,
            &dead,
        ];
        self.client.execute(RETRY, &parameters).await.map(drop)
    }

    async fn due(&self) -> Result<Input, tokio_postgres::Error> {
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&self.outbox, &DUE_ROWS, &KEY_ROWS, &DUE_BYTES];
        let rows = self.client.query(DUE, &parameters).await?;
        let due: Vec<Due> = rows
            .iter()
            .map(|row| Due {
                row_id: row.get(0),
                key: row.get(1),
                attempts: row.get::<_, i32>(2).unsigned_abs(),
                stored_row: row.get(3),
                age: Duration::try_from_secs_f64(row.get(4)).unwrap_or_default(),
            })
            .collect();
        // Whoever has rows behind them is asked for again at once.
        let is_full = due.len() as i64 >= KEY_ROWS;
        Ok(Input::Due { rows: due, is_full })
    }

    /// Wakes the first row of each key, and tells which keys have rows here.
    pub(super) async fn sweep(&self) -> Result<BTreeSet<String>, Error> {
        let failed = |error: tokio_postgres::Error| database("looking through failures", &error);
        let all: Option<Vec<String>> = None;
        let blocks = self.dead_blocks();
        self.client.execute(PROMOTE, &[&self.outbox, &all, &blocks]).await.map_err(failed)?;
        let rows = self.client.query(PARKED, &[&self.outbox, &blocks]).await.map_err(failed)?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Above every position that is in use.
    pub(super) async fn next_position(&self) -> Result<i64, Error> {
        let sql =
            "SELECT coalesce(max(position), 0) + 1 FROM millrace.relay_failures WHERE outbox = $1";
        let row = self.client.query_one(sql, &[&self.outbox]).await;
        Ok(row.map_err(|error| database("reading failures", &error))?.get(0))
    }

    /// How many there are.
    pub(super) async fn count(&self) -> Result<Counted, Error> {
        let sql = "SELECT count(*) FILTER (WHERE dead_at IS NULL), count(*) FILTER (WHERE dead_at IS NOT NULL), \
                     extract(epoch FROM now() - min(first_failed_at) FILTER (WHERE dead_at IS NULL))::float8 \
                   FROM millrace.relay_failures WHERE outbox = $1";
        let row = self.client.query_one(sql, &[&self.outbox]).await;
        let row = row.map_err(|error| database("counting failures", &error))?;
        let oldest: Option<f64> = row.get(2);
        let oldest = oldest.map(|age| Duration::try_from_secs_f64(age).unwrap_or_default());
        Ok(Counted { waiting: row.get(0), dead: row.get(1), oldest })
    }
}

fn seconds(next: NextAttempt) -> Option<f64> {
    match next {
        NextAttempt::After(after) => Some(after.as_secs_f64()),
        NextAttempt::Behind | NextAttempt::Never => None,
    }
}

fn reason(failure: &Failure) -> &str {
    failure.reason.map_or("waiting", |reason| reason.name())
}
