//! Log files beside the writer: prepared ahead, recycled, removed when there are too many.
//!
//! ```text
//!   new ──> filling ──> prepared ──the writer takes it──> active ──full──> kept ──no group needs it──> free
//!              ^                                                                                       │ │
//!              └──recycled: a next file is wanted──────────────────────────────────────────────────────┘ v
//!                                                                                     too many: removed
//! ```
//!
//! One thread does this, apart from checkpoints: a checkpoint may take minutes, and a log file is
//! wanted in a fraction of a second. Commits wait for it only while a prepared file gets its
//! number. A full disk is reported and leaves everything as it was; any other failure is a reason
//! to stop the node.

use std::sync::Arc;

use crate::ballast;
use crate::disk::{Access, Disk, DiskFile};
use crate::error::{Context, Error};
use crate::limits::SPARE_FILES_MAX;
use crate::record::FileHeader;
use crate::shared::{
    Filling, NEXT_TEMPORARY, Ready, Shared, WAL_DIR, fill_step, number_file, sync_dir, wal_path,
};

/// The handle of the thread that prepares log files.
pub struct Preparer<D: Disk> {
    shared: Arc<Shared<D>>,
}

impl<D: Disk> Preparer<D> {
    pub(crate) fn new(shared: Arc<Shared<D>>) -> Self {
        Self { shared }
    }

    /// Works on the next log file: recycles the oldest, or zero-fills a new one by at most about
    /// `budget_bytes`. True once the next file is ready. To be called now and then.
    pub fn prepare_next(&mut self, budget_bytes: u64) -> Result<bool, Error> {
        if !self.shared.prepared.lock().is_empty() {
            return Ok(true);
        }
        let config = self.shared.config;
        let under_way = self.shared.filling.lock().take();
        let filling = match under_way {
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
            *self.shared.filling.lock() = Some(next);
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

    /// The oldest log file under the temporary name, if it is free and of the right size. Small ones that
    /// nothing needs go first: otherwise one of them would keep those behind it from being used again.
    fn take_oldest(&self) -> Result<Option<D::File>, Error> {
        self.remove_spare_above(usize::MAX)?;
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
        self.remove_spare_above(SPARE_FILES_MAX)
    }

    /// Removes every log file that nothing needs: for a disk that is full. Says how many went.
    pub fn remove_all_spare(&mut self) -> Result<usize, Error> {
        self.remove_spare_above(0)
    }

    /// Also removes those that are of another size.
    fn remove_spare_above(&self, count_max: usize) -> Result<usize, Error> {
        let file_bytes = self.shared.config.file_bytes;
        let is_spare = |bytes, free| free > count_max || (free > 0 && bytes != file_bytes);
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
            assert!(free > 0, "a log file that something needs is not given away");
            // From here on readers are told that it is gone.
            oldest.remove_entry()
        };
        call(&wal_path(number)).inspect_err(|_| {
            self.shared.table.lock().files.insert(number, file);
        })?;
        Ok(true)
    }

    /// Makes sure that the whole ballast is there, if there is room for it twice. Says whether it is.
    pub fn hold_ballast(&mut self) -> Result<bool, Error> {
        ballast::hold(&self.shared.disk, self.shared.config.ballast_bytes)
    }

    /// Bytes that the disk has left.
    pub fn free_bytes(&self) -> Result<u64, Error> {
        self.shared.disk.free_bytes().at("size", "the data directory")
    }
}
