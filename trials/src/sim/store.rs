//! What the node's disk threads do, one call at a time: write, read, move to segments.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use cluster::bodies::{Run, Source as Body};
use cluster::checkpoint::{Job, Stored};
use cluster::copying;
use cluster::limits::{FETCH_BYTES, LOG_FILES_KEPT};
use cluster::peer::message::Message;
use cluster::shard::{Input, Located, SegmentExtent};
use cluster::snapshot::{Event, Incoming, Installed, Source};
use machine::{GroupId, NodeId, QueueId};
use raft::eraftpb::Entry;
use wal::segments::{self, SegmentMeta};
use wal::sim::SimDisk;
use wal::{Checkpoint, CommitBatch, EntryAt, Error, Keeper, Reader, Wal};

use super::snapshots::Desk;
use super::watch::Mark;

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
    Checkpoint(Job),
    /// `to` is to get the newest checkpoint of `group`.
    SendSnapshot {
        group: GroupId,
        to: NodeId,
    },
    /// A part of a snapshot that comes in.
    Chunk {
        from: NodeId,
        chunk: Bytes,
    },
    /// Whether a group takes the snapshot that has come.
    InstallSnapshot {
        group: GroupId,
        index: u64,
        accept: bool,
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

pub(super) struct Store {
    wal: Wal<SimDisk>,
    reader: Reader<SimDisk>,
    keeper: Keeper<SimDisk>,
    segments: BTreeMap<(GroupId, u64), segments::Reader<SimDisk>>,
    metas: BTreeMap<GroupId, Vec<SegmentMeta>>,
    asked: Vec<GroupId>,
    pub(super) appends: VecDeque<Append>,
    /// What the writer has in hand.
    pub(super) writing: Option<Vec<Append>>,
    /// What shards are to hear of the writing.
    pub(super) told: Vec<(usize, Input)>,
    pub(super) readings: VecDeque<Reading>,
    pub(super) is_reading: bool,
    pub(super) flushes: VecDeque<Flush>,
    incoming: Incoming<SimDisk>,
    pub(super) desk: Desk,
    pub(super) checkpoints: u64,
}

/// Zero-filled per step of housekeeping.
const FILL_BYTES: u64 = 32 << 10;

impl Store {
    pub(super) fn new(
        wal: Wal<SimDisk>,
        keeper: Keeper<SimDisk>,
        metas: BTreeMap<GroupId, Vec<SegmentMeta>>,
    ) -> Result<Self, Error> {
        let reader = wal.reader();
        let mut opened = BTreeMap::new();
        for (group, metas) in &metas {
            for meta in metas {
                opened.insert((*group, meta.number), keeper.open_segment(group.0, meta)?);
            }
        }
        Ok(Self {
            wal,
            reader,
            keeper,
            segments: opened,
            metas,
            asked: Vec::new(),
            appends: VecDeque::new(),
            writing: None,
            told: Vec::new(),
            readings: VecDeque::new(),
            is_reading: false,
            flushes: VecDeque::new(),
            incoming: Incoming::default(),
            desk: Desk::default(),
            checkpoints: 0,
        })
    }

    /// The writer takes the first `count` that wait.
    pub(super) fn take(&mut self, count: usize) {
        self.writing = Some(self.appends.drain(..count.min(self.appends.len())).collect());
    }

    /// One write and one sync for what the writer has in hand. Says what is durable now.
    pub(super) fn write(&mut self) -> Result<Vec<(u32, Mark)>, Error> {
        let waiting = self.writing.as_mut().map(std::mem::take).unwrap_or_default();
        if waiting.is_empty() {
            return Ok(Vec::new());
        }
        let (mut owners, mut batches, mut durable) = (Vec::new(), Vec::new(), Vec::new());
        for Append { shard, number, batch, entries, marks } in waiting {
            owners.push((shard, number, entries));
            batches.push(batch);
            durable.extend(marks);
        }
        let mut places = self.wal.commit(batches)?.into_places().into_iter();
        for (shard, number, entries) in owners {
            let places = places.by_ref().take(entries).collect();
            self.told.push((shard, Input::Synced { number, places }));
        }
        Ok(durable)
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
        for EntryAt { index, term, place } in wanted {
            let data = match self.reader.read(place) {
                Ok(data) => data,
                Err(Error::Gone) => break,
                Err(error) => return Err(error),
            };
            let mut entry = Entry::default();
            (entry.index, entry.term, entry.data) = (index, term, data);
            entries.push(entry);
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

    /// A little housekeeping: the next log file, groups that must let go of the oldest, and one
    /// group's segments, which may be mostly dead.
    pub(super) fn keep(&mut self, nth: usize) -> Result<Vec<(GroupId, Input)>, Error> {
        if self.keeper.preparer().prepare_next(FILL_BYTES)? {
            self.keeper.preparer().remove_spare()?;
        }
        let held = self.keeper.files().iter().filter(|file| !file.holds.is_empty()).count();
        let mut inputs = Vec::new();
        if held > LOG_FILES_KEPT {
            for (group, _) in self.keeper.blocking(self.keeper.oldest_needed()) {
                let group = GroupId(group);
                if !self.asked.contains(&group) {
                    self.asked.push(group);
                    inputs.push((group, Input::WantCheckpoint { group }));
                }
            }
        }
        let groups: Vec<_> = self.metas.iter().filter(|(_, metas)| !metas.is_empty()).collect();
        if let Some((group, metas)) = groups.get(nth % groups.len().max(1)) {
            let extents = metas.iter().flat_map(|meta| &meta.extents);
            let held = extents.map(|extent| SegmentExtent {
                queue: QueueId(extent.queue),
                first_seq: extent.first_seq,
                last_seq: extent.last_seq,
                count: extent.count,
            });
            let (group, held) = (**group, held.collect());
            inputs.push((group, Input::ReviewSegments { group, held }));
        }
        Ok(inputs)
    }

    /// Does what waits first, and installs what was accepted.
    pub(super) fn flush(&mut self, now_ms: u64) -> Result<Vec<Flushed>, Error> {
        let mut flushed = Vec::new();
        match self.flushes.pop_front() {
            None => {}
            // It is done once the snapshot is there, or has failed.
            Some(Flush::Checkpoint(job)) if self.incoming.is_receiving(job.group) => {
                let group = job.group;
                flushed.push(Flushed::Tell(group, Input::CheckpointFailed { group }));
            }
            Some(Flush::Checkpoint(job)) => flushed.push(self.checkpoint(job)?),
            Some(Flush::SendSnapshot { group, to }) => match self.source(group)? {
                Some(source) => self.desk.begin(to, source),
                None => {
                    let (index, term, done) = (0, 0, false);
                    let sent = Input::SnapshotSent { group, to, index, term, done };
                    flushed.push(Flushed::Tell(group, sent));
                }
            },
            Some(Flush::Chunk { from, chunk }) => {
                let mut events = Vec::new();
                self.incoming.chunk(now_ms, &mut self.keeper, from, &chunk, &mut events)?;
                flushed.extend(events.into_iter().map(heard));
            }
            Some(Flush::InstallSnapshot { group, index, accept }) => {
                let mut events = Vec::new();
                self.incoming.decide(group, index, accept, &mut events);
                flushed.extend(events.into_iter().map(heard));
            }
        }
        let mut events = Vec::new();
        while let Some(installed) = self.incoming.install(&mut self.keeper, &mut events)? {
            let Installed { group, index, term, state, stored, segments, .. } = installed;
            self.asked.retain(|asked| *asked != group);
            self.open(group, segments)?;
            flushed.push(Flushed::Installed { group, index });
            let installed = Input::SnapshotInstalled { group, index, term, state, stored };
            flushed.push(Flushed::Tell(group, installed));
            flushed.extend(events.drain(..).map(heard));
        }
        Ok(flushed)
    }

    fn checkpoint(&mut self, job: Job) -> Result<Flushed, Error> {
        let Job { group, index, term, state, messages, live } = job;
        self.asked.retain(|asked| *asked != group);
        let before = self.metas.remove(&group).unwrap_or_default();
        let live = live.into_iter().map(|(queue, live)| (queue.0, live.ranges().collect()));
        let mut metas = self.keeper.compact(group.0, before, &live.collect())?;
        metas.extend(copying::copy(&mut self.keeper, &self.reader, group, &messages)?);
        let segments = metas.clone();
        self.keeper.install(Checkpoint { group: group.0, index, term, state, segments })?;
        self.checkpoints += 1;
        let stored = Stored::of(&metas);
        self.open(group, metas)?;
        Ok(Flushed::Tell(group, Input::Checkpointed { group, index, stored }))
    }

    /// The segments of `group` from now on.
    fn open(&mut self, group: GroupId, metas: Vec<SegmentMeta>) -> Result<(), Error> {
        self.segments.retain(|(of, _), _| *of != group);
        for meta in &metas {
            let reader = self.keeper.open_segment(group.0, meta)?;
            self.segments.insert((group, meta.number), reader);
        }
        self.metas.insert(group, metas);
        Ok(())
    }

    /// The newest checkpoint of `group`, with its segments open.
    fn source(&self, group: GroupId) -> Result<Option<Source<SimDisk>>, Error> {
        let Some(checkpoint) = self.keeper.checkpoint(group.0).cloned() else { return Ok(None) };
        let open = |meta| self.keeper.open_segment(group.0, meta);
        let segments = checkpoint.segments.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Some(Source { checkpoint, segments }))
    }
}

fn heard(event: Event) -> Flushed {
    match event {
        Event::Tell { to, message } => Flushed::Say(to, message),
        Event::Arrived { group, from, index, term } => {
            Flushed::Tell(group, Input::SnapshotArrived { group, from, index, term })
        }
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
