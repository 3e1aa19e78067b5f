//! What the log needs of a disk: few calls, all with explicit syncs.
//!
//! Two implementers: the real one in `io::files`, and `sim`, which loses and tears what was not
//! synced. Paths are relative to the data directory, with `/` between names.

use std::io::{self, IoSlice};

/// For what a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only to be read; works on a directory that may not be written.
    Read,
    /// To be read and written.
    Write,
}

/// Directories and names.
///
/// A name that was created, renamed or removed is certain only after `sync_dir` of its directory.
pub trait Disk: Clone + Send + Sync + 'static {
    /// An open file.
    type File: DiskFile;
    /// Held while the directory is in use.
    type Lock: Send + 'static;

    /// Makes the directory, if it is not there yet. The parent must be there.
    fn create_dir(&self, path: &str) -> io::Result<()>;
    /// Names in a directory, sorted; those of directories end in `/`.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;
    /// Makes an empty file; an older one of that name is emptied.
    fn create(&self, path: &str) -> io::Result<Self::File>;
    /// Opens a file that exists.
    fn open(&self, path: &str, access: Access) -> io::Result<Self::File>;
    /// Takes the whole directory for this process, until the lock is dropped or the process ends.
    fn lock(&self) -> io::Result<Self::Lock>;
    /// Makes the names in a directory as durable as the files' contents.
    fn sync_dir(&self, path: &str) -> io::Result<()>;
    /// Renames a file inside one directory; an older one of the new name is gone.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Those who have it open may go on reading it.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Bytes this user may still write.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// Contents of one file. Calls take `&self`: readers share the file with the writer.
pub trait DiskFile: Send + Sync + 'static {
    /// Length in bytes.
    fn bytes(&self) -> io::Result<u64>;
    /// Makes the file `bytes` long and takes the space now. What was not written reads as zero.
    fn allocate(&self, bytes: u64) -> io::Result<()>;
    /// Cuts the file off behind `bytes`.
    fn truncate(&self, bytes: u64) -> io::Result<()>;
    /// Writes all parts, one after the other, or fails.
    fn write_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()>;
    /// Fills `into`; fewer bytes only where the file ends.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Returns when everything written is on the medium; says how long that took, in
    /// microseconds. After an error the contents are unknown: never call it again.
    fn sync_data(&self) -> io::Result<u64>;
}
