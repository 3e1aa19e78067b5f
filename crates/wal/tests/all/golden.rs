//! The bytes of every released version are still read, and still written for the current one.
//!
//! `UPDATE=1 cargo test -p wal --test all golden` rewrites the files of the current version: only
//! before that version is released.
#![allow(clippy::unwrap_used, reason = "this is test code")]
#![allow(clippy::disallowed_methods, reason = "the golden files are read and written here")]

use std::path::PathBuf;

use crate::model::{self, Group, World};
use bytes::Bytes;
use wal::segments::Sharing;
use wal::sim::SimDisk;
use wal::{Checkpoint, CommitBatch, Config, Item, Wal};

const FILE_BYTES: usize = 8 << 10;
const FILES: [(&str, &str); 4] = [
    ("IDENTITY", "v1/IDENTITY"),
    ("wal/00000001.wal", "v1/00000001.wal"),
    ("groups/1/checkpoint", "v1/checkpoint"),
    ("groups/1/seg-1", "v1/seg-1"),
];
/// A segment with messages that several queues share. All else is as in version 1.
const SEGMENT_2: &str = "v2/seg-1";

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn config() -> Config {
    Config { file_bytes: FILE_BYTES as u64, ballast_bytes: 0, ..Config::new(model::IDENTITY) }
}

fn entry(index: u64, data: &'static [u8]) -> Item {
    Item::Entry { index, term: 7, data: Bytes::from_static(data) }
}

/// One of everything.
fn written() -> SimDisk {
    let disk = SimDisk::new(1);
    let (mut wal, _) = Wal::open(disk.clone(), config()).unwrap();
    let mut keeper = wal.keeper();
    let mut batch = CommitBatch::new();
    batch.add(1, entry(1, b"first"));
    batch.add(2, entry(1, b"of another group"));
    batch.add(1, Item::HardState(Bytes::from_static(b"vote")));
    wal.commit(vec![batch]).unwrap();
    let mut batch = CommitBatch::new();
    batch.add(1, entry(2, b"second"));
    batch.add(1, entry(3, b"to be cut"));
    batch.add(1, Item::TruncateFrom(3));
    batch.add(1, entry(3, b""));
    wal.commit(vec![batch]).unwrap();
    let mut segment = keeper.segment(1).unwrap();
    segment.add(4, 10, b"a message").unwrap();
    segment.add(4, 12, b"").unwrap();
    segment.add(9, 1, b"of another queue").unwrap();
    let segments = vec![segment.finish().unwrap()];
    let state = Bytes::from_static(b"state of the machine");
    keeper.install(Checkpoint { group: 1, index: 1, term: 7, state, segments }).unwrap();
    wal.close().unwrap();
    disk.kill();
    disk
}

fn expected() -> World {
    let message = |queue, seq, data: &'static [u8]| (queue, seq, Bytes::from_static(data));
    let one = Group {
        hard_state: Some(Bytes::from_static(b"vote")),
        entries: vec![(2, 7, Bytes::from_static(b"second")), (3, 7, Bytes::new())],
        checkpoint: Some((1, 7, Bytes::from_static(b"state of the machine"))),
        messages: vec![
            message(4, 10, b"a message"),
            message(4, 12, b""),
            message(9, 1, b"of another queue"),
        ],
    };
    let entries = vec![(1, 7, Bytes::from_static(b"of another group"))];
    World::from([(1, one), (2, Group { entries, ..Group::default() })])
}

/// Without the zeros at the end of a log file.
fn trimmed(name: &str, mut bytes: Vec<u8>) -> Vec<u8> {
    if !name.ends_with(".wal") {
        return bytes;
    }
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    bytes
}

#[test]
fn version_1_is_written_as_ever() {
    let disk = written();
    for (from, name) in FILES {
        let bytes = trimmed(name, disk.contents(from).unwrap());
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(path("v1")).unwrap();
            std::fs::write(path(name), &bytes).unwrap();
        }
        let golden = std::fs::read(path(name)).unwrap();
        assert!(golden == bytes, "{name}: the bytes of format 1 have changed");
    }
}

/// Of queues 4, 5 and 9.
const QUEUES_2: [u64; 3] = [4, 5, 9];

fn message_2(queue: u64, body: &[u8]) -> Bytes {
    [b"for ", &queue.to_le_bytes()[..], body].concat().into()
}

/// A message of three queues, one that queue 5 has alone, and one of two queues.
fn messages_2() -> Vec<(u64, u64, Bytes)> {
    let all = |queue| (queue, 10, message_2(queue, b"a message of three queues"));
    let mut messages: Vec<_> = QUEUES_2.into_iter().map(all).collect();
    messages.insert(2, (5, 11, Bytes::from_static(b"alone")));
    messages.insert(3, (5, 12, message_2(5, b"of two queues")));
    messages.push((9, 11, message_2(9, b"of two queues")));
    messages
}

#[test]
fn segments_of_version_2_are_written_as_ever_and_still_read() {
    let disk = SimDisk::new(1);
    let (mut wal, _) = Wal::open(disk.clone(), config()).unwrap();
    let mut keeper = wal.keeper();
    let mut batch = CommitBatch::new();
    batch.add(1, entry(1, b"first"));
    wal.commit(vec![batch]).unwrap();
    let mut segment = keeper.segment(1).unwrap();
    for (queue, seq, message) in messages_2() {
        let sharing = |origin| Sharing { origin: (1, origin), queue_at: 4 };
        match (queue, seq) {
            (_, 10) => segment.add_shared(queue, seq, sharing(100), &message).unwrap(),
            (5, 11) => segment.add(queue, seq, &message).unwrap(),
            (_, _) => segment.add_shared(queue, seq, sharing(200), &message).unwrap(),
        }
    }
    let meta = segment.finish().unwrap();
    let bytes = disk.contents("groups/1/seg-1").unwrap();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path("v2")).unwrap();
        std::fs::write(path(SEGMENT_2), &bytes).unwrap();
    }
    let golden = std::fs::read(path(SEGMENT_2)).unwrap();
    assert!(golden == bytes, "the bytes of segments of format 2 have changed");
    disk.plant_file("groups/1/seg-1", &golden);
    let reader = keeper.open_segment(1, &meta).unwrap();
    let of_queue = |queue| {
        let found = reader.read(queue, 0, u64::MAX).unwrap().into_iter();
        found.map(move |(seq, message)| (queue, seq, message))
    };
    assert_eq!(QUEUES_2.into_iter().flat_map(of_queue).collect::<Vec<_>>(), messages_2());
}

#[test]
fn version_1_is_still_read() {
    let disk = SimDisk::new(2);
    for dir in ["wal", "groups", "groups/1"] {
        wal::Disk::create_dir(&disk, dir).unwrap();
    }
    for (to, name) in FILES {
        let mut bytes = std::fs::read(path(name)).unwrap();
        if to.ends_with(".wal") {
            bytes.resize(FILE_BYTES, 0);
        }
        disk.plant_file(to, &bytes);
    }
    let (mut wal, recovered) = Wal::open(disk, config()).unwrap();
    let (world, damaged, _) = model::read_world(&mut wal, &recovered).unwrap();
    assert!(damaged.is_empty(), "{damaged:?}");
    assert_eq!(world, expected());
}
