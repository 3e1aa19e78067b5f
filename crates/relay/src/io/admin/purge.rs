//! Deletes old rows step by step, each step a short transaction; or whole partitions.

use std::time::{Duration, Instant};

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::doctor::label;
use super::read_shape;
use crate::admin::ids::{is_among, is_id};
use crate::admin::install::{archive_of, partitions};
use crate::admin::purge::{Purge, Purged, Scope, Walk, condition, delete, keeps_any};
use crate::admin::{Leaf, Shape};
use crate::config::{Config, OnDead, Order, Source};
use crate::error::Error;
use crate::io::postgres::database;
use crate::mapping::TableName;
use crate::sql::{literal, quoted};

/// How long a confirmed place in the log is waited for.
const CONFIRM_WAIT: Duration = Duration::from_secs(20);
const CONFIRM_PAUSE: Duration = Duration::from_millis(200);
/// A partition is dropped under a lock that stops everybody: rather give up and be run again.
const DROP_LOCK_TIMEOUT: &str = "2s";
/// What is looked at once more under that lock may take so long.
const DROP_LOOK_TIMEOUT: &str = "5s";

/// What both kinds of purge need to know.
struct Old {
    shape: Shape,
    label: String,
    /// As text, the parameters of the condition.
    cutoff: String,
    cutoff_seconds: i64,
    settled: Option<String>,
}

/// Deletes the rows of `purge`, batch by batch; `told` hears how far it is.
///
/// # Errors
/// There are no such rows under this configuration, or a statement fails: what was told is done.
pub(super) async fn purge(
    client: &Client,
    config: &Config,
    purge: &Purge,
    mut told: impl FnMut(&Purged),
) -> Result<Purged, Error> {
    let old = look(client, config, purge).await?;
    if purge.scope == Scope::Dead {
        return purge_dead(client, config, purge, &old, told).await;
    }
    let is_old = |row| condition(config, purge.scope, &old.label, row).map_err(Error::setup);
    let (inner, outer) = (is_old("c")?, is_old("o")?);
    let begun = Instant::now();
    let mut done = Purged::default();
    for leaf in &old.shape.leaves {
        let heap = leaf.table();
        let sql = delete(&inner, &outer, &heap);
        let statement =
            client.prepare(&sql).await.map_err(|error| database("preparing to delete", &error))?;
        let mut walk = Walk::over(blocks(client, &heap).await?);
        let before = done.blocks;
        let batch = i64::from(purge.batch);
        while let Some((from, to)) = walk.range() {
            let (from, to) =
                (format!("({from},0)"), format!("({},0)", to.min(u64::from(u32::MAX))));
            let rows = client
                .execute(&statement, &[&old.cutoff, &old.settled, &from, &to, &batch])
                .await
                .map_err(|error| database(&format!("deleting old rows of {heap}"), &error))?;
            walk.step(rows, purge.batch);
            done.rows += rows;
            let (walked, all) = walk.progress();
            done.blocks = (before.0 + walked, before.1 + all);
            told(&done);
            if rows > 0 {
                tokio::time::sleep(purge.wait(done.rows, begun.elapsed())).await;
            }
        }
    }
    Ok(done)
}

async fn blocks(client: &Client, heap: &TableName) -> Result<u64, Error> {
    let sql = "SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::int8";
    let row = client.query_one(sql, &[&heap.quoted()]).await;
    let blocks: i64 = row.map_err(|error| database("measuring the table", &error))?.get(0);
    Ok(u64::try_from(blocks).unwrap_or(0))
}

async fn look(client: &Client, config: &Config, purge: &Purge) -> Result<Old, Error> {
    let name = &config.mapping.table;
    let absent = |name: &TableName| {
        Error::setup(format!("there is no table {name}: name another with --table"))
    };
    let mut shape = Shape::default();
    if !matches!(config.source, Source::Messages { .. }) {
        shape = read_shape(client, name).await?.ok_or_else(|| absent(name))?;
    }
    let label = label(config, Some(&shape));
    if purge.scope == Scope::Archived {
        let archive = archive_of(&shape.table());
        shape = read_shape(client, &archive).await?.ok_or_else(|| absent(&archive))?;
    }
    let sql = "SELECT c.at::text, extract(epoch FROM c.at)::int8 FROM (SELECT now() - $1::float8 * interval '1 second' AS at) c";
    let row = client.query_one(sql, &[&purge.older_than.as_secs_f64()]).await;
    let row = row.map_err(|error| database("asking for the time", &error))?;
    let mut settled = None;
    if purge.scope == Scope::Processed && matches!(config.source, Source::Wal { .. }) {
        settled = Some(wait_for_slots(client, &label).await?);
    }
    Ok(Old { shape, label, cutoff: row.get(0), cutoff_seconds: row.get(1), settled })
}

