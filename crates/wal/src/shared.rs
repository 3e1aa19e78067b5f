//! What the writer, the readers and the flusher have in common: the table of log files.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::config::Config;
use crate::disk::{Disk, DiskFile};
use crate::error::{Context, Error};
use crate::io::locked::Locked;
use crate::limits::{DATA_START, FILL_STEP_BYTES};
use crate::record::FileHeader;

pub(crate) const WAL_DIR: &str = "wal";
pub(crate) const GROUPS_DIR: &str = "groups";
/// A log file that the flusher prepares.
pub(crate) const NEXT_TEMPORARY: &str = "wal/next.tmp";
/// A log file that the writer could not wait for.
pub(crate) const URGENT_TEMPORARY: &str = "wal/urgent.tmp";

pub(crate) struct Shared<D: Disk> {
    pub(crate) disk: D,
    pub(crate) config: Config,
    pub(crate) table: Locked<Table<D::File>>,
    /// Files ready to be written, in order of their numbers, which follow the active one's.
    /// Locked while a file gets its number, so that no number is given twice.
    pub(crate) prepared: Locked<VecDeque<Ready<D::File>>>,
    /// The file that is being made ready, between two steps.
    pub(crate) filling: Locked<Option<Filling<D::File>>>,
    _lock: D::Lock,
}

/// A log file on its way to be the next.
pub(crate) struct Filling<F> {
    pub(crate) file: F,
    pub(crate) bytes: u64,
    pub(crate) filled: u64,
}

/// A log file without batches.
pub(crate) struct Ready<F> {
    pub(crate) number: u64,
    pub(crate) file: Arc<F>,
    pub(crate) bytes: u64,
}

pub(crate) struct Table<F> {
    pub(crate) files: BTreeMap<u64, LogFile<F>>,
    /// The file with the last batch: what follows it may be torn, what precedes it is complete.
    pub(crate) active: u64,
    /// Newest checkpoint of each group.
    pub(crate) truncated: BTreeMap<u32, Truncated>,
}

pub(crate) struct LogFile<F> {
    pub(crate) file: Arc<F>,
    pub(crate) bytes: u64,
    /// First and last index of the live entries of each group in this file.
    pub(crate) holds: BTreeMap<u32, (u64, u64)>,
}

/// A checkpoint that is durable, and whether the log says so too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Truncated {
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) is_logged: bool,
    /// Written since the start, so it may rebuild what the start found damaged.
    pub(crate) is_new: bool,
}

impl<F> Table<F> {
    /// Notes an entry in a file.
    pub(crate) fn hold(&mut self, file: u64, group: u32, index: u64) {
        let holds = &mut self.files.get_mut(&file).expect("entries go to a known file").holds;
        let (first, last) = holds.entry(group).or_insert((index, index));
        *first = index.min(*first);
        *last = index;
    }

    /// Notes that a group's entries from `index` on are no more.
    pub(crate) fn truncate(&mut self, group: u32, index: u64) {
        for file in self.files.values_mut() {
            if let Some((first, last)) = file.holds.get_mut(&group) {
                *last = index.saturating_sub(1).min(*last);
                if *last < *first {
                    file.holds.remove(&group);
                }
            }
        }
    }

    /// Groups whose entries in `file` no checkpoint covers, with the last index there.
    pub(crate) fn blocking(&self, file: u64) -> Vec<(u32, u64)> {
        let Some(file) = self.files.get(&file) else { return Vec::new() };
        let holds = file.holds.iter().map(|(group, (_, last))| (*group, *last));
        holds
            .filter(|(group, last)| self.truncated(*group).is_none_or(|f| f.index < *last))
            .collect()
    }

