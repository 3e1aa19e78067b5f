//! Thousands of damaged files: damage is noticed, and never taken for a torn tail.
//!
//! Each run writes a random log, closes it, and damages one place of one file: a flipped bit, a
//! block of zeros or garbage, an older block, a block from elsewhere, a lost end, a lost file.
//! The start must then refuse, or name the groups concerned, or give back everything unharmed.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "this is test code")]

#[path = "common/model.rs"]
mod model;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use model::{Life, World};
use wal::sim::{Random, SimDisk};
use wal::{CommitBatch, Config, Damage, Error, Item, Wal};

const RUNS: u64 = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Bit,
    Zeros,
    Garbage,
    Older,
    Elsewhere,
    LostEnd,
    LostFile,
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Unharmed,
    Damaged,
    Refused,
}

/// A closed log, all states it went through, and older contents of its files.
struct Written {
    disk: SimDisk,
    config: Config,
    history: Vec<World>,
    older: BTreeMap<String, Vec<u8>>,
    /// File and offset of the last batch, which says that the one before is durable.
    closing: (String, u64),
}

fn write(seed: u64, random: &mut Random) -> Written {
    let disk = SimDisk::new(seed);
    let config = model::config(random);
    let mut life = Life::open(&disk, config, &[World::new()]).unwrap();
    let mut history = vec![World::new()];
    let steps = 5 + random.below(60);
    let mut older = BTreeMap::new();
    for step in 0..steps {
        life.step(random).unwrap();
        let mut possible = life.possible();
        possible.rotate_left(1);
        history.extend(possible);
        if step == steps / 2 {
            older = contents(&disk);
        }
    }
    let before = contents(&disk);
    life.wal.close().unwrap();
    disk.kill();
    let after = contents(&disk);
    let changed = |(path, bytes): (&String, &Vec<u8>)| {
        let old = before.get(path).map_or(&[][..], |old| old);
        let at = (0..bytes.len()).find(|at| old.get(*at) != Some(&bytes[*at]))?;
        (at >= 4096).then(|| (path.clone(), at as u64 / 512 * 512))
    };
    let closing = after.iter().find_map(changed).unwrap_or_default();
    Written { disk, config, history, older, closing }
}

fn contents(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    disk.paths().into_iter().map(|path| (path.clone(), disk.contents(&path).unwrap())).collect()
}

/// Harms the disk; says which bytes of which file.
fn harm(written: &Written, random: &mut Random) -> (Harm, String, std::ops::Range<u64>) {
    use Harm::{Bit, Elsewhere, Garbage, LostEnd, LostFile, Older, Zeros};
    let disk = &written.disk;
    let kind = [Bit, Bit, Bit, Zeros, Garbage, Older, Elsewhere, LostEnd, LostFile]
        [random.below(9) as usize];
    let paths = disk.paths();
    let path = paths[random.below(paths.len() as u64) as usize].clone();
    let bytes = disk.contents(&path).unwrap();
    let len = bytes.len() as u64;
    let size = if random.chance(50) { 512 } else { 4096 };
    let start = random.below(len) / size * size;
    let end = (start + size).min(len);
    match kind {
        Bit => {
            let bit = random.below(len * 8);
            disk.flip_bit(&path, bit);
            return (kind, path, bit / 8..bit / 8 + 1);
        }
        Zeros => disk.damage(&path, start, &vec![0; (end - start) as usize]),
        Garbage => {
            let garbage: Vec<u8> = (start..end).map(|_| random.number() as u8).collect();
            disk.damage(&path, start, &garbage);
        }
        Older => {
            if let Some(old) = written.older.get(&path)
                && let Some(old) = old.get(start as usize..end as usize)
            {
                disk.damage(&path, start, old);
            }
        }
        Elsewhere => {
            let other = disk.contents(&paths[random.below(paths.len() as u64) as usize]).unwrap();
            let from = random.below(other.len() as u64) / size * size;
            let block = &other[from as usize..other.len().min((from + end - start) as usize)];
            disk.damage(&path, start, block);
        }
        LostEnd => {
            disk.truncate(&path, start);
            return (kind, path, start..len);
        }
        LostFile => {
            disk.lose_file(&path);
            return (kind, path, 0..len);
        }
    }
    (kind, path, start..end)
}

