//! Space held back for a full disk: a file that shrinks when somebody must write.
//!
//! Checkpoints and compaction may take most of it. The last part is the log's: settles free what
//! fills the disk, and they are written to the log before anything can be freed. It is given out in
//! parts, so that who filled the disk does not get all of it while we write a little.

use crate::disk::{Access, Disk, DiskFile};
use crate::error::{Context, Error};
use crate::layout::{BALLAST_FILE, BALLAST_TEMPORARY};
use crate::shared::sync_dir;

/// What of a ballast of `bytes` nobody but the log may take.
pub(crate) fn log_share(bytes: u64) -> u64 {
    bytes / 4
}

/// Makes sure that the whole ballast is there, if there is room for it twice. Says whether it is.
pub(crate) fn hold<D: Disk>(disk: &D, bytes: u64) -> Result<bool, Error> {
    if bytes == 0 {
        return Ok(false);
    }
    let held = size(disk)?;
    if held >= bytes {
        return Ok(true);
    }
    if disk.free_bytes().at("size", "the data directory")? / 2 < bytes - held {
        return Ok(false);
    }
    if held > 0 {
        let file = disk.open(BALLAST_FILE, Access::Write).at("open", BALLAST_FILE)?;
        file.allocate(bytes).at("allocate", BALLAST_FILE)?;
        return Ok(true);
    }
    let file = disk.create(BALLAST_TEMPORARY).at("create", BALLAST_TEMPORARY)?;
    file.allocate(bytes).at("allocate", BALLAST_TEMPORARY)?;
    disk.rename(BALLAST_TEMPORARY, BALLAST_FILE).at("rename", BALLAST_TEMPORARY)?;
    Ok(true)
}

/// Shrinks the ballast to at most `left` bytes. Says whether that gave anything free.
pub(crate) fn release<D: Disk>(disk: &D, left: u64) -> Result<bool, Error> {
    if size(disk)? <= left {
        return Ok(false);
    }
    if left == 0 {
        disk.remove(BALLAST_FILE).at("remove", BALLAST_FILE)?;
        // Space is free once the name is gone for good.
        return sync_dir(disk, "").map(|()| true);
    }
    let file = disk.open(BALLAST_FILE, Access::Write).at("open", BALLAST_FILE)?;
    file.truncate(left).at("truncate", BALLAST_FILE)?;
    file.sync_data().at("sync", BALLAST_FILE)?;
    Ok(true)
}

/// Gives the log `bytes` of the ballast. Says whether there was that much.
pub(crate) fn release_for_log<D: Disk>(disk: &D, bytes: u64) -> Result<bool, Error> {
    match size(disk)?.checked_sub(bytes) {
        Some(left) => release(disk, left),
        None => release(disk, 0),
    }
}

fn size<D: Disk>(disk: &D) -> Result<u64, Error> {
    match disk.open(BALLAST_FILE, Access::Read) {
        Ok(file) => file.bytes().at("size", BALLAST_FILE),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error).at("open", BALLAST_FILE),
    }
}
