//! The thread that moves what is live in old log files to segments, so that the files can be used
//! again, and rewrites segments that are mostly dead.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use machine::{GroupId, QueueId, Ranges};
use wal::segments::SegmentMeta;
use wal::{Checkpoint, Error, FileDisk, Keeper, Live, Reader};

use super::handle::{Counters, Node, Short};
use super::reading::{Segments, fail_reading};
use super::start::Failure;
use super::store::{Flush, Sending, Store};
use crate::checkpoint::{Job, LiveMessages, Stored};
use crate::copying;
use crate::limits::{LOG_FILES_KEPT, SEGMENT_BYTES_REVIEWED};
use crate::room::Room;
use crate::shard::{Input, SegmentExtent};
use crate::snapshot::{Event, Incoming, Installed, Source};

/// How often is looked whether a disk that was full has room, and files that may go.
const PERIOD: Duration = Duration::from_secs(1);
/// How often the shards are asked how much of their segments is alive.
const REVIEW_PERIOD: Duration = Duration::from_secs(5);

/// Keeps house until the shards are gone.
pub(crate) fn run(mut flusher: Flusher, node: &Node, store: &Store, failure: &Failure) {
    // A checkpoint may take seconds, and there may be one of every group. All else is short, and others wait for it:
    // it comes first.
    let (mut arrived, mut checkpoints) = (Vec::new(), VecDeque::new());
    let mut reviewed = Instant::now();
    loop {
        for flush in arrived.drain(..) {
            match flush {
                Flush::Checkpoint(_) => checkpoints.push_back(flush),
                Flush::SendSnapshot { .. }
                | Flush::Chunk { .. }
                | Flush::InstallSnapshot { .. }
                | Flush::RolledOver => flusher.flush(flush, node, store, failure),
            }
        }
        if let Some(checkpoint) = checkpoints.pop_front() {
            flusher.flush(checkpoint, node, store, failure);
        }
        if flusher.may_write(node) {
            let installed = flusher.install(node);
            if flusher.tolerate(installed, node, failure).is_some() {
                flusher.ask(node);
            }
            if reviewed.elapsed() >= REVIEW_PERIOD {
                reviewed = Instant::now();
                flusher.review(node);
            }
        }
        let patience = if checkpoints.is_empty() { PERIOD } else { Duration::ZERO };
        store.flushes().take(&mut arrived, Some(patience), true);
        if arrived.is_empty() && checkpoints.is_empty() && store.flushes().is_closed() {
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
    room: Room,
    /// Checkpoints must not make less than this free.
    disk_free_limit: u64,
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
        let (room, disk_free_limit) = (Room::default(), 0);
        let flusher = Self {
            keeper,
            reader,
            segments,
            metas,
            asked,
            incoming,
            started,
            room,
            disk_free_limit,
        };
        Ok(flusher)
    }

    /// Leaves so much of the disk free as the configuration says.
    pub(crate) fn heeding(self, disk_free_limit: u64) -> Self {
        Self { disk_free_limit, ..self }
    }

    /// Not while the disk is full, nor when the node stops: a start finds the log as it is.
    fn may_write(&self, node: &Node) -> bool {
        let (now_ms, free_bytes) = (self.now_ms(), self.free_bytes());
        self.room.may_try(now_ms, free_bytes) && !node.is_stopping()
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn free_bytes(&self) -> u64 {
        self.keeper.preparer().free_bytes().unwrap_or(0)
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
                self.asked.retain(|asked| *asked != group);
                if !self.may_write(node) || !self.has_room(&job, node) {
                    node.shard_of(group).push(Input::CheckpointFailed { group });
                    return;
                }
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
                let now_ms = self.now_ms();
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
            Ok(done) => Some(done),
            Err(error) if error.is_full() => {
                self.refuse(node, &error.to_string());
                None
            }
            Err(error) => fail_reading(&self.reader, &error, node, failure),
        }
    }

    /// Whether a checkpoint leaves so much free as must be. What it does not make larger than it was in
    /// the log always may be: its log files are used again.
    fn has_room(&mut self, job: &Job, node: &Node) -> bool {
        let (growth, free_bytes) = (job.growth_bytes(), self.free_bytes());
        if growth == 0 || free_bytes >= self.disk_free_limit.saturating_add(growth) {
            return true;
        }
        let group = job.group.0;
        self.refuse(node, &format!("the messages of group {group} would take {growth} bytes more"));
        false
    }

    /// Publishers wait and nothing is written until there is room.
    fn refuse(&mut self, node: &Node, why: &str) {
        let free_bytes = self.free_bytes();
        node.set_short(Short::Segments, true);
        if self.room.refuse(self.now_ms(), free_bytes) {
            tracing::warn!(
                free_bytes,
                "no room to move messages out of the log: {why}. Publishers wait and consumers go on until \
                 messages are consumed or space on the disk of the data directory is freed"
            );
        }
    }

    /// Asks the groups that keep the oldest log file for a checkpoint.
    fn ask(&mut self, node: &Node) {
        let files = self.keeper.files();
        let is_needed = |number: u64| !self.keeper.blocking(number).is_empty();
        let needed = files.iter().filter(|file| is_needed(file.number)).count();
        if needed <= LOG_FILES_KEPT {
            if self.room.found() {
                tracing::info!("the log is as short again as it should be");
                node.set_short(Short::Segments, false);
            }
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
        let copied = copying::copy(&mut self.keeper, &self.reader, group, messages);
        if !copied.as_ref().is_err_and(Error::is_full) {
            return copied;
        }
        let spare = self.keeper.preparer().remove_all_spare()?;
        if spare > 0 || self.keeper.release_ballast()? {
            return copying::copy(&mut self.keeper, &self.reader, group, messages);
        }
        copied
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
