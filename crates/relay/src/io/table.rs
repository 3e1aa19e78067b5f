//! What the database says of the outbox table, and the companion schema.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::postgres::database;
use crate::error::Error;
use crate::mapping::{Mapping, TableName};
use crate::sql::{COMPANION, Table};

/// Finds the table and checks that every column the mapping names is there.
///
/// # Errors
/// It is not there, or lacks columns: each is named.
pub async fn find_table(client: &Client, mapping: &Mapping) -> Result<Table, Error> {
    let failed = |error: tokio_postgres::Error| database("looking for the outbox table", &error);
    let row = client
        .query_opt(
            "SELECT c.oid, n.nspname::text, c.relname::text, \
               c.relkind = 'r' AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid), \
               EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attisdropped), \
               c.relkind = 'v' \
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE c.oid = to_regclass($1)",
            &[&mapping.table.quoted()],
        )
        .await
        .map_err(failed)?;
    let Some(row) = row else {
        return Err(Error::setup(format!(
            "there is no table {} in the database: `millrace relay install` makes it, or name another \
             with --table",
            mapping.table
        )));
    };
    let oid: u32 = row.get(0);
    let columns = client
        .query(
            "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute \
             WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            &[&oid],
        )
        .await
        .map_err(failed)?;
    let columns: Vec<(String, String)> =
        columns.iter().map(|row| (row.get(0), row.get(1))).collect();
    let name = TableName { schema: Some(row.get(1)), name: row.get(2) };
    let mut wanted = mapping.layout().columns;
    wanted.extend(mapping.processed.clone());
    wanted.extend(mapping.error.clone());
    wanted.retain(|column| columns.iter().all(|(name, _)| name != column));
    if !wanted.is_empty() {
        let has: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        return Err(Error::setup(format!(
            "table {name} has no column {}: it has {}. Choose a preset or name columns that are there",
            wanted.join(", "),
            has.join(", ")
        )));
    }
    let (is_plain, has_dropped, is_view) = (row.get(3), row.get(4), row.get(5));
    Ok(Table { name, oid, columns, is_plain, has_dropped, is_view })
}

/// Makes the schema `millrace` if it is not there.
///
/// # Errors
/// It is not there and this user may not make it: what to do is said.
pub async fn prepare_companion(client: &Client) -> Result<(), Error> {
    let failed = |error: tokio_postgres::Error| database("making the schema millrace", &error);
    let is_there = "SELECT to_regclass('millrace.relay_failures') IS NOT NULL \
                    AND to_regclass('millrace.relay_slots') IS NOT NULL";
    let is_there: bool = match client.query_one(is_there, &[]).await {
        Ok(row) => row.get(0),
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            return Err(Error::setup(format!(
                "ask the owner of the outbox to run `millrace relay install --grant-to ROLE` for this role: {}",
                super::postgres::words(&error)
            )));
        }
        Err(error) => return Err(failed(error)),
    };
    if is_there {
        return Ok(());
    }
    // Two relays may start at the same time: IF NOT EXISTS alone does not keep them apart.
    let sql = format!("BEGIN; SELECT pg_advisory_xact_lock(777340105); {COMPANION} COMMIT;");
    client.batch_execute(&sql).await.map_err(|error| {
        Error::setup(format!(
            "the schema `millrace` (where failures are kept) cannot be made: {}. Let somebody who may \
             create schemas run `millrace relay install` once",
            super::postgres::words(&error)
        ))
    })
}

/// Rows that a policy hides from this role are as if they were not there: nobody else would say so.
///
/// # Errors
/// The database cannot be asked.
pub(super) async fn warn_of_row_security(client: &Client, table: &Table) -> Result<(), Error> {
    let sql = "SELECT row_security_active($1::oid)";
    let row = client.query_one(sql, &[&table.oid]).await;
    if row.map_err(|error| database("looking at row-level security", &error))?.get(0) {
        tracing::warn!(
            table = %table.name,
            "row-level security applies to this role: rows that no policy shows it are not published. Give the role \
             BYPASSRLS, or a policy that shows it every row"
        );
    }
    Ok(())
}
