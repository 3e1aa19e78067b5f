//! Reading entries back, from any thread.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::disk::{Disk, DiskFile};
use crate::error::{Context, Error};
use crate::layout::{group_dir, group_of_segment, suspect_path};
use crate::place::Place;
use crate::shared::{Shared, sync_dir, wal_path};

/// Reads entries of the log by place. Cheap to clone; each thread has its own.
pub struct Reader<D: Disk> {
    shared: Arc<Shared<D>>,
}

impl<D: Disk> Clone for Reader<D> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<D: Disk> Reader<D> {
    pub(crate) fn new(shared: Arc<Shared<D>>) -> Self {
        Self { shared }
    }

    /// The data of the entry at `place`. [`Error::Gone`] if its file was recycled meanwhile:
    /// then a checkpoint covers the entry.
    pub fn read(&self, place: Place) -> Result<Bytes, Error> {
        let file = self.file(place.file).ok_or(Error::Gone)?;
        let path = wal_path(place.file);
        let mut data = BytesMut::zeroed(place.bytes as usize);
        let count = file.read_at(place.offset, &mut data).at("read", &path)?;
        if count == data.len() && crc32c::crc32c(&data) == place.checksum {
            return Ok(data.freeze());
        }
        // It may have been recycled between the look into the table and the read.
        match self.file(place.file) {
            Some(_) => Err(Error::damaged(&path, place.offset, "the entry's checksum is wrong")),
            None => Err(Error::Gone),
        }
    }

    /// Notes durably that reading a segment failed with `error`, if it was because of what lies
    /// there: the next start reads all segments of that group and finds the damage. Without this it
    /// would look at footers only.
    pub fn suspect(&self, error: &Error) -> Result<(), Error> {
        let Error::Damaged { path, .. } = error else { return Ok(()) };
        let Some(group) = group_of_segment(path) else { return Ok(()) };
        let (disk, path) = (&self.shared.disk, suspect_path(group));
        disk.create(&path).at("create", &path)?;
        sync_dir(disk, &group_dir(group))
    }

    fn file(&self, number: u64) -> Option<Arc<D::File>> {
        self.shared.table.lock().files.get(&number).map(|file| Arc::clone(&file.file))
    }
}
