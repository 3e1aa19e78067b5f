//! The housekeeping thread: it passes tasks to the housekeeping core and carries out its effects.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use machine::{GroupId, NodeId};
use wal::segments::SegmentMeta;
use wal::{Error, FileDisk, Keeper, Reader};

use super::failure::Failure;
use super::handle::{Counters, Node, Short};
use super::reading::{SharedSegments, fail_reading};
use super::store::{Flush, Snapshots, Store};
use crate::checkpoint::Job;
use crate::exchange::Input;
use crate::housekeeping::{Effect, Housekeeping, Task};
use crate::limits::SEGMENT_BYTES_REVIEWED;
use crate::reading::FindSegment;
use crate::snapshot::Source;

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
                Flush::Task(Task::Checkpoint(job)) => {
                    checkpoints.push_back(Due { job: Some(job), cut: None });
                }
                // In its turn: then the newest checkpoint is the one that is meant.
                Flush::Cut { group, number, index, job } => {
                    checkpoints.push_back(Due { job, cut: Some((group, number, index)) });
                }
                Flush::Task(task) => flusher.perform(task, node, failure),
                Flush::SendSnapshot { group, to } => flusher.send(group, to, node, store),
                // The house is looked after below.
                Flush::RolledOver => {}
            }
        }
        if let Some(Due { job, cut }) = checkpoints.pop_front() {
            if let Some(job) = job {
                flusher.perform(Task::Checkpoint(job), node, failure);
            }
            if let Some((group, number, index)) = cut {
                node.cuts.written(number, flusher.cut(group, index));
            }
        }
        node.cuts.forget_idle();
        let is_due = reviewed.elapsed() >= REVIEW_PERIOD;
        if is_due {
            reviewed = Instant::now();
        }
        flusher.drive(node, failure, |house, now_ms, effects| {
            house.keep(now_ms, effects)?;
            if is_due {
                house.review(now_ms, SEGMENT_BYTES_REVIEWED, effects);
            }
            Ok(())
        });
        let timeout = if checkpoints.is_empty() { PERIOD } else { Duration::ZERO };
        store.flushes().take(&mut arrived, Some(timeout), true);
        if arrived.is_empty() && checkpoints.is_empty() && store.flushes().is_closed() {
            return;
        }
    }
}

/// A checkpoint to be written, and the backup that waits for it: group, number and index of its cut.
struct Due {
    job: Option<Job>,
    cut: Option<(GroupId, u64, u64)>,
}

/// What the flusher owns.
pub(crate) struct Flusher {
    house: Housekeeping<FileDisk>,
    /// Records damaged files.
    reader: Reader<FileDisk>,
    segments: Arc<SharedSegments>,
    started: Instant,
}

impl Flusher {
    /// Opens the segments of all groups, and leaves `disk_free_limit` bytes of the disk free.
    pub(crate) fn new(
        keeper: Keeper<FileDisk>,
        reader: Reader<FileDisk>,
        segments: Arc<SharedSegments>,
        metas: BTreeMap<GroupId, Vec<SegmentMeta>>,
        disk_free_limit: u64,
    ) -> Result<Self, Error> {
        let mut effects = Vec::new();
        let house = Housekeeping::new(keeper, reader.clone(), metas, &mut effects)?;
        for effect in effects {
            if let Effect::Opened { group, segment, reader } = effect {
                segments.add(group, segment, reader);
            }
        }
        let (house, started) = (house.with_disk_free_limit(disk_free_limit), Instant::now());
        Ok(Self { house, reader, segments, started })
    }

    /// Sends the newest checkpoint of `group`, or says that there is none.
    fn send(&self, group: GroupId, to: NodeId, node: &Node, store: &Store) {
        let newest = self.house.newest(group);
        match newest.and_then(|it| self.segments.of_checkpoint(it)) {
            Some(source) => store.snapshots().push(Snapshots::Begin { to, source }),
            None => {
                let sent = Input::SnapshotSent { group, to, index: 0, term: 0, done: false };
                node.shard_of(group).push(sent);
            }
        }
    }

    /// The newest checkpoint of `group` for a backup, if it is the one at `index`.
    fn cut(&self, group: GroupId, index: u64) -> Option<Source<FileDisk>> {
        let newest = self.house.newest(group).filter(|newest| newest.index == index)?;
        self.segments.of_checkpoint(newest)
    }

    fn perform(&mut self, task: Task, node: &Node, failure: &Failure) {
        self.drive(node, failure, |house, now_ms, effects| house.perform(now_ms, task, effects));
    }

    /// Runs one step of the core and carries out its effects.
    fn drive(
        &mut self,
        node: &Node,
        failure: &Failure,
        act: impl FnOnce(
            &mut Housekeeping<FileDisk>,
            u64,
            &mut Vec<Effect<FileDisk>>,
        ) -> Result<(), Error>,
    ) {
        if node.is_stopping() {
            self.house.stop();
        }
        let now_ms = self.started.elapsed().as_millis() as u64;
        let mut effects = Vec::new();
        let done = act(&mut self.house, now_ms, &mut effects);
        for effect in effects {
            self.do_one(effect, node);
        }
        if let Err(error) = done {
            fail_reading(&self.reader, &error, node, failure);
        }
    }

    fn do_one(&self, effect: Effect<FileDisk>, node: &Node) {
        match effect {
            Effect::Tell(group, input) => node.shard_of(group).push(input),
            Effect::Say(to, message) => {
                if let Some(peers) = &node.peers {
                    peers.send(to, vec![message]);
                }
            }
            Effect::Opened { group, segment, reader } => self.segments.add(group, segment, reader),
            Effect::Closed { group, segment } => self.segments.remove(group, segment),
            Effect::Checkpointed { messages } => {
                Counters::add(&node.counters.segment_messages, messages);
            }
            Effect::TooLarge => Counters::add(&node.counters.checkpoints_refused, 1),
            Effect::Installed { .. } => {}
            Effect::Short(is_short) => node.set_short(Short::Segments, is_short),
        }
    }
}
