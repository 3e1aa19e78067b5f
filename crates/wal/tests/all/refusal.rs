//! Directories that are not what they should be are refused with a sentence, and left alone.
#![allow(clippy::unwrap_used, reason = "this is test code")]

use crate::model;
use bytes::Bytes;
use wal::sim::SimDisk;
use wal::{Boot, CommitBatch, Config, Error, Founding, Identity, Item, Wal, inspect};

fn config() -> Config {
    Config { file_bytes: 8 << 10, ballast_bytes: 0, ..Config::new(model::IDENTITY) }
}

fn used() -> SimDisk {
    let disk = SimDisk::new(1);
    let (mut wal, _) = Wal::open(disk.clone(), config()).unwrap();
    for index in 1..=30 {
        let mut batch = CommitBatch::new();
        batch.add(1, Item::Entry { index, term: 1, data: Bytes::from(vec![1; 900]) });
        batch.add(1, Item::HardState(Bytes::from_static(b"vote")));
        wal.commit(vec![batch]).unwrap();
    }
    drop(wal);
    disk.kill();
    disk
}

/// Opening is refused with these words, twice, and no file changes.
#[track_caller]
fn refused(disk: &SimDisk, config: Config, words: &str) {
    let all = |disk: &SimDisk| {
        let contents = |path: String| (path.clone(), disk.contents(&path).unwrap());
        disk.paths().into_iter().map(contents).collect::<Vec<_>>()
    };
    let before = all(disk);
    for _ in 0..2 {
        let Err(error) = Wal::open(disk.clone(), config) else { panic!("it was opened") };
        assert!(error.to_string().contains(words), "{error}");
        disk.kill();
    }
    assert!(before == all(disk), "a refused directory is not changed");
}

#[test]
fn a_directory_of_another_cluster_is_refused() {
    let theirs = Identity { cluster: 1, ..model::IDENTITY };
    refused(&used(), Config { identity: theirs, ..config() }, "belongs to cluster");
}

#[test]
fn a_directory_of_an_earlier_life_is_refused() {
    let later = Identity { incarnation: 2, ..model::IDENTITY };
    refused(&used(), Config { identity: later, ..config() }, "incarnation 1");
}

#[test]
fn an_unknown_file_is_refused_and_kept() {
    for path in ["notes.txt", "wal/backup.wal", "wal/0000001.wal", "groups/1x", "wal/1.wal"] {
        let disk = used();
        disk.plant_file(path, b"?");
        refused(&disk, config(), "do not belong to Millrace");
    }
}

#[test]
fn a_directory_whose_log_is_gone_is_refused() {
    let disk = used();
    disk.paths().iter().filter(|path| path.ends_with(".wal")).for_each(|path| disk.lose_file(path));
    refused(&disk, config(), "its log is missing");
}

#[test]
fn a_directory_without_identity_is_not_started_afresh() {
    let disk = used();
    disk.lose_file("IDENTITY");
    refused(&disk, config(), "there is a log");
}

#[test]
fn a_renamed_log_file_is_refused() {
    let disk = used();
    let last = disk.paths().into_iter().rfind(|path| path.ends_with(".wal")).unwrap();
    let contents = disk.contents(&last).unwrap();
    disk.plant_file("wal/00000099.wal", &contents);
    refused(&disk, config(), "something has renamed it");
}

#[test]
fn a_batch_larger_than_a_file_is_refused_and_the_log_goes_on() {
    let (mut wal, _) = Wal::open(SimDisk::new(1), config()).unwrap();
    let mut batch = CommitBatch::new();
    batch.add(1, Item::Entry { index: 1, term: 1, data: Bytes::from(vec![0; 9 << 10]) });
    assert!(matches!(wal.commit(vec![batch]), Err(Error::TooLarge { .. })));
    let mut batch = CommitBatch::new();
    batch.add(1, Item::Entry { index: 1, term: 1, data: Bytes::from_static(b"fits") });
    assert_eq!(wal.commit(vec![batch]).unwrap().places().len(), 1);
}

#[test]
fn inspection_changes_nothing_and_says_what_there_is() {
    let disk = used();
    disk.plant_file("notes.txt", b"?");
    let changes = disk.calls().changes;
    let report = inspect(&disk, true).unwrap();
    assert_eq!(disk.calls().changes, changes);
    assert_eq!(report.identity, model::IDENTITY);
    assert_eq!(report.unknown, ["notes.txt"]);
    assert_eq!((report.groups.len(), report.batches, report.is_torn), (1, 30, false));
    assert_eq!(report.groups[0].entries, Some((1, 30)));
    let text = report.to_string();
    assert!(text.contains("group 1: entries 1 to 30 segments 0"), "{text}");
}

#[test]
fn inspection_names_the_damage() {
    let disk = used();
    let bit = 8 * (4096 + 700);
    disk.flip_bit("wal/00000001.wal", bit);
    let report = inspect(&disk, false).unwrap();
    let damage = report.groups[0].damage.as_ref().unwrap();
    assert_eq!((damage.path.as_str(), damage.index), ("wal/00000001.wal", Some(1)));
    assert!(report.to_string().contains("damaged: wal/00000001.wal"), "{report}");
}

#[test]
fn small_files_that_a_start_cannot_read_are_named_when_the_directory_is_examined() {
    let disk = used();
    assert!(inspect(&disk, false).unwrap().is_uncounted);
    Boot::next(&disk).unwrap();
    assert!(!inspect(&disk, false).unwrap().is_uncounted);
    Founding { groups_per_node: 8, nodes: vec![(1, String::new())] }.store(&disk).unwrap();
    assert_eq!(inspect(&disk, false).unwrap().notes, []);
    for (count, path) in [(1, "FOUNDING"), (2, "BOOT")] {
        disk.flip_bit(path, 150);
        let report = inspect(&disk, false).unwrap();
        assert_eq!(report.notes.len(), count, "{:?}", report.notes);
        assert!(report.notes.iter().any(|(named, _)| named == path));
        assert!(report.to_string().contains(path), "{report}");
    }
}
