//! The log on a real file system: what was committed is there after reopening.
#![allow(clippy::unwrap_used, reason = "this is test code")]

use std::path::PathBuf;

use bytes::Bytes;
use wal::{Checkpoint, CommitBatch, Config, Error, FileDisk, Identity, Item, Wal};

const IDENTITY: Identity = Identity { cluster: 77, node: 1, incarnation: 1 };

/// A directory that goes away with the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("wal-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn disk(&self) -> FileDisk {
        FileDisk::new(&self.0).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn config() -> Config {
    Config { file_bytes: 64 << 10, ballast_bytes: 0, ..Config::new(IDENTITY) }
}

fn entry(index: u64, data: &str) -> Item {
    Item::Entry { index, term: 1, data: Bytes::copy_from_slice(data.as_bytes()) }
}

#[test]
fn what_was_committed_is_there_after_reopening() {
    let place = Place::new("reopen");
    let (mut wal, recovered) = Wal::open(place.disk(), config()).unwrap();
    assert!(recovered.groups.is_empty());
    for index in 1..=100 {
        let mut batch = CommitBatch::new();
        batch.add(1, entry(index, &format!("one {index} {}", "x".repeat(3000))));
        batch.add(2, entry(index, &format!("two {index}")));
        batch.add(1, Item::HardState(Bytes::from(format!("hard {index}"))));
        let synced = wal.commit(vec![batch]).unwrap();
        assert_eq!(synced.places().len(), 2);
    }
    assert!(wal.stats().rollovers > 3);
    drop(wal);
    let (wal, recovered) = Wal::open(place.disk(), config()).unwrap();
    let one = &recovered.groups[&1];
    assert_eq!(one.damage, None);
    assert_eq!(one.hard_state.as_deref(), Some(&b"hard 100"[..]));
    assert_eq!(one.entries.len(), 100);
    for entry in &recovered.groups[&2].entries {
        let data = wal.reader().read(entry.place).unwrap();
        assert_eq!(data, format!("two {}", entry.index).as_bytes());
    }
}

#[test]
fn a_second_process_is_kept_out() {
    let place = Place::new("lock");
    let (_wal, _) = Wal::open(place.disk(), config()).unwrap();
    let Err(error) = Wal::open(place.disk(), config()) else { panic!("both got in") };
    assert!(matches!(error, Error::Refused { .. }), "{error}");
}

#[test]
fn log_files_are_recycled_once_checkpoints_cover_them() {
    let place = Place::new("recycle");
    let (mut wal, _) = Wal::open(place.disk(), config()).unwrap();
    let mut keeper = wal.keeper();
    for index in 1..=400 {
        let mut batch = CommitBatch::new();
        batch.add(1, entry(index, &"y".repeat(2000)));
        wal.commit(vec![batch]).unwrap();
        keeper.preparer().prepare_next(16 << 10).unwrap();
        if index % 50 == 0 {
            let mut segment = keeper.segment(1).unwrap();
            segment.add(9, index, b"kept").unwrap();
            let segments = vec![segment.finish().unwrap()];
            let state = Bytes::from_static(b"state");
            keeper.install(Checkpoint { group: 1, index, term: 1, state, segments }).unwrap();
            keeper.preparer().remove_spare().unwrap();
        }
    }
    assert!(keeper.wal_bytes() < 6 * (64 << 10), "{:?}", keeper.files());
    drop((wal, keeper));
    let (mut wal, recovered) = Wal::open(place.disk(), config()).unwrap();
    let group = &recovered.groups[&1];
    assert_eq!((group.damage.as_ref(), group.entries.len()), (None, 0));
    let checkpoint = group.checkpoint.as_ref().unwrap();
    let segment = wal.keeper().open_segment(1, &checkpoint.segments[0]).unwrap();
    assert_eq!(segment.read(9, 0, 100).unwrap(), [(400, Bytes::from_static(b"kept"))]);
}

#[test]
fn a_writer_a_keeper_and_readers_do_not_get_in_each_others_way() {
    let place = Place::new("threads");
    let (mut wal, _) = Wal::open(place.disk(), config()).unwrap();
    let mut keeper = wal.keeper();
    let reader = wal.reader();
    let (tell, told) = std::sync::mpsc::channel();
    let newest = std::sync::atomic::AtomicU64::new(0);
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for index in 1..=600 {
                let mut batch = CommitBatch::new();
                batch.add(1, entry(index, &format!("{index} {}", "z".repeat(5000))));
                let places = wal.commit(vec![batch]).unwrap().into_places();
                newest.store(index, order);
                tell.send((index, places[0])).unwrap();
            }
            drop(tell);
        });
        scope.spawn(|| {
            let mut installed = 0;
            while newest.load(order) < 600 {
                keeper.preparer().prepare_next(32 << 10).unwrap();
                keeper.preparer().remove_spare().unwrap();
                let index = newest.load(order);
                if index > installed + 20 {
                    installed = index;
                    let (state, segments) = (Bytes::new(), Vec::new());
                    let checkpoint = Checkpoint { group: 1, index, term: 1, state, segments };
                    keeper.install(checkpoint).unwrap();
                }
            }
        });
        let mut gone = 0;
        let mut places = Vec::new();
        for (index, found) in told {
            places.push((index, found));
            for (index, place) in places.iter().rev().step_by(7).take(20) {
                match reader.read(*place) {
                    Ok(data) => assert!(data.starts_with(format!("{index} ").as_bytes())),
                    Err(Error::Gone) => gone += 1,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        assert!(gone > 0, "files were recycled meanwhile");
    });
    drop((wal, keeper, reader));
    let (wal, recovered) = Wal::open(place.disk(), config()).unwrap();
    let group = &recovered.groups[&1];
    assert_eq!(group.damage, None);
    let floor = group.checkpoint.as_ref().unwrap().index;
    assert_eq!(floor + group.entries.len() as u64, 600);
    let last = group.entries.last().map(|last| wal.reader().read(last.place).unwrap());
    assert!(last.is_none_or(|data| data.starts_with(b"600 ")));
}
