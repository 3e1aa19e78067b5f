//! The thread that has the next log file ready before it is needed. Checkpoints have their own, since
//! one may take minutes.

use std::time::{Duration, Instant};

use wal::{FileDisk, Preparer};

use super::failure::Failure;
use super::handle::Node;
use super::store::Store;
use crate::housekeeping::LogFiles;
use crate::limits::FILL_BYTES;

/// How often is looked whether files may go, or a disk that was full has room.
const PERIOD: Duration = Duration::from_secs(1);

/// Prepares until the shards are gone.
pub(crate) fn run(preparer: Preparer<FileDisk>, node: &Node, store: &Store, failure: &Failure) {
    let started = Instant::now();
    let mut files = LogFiles::new(preparer);
    let mut rollovers = Vec::new();
    loop {
        // In small steps, between which it is looked whether the node stops.
        while !node.is_stopping() {
            match files.prepare(started.elapsed().as_millis() as u64, FILL_BYTES) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => failure.report(&error),
            }
        }
        rollovers.clear();
        store.rollovers().take(&mut rollovers, Some(PERIOD), true);
        if rollovers.is_empty() && store.rollovers().is_closed() {
            return;
        }
    }
}
