//! What PostgreSQL knows: the tables of a trial, and which transactions committed in which order.
//!
//! Every transaction writes its number into a journal, and a replication slot of the trial's own tells the
//! journal's rows in the order of their commits. That is also the truth about commits whose answer was lost.

use tokio_postgres::{Client, Error};

use super::history::{Failed, Id};

/// Where the relay takes rows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Source {
    Poll,
    Wal,
    /// `pg_logical_emit_message`: no table.
    Messages,
}

/// What the messages of [`Source::Messages`] are emitted under.
pub const PREFIX: &str = "outbox";

impl Source {
    /// Writes one row: id, type, content, key, headers.
    pub(super) fn insert(self) -> &'static str {
        match self {
            Self::Poll | Self::Wal => {
                "INSERT INTO outbox_messages (id, type, content, occurred_on_utc, aggregate, headers)
                 VALUES ($1::text::uuid, $2, $3::text::jsonb, clock_timestamp(), $4, $5::text::jsonb)"
            }
            Self::Messages => {
                "SELECT pg_logical_emit_message(true, 'outbox', jsonb_build_object(
                     'id', $1::text, 'type', $2::text, 'content', $3::text::jsonb,
                     'occurred_on_utc', clock_timestamp(), 'aggregate', $4::text, 'headers', $5::text::jsonb)::text)"
            }
        }
    }
}

/// The outbox of system 1 with a key, headers and a number; aggregates to lock; a journal.
const TABLES: &str = "
    CREATE TABLE outbox_messages (
        id uuid PRIMARY KEY,
        type varchar(255) NOT NULL,
        content jsonb NOT NULL,
        occurred_on_utc timestamptz NOT NULL,
        processed_on_utc timestamptz,
        error text,
        aggregate text,
        headers jsonb,
        seq bigint GENERATED ALWAYS AS IDENTITY
    );
    CREATE INDEX outbox_messages_open ON outbox_messages (seq) WHERE processed_on_utc IS NULL;
    CREATE TABLE outbox_messages_archive (LIKE outbox_messages);
    CREATE TABLE aggregates (key bigint PRIMARY KEY, turn bigint NOT NULL DEFAULT 0);
    CREATE TABLE journal (transaction bigint PRIMARY KEY);
    CREATE PUBLICATION journal FOR TABLE journal WITH (publish = 'insert');
";

/// Makes the tables, and the slot whose name is `slot`.
pub async fn prepare(
    client: &Client,
    slot: &str,
    keys: impl Iterator<Item = u32>,
) -> Result<(), Error> {
    client.batch_execute(TABLES).await?;
    let keys: Vec<i64> = keys.map(i64::from).collect();
    client.execute("INSERT INTO aggregates SELECT unnest($1::bigint[])", &[&keys]).await?;
    let make = "SELECT pg_create_logical_replication_slot($1, 'pgoutput')";
    client.execute(make, &[&slot]).await?;
    Ok(())
}

/// Numbers of the transactions that committed, in that order.
pub async fn commits(client: &Client, slot: &str) -> Result<Vec<usize>, Error> {
    let peek = "SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL,
                'proto_version', '1', 'publication_names', 'journal')";
    let changes = client.query(peek, &[&slot]).await?;
    Ok(changes.iter().filter_map(|row| inserted(row.get(0))).collect())
}

/// The number in the first column of an insert: `I`, relation, `N`, columns, `t`, length, text.
fn inserted(change: &[u8]) -> Option<usize> {
    let column = change.strip_prefix(b"I")?.get(4..)?.strip_prefix(b"N")?.get(2..)?;
    let (length, text) = column.strip_prefix(b"t")?.split_first_chunk::<4>()?;
    let text = text.get(..u32::from_be_bytes(*length) as usize)?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// What the relay has not published, by its own account.
pub async fn failed(client: &Client) -> Result<Vec<Failed>, Error> {
    let there = client.query_one("SELECT to_regclass('millrace.relay_failures') IS NOT NULL", &[]);
    if !there.await?.get::<_, bool>(0) {
        return Ok(Vec::new());
    }
    let all = "SELECT row_id, reason, attempts, dead_at IS NOT NULL FROM millrace.relay_failures
               WHERE reason <> 'waiting' ORDER BY row_id";
    let rows = client.query(all, &[]).await?;
    let failed = rows.iter().filter_map(|row| {
        let id = Id::read(row.get(0))?;
        let attempts = row.get::<_, i32>(2).unsigned_abs();
        Some(Failed { id, reason: row.get(1), attempts, is_dead: row.get(3) })
    });
    Ok(failed.collect())
}

/// Rows of the outbox that are not marked.
pub async fn unmarked(client: &Client) -> Result<Vec<Id>, Error> {
    let open = "SELECT id::text FROM outbox_messages WHERE processed_on_utc IS NULL";
    let rows = client.query(open, &[]).await?;
    Ok(rows.iter().filter_map(|row| Id::read(row.get(0))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_an_insert_is_read_and_other_changes_have_none() {
        let insert = b"I\0\0\x40\x01N\0\x01t\0\0\0\x0242";
        assert_eq!(inserted(insert), Some(42));
        assert_eq!(inserted(b"C\0"), None);
        assert_eq!(inserted(&insert[..10]), None);
        assert_eq!(inserted(b""), None);
    }
}
