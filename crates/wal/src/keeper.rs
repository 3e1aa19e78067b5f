//! Housekeeping beside the writer: checkpoints and segments. Log files are the [`Preparer`]'s.
//!
//! Owned by one thread, which may wait for the disk as long as it likes: commits do not wait for
//! it. A full disk is reported and leaves everything as it was; any other failure is a reason to
//! stop the node.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::ballast;
use crate::checkpoint::{Checkpoint, Stored};
use crate::disk::{Disk, DiskFile};
use crate::error::{Context, Error};
use crate::groups::GroupFiles;
use crate::layout::{checkpoint_path, checkpoint_temporary, group_dir, segment_path};
use crate::preparer::Preparer;
use crate::segments::{self, SegmentMeta};
use crate::shared::{GROUPS_DIR, Shared, Truncated, sync_dir};

/// The flusher's handle.
pub struct Keeper<D: Disk> {
    pub(crate) shared: Arc<Shared<D>>,
    pub(crate) groups: BTreeMap<u32, GroupFiles>,
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
        Self { shared, groups }
    }

    /// The handle for log files, for another thread: its work never waits behind a checkpoint.
    pub fn preparer(&self) -> Preparer<D> {
        Preparer::new(Arc::clone(&self.shared))
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
        let is_new = files.on_disk.insert(number);
        assert!(is_new, "the number of a segment of group {group} is used once: {number}");
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
    /// is done. Nor is anything done if the checkpoint is larger than it may be.
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
        self.check_size(group, stored.bytes())?;
        self.with_ballast(|keeper| keeper.write_checkpoint(group, &stored))?;
        let removed = stored.removed.clone();
        let files = self.groups.get_mut(&group).expect("its directory was just made");
        files.stored = Some(stored);
        files.damage = None;
        let truncated = Truncated { index, term, is_logged: false, is_new: true };
        self.shared.table.lock().truncated.insert(group, truncated);
        match self.remove_segments(group, &removed) {
            // Some file systems need space to remove. The next checkpoint names them again.
            Err(error) if error.is_full() => Ok(()),
            other => other,
        }
    }

    /// Refuses a checkpoint of `group` that has `bytes`, or more with what comes on top, if it is larger than a
    /// checkpoint may be.
    pub fn check_size(&self, group: u32, bytes: u64) -> Result<(), Error> {
        let bytes_max = self.checkpoint_bytes_max();
        match bytes <= bytes_max {
            true => Ok(()),
            false => Err(Error::CheckpointTooLarge { group, bytes, bytes_max }),
        }
    }

    /// Largest checkpoint that is written.
    pub fn checkpoint_bytes_max(&self) -> u64 {
        self.shared.config.checkpoint_bytes_max
    }

    /// Removes the segments of a group that its newest checkpoint does not name. They were written for one
    /// that was refused, and each attempt would leave more of them.
    pub fn remove_unnamed(&mut self, group: u32) -> Result<(), Error> {
        let Some(files) = self.groups.get(&group) else { return Ok(()) };
        let named = files.stored.iter().flat_map(|stored| &stored.checkpoint.segments);
        let named: BTreeSet<u64> = named.map(|meta| meta.number).collect();
        let unnamed: Vec<u64> = files.on_disk.difference(&named).copied().collect();
        self.remove_segments(group, &unnamed)
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

    /// Gives the space of the ballast to whoever needs it now, all but the log's share. Says whether
    /// there was any.
    pub fn release_ballast(&mut self) -> Result<bool, Error> {
        ballast::release(&self.shared.disk, ballast::log_share(self.shared.config.ballast_bytes))
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
