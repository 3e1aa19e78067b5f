//! What an operator does with an outbox in MariaDB or MySQL, over a connection of its own.

mod bring_back;
mod examine;
mod log;
mod sweep;

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Value};
use tokio::sync::Mutex;

pub(crate) use bring_back::Replay;

use super::connection::{Database, database, number, params, text};
use super::table::{find_table, read_shape};
use crate::admin::Report;
use crate::admin::doctor::{Failure, Pending};
use crate::admin::install::{Plan, Step, Wanted};
use crate::admin::purge::{Purge, Purged};
use crate::admin::replay::{Among, Choice};
use crate::admin::status::Status;
use crate::config::Config;
use crate::error::Error;
use crate::mapping::TableName;
use crate::mysql::install;
use crate::mysql::shape::Shape;
use crate::mysql::sql::{FAILURES, archive_of};

/// DDL waits for running statements, and every writer waits behind it: rather give up and be run again.
const LOCK_WAIT: &str = "SET lock_wait_timeout = 5";

/// A connection of an operator.
#[derive(Debug)]
pub(crate) struct Admin {
    database: Database,
    conn: Mutex<Conn>,
}

impl Admin {
    /// Connects.
    ///
    /// # Errors
    /// The URL is wrong, or the database cannot be reached.
    pub(crate) async fn open(url: &str) -> Result<Self, Error> {
        let database = Database::parse(url)?;
        let conn = Mutex::new(database.connect().await?);
        Ok(Self { database, conn })
    }

    /// What an installation has left to do.
    pub(crate) async fn plan(&self, wanted: &Wanted) -> Result<Plan, Error> {
        let conn = &mut *self.conn.lock().await;
        let table = &wanted.config.mapping.table;
        let found = install::Found {
            table: read_shape(conn, &self.database, table).await?,
            archive: read_shape(conn, &self.database, &archive_of(table)).await?,
            has_companion: has_companion(conn, &self.database).await?,
            has_position: log::has_position(conn, &self.database).await?,
            has_places: log::has_places(conn, &self.database).await?,
            binlog: match log::slot(&wanted.config) {
                Some(_) => Some(super::log::places::binlog(conn).await?),
                None => None,
            },
        };
        Ok(install::plan(wanted, &found))
    }

    /// Runs the steps of a plan. `told` hears of each before it runs.
    pub(crate) async fn install(
        &self,
        plan: &Plan,
        mut told: impl FnMut(&Step),
    ) -> Result<(), Error> {
        let conn = &mut *self.conn.lock().await;
        conn.query_drop(LOCK_WAIT).await.map_err(|error| database("setting up", &error))?;
        for step in &plan.steps {
            told(step);
            conn.query_drop(step.sql.as_str())
                .await
                .map_err(|error| database(&step.why, &error))?;
        }
        Ok(())
    }

    /// Examines the outbox and its server; changes nothing.
    pub(crate) async fn examine(&self, config: &Config) -> Result<Report, Error> {
        examine::examine(&mut *self.conn.lock().await, &self.database, config).await
    }

    /// How the outbox stands.
    pub(crate) async fn look(&self, config: &Config) -> Result<Status, Error> {
        examine::look(&mut *self.conn.lock().await, &self.database, config).await
    }

    /// Prepares a replay of what `choice` takes among `among`.
    pub(crate) async fn replay(
        &self,
        config: &Config,
        among: Among,
        choice: Choice,
    ) -> Result<Replay, Error> {
        Replay::of(&mut *self.conn.lock().await, &self.database, config, among, choice).await
    }