/// A transaction id before which everything that was committed is published: all older ones were over at a place in the
/// log that every slot of this outbox has confirmed.
pub(super) async fn wait_for_slots(client: &Client, label: &str) -> Result<String, Error> {
    let doing = "asking what the slot has confirmed";
    let failed = |error: tokio_postgres::Error| database(doing, &error);
    let sql =
        "SELECT pg_snapshot_xmin(pg_current_snapshot())::text, pg_current_wal_insert_lsn()::text";
    let row = client.query_one(sql, &[]).await.map_err(failed)?;
    let (xmin, lsn): (String, String) = (row.get(0), row.get(1));
    // Something to confirm, where nothing else is written.
    let nudge = "SELECT pg_logical_emit_message(true, 'millrace-relay-purge', '')::text";
    client.query_one(nudge, &[]).await.map_err(failed)?;
    let begun = Instant::now();
    loop {
        // The slot's word alone is not enough: one that was made a moment ago stands behind rows that nobody has
        // published yet. The relay's own is there once it has read the table.
        let sql = "SELECT count(*) > 0 AND bool_and(coalesce(s.confirmed_flush_lsn >= $2::text::pg_lsn \
                     AND k.confirmed_lsn >= $2::text::pg_lsn, false)) \
                   FROM millrace.relay_slots k LEFT JOIN pg_replication_slots s ON s.slot_name = k.slot \
                   WHERE k.outbox = $1::text";
        let is_confirmed: bool =
            client.query_one(sql, &[&label, &lsn]).await.map_err(failed)?.get(0);
        if is_confirmed {
            // Transaction ids in rows have 32 bits.
            let xid = xmin.parse::<u64>().unwrap_or(0) & u64::from(u32::MAX);
            return Ok(xid.to_string());
        }
        if begun.elapsed() > CONFIRM_WAIT {
            return Err(Error::setup(format!(
                "the relay of {label} has not confirmed {lsn} within {CONFIRM_WAIT:?}: nothing says that the rows were \
                 published. Is `millrace relay run` running, and through with reading the table? See `millrace relay \
                 status`"
            )));
        }
        tokio::time::sleep(CONFIRM_PAUSE).await;
    }
}

/// Statements for dead rows.
struct Graves {
    /// Takes failures out, at most so many: each row's id and key.
    failures: &'static str,
    /// Deletes the rows of these ids that are dead; None: they are in no table.
    rows: Option<String>,
    /// How many of these keys have no failure left.
    free: &'static str,
}

impl Graves {
    fn of(config: &Config, old: &Old) -> Self {
        let mapping = &config.mapping;
        let failures = "DELETE FROM millrace.relay_failures f WHERE f.outbox = $1::text AND f.row_id = ANY(ARRAY( \
              SELECT row_id FROM millrace.relay_failures WHERE outbox = $1::text AND dead_at < $2::text::timestamptz \
              LIMIT $3::int8 FOR UPDATE SKIP LOCKED)) \
            AND f.dead_at IS NOT NULL AND f.dead_at < $2::text::timestamptz RETURNING f.row_id, f.key";
        // A dead row has its mark; one without a mark of its own still waits.
        let buried = match (&mapping.processed_value, &mapping.dead_value, &mapping.processed) {
            (Some(_), Some(dead), Some(processed)) => {
                Some(format!("o.{} = {}", quoted(processed), literal(dead)))
            }
            (Some(_), None, _) => Some(mapping.is_pending("o")),
            (None, _, _) | (Some(_), Some(_), None) => mapping.is_marked("o"),
        };
        let buried = buried.filter(|_| config.source == Source::Poll);
        let rows = buried.map(|buried| {
            let kind = old.shape.column(&mapping.id).map_or("text", |column| column.kind.as_str());
            let id = format!("o.{}", quoted(&mapping.id));
            format!(
                "DELETE FROM {} o WHERE {} AND {buried}",
                old.shape.table().quoted(),
                is_among(&id, kind, "$1")
            )
        });
        let free = "SELECT count(*) FROM (SELECT DISTINCT k FROM unnest($2::text[]) k) d WHERE NOT EXISTS (SELECT FROM \
            millrace.relay_failures f WHERE f.outbox = $1::text AND f.key = d.k)";
        Self { failures, rows, free }
    }

    /// One transaction: how many failures went, and how many keys go on.
    async fn purge(
        &self,
        client: &Client,
        old: &Old,
        batch: i64,
    ) -> Result<(u64, u64), tokio_postgres::Error> {
        client.batch_execute("BEGIN").await?;
        let gone = client.query(self.failures, &[&old.label, &old.cutoff, &batch]).await?;
        let ids: Vec<&str> = gone.iter().map(|row| row.get(0)).collect();
        let keys: Vec<&str> = gone.iter().filter_map(|row| row.get(1)).collect();
        if let Some(rows) = self.rows.as_ref().filter(|_| !ids.is_empty()) {
            client.execute(rows, &[&ids]).await?;
        }
        let free: i64 = client.query_one(self.free, &[&old.label, &keys]).await?.get(0);
        client.batch_execute("COMMIT").await?;
        Ok((gone.len() as u64, free.unsigned_abs()))
    }
}

