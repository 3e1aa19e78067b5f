//! What a node does beside the log, and what a full disk means for it: checkpoints, snapshots that come
//! in, log files that are wanted next. A core: it is handed the time, uses whatever disk there is, and says
//! what is to be told to whom. Threads drive it in a node, the simulator drives it in trials.

mod files;
mod log;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use machine::{GroupId, NodeId, QueueId};
use wal::segments::{self, SegmentMeta};
use wal::{Checkpoint, Disk, Error, Keeper, Live, Reader};

use crate::checkpoint::{Job, LiveMessages, Stored};
use crate::copying;
use crate::exchange::{Input, SegmentExtent};
use crate::limits::LOG_FILES_KEPT;
use crate::peer::message::Message;
use crate::room::Room;
use crate::snapshot::{Event, Incoming, Installed};

pub use files::LogFiles;
pub use log::LogRoom;

/// A group whose checkpoint was held back by a snapshot on its way is asked again after so long.
const ASK_AGAIN_MS: u64 = 5000;
/// A group that answers, however long its checkpoint waits for its turn, is not asked again.
const NOT_AGAIN: u64 = u64::MAX;

/// Something to be done.
#[derive(Debug)]
pub enum Task {
    Checkpoint(Job),
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

/// What the thread or simulator that drives housekeeping has to do, in this order.
pub enum Effect<D: Disk> {
    /// For the shard of the group.
    Tell(GroupId, Input),
    /// For another node.
    Say(NodeId, Message),
    /// A segment that is read from now on, and one that is not any more.
    Opened {
        group: GroupId,
        segment: u64,
        reader: segments::Reader<D>,
    },
    Closed {
        group: GroupId,
        segment: u64,
    },
    /// A checkpoint is installed, with so many messages that were copied for it.
    Checkpointed {
        messages: u64,
    },
    /// A checkpoint was refused because it is larger than it may be.
    TooLarge,
    /// A snapshot is the group's checkpoint now.
    Installed {
        group: GroupId,
        index: u64,
    },
    /// Publishers wait for room, or do not any more.
    Short(bool),
}

/// Keeps the log short: moves what is live in old log files to segments, so that the files can be used
/// again, and rewrites segments that are mostly dead.
pub struct Housekeeping<D: Disk> {
    keeper: Keeper<D>,
    reader: Reader<D>,
    /// The segments of each group's newest checkpoint: those that are open.
    metas: BTreeMap<GroupId, Vec<SegmentMeta>>,
    /// Groups that were asked for a checkpoint that is not made yet, and when each is asked again.
    asked: BTreeMap<GroupId, u64>,
    /// Snapshots on their way in.
    incoming: Incoming<D>,
    room: Room,
    /// Checkpoints must not make less than this free.
    disk_free_limit: u64,
    is_stopping: bool,
}

impl<D: Disk> Housekeeping<D> {
    /// With the segments of every group's checkpoint, which it has opened: see `effects`.
    pub fn new(
        keeper: Keeper<D>,
        reader: Reader<D>,
        metas: BTreeMap<GroupId, Vec<SegmentMeta>>,
        effects: &mut Vec<Effect<D>>,
    ) -> Result<Self, Error> {
        for (&group, found) in &metas {
            for meta in found {
                let reader = keeper.open_segment(group.0, meta)?;
                effects.push(Effect::Opened { group, segment: meta.number, reader });
            }
        }
        let (asked, incoming, room) = (BTreeMap::new(), Incoming::default(), Room::default());
        let (disk_free_limit, is_stopping) = (0, false);
        Ok(Self { keeper, reader, metas, asked, incoming, room, disk_free_limit, is_stopping })
    }

    /// Leaves so much of the disk free as the configuration says.
    pub fn with_disk_free_limit(self, disk_free_limit: u64) -> Self {
        Self { disk_free_limit, ..self }
    }

    /// Writes nothing more: the next start finds the log as it is.
    pub fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Not while the disk is full, nor when the node stops.
    fn may_write(&self, now_ms: u64) -> bool {
        self.room.may_try(now_ms, self.free_bytes()) && !self.is_stopping
    }

    fn free_bytes(&self) -> u64 {
        self.keeper.preparer().free_bytes().unwrap_or(0)
    }

    /// Does one thing. A full disk is no failure: see [`Effect::Short`].
    pub fn perform(
        &mut self,
        now_ms: u64,
        task: Task,
        effects: &mut Vec<Effect<D>>,
    ) -> Result<(), Error> {
        match task {
            Task::Checkpoint(job) => self.checkpoint(now_ms, job, effects),
            Task::Chunk { from, chunk } => {
                let mut events = Vec::new();
                let (keeper, incoming) = (&mut self.keeper, &mut self.incoming);
                let taken = incoming.chunk(now_ms, keeper, from, &chunk, &mut events);
                self.tolerate(now_ms, taken, effects)?;
                effects.extend(events.into_iter().map(heard));
                Ok(())
            }
            Task::InstallSnapshot { group, index, accept } => {
                let mut events = Vec::new();
                self.incoming.decide(group, index, accept, &mut events);
                effects.extend(events.into_iter().map(heard));
                Ok(())
            }
        }
    }

