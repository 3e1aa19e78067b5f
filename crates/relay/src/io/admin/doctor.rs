//! Reads the facts that `admin::doctor` judges. What cannot be read is a fact too.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio_postgres::Client;

use super::{Parameters, ask, ask_one, read_shape};
use crate::admin::doctor::{Content, Facts, judge, sql};
use crate::admin::{Report, Shape, status};
use crate::config::{Config, Source};
use crate::error::Error;
use crate::sql::quoted;

/// Rows that are looked at for what needs every one of them.
const ROWS_LOOKED_AT: i64 = 100_000;
/// No question may keep the database busy for longer.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
struct Id {
    id: String,
}

#[derive(Deserialize)]
struct Count {
    count: i64,
}

/// Examines the outbox of `config` and its database; changes nothing.
///
/// # Errors
/// The database cannot be asked anything at all.
pub(super) async fn examine(client: &Client, config: &Config) -> Result<Report, Error> {
    let timeout = format!("SET statement_timeout = {}", STATEMENT_TIMEOUT.as_millis());
    client.batch_execute(&timeout).await.map_err(|error| super::database("beginning", &error))?;
    let mut facts = Facts {
        server: ask_one(client, "looking at the server", sql::SERVER, &[]).await?,
        ..Facts::default()
    };
    read_clock(client, &mut facts).await?;
    let mut reader = Reader { client, facts: &mut facts };
    reader.facts.holders = reader.read("xmin holders", sql::HORIZON, &[]).await;
    reader.facts.slots = reader.read("replication slots", sql::SLOTS, &[]).await;
    if !matches!(config.source, Source::Messages { .. }) {
        reader.facts.shape = read_shape(client, &config.mapping.table).await?;
    }
    let oid = reader.facts.shape.as_ref().map_or(0, |shape| shape.oid);
    let marks: Vec<String> =
        [&config.mapping.processed, &config.mapping.error].into_iter().flatten().cloned().collect();
    let privileges = reader.read("privileges", sql::PRIVILEGES, &[&oid, &marks]).await;
    reader.facts.privileges = privileges.into_iter().next();
    if let Some(shape) = reader.facts.shape.clone() {
        read_table(&mut reader, config, &shape).await;
    }
    read_companion(&mut reader, config).await;
    let report = judge(config, &facts);
    let _ = client.batch_execute("SET statement_timeout = 0").await;
    Ok(report)
}

struct Reader<'a> {
    client: &'a Client,
    facts: &'a mut Facts,
}

impl Reader<'_> {
    /// The rows, or none and a note why.
    async fn read<T: DeserializeOwned>(
        &mut self,
        what: &str,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Vec<T> {
        match ask(self.client, what, sql, parameters).await {
            Ok(rows) => rows,
            Err(error) => {
                self.facts.unread.push((what.to_owned(), error.to_string()));
                Vec::new()
            }
        }
    }
}

async fn read_clock(client: &Client, facts: &mut Facts) -> Result<(), Error> {
    let begun = Instant::now();
    let failed = |error: tokio_postgres::Error| super::database("asking for the time", &error);
    let sql = "SELECT extract(epoch FROM clock_timestamp())::float8";
    let theirs: f64 = client.query_one(sql, &[]).await.map_err(failed)?.get(0);
    let half_trip = begun.elapsed().as_secs_f64() / 2.0;
    let ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    facts.clock = Some((theirs - (ours - half_trip), half_trip));
    facts.now_seconds = ours as i64;
    Ok(())
}

async fn read_table(reader: &mut Reader<'_>, config: &Config, shape: &Shape) {
    let mapping = &config.mapping;
    let table = shape.table().quoted();
    let has = |column: &str| shape.column(column).is_some();
    reader.facts.triggers = reader.read("triggers", sql::TRIGGERS, &[&shape.oid]).await;
    reader.facts.vacuums = reader.read("statistics", sql::VACUUM, &[&shape.oid]).await;
    reader.facts.identity =
        reader.read("publications", sql::IDENTITY, &[&shape.oid]).await.into_iter().next();
    let columns_are_there = has(&mapping.id)
        && has(&mapping.payload)
        && mapping.processed.as_deref().is_none_or(has)
        && mapping.occurred.as_deref().is_none_or(has);
    if !columns_are_there {
        return;
    }
    let pending = status::backlog(mapping, shape, status::BACKLOG_EXACT_MAX);
    reader.facts.pending = reader.read("pending rows", &pending, &[]).await.into_iter().next();
    let (id, payload) = (quoted(&mapping.id), quoted(&mapping.payload));
    if shape.indexes.iter().any(|index| index.holds(&mapping.payload)) {
        let largest = format!(
            "SELECT o.id, o.bytes::int8 AS bytes, o.rows FROM (SELECT s.id, s.bytes, count(*) OVER () AS rows FROM \
               (SELECT {id}::text AS id, coalesce(pg_column_size({payload}), 0) AS bytes FROM {table} \
                LIMIT {ROWS_LOOKED_AT}) s) o ORDER BY o.bytes DESC LIMIT 1"
        );
        reader.facts.content =
            reader.read::<Content>("the largest content", &largest, &[]).await.into_iter().next();
    }
    // Where a unique index on the id alone says so, there is nothing to look for.
    let is_unique =
        |index: &crate::admin::Index| index.makes_unique(&mapping.id) && index.keys.len() == 1;
    if !shape.indexes.iter().any(is_unique) {
        let twice = format!(
            "SELECT s.id FROM (SELECT {id}::text AS id FROM {table} LIMIT {ROWS_LOOKED_AT}) s \
             WHERE s.id IS NOT NULL GROUP BY 1 HAVING count(*) > 1 ORDER BY 1 LIMIT 5"
        );
        let found = reader.read::<Id>("ids that are there twice", &twice, &[]).await;
        reader.facts.duplicates = found.into_iter().map(|row| row.id).collect();
    }
    if let Some(leaf) = shape.leaves.iter().find(|leaf| leaf.bound.as_deref() == Some("DEFAULT")) {
        let leaf = leaf.table().quoted();
        let count = format!(
            "SELECT count(*) AS count FROM (SELECT FROM ONLY {leaf} LIMIT {ROWS_LOOKED_AT}) s"
        );
        let rows = reader.read::<Count>("the default partition", &count, &[]).await;
        reader.facts.default_rows = rows.first().map_or(0, |row| row.count);
    }
}

async fn read_companion(reader: &mut Reader<'_>, config: &Config) {
    let held = reader.facts.privileges.as_ref();
    if held.is_none_or(|held| held.companion_tables < 2 || !held.may_remember) {
        return;
    }
    let label = label(config, reader.facts.shape.as_ref());
    reader.facts.failures = reader.read("failures", sql::FAILURES, &[&label]).await;
    reader.facts.known_slots = reader.read("slots of relays", sql::KNOWN_SLOTS, &[]).await;
}

/// As `relay_failures.outbox` has it.
pub(super) fn label(config: &Config, shape: Option<&Shape>) -> String {
    match (&config.source, shape) {
        (Source::Messages { slot, prefix, .. }, _) => format!("{slot}/{prefix}"),
        (Source::Poll | Source::Wal { .. }, Some(shape)) => shape.label(),
        (Source::Poll | Source::Wal { .. }, None) => config.mapping.table.to_string(),
    }
}
