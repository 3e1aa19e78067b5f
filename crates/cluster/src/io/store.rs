//! The mailboxes of the threads that touch the disk, and what they hold.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use machine::{GroupId, NodeId};
use wal::{EntryAt, FileDisk};

use super::mailbox::Mailbox;
use crate::checkpoint::Job;
use crate::exchange::{Fetch, Peek};
use crate::housekeeping::Task;
use crate::log_writer::Append;
use crate::peer::message::Message;
use crate::snapshot::{self, Chunk};

/// Something for the thread that reads.
#[derive(Debug)]
pub(crate) enum Read {
    Fetch(Fetch),
    /// Messages that somebody looks at.
    Peek(Box<Peek>),
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
    /// A backup gets the group at `index`, with the checkpoint that is to be written for it.
    Cut {
        group: GroupId,
        number: u64,
        index: u64,
        job: Option<Job>,
    },
    /// The log went on to another file.
    RolledOver,
}

/// Something for the thread that sends snapshots.
pub(crate) enum Snapshots {
    /// `to` is to get this one.
    Begin { to: NodeId, source: snapshot::Source<FileDisk> },
    /// A message from the receiver of a snapshot.
    Heard { from: NodeId, message: Message },
}

/// The mailboxes of the disk's threads.
pub(crate) struct Store {
    appends: Arc<Mailbox<Append>>,
    reads: Arc<Mailbox<Read>>,
    flushes: Arc<Mailbox<Flush>>,
    snapshots: Arc<Mailbox<Snapshots>>,
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
            snapshots: Mailbox::new(usize::MAX),
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

    pub(crate) fn snapshots(&self) -> &Mailbox<Snapshots> {
        &self.snapshots
    }

    /// Something of a snapshot came from a node.
    pub(crate) fn snapshot(&self, from: NodeId, message: Message) {
        match message {
            Message::Snapshot { chunk, .. } if !Chunk::is_answer(&chunk) => {
                self.flush(Flush::Task(Task::Chunk { from, chunk }));
            }
            message @ (Message::Snapshot { .. } | Message::SnapshotTaken { .. }) => {
                self.snapshots.push(Snapshots::Heard { from, message });
            }
            // The shards take these.
            Message::Raft { .. }
            | Message::Join { .. }
            | Message::Requests { .. }
            | Message::SessionGone { .. }
            | Message::NumberedBatch { .. }
            | Message::Answers { .. }
            | Message::Committed { .. }
            | Message::NotLeader { .. }
            | Message::Leads { .. }
            | Message::Question { .. }
            | Message::Told { .. }
            | Message::Reaches { .. }
            | Message::Voters { .. }
            | Message::Digest { .. }
            | Message::Borrow { .. }
            | Message::Lent { .. }
            | Message::Renewed { .. } => {}
        }
    }

    /// One shard's groups agree with the catalog.
    pub(crate) fn reconciled(&self) {
        *self.reconciled.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.reconciled.1.notify_all();
    }

    /// Waits until `shards` shards agree with the catalog.
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
            self.snapshots.close();
            self.rollovers.close();
        }
    }
}
