//! A data directory in which a segment, a checkpoint or a log file holds anything: it is examined, and started
//! from, or refused with words. Checksums always fit here; the first byte says which file it is.
#![no_main]

use wal::sim::SimDisk;
use wal::{Config, Identity, Wal, inspect};

const IDENTITY: Identity = Identity { cluster: 7, node: 1, incarnation: 3 };

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&which, contents)) = data.split_first() else { return };
    let config = Config { file_bytes: 8 << 10, ballast_bytes: 0, ..Config::new(IDENTITY) };
    let disk = SimDisk::new(1);
    Wal::open(disk.clone(), config).expect("a new directory");
    let log = disk.paths().into_iter().find(|path| path.starts_with("wal/"));
    match (which % 3, log) {
        (0, Some(log)) => {
            disk.lose_file(&log);
            disk.plant_file(&log, contents);
        }
        (1, _) => disk.plant_file("groups/1/checkpoint", contents),
        _ => disk.plant_file("groups/1/seg-1", contents),
    }
    disk.kill();
    let _ = inspect(&disk, true);
    let _ = Wal::open(disk, config);
});
