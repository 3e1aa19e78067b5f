//! Beside the workers: what is left to do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Value};

use super::connection::{database, number, params};
use super::shared::Shared;
use crate::error::Error;

/// Rows that are counted; more are told as this many.
const BACKLOG_MAX: u64 = 100_000;
const FAILURES_EVERY: Duration = Duration::from_secs(1);
const BACKLOG_EVERY: Duration = Duration::from_secs(2);
const RECONNECT_EVERY: Duration = Duration::from_secs(1);

/// Keeps an eye on failures and the backlog, for ever.
pub(super) async fn watch_table(shared: Arc<Shared>) {
    loop {
        if let Err(error) = watch_once(&shared).await {
            tracing::debug!(%error, "cannot look at the backlog");
        }
        tokio::time::sleep(RECONNECT_EVERY).await;
    }
}

async fn watch_once(shared: &Shared) -> Result<(), Error> {
    let mut conn = shared.database.connect().await?;
    let mut backlog_due = Instant::now();
    loop {
        read_failures(shared, &mut conn).await?;
        if Instant::now() >= backlog_due {
            let start = Instant::now();
            let rows =
                ask(&mut conn, &shared.statements.backlog(), vec![BACKLOG_MAX.into()]).await?;
            shared.metrics.backlog.set(rows.unwrap_or(0.0) as i64);
            if let Some(oldest) = shared.statements.oldest() {
                let oldest = ask(&mut conn, &oldest, Vec::new()).await?;
                shared.metrics.oldest_age.set(oldest.unwrap_or(0.0));
            }
            // Counting must never be what the database is busy with.
            backlog_due = Instant::now() + BACKLOG_EVERY.max(start.elapsed() * 50);
        }
        tokio::time::sleep(FAILURES_EVERY).await;
    }
}

async fn ask(conn: &mut Conn, sql: &str, values: Vec<Value>) -> Result<Option<f64>, Error> {
    let row: Option<Row> = conn
        .exec_first(sql, params(values))
        .await
        .map_err(|error| database("counting the backlog", &error))?;
    Ok(row.and_then(|mut row| number(row.take(0))))
}

/// Asks what has failed, for fetches and for the screen.
pub(super) async fn read_failures(shared: &Shared, conn: &mut Conn) -> Result<(), Error> {
    let asked = shared.failures.ask();
    let row: Option<Row> = conn
        .query_first(shared.statements.failures())
        .await
        .map_err(|error| database("counting failures", &error))?;
    let Some(mut row) = row else { return Ok(()) };
    let (parked, dead) = (number(row.take(0)).unwrap_or(0.0), number(row.take(1)).unwrap_or(0.0));
    shared.failures.answered(asked, parked + dead > 0.0);
    shared.metrics.parked.set(parked as i64);
    shared.metrics.dead_now.set(dead as i64);
    Ok(())
}
