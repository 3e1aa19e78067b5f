use machine::GroupId;
use wal::sim::{Fault, SimDisk};
use wal::{Config, Identity, Item};

use super::*;

const FILE_BYTES: u64 = 64 << 10;
const GROUP: GroupId = GroupId(1);

fn writer(disk: &SimDisk) -> LogWriter<SimDisk> {
    let mut config = Config::new(Identity { cluster: 1, node: 1, incarnation: 1 });
    config.file_bytes = FILE_BYTES;
    config.ballast_bytes = 0;
    LogWriter::new(Wal::open(disk.clone(), config).unwrap().0)
}

/// Entries of `bytes` each, from index `first` on.
fn append(shard: usize, number: u64, first: u64, entries: usize, bytes: usize) -> Append {
    let mut batch = CommitBatch::new();
    for index in (first..).take(entries) {
        batch.add(GROUP.0, Item::Entry { index, term: 1, data: vec![7; bytes].into() });
    }
    Append { shard, number, batch, entries }
}

/// What the shards hear: shard, number and count of places.
fn heard(synced: Vec<(usize, Input)>) -> Vec<(usize, u64, usize)> {
    let heard = |(shard, input)| match input {
        Input::Synced { number, places } => (shard, number, places.len()),
        other => panic!("{other:?}"),
    };
    synced.into_iter().map(heard).collect()
}

#[test]
fn all_that_waits_is_one_sync_and_each_shard_hears_of_its_own() {
    let mut writer = writer(&SimDisk::new(1));
    let mut synced = Vec::new();
    writer.add(append(0, 1, 1, 2, 100));
    writer.add(append(1, 1, 3, 1, 100));
    writer.add(append(0, 2, 4, 3, 100));
    let before = writer.stats().syncs;
    writer.commit(&mut synced).unwrap();
    assert!(synced.is_empty(), "nothing has room before it is looked for");
    assert!(writer.find_room(0));
    writer.commit(&mut synced).unwrap();
    assert_eq!(heard(synced), [(0, 1, 2), (1, 1, 1), (0, 2, 3)]);
    assert_eq!((writer.stats().syncs - before, writer.is_empty()), (1, true));
}

#[test]
fn what_does_not_fit_the_file_waits_for_the_next_commit() {
    let mut writer = writer(&SimDisk::new(1));
    let mut synced = Vec::new();
    for number in 1..=4 {
        writer.add(append(0, number, number, 1, 25 << 10));
    }
    let mut commits = 0;
    while !writer.is_empty() {
        assert!(writer.find_room(0));
        writer.commit(&mut synced).unwrap();
        commits += 1;
    }
    assert_eq!(commits, 2, "a file holds two of them");
    assert_eq!(heard(synced), [(0, 1, 1), (0, 2, 1), (0, 3, 1), (0, 4, 1)]);
}

#[test]
fn a_full_disk_holds_everything_back_and_loses_nothing() {
    let disk = SimDisk::new(1);
    let mut writer = writer(&disk);
    let mut synced = Vec::new();
    // So much that the file at hand does not hold it.
    for number in 1..=8 {
        writer.add(append(0, number, number, 1, 25 << 10));
    }
    disk.set_capacity(0);
    let mut now_ms = 0;
    while writer.find_room(now_ms) && !writer.is_empty() {
        writer.commit(&mut synced).unwrap();
        now_ms += 1;
    }
    assert!(writer.is_short() && !writer.is_empty());
    let before = synced.len();
    writer.commit(&mut synced).unwrap();
    assert_eq!(synced.len(), before, "nothing is written without room");
    disk.set_capacity(u64::MAX);
    while !writer.is_empty() {
        now_ms += 100_000;
        assert!(writer.find_room(now_ms));
        writer.commit(&mut synced).unwrap();
    }
    assert!(!writer.is_short());
    let numbers: Vec<u64> = heard(synced).into_iter().map(|(_, number, _)| number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn nobody_hears_of_a_sync_that_failed() {
    let disk = SimDisk::new(1);
    let mut writer = writer(&disk);
    let mut synced = Vec::new();
    writer.add(append(0, 1, 1, 1, 100));
    assert!(writer.find_room(0));
    disk.fail_from(0, Fault::Broken);
    assert!(writer.commit(&mut synced).is_err());
    assert!(synced.is_empty());
    disk.heal();
    writer.add(append(0, 2, 2, 1, 100));
    writer.find_room(1);
    assert!(writer.commit(&mut synced).is_err(), "the log stays closed");
    assert!(synced.is_empty());
}
