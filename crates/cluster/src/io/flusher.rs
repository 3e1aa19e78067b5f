//! The thread that moves what is live in old log files to segments, so that the files can be used
//! again, and rewrites segments that are mostly dead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use machine::{GroupId, QueueId, Ranges};
use wal::segments::SegmentMeta;
use wal::{Checkpoint, Error, FileDisk, Keeper, Live, Reader};

use super::handle::{Counters, Node};
use super::reading::{Segments, fail_reading};
use super::start::Failure;
use super::store::{Flush, Sending, Store};
use crate::checkpoint::{Job, LiveMessages, Stored};
use crate::copying;
use crate::limits::{FILL_BYTES, LOG_FILES_KEPT, SEGMENT_BYTES_REVIEWED};
use crate::shard::{Input, SegmentExtent};
use crate::snapshot::{Event, Incoming, Installed, Source};

/// How often is looked whether a disk that was full has room, and files that may go.
const PERIOD: Duration = Duration::from_secs(1);
/// How often the shards are asked how much of their segments is alive.
const REVIEW_PERIOD: Duration = Duration::from_secs(5);

/// Keeps house until the shards are gone.
pub(crate) fn run(mut flusher: Flusher, node: &Node, store: &Store, failure: &Failure) {
    let mut flushes = Vec::new();
    let mut reviewed = Instant::now();
    loop {
        for flush in flushes.drain(..) {
            flusher.flush(flush, node, store, failure);
        }
        let installed = flusher.install(node);
        flusher.tolerate(installed, node, failure);
        let prepared = flusher.prepare();
        flusher.tolerate(prepared, node, failure);
        flusher.ask(node);
        if reviewed.elapsed() >= REVIEW_PERIOD {
            reviewed = Instant::now();
            flusher.review(node);
        }
        store.flushes().take(&mut flushes, Some(PERIOD), true);
        if flushes.is_empty() && store.flushes().is_closed() {
            return;
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
    /// Snapshots on their way in.
    incoming: Incoming<FileDisk>,
    started: Instant,
    /// The disk was full when it was last needed.
    is_full: bool,
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
        let (asked, incoming, started) = (Vec::new(), Incoming::default(), Instant::now());
        Ok(Self { keeper, reader, segments, metas, asked, incoming, started, is_full: false })
    }

    fn flush(&mut self, flush: Flush, node: &Node, store: &Store, failure: &Failure) {
        match flush {
            // It is done once the snapshot is there, or has failed.
            Flush::Checkpoint(job) if self.incoming.is_receiving(job.group) => {
                let group = job.group;
                node.shard_of(group).push(Input::CheckpointFailed { group });
            }
            Flush::Checkpoint(job) => {
                let group = job.group;
                let done = self.checkpoint(job, node);
                if self.tolerate(done, node, failure).is_none() {
                    node.shard_of(group).push(Input::CheckpointFailed { group });
                }
            }
            Flush::SendSnapshot { group, to } => match self.source(group) {
                Some(source) => store.sendings().push(Sending::Begin { to, source }),
                None => {
                    let sent = Input::SnapshotSent { group, to, index: 0, term: 0, done: false };
                    node.shard_of(group).push(sent);
                }
            },
            Flush::Chunk { from, chunk } => {
                let now_ms = self.started.elapsed().as_millis() as u64;
                let mut events = Vec::new();
                let (keeper, incoming) = (&mut self.keeper, &mut self.incoming);
                let taken = incoming.chunk(now_ms, keeper, from, &chunk, &mut events);
                self.tolerate(taken, node, failure);
                tell(events, node);
            }
            Flush::InstallSnapshot { group, index, accept } => {
                let mut events = Vec::new();
                self.incoming.decide(group, index, accept, &mut events);
                tell(events, node);
            }
            Flush::RolledOver => {}
        }
    }

    /// The newest checkpoint of `group`, with its segments open.
    fn source(&self, group: GroupId) -> Option<Source<FileDisk>> {
        let checkpoint = self.keeper.checkpoint(group.0)?.clone();
        let open = |meta: &SegmentMeta| self.segments.find(group, meta.number);
        let segments: Option<Vec<_>> = checkpoint.segments.iter().map(open).collect();
        let segments = segments?.iter().map(|segment| (**segment).clone()).collect();
        Some(Source { checkpoint, segments })
    }

    /// Makes snapshots that their groups have accepted their checkpoints.
    fn install(&mut self, node: &Node) -> Result<(), Error> {
        let mut events = Vec::new();
        while let Some(installed) = self.incoming.install(&mut self.keeper, &mut events)? {
            let Installed { group, index, term, state, stored, segments, before } = installed;
            self.asked.retain(|asked| *asked != group);
            self.take_over(group, &before, segments, || {
                let installed = Input::SnapshotInstalled { group, index, term, state, stored };
                node.shard_of(group).push(installed);
            })?;
            tell(std::mem::take(&mut events), node);
        }
        Ok(())
    }

    /// Opens a group's new segments and lets go of those that it has no more, with `tell` in between:
    /// a fetch that finds one gone asks again of the new ones.
    fn take_over(
        &mut self,
        group: GroupId,
        before: &[SegmentMeta],
        metas: Vec<SegmentMeta>,
        tell: impl FnOnce(),
    ) -> Result<(), Error> {
        for meta in &metas {
            if self.segments.find(group, meta.number).is_none() {
                let reader = self.keeper.open_segment(group.0, meta)?;
                self.segments.add(group, meta.number, reader);
            }
        }
        tell();
        for old in before {
            if metas.iter().all(|meta| meta.number != old.number) {
                self.segments.remove(group, old.number);
            }
        }
        self.metas.insert(group, metas);
        Ok(())
    }

    /// A full disk leaves everything as it was: the alarm holds publishers back, and it is tried again
    /// before long. Any other failure ends the process.
    fn tolerate<T>(&mut self, done: Result<T, Error>, node: &Node, failure: &Failure) -> Option<T> {
        match done {
            Ok(done) => {
                self.is_full = false;
                Some(done)
            }
            Err(error) if error.is_full() => {
                if !self.is_full {
                    tracing::warn!("no room to move messages out of the log: {error}");
                }
                self.is_full = true;
                None
            }
            Err(error) => fail_reading(&self.reader, &error, node, failure),
        }
    }

    /// Makes the next log file ready, in small steps, and removes those that nothing needs.
    fn prepare(&mut self) -> Result<(), Error> {
        self.keeper.remove_spare()?;
        while !self.keeper.prepare_next(FILL_BYTES)? {}
        self.keeper.hold_ballast().map(|_| ())
    }

    /// Asks the groups that keep the oldest log file for a checkpoint.
    fn ask(&mut self, node: &Node) {
        let files = self.keeper.files();
        let is_needed = |number: u64| !self.keeper.blocking(number).is_empty();
        let needed = files.iter().filter(|file| is_needed(file.number)).count();
        if needed <= LOG_FILES_KEPT {
            return;
        }
        for (group, _) in self.keeper.blocking(self.keeper.oldest_needed()) {
            let group = GroupId(group);
            if !self.asked.contains(&group) {
                self.asked.push(group);
                node.shard_of(group).push(Input::WantCheckpoint { group });
            }
        }
    }

    /// Tells the groups what their segments hold: one that finds most of it dead wants a checkpoint.
    fn review(&self, node: &Node) {
        for (&group, metas) in &self.metas {
            if metas.iter().map(|meta| meta.bytes).sum::<u64>() < SEGMENT_BYTES_REVIEWED {
                continue;
            }
            let extents = metas.iter().flat_map(|meta| &meta.extents);
            let held = extents.map(|extent| SegmentExtent {
                queue: QueueId(extent.queue),
                first_seq: extent.first_seq,
                last_seq: extent.last_seq,
                count: extent.count,
            });
            node.shard_of(group).push(Input::ReviewSegments { group, held: held.collect() });
        }
    }

    fn checkpoint(&mut self, job: Job, node: &Node) -> Result<(), Error> {
        let Job { group, index, term, state, messages, live } = job;
        self.asked.retain(|asked| *asked != group);
        let before = self.metas.get(&group).cloned().unwrap_or_default();
        let mut metas = self.compact(group, before.clone(), live)?;
        metas.extend(self.copy(group, &messages)?);
        let segments = metas.clone();
        self.keeper.install(Checkpoint { group: group.0, index, term, state, segments })?;
        // Nothing below can fail for want of room: the checkpoint counts from here on.
        let stored = Stored::of(&metas);
        self.take_over(group, &before, metas, || {
            node.shard_of(group).push(Input::Checkpointed { group, index, stored });
        })?;
        let count = messages.iter().map(|messages| messages.live.len()).sum();
        Counters::add(&node.counters.segment_messages, count);
        Ok(())
    }

    /// Copies live messages of the log to new segments; a full disk's ballast is there for this.
    fn copy(
        &mut self,
        group: GroupId,
        messages: &[LiveMessages],
    ) -> Result<Vec<SegmentMeta>, Error> {
        match copying::copy(&mut self.keeper, &self.reader, group, messages) {
            Err(error) if error.is_full() && self.keeper.release_ballast()? => {
                copying::copy(&mut self.keeper, &self.reader, group, messages)
            }
            copied => copied,
        }
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
        self.keeper.compact(group.0, metas, &live)
    }
}

/// Does what snapshots that come in ask for.
fn tell(events: Vec<Event>, node: &Node) {
    for event in events {
        match event {
            Event::Tell { to, message } => {
                if let Some(peers) = &node.peers {
                    peers.send(to, vec![message]);
                }
            }
            Event::Arrived { group, from, index, term } => {
                node.shard_of(group).push(Input::SnapshotArrived { group, from, index, term });
            }
        }
    }
}