fn open(written: &Written) -> Result<(model::ReadBack, Wal<SimDisk>), Error> {
    let (mut wal, recovered) = Wal::open(written.disk.clone(), written.config)?;
    Ok((model::read_world(&mut wal, &recovered)?, wal))
}

fn check(world: &World, damaged: &BTreeMap<u32, Damage>, history: &[World], what: &str) {
    let newest = &history[history.len() - 1];
    let sound = |expected: &World| {
        let groups: BTreeSet<&u32> = newest.keys().chain(world.keys()).collect();
        let mut sound = groups.into_iter().filter(|group| !damaged.contains_key(group));
        sound.all(|group| {
            // The log may be cut, checkpoints are as they were last.
            let log = expected.get(group).cloned().unwrap_or_default();
            let checkpoint = newest.get(group).cloned().unwrap_or_default();
            let expected = log.with_checkpoint_of(&checkpoint);
            expected == world.get(group).cloned().unwrap_or_default()
        })
    };
    assert!(
        history.iter().any(sound),
        "{what}: damage {damaged:?}\n{}",
        model::difference(world, &history[history.len() - 1..])
    );
}

fn run(seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    let written = write(seed, &mut random);
    let (kind, path, range) = harm(&written, &mut random);
    let what = format!("{kind:?} in {path} at {range:?}, closed at {:?}", written.closing);
    // A loss that takes the closing batch and those before it looks exactly like a log that had
    // never been written so far.
    let reaches_end = path == written.closing.0 && range.contains(&written.closing.1);
    let allowed = match reaches_end && kind != Harm::Bit {
        true => &written.history[..],
        false => &written.history[written.history.len() - 1..],
    };
    let ((world, damaged, keeper), mut wal) = match open(&written) {
        Ok(opened) => opened,
        Err(Error::Refused { .. } | Error::Damaged { .. }) => return Outcome::Refused,
        Err(error) => panic!("{what}: {error}"),
    };
    check(&world, &damaged, allowed, &what);
    // Life goes on for a group of its own, files are rolled and recycled: damage stays damage.
    for round in 0..60 {
        let mut batch = CommitBatch::new();
        batch.add(99, Item::HardState(Bytes::from(vec![round; 700])));
        wal.commit(vec![batch]).unwrap();
        keeper.preparer().prepare_next(1 << 20).unwrap();
        keeper.preparer().remove_spare().unwrap();
    }
    drop((wal, keeper));
    written.disk.kill();
    let ((mut again, damaged_again, _), _) = match open(&written) {
        Ok(opened) => opened,
        Err(Error::Refused { .. } | Error::Damaged { .. }) => return Outcome::Refused,
        Err(error) => panic!("{what}: {error}"),
    };
    again.remove(&99);
    let known = damaged.iter().filter(|(_, damage)| damage.what != model::UNKNOWN);
    let forgotten: Vec<_> = known.filter(|(group, _)| !damaged_again.contains_key(group)).collect();
    assert!(forgotten.is_empty(), "{what}: forgot the damage of {forgotten:?}: {damaged:?}");
    check(&again, &damaged_again, &[world], &what);
    if damaged.is_empty() { Outcome::Unharmed } else { Outcome::Damaged }
}

fn runs(first: u64) {
    if let Ok(seed) = std::env::var("WAL_SEED") {
        eprintln!("{:?}", run(seed.parse().expect("WAL_SEED is a number")));
        return;
    }
    let mut outcomes = Vec::new();
    for seed in first..first + RUNS {
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(outcome) => outcomes.push(outcome),
            Err(panic) => {
                eprintln!("seed {seed} failed; repeat with WAL_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    let count = |wanted: Outcome| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    let (damaged, refused) = (count(Outcome::Damaged), count(Outcome::Refused));
    eprintln!("{damaged} damaged, {refused} refused of {RUNS}");
    assert!(damaged > RUNS as usize / 10, "the harm must be real: {damaged} damaged");
    assert!(refused > RUNS as usize / 50, "the harm must be real: {refused} refused");
}

#[test]
fn damage_is_never_taken_for_a_torn_tail() {
    runs(0);
}

#[test]
fn damage_is_never_taken_for_a_torn_tail_with_other_seeds() {
    runs(RUNS);
}
