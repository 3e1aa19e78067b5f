//! A data directory in which a segment, a checkpoint or a log file holds anything in one place, or from its beginning
//! to its end: it is examined, and started from, or refused with words. Checksums always fit here.
#![no_main]

#[path = "../../crates/wal/tests/common/model.rs"]
mod model;

use std::sync::LazyLock;

use model::{Life, World};
use wal::sim::{Random, SimDisk};
use wal::{Config, Wal, inspect};

/// What a node has written: the files of a small log, with checkpoints and segments.
struct Written {
    files: Vec<(String, Vec<u8>)>,
    config: Config,
}

static WRITTEN: LazyLock<Written> = LazyLock::new(|| {
    let (disk, mut random) = (SimDisk::new(1), Random::new(7));
    let config = model::config(&mut random);
    let mut life = Life::open(&disk, config, &[World::new()]).expect("a new directory");
    (0..60).for_each(|_| life.step(&mut random).expect("the disk works"));
    life.wal.close().expect("the disk works");
    let mut paths = disk.paths();
    paths.sort();
    let contents = |path: String| {
        let bytes = disk.contents(&path).expect("it is there");
        (path, bytes)
    };
    Written { files: paths.into_iter().map(contents).collect(), config }
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [which, high, low, contents @ ..] = data else { return };
    let Written { files, config } = &*WRITTEN;
    let disk = SimDisk::new(1);
    files.iter().for_each(|(path, bytes)| disk.plant_file(path, bytes));
    let (path, bytes) = &files[usize::from(*which) % files.len()];
    let at = usize::from(u16::from_be_bytes([*high, *low]));
    if at < bytes.len() {
        disk.damage(path, at as u64, contents);
    } else {
        disk.lose_file(path);
        disk.plant_file(path, contents);
    }
    let _ = inspect(&disk, true);
    let _ = Wal::open(disk, *config);
});
