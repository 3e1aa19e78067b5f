//! The pool in random worlds: sources with leases and with connections, targets that are slow, fail, throttle and stop,
//! clocks that jump, receipts that are lost, shares, pauses, a stop at any moment. A checker knows the promises only.
//!
//! `WORKER_SEEDS=A..B` runs these seeds instead of the first few hundred; one seed alone (`7..8`) is told step by step.
//! That the checker bites is shown by planted bugs: `cargo xtask planted`.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test reads the clock, stops where it is wrong, and tells"
)]

mod check;
mod parts;
mod rates;
mod rules;
mod settings;
mod source;
mod world;

use world::World;

/// Seeds of every `cargo test`.
const SEEDS: std::ops::Range<u64> = 0..200;
/// Seeds that once found something.
const FOUND: [u64; 3] = [1142, 4895, 7324];

#[test]
fn every_promise_holds_in_random_worlds() {
    let seeds: Vec<u64> = match std::env::var("WORKER_SEEDS") {
        Ok(words) => {
            let (from, to) = words.split_once("..").expect("WORKER_SEEDS is A..B");
            (from.parse().unwrap()..to.parse().unwrap()).collect()
        }
        Err(_) => SEEDS.chain(FOUND).collect(),
    };
    let tells = seeds.len() == 1;
    let mut steps = 0;
    for seed in seeds.iter().copied() {
        let ran = std::panic::catch_unwind(|| World::new(seed, tells).run());
        match ran {
            Ok(count) => steps += count,
            Err(_) => panic!(
                "again: WORKER_SEEDS={seed}..{} cargo test -p worker --test pool_random",
                seed + 1
            ),
        }
    }
    eprintln!("{} worlds, {steps} steps", seeds.len());
}
