//! A worker's lanes: locks that live in its session (`GET_LOCK`), so that a dead worker's are free at once.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use super::connection::database;
use super::seats::{Names, SEATS, holders, run, sit_down};
use super::shared::Shared;
use crate::config::Order;
use crate::error::Error;
use crate::lanes;
use crate::limits::LANES_MAX;

/// How often lanes are looked after.
const EVERY: Duration = Duration::from_secs(1);
/// How often, while there are none.
const EVERY_WITHOUT: Duration = Duration::from_millis(200);

/// The lanes that this worker holds on its connection.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    owned: BTreeSet<i32>,
    next: Option<Instant>,
    is_present: bool,
}

impl Lanes {
    /// What a fetch is limited to: none is no limit.
    pub(super) fn limit(&self, shared: &Shared) -> Option<Vec<u32>> {
        let is_all = self.owned.len() == shared.config.lane_count() as usize;
        let list = || self.owned.iter().map(|lane| lane.unsigned_abs()).collect();
        (shared.config.order != Order::None && !is_all).then(list)
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

    /// Gives all of them up.
    pub(super) async fn give_up(&mut self, conn: &mut Conn) -> Result<(), Error> {
        if self.is_present {
            let released = conn.query_drop("DO RELEASE_ALL_LOCKS()").await;
            released.map_err(|error| database("giving lanes up", &error))?;
            *self = Self::default();
        }
        Ok(())
    }

    /// Takes and gives up lanes, between batches. Says whether some were taken.
    pub(super) async fn keep(
        &mut self,
        shared: &Shared,
        conn: &mut Conn,
        number: u32,
    ) -> Result<bool, Error> {
        let names = Names::of(&shared.statements.label(), &shared.config);
        let start = std::process::id().wrapping_mul(31).wrapping_add(number * 17) % 10_000;
        if !self.is_present {
            self.sit_down(shared, conn, &names, start).await?;
        }
        if self.deadline(shared).is_none_or(|due| due > Instant::now()) {
            return Ok(false);
        }
        let total = names.lanes;
        let wanted: Vec<String> = (0..SEATS)
            .map(|seat| names.seat(total, seat))
            .chain((0..total).map(|lane| names.lane(lane as i32)))
            .collect();
        let held = holders(conn, &wanted).await?;
        let (seats, lanes) = held.split_at(SEATS as usize);
        let workers = seats.iter().flatten().count() as u32;
        let held: BTreeSet<i32> =
            (0..).zip(lanes).filter(|(_, holder)| holder.is_some()).map(|(lane, _)| lane).collect();
        let plan = lanes::plan(&self.owned, &held, total, workers, start);
        for lane in &plan.release {
            run(conn, "RELEASE_LOCK(?)", &names.lane(*lane)).await?;
            self.owned.remove(lane);
        }
        let mut has_taken = false;
        for lane in &plan.take {
            if run(conn, "GET_LOCK(?, 0)", &names.lane(*lane)).await? {
                self.owned.insert(*lane);
                has_taken = true;
            }
        }
        if has_taken || !plan.release.is_empty() {
            let (worker, buckets) = (number, self.owned.len());
            tracing::info!(worker, "the worker owns {buckets} of {total} buckets");
        }
        let every = if self.owned.is_empty() { EVERY_WITHOUT } else { EVERY };
        self.next = Some(Instant::now() + every);
        Ok(has_taken)
    }

    /// Takes a seat; under an order, if no relay that counts its lanes differently has one.
    async fn sit_down(
        &mut self,
        shared: &Shared,
        conn: &mut Conn,
        names: &Names,
        start: u32,
    ) -> Result<(), Error> {
        let is_seated = sit_down(conn, names, start).await?;
        self.is_present = true;
        if shared.config.order == Order::None {
            // Who has no seat is not shown by `status`, and works.
            return Ok(());
        }
        let mut other = None;
        for lanes in (0..=LANES_MAX.ilog2()).map(|power| 1 << power) {
            if lanes == names.lanes {
                continue;
            }
            let seats: Vec<String> = (0..SEATS).map(|seat| names.seat(lanes, seat)).collect();
            if holders(conn, &seats).await?.iter().any(Option::is_some) {
                other = Some(lanes);
            }
        }
        // Whoever comes later looks, and leaves.
        if let Some(other) = other {
            return Err(Error::setup(format!(
                "another relay keeps the order of {} with {other} lanes, this one with {}: rows of a key would be in two \
                 hands. Stop it first, or use the same --order and --lanes",
                shared.statements.label(),
                names.lanes
            )));
        }
        if !is_seated {
            return Err(Error::setup(format!(
                "{SEATS} workers keep the order of {} already: that is as many as there may be",
                shared.statements.label()
            )));
        }
        Ok(())
    }
}
