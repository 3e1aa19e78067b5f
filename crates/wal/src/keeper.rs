//! Housekeeping beside the writer: log files prepared ahead and recycled, checkpoints, segments.
//!
//! Owned by one thread, which may wait for the disk as long as it likes: commits do not wait for
//! it, except for the moment in which a prepared file gets its number. A full disk is reported
//! and leaves everything as it was; any other failure is a reason to stop the node.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::checkpoint::{Checkpoint, Stored};
use crate::disk::{Access, Disk, DiskFile};
use crate::error::{Context, Error};
use crate::groups::GroupFiles;
use crate::layout::{
    BALLAST_FILE, BALLAST_TEMPORARY, checkpoint_path, checkpoint_temporary, group_dir, segment_path,
};
use crate::limits::SPARE_FILES_MAX;
use crate::record::FileHeader;
use crate::segments::{self, SegmentMeta};
use crate::shared::{
    Floor, GROUPS_DIR, NEXT_TEMPORARY, Ready, Shared, WAL_DIR, fill_step, number_file,
    release_ballast, sync_dir, wal_path,
};

/// The flusher's handle.
pub struct Keeper<D: Disk> {
    pub(crate) shared: Arc<Shared<D>>,
    pub(crate) groups: BTreeMap<u32, GroupFiles>,
    filling: Option<Filling<D::File>>,
}

/// A log file on its way to be the next.
struct Filling<F> {
    file: F,
    bytes: u64,
    filled: u64,
}

/// A log file in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Grows from file to file.
    pub number: u64,
    /// Its size.
    pub bytes: u64,
    /// Groups that have live entries in it: first and last index.
    pub holds: Vec<(u32, u64, u64)>,
    /// Whether commits go to it.
    pub is_active: bool,
}

impl<D: Disk> Keeper<D> {
    pub(crate) fn new(shared: Arc<Shared<D>>, groups: BTreeMap<u32, GroupFiles>) -> Self {
        Self { shared, groups, filling: None }
    }

    /// Works on the next log file: recycles the oldest, or zero-fills a new one by at most about
    /// `budget_bytes`. True once the next file is ready. To be called now and then.
    pub fn prepare_next(&mut self, budget_bytes: u64) -> Result<bool, Error> {
        if !self.shared.prepared.lock().is_empty() {
            return Ok(true);
        }
        let config = self.shared.config;
        let filling = match self.filling.take() {
            Some(filling) => filling,
            None => match self.take_oldest()? {
                Some(file) => Filling { file, bytes: config.file_bytes, filled: config.file_bytes },
                None => self.begin_next()?,
            },
        };
        self.fill_next(filling, budget_bytes).inspect_err(|error| {
            if error.is_full() {
                // What it took so far is worth more to somebody else.
                let _ = self.shared.disk.remove(NEXT_TEMPORARY);
            }
        })
    }

    fn fill_next(&mut self, mut next: Filling<D::File>, budget_bytes: u64) -> Result<bool, Error> {
        let end = next.filled.saturating_add(budget_bytes.max(1)).min(next.bytes);
        while next.filled < end {
            next.filled = fill_step(&next.file, NEXT_TEMPORARY, next.filled, next.bytes)?;
        }
        // In steps, so that a commit never waits behind a whole file of zeros.
        next.file.sync_data().at("sync", NEXT_TEMPORARY)?;
        if next.filled < next.bytes {
            self.filling = Some(next);
            return Ok(false);
        }
        self.finish_next(next)?;
        Ok(true)
    }

    fn begin_next(&self) -> Result<Filling<D::File>, Error> {
        let bytes = self.shared.config.file_bytes;
        let file = self.shared.disk.create(NEXT_TEMPORARY).at("create", NEXT_TEMPORARY)?;
        file.allocate(bytes).at("allocate", NEXT_TEMPORARY).inspect_err(|_| {
            let _ = self.shared.disk.remove(NEXT_TEMPORARY);
        })?;
        Ok(Filling { file, bytes, filled: 0 })
    }

    /// The oldest log file under the temporary name, if it is free and of the right size.
    fn take_oldest(&self) -> Result<Option<D::File>, Error> {
        let is_wanted = |bytes, free| free > 0 && bytes == self.shared.config.file_bytes;
        let rename = |path: &str| self.shared.disk.rename(path, NEXT_TEMPORARY).at("rename", path);
        if !self.give_away(is_wanted, rename)? {
            return Ok(None);
        }
        // The header of the old number goes only when the old name is gone for good.
        sync_dir(&self.shared.disk, WAL_DIR)?;
        let file = self.shared.disk.open(NEXT_TEMPORARY, Access::Write);
        file.at("open", NEXT_TEMPORARY).map(Some)
    }

