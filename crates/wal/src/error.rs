//! What can go wrong below the log, in words an operator can act on.

use std::fmt;
use std::io;

/// Why the log did not do what it was asked. Cloneable, because a failed log repeats its first
/// error for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The disk failed a call. On the log itself this latches.
    Disk {
        /// What was tried: "write", "sync" and so on.
        action: &'static str,
        /// Relative to the data directory.
        path: String,
        /// The kind of failure, for callers that treat a full disk apart.
        kind: io::ErrorKind,
        /// The system's words.
        text: String,
    },
    /// The data directory is not one this program may use; nothing was changed.
    Refused {
        /// Relative to the data directory.
        path: String,
        /// What is wrong with it and what to do.
        why: String,
    },
    /// Bytes that were once on disk are not what was written.
    Damaged {
        /// Relative to the data directory.
        path: String,
        /// Where in the file.
        offset: u64,
        /// What does not fit.
        what: String,
    },
    /// The log file of this place was recycled: the entry is in a segment now, or settled.
    Gone,
    /// One atomic batch is larger than a log file. Nothing was written; the log goes on.
    TooLarge {
        /// Size of the batch.
        bytes: u64,
        /// What a file holds.
        bytes_max: u64,
    },
    /// A group's checkpoint is larger than it may be. Nothing was written, and the log keeps what the
    /// checkpoint was to replace.
    CheckpointTooLarge {
        /// Whose checkpoint it is.
        group: u32,
        /// Size of its file.
        bytes: u64,
        /// What the file may have.
        bytes_max: u64,
    },
}

impl Error {
    /// Whether the disk, or this user's share of it, is full, and nothing was half done. A sync
    /// that fails for want of space is a failed sync: what it lost is not known.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Error::Disk { action, kind, .. } => {
                *action != "sync" && matches!(kind, StorageFull | QuotaExceeded)
            }
            Error::Refused { .. }
            | Error::Damaged { .. }
            | Error::Gone
            | Error::TooLarge { .. }
            | Error::CheckpointTooLarge { .. } => false,
        }
    }

    pub(crate) fn refused(path: &str, why: impl Into<String>) -> Self {
        Error::Refused { path: path.to_owned(), why: why.into() }
    }

    pub(crate) fn damaged(path: &str, offset: u64, what: impl Into<String>) -> Self {
        Error::Damaged { path: path.to_owned(), offset, what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Disk { action, path, text, .. } => {
                write!(f, "{action} of {path} failed: {text}")
            }
            Error::Refused { path, why } => write!(f, "{path}: {why}"),
            Error::Damaged { path, offset, what } => {
                write!(f, "{path} is damaged at byte {offset}: {what}")
            }
            Error::Gone => {
                write!(f, "the log file that held this entry is in use for newer entries")
            }
            Error::TooLarge { bytes, bytes_max } => {
                write!(
                    f,
                    "a batch of {bytes} bytes does not fit into a log file, which takes {bytes_max} bytes"
                )
            }
            Error::CheckpointTooLarge { group, bytes, bytes_max } => write!(
                f,
                "the checkpoint of group {group} is too large: it has {bytes} bytes, and at most {bytes_max} are \
                 allowed"
            ),
        }
    }
}

impl std::error::Error for Error {}

/// Says which call on which file failed.
pub(crate) trait Context<T> {
    fn at(self, action: &'static str, path: &str) -> Result<T, Error>;
}

impl<T> Context<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &str) -> Result<T, Error> {
        self.map_err(|error| Error::Disk {
            action,
            path: path.to_owned(),
            kind: error.kind(),
            text: error.to_string(),
        })
    }
}