    /// Installs snapshots that were accepted, and asks for checkpoints that make the log shorter.
    pub fn keep(&mut self, now_ms: u64, effects: &mut Vec<Effect<D>>) -> Result<(), Error> {
        self.incoming.forget_stale(now_ms);
        if self.may_write(now_ms) {
            let installed = self.install(effects);
            if self.tolerate(now_ms, installed, effects)?.is_some() {
                self.ask(now_ms, effects);
            }
        }
        Ok(())
    }

    /// Sends each group with at least `bytes_min` bytes in segments a list of what these segments hold. A group that
    /// finds most of it dead asks for a checkpoint.
    pub fn review(&self, now_ms: u64, bytes_min: u64, effects: &mut Vec<Effect<D>>) {
        if !self.may_write(now_ms) {
            return;
        }
        for (&group, metas) in &self.metas {
            if metas.iter().map(|meta| meta.bytes).sum::<u64>() < bytes_min {
                continue;
            }
            let extents = metas.iter().flat_map(|meta| &meta.extents);
            let held = extents.map(|extent| SegmentExtent {
                queue: QueueId(extent.queue),
                first_seq: extent.first_seq,
                last_seq: extent.last_seq,
                count: extent.count,
            });
            let review = Input::ReviewSegments { group, held: held.collect() };
            effects.push(Effect::Tell(group, review));
        }
    }

    /// The newest checkpoint of `group`.
    pub fn newest(&self, group: GroupId) -> Option<&Checkpoint> {
        self.keeper.checkpoint(group.0)
    }

    /// Makes snapshots that their groups have accepted their checkpoints.
    fn install(&mut self, effects: &mut Vec<Effect<D>>) -> Result<(), Error> {
        let mut events = Vec::new();
        while let Some(installed) = self.incoming.install(&mut self.keeper, &mut events)? {
            let Installed { group, index, term, state, stored, segments, .. } = installed;
            self.asked.remove(&group);
            effects.push(Effect::Installed { group, index });
            let installed = Input::SnapshotInstalled { group, index, term, state, stored };
            self.take_over(group, segments, installed, effects)?;
            effects.extend(events.drain(..).map(heard));
        }
        Ok(())
    }

    /// Opens a group's new segments, sends `told` to the group, and closes the segments that the group has no more.
    /// The order matters: a fetch that finds its segment closed asks the new ones.
    fn take_over(
        &mut self,
        group: GroupId,
        metas: Vec<SegmentMeta>,
        told: Input,
        effects: &mut Vec<Effect<D>>,
    ) -> Result<(), Error> {
        let before = self.metas.get(&group).map_or(&[][..], Vec::as_slice);
        let is_in = |all: &[SegmentMeta], number| all.iter().any(|meta| meta.number == number);
        for meta in metas.iter().filter(|meta| !is_in(before, meta.number)) {
            let reader = self.keeper.open_segment(group.0, meta)?;
            effects.push(Effect::Opened { group, segment: meta.number, reader });
        }
        effects.push(Effect::Tell(group, told));
        for old in before.iter().filter(|old| !is_in(&metas, old.number)) {
            effects.push(Effect::Closed { group, segment: old.number });
        }
        self.metas.insert(group, metas);
        Ok(())
    }