    /// The connection, for what was prepared.
    pub(super) async fn conn(&self) -> tokio::sync::MutexGuard<'_, Conn> {
        self.conn.lock().await
    }

    /// Deletes old rows, batch by batch; `told` hears how far it is.
    pub(crate) async fn purge(
        &self,
        config: &Config,
        purge: &Purge,
        told: impl FnMut(&Purged),
    ) -> Result<Purged, Error> {
        sweep::purge(&mut *self.conn.lock().await, &self.database, config, purge, told).await
    }

    /// The time `ago`, as the database has it (UTC).
    pub(crate) async fn ago(&self, ago: Duration) -> Result<String, Error> {
        let micros = Value::Int(i64::try_from(ago.as_micros()).unwrap_or(i64::MAX));
        self.moment(
            "SELECT CAST(NOW(6) - INTERVAL ? MICROSECOND AS CHAR)",
            micros,
            "asking for the time",
        )
        .await
    }

    /// What the database takes `said` for.
    pub(crate) async fn time(&self, said: &str) -> Result<String, Error> {
        let doing = format!("reading `{said}` as a time");
        self.moment("SELECT CAST(CAST(? AS DATETIME(6)) AS CHAR)", Value::from(said), &doing).await
    }

    async fn moment(&self, sql: &str, value: Value, doing: &str) -> Result<String, Error> {
        let conn = &mut *self.conn.lock().await;
        let row: Option<Row> = conn
            .exec_first(sql, params(vec![value]))
            .await
            .map_err(|error| database(doing, &error))?;
        let told = row.and_then(|mut row| text(row.take(0)));
        told.ok_or_else(|| Error::setup(format!("{doing}: it is none")))
    }
}

async fn has_companion(conn: &mut Conn, at: &Database) -> Result<bool, Error> {
    let name = TableName { schema: None, name: FAILURES.into() };
    Ok(read_shape(conn, at, &name).await?.is_some())
}

/// The table, which must be there.
async fn table(conn: &mut Conn, at: &Database, config: &Config) -> Result<Shape, Error> {
    find_table(conn, at, config).await
}

/// Failures by reason.
async fn failures(conn: &mut Conn, label: &str) -> Result<Vec<Failure>, Error> {
    let sql = format!(
        "SELECT reason, dead_at IS NOT NULL AS is_dead, COUNT(*), MAX(attempts), \
           TIMESTAMPDIFF(MICROSECOND, NOW(6), MIN(next_attempt_at)) / 1000000, \
           TIMESTAMPDIFF(MICROSECOND, MIN(first_failed_at), NOW(6)) / 1000000, MAX(error), MIN(row_id) \
         FROM {FAILURES} WHERE outbox = ? GROUP BY reason, dead_at IS NOT NULL ORDER BY 2, 3 DESC"
    );
    let rows: Vec<Row> =
        conn.exec(sql, (label,)).await.map_err(|error| database("reading failures", &error))?;
    let failure = |mut row: Row| Failure {
        reason: text(row.take(0)).unwrap_or_default(),
        is_dead: number(row.take(1)).is_some_and(|told| told > 0.0),
        count: number(row.take(2)).unwrap_or(0.0) as i64,
        attempts_max: number(row.take(3)).unwrap_or(0.0) as i32,
        next_seconds: number(row.take(4)),
        oldest_seconds: number(row.take(5)),
        error: text(row.take(6)).unwrap_or_default(),
        example: text(row.take(7)).unwrap_or_default(),
    };
    Ok(rows.into_iter().map(failure).collect())
}

/// Rows that wait, up to a bound.
async fn pending(
    conn: &mut Conn,
    statements: &crate::mysql::sql::Statements,
    bound: u64,
) -> Result<Pending, Error> {
    let failed = |error: mysql_async::Error| database("counting rows that wait", &error);
    let row: Option<Row> = conn.exec_first(statements.backlog(), (bound,)).await.map_err(failed)?;
    let rows = row.and_then(|mut row| number(row.take(0))).unwrap_or(0.0) as i64;
    let mut oldest_seconds = None;
    if let Some(sql) = statements.oldest() {
        let row: Option<Row> = conn.query_first(sql).await.map_err(failed)?;
        oldest_seconds = row.and_then(|mut row| number(row.take(0)));
    }
    Ok(Pending { rows, oldest_seconds })
}
