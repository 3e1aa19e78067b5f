//! What a full disk means for who writes the log.

use wal::{CommitBatch, Disk, Wal};

use crate::room::Room;

/// A full disk holds everything back until there is room: nothing is written, and nothing confirmed.
#[derive(Debug, Default)]
pub struct LogRoom {
    room: Room,
    is_short: bool,
}

impl LogRoom {
    /// How many of the first of `batches` may be committed: they find room, or the commit says what else is
    /// wrong. None: it is to be asked again before long.
    pub fn find<D: Disk>(
        &mut self,
        now_ms: u64,
        wal: &mut Wal<D>,
        batches: &[CommitBatch],
    ) -> Option<usize> {
        match wal.make_room(batches) {
            Err(error) if error.is_full() => {
                self.is_short = true;
                if self.room.refuse(now_ms, 0) {
                    tracing::error!(
                        "disk full: the log cannot be written: {error}. The node confirms nothing until there is room, \
                         and loses nothing; free space on the disk of the data directory"
                    );
                }
                None
            }
            // If there is anything else to say, the commit says it.
            found => {
                if self.room.found() {
                    tracing::info!("the disk has room again: the log is written");
                }
                self.is_short = false;
                Some(found.unwrap_or(batches.len()))
            }
        }
    }

    /// Publishers wait as long as that is so.
    pub fn is_short(&self) -> bool {
        self.is_short
    }
}
