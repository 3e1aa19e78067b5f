//! The thread that moves what is live in old log files to segments, so that the files can be used
//! again, and rewrites segments that are mostly dead.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use machine::{GroupId, Messages, QueueId, Ranges};
use wal::segments::SegmentMeta;
use wal::{Checkpoint, Error, FileDisk, Keeper, Live, Place, Reader};

use super::handle::{Counters, Node};
use super::start::Failure;
use super::store::{Flush, Segments, Store};
use crate::checkpoint::{Job, LiveMessages, Stored};
use crate::limits::{ENTRIES_CACHED, FILL_BYTES, LOG_FILES_KEPT};
use crate::shard::Input;

/// Keeps house until the shards are gone.
pub(crate) fn run(mut flusher: Flusher, node: &Node, store: &Store, failure: &Failure) {
    let mut flushes = Vec::new();
    if let Err(error) = flusher.prepare() {
        return failure.tell(&error);
    }
    loop {
        store.flushes().take(&mut flushes, None, true);
        if flushes.is_empty() {
            return;
        }
        for flush in flushes.drain(..) {
            let done = match flush {
                Flush::Checkpoint(job) => flusher.checkpoint(job, node),
                Flush::RolledOver => flusher.prepare(),
            };
            match done.and_then(|()| flusher.ask(node)) {
                Ok(()) => {}
                // Nothing was half done; the disk alarm holds publishers back, and the next
                // rollover asks again.
                Err(error) if error.is_full() => {
                    tracing::warn!("no room for a checkpoint: {error}");
                    flusher.asked.clear();
                }
                Err(error) => return failure.tell(&error),
            }
        }
    }
}

/// What the flusher owns.
pub(crate) struct Flusher {
    keeper: Keeper<FileDisk>,
    reader: Reader<FileDisk>,
    segments: Arc<Segments>,
    /// The segments of each group's newest checkpoint.
    metas: BTreeMap<GroupId, Vec<SegmentMeta>>,
    /// Groups that were asked for a checkpoint and did not answer yet.
    asked: Vec<GroupId>,
    entries: Vec<(Place, Bytes)>,
}

impl Flusher {
    /// Opens the segments of all groups.
    pub(crate) fn new(
        keeper: Keeper<FileDisk>,
        reader: Reader<FileDisk>,
        segments: Arc<Segments>,
        metas: BTreeMap<GroupId, Vec<SegmentMeta>>,
    ) -> Result<Self, Error> {
        for (&group, found) in &metas {
            for meta in found {
                segments.add(group, meta.number, keeper.open_segment(group.0, meta)?);
            }
        }
        Ok(Self { keeper, reader, segments, metas, asked: Vec::new(), entries: Vec::new() })
    }

    /// Makes the next log file ready, in small steps.
    fn prepare(&mut self) -> Result<(), Error> {
        while !self.keeper.prepare_next(FILL_BYTES)? {}
        self.keeper.hold_ballast()?;
        self.keeper.remove_spare().map(|_| ())
    }

    /// Asks the groups that keep the oldest log file for a checkpoint.
    fn ask(&mut self, node: &Node) -> Result<(), Error> {
        let files = self.keeper.files();
        let held = files.iter().filter(|file| !file.holds.is_empty()).count();
        if held <= LOG_FILES_KEPT {
            return Ok(());
        }
        for (group, _) in self.keeper.blocking(self.keeper.oldest_needed()) {
            let group = GroupId(group);
            if !self.asked.contains(&group) {
                self.asked.push(group);
                node.shard_of(group).push(Input::WantCheckpoint { group });
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self, job: Job, node: &Node) -> Result<(), Error> {
        let Job { group, index, term, state, messages, live } = job;
        self.asked.retain(|asked| *asked != group);
        let before = self.metas.get(&group).cloned().unwrap_or_default();
        let old: Vec<u64> = before.iter().map(|meta| meta.number).collect();
        let mut metas = self.compact(group, before, live)?;
        if !messages.is_empty() {
            let count = messages.iter().map(|messages| messages.live.len()).sum();
            Counters::add(&node.counters.segment_messages, count);
            let meta = match self.write(group, &messages) {
                Err(error) if error.is_full() && self.keeper.release_ballast()? => {
                    self.write(group, &messages)?
                }
                written => written?,
            };
            self.open(group, &meta)?;
            metas.push(meta);
        }
        self.keeper.install(Checkpoint {
            group: group.0,
            index,
            term,
            state,
            segments: metas.clone(),
        })?;
        let stored = metas.iter().flat_map(|meta| {
            meta.extents.iter().map(|extent| Stored {
                queue: QueueId(extent.queue),
                first_seq: extent.first_seq,
                last_seq: extent.last_seq,
                segment: meta.number,
            })
        });
        let stored = stored.collect();
        for number in old {
            if metas.iter().all(|meta| meta.number != number) {
                self.segments.remove(group, number);
            }
        }
        self.metas.insert(group, metas);
        node.shard_of(group).push(Input::Checkpointed { group, index, stored });
        self.prepare()
    }

    /// Copies live messages of the log to a new segment.
    fn write(&mut self, group: GroupId, messages: &[LiveMessages]) -> Result<SegmentMeta, Error> {
        let mut writer = self.keeper.segment(group.0)?;
        for LiveMessages { queue, first_seq, place, range, live, .. } in messages {
            let entry = self.entry(*place)?;
            let bytes = entry.slice(range.start as usize..range.end as usize);
            let mut seq = *first_seq;
            for span in Messages::of(*queue, &bytes).spans() {
                if live.contains(seq) {
                    writer.add(queue.0, seq, &bytes[span])?;
                }
                seq += 1;
            }
        }
        writer.finish()
    }

    /// Lets go of segments in which nothing lives and joins neighbours that are mostly dead. What the
    /// checkpoint does not name any more is removed once it is installed.
    fn compact(
        &mut self,
        group: GroupId,
        metas: Vec<SegmentMeta>,
        live: Vec<(QueueId, Ranges)>,
    ) -> Result<Vec<SegmentMeta>, Error> {
        let live: Live =
            live.into_iter().map(|(queue, live)| (queue.0, live.ranges().collect())).collect();
        let metas = self.keeper.compact(group.0, metas, &live)?;
        for meta in &metas {
            if self.segments.find(group, meta.number).is_none() {
                self.open(group, meta)?;
            }
        }
        Ok(metas)
    }

    fn open(&self, group: GroupId, meta: &SegmentMeta) -> Result<(), Error> {
        let reader = self.keeper.open_segment(group.0, meta)?;
        self.segments.add(group, meta.number, reader);
        Ok(())
    }

    /// The entry at `place`; the last few are kept, because queues share entries.
    fn entry(&mut self, place: Place) -> Result<Bytes, Error> {
        if let Some((_, entry)) = self.entries.iter().find(|(at, _)| *at == place) {
            return Ok(entry.clone());
        }
        let entry = self.reader.read(place)?;
        if self.entries.len() >= ENTRIES_CACHED {
            self.entries.remove(0);
        }
        self.entries.push((place, entry.clone()));
        Ok(entry)
    }
}
