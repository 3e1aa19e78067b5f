//! The table of system 1: made, filled, and looked at from outside while somebody drains it.

use tokio_postgres::Client;

use super::steps::Index;
use crate::chaos::Failure;
use crate::postgres;

/// System 1's table, unchanged.
const CREATE: &str = "DROP TABLE IF EXISTS outbox_messages; \
     CREATE TABLE outbox_messages (id uuid PRIMARY KEY, type varchar(255) NOT NULL, \
     content jsonb NOT NULL, occurred_on_utc timestamptz NOT NULL, \
     processed_on_utc timestamptz NULL, error text NULL)";
/// An event of about 250 bytes; `n` is the number of its row.
pub const CONTENT: &str = "jsonb_build_object('orderId', gen_random_uuid(), 'customerId', n % 10007, \
     'totalCents', n * 7 % 100000, 'currency', 'EUR', 'placedAt', '2026-11-21T12:00:00.000Z', \
     'note', repeat(md5(n::text), 2), 'lines', jsonb_build_array( \
     jsonb_build_object('sku', 'SKU-' || n % 997, 'count', 1 + n % 5)))";
/// One of these for a row.
pub const TYPE: &str = "(ARRAY['OrderCreated','OrderPaid','OrderShipped'])[1 + n % 3]";
/// How many rows the application commits at once.
const ROWS_PER_COMMIT: u64 = 100;

/// The table and a connection to look at it.
pub struct Table {
    client: Client,
}

impl Table {
    pub async fn open(url: &str) -> Result<Self, Failure> {
        Ok(Self { client: connect(url).await? })
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// An empty table with this index.
    pub async fn make(&self, index: Index) -> Result<(), Failure> {
        self.execute(CREATE).await?;
        self.execute(index.create()).await
    }

    /// Many short transactions, as an application writes them; they need not wait for the disk.
    pub async fn fill(&self, rows: u64) -> Result<(), Failure> {
        let insert = format!(
            "INSERT INTO outbox_messages (id, type, content, occurred_on_utc) \
             SELECT gen_random_uuid(), {TYPE}, {CONTENT}, \
             clock_timestamp() FROM generate_series(k, least(k + {ROWS_PER_COMMIT}, {rows}) - 1) n"
        );
        self.in_transactions(rows, &insert).await
    }

    /// Runs a statement for every hundred numbers below `rows`, each time in a transaction of its own, the first
    /// of the numbers in `k`.
    pub async fn in_transactions(&self, rows: u64, statement: &str) -> Result<(), Failure> {
        self.execute("SET synchronous_commit = off").await?;
        self.execute(&format!(
            "DO $$ DECLARE k bigint := 0; BEGIN WHILE k < {rows} LOOP \
             {statement}; COMMIT; k := k + {ROWS_PER_COMMIT}; END LOOP; END $$"
        ))
        .await?;
        self.execute("SET synchronous_commit = on").await
    }

    /// Statistics, hints and the visibility map as they are in a table that has lived for a while.
    pub async fn settle(&self) -> Result<(), Failure> {
        self.execute("VACUUM ANALYZE outbox_messages").await
    }

    pub async fn unprocessed(&self) -> Result<u64, Failure> {
        self.number("SELECT count(*) FROM outbox_messages WHERE processed_on_utc IS NULL").await
    }

    /// Where the log of the database ends, in bytes.
    pub async fn wal_position(&self) -> Result<u64, Failure> {
        self.number("SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint").await
    }

    /// The process from which all others of the database descend: the parent of the one that serves us.
    pub async fn postmaster(&self) -> Result<u32, Failure> {
        let mine = self.number("SELECT pg_backend_pid()::bigint").await?;
        let pid = u32::try_from(mine).ok().and_then(super::usage::parent);
        pid.ok_or_else(|| {
            Failure::Trial(format!("the database's process {mine} is not on this machine"))
        })
    }

    pub async fn execute(&self, sql: &str) -> Result<(), Failure> {
        self.client.batch_execute(sql).await.map_err(|error| failed(&error, sql))
    }

    /// The one number that a query gives.
    pub async fn number(&self, sql: &str) -> Result<u64, Failure> {
        let row = self.client.query_one(sql, &[]).await.map_err(|error| failed(&error, sql))?;
        let number: i64 = row.try_get(0).map_err(|error| failed(&error, sql))?;
        u64::try_from(number).map_err(|_| Failure::Trial(format!("{sql}: {number}")))
    }
}

pub async fn connect(url: &str) -> Result<Client, Failure> {
    postgres::connect(url).await.map_err(|error| failed(&error, url))
}

/// What the database said, and to what.
pub fn failed(error: &tokio_postgres::Error, what: &str) -> Failure {
    let said = error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string);
    let short: String = what.chars().take(120).collect();
    Failure::Trial(format!("PostgreSQL: {said} ({short})"))
}
