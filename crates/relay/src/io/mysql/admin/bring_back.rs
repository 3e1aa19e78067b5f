//! Brings rows back, in transactions of a bounded size.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Value};
use serde_json::Value as Json;

use super::{Admin, Database, log, table};
use crate::admin::replay::{Among, BATCH_ROWS, Choice, Counted, Replayed};
use crate::config::{Config, OnSuccess};
use crate::error::Error;
use crate::io::mysql::connection::{database, number, params, text};
use crate::io::mysql::table::id_value;
use crate::mysql::shape::{Kind, Shape};
use crate::mysql::sql::{FAILURES, Statements, quoted, quoted_table};

/// A replay that is not done yet.
#[derive(Debug)]
pub(crate) struct Replay {
    config: Config,
    shape: Shape,
    statements: Statements,
    among: Among,
    choice: Choice,
}

/// A row that was chosen.
struct Chosen {
    id: String,
    stored_row: Option<String>,
}

fn failed(error: mysql_async::Error) -> Error {
    database("bringing rows back", &error)
}

impl Replay {
    pub(super) async fn of(
        conn: &mut Conn,
        at: &Database,
        config: &Config,
        among: Among,
        choice: Choice,
    ) -> Result<Self, Error> {
        let shape = table(conn, at, config).await?;
        if among == Among::Processed && log::slot(config).is_some() {
            return Err(Error::setup(
                "nothing of this table says which rows were published, as the source is the binlog: only dead rows can be \
                 replayed, and `relay resync` publishes the whole table again",
            ));
        }
        if among == Among::Processed && config.on_success != OnSuccess::Update {
            return Err(Error::setup(
                "published rows can be replayed under --on-success update only: the others leave the outbox",
            ));
        }
        let statements = Statements::new(config, &shape).map_err(Error::setup)?;
        Ok(Self { config: config.clone(), shape, statements, among, choice })
    }

    /// How many rows are chosen, and one of them.
    pub(crate) async fn count(&self, admin: &Admin) -> Result<Counted, Error> {
        let conn = &mut *admin.conn().await;
        let (from, values) = self.chosen();
        let (id, error) = match self.among {
            Among::Dead | Among::Waiting => ("MIN(o.row_id)".to_owned(), "MIN(o.error)"),
            Among::Processed => (format!("MIN({})", self.id()), "''"),
        };
        let sql = format!("SELECT COUNT(*), {id}, {error} {from}");
        let row: Option<Row> = conn
            .exec_first(sql, params(values))
            .await
            .map_err(|error| database("counting what is chosen", &error))?;
        let mut row = row.map(Row::unwrap).unwrap_or_default().into_iter();
        let count = number(row.next()).unwrap_or(0.0) as i64;
        Ok(Counted { count, example: text(row.next()), error: text(row.next()) })
    }

    /// Brings them back; `told` hears how many so far.
    pub(crate) async fn run(
        &self,
        admin: &Admin,
        mut told: impl FnMut(Replayed),
    ) -> Result<Replayed, Error> {
        let conn = &mut *admin.conn().await;
        let mut done = Replayed::default();
        let mut last = None;
        loop {
            conn.query_drop("START TRANSACTION").await.map_err(failed)?;
            let (rows, found) = match self.batch(conn, last.as_deref()).await {
                Ok(done) => done,
                Err(error) => {
                    let _ = conn.query_drop("ROLLBACK").await;
                    return Err(error);
                }
            };
            conn.query_drop("COMMIT").await.map_err(failed)?;
            done.rows += found;
            done.gone += rows.len() as u64 - found;
            told(done);
            last = rows.last().map(|row| row.id.clone());
            if rows.len() < BATCH_ROWS as usize {
                return Ok(done);
            }
        }
    }

