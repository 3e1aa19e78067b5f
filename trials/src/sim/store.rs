//! What the node's disk threads do, one call at a time: write, read, move to segments.

use std::collections::{BTreeMap, VecDeque};

use cluster::NotPeeked;
use cluster::exchange::{Fetch, Input, Peek};
use cluster::housekeeping::{Effect, Housekeeping, LogFiles, Task};
use cluster::log_writer::{Append, LogWriter};
use cluster::peer::message::Message;
use cluster::reading::{FindSegment, OpenSegments, StoreReader};
use cluster::snapshot::Outgoing;
use machine::{GroupId, NodeId};
use wal::segments::SegmentMeta;
use wal::sim::SimDisk;
use wal::{EntryAt, Error, Keeper, Wal};

use super::marks::Mark;

/// Something to be written, and what it does to the logs, for the watcher.
pub(super) struct Marked {
    pub(super) append: Append,
    pub(super) marks: Vec<(u32, Mark)>,
}

/// Something for the flusher.
pub(super) enum Flush {
    Task(Task),
    /// `to` is to get the newest checkpoint of `group`.
    SendSnapshot {
        group: GroupId,
        to: NodeId,
    },
}

/// What came of it.
pub(super) enum Flushed {
    Tell(GroupId, Input),
    Say(NodeId, Message),
    /// A snapshot is the group's checkpoint now.
    Installed {
        group: GroupId,
        index: u64,
    },
}

/// Something to be read.
pub(super) enum Reading {
    /// For deliveries.
    Messages(Fetch),
    /// For somebody who looks at messages.
    Look(Box<Peek>),
    /// For a peer that is behind.
    Entries { group: GroupId, number: u64, entries: Vec<EntryAt> },
}

pub(super) struct Store {
    writer: LogWriter<SimDisk>,
    reader: StoreReader<SimDisk>,
    house: Housekeeping<SimDisk>,
    files: LogFiles<SimDisk>,
    /// The house has no room for checkpoints.
    is_short: bool,
    segments: OpenSegments<SimDisk>,
    pub(super) appends: VecDeque<Marked>,
    /// Of what the writer has in hand.
    marks: VecDeque<Vec<(u32, Mark)>>,
    is_writing: bool,
    /// What shards are to hear of the writing.
    pub(super) told: Vec<(usize, Input)>,
    pub(super) readings: VecDeque<Reading>,
    pub(super) is_reading: bool,
    pub(super) flushes: VecDeque<Flush>,
    pub(super) outgoing: Outgoing<SimDisk>,
    /// Snapshots that it was asked to send.
    attempts: u64,
    pub(super) checkpoints: u64,
    /// Turns of the writer and the flusher that found the disk full.
    pub(super) refused: u64,
}

/// Zero-filled per step of housekeeping.
const FILL_BYTES: u64 = 32 << 10;
/// Bytes that one fetch and one read of entries take: little, so that these bounds are often met.
const READS: (u64, usize) = (2 << 10, 4 << 10);
/// Bytes of a snapshot on their way that the receiver has not acknowledged.
const WINDOW_BYTES: u64 = 64 << 10;
/// What checkpoints leave free of the disk.
const DISK_FREE_LIMIT: u64 = 32 << 10;

impl Store {
    pub(super) fn new(
        wal: Wal<SimDisk>,
        keeper: Keeper<SimDisk>,
        metas: BTreeMap<GroupId, Vec<SegmentMeta>>,
    ) -> Result<Self, Error> {
        let files = LogFiles::new(keeper.preparer());
        let mut effects = Vec::new();
        let house = Housekeeping::new(keeper, wal.reader(), metas, &mut effects)?;
        let reader = StoreReader::new(wal.reader());
        let mut store = Self {
            writer: LogWriter::new(wal),
            reader: reader.with_bounds(READS.0, READS.1),
            house: house.with_disk_free_limit(DISK_FREE_LIMIT),
            files,
            is_short: false,
            segments: OpenSegments::default(),
            appends: VecDeque::new(),
            marks: VecDeque::new(),
            is_writing: false,
            told: Vec::new(),
            readings: VecDeque::new(),
            is_reading: false,
            flushes: VecDeque::new(),
            outgoing: Outgoing::default().with_window(WINDOW_BYTES),
            attempts: 0,
            checkpoints: 0,
            refused: 0,
        };
        store.done(effects);
        Ok(store)
    }

    /// Whether the writer has something in hand, or has not told of it.
    pub(super) fn is_writing(&self) -> bool {
        self.is_writing
    }

    /// The writer takes the first `count` that wait.
    pub(super) fn take(&mut self, count: usize) {
        for Marked { append, marks } in self.appends.drain(..count.min(self.appends.len())) {
            self.writer.add(append);
            self.marks.push_back(marks);
        }
        self.is_writing = true;
    }

