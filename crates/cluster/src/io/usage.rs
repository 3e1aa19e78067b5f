//! What a data directory takes of its disk, by what its files are for.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use wal::Part;

/// Unix counts the room of files in these.
const BLOCK_BYTES: u64 = 512;

/// Directories below the data directory go so deep.
const DEPTH_MAX: usize = 3;

/// What a data directory takes, and the file system that it is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of the file system, and those of them that the node may still use.
    pub total: u64,
    pub free: u64,
    pub parts: BTreeMap<Part, Taken>,
}

/// What some files take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Room on the disk, whatever the files say their lengths are.
    pub bytes: u64,
    pub files: u64,
}

/// Looks at the names and sizes of all files there. Files that come and go meanwhile may be left out. Blocks.
///
/// # Errors
/// The directory, or its file system, cannot be looked at.
pub fn usage(data_dir: &Path) -> Result<Usage, Error> {
    let stat = rustix::fs::statvfs(data_dir)?;
    let (total, free) = (stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize);
    let mut parts = BTreeMap::new();
    let mut dirs = vec![(String::new(), 0)];
    while let Some((dir, depth)) = dirs.pop() {
        let entries = match std::fs::read_dir(data_dir.join(&dir)) {
            Err(error) if error.kind() == ErrorKind::NotFound && depth > 0 => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let metadata = match entry.metadata() {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            let name = entry.file_name();
            let separator = if dir.is_empty() { "" } else { "/" };
            let path = format!("{dir}{separator}{}", name.to_string_lossy());
            if metadata.is_dir() {
                if depth < DEPTH_MAX {
                    dirs.push((path, depth + 1));
                }
                continue;
            }
            let taken: &mut Taken = parts.entry(Part::of(&path)).or_default();
            taken.bytes += metadata.blocks() * BLOCK_BYTES;
            taken.files += 1;
        }
    }
    Ok(Usage { total, free, parts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_by_what_they_are_for() {
        let dir = std::env::temp_dir().join(format!("millrace-usage-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        for group in ["groups/1", "groups/12"] {
            std::fs::create_dir_all(dir.join(group)).unwrap();
        }
        std::fs::create_dir_all(dir.join("wal")).unwrap();
        for name in [
            "wal/1.log",
            "wal/next.tmp",
            "groups/1/seg-3",
            "groups/12/seg-1",
            "groups/12/seg-2",
            "groups/12/checkpoint",
            "groups/12/damaged-0-seg-9",
            "BOOT",
        ] {
            let path = dir.join(name);
            std::fs::write(&path, vec![7; 10_000]).unwrap();
            // Some file systems give out room only then.
            std::fs::File::open(&path).unwrap().sync_all().unwrap();
        }
        let told = usage(&dir).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let counts: Vec<(Part, u64)> =
            told.parts.iter().map(|(part, taken)| (*part, taken.files)).collect();
        let expected = [
            (Part::Log, 2),
            (Part::Segments { group: 1 }, 1),
            (Part::Segments { group: 12 }, 2),
            (Part::Checkpoints, 1),
            (Part::Quarantined, 1),
            (Part::Others, 1),
        ];
        assert_eq!(counts, expected);
        for taken in told.parts.values() {
            assert!(taken.bytes >= taken.files * 10_000 - 512, "{taken:?}");
        }
        assert!(told.total >= told.free && told.total > 0);
        assert!(usage(&dir).is_err(), "it is gone");
    }
}
