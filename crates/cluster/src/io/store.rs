//! What the threads that touch the disk are handed, and the one that writes the log.
//!
//! The first failed write or sync ends the process: it is never retried, and nothing after it is
//! confirmed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use machine::{GroupId, NodeId, QueueId};
use wal::{CommitBatch, EntryAt, FileDisk, Wal};

use super::handle::{Node, Short};
use super::mailbox::Mailbox;
use super::start::Failure;
use crate::housekeeping::{LogRoom, Task};
use crate::peer::message::Message;
use crate::shard::{Input, Located};
use crate::snapshot::{self, Chunk};

/// Scheduling priority of the thread that writes the log; others run at 0.
const LOG_NICENESS: i32 = -10;

/// How often is looked whether a full disk has room.
const FULL_PAUSE: Duration = Duration::from_millis(100);

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
    fn rolled_over(&self) {
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
            | Message::Reaches { .. } => {}
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

/// Writes the log until the shards are gone: everything that waits is one write and one sync.
pub(crate) fn write(mut wal: Wal<FileDisk>, node: &Node, store: &Store, failure: &Failure) {
    // Everything waits for this thread, and it does little but wait for the disk. Where raising it is
    // not permitted it runs as the others do.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), LOG_NICENESS);
    let mut appends = Vec::new();
    let mut rollovers = 0;
    let (mut room, started) = (LogRoom::default(), Instant::now());
    loop {
        store.appends.take(&mut appends, None, true);
        if appends.is_empty() {
            break;
        }
        let (mut batches, mut owners) = (Vec::new(), Vec::new());
        for Append { shard, number, batch, entries } in appends.drain(..) {
            batches.push(batch);
            owners.push((shard, number, entries));
        }
        let mut places = Vec::new();
        while !batches.is_empty() {
            // All of them, unless they are more than a file holds.
            let count = wait_for_room(&mut room, started, &mut wal, &batches, node);
            let later = batches.split_off(count);
            match wal.commit(batches) {
                Ok(synced) if places.is_empty() => places = synced.into_places(),
                Ok(synced) => places.extend(synced.into_places()),
                Err(error) => failure.tell(&error),
            }
            batches = later;
        }
        let stats = wal.stats();
        let counters = &node.counters;
        counters.syncs.store(stats.syncs, Ordering::Relaxed);
        counters.log_bytes.store(stats.bytes, Ordering::Relaxed);
        counters.entries.store(stats.entries, Ordering::Relaxed);
        counters.sync_micros.store(stats.sync_us, Ordering::Relaxed);
        let mut places = places.into_iter();
        for (shard, number, entries) in owners {
            let places = places.by_ref().take(entries).collect();
            node.shards[shard].push(Input::Synced { number, places });
        }
        if stats.rollovers != rollovers {
            rollovers = stats.rollovers;
            store.rolled_over();
        }
    }
    if let Err(error) = wal.close() {
        failure.tell(&error);
    }
}

/// Waits until the log has room for the first of `batches`, and says for how many: a full disk holds
/// everything back.
fn wait_for_room(
    room: &mut LogRoom,
    started: Instant,
    wal: &mut Wal<FileDisk>,
    batches: &[CommitBatch],
    node: &Node,
) -> usize {
    let now_ms = || started.elapsed().as_millis() as u64;
    if let Some(count) = room.find(now_ms(), wal, batches) {
        return count;
    }
    node.set_short(Short::Log, true);
    loop {
        std::thread::sleep(FULL_PAUSE);
        if let Some(count) = room.find(now_ms(), wal, batches) {
            node.set_short(Short::Log, false);
            return count;
        }
    }
}
