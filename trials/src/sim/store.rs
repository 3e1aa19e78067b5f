//! What the node's disk threads do, one call at a time: write, read, move to segments.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use cluster::bodies::{Run, Source as Body};
use cluster::entry;
use cluster::housekeeping::{Effect, Housekeeping, LogFiles, LogRoom, Task};
use cluster::limits::FETCH_BYTES;
use cluster::peer::message::Message;
use cluster::shard::{Input, Located};
use cluster::snapshot::Source;
use machine::{GroupId, NodeId, QueueId};
use raft::eraftpb::Entry;
use wal::segments::{self, SegmentMeta};
use wal::sim::SimDisk;
use wal::{CommitBatch, EntryAt, Error, Keeper, Reader, Wal};

use super::marks::Mark;
use super::snapshots::Desk;

/// Something to be written, by whom, and how many entries are in it.
pub(super) struct Append {
    pub(super) shard: usize,
    pub(super) number: u64,
    pub(super) batch: CommitBatch,
    pub(super) entries: usize,
    /// What it does to the logs, for the watcher.
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
    Bodies { group: GroupId, queue: QueueId, from_seq: u64, parts: Vec<Located> },
    /// For a peer that is behind.
    Entries { group: GroupId, number: u64, entries: Vec<EntryAt> },
}

/// What the log's writer has in hand.
#[derive(Default)]
struct Writing {
    batches: Vec<CommitBatch>,
    /// Shard, number and count of entries of each.
    owners: Vec<(usize, u64, usize)>,
    marks: Vec<Vec<(u32, Mark)>>,
    /// So many of them have room.
    ready: usize,
}

pub(super) struct Store {
    wal: Wal<SimDisk>,
    reader: Reader<SimDisk>,
    house: Housekeeping<SimDisk>,
    files: LogFiles<SimDisk>,
    room: LogRoom,
    /// The house has no room for checkpoints.
    is_short: bool,
    segments: BTreeMap<(GroupId, u64), segments::Reader<SimDisk>>,
    pub(super) appends: VecDeque<Append>,
    writing: Option<Writing>,
    /// What shards are to hear of the writing.
    pub(super) told: Vec<(usize, Input)>,
    pub(super) readings: VecDeque<Reading>,
    pub(super) is_reading: bool,
    pub(super) flushes: VecDeque<Flush>,
    pub(super) desk: Desk,
    pub(super) checkpoints: u64,
    /// Turns of the writer and the flusher that found the disk full.
    pub(super) refused: u64,
}

/// Zero-filled per step of housekeeping.
const FILL_BYTES: u64 = 32 << 10;
/// What checkpoints leave free of the disk.
const DISK_FREE_LIMIT: u64 = 32 << 10;

impl Store {
    pub(super) fn new(
        wal: Wal<SimDisk>,
        keeper: Keeper<SimDisk>,
        metas: BTreeMap<GroupId, Vec<SegmentMeta>>,
    ) -> Result<Self, Error> {
        let (reader, files) = (wal.reader(), LogFiles::new(keeper.preparer()));
        let mut effects = Vec::new();
        let house = Housekeeping::new(keeper, reader.clone(), metas, &mut effects)?;
        let mut store = Self {
            wal,
            reader,
            house: house.heeding(DISK_FREE_LIMIT),
            files,
            room: LogRoom::default(),
            is_short: false,
            segments: BTreeMap::new(),
            appends: VecDeque::new(),
            writing: None,
            told: Vec::new(),
            readings: VecDeque::new(),
            is_reading: false,
            flushes: VecDeque::new(),
            desk: Desk::default(),
            checkpoints: 0,
            refused: 0,
        };
        store.done(effects);
        Ok(store)
    }

    /// Whether the writer has something in hand.
    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// The writer takes the first `count` that wait.
    pub(super) fn take(&mut self, count: usize) {
        let mut writing = Writing::default();
        for append in self.appends.drain(..count.min(self.appends.len())) {
            let Append { shard, number, batch, entries, marks } = append;
            writing.batches.push(batch);
            writing.owners.push((shard, number, entries));
            writing.marks.push(marks);
        }
        self.writing = Some(writing);
    }

    /// Whether what the writer has in hand can be written: a full disk holds it back. What does not go into
    /// the same file waits behind it.
    pub(super) fn has_room(&mut self, now_ms: u64) -> bool {
        let Some(writing) = &mut self.writing else { return true };
        let Some(count) = self.room.find(now_ms, &mut self.wal, &writing.batches) else {
            self.refused += 1;
            return false;
        };
        writing.ready = count;
        true
    }

    /// Whether publishers wait because the disk is full.
    pub(super) fn is_short(&self) -> bool {
        self.is_short || self.room.is_short()
    }