    /// A full disk leaves everything as it was, and so does a checkpoint that is larger than it may be: the
    /// alarm holds publishers back, and it is tried again before long. Any other failure ends the process.
    fn tolerate<T>(
        &mut self,
        now_ms: u64,
        done: Result<T, Error>,
        effects: &mut Vec<Effect<D>>,
    ) -> Result<Option<T>, Error> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(error) if error.is_full() => {
                self.refuse(now_ms, &no_room(&error.to_string()), effects);
                Ok(None)
            }
            Err(error @ Error::CheckpointTooLarge { .. }) => {
                effects.push(Effect::TooLarge);
                self.refuse(now_ms, &too_large(&error), effects);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a checkpoint leaves so much free as must be. What it does not make larger than it was in
    /// the log always may be: its log files are used again.
    fn has_room(&mut self, now_ms: u64, job: &Job, effects: &mut Vec<Effect<D>>) -> bool {
        let (growth, free_bytes) = (job.growth_bytes(), self.free_bytes());
        if growth == 0 || free_bytes >= self.disk_free_limit.saturating_add(growth) {
            return true;
        }
        let group = job.group.0;
        let why = format!("the messages of group {group} would take {growth} bytes more");
        self.refuse(now_ms, &no_room(&why), effects);
        false
    }

    /// Publishers wait and nothing is written until it is worth another try.
    fn refuse(&mut self, now_ms: u64, why: &str, effects: &mut Vec<Effect<D>>) {
        let free_bytes = self.free_bytes();
        effects.push(Effect::Short(true));
        if self.room.refuse(now_ms, free_bytes) {
            tracing::warn!(free_bytes, "{why}");
        }
    }

    /// Asks the groups that keep the oldest log file for a checkpoint.
    fn ask(&mut self, now_ms: u64, effects: &mut Vec<Effect<D>>) {
        let files = self.keeper.files();
        let is_needed = |number: u64| !self.keeper.blocking(number).is_empty();
        let needed = files.iter().filter(|file| is_needed(file.number)).count();
        if needed <= LOG_FILES_KEPT {
            if self.room.found() {
                tracing::info!("the log is back within its size; publishers go on");
                effects.push(Effect::Short(false));
            }
            return;
        }
        for (group, _) in self.keeper.blocking(self.keeper.oldest_needed()) {
            let group = GroupId(group);
            if self.asked.get(&group).is_none_or(|again_ms| now_ms >= *again_ms) {
                self.asked.insert(group, NOT_AGAIN);
                effects.push(Effect::Tell(group, Input::WantCheckpoint { group }));
            }
        }
    }

    /// A group that gets no checkpoint is told so: it asks for the next when it is wanted.
    fn checkpoint(
        &mut self,
        now_ms: u64,
        job: Job,
        effects: &mut Vec<Effect<D>>,
    ) -> Result<(), Error> {
        let group = job.group;
        let failed = Effect::Tell(group, Input::CheckpointFailed { group });
        let mut events = Vec::new();
        let is_held_back = self.incoming.holds_back(group, job.index, &mut events);
        effects.extend(events.into_iter().map(heard));
        if is_held_back {
            self.asked.insert(group, now_ms + ASK_AGAIN_MS);
            effects.push(failed);
            return Ok(());
        }
        self.asked.remove(&group);
        if !self.may_write(now_ms) || !self.has_room(now_ms, &job, effects) {
            effects.push(failed);
            return Ok(());
        }
        let written = self.write_checkpoint(job, effects);
        if self.tolerate(now_ms, written, effects)?.is_none() && !planted::is("full_not_told") {
            effects.push(failed);
        }
        Ok(())
    }

    fn write_checkpoint(&mut self, job: Job, effects: &mut Vec<Effect<D>>) -> Result<(), Error> {
        let Job { group, index, term, state, messages, live } = job;
        self.keeper.check_size(group.0, state.len() as u64)?;
        let before = self.metas.get(&group).cloned().unwrap_or_default();
        // Segments in which nothing lives go, neighbours that are mostly dead become one. What the
        // checkpoint does not name any more is removed once it is installed.
        let live: Live =
            live.into_iter().map(|(queue, live)| (queue.0, live.ranges().collect())).collect();
        let mut metas = self.keeper.compact(group.0, before, &live)?;
        metas.extend(self.copy(group, &messages)?);
        let segments = metas.clone();
        let checkpoint = Checkpoint { group: group.0, index, term, state, segments };
        let installed = self.keeper.install(checkpoint);
        if matches!(installed, Err(Error::CheckpointTooLarge { .. })) {
            self.keeper.remove_unnamed(group.0)?;
        }
        installed?;
        // Nothing below can fail for want of room: the checkpoint counts from here on.
        let stored = Stored::of(&metas);
        let told = Input::Checkpointed { group, index, stored };
        self.take_over(group, metas, told, effects)?;
        let messages = messages.iter().map(|messages| messages.live.len()).sum();
        effects.push(Effect::Checkpointed { messages });
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
}

fn no_room(why: &str) -> String {
    format!(
        "not enough disk space to move messages from the log to segments: {why}. Publishers are blocked, consumers \
         go on. Consume messages, or free space on the disk of the data directory"
    )
}

fn too_large(error: &Error) -> String {
    format!(
        "the state of a group is too large: {error}. The log keeps what the checkpoint was to replace. Publishers \
         are blocked, consumers go on. Consume or purge messages, or delete queues"
    )
}

/// What snapshots that come in ask for.
fn heard<D: Disk>(event: Event) -> Effect<D> {
    match event {
        Event::Tell { to, message } => Effect::Say(to, message),
        Event::Arrived { group, from, index, term } => {
            Effect::Tell(group, Input::SnapshotArrived { group, from, index, term })
        }
    }
}
