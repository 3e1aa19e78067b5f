//! Runs what `admin` says, over a connection of its own.
//!
//! Answers come as one JSON array for a statement. Nothing here keeps a transaction open while it waits for a
//! person or sleeps.

mod doctor;
mod install;
mod purge;
mod replay;
mod session;
mod status;

use serde::de::DeserializeOwned;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

pub use crate::admin::purge::Purged;
pub use crate::admin::replay::{Counted, Replayed};
pub use session::{Replay, Session};

use replay::{ago, time};
use status::look;

use doctor::examine;
use install::{find, install};
use purge::{drop_partitions, purge};

use super::postgres::database;
use crate::admin::Shape;
use crate::admin::shape::READ_SHAPE;
use crate::error::Error;
use crate::mapping::TableName;

/// Parameters of a statement.
type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The answer of `sql`, row by row.
async fn ask<T: DeserializeOwned>(
    client: &Client,
    doing: &str,
    sql: &str,
    parameters: Parameters<'_>,
) -> Result<Vec<T>, Error> {
    let sql = format!("SELECT coalesce(json_agg(q), '[]')::text FROM ({sql}) q");
    let row = client.query_one(&sql, parameters).await.map_err(|error| database(doing, &error))?;
    let text: &str = row.get(0);
    serde_json::from_str(text).map_err(|error| Error::Database {
        doing: doing.into(),
        text: format!("an answer that is not understood ({error}): {text}"),
        is_temporary: false,
    })
}

/// The same, where there is one row.
async fn ask_one<T: DeserializeOwned>(
    client: &Client,
    doing: &str,
    sql: &str,
    parameters: Parameters<'_>,
) -> Result<T, Error> {
    let mut rows = ask(client, doing, sql, parameters).await?;
    rows.pop().ok_or_else(|| Error::Database {
        doing: doing.into(),
        text: "no answer where there is always one".into(),
        is_temporary: false,
    })
}

/// How the table `name` is. None: it is not there.
pub(super) async fn read_shape(client: &Client, name: &TableName) -> Result<Option<Shape>, Error> {
    let doing = "looking at the table";
    let mut shapes = ask(client, doing, READ_SHAPE, &[&name.quoted()]).await?;
    Ok(shapes.pop())
}
