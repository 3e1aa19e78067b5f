//! A log, a broker, the failures and relays that die, all in memory and driven by one seed.
//!
//! After every run, once everything is well again: no committed row is missing (B1), nothing else was published (B2),
//! the first deliveries of each key are in commit order (B3), and each row has one message-id (B4).

#![allow(clippy::disallowed_methods, reason = "a test has a clock")]

mod world;

use world::{Options, World};

use super::*;

fn run(options: Options, seeds: std::ops::Range<u64>) -> Result<(), String> {
    for seed in seeds {
        let mut world = World::new(options, seed);
        for _ in 0..400 {
            world.turn();
        }
        world.heal();
        world.check().map_err(|text| format!("seed {seed}, {options:?}: {text}"))?;
    }
    Ok(())
}

#[test]
fn no_row_is_lost_whatever_dies_and_whatever_the_broker_says() {
    for order in [Order::None, Order::Key, Order::Strict] {
        for on_dead in [OnDead::Block, OnDead::Skip] {
            let options = Options { order, on_dead, ..Options::default() };
            run(options, 0..150).expect("all promises hold");
        }
    }
}

#[test]
fn a_window_of_several_rows_of_a_key_loses_nothing_either() {
    let options = Options { order: Order::Key, order_window: 3, ..Options::default() };
    run(options, 0..150).expect("all promises hold");
}

#[test]
fn the_check_finds_a_relay_that_confirms_what_it_has_only_read() {
    let options = Options { confirms_early: true, ..Options::default() };
    let found = run(options, 0..150).expect_err("rows are lost when the relay dies");
    assert!(found.contains("was never delivered"), "{found}");
}

#[test]
fn the_check_finds_a_relay_that_lets_a_key_overtake_its_failure() {
    // Orders are not kept, but checked as if they were.
    let options = Options { order: Order::None, checks: Order::Key, ..Options::default() };
    let found = run(options, 0..150).expect_err("rows overtake one that failed");
    assert!(found.contains("before"), "{found}");
}
