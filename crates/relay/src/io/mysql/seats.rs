//! Seats of workers: a lock of each worker's session, so that others see how many there are. Sessions have no names here,
//! and locks (`GET_LOCK`) cannot be shared.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};

use super::connection::{database, number, text};
use crate::config::{Config, Order};
use crate::error::Error;
use crate::mysql::sql::hex;

/// Workers of one table at most, of all relays together.
pub(super) const SEATS: u32 = 128;

/// Names of locks: they are the server's, so the table's name is in them. They have room for 64 characters.
pub(super) struct Names {
    prefix: String,
    /// None are kept without an order.
    pub(super) lanes: u32,
}

impl Names {
    pub(super) fn of(label: &str, config: &Config) -> Self {
        use sha2::Digest as _;
        let hash = sha2::Sha256::digest(label.to_lowercase().as_bytes());
        let lanes = if config.order == Order::None { 0 } else { config.lane_count() };
        Self { prefix: format!("millrace:{}", hex(&hash[..12])), lanes }
    }

    pub(super) fn lane(&self, lane: i32) -> String {
        format!("{}:{}:{lane}", self.prefix, self.lanes)
    }

    /// A seat among workers that keep so many lanes.
    pub(super) fn seat(&self, lanes: u32, seat: u32) -> String {
        format!("{}:{lanes}:w{seat}", self.prefix)
    }
}

/// Takes or releases a lock. Says whether it did.
pub(super) async fn run(conn: &mut Conn, call: &str, name: &str) -> Result<bool, Error> {
    let answer: Option<Row> = conn
        .exec_first(format!("SELECT {call}"), (name,))
        .await
        .map_err(|error| database("taking a lock", &error))?;
    Ok(answer.and_then(|mut row| text(row.take(0))).is_some_and(|told| told == "1"))
}

/// The session that holds each of these locks.
pub(super) async fn holders(conn: &mut Conn, names: &[String]) -> Result<Vec<Option<u64>>, Error> {
    // Names of our own making: letters, digits, colons.
    let calls: Vec<String> = names.iter().map(|name| format!("IS_USED_LOCK('{name}')")).collect();
    let row: Option<Row> = conn
        .query_first(format!("SELECT {}", calls.join(", ")))
        .await
        .map_err(|error| database("looking at locks", &error))?;
    let values = row.map(Row::unwrap).unwrap_or_default();
    Ok(values.into_iter().map(|value| number(Some(value)).map(|id| id as u64)).collect())
}

/// Seats that are taken by workers of this order, and their sessions.
pub(super) async fn held(
    conn: &mut Conn,
    label: &str,
    config: &Config,
) -> Result<Vec<(u32, u64)>, Error> {
    let names = Names::of(label, config);
    let seats: Vec<String> = (0..SEATS).map(|seat| names.seat(names.lanes, seat)).collect();
    let held = holders(conn, &seats).await?;
    Ok((0..).zip(held).filter_map(|(seat, id)| Some((seat, id?))).collect())
}

/// Takes a free seat; false: there is none.
pub(super) async fn sit_down(conn: &mut Conn, names: &Names, start: u32) -> Result<bool, Error> {
    for step in 0..SEATS {
        if run(conn, "GET_LOCK(?, 0)", &names.seat(names.lanes, (start + step) % SEATS)).await? {
            return Ok(true);
        }
    }
    Ok(false)
}