    /// One transaction: the rows that it looked at, and how many were brought back.
    async fn batch(
        &self,
        conn: &mut Conn,
        last: Option<&str>,
    ) -> Result<(Vec<Chosen>, u64), Error> {
        let (from, mut values) = self.chosen();
        let (id, stored_row) = match self.among {
            Among::Dead | Among::Waiting => ("o.row_id".to_owned(), "o.stored_row"),
            Among::Processed => (self.id(), "NULL"),
        };
        let mut sql = format!("SELECT {id}, {stored_row} {from}");
        if let Some(last) = last {
            sql += &format!(" AND {id} > ?");
            values.push(Value::from(last));
        }
        sql += &format!(" ORDER BY {id} LIMIT {BATCH_ROWS} FOR UPDATE");
        let rows: Vec<Row> = conn.exec(sql, params(values)).await.map_err(failed)?;
        let rows: Vec<Chosen> = rows
            .into_iter()
            .map(|mut row| Chosen {
                id: text(row.take(0)).unwrap_or_default(),
                stored_row: text(row.take(1)),
            })
            .collect();
        let mut found = 0;
        for row in &rows {
            found += u64::from(self.bring_back(conn, row).await?);
        }
        Ok((rows, found))
    }

    async fn bring_back(&self, conn: &mut Conn, row: &Chosen) -> Result<bool, Error> {
        let name = (self.statements.label(), row.id.as_str());
        if self.among == Among::Waiting {
            let sql = format!(
                "UPDATE {FAILURES} SET next_attempt_at = NOW(6) WHERE outbox = ? AND row_id = ?"
            );
            conn.exec_drop(sql, name).await.map_err(failed)?;
            return Ok(true);
        }
        if log::slot(&self.config).is_some() {
            return self.revive(conn, name).await;
        }
        let is_back = match &row.stored_row {
            Some(stored) => self.restore(conn, &row.id, stored).await?,
            None => self.unmark(conn, &row.id).await?,
        };
        if is_back {
            let sql = format!("DELETE FROM {FAILURES} WHERE outbox = ? AND row_id = ?");
            conn.exec_drop(sql, name).await.map_err(failed)?;
        }
        Ok(is_back)
    }

    /// A row of the log is tried again from where it is: at once, unless another of its key is before it.
    async fn revive(&self, conn: &mut Conn, name: (String, &str)) -> Result<bool, Error> {
        let sql = format!(
            "UPDATE {FAILURES} f LEFT JOIN (SELECT row_key, MIN(position) AS first FROM {FAILURES} \
               WHERE outbox = ? AND dead_at IS NULL GROUP BY row_key) g ON g.row_key = f.row_key \
             SET f.dead_at = NULL, f.attempts = 0, \
               f.next_attempt_at = IF(g.first IS NULL OR g.first >= f.position, NOW(6), NULL) \
             WHERE f.outbox = ? AND f.row_id = ? AND f.stored_row IS NOT NULL"
        );
        conn.exec_drop(sql, (&name.0, &name.0, name.1)).await.map_err(failed)?;
        Ok(conn.affected_rows() > 0)
    }

    /// A marked row is pending again; one that stayed as it was is so once its failure is gone.
    async fn unmark(&self, conn: &mut Conn, id: &str) -> Result<bool, Error> {
        let mapping = &self.config.mapping;
        let place = match self.shape.column(&mapping.id).map(|column| column.kind) {
            Some(Kind::Bytes) => "UNHEX(?)",
            Some(_) | None => "?",
        };
        let (table, which) =
            (quoted_table(&self.shape.name), format!("o.{} = {place}", quoted(&mapping.id)));
        let value = || params(vec![id_value(&mapping.id, id, &self.shape)]);
        let Some(processed) =
            mapping.processed.as_deref().filter(|_| self.statements.dead_stay_in_place())
        else {
            let sql = format!("SELECT 1 FROM {table} o WHERE {which} FOR UPDATE");
            return Ok(conn.exec_first::<Row, _, _>(sql, value()).await.map_err(failed)?.is_some());
        };
        // Whoever has a condition of their own has a value of their own for a new row.
        let back = if mapping.pending_where.is_some() { "DEFAULT" } else { "NULL" };
        let error = mapping.error.as_deref().map(|error| format!(", o.{} = NULL", quoted(error)));
        let sql = format!(
            "UPDATE {table} o SET o.{} = {back}{} WHERE {which}",
            quoted(processed),
            error.unwrap_or_default()
        );
        conn.exec_drop(sql, value()).await.map_err(failed)?;
        if conn.affected_rows() == 0 {
            return Ok(false);
        }
        let sql = format!("SELECT {} FROM {table} o WHERE {which}", self.statements.pending());
        let row: Option<Row> = conn.exec_first(sql, value()).await.map_err(failed)?;
        if row.and_then(|mut row| number(row.take(0))).is_none_or(|waits| waits == 0.0) {
            return Err(Error::setup(format!(
                "the default of column {processed} makes no row wait, such as {id}: nothing was changed"
            )));
        }
        Ok(true)
    }

