//! What the node's disk threads do, one call at a time: write, read, move to segments.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use cluster::bodies::{Run, Source};
use cluster::checkpoint::{Job, LiveMessages, Stored};
use cluster::limits::{FETCH_BYTES, LOG_FILES_KEPT};
use cluster::shard::{Input, Located};
use machine::{GroupId, Messages, QueueId, Ranges};
use wal::segments::{self, SegmentMeta};
use wal::sim::SimDisk;
use wal::{Checkpoint, CommitBatch, Error, Keeper, Reader, Wal};

/// Something to be written, by whom, and how many entries are in it.
pub(super) struct Append {
    pub(super) shard: usize,
    pub(super) number: u64,
    pub(super) batch: CommitBatch,
    pub(super) entries: usize,
}

/// Something to be read for deliveries.
pub(super) struct Fetch {
    pub(super) group: GroupId,
    pub(super) queue: QueueId,
    pub(super) from_seq: u64,
    pub(super) parts: Vec<Located>,
}

pub(super) struct Store {
    wal: Wal<SimDisk>,
    reader: Reader<SimDisk>,
    keeper: Keeper<SimDisk>,
    segments: BTreeMap<(GroupId, u64), segments::Reader<SimDisk>>,
    metas: BTreeMap<GroupId, Vec<SegmentMeta>>,
    asked: Vec<GroupId>,
    pub(super) appends: VecDeque<Append>,
    pub(super) fetches: VecDeque<Fetch>,
    pub(super) jobs: VecDeque<Job>,
}

/// Zero-filled per step of housekeeping.
const FILL_BYTES: u64 = 32 << 10;

impl Store {
    pub(super) fn new(
        mut wal: Wal<SimDisk>,
        metas: BTreeMap<GroupId, Vec<SegmentMeta>>,
    ) -> Result<Self, Error> {
        let (reader, keeper) = (wal.reader(), wal.keeper());
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
            fetches: VecDeque::new(),
            jobs: VecDeque::new(),
        })
    }

    /// One write and one sync for the first `count` that wait.
    pub(super) fn commit(&mut self, count: usize) -> Result<Vec<(usize, Input)>, Error> {
        let waiting: Vec<Append> = self.appends.drain(..count.min(self.appends.len())).collect();
        let mut owners = Vec::new();
        let mut batches = Vec::new();
        for Append { shard, number, batch, entries } in waiting {
            owners.push((shard, number, entries));
            batches.push(batch);
        }
        let mut places = self.wal.commit(batches)?.into_places().into_iter();
        let synced = owners.into_iter().map(|(shard, number, entries)| {
            let places = places.by_ref().take(entries).collect();
            (shard, Input::Synced { number, places })
        });
        Ok(synced.collect())
    }

    /// Reads for the first delivery that waits.
    pub(super) fn fetch(&mut self) -> Result<Option<(GroupId, Input)>, Error> {
        let Some(Fetch { group, queue, from_seq, parts }) = self.fetches.pop_front() else {
            return Ok(None);
        };
        let mut runs = Vec::new();
        for located in parts {
            match self.read(group, queue, from_seq, &located) {
                Ok(mut read) => runs.append(&mut read),
                // Moved to a segment meanwhile: the shard asks again.
                Err(Error::Gone) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(Some((group, Input::Fetched { group, queue, runs })))
    }

    fn read(
        &self,
        group: GroupId,
        queue: QueueId,
        from_seq: u64,
        Located { part, place }: &Located,
    ) -> Result<Vec<Run>, Error> {
        let count = u32::try_from(part.count).expect("a run is bounded");
        let run = |bytes| vec![Run { first_seq: part.first_seq, count, bytes }];
        match &part.source {
            Source::Memory(bytes) => Ok(run(bytes.clone())),
            Source::Entry { range, .. } => {
                let entry = self.reader.read(place.ok_or(Error::Gone)?)?;
                Ok(run(entry.slice(range.start as usize..range.end as usize)))
            }
            Source::Segment { segment } => {
                let segment = self.segments.get(&(group, *segment)).ok_or(Error::Gone)?;
                let from = from_seq.max(part.first_seq);
                let found = segment.read(queue.0, from, FETCH_BYTES)?;
                let end = part.first_seq + part.count;
                Ok(joined(found.into_iter().filter(|(seq, _)| *seq < end)))
            }
        }
    }

    /// A little housekeeping: the next log file, and groups that must let go of the oldest.
    pub(super) fn keep(&mut self) -> Result<Vec<(GroupId, Input)>, Error> {
        if self.keeper.prepare_next(FILL_BYTES)? {
            self.keeper.remove_spare()?;
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
        Ok(inputs)
    }

    /// Writes the first checkpoint that waits.
    pub(super) fn checkpoint(&mut self) -> Result<Option<(GroupId, Input)>, Error> {
        let Some(Job { group, index, term, state, messages, live }) = self.jobs.pop_front() else {
            return Ok(None);
        };
        self.asked.retain(|asked| *asked != group);
        let live: BTreeMap<QueueId, Ranges> = live.into_iter().collect();
        let mut metas = self.metas.remove(&group).unwrap_or_default();
        let dead: Vec<u64> =
            metas.iter().filter(|meta| is_dead(meta, &live)).map(|meta| meta.number).collect();
        metas.retain(|meta| !dead.contains(&meta.number));
        if !messages.is_empty() {
            let meta = self.write(group, messages)?;
            let reader = self.keeper.open_segment(group.0, &meta)?;
            self.segments.insert((group, meta.number), reader);
            metas.push(meta);
        }
        let segments = metas.clone();
        self.keeper.install(Checkpoint { group: group.0, index, term, state, segments })?;
        let stored = stored(&metas);
        self.metas.insert(group, metas);
        for number in dead {
            self.segments.remove(&(group, number));
        }
        Ok(Some((group, Input::Checkpointed { group, index, stored })))
    }

    fn write(&mut self, group: GroupId, messages: Vec<LiveMessages>) -> Result<SegmentMeta, Error> {
        let mut writer = self.keeper.segment(group.0)?;
        for LiveMessages { queue, first_seq, place, range, live, .. } in messages {
            let entry = self.reader.read(place)?;
            let bytes = entry.slice(range.start as usize..range.end as usize);
            for (seq, span) in (first_seq..).zip(Messages::of(queue, &bytes).spans()) {
                if live.contains(seq) {
                    writer.add(queue.0, seq, &bytes[span])?;
                }
            }
        }
        writer.finish()
    }
}

fn stored(metas: &[SegmentMeta]) -> Vec<Stored> {
    let of = |meta: &SegmentMeta| {
        let segment = meta.number;
        meta.extents
            .iter()
            .map(|extent| Stored {
                queue: QueueId(extent.queue),
                first_seq: extent.first_seq,
                last_seq: extent.last_seq,
                segment,
            })
            .collect::<Vec<_>>()
    };
    metas.iter().flat_map(of).collect()
}

fn is_dead(meta: &SegmentMeta, live: &BTreeMap<QueueId, Ranges>) -> bool {
    meta.extents.iter().all(|extent| {
        let ranges = live.get(&QueueId(extent.queue));
        ranges.is_none_or(|ranges| !ranges.intersects(extent.first_seq..extent.last_seq + 1))
    })
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
