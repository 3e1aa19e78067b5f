//! The log on a real file system: what was committed is there after reopening.
#![allow(clippy::unwrap_used, reason = "this is test code")]

use std::path::PathBuf;

use bytes::Bytes;
use wal::{Checkpoint, CommitBatch, Config, Error, FileDisk, Identity, Item, Keeper, Wal};

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

/// Checkpoints have at most one MiB.
const CHECKPOINT_BYTES_MAX: u64 = 1 << 20;

fn bounded() -> Config {
    Config { checkpoint_bytes_max: CHECKPOINT_BYTES_MAX, ..config() }
}

fn checkpoint(index: u64, state_bytes: u64) -> Checkpoint {
    let state = vec![b's'; state_bytes as usize].into();
    Checkpoint { group: 1, index, term: 1, state, segments: Vec::new() }
}

fn publish(wal: &mut Wal<FileDisk>, indexes: std::ops::RangeInclusive<u64>) {
    for index in indexes {
        let mut batch = CommitBatch::new();
        batch.add(1, entry(index, &"y".repeat(2000)));
        wal.commit(vec![batch]).unwrap();
    }
}

/// Bytes of a checkpoint without segments that are not its state.
fn around(keeper: &mut Keeper<FileDisk>) -> u64 {
    match keeper.install(checkpoint(1, CHECKPOINT_BYTES_MAX)) {
        Err(Error::CheckpointTooLarge { group: 1, bytes, bytes_max: CHECKPOINT_BYTES_MAX }) => {
            bytes - CHECKPOINT_BYTES_MAX
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_checkpoint_may_not_hold_is_refused_before_the_log_is_let_go() {
    let place = Place::new("too-large");
    let (mut wal, _) = Wal::open(place.disk(), bounded()).unwrap();
    let mut keeper = wal.keeper();
    publish(&mut wal, 1..=100);
    keeper.install(checkpoint(10, 1000)).unwrap();
    publish(&mut wal, 101..=200);
    let files = keeper.files();
    let mut segment = keeper.segment(1).unwrap();
    segment.add(9, 150, b"kept").unwrap();
    let segments = vec![segment.finish().unwrap()];
    let refused = Checkpoint { segments, ..checkpoint(150, CHECKPOINT_BYTES_MAX - 64) };
    let error = keeper.install(refused).unwrap_err();
    assert!(matches!(error, Error::CheckpointTooLarge { group: 1, .. }) && !error.is_full());
    assert_eq!(keeper.checkpoint(1).unwrap().index, 10, "the checkpoint before it stays");
    let segment_files = || {
        let names = std::fs::read_dir(place.0.join("groups/1")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("seg")).count()
    };
    assert_eq!(segment_files(), 1, "whoever wrote it may try again");
    keeper.remove_unnamed(1).unwrap();
    assert_eq!(segment_files(), 0, "no attempt leaves anything behind");
    // The log goes on, and keeps all that it had.
    publish(&mut wal, 201..=210);
    assert_eq!(keeper.files()[..files.len() - 1], files[..files.len() - 1]);
    drop((wal, keeper));
    let (mut wal, recovered) = Wal::open(place.disk(), bounded()).unwrap();
    let group = &recovered.groups[&1];
    let indexes: Vec<u64> = group.entries.iter().map(|entry| entry.index).collect();
    assert_eq!((&group.damage, indexes), (&None, (11..=210).collect()));
    // One that is small enough again takes its place.
    let mut keeper = wal.keeper();
    keeper.install(checkpoint(200, 1000)).unwrap();
    publish(&mut wal, 211..=211);
    keeper.preparer().remove_spare().unwrap();
    assert!(keeper.files().len() < files.len(), "{:?}", keeper.files());
}

#[test]
fn a_checkpoint_at_its_bound_is_read_after_a_restart() {
    let place = Place::new("at-bound");
    let (mut wal, _) = Wal::open(place.disk(), bounded()).unwrap();
    let mut keeper = wal.keeper();
    publish(&mut wal, 1..=10);
    let state_bytes = CHECKPOINT_BYTES_MAX - around(&mut keeper);
    assert!(keeper.install(checkpoint(7, state_bytes + 1)).is_err(), "that is a byte too many");
    keeper.install(checkpoint(7, state_bytes)).unwrap();
    drop((wal, keeper));
    let file = place.0.join("groups/1/checkpoint");
    assert_eq!(std::fs::metadata(file).unwrap().len(), CHECKPOINT_BYTES_MAX);
    // A start has no smaller bound than the write, even where the write's is smaller now.
    for checkpoint_bytes_max in [CHECKPOINT_BYTES_MAX, 1000] {
        let config = Config { checkpoint_bytes_max, ..config() };
        let (_wal, recovered) = Wal::open(place.disk(), config).unwrap();
        let group = &recovered.groups[&1];
        assert_eq!((&group.damage, group.entries.len()), (&None, 3));
        assert_eq!(group.checkpoint.as_ref(), Some(&checkpoint(7, state_bytes)));
    }
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
    let truncated = group.checkpoint.as_ref().unwrap().index;
    assert_eq!(truncated + group.entries.len() as u64, 600);
    let last = group.entries.last().map(|last| wal.reader().read(last.place).unwrap());
    assert!(last.is_none_or(|data| data.starts_with(b"600 ")));
}