    fn finish_next(&self, filling: Filling<D::File>) -> Result<(), Error> {
        let Filling { file, bytes, .. } = filling;
        let mut prepared = self.shared.prepared.lock();
        let active = *self.shared.table.lock().files.last_key_value().expect("one is active").0;
        let number = active + 1 + prepared.len() as u64;
        let header = FileHeader { identity: self.shared.config.identity, number, bytes };
        number_file(&self.shared.disk, &file, NEXT_TEMPORARY, header)?;
        prepared.push_back(Ready { number, file: Arc::new(file), bytes });
        Ok(())
    }

    /// Removes log files that nothing needs, but for those kept to be recycled. Says how many
    /// went.
    pub fn remove_spare(&mut self) -> Result<usize, Error> {
        let file_bytes = self.shared.config.file_bytes;
        let is_spare = |bytes, free| free > SPARE_FILES_MAX || (free > 0 && bytes != file_bytes);
        let remove = |path: &str| self.shared.disk.remove(path).at("remove", path);
        let mut count = 0;
        while self.give_away(is_spare, remove)? {
            // One by one, so that the log never has a gap.
            sync_dir(&self.shared.disk, WAL_DIR)?;
            count += 1;
        }
        Ok(count)
    }

    /// Takes the oldest file out of the log with `call`, if `is_wanted` says so of its size and
    /// of how many files nothing needs.
    fn give_away(
        &self,
        is_wanted: impl Fn(u64, usize) -> bool,
        call: impl Fn(&str) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let (number, file) = {
            let mut table = self.shared.table.lock();
            let free = table.recyclable();
            let oldest = table.files.first_entry().expect("the active file is there");
            if !is_wanted(oldest.get().bytes, free) {
                return Ok(false);
            }
            // From here on readers are told that it is gone.
            oldest.remove_entry()
        };
        call(&wal_path(number)).inspect_err(|_| {
            self.shared.table.lock().files.insert(number, file);
        })?;
        Ok(true)
    }

    /// Log files in use, oldest first.
    pub fn files(&self) -> Vec<FileStatus> {
        let table = self.shared.table.lock();
        let status = |(number, file): (&u64, &crate::shared::LogFile<D::File>)| FileStatus {
            number: *number,
            bytes: file.bytes,
            holds: file
                .holds
                .iter()
                .map(|(group, (first, last))| (*group, *first, *last))
                .collect(),
            is_active: *number == table.active,
        };
        table.files.iter().map(status).collect()
    }

    /// Which groups keep this log file from being recycled, and the last index each has in it:
    /// a checkpoint of the group at or above that index frees it.
    pub fn blocking(&self, file: u64) -> Vec<(u32, u64)> {
        self.shared.table.lock().blocking(file)
    }

    /// Number of the oldest log file that checkpoints have not freed yet.
    pub fn oldest_needed(&self) -> u64 {
        let table = self.shared.table.lock();
        let needed = |number: &&u64| !table.blocking(**number).is_empty();
        table.files.keys().find(needed).copied().unwrap_or(table.active)
    }

    /// Bytes of all log files, with the prepared one.
    pub fn wal_bytes(&self) -> u64 {
        let prepared: u64 = self.shared.prepared.lock().iter().map(|ready| ready.bytes).sum();
        self.shared.table.lock().files.values().map(|file| file.bytes).sum::<u64>() + prepared
    }

    /// The newest checkpoint of a group.
    pub fn checkpoint(&self, group: u32) -> Option<&Checkpoint> {
        Some(&self.groups.get(&group)?.stored.as_ref()?.checkpoint)
    }

    /// Begins a segment of a group. Messages are added in order; `finish` makes it durable.
    pub fn segment(&mut self, group: u32) -> Result<segments::Writer<D>, Error> {
        self.make_group_dir(group)?;
        let files = self.groups.get_mut(&group).expect("its directory was just made");
        let number = files.next_segment;
        files.next_segment += 1;
        files.on_disk.insert(number);
        segments::Writer::create(&self.shared.disk, self.shared.config.identity, group, number)
    }

    /// Opens a segment to be read, by any thread.
    pub fn open_segment(
        &self,
        group: u32,
        meta: &SegmentMeta,
    ) -> Result<segments::Reader<D>, Error> {
        segments::Reader::open(&self.shared.disk, &self.shared.config.identity, group, meta)
    }

