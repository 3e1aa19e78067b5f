//! What the database remembers of slots, and what it says of them.

use tokio_postgres::Client;

use crate::config::{Config, Source};
use crate::error::Error;
use crate::io::postgres::{database, words};
use crate::lsn::Lsn;
use crate::progress::{Partial, Reached};
use crate::slot::{self, Found, History, Recorded, Server};
use crate::sql::{COMPANION, Table, literal, quoted};

/// The class of advisory locks that keep two relays from using one slot.
const LOCK_CLASS: i32 = 777_340_106;
/// From CommitTime to a timestamp and back.
const EPOCH: &str = "timestamptz '2000-01-01 00:00:00+00'";

/// The names of a slot.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) slot: String,
    pub(super) publication: String,
    /// As `relay_failures.outbox` has it.
    pub(super) outbox: String,
    /// The table's oid. Messages have none.
    pub(super) table: Option<u32>,
    /// As what it was published at the start; see [`published`].
    pub(super) published: Option<String>,
}

/// Takes the right to use the slot, until this connection ends; false: another relay has it.
pub(super) async fn lock(client: &Client, slot: &str) -> Result<bool, Error> {
    let sql = "SELECT pg_try_advisory_lock($1, hashtext($2))";
    let row = client.query_one(sql, &[&LOCK_CLASS, &slot]).await;
    Ok(row.map_err(|error| database("locking the slot", &error))?.get(0))
}

/// Who has that right, or reads the slot, in words. None: nobody can be seen.
pub(super) async fn holder(client: &Client, slot: &str) -> Result<Option<String>, Error> {
    let sql = "SELECT format('%s, pid %s%s', coalesce(nullif(a.application_name, ''), 'a session'), a.pid, \
                 coalesce(', from ' || host(a.client_addr), '')) FROM pg_stat_activity a \
               WHERE a.pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted \
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                 AND classid = $1::int4::oid AND objid = (hashtext($2)::int8 & 4294967295)::oid \
                 UNION ALL SELECT active_pid FROM pg_replication_slots WHERE slot_name = $2) \
               ORDER BY a.backend_start LIMIT 1";
    let row = client.query_opt(sql, &[&LOCK_CLASS, &slot]).await;
    let row = row.map_err(|error| database("asking who uses the slot", &error))?;
    Ok(row.map(|row| row.get(0)))
}

