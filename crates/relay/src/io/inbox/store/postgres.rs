//! The table in PostgreSQL: one prepared statement that stores a batch and commits it.

use std::sync::Arc;

use tokio_postgres::{Client, Statement};

use super::{Failed, no_inbox, no_table};
use crate::error::Error;
use crate::inbox::{Config, Row, Statements};
use crate::io::postgres::{Database, database, is_of_a_row, words};

/// A connection on which the batch's statement is prepared.
#[derive(Clone)]
pub(in crate::io::inbox) struct Postgres {
    client: Arc<Client>,
    statement: Statement,
    consumer: String,
}

impl Postgres {
    /// Connects, makes the table if that is wanted, and prepares.
    pub(super) async fn open(place: &Database, config: &Config) -> Result<Self, Error> {
        let statements = Statements::new(&config.table);
        let client = place.connect("millrace-relay-inbox").await?;
        if config.install {
            client
                .batch_execute(&statements.install)
                .await
                .map_err(|error| database(&format!("making table {}", config.table), &error))?;
        }
        let statement = client.prepare(&statements.store).await.map_err(|error| {
            let code = error.code().map(|code| code.code().to_owned());
            match code.as_deref() {
                Some("42P01") => no_table(config),
                Some("42703" | "42P10") => no_inbox(config, &words(&error)),
                _ => database(&format!("preparing for table {}", config.table), &error),
            }
        })?;
        Ok(Self { client: Arc::new(client), statement, consumer: config.consumer.clone() })
    }

    /// Stores the rows; says how many were not there before. When this says so, they are committed.
    pub(super) async fn insert(&self, rows: &[Row]) -> Result<u64, Failed> {
        let ids: Vec<&str> = rows.iter().map(|row| row.message_id.as_str()).collect();
        let keys: Vec<Option<&str>> = rows.iter().map(|row| row.key.as_deref()).collect();
        let kinds: Vec<Option<&str>> = rows.iter().map(|row| row.kind.as_deref()).collect();
        let headers: Vec<Option<&str>> = rows.iter().map(|row| row.headers.as_deref()).collect();
        let others: Vec<Option<&str>> = rows.iter().map(|row| row.properties.as_deref()).collect();
        let payloads: Vec<&[u8]> = rows.iter().map(|row| &row.payload[..]).collect();
        let errors: Vec<Option<&str>> = rows.iter().map(|row| row.error.as_deref()).collect();
        self.client
            .execute(
                &self.statement,
                &[&self.consumer, &ids, &keys, &kinds, &headers, &others, &payloads, &errors],
            )
            .await
            .map_err(|error| {
                let why = words(&error);
                if is_of_a_row(&error) { Failed::Refused { why } } else { Failed::Lost { why } }
            })
    }
}
