//! Where an entry's data lies.

use crate::record::{Position, RecordHeader};

/// Where the data of one entry lies in the log, and its checksum: all a reader needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the log file.
    pub file: u64,
    /// Offset of the data in the file.
    pub offset: u64,
    /// Length of the data.
    pub bytes: u32,
    /// CRC32C of the data.
    pub checksum: u32,
}

impl Place {
    pub(crate) fn new(batch: Position, header: &RecordHeader) -> Self {
        Self {
            file: batch.file,
            offset: batch.offset + u64::from(header.start),
            bytes: header.bytes,
            checksum: header.payload_checksum,
        }
    }

    /// Where the data ends.
    pub(crate) fn end(&self) -> Position {
        Position { file: self.file, offset: self.offset + u64::from(self.bytes) }
    }
}
