//! The next log file before it is needed, and what a full disk means for that.

use wal::{Disk, Error, Preparer};

use crate::room::Room;

/// Has log files ready.
pub struct LogFiles<D: Disk> {
    preparer: Preparer<D>,
    room: Room,
}

impl<D: Disk> LogFiles<D> {
    pub fn new(preparer: Preparer<D>) -> Self {
        Self { preparer, room: Room::default() }
    }

    /// Makes the next log file ready by at most about `budget_bytes`; then removes those that nothing needs.
    /// True: there is nothing to do now, and on a disk that is full nothing can be done.
    pub fn prepare(&mut self, now_ms: u64, budget_bytes: u64) -> Result<bool, Error> {
        let free_bytes = self.preparer.free_bytes().unwrap_or(0);
        if !self.room.may_try(now_ms, free_bytes) {
            return Ok(true);
        }
        match self.try_to(budget_bytes) {
            Ok(is_ready) => {
                self.room.found();
                Ok(is_ready)
            }
            Err(error) if error.is_full() => {
                if self.room.refuse(now_ms, free_bytes) {
                    tracing::warn!(
                        free_bytes,
                        "disk full: cannot prepare the next log file ({error}). The node uses its reserve; free space \
                         on the disk of the data directory"
                    );
                }
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    fn try_to(&mut self, budget_bytes: u64) -> Result<bool, Error> {
        // First: it takes a file that would be removed otherwise.
        if !self.preparer.prepare_next(budget_bytes)? {
            return Ok(false);
        }
        self.preparer.remove_spare()?;
        self.preparer.hold_ballast().map(|_| true)
    }
}