/// Dead rows and their failures go together.
async fn purge_dead(
    client: &Client,
    config: &Config,
    purge: &Purge,
    old: &Old,
    mut told: impl FnMut(&Purged),
) -> Result<Purged, Error> {
    let graves = Graves::of(config, old);
    let begun = Instant::now();
    let mut done = Purged::default();
    loop {
        let (rows, keys) = match graves.purge(client, old, i64::from(purge.batch)).await {
            Ok(counts) => counts,
            Err(error) => {
                let _ = client.batch_execute("ROLLBACK").await;
                return Err(database("deleting dead rows", &error));
            }
        };
        done.rows += rows;
        if config.order != Order::None && config.on_dead == OnDead::Block {
            done.keys += keys;
        }
        told(&done);
        if rows == 0 {
            return Ok(done);
        }
        tokio::time::sleep(purge.wait(done.rows, begun.elapsed())).await;
    }
}

/// Drops partitions that end before the cutoff and hold nothing but old rows; `told` hears of each.
///
/// # Errors
/// As [`purge`].
pub(super) async fn drop_partitions(
    client: &Client,
    config: &Config,
    purge: &Purge,
    mut told: impl FnMut(&Purged),
) -> Result<Purged, Error> {
    let old = look(client, config, purge).await?;
    if !old.shape.is_partitioned() {
        return Err(Error::setup(format!(
            "{} is not partitioned: leave --drop-partitions out, and rows are deleted",
            old.label
        )));
    }
    let condition = condition(config, purge.scope, &old.label, "o").map_err(Error::setup)?;
    let mut done = Purged::default();
    for leaf in &old.shape.leaves {
        let end = leaf.bound.as_deref().and_then(partitions::range).map(|(_, to)| to);
        if end.is_none_or(|end| end > old.cutoff_seconds) {
            continue;
        }
        match drop_one(client, config, &old, leaf, &condition).await? {
            None => done.partitions.push(leaf.name.clone()),
            Some(why) => done.kept.push((leaf.name.clone(), why)),
        }
        told(&done);
    }
    Ok(done)
}

/// None: it is dropped. Else why not.
async fn drop_one(
    client: &Client,
    config: &Config,
    old: &Old,
    leaf: &Leaf,
    condition: &str,
) -> Result<Option<String>, Error> {
    let heap = leaf.table();
    let failed = |error: tokio_postgres::Error| database(&format!("dropping {heap}"), &error);
    let keeps = keeps_any(condition, &heap);
    let held = || Some("it holds rows that are not processed, dead, or too young".to_owned());
    // Without a lock first: this may read all of it.
    if client.query_one(&keeps, &[&old.cutoff, &old.settled]).await.map_err(failed)?.get(0) {
        return Ok(held());
    }
    let parent = old.shape.table().quoted();
    let name = heap.quoted();
    let busy = || Some(format!("it was in use for {DROP_LOCK_TIMEOUT}: run it again"));
    let again = still_pending(config, old, &heap).unwrap_or(keeps);
    match drop_locked(client, old, &again, &parent, &name).await {
        Ok(true) => Ok(None),
        Ok(false) => Ok(held()),
        Err(error) => {
            client.batch_execute("ROLLBACK").await.map_err(failed)?;
            match error.code() {
                Some(&SqlState::LOCK_NOT_AVAILABLE | &SqlState::QUERY_CANCELED) => Ok(busy()),
                Some(_) | None => Err(failed(error)),
            }
        }
    }
}

/// Rows may have come before the lock did. Where they are marked, those that were processed meanwhile are no loss, so an
/// index answers.
fn still_pending(config: &Config, old: &Old, heap: &TableName) -> Option<String> {
    config.mapping.processed.as_ref().filter(|_| config.source == Source::Poll)?;
    let id = &config.mapping.id;
    let kind = &old.shape.column(id)?.kind;
    let heap = heap.quoted();
    let is_failed = is_id(&format!("o.{}", quoted(id)), kind, "f.row_id");
    Some(format!(
        "SELECT EXISTS (SELECT FROM ONLY {heap} o WHERE {}) OR EXISTS (SELECT FROM \
           millrace.relay_failures f JOIN {heap} o ON {is_failed} WHERE f.outbox = {} \
           AND coalesce($1::text, $2::text, '') IS NOT NULL)",
        config.mapping.is_pending("o"),
        literal(&old.label)
    ))
}

/// Whether it was dropped; the transaction is open only after an error.
async fn drop_locked(
    client: &Client,
    old: &Old,
    again: &str,
    parent: &str,
    name: &str,
) -> Result<bool, tokio_postgres::Error> {
    let lock = format!(
        "BEGIN; SET LOCAL lock_timeout = '{DROP_LOCK_TIMEOUT}'; SET LOCAL statement_timeout = '{DROP_LOOK_TIMEOUT}'; \
         LOCK TABLE ONLY {parent} IN ACCESS EXCLUSIVE MODE; LOCK TABLE ONLY {name} IN ACCESS EXCLUSIVE MODE"
    );
    client.batch_execute(&lock).await?;
    if client.query_one(again, &[&old.cutoff, &old.settled]).await?.get(0) {
        client.batch_execute("ROLLBACK").await?;
        return Ok(false);
    }
    client.batch_execute(&format!("DROP TABLE {name}; COMMIT")).await?;
    Ok(true)
}
