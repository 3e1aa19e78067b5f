//! What the threads that touch the disk are handed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::Bytes;
use machine::{GroupId, NodeId, QueueId};
use wal::{CommitBatch, EntryAt, FileDisk};

use super::mailbox::Mailbox;
use crate::housekeeping::Task;
use crate::peer::message::Message;
use crate::shard::Located;
use crate::snapshot::{self, Chunk};

/// Something to be written to the log.
#[derive(Debug)]
pub(crate) struct Append {
    pub(crate) shard: usize,
    pub(crate) number: u64,
    pub(crate) batch: CommitBatch,
    pub(crate) entries: usize,
}

/// Something to be read for deliveries.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) group: GroupId,
    pub(crate) queue: QueueId,
    pub(crate) parts: Vec<Located>,
}

/// Something for the thread that reads.
#[derive(Debug)]
pub(crate) enum Read {
    Fetch(Fetch),
    /// Entries for a replica that is behind.
    Entries {
        group: GroupId,
        number: u64,
        entries: Vec<EntryAt>,
    },
}

/// Something for the flusher.
#[derive(Debug)]
pub(crate) enum Flush {
    Task(Task),
    /// `to` is to get the newest checkpoint of `group`.
    SendSnapshot {
        group: GroupId,
        to: NodeId,
    },
    /// The log went on to another file.
    RolledOver,
}

/// Something for the thread that sends snapshots.
pub(crate) enum Sending {
    Begin {
        to: NodeId,
        source: snapshot::Source<FileDisk>,
    },
    /// What a receiver says.
    Answer {
        from: NodeId,
        chunk: Bytes,
    },
    /// A receiver has so many bytes of the snapshot at `index`.
    Taken {
        from: NodeId,
        group: GroupId,
        index: u64,
        bytes: u64,
    },
}

/// The mailboxes of the disk's threads.
pub(crate) struct Store {
    appends: Arc<Mailbox<Append>>,
    reads: Arc<Mailbox<Read>>,
    flushes: Arc<Mailbox<Flush>>,
    sendings: Arc<Mailbox<Sending>>,
    rollovers: Arc<Mailbox<()>>,
    reconciled: (Mutex<usize>, Condvar),
    writers: AtomicUsize,
}

impl Store {
    /// `shards` threads will append.
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            appends: Mailbox::new(usize::MAX),
            reads: Mailbox::new(usize::MAX),
            flushes: Mailbox::new(usize::MAX),
            sendings: Mailbox::new(usize::MAX),
            rollovers: Mailbox::new(usize::MAX),
            reconciled: (Mutex::new(0), Condvar::new()),
            writers: AtomicUsize::new(shards),
        }
    }

    pub(crate) fn append(&self, append: Append) {
        self.appends.push(append);
    }

    pub(crate) fn appends(&self) -> &Mailbox<Append> {
        &self.appends
    }

    pub(crate) fn read(&self, read: Read) {
        self.reads.push(read);
    }

    pub(crate) fn reads(&self) -> &Mailbox<Read> {
        &self.reads
    }

    pub(crate) fn flush(&self, flush: Flush) {
        self.flushes.push(flush);
    }

    pub(crate) fn flushes(&self) -> &Mailbox<Flush> {
        &self.flushes
    }

    /// The log went on to another file: the next is wanted, and the oldest may be.
    pub(crate) fn rolled_over(&self) {
        self.rollovers.push(());
        self.flush(Flush::RolledOver);
    }

    pub(crate) fn rollovers(&self) -> &Mailbox<()> {
        &self.rollovers
    }

    pub(crate) fn sendings(&self) -> &Mailbox<Sending> {
        &self.sendings
    }

    /// Something of a snapshot came from a node.
    pub(crate) fn snapshot(&self, from: NodeId, message: Message) {
        match message {
            Message::Snapshot { chunk, .. } if Chunk::is_answer(&chunk) => {
                self.sendings.push(Sending::Answer { from, chunk });
            }
            Message::Snapshot { chunk, .. } => self.flush(Flush::Task(Task::Chunk { from, chunk })),
            Message::SnapshotTaken { group, index, bytes } => {
                self.sendings.push(Sending::Taken { from, group, index, bytes });
            }
            // The shards take these.
            Message::Raft { .. }
            | Message::Join { .. }
            | Message::Requests { .. }
            | Message::SessionGone { .. }
            | Message::Parcel { .. }
            | Message::Answers { .. }
            | Message::Committed { .. }
            | Message::NotLeader { .. }
            | Message::Leads { .. }
            | Message::Reaches { .. }
            | Message::Voters { .. }
            | Message::Renewed { .. } => {}
        }
    }

    /// One shard's groups agree with the catalog.
    pub(crate) fn reconciled(&self) {
        *self.reconciled.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.reconciled.1.notify_all();
    }

    /// Waits until that is so for `shards` of them.
    pub(crate) fn wait_reconciled(&self, shards: usize) {
        let count = self.reconciled.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.reconciled.1.wait_while(count, |count| *count < shards);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// A shard's thread is over: with the last one, the disk's threads end too.
    pub(crate) fn shard_ended(&self) {
        if self.writers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.appends.close();
            self.reads.close();
            self.flushes.close();
            self.sendings.close();
            self.rollovers.close();
        }
    }
}
