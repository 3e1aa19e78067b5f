//! Reads how an outbox stands.

use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::doctor::label;
use super::{ask, read_shape};
use crate::admin::Shape;
use crate::admin::doctor::{Failure, KnownSlot, Pending, sql};
use crate::admin::status::{
    BACKLOG_EXACT_MAX, Backlog, READ_BLOCKED_KEYS, READ_RELAYS, Status, backlog, estimate,
    plan_rows,
};
use crate::config::{Config, Source};
use crate::error::Error;
use crate::io::postgres::database;

/// Counting may take so long; then an estimate is told.
const COUNT_TIMEOUT: Duration = Duration::from_secs(5);

/// Looks at all of it; changes nothing.
///
/// # Errors
/// The database cannot be asked, or has no such table.
pub(super) async fn look(client: &Client, config: &Config) -> Result<Status, Error> {
    let mut status = Status::default();
    let mut shape = None;
    if !matches!(config.source, Source::Messages { .. }) {
        shape = read_shape(client, &config.mapping.table).await?;
        let Some(shape) = &shape else {
            return Err(Error::setup(format!(
                "there is no table {}: `millrace relay install` makes it, or name another with --table",
                config.mapping.table
            )));
        };
        if config.source == Source::Poll {
            status.backlog = Some(count(client, config, shape).await?);
        }
    }
    let label = label(config, shape.as_ref());
    status.relays = ask(client, "looking for relays", READ_RELAYS, &[]).await?;
    if has_companion(client).await? {
        let failures = ask::<Failure>(client, "reading failures", sql::FAILURES, &[&label]).await?;
        status.failures = failures.into_iter().map(Into::into).collect();
        status.blocked_keys =
            ask(client, "reading blocked keys", READ_BLOCKED_KEYS, &[&label]).await?;
        let slots = ask::<KnownSlot>(client, "reading slots", sql::KNOWN_SLOTS, &[]).await?;
        let own = slots.into_iter().filter(|slot| slot.outbox == label);
        status.slots = own.map(Into::into).collect();
    }
    status.outbox = label;
    Ok(status)
}

async fn has_companion(client: &Client) -> Result<bool, Error> {
    let sql = "SELECT count(*) = 2 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
               WHERE n.nspname = 'millrace' AND c.relname IN ('relay_failures', 'relay_slots')";
    let row = client.query_one(sql, &[]).await;
    Ok(row.map_err(|error| database("looking for the schema millrace", &error))?.get(0))
}

async fn count(client: &Client, config: &Config, shape: &Shape) -> Result<Backlog, Error> {
    let doing = "counting rows that wait";
    let failed = |error: &tokio_postgres::Error| database(doing, error);
    let timeout =
        format!("BEGIN READ ONLY; SET LOCAL statement_timeout = {}", COUNT_TIMEOUT.as_millis());
    client.batch_execute(&timeout).await.map_err(|error| failed(&error))?;
    let counted =
        client.query_one(&backlog(&config.mapping, shape, BACKLOG_EXACT_MAX + 1), &[]).await;
    client.batch_execute("ROLLBACK").await.map_err(|error| failed(&error))?;
    let pending = match counted {
        Ok(row) => Pending { rows: row.get(0), oldest_seconds: row.get(1) },
        Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {
            Pending { rows: i64::MAX, oldest_seconds: None }
        }
        Err(error) => return Err(failed(&error)),
    };
    if pending.rows <= BACKLOG_EXACT_MAX {
        let Pending { rows, oldest_seconds } = pending;
        return Ok(Backlog { rows, is_exact: true, oldest_seconds, per_second: None });
    }
    let explained = client.query_one(&estimate(&config.mapping, shape), &[]).await;
    let explained: serde_json::Value = match explained {
        Ok(row) => row.get::<_, Json>(0).0,
        Err(error) => return Err(failed(&error)),
    };
    let rows = plan_rows(&explained.to_string()).unwrap_or(0);
    // The planner may not know yet what was counted past.
    let least = if pending.rows == i64::MAX { 0 } else { pending.rows };
    Ok(Backlog {
        rows: rows.max(least),
        is_exact: false,
        oldest_seconds: pending.oldest_seconds,
        per_second: None,
    })
}

/// EXPLAIN's answer has the type json, which is read as text.
struct Json(serde_json::Value);

impl<'a> tokio_postgres::types::FromSql<'a> for Json {
    fn from_sql(
        _: &tokio_postgres::types::Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(serde_json::from_slice(raw)?))
    }

    fn accepts(kind: &tokio_postgres::types::Type) -> bool {
        *kind == tokio_postgres::types::Type::JSON
    }
}
