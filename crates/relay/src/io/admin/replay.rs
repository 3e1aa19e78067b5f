//! Brings rows back, in transactions of a bounded size.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio_postgres::Client;

use super::doctor::label;
use super::purge::wait_for_slots;
use super::{ask_one, read_shape};
use crate::admin::replay::{Among, Choice, Counted, Replayed, Statements, statements};
use crate::config::{Config, Source};
use crate::error::Error;
use crate::io::find_table;
use crate::io::postgres::database;
use crate::mapping::TableName;
use crate::sql::Table;

/// A replay that was counted and not done yet.
#[derive(Debug)]
pub(super) struct Replay {
    statements: Statements,
    outbox: String,
    choice: Choice,
}

/// Where a row stands in the order of a replay.
type Place = Vec<Option<String>>;

/// The time `ago`, as the database has it.
///
/// # Errors
/// The database cannot be asked.
pub(super) async fn ago(client: &Client, ago: Duration) -> Result<String, Error> {
    let sql = "SELECT (now() - $1::float8 * interval '1 second')::text";
    let row = client.query_one(sql, &[&ago.as_secs_f64()]).await;
    Ok(row.map_err(|error| database("asking for the time", &error))?.get(0))
}

/// What PostgreSQL takes `text` for.
///
/// # Errors
/// It is no time.
pub(super) async fn time(client: &Client, text: &str) -> Result<String, Error> {
    let row = client.query_one("SELECT $1::text::timestamptz::text", &[&text]).await;
    Ok(row.map_err(|error| database(&format!("reading `{text}` as a time"), &error))?.get(0))
}

impl Replay {
    /// Prepares a replay of what `choice` takes among `among`.
    ///
    /// # Errors
    /// There is no such table, or no such rows under this configuration.
    pub(super) async fn of(
        client: &Client,
        config: &Config,
        among: Among,
        choice: Choice,
    ) -> Result<Self, Error> {
        let (table, columns, outbox) = if matches!(config.source, Source::Messages { .. }) {
            let name = TableName { schema: None, name: String::new() };
            (
                Table {
                    name,
                    oid: 0,
                    columns: Vec::new(),
                    is_plain: true,
                    has_dropped: false,
                    is_view: false,
                },
                Vec::new(),
                label(config, None),
            )
        } else {
            let table = find_table(client, &config.mapping).await?;
            let shape = read_shape(client, &table.name).await?.unwrap_or_default();
            let written = shape.columns.into_iter().filter(|column| !column.is_generated);
            let columns = written.map(|column| column.name).collect();
            let outbox = table.label();
            (table, columns, outbox)
        };
        let mut settled = None;
        if among == Among::Processed && matches!(config.source, Source::Wal { .. }) {
            settled = Some(wait_for_slots(client, &outbox).await?);
        }
        let statements = statements(config, among, &table, &columns, settled.as_deref());
        let statements = statements.map_err(Error::setup)?;
        Ok(Self { statements, outbox, choice })
    }

    /// How many rows were chosen.
    ///
    /// # Errors
    /// The database cannot be asked, or a time is not one.
    pub(super) async fn count(&self, client: &Client) -> Result<Counted, Error> {
        let Choice { ids, since, until, reason, error_like } = &self.choice;
        let doing = "counting what is chosen";
        ask_one(
            client,
            doing,
            &self.statements.count,
            &[&self.outbox, ids, since, until, reason, error_like],
        )
        .await
    }

    /// Brings them back; `told` hears how many so far.
    ///
    /// # Errors
    /// A statement fails: what was told is done, and the same can be asked for again.
    pub(super) async fn run(
        &self,
        client: &Client,
        mut told: impl FnMut(Replayed),
    ) -> Result<Replayed, Error> {
        let mut done = Replayed::default();
        let mut last: Option<Place> = None;
        loop {
            let result = self.batch(client, &last).await;
            last = match result {
                Ok((count, found, last)) => {
                    done.rows += found as u64;
                    done.gone += (count - found) as u64;
                    last
                }
                Err(error) => {
                    let _ = client.batch_execute("ROLLBACK").await;
                    return Err(error);
                }
            };
            told(done);
            if last.is_none() {
                return Ok(done);
            }
        }
    }

    /// One transaction: how many rows it looked at, how many of them were brought back, and where the last one stands.
    async fn batch(
        &self,
        client: &Client,
        last: &Option<Place>,
    ) -> Result<(usize, usize, Option<Place>), Error> {
        let failed = |error: tokio_postgres::Error| database("bringing rows back", &error);
        let Choice { ids, since, until, reason, error_like } = &self.choice;
        client.batch_execute("BEGIN").await.map_err(failed)?;
        let next = &self.statements.next;
        let rows = client
            .query(next, &[&self.outbox, ids, since, until, reason, error_like, last])
            .await
            .map_err(failed)?;
        let ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let mut found: BTreeSet<String> = BTreeSet::new();
        if !ids.is_empty() {
            for sql in &self.statements.bring_back {
                let rows = client.query(sql, &[&self.outbox, &ids]).await.map_err(failed)?;
                found.extend(rows.iter().map(|row| row.get::<_, String>(0)));
            }
            if let Some(forget) = &self.statements.forget {
                let found: Vec<&str> = found.iter().map(String::as_str).collect();
                client.execute(forget, &[&self.outbox, &found]).await.map_err(failed)?;
            }
        }
        client.batch_execute("COMMIT").await.map_err(failed)?;
        Ok((ids.len(), found.len(), rows.last().map(|row| row.get(1))))
    }
}
