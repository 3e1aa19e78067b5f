//! A relay of any source, and polling, from whichever database the URL names.

use tokio::sync::watch;

use super::{mysql, poll, run_slot};
use crate::config::{Config, Source};
use crate::error::Error;
use crate::metrics::Metrics;
use crate::mysql::is_mysql;

/// Publishes what is committed until `stop` says so.
///
/// # Errors
/// As [`run_poll`] and [`run_slot`].
pub async fn run(
    config: Config,
    metrics: Metrics,
    stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    match config.source {
        Source::Poll => run_poll(config, metrics, stop).await,
        Source::Wal { .. } | Source::Messages { .. } => run_slot(config, metrics, stop).await,
    }
}

/// Drains the table until `stop` says so.
///
/// # Errors
/// What is wrong at the start (settings, table, privileges, database or broker not there), and what turns up later
/// that no waiting can mend. Losses after the start are waited out.
pub async fn run_poll(
    config: Config,
    metrics: Metrics,
    stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    let problems = config.problems();
    if !problems.is_empty() {
        return Err(Error::setup(problems.join("; ")));
    }
    match is_mysql(&config.database) {
        true => mysql::run_poll(config, metrics, stop).await,
        false => poll::run_poll(config, metrics, stop).await,
    }
}
