//! Thousands of crashes: what was synced is there, batches are whole, nothing is invented.
//!
//! Each run is a seed: a random workload of commits, truncations, hard states, rollovers,
//! checkpoints and housekeeping, with the power cut in the middle of some call, several times.
//! A failing run prints its seed; `WAL_SEED=7 cargo test -p wal --test crash` runs that one.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "this is test code")]

#[path = "common/model.rs"]
mod model;

use model::{Life, World};
use wal::sim::{Fault, Random, SimDisk};

/// Seeds of one test; four tests share the work, so that they run in parallel.
const RUNS: u64 = 2_500;
const CRASHES: u64 = 3;

/// How a life ends.
#[derive(Debug)]
enum End {
    PowerCut,
    /// The process dies, the system lives: unsynced data is still in its cache, and may be lost
    /// in the cut after the next start.
    Kill,
    /// A call fails, and the process stops, as it should.
    BrokenThenPowerCut,
    BrokenThenKill,
}

/// What the runs went through: a test that never rolls over proves nothing about it.
#[derive(Debug, Default)]
struct Seen {
    rollovers: u64,
    recycled: u64,
    torn: u64,
    segments: u64,
}

fn run(seed: u64, seen: &mut Seen) {
    let mut random = Random::new(seed);
    let disk = SimDisk::new(seed);
    let config = model::config(&mut random);
    let mut possible = vec![World::new()];
    for _ in 0..CRASHES {
        let end = match random.below(10) {
            0..6 => End::PowerCut,
            6 => End::Kill,
            7 => End::BrokenThenPowerCut,
            _ => End::BrokenThenKill,
        };
        let fault = match end {
            End::PowerCut | End::Kill => Fault::PowerOff,
            End::BrokenThenPowerCut | End::BrokenThenKill => Fault::Broken,
        };
        disk.fail_at(1 + random.below(150), fault);
        if let Ok(mut life) = Life::open(&disk, config, &possible) {
            seen.torn += u64::from(life.was_torn);
            loop {
                match life.step(&mut random) {
                    Ok(()) if disk.has_failed() => break,
                    Ok(()) => {}
                    Err(error) => {
                        assert!(disk.has_failed(), "steps fail only when the disk does: {error}");
                        break;
                    }
                }
            }
            possible = life.possible();
            seen.rollovers += life.wal.stats().rollovers;
            seen.recycled += u64::from(life.keeper.files()[0].number > 1);
            seen.segments += u64::from(disk.paths().iter().any(|path| path.contains("seg-")));
        }
        match end {
            End::PowerCut | End::BrokenThenPowerCut => disk.power_cut(random.number()),
            End::Kill | End::BrokenThenKill => disk.kill(),
        }
    }
    let mut life = Life::open(&disk, config, &possible).expect("a sound disk opens");
    for _ in 0..5 {
        life.commit(&mut random).expect("a sound disk takes commits");
    }
    let possible = life.possible();
    life.wal.close().expect("a sound disk takes commits");
    drop(life.keeper);
    disk.power_cut(random.number());
    Life::open(&disk, config, &possible[..1]).expect("a sound disk opens");
}

fn runs(first: u64) {
    if let Ok(seed) = std::env::var("WAL_SEED") {
        return run(seed.parse().expect("WAL_SEED is a number"), &mut Seen::default());
    }
    let mut seen = Seen::default();
    for seed in first..first + RUNS {
        let outcome = std::panic::catch_unwind(|| {
            let mut seen = Seen::default();
            run(seed, &mut seen);
            seen
        });
        match outcome {
            Ok(one) => {
                seen.rollovers += one.rollovers;
                seen.recycled += one.recycled;
                seen.torn += one.torn;
                seen.segments += one.segments;
            }
            Err(panic) => {
                eprintln!("seed {seed} failed; repeat with WAL_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    eprintln!("{seen:?} in {RUNS} runs");
    let Seen { rollovers, recycled, torn, segments } = seen;
    assert!(
        [rollovers, recycled, torn, segments].iter().all(|count| *count > RUNS / 25),
        "{seen:?}"
    );
}

#[test]
fn everything_synced_survives_the_first_quarter_of_crashes() {
    runs(0);
}

#[test]
fn everything_synced_survives_the_second_quarter_of_crashes() {
    runs(RUNS);
}

#[test]
fn everything_synced_survives_the_third_quarter_of_crashes() {
    runs(2 * RUNS);
}

#[test]
fn everything_synced_survives_the_last_quarter_of_crashes() {
    runs(3 * RUNS);
}
