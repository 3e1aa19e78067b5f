//! What may be chosen about a log.

use crate::identity::Identity;
use crate::limits;

/// How to open a log.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Whose log it is; a directory of anybody else is refused. [`Identity::load`] reads it from
    /// a directory that was used before.
    pub identity: Identity,
    /// Size of a log file, from `limits::FILE_BYTES_MIN` to `limits::FILE_BYTES_MAX`.
    pub file_bytes: u64,
    /// Space held back for compaction when the disk is full; 0: none.
    pub ballast_bytes: u64,
    /// Largest checkpoint that is written, at most `limits::CHECKPOINT_BYTES_MAX`. A start reads larger ones.
    pub checkpoint_bytes_max: u64,
}

impl Config {
    /// The defaults for `identity`.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            file_bytes: limits::FILE_BYTES,
            ballast_bytes: limits::BALLAST_BYTES,
            checkpoint_bytes_max: limits::CHECKPOINT_BYTES_MAX,
        }
    }

    /// Size of a log file that somebody waits for.
    pub(crate) fn urgent_bytes(&self) -> u64 {
        self.file_bytes.min(limits::URGENT_FILE_BYTES)
    }
}