    /// A row that was taken out of the outbox goes back: new there, so neither processed nor failed.
    async fn restore(&self, conn: &mut Conn, id: &str, stored: &str) -> Result<bool, Error> {
        let broken = || Error::setup(format!("the stored_row of {id} is no JSON object"));
        let Ok(Json::Object(stored)) = serde_json::from_str::<Json>(stored) else {
            return Err(broken());
        };
        let mapping = &self.config.mapping;
        let (mut names, mut places, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for column in self.shape.columns.iter().filter(|column| !column.is_generated) {
            let is = |name: &Option<String>| {
                name.as_ref().is_some_and(|name| column.name.eq_ignore_ascii_case(name))
            };
            if is(&mapping.processed) || is(&mapping.error) {
                continue;
            }
            let value = match stored.get(&column.name) {
                None => continue,
                Some(Json::String(text)) => Value::from(text.as_str()),
                Some(Json::Null) => Value::NULL,
                Some(other) => Value::from(other.to_string()),
            };
            names.push(quoted(&column.name));
            places.push(match column.kind {
                Kind::Bytes => "UNHEX(?)",
                Kind::Bits => "CAST(? AS UNSIGNED)",
                Kind::Text | Kind::Integer | Kind::Number | Kind::Time => "?",
            });
            values.push(value);
        }
        let sql = format!(
            "INSERT IGNORE INTO {} ({}) VALUES ({})",
            quoted_table(&self.shape.name),
            names.join(", "),
            places.join(", ")
        );
        conn.exec_drop(sql, params(values)).await.map_err(failed)?;
        Ok(conn.affected_rows() > 0)
    }

    /// A row's id as text.
    fn id(&self) -> String {
        let id = format!("o.{}", quoted(&self.config.mapping.id));
        match self.shape.column(&self.config.mapping.id).map(|column| column.kind) {
            Some(Kind::Bytes) => format!("LOWER(HEX({id}))"),
            Some(_) | None => format!("CAST({id} AS CHAR)"),
        }
    }

    /// The rows that are chosen, as FROM and WHERE, with its parameters.
    fn chosen(&self) -> (String, Vec<Value>) {
        let Choice { ids, since, until, reason, error_like } = &self.choice;
        let mut values = vec![Value::from(self.statements.label())];
        let (mut sql, id, at) = match self.among {
            Among::Dead => (
                format!("FROM {FAILURES} o WHERE o.outbox = ? AND o.dead_at IS NOT NULL"),
                "o.row_id".into(),
                "o.dead_at".to_owned(),
            ),
            Among::Waiting => (
                format!("FROM {FAILURES} o WHERE o.outbox = ? AND o.next_attempt_at IS NOT NULL"),
                "o.row_id".into(),
                "o.last_failed_at".to_owned(),
            ),
            Among::Processed => {
                let at = self.statements.marked_at().unwrap_or("NOW(6)".into());
                (
                    format!(
                        "FROM {} o WHERE {} AND NOT EXISTS (SELECT 1 FROM {FAILURES} f WHERE f.outbox = ? \
                         AND f.row_id = CAST({} AS BINARY))",
                        quoted_table(&self.shape.name),
                        self.statements.is_marked(),
                        self.id()
                    ),
                    self.id(),
                    at,
                )
            }
        };
        if let Some(ids) = ids {
            sql += &format!(" AND {id} IN ({})", vec!["?"; ids.len()].join(", "));
            values.extend(ids.iter().map(|id| Value::from(id.as_str())));
        }
        for (bound, sign) in [(since, ">="), (until, "<")] {
            if let Some(bound) = bound {
                sql += &format!(" AND {at} {sign} CAST(? AS DATETIME(6))");
                values.push(Value::from(bound.as_str()));
            }
        }
        if self.among != Among::Processed {
            for (wanted, condition) in [(reason, "o.reason = ?"), (error_like, "o.error LIKE ?")] {
                if let Some(wanted) = wanted {
                    sql += &format!(" AND {condition}");
                    values.push(Value::from(wanted.as_str()));
                }
            }
        }
        (sql, values)
    }
}
