//! The promises to a table that is polled, judged by what the broker has stored and what is marked.

use std::collections::BTreeMap;

use ::relay::{Fault, Pipeline};

use super::World;

fn breaks(world: &mut World, words: String) {
    world.broken.get_or_insert(words);
}

/// A row is published, in a batch of which `failed` have failed by now.
pub(super) fn published(world: &mut World, row: usize, failed: Vec<usize>) {
    let order = world.order_of(row);
    let is_before = |other: &&usize| **other < row && world.order_of(**other) == order;
    if order.is_some()
        && let Some(before) = failed.iter().find(is_before)
    {
        breaks(world, format!("R6: row {row} is sent behind row {before}, which failed"));
    }
    // Where the order is repeated, so are rows.
    let is_repeated = order.is_some() && world.config.pipeline == Pipeline::Repeat;
    if world.was_heard(row) && !is_repeated {
        breaks(world, format!("R4: row {row} is published again though its confirm was heard"));
    }
}

/// A row is marked.
pub(super) fn marked(world: &mut World, row: usize) {
    if !world.stored.contains(&row) {
        breaks(world, format!("R2: row {row} is marked and was never stored"));
    }
}

/// A row has failed.
pub(super) fn failed(world: &mut World, number: usize, fault: &Fault, is_charged: bool) {
    let row = &world.rows[number];
    let is_own = row.is_dropped || row.attempts < row.poison + row.refused;
    if is_charged && !is_own {
        breaks(world, format!("R5: row {number} is charged for an outage: {fault:?}"));
    }
}

/// When all is over.
pub(super) fn check(world: &World) -> Result<(), String> {
    for (number, row) in world.rows.iter().enumerate() {
        if world.is_hopeless(number) {
            continue;
        }
        if !row.is_done || !world.stored.contains(&number) {
            return Err(format!("R1: row {number} was committed and never arrived: {row:?}"));
        }
    }
    // What a consumer sees of a key: with `wait` the first of each row is in order, with `repeat` the last.
    let mut places: BTreeMap<usize, usize> = BTreeMap::new();
    for (place, &row) in world.stored.iter().enumerate() {
        match world.config.pipeline {
            Pipeline::Wait => drop(places.entry(row).or_insert(place)),
            Pipeline::Repeat => drop(places.insert(row, place)),
            Pipeline::Report => return Ok(()),
        }
    }
    let mut last: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    for (&row, &place) in &places {
        let Some(key) = world.order_of(row) else { return Ok(()) };
        let before = last.insert(key, (place, row));
        if let Some((_, before)) = before.filter(|(before, _)| *before > place) {
            return Err(format!("R3: row {row} of key {key} overtook row {before}"));
        }
    }
    Ok(())
}
