//! The thread that has the next log file ready before it is needed. Checkpoints have their own, since
//! one may take minutes.

use std::time::{Duration, Instant};

use wal::{Error, FileDisk, Preparer};

use super::handle::Node;
use super::start::Failure;
use super::store::Store;
use crate::limits::FILL_BYTES;
use crate::room::Room;

/// How often is looked whether files may go, or a disk that was full has room.
const PERIOD: Duration = Duration::from_secs(1);

/// Prepares until the shards are gone.
pub(crate) fn run(mut preparer: Preparer<FileDisk>, node: &Node, store: &Store, failure: &Failure) {
    let started = Instant::now();
    let mut room = Room::default();
    let mut rollovers = Vec::new();
    loop {
        let now_ms = started.elapsed().as_millis() as u64;
        let free_bytes = preparer.free_bytes().unwrap_or(0);
        if room.may_try(now_ms, free_bytes) && !node.is_stopping() {
            match prepare(&mut preparer, node) {
                Ok(()) => drop(room.found()),
                Err(error) if error.is_full() => {
                    if room.refuse(now_ms, free_bytes) {
                        tracing::warn!(
                            free_bytes,
                            "no room for the next log file ({error}): the node uses what it holds back for \
                             this; free space on the disk of the data directory"
                        );
                    }
                }
                Err(error) => failure.tell(&error),
            }
        }
        rollovers.clear();
        store.rollovers().take(&mut rollovers, Some(PERIOD), true);
        if rollovers.is_empty() && store.rollovers().is_closed() {
            return;
        }
    }
}

/// Makes the next log file ready, in small steps, and removes those that nothing needs.
fn prepare(preparer: &mut Preparer<FileDisk>, node: &Node) -> Result<(), Error> {
    // First: it takes a file that would be removed otherwise.
    while !node.is_stopping() && !preparer.prepare_next(FILL_BYTES)? {}
    preparer.remove_spare()?;
    preparer.hold_ballast().map(|_| ())
}