/// Gives the slot its name where nobody has: that of before, if there is one here.
pub(super) async fn name_slot(client: &Client, config: &mut Config) -> Result<(), Error> {
    let (Source::Wal { slot, .. } | Source::Messages { slot, .. }) = &mut config.source else {
        return Ok(());
    };
    if !config.has_default_slot {
        return Ok(());
    }
    let source_name = config.source_name.as_deref();
    let failed = |error: tokio_postgres::Error| database("looking for the slot", &error);
    let sql = "SELECT current_database()::text, EXISTS (SELECT FROM pg_replication_slots \
                 WHERE slot_name = $1 AND database = current_database())";
    let row = client.query_one(sql, &[&slot::OLD_DEFAULT]).await.map_err(failed)?;
    // What a relay without names has made is not taken by a source with one.
    let mut is_old = source_name.is_none() && row.get::<_, bool>(1);
    let name: String = row.get(0);
    if source_name.is_none() && !is_old {
        let sql = "SELECT FROM millrace.relay_slots WHERE slot = $1";
        match client.query_opt(sql, &[&slot::OLD_DEFAULT]).await {
            Ok(row) => is_old = row.is_some(),
            // There is no such table yet, or it may not be looked into: whatever needs it says so.
            Err(error)
                if error
                    .code()
                    .is_some_and(|code| ["42P01", "3F000", "42501"].contains(&code.code())) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    *slot = match source_name {
        Some(source) => slot::source_name(&name, source),
        None if is_old => slot::OLD_DEFAULT.into(),
        None => slot::default_name(&name),
    };
    config.has_default_slot = false;
    Ok(())
}

/// What was written about the slot.
pub(super) async fn recorded(client: &Client, slot: &str) -> Result<Option<Recorded>, Error> {
    let sql = format!(
        "SELECT confirmed_lsn::text, outbox, confirmed_at::text, \
           (extract(epoch FROM last_commit_at - {EPOCH}) * 1000000)::int8, \
           partial_commit::text, partial_below::text, system_id, timeline, lost, published \
         FROM millrace.relay_slots WHERE slot = $1"
    );
    let row = client
        .query_opt(&sql, &[&slot])
        .await
        .map_err(|error| database("reading millrace.relay_slots", &error))?;
    Ok(row.map(|row| Recorded {
        confirmed: lsn(row.get(0)),
        outbox: row.get(1),
        confirmed_at: row.get(2),
        last_commit: row.get(3),
        partial: lsn(row.get(4))
            .zip(lsn(row.get(5)))
            .map(|(commit, below)| Partial { commit, below }),
        history: Option::zip(row.get(6), row.get(7))
            .map(|(system, timeline)| History { system, timeline }),
        lost: row.get(8),
        published: row.get(9),
    }))
}

/// Which server this is, and how far its log is durable.
pub(super) async fn server(client: &Client) -> Result<Server, Error> {
    let failed = |error: tokio_postgres::Error| database("asking which server it is", &error);
    let is_standby = "SELECT pg_is_in_recovery()";
    if client.query_one(is_standby, &[]).await.map_err(failed)?.get(0) {
        return Err(Error::Database {
            doing: "asking which server it is".into(),
            text: "it is a standby: nothing can be written there until it is promoted".into(),
            is_temporary: true,
        });
    }
    // A name of a file of the log begins with its timeline; the control file knows a new one only after a checkpoint.
    let sql = "SELECT (SELECT system_identifier::text FROM pg_control_system()), \
                 ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int4, \
                 pg_current_wal_flush_lsn()::text";
    let row = client.query_one(sql, &[]).await.map_err(failed)?;
    Ok(Server {
        history: History { system: row.get(0), timeline: row.get(1) },
        flushed: lsn(row.get(2)).unwrap_or_default(),
    })
}

/// Another slot that reads the same outbox. Their failures are called by the outbox alone.
pub(super) async fn rival(client: &Client, names: &Names) -> Result<Option<String>, Error> {
    let sql = "SELECT k.slot FROM millrace.relay_slots k JOIN pg_replication_slots s ON s.slot_name = k.slot \
               WHERE k.outbox = $1 AND k.slot <> $2 ORDER BY k.slot LIMIT 1";
    let row = client.query_opt(sql, &[&names.outbox, &names.slot]).await;
    let row = row.map_err(|error| database("looking for other slots", &error))?;
    Ok(row.map(|row| row.get(0)))
}

/// What the server says of the slot.
pub(super) async fn found(client: &Client, slot: &str) -> Result<Option<Found>, Error> {
    let sql = "SELECT plugin::text, coalesce(database = current_database(), false), active, wal_status, \
                 confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1";
    let row = client
        .query_opt(sql, &[&slot])
        .await
        .map_err(|error| database("looking for the slot", &error))?;
    Ok(row.map(|row| Found {
        plugin: row.get(0),
        is_of_this_database: row.get(1),
        is_active: row.get(2),
        wal_status: row.get(3),
        confirmed: lsn(row.get(4)),
    }))
}

fn lsn(text: Option<String>) -> Option<Lsn> {
    text.and_then(|text| text.parse().ok())
}

/// Writes down that the slot is begun: before it is made, and until the table was read. If not `keeps`, what was done
/// before is forgotten, and all of the table is read.
pub(super) async fn begin(client: &Client, names: &Names, keeps: bool) -> Result<(), Error> {
    let sql = "INSERT INTO millrace.relay_slots (slot, outbox, publication, published) VALUES ($1, $2, $3, $5) \
               ON CONFLICT (slot) DO UPDATE SET confirmed_lsn = NULL, partial_commit = NULL, \
               partial_below = NULL, publication = excluded.publication, published = excluded.published, \
               last_commit_at = CASE WHEN $4 THEN relay_slots.last_commit_at END";
    client
        .execute(sql, &[&names.slot, &names.outbox, &names.publication, &keeps, &names.published])
        .await
        .map(drop)
        .map_err(|error| database("writing millrace.relay_slots", &error))
}

/// Writes down as what the table is published, for a relay of before that did not.
pub(super) async fn note_published(client: &Client, names: &Names) -> Result<(), Error> {
    client
        .execute(
            "UPDATE millrace.relay_slots SET published = $2 WHERE slot = $1",
            &[&names.slot, &names.published],
        )
        .await
        .map(drop)
        .map_err(|error| database("writing millrace.relay_slots", &error))
}

/// As what inserts into the table are published: another text once anything of it was dropped and made anew. None: they
/// are not. A publication of all tables, or of a schema's, has no entry for this one.
pub(super) async fn published(client: &Client, names: &Names) -> Result<Option<String>, Error> {
    let Some(table) = names.table else { return Ok(None) };
    let sql = "SELECT p.oid || '/' || coalesce(r.oid, 0) || '/' || $2::oid FROM pg_publication p \
               LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = $2::oid \
               WHERE p.pubname = $1 AND p.pubinsert AND (r.oid IS NOT NULL \
                 OR EXISTS (SELECT FROM pg_get_publication_tables(p.pubname) t WHERE t.relid = $2::oid))";
    let row = client.query_opt(sql, &[&names.publication, &table]).await;
    let row = row.map_err(|error| database("looking at the publication", &error))?;
    Ok(row.map(|row| row.get(0)))
}

/// Writes down why the slot cannot be read on. It stays so until another is made.
pub(super) async fn note_lost(client: &Client, slot: &str, text: &str) -> Result<(), Error> {
    client
        .execute("UPDATE millrace.relay_slots SET lost = $2 WHERE slot = $1", &[&slot, &text])
        .await
        .map(drop)
        .map_err(|error| database("writing millrace.relay_slots", &error))
}

/// Makes the slot. It waits for transactions that are open now.
pub(super) async fn make(client: &Client, slot: &str) -> Result<(), Error> {
    let sql = "UPDATE millrace.relay_slots SET lost = NULL WHERE slot = $1";
    let forgotten = client.execute(sql, &[&slot]).await;
    forgotten.map_err(|error| database("writing millrace.relay_slots", &error))?;
    tracing::info!(slot, "making the replication slot (this waits for open transactions)");
    client
        .execute("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", &[&slot])
        .await
        .map(drop)
        .map_err(|error| match error.code().map(|code| code.code()) {
            Some("42501" | "53400" | "55000" | "0A000") => {
                Error::setup(format!("replication slot `{slot}` cannot be made: {}", words(&error)))
            }
            _ => database("making the replication slot", &error),
        })
}

/// Removes the slot.
pub(super) async fn remove(client: &Client, slot: &str) -> Result<(), Error> {
    client
        .execute("SELECT pg_drop_replication_slot($1)", &[&slot])
        .await
        .map(drop)
        .map_err(|error| database("removing the old replication slot", &error))
}

/// Writes down how far the log is done.
pub(super) async fn confirm(
    client: &Client,
    slot: &str,
    reached: Reached,
    history: &History,
) -> Result<(), Error> {
    let sql = format!(
        "UPDATE millrace.relay_slots SET confirmed_lsn = $2::text::pg_lsn, confirmed_at = now(), \
           last_commit_at = coalesce({EPOCH} + $3::int8 * interval '1 microsecond', last_commit_at), \
           partial_commit = $4::text::pg_lsn, partial_below = $5::text::pg_lsn, system_id = $6, timeline = $7 \
         WHERE slot = $1"
    );
    let Reached { confirmed, last_commit, partial } = reached;
    let last_commit = last_commit.map(|at| at.0);
    let partial = partial.map(|partial| (partial.commit.to_string(), partial.below.to_string()));
    let (commit, below) = partial.unzip();
    let History { system, timeline } = history;
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
        [&slot, &confirmed.to_string(), &last_commit, &commit, &below, system, timeline];
    let written = client
        .execute(&sql, &parameters)
        .await
        .map_err(|error| database("writing millrace.relay_slots", &error))?;
    if written == 0 {
        return Err(Error::setup(format!(
            "millrace.relay_slots has lost its row of slot `{slot}`: somebody removed it while this relay runs"
        )));
    }
    Ok(())
}

/// Bytes of log that the slot keeps, and its state.
pub(super) async fn lag(client: &Client, slot: &str) -> Result<Option<(i64, String)>, Error> {
    let sql = "SELECT coalesce(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), confirmed_flush_lsn), 0)::int8, \
                 coalesce(wal_status, '') FROM pg_replication_slots WHERE slot_name = $1";
    let row = client.query_opt(sql, &[&slot]).await;
    let row = row.map_err(|error| database("looking at the slot", &error))?;
    Ok(row.map(|row| (row.get(0), row.get(1))))
}

/// Adds what the schema of an older relay lacks.
async fn complete_companion(client: &Client) -> Result<(), Error> {
    let sql = "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('millrace.relay_slots') \
                 AND attname IN ('partial_commit', 'partial_below', 'system_id', 'timeline', 'lost', 'published')";
    let row = client.query_one(sql, &[]).await;
    let count: i64 =
        row.map_err(|error| database("looking at the schema millrace", &error))?.get(0);
    if count == 6 {
        return Ok(());
    }
    client.batch_execute(COMPANION).await.map_err(|error| {
        Error::setup(format!(
            "millrace.relay_slots lacks columns of this version: {}. Let its owner run `millrace relay install`",
            words(&error)
        ))
    })
}

/// Checks what logical replication needs, and makes the publication if it is not there.
pub(super) async fn prepare(
    client: &Client,
    names: &Names,
    table: Option<&Table>,
) -> Result<(), Error> {
    complete_companion(client).await?;
    let failed = |error: tokio_postgres::Error| database("checking the publication", &error);
    let level: String = client.query_one("SHOW wal_level", &[]).await.map_err(failed)?.get(0);
    if level != "logical" {
        return Err(Error::setup(format!(
            "wal_level is {level}: reading the log needs ALTER SYSTEM SET wal_level = logical and a restart of \
             PostgreSQL (or use the poll source)"
        )));
    }
    let publication = &names.publication;
    let sql = "SELECT pubinsert, pubviaroot FROM pg_publication WHERE pubname = $1";
    let Some(row) = client.query_opt(sql, &[publication]).await.map_err(failed)? else {
        return make_publication(client, publication, table).await;
    };
    let Some(table) = table else { return Ok(()) };
    let name = quoted(publication);
    if !row.get::<_, bool>(0) {
        return Err(Error::setup(format!(
            "publication `{publication}` leaves inserts out: ALTER PUBLICATION {name} SET (publish = 'insert')"
        )));
    }
    if !table.is_plain && !row.get::<_, bool>(1) {
        return Err(Error::setup(format!(
            "{} is partitioned: ALTER PUBLICATION {name} SET (publish_via_partition_root = true)",
            table.name
        )));
    }
    let sql = "SELECT FROM pg_publication_tables WHERE pubname = $1 AND schemaname = $2 AND tablename = $3";
    let of: (&str, &str) = (table.name.schema.as_deref().unwrap_or("public"), &table.name.name);
    if client.query_opt(sql, &[publication, &of.0, &of.1]).await.map_err(failed)?.is_none() {
        return Err(Error::setup(format!(
            "publication `{publication}` does not publish {}: ALTER PUBLICATION {name} ADD TABLE {}",
            table.name,
            table.name.quoted()
        )));
    }
    Ok(())
}

async fn make_publication(
    client: &Client,
    publication: &str,
    table: Option<&Table>,
) -> Result<(), Error> {
    let of = table.map_or_else(String::new, |table| format!("FOR TABLE {}", table.name.quoted()));
    let sql = format!(
        "CREATE PUBLICATION {} {of} WITH (publish = {}, publish_via_partition_root = true)",
        quoted(publication),
        literal("insert")
    );
    client.batch_execute(&sql).await.map_err(|error| {
        Error::setup(format!(
            "publication `{publication}` is not there and cannot be made: {}. Let its owner run: {sql}",
            words(&error)
        ))
    })
}
