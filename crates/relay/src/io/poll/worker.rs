//! One worker: keeps its two connections, and gives its core what happened.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_postgres::Client;

use super::lanes::Lanes;
use super::publishing::Publishing;
use super::{Prepared, Shared, monitor};
use crate::config::Order;
use crate::error::Error;
use crate::io::postgres::database;
use crate::poll::{Input, Output};

/// Plans go along the order of the index, whatever the statistics of a queue-like table say; without one, from the head
/// of the table.
const PLANS: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; \
    SET synchronize_seqscans = off";
/// The database takes rows and lanes from a relay that is frozen this long after its batch's deadline, twice. One
/// that lives touches its session every second.
const FROZEN_MS: u128 = 5_000;
const FROZEN_MIN_MS: u128 = 20_000;

/// A worker between batches.
pub(super) struct Task {
    pub(super) shared: Arc<Shared>,
    pub(super) at: Publishing,
    pub(super) lanes: Lanes,
    pub(super) prepared: Prepared,
    pub(super) largest: usize,
}

/// Runs worker `number` until it is stopped.
pub(super) async fn run(
    shared: Arc<Shared>,
    number: u32,
    stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    let mut task = Task {
        at: Publishing::new(&shared.config, &shared.metrics, number, stop),
        lanes: Lanes::default(),
        prepared: Prepared::default(),
        largest: 0,
        shared: Arc::clone(&shared),
    };
    let result = task.run().await;
    task.at.leave().await;
    result
}

impl Task {
    async fn run(&mut self) -> Result<(), Error> {
        let mut attempt = 0;
        loop {
            let error = match self.connect().await {
                Ok(mut client) => match self.drain(&mut client, &mut attempt).await {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if !error.is_temporary() {
                return Err(error);
            }
            self.shared.metrics.released.inc();
            self.at.lose_database();
            (self.lanes, self.prepared) = (Lanes::default(), Prepared::default());
            if self.at.is_told_to_stop() || self.at.pause(&error, attempt).await {
                return Ok(());
            }
            attempt = attempt.saturating_add(1);
        }
    }

    async fn connect(&mut self) -> Result<Client, Error> {
        let name = format!("millrace-relay-worker-{}", self.at.number);
        let client = self.shared.database.connect(&name).await?;
        let deadline = self.shared.config.batch_deadline.as_millis();
        // A live worker may be connecting to its broker meanwhile.
        let frozen = (deadline * 2 + FROZEN_MS).max(FROZEN_MIN_MS);
        let mut sql = format!("{PLANS}; SET idle_in_transaction_session_timeout = {frozen}");
        if self.shared.config.order != Order::None {
            // What follows a row that somebody else has locked must not pass it: it is waited for, but not for ever.
            sql += &format!("; SET idle_session_timeout = {frozen}; SET lock_timeout = {deadline}");
        }
        client.batch_execute(&sql).await.map_err(|error| database("setting up", &error))?;
        Ok(client)
    }

    /// Works until it is stopped (Ok) or the database fails.
    async fn drain(&mut self, client: &mut Client, attempt: &mut u32) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        loop {
            if self.at.is_told_to_stop() {
                self.at.step(Input::Stop);
            } else {
                self.at.connect().await;
                self.keep_lanes(client).await?;
                self.at.look(&shared.late);
                if self.lanes.has_some(&shared) {
                    self.at.step(Input::Time);
                }
            }
            match self.at.out.pop() {
                Some(Output::Fetch) => {
                    self.batch(client).await?;
                    *attempt = 0;
                }
                Some(Output::Stopped) => return Ok(()),
                Some(_) => unreachable!("between batches there is nothing else to do"),
                None => {
                    let (has_lanes, due) =
                        (self.lanes.has_some(&shared), self.lanes.deadline(&shared));
                    self.at.wait(has_lanes, due, &shared.nudge).await;
                }
            }
        }
    }

    async fn keep_lanes(&mut self, client: &Client) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let failed = |error: tokio_postgres::Error| database("taking lanes", &error);
        if self.at.is_away() {
            // A relay that reaches its broker may take them over.
            return self.lanes.give_up(client).await.map_err(failed);
        }
        if self.lanes.keep(&shared, client, self.at.number).await? {
            // What the last holder wrote down must be known before the first fetch.
            monitor::read_failures(&shared, client).await.map_err(failed)?;
        }
        Ok(())
    }
}
