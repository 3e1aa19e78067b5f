//! Every single call to the disk fails once, and once for ever, in each of two ways.
//!
//! A failed commit latches. A full disk stops checkpoints, segments and housekeeping and nothing
//! else. Whatever happens, a start afterwards finds what was promised.
#![allow(clippy::unwrap_used, reason = "this is test code")]

use crate::model::{self, Life, World};
use wal::sim::{Fault, Random, SimDisk};
use wal::{CommitBatch, Config, Error, Wal};

const STEPS: usize = 60;

fn config() -> Config {
    Config { file_bytes: 16 << 10, ballast_bytes: 4 << 10, ..Config::new(model::IDENTITY) }
}

/// Runs the workload; the fault comes at the `count`-th change. Says whether it came.
fn run(seed: u64, count: u64, fault: Fault, stays: bool) -> bool {
    let disk = SimDisk::new(seed);
    let mut random = Random::new(seed);
    match stays {
        true => disk.fail_from(count, fault),
        false => disk.fail_at(count, fault),
    }
    let mut possible = vec![World::new()];
    if let Ok(mut life) = Life::open(&disk, config(), &possible) {
        for _ in 0..STEPS {
            match life.step(&mut random) {
                Ok(()) => {}
                Err(error) if life.wal.failure().is_some() => {
                    assert_latched(&mut life.wal, &error);
                    break;
                }
                Err(error) if error.is_full() => life.maybe.clear(),
                Err(error) => {
                    assert!(matches!(error, Error::Disk { .. }), "{error}");
                    break;
                }
            }
            life.keeper.preparer().hold_ballast().ok();
        }
        possible = life.possible();
    }
    let has_failed = disk.has_failed();
    disk.heal();
    match random.chance(50) {
        true => disk.power_cut(random.number()),
        false => disk.kill(),
    }
    let life = Life::open(&disk, config(), &possible).expect("a healed disk opens");
    drop(life);
    has_failed
}

fn assert_latched(wal: &mut Wal<SimDisk>, error: &Error) {
    for _ in 0..3 {
        assert_eq!(wal.commit(vec![CommitBatch::new()]).as_ref(), Err(error));
    }
    assert_eq!(wal.failure(), Some(error));
}

fn sweep(fault: Fault, stays: bool) {
    for seed in 1..=4 {
        let mut count = 1;
        while run(seed, count, fault, stays) {
            count += 1;
        }
        assert!(count > 200, "the workload has more calls than {count}");
    }
}

#[test]
fn any_call_may_fail_once_with_an_input_output_error() {
    sweep(Fault::Broken, false);
}

#[test]
fn any_call_may_be_the_first_of_a_broken_disk() {
    sweep(Fault::Broken, true);
}

#[test]
fn any_call_may_find_the_disk_full_once() {
    sweep(Fault::Full, false);
}

#[test]
fn any_call_may_be_the_first_on_a_full_disk() {
    sweep(Fault::Full, true);
}

#[test]
fn compaction_works_on_a_full_disk_with_the_ballast() {
    let disk = SimDisk::new(1);
    let config = Config { ballast_bytes: 16 << 10, ..config() };
    let mut random = Random::new(2);
    let mut life = Life::open(&disk, config, &[World::new()]).unwrap();
    for _ in 0..40 {
        life.step(&mut random).unwrap();
    }
    disk.set_capacity(1 << 20);
    assert!(life.keeper.preparer().hold_ballast().unwrap());
    let used: usize = disk.paths().iter().map(|path| disk.contents(path).unwrap().len()).sum();
    disk.set_capacity(used as u64 + 100);
    let ballast = || disk.contents("ballast").map_or(0, |ballast| ballast.len());
    // New segments wait until there is room; a checkpoint without any gives up the ballast.
    let outcome = loop {
        let outcome = life.checkpoint(&mut random);
        if ballast() < 16 << 10 {
            break outcome;
        }
        assert!(outcome.as_ref().err().is_none_or(Error::is_full), "{outcome:?}");
    };
    outcome.unwrap();
    let possible = life.possible();
    let left = ballast();
    assert_eq!(left, 4 << 10, "but for the log's share the ballast was given up");
    assert!(!life.keeper.preparer().hold_ballast().unwrap(), "there is no room for it yet");
    disk.set_capacity(1 << 20);
    assert!(life.keeper.preparer().hold_ballast().unwrap(), "it comes back when there is room");
    drop(life);
    disk.power_cut(1);
    Life::open(&disk, config, &possible).unwrap();
}

#[test]
fn what_is_held_back_for_the_log_is_not_taken_by_checkpoints_and_lets_it_go_on() {
    let disk = SimDisk::new(1);
    let config = Config { file_bytes: 8 << 10, ballast_bytes: 64 << 10, ..config() };
    let (mut wal, _) = Wal::open(disk.clone(), config).unwrap();
    let mut keeper = wal.keeper();
    assert!(keeper.preparer().hold_ballast().unwrap());
    let used = |disk: &SimDisk| -> u64 {
        disk.paths().iter().map(|path| disk.contents(path).unwrap().len() as u64).sum()
    };
    assert!(keeper.release_ballast().unwrap());
    assert!(!keeper.release_ballast().unwrap(), "the rest is the log's");
    disk.set_capacity(used(&disk));
    // Somebody takes every byte that is given free and not used at once.
    let mut commits = 0;
    loop {
        let mut batch = CommitBatch::new();
        let data = bytes::Bytes::from(vec![7; 500]);
        batch.add(1, wal::Item::Entry { index: commits + 1, term: 1, data });
        match wal.make_room(std::slice::from_ref(&batch)) {
            Ok(_) => drop(wal.commit(vec![batch]).unwrap()),
            Err(error) => {
                assert!(error.is_full(), "{error}");
                break;
            }
        }
        disk.set_capacity(used(&disk));
        commits += 1;
    }
    // Four to a file: the first file's, and those of the two files for which there was room.
    assert!(commits > 8, "{commits} commits");
    assert_eq!(wal.failure(), None);
    disk.set_capacity(u64::MAX);
    assert!(keeper.preparer().hold_ballast().unwrap(), "it comes back when there is room");
    assert_eq!(disk.contents("ballast").unwrap().len(), 64 << 10);
}
