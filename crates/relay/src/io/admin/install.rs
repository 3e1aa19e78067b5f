//! Finds out what is there, and runs what a plan has left to do.

use tokio_postgres::Client;

use super::{ask, ask_one, read_shape};
use crate::admin::install::{
    Found, Plan, READ_PUBLICATION, READ_SERVER, Server, Step, Wanted, archive_of,
};
use crate::config::{OnSuccess, Source};
use crate::error::Error;
use crate::io::postgres::database;

/// DDL waits for running statements, and every writer waits behind it: rather give up and be run again.
const LOCK_TIMEOUT: &str = "5s";

/// What is there.
///
/// # Errors
/// The database cannot be asked.
pub(super) async fn find(client: &Client, wanted: &Wanted) -> Result<Found, Error> {
    let config = &wanted.config;
    let mut server: Server = ask_one(client, "looking at the server", READ_SERVER, &[]).await?;
    let table = read_shape(client, &config.mapping.table).await?;
    let mut archive = None;
    if let Some(shape) = &table {
        let sql = format!("SELECT EXISTS (SELECT FROM {}) AS has_rows", shape.table().quoted());
        let row = client.query_one(&sql, &[]).await;
        server.has_rows = row.map_err(|error| database("looking for rows", &error))?.get(0);
        if config.on_success == OnSuccess::Archive {
            archive = read_shape(client, &archive_of(&shape.table())).await?;
        }
    }
    let publication = match &config.source {
        Source::Poll => None,
        Source::Wal { publication, .. } | Source::Messages { publication, .. } => {
            let oid = table.as_ref().map_or(0, |shape| shape.oid);
            let doing = "looking at the publication";
            ask(client, doing, READ_PUBLICATION, &[publication, &oid]).await?.pop()
        }
    };
    Ok(Found { table, archive, publication, server })
}

/// Runs the steps of `plan`: the first part as one transaction, the others one by one. `told` hears of each before it
/// runs.
///
/// # Errors
/// A statement fails; those of the transaction are undone then, and the same plan can be made again.
pub(super) async fn install(
    client: &Client,
    plan: &Plan,
    mut told: impl FnMut(&Step),
) -> Result<(), Error> {
    let (together, alone) = plan.parts();
    if !together.is_empty() {
        run(client, &format!("BEGIN; SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"), "beginning")
            .await?;
        for step in together {
            told(step);
            if let Err(error) = run(client, &step.sql, &step.why).await {
                let _ = client.batch_execute("ROLLBACK").await;
                return Err(error);
            }
        }
        run(client, "COMMIT", "committing").await?;
    }
    for step in alone {
        told(step);
        run(client, &step.sql, &step.why).await?;
    }
    Ok(())
}

async fn run(client: &Client, sql: &str, why: &str) -> Result<(), Error> {
    client.batch_execute(sql).await.map_err(|error| database(why, &error))
}