    /// Whether what the writer has in hand can be written: a full disk holds it back. What does not go into
    /// the same file waits behind it.
    pub(super) fn has_room(&mut self, now_ms: u64) -> bool {
        let has_room = self.writer.find_room(now_ms);
        self.refused += u64::from(!has_room);
        has_room
    }

    /// Whether publishers wait because the disk is full.
    pub(super) fn is_short(&self) -> bool {
        self.is_short || self.writer.is_short()
    }

    /// One write and one sync for what the writer has in hand. Says what is durable now.
    pub(super) fn write(&mut self) -> Result<Vec<(u32, Mark)>, Error> {
        let before = self.told.len();
        self.writer.commit(&mut self.told)?;
        Ok(self.marks.drain(..self.told.len() - before).flatten().collect())
    }

    /// The shards hear of it. The writer has nothing in hand any more, but for what waits for another file.
    pub(super) fn written(&mut self) -> Vec<(usize, Input)> {
        self.is_writing = !self.writer.is_empty();
        std::mem::take(&mut self.told)
    }

    /// Reads what waits first.
    pub(super) fn read(&mut self) -> Result<Option<(GroupId, Input)>, Error> {
        Ok(match self.readings.pop_front() {
            None => None,
            Some(Reading::Messages(fetch)) => {
                let runs = self.reader.fetch(&self.segments, &fetch)?;
                let Fetch { group, queue, reader, .. } = fetch;
                Some((group, Input::Fetched { group, queue, reader, runs }))
            }
            Some(Reading::Look(peek)) => {
                let result = match self.reader.peek(&self.segments, &peek) {
                    Ok(peeked) => Ok(Box::new(peeked)),
                    Err(Error::Damaged { .. }) => Err(NotPeeked::Unreadable),
                    Err(error) => return Err(error),
                };
                let Peek { group, session, ticket, .. } = *peek;
                Some((group, Input::Peeked { group, session, ticket, result }))
            }
            Some(Reading::Entries { group, number, entries }) => {
                let entries = self.reader.entries(group, &entries)?;
                Some((group, Input::EntriesRead { group, number, entries }))
            }
        })
    }

    /// A little housekeeping: the next log file, groups that must let go of the oldest, and segments that may
    /// be mostly dead.
    pub(super) fn keep(&mut self, now_ms: u64, reviews: bool) -> Result<Vec<Flushed>, Error> {
        self.files.prepare(now_ms, FILL_BYTES)?;
        let mut effects = Vec::new();
        self.house.keep(now_ms, &mut effects)?;
        if reviews {
            self.house.review(now_ms, 0, &mut effects);
        }
        Ok(self.done(effects))
    }

    /// Does what waits first.
    pub(super) fn flush(&mut self, now_ms: u64) -> Result<Vec<Flushed>, Error> {
        let mut effects = Vec::new();
        match self.flushes.pop_front() {
            None => {}
            Some(Flush::Task(task)) => self.house.perform(now_ms, task, &mut effects)?,
            Some(Flush::SendSnapshot { group, to }) => {
                let newest = self.house.newest(group);
                match newest.and_then(|checkpoint| self.segments.of_checkpoint(checkpoint)) {
                    Some(source) => {
                        self.attempts += 1;
                        // Those of different starts differ, too.
                        self.outgoing.begin(to, source, (now_ms << 16) + self.attempts);
                    }
                    None => {
                        let (index, term, done) = (0, 0, false);
                        let sent = Input::SnapshotSent { group, to, index, term, done };
                        effects.push(Effect::Tell(group, sent));
                    }
                }
            }
        }
        Ok(self.done(effects))
    }

    /// What the world is to do of what the house wants.
    fn done(&mut self, effects: Vec<Effect<SimDisk>>) -> Vec<Flushed> {
        let mut flushed = Vec::new();
        for effect in effects {
            match effect {
                Effect::Tell(group, input) => flushed.push(Flushed::Tell(group, input)),
                Effect::Say(to, message) => flushed.push(Flushed::Say(to, message)),
                Effect::Opened { group, segment, reader } => {
                    self.segments.add(group, segment, reader);
                }
                Effect::Closed { group, segment } => self.segments.remove(group, segment),
                Effect::Checkpointed { .. } => self.checkpoints += 1,
                Effect::TooLarge => {}
                Effect::Installed { group, index } => {
                    flushed.push(Flushed::Installed { group, index });
                }
                Effect::Short(is_short) => {
                    self.is_short = is_short;
                    self.refused += u64::from(is_short);
                }
            }
        }
        flushed
    }
}
