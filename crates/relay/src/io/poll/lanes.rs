//! A worker's lanes: session-level advisory locks, so that a dead worker's are free at once.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio_postgres::Client;

use super::Shared;
use crate::config::Order;
use crate::error::Error;
use crate::io::postgres::database;
use crate::lanes;

/// How often lanes are looked after.
const EVERY: Duration = Duration::from_secs(1);
/// How often, while there are none.
const EVERY_WITHOUT: Duration = Duration::from_millis(200);
/// Every worker holds this one plus the number of lanes, shared: so they can be counted, and relays that count their
/// lanes differently find each other.
const PRESENCE: i32 = 1_000_000;

/// The lanes that this worker holds on its connection.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    owned: BTreeSet<i32>,
    next: Option<Instant>,
    list: Vec<i32>,
    is_present: bool,
}

impl Lanes {
    /// What a fetch is limited to: none is no limit.
    pub(super) fn limit(&self, shared: &Shared) -> Option<&[i32]> {
        let is_all = self.owned.len() == shared.config.lane_count() as usize;
        (shared.config.order != Order::None && !is_all).then_some(&self.list)
    }

    /// There is something this worker may fetch.
    pub(super) fn has_some(&self, shared: &Shared) -> bool {
        shared.config.order == Order::None || !self.owned.is_empty()
    }

    /// When they are to be looked after; never, without an order.
    pub(super) fn deadline(&self, shared: &Shared) -> Option<Instant> {
        match shared.config.order {
            Order::None => None,
            Order::Key | Order::Strict => Some(self.next.unwrap_or_else(Instant::now)),
        }
    }

    /// Takes and gives up lanes, between batches. Says whether some were taken.
    pub(super) async fn keep(
        &mut self,
        shared: &Shared,
        client: &Client,
        number: u32,
    ) -> Result<bool, Error> {
        self.keep_in_order(shared, client, number)
            .await
            .map_err(|error| database("taking lanes", &error))?
            .map_err(Error::setup)
    }

    /// Gives all of them up.
    pub(super) async fn give_up(&mut self, client: &Client) -> Result<(), tokio_postgres::Error> {
        if self.is_present {
            client.execute("SELECT pg_advisory_unlock_all()", &[]).await?;
            *self = Self::default();
        }
        Ok(())
    }

    async fn keep_in_order(
        &mut self,
        shared: &Shared,
        client: &Client,
        number: u32,
    ) -> Result<Result<bool, String>, tokio_postgres::Error> {
        let is_due = self.deadline(shared).is_some_and(|due| due <= Instant::now());
        if !is_due {
            return Ok(Ok(false));
        }
        let presence = PRESENCE + shared.config.lane_count() as i32;
        // The table's own number makes the class of the locks.
        let class = shared.table.oid as i32;
        let is_new = !self.is_present;
        if is_new {
            client.execute("SELECT pg_advisory_lock_shared($1, $2)", &[&class, &presence]).await?;
        }
        let rows = client
            .query(
                "SELECT objid::int8 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 \
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                 AND classid = ($1::int4::int8 & 4294967295)::oid AND granted",
                &[&class],
            )
            .await?;
        let numbers: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        let other = |number: &i64| *number >= i64::from(PRESENCE) && *number != i64::from(presence);
        // Whoever comes later looks, and leaves.
        if let (true, Some(other)) = (is_new, numbers.iter().copied().find(other)) {
            client.execute("SELECT pg_advisory_unlock_all()", &[]).await?;
            return Ok(Err(format!(
                "another relay keeps the order of {} with {} lanes, this one with {}: rows of a key would be in two \
                 hands. Stop it first, or use the same --order and --lanes",
                shared.table.label(),
                other - i64::from(PRESENCE),
                shared.config.lane_count()
            )));
        }
        self.is_present = true;
        let is_presence = |number: &&i64| **number == i64::from(presence);
        let workers = numbers.iter().filter(is_presence).count() as u32;
        let held: BTreeSet<i32> =
            numbers.iter().filter_map(|&number| i32::try_from(number).ok()).collect();
        let total = shared.config.lane_count();
        let start = std::process::id().wrapping_mul(31).wrapping_add(number * 17);
        let plan = lanes::plan(&self.owned, &held, total, workers, start);
        for lane in &plan.release {
            client.execute("SELECT pg_advisory_unlock($1, $2)", &[&class, lane]).await?;
            self.owned.remove(lane);
        }
        let mut has_taken = false;
        for lane in &plan.take {
            let row =
                client.query_one("SELECT pg_try_advisory_lock($1, $2)", &[&class, lane]).await?;
            if row.get(0) {
                self.owned.insert(*lane);
                has_taken = true;
            }
        }
        if has_taken || !plan.release.is_empty() {
            let (worker, buckets) = (number, self.owned.len());
            tracing::info!(worker, "the worker owns {buckets} of {total} buckets");
        }
        self.list = self.owned.iter().copied().collect();
        self.next =
            Some(Instant::now() + if self.owned.is_empty() { EVERY_WITHOUT } else { EVERY });
        Ok(Ok(has_taken))
    }
}