    /// Makes a checkpoint durable. It names all segments the group has from now on; others of
    /// this group are removed, after that. Log files below it become free with the next commit.
    ///
    /// When the disk is full the ballast is given up for it; if that does not suffice, nothing
    /// is done.
    pub fn install(&mut self, checkpoint: Checkpoint) -> Result<(), Error> {
        let (group, index, term) = (checkpoint.group, checkpoint.index, checkpoint.term);
        self.make_group_dir(group)?;
        let files = &self.groups[&group];
        let before = files.stored.as_ref().map_or(0, |stored| stored.checkpoint.index);
        assert!(index >= before, "checkpoints of group {group} go forward: {index} after {before}");
        let listed: BTreeSet<u64> = checkpoint.segments.iter().map(|meta| meta.number).collect();
        assert!(listed.is_subset(&files.on_disk), "a checkpoint names segments that are there");
        let removed: Vec<u64> = files.on_disk.difference(&listed).copied().collect();
        let next_segment = files.next_segment;
        let stored = Stored { checkpoint, next_segment, removed };
        self.with_ballast(|keeper| keeper.write_checkpoint(group, &stored))?;
        let removed = stored.removed.clone();
        let files = self.groups.get_mut(&group).expect("its directory was just made");
        files.stored = Some(stored);
        files.damage = None;
        let floor = Floor { index, term, is_logged: false, is_new: true };
        self.shared.table.lock().floors.insert(group, floor);
        match self.remove_segments(group, &removed) {
            // Some file systems need space to remove. The next checkpoint names them again.
            Err(error) if error.is_full() => Ok(()),
            other => other,
        }
    }

    fn write_checkpoint(&self, group: u32, stored: &Stored) -> Result<(), Error> {
        let disk = &self.shared.disk;
        let temporary = checkpoint_temporary(group);
        let bytes = stored.encode(&self.shared.config.identity);
        // The names of the segments first: the checkpoint must not know what a cut takes away.
        sync_dir(disk, &group_dir(group))?;
        let file = disk.create(&temporary).at("create", &temporary)?;
        file.write_at(0, &[IoSlice::new(&bytes)]).at("write", &temporary)?;
        file.sync_data().at("sync", &temporary)?;
        disk.rename(&temporary, &checkpoint_path(group)).at("rename", &temporary)?;
        sync_dir(disk, &group_dir(group))
    }

    fn remove_segments(&mut self, group: u32, numbers: &[u64]) -> Result<(), Error> {
        if numbers.is_empty() {
            return Ok(());
        }
        for number in numbers {
            let path = segment_path(group, *number);
            match self.shared.disk.remove(&path) {
                // A writer that failed took its file along.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other.at("remove", &path)?,
            }
        }
        // Before a next checkpoint no longer explains them.
        sync_dir(&self.shared.disk, &group_dir(group))?;
        let files = self.groups.get_mut(&group).expect("segments are of a known group");
        files.on_disk.retain(|number| !numbers.contains(number));
        Ok(())
    }

    /// Makes sure that the ballast is there, if there is room for it twice. Says whether it is.
    pub fn hold_ballast(&mut self) -> Result<bool, Error> {
        let (disk, bytes) = (&self.shared.disk, self.shared.config.ballast_bytes);
        if bytes == 0 {
            return Ok(false);
        }
        if disk.open(BALLAST_FILE, Access::Read).is_ok() {
            return Ok(true);
        }
        if disk.free_bytes().at("size", "the data directory")? / 2 < bytes {
            return Ok(false);
        }
        let file = disk.create(BALLAST_TEMPORARY).at("create", BALLAST_TEMPORARY)?;
        file.allocate(bytes).at("allocate", BALLAST_TEMPORARY)?;
        disk.rename(BALLAST_TEMPORARY, BALLAST_FILE).at("rename", BALLAST_TEMPORARY)?;
        Ok(true)
    }

    /// Gives the ballast's space to whoever needs it now. Says whether there was any.
    pub fn release_ballast(&mut self) -> Result<bool, Error> {
        release_ballast(&self.shared.disk)
    }

    /// Tries again with the ballast's space if the disk is full.
    pub(crate) fn with_ballast<T>(
        &mut self,
        call: impl Fn(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match call(self) {
            Err(error) if error.is_full() && self.release_ballast()? => call(self),
            other => other,
        }
    }

    pub(crate) fn make_group_dir(&mut self, group: u32) -> Result<(), Error> {
        if self.groups.contains_key(&group) {
            return Ok(());
        }
        let dir = group_dir(group);
        self.shared.disk.create_dir(&dir).at("create", &dir)?;
        sync_dir(&self.shared.disk, GROUPS_DIR)?;
        self.groups.insert(group, GroupFiles { next_segment: 1, ..GroupFiles::default() });
        Ok(())
    }
}