    /// One write and one sync for what the writer has in hand. Says what is durable now.
    pub(super) fn write(&mut self) -> Result<Vec<(u32, Mark)>, Error> {
        let Some(writing) = self.writing.as_mut() else { return Ok(Vec::new()) };
        let count = std::mem::take(&mut writing.ready);
        if count == 0 {
            return Ok(Vec::new());
        }
        let batches = writing.batches.drain(..count).collect();
        let owners: Vec<_> = writing.owners.drain(..count).collect();
        let marks = writing.marks.drain(..count).flatten().collect();
        let mut places = self.wal.commit(batches)?.into_places().into_iter();
        for (shard, number, entries) in owners {
            let places = places.by_ref().take(entries).collect();
            self.told.push((shard, Input::Synced { number, places }));
        }
        Ok(marks)
    }

    /// The shards hear of it. The writer has nothing in hand any more, but for what waits for another file.
    pub(super) fn written(&mut self) -> Vec<(usize, Input)> {
        self.writing.take_if(|writing| writing.batches.is_empty());
        std::mem::take(&mut self.told)
    }

    /// Reads what waits first.
    pub(super) fn read(&mut self) -> Result<Option<(GroupId, Input)>, Error> {
        Ok(match self.readings.pop_front() {
            None => None,
            Some(Reading::Bodies { group, queue, from_seq, parts }) => {
                let runs = self.bodies(group, queue, from_seq, parts)?;
                Some((group, Input::Fetched { group, queue, runs }))
            }
            Some(Reading::Entries { group, number, entries }) => {
                let entries = self.entries(entries)?;
                Some((group, Input::EntriesRead { group, number, entries }))
            }
        })
    }

    fn bodies(
        &self,
        group: GroupId,
        queue: QueueId,
        from_seq: u64,
        parts: Vec<Located>,
    ) -> Result<Vec<Run>, Error> {
        let mut runs = Vec::new();
        for located in parts {
            match self.part(group, queue, from_seq, &located) {
                Ok(mut read) => runs.append(&mut read),
                // Moved to a segment meanwhile: the shard asks again.
                Err(Error::Gone) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(runs)
    }

    /// From the first on, as many as are still in the log.
    fn entries(&self, wanted: Vec<EntryAt>) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        for at in wanted {
            let data = match self.reader.read(at.place) {
                Ok(data) => data,
                Err(Error::Gone) => break,
                Err(error) => return Err(error),
            };
            entries.push(entry::from_disk(&at, data).expect("this program wrote it"));
        }
        Ok(entries)
    }

    fn part(
        &self,
        group: GroupId,
        queue: QueueId,
        from_seq: u64,
        Located { part, place }: &Located,
    ) -> Result<Vec<Run>, Error> {
        let count = u32::try_from(part.count).expect("a run is bounded");
        let run = |bytes| vec![Run { first_seq: part.first_seq, count, bytes }];
        match &part.source {
            Body::Memory(bytes) => Ok(run(bytes.clone())),
            Body::Entry { range, .. } => {
                let entry = self.reader.read(place.ok_or(Error::Gone)?)?;
                Ok(run(entry.slice(range.start as usize..range.end as usize)))
            }
            Body::Segment { segment } => {
                let segment = self.segments.get(&(group, *segment)).ok_or(Error::Gone)?;
                let from = from_seq.max(part.first_seq);
                let found = segment.read(queue.0, from, FETCH_BYTES)?;
                let end = part.first_seq + part.count;
                Ok(joined(found.into_iter().filter(|(seq, _)| *seq < end)))
            }
        }
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
            Some(Flush::SendSnapshot { group, to }) => match self.source(group) {
                Some(source) => self.desk.begin(to, source),
                None => {
                    let (index, term, done) = (0, 0, false);
                    let sent = Input::SnapshotSent { group, to, index, term, done };
                    effects.push(Effect::Tell(group, sent));
                }
            },
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
                    self.segments.insert((group, segment), reader);
                }
                Effect::Closed { group, segment } => drop(self.segments.remove(&(group, segment))),
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

    /// The newest checkpoint of `group`, with its segments open.
    fn source(&self, group: GroupId) -> Option<Source<SimDisk>> {
        let checkpoint = self.house.newest(group)?.clone();
        let open = |meta: &SegmentMeta| self.segments.get(&(group, meta.number)).cloned();
        let segments = checkpoint.segments.iter().map(open).collect::<Option<_>>()?;
        Some(Source { checkpoint, segments })
    }
}

/// Messages that follow each other without a gap become one run.
fn joined(messages: impl Iterator<Item = (u64, Bytes)>) -> Vec<Run> {
    let mut runs: Vec<(u64, u32, BytesMut)> = Vec::new();
    for (seq, message) in messages {
        match runs.last_mut() {
            Some((first, count, bytes)) if *first + u64::from(*count) == seq => {
                *count += 1;
                bytes.extend_from_slice(&message);
            }
            _ => runs.push((seq, 1, BytesMut::from(&message[..]))),
        }
    }
    let run = |(first_seq, count, bytes): (u64, u32, BytesMut)| {
        let bytes = bytes.freeze();
        Run { first_seq, count, bytes }
    };
    runs.into_iter().map(run).collect()
}
