//! Writes what the shards of a node append to its log: everything that waits is one write and one sync, if one log
//! file holds it.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use wal::{CommitBatch, Disk, Error, Stats, Wal};

use crate::exchange::Input;
use crate::housekeeping::LogRoom;

/// Something to be written to the log, for [`crate::exchange::Output::Append`].
#[derive(Debug)]
pub struct Append {
    /// The shard that is told once it is synced.
    pub shard: usize,
    /// The shard's number of this append.
    pub number: u64,
    pub batch: CommitBatch,
    /// Entries in the batch, each of which gets a place.
    pub entries: usize,
}

/// The log's writer. It has some appends in hand; whoever drives it finds room for them, commits, and tells the shards.
///
/// ```text
///   empty ──add──> in hand ──find_room: true──> has room ──commit──> empty, or in hand if a file is full
///                   ^   └──find_room: false (the disk is full)──┐
///                   └────────────────after a pause──────────────┘
/// ```
pub struct LogWriter<D: Disk> {
    wal: Wal<D>,
    room: LogRoom,
    /// No more than the shards may have unsynced: `limits::UNSYNCED_BYTES` each, and what one step adds.
    batches: Vec<CommitBatch>,
    /// Shard, number and entries of each batch.
    owners: VecDeque<(usize, u64, usize)>,
    /// So many of the first batches have room.
    ready: usize,
}

impl<D: Disk> LogWriter<D> {
    pub fn new(wal: Wal<D>) -> Self {
        let (room, batches, owners) = (LogRoom::default(), Vec::new(), VecDeque::new());
        Self { wal, room, batches, owners, ready: 0 }
    }

    /// Takes an append in hand, behind the others.
    pub fn add(&mut self, append: Append) {
        let Append { shard, number, batch, entries } = append;
        self.batches.push(batch);
        self.owners.push_back((shard, number, entries));
    }

    /// Whether it has nothing in hand.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Whether the next commit has room. False: the disk is full; nothing is lost, and it is to be asked again before
    /// long.
    pub fn find_room(&mut self, now_ms: u64) -> bool {
        match self.room.find(now_ms, &mut self.wal, &self.batches) {
            Some(count) => self.ready = count,
            None => self.ready = 0,
        }
        self.ready > 0 || self.is_empty()
    }

    /// Whether publishers wait because the disk is full.
    pub fn is_short(&self) -> bool {
        self.room.is_short()
    }

    /// One write and one sync of those that have room. `synced`: what the shards are to hear, one input for each
    /// append, in order. After an error nothing more may be written: the node is to stop.
    pub fn commit(&mut self, synced: &mut Vec<(usize, Input)>) -> Result<(), Error> {
        let count = std::mem::take(&mut self.ready);
        if count == 0 {
            return Ok(());
        }
        let later = self.batches.split_off(count);
        let batches = std::mem::replace(&mut self.batches, later);
        let mut places = self.wal.commit(batches)?.into_places().into_iter();
        for (shard, number, entries) in self.owners.drain(..count) {
            let places = places.by_ref().take(entries).collect();
            synced.push((shard, Input::Synced { number, places }));
        }
        assert!(places.next().is_none(), "every entry belongs to an append");
        Ok(())
    }

    /// The log's counters since it was opened.
    pub fn stats(&self) -> Stats {
        self.wal.stats()
    }

    /// Writes the mark of a clean end. What is in hand is not written.
    pub fn close(self) -> Result<(), Error> {
        self.wal.close()
    }
}