    /// How many of the oldest files nothing needs any more. None while the log itself does not
    /// say yet which checkpoints, and which damage, there are.
    pub(crate) fn recyclable(&self) -> usize {
        if self.truncated.values().any(|truncated| !truncated.is_logged) {
            return 0;
        }
        let is_covered = |(group, (_, last)): (&u32, &(u64, u64))| {
            self.truncated(*group).is_some_and(|truncated| truncated.index >= *last)
        };
        let is_free = |(number, file): &(&u64, &LogFile<F>)| {
            **number < self.active && file.holds.iter().all(is_covered)
        };
        self.files.iter().take_while(is_free).count()
    }

    fn truncated(&self, group: u32) -> Option<Truncated> {
        self.truncated.get(&group).copied()
    }
}

impl<D: Disk> Shared<D> {
    pub(crate) fn new(disk: D, config: Config, lock: D::Lock, table: Table<D::File>) -> Self {
        let prepared = Locked::new(VecDeque::new());
        let (table, filling) = (Locked::new(table), Locked::new(None));
        Self { disk, config, table, prepared, filling, _lock: lock }
    }
}

/// Path of a log file.
pub(crate) fn wal_path(number: u64) -> String {
    format!("{WAL_DIR}/{number:08}.wal")
}

/// Makes names durable. The planted bug that trusts the file system must be caught by the runs.
pub(crate) fn sync_dir<D: Disk>(disk: &D, path: &str) -> Result<(), Error> {
    if planted::is("skip_dir_sync") {
        return Ok(());
    }
    disk.sync_dir(path).at("sync", if path.is_empty() { "the data directory" } else { path })
}

/// Writes zeros from `from` to at most `to`, in one step; says how far it came.
pub(crate) fn fill_step<F: DiskFile>(
    file: &F,
    path: &str,
    from: u64,
    to: u64,
) -> Result<u64, Error> {
    static ZEROS: [u8; FILL_STEP_BYTES] = [0; FILL_STEP_BYTES];
    let count = (to - from).min(FILL_STEP_BYTES as u64);
    let zeros = std::io::IoSlice::new(&ZEROS[..count as usize]);
    file.write_at(from, &[zeros]).at("write", path)?;
    Ok(from + count)
}

/// Gives a filled or recycled temporary file its header and its number, durably.
pub(crate) fn number_file<D: Disk>(
    disk: &D,
    file: &D::File,
    temporary: &str,
    header: FileHeader,
) -> Result<(), Error> {
    let mut block = vec![0; DATA_START as usize];
    let encoded = header.encode();
    block[..encoded.len()].copy_from_slice(&encoded);
    file.write_at(0, &[std::io::IoSlice::new(&block)]).at("write", temporary)?;
    file.sync_data().at("sync", temporary)?;
    disk.rename(temporary, &wal_path(header.number)).at("rename", temporary)?;
    sync_dir(disk, WAL_DIR)
}

/// Makes a whole log file at once: short, because somebody waits.
pub(crate) fn make_file<D: Disk>(
    disk: &D,
    config: &Config,
    number: u64,
    bytes: u64,
) -> Result<Ready<D::File>, Error> {
    fill_file(disk, config, number, bytes).inspect_err(|error| {
        if error.is_full() {
            // What it took so far is worth more to somebody else.
            let _ = disk.remove(URGENT_TEMPORARY);
        }
    })
}

fn fill_file<D: Disk>(
    disk: &D,
    config: &Config,
    number: u64,
    bytes: u64,
) -> Result<Ready<D::File>, Error> {
    let file = disk.create(URGENT_TEMPORARY).at("create", URGENT_TEMPORARY)?;
    file.allocate(bytes).at("allocate", URGENT_TEMPORARY)?;
    let mut filled = 0;
    while filled < bytes {
        filled = fill_step(&file, URGENT_TEMPORARY, filled, bytes)?;
    }
    let header = FileHeader { identity: config.identity, number, bytes };
    number_file(disk, &file, URGENT_TEMPORARY, header)?;
    Ok(Ready { number, file: Arc::new(file), bytes })
}
