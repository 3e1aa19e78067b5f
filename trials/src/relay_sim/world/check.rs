//! The promises, judged by what the broker has stored and what the source was told.

use std::collections::BTreeMap;

use ::relay::publisher::RowSeq;
use ::relay::{Fault, OnDead, Pipeline};

use super::broker::row_of;
use super::{Ended, Kind, World};

/// A row is about to be published.
pub(super) fn published(world: &mut World, seq: RowSeq) {
    let row = row_of(seq);
    if world.in_flight() >= world.options.window {
        world.broken = Some(format!("R6: row {row} is one more than the window"));
    }
    let Some(key) = world.rows[row].key else { return };
    let allowed = match world.options.pipeline {
        Pipeline::Wait => 1,
        Pipeline::Repeat | Pipeline::Report => world.options.order_window,
    };
    if world.in_flight_of(key) >= allowed {
        world.broken = Some(format!("R6: row {row} is one more of key {key} than is allowed"));
    }
    let is_retry = seq.0 >> 63 == 1;
    if let Some(first) = world.first_parked(key).filter(|first| *first < row && !is_retry) {
        world.broken = Some(format!("R6: row {row} is published though row {first} failed"));
    }
    if let Some(failed) = world.failing_before(key, seq) {
        world.broken = Some(format!("R6: row {row} is sent behind row {failed}, which failed"));
    }
}

/// A row is told as confirmed.
pub(super) fn confirmed(world: &mut World, row: usize) {
    if !world.broker.stored.contains(&row) {
        world.broken = Some(format!("R2: row {row} is confirmed and was never stored"));
    }
    if world.rows[row].ended.is_some() {
        world.broken = Some(format!("R1: row {row} is settled twice"));
    }
}

/// A row is told as failed.
pub(super) fn failed(world: &mut World, row: usize, fault: &Fault, is_charged: bool) {
    let attempts = world.rows[row].attempts;
    let is_own = match world.rows[row].kind {
        Kind::Fine => attempts < world.broker.refused[row],
        Kind::Unroutable | Kind::Broken | Kind::Deadly | Kind::Hated => true,
    };
    // A broker that closes for another reason, while a row is alone, is taken for one that closes because of it.
    let is_closed = fault.text.ends_with(" closed");
    world.broker.refused[row] += u32::from(is_charged && is_closed);
    if is_charged && !is_own && !is_closed {
        world.broken = Some(format!("R5: row {row} is charged for an outage: {fault:?}"));
    }
}

/// When all is over.
pub(super) fn check(world: &World) -> Result<(), String> {
    let mut first: BTreeMap<usize, usize> = BTreeMap::new();
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    let mut times: BTreeMap<usize, u32> = BTreeMap::new();
    for (at, &row) in world.broker.stored.iter().enumerate() {
        first.entry(row).or_insert(at);
        last.insert(row, at);
        *times.entry(row).or_default() += 1;
    }
    for (number, row) in world.rows.iter().enumerate() {
        if !world.is_done(number) {
            return Err(format!("R1: row {number} is never settled"));
        }
        if row.ended == Some(Ended::Confirmed) && !first.contains_key(&number) {
            return Err(format!("R2: row {number} is confirmed and was never stored"));
        }
        let times = times.get(&number).copied().unwrap_or_default();
        if times > 1 + row.lost + row.told {
            return Err(format!("R4: row {number} is stored {times} times"));
        }
        order(world, number, &first, &last)?;
    }
    Ok(())
}

/// Rows of the key of `row` that come behind it.
fn order(
    world: &World,
    row: usize,
    first: &BTreeMap<usize, usize>,
    last: &BTreeMap<usize, usize>,
) -> Result<(), String> {
    let Some(key) = world.rows[row].key else { return Ok(()) };
    let is_dead = world.rows[row].ended == Some(Ended::Dead);
    if is_dead && world.options.on_dead == OnDead::Skip {
        return Ok(());
    }
    let behind = (row + 1..world.rows.len()).filter(|other| world.rows[*other].key == Some(key));
    for other in behind {
        let Some(at) = first.get(&other) else { continue };
        let is_in_order = first.get(&row).is_some_and(|before| before < at);
        // Whoever has lost the verdict of one of them cannot tell.
        let is_told = world.rows[other].told > 0 || world.rows[other].lost > 0;
        let may_overtake = is_told && world.options.pipeline != Pipeline::Wait;
        if !is_in_order && !may_overtake {
            return Err(format!("R3: row {other} is stored before row {row} of key {key}"));
        }
        // The last that a consumer sees of each is in order, too.
        if world.options.pipeline == Pipeline::Repeat
            && world.rows[other].ended == Some(Ended::Confirmed)
            && last.get(&row).is_some_and(|before| before > &last[&other])
        {
            return Err(format!("R3: row {row} is stored again behind row {other} of key {key}"));
        }
    }
    Ok(())
}
