//! Beside the workers: what is left to do, and notifications.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::{AsyncMessage, Client};

use super::Shared;
use crate::error::Error;
use crate::io::postgres::database;

/// Rows that are counted; more are told as this many.
const BACKLOG_MAX: i64 = 100_000;
const FAILURES_EVERY: Duration = Duration::from_secs(1);
const BACKLOG_EVERY: Duration = Duration::from_secs(2);
const RECONNECT_EVERY: Duration = Duration::from_secs(1);

/// Keeps an eye on failures and the backlog, for ever.
pub(super) async fn watch_table(shared: Arc<Shared>) {
    loop {
        if let Err(error) = watch_once(&shared).await {
            tracing::debug!(%error, "cannot look at the backlog");
        }
        tokio::time::sleep(RECONNECT_EVERY).await;
    }
}

async fn watch_once(shared: &Shared) -> Result<(), Error> {
    let client = shared.database.connect("millrace-relay-monitor").await?;
    let mut backlog_due = Instant::now();
    loop {
        read_failures(shared, &client)
            .await
            .map_err(|error| database("counting failures", &error))?;
        if Instant::now() >= backlog_due {
            let start = Instant::now();
            let row = client
                .query_one(&shared.statements.backlog(), &[&BACKLOG_MAX])
                .await
                .map_err(|error| database("counting the backlog", &error))?;
            shared.metrics.backlog.set(row.get(0));
            shared.metrics.oldest_age.set(row.get::<_, Option<f64>>(1).unwrap_or(0.0));
            // Counting must never be what the database is busy with.
            backlog_due = Instant::now() + BACKLOG_EVERY.max(start.elapsed() * 50);
        }
        tokio::time::sleep(FAILURES_EVERY).await;
    }
}

/// Asks what has failed, for fetches and for the screen.
pub(super) async fn read_failures(
    shared: &Shared,
    client: &Client,
) -> Result<(), tokio_postgres::Error> {
    let asked = shared.failures.ask();
    let row = client.query_one(&shared.statements.failures(), &[]).await?;
    let (parked, dead): (i64, i64) = (row.get(0), row.get(1));
    shared.failures.answered(asked, parked + dead > 0);
    shared.metrics.parked.set(parked);
    shared.metrics.dead_now.set(dead);
    Ok(())
}

/// Wakes the workers whenever the channel of `--listen` speaks; ends at once without one.
pub(super) async fn listen(shared: Arc<Shared>) {
    let Some(channel) = shared.config.listen.clone() else { return };
    loop {
        if let Err(error) = listen_once(&shared, &channel).await {
            tracing::warn!(%error, channel, "cannot listen for notifications; polling goes on");
        }
        tokio::time::sleep(RECONNECT_EVERY).await;
    }
}

async fn listen_once(shared: &Shared, channel: &str) -> Result<(), Error> {
    let (client, mut messages) = shared.database.connect_to_listen().await?;
    let listen = format!("LISTEN {}", crate::sql::quoted(channel));
    let driver = async {
        loop {
            match poll_fn(|context| messages.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(_))) => shared.nudge.notify_waiters(),
                Some(Ok(_)) => (),
                Some(Err(error)) => return Err(database("listening", &error)),
                None => return Ok(()),
            }
        }
    };
    let listening = async {
        client.batch_execute(&listen).await.map_err(|error| database("LISTEN", &error))?;
        // Whatever was said before is seen by looking.
        shared.nudge.notify_waiters();
        std::future::pending::<Result<(), Error>>().await
    };
    tokio::select! {
        ended = driver => ended,
        failed = listening => failed,
    }
}
