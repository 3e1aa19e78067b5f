//! A relay of any source, from whichever database the URL names.

use tokio::sync::watch;

use super::slot::{Resynced, Since};
use super::{mysql, poll, slot};
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

/// Publishes what is committed, from the database's log, until `stop` says so.
///
/// # Errors
/// What is wrong at the start, or no waiting can mend; [`Error::SlotLost`] where changes may be missing.
pub async fn run_slot(
    config: Config,
    metrics: Metrics,
    stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    match is_mysql(&config.database) {
        true => mysql::run_log(config, metrics, stop).await,
        false => slot::run_slot(config, metrics, stop).await,
    }
}

/// Publishes the rows of the table again, and makes a place in the log from which the next relay reads.
///
/// # Errors
/// As [`run_slot`]; a relay is running.
pub async fn resync(
    config: Config,
    metrics: Metrics,
    since: Since,
    stop: watch::Receiver<bool>,
) -> Result<Resynced, Error> {
    match is_mysql(&config.database) {
        true => mysql::resync_log(config, metrics, since, stop).await,
        false => slot::resync(config, metrics, since, stop).await,
    }
}
