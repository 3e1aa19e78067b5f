//! Where the bytes of messages are: in memory while they are young, in a log entry or a segment
//! otherwise; and the deliveries that wait for bytes to be fetched.
//!
//! The machine deals in sequence numbers and knows no bytes. Each queue has here a map from sequence
//! numbers to places (one extent per run of an entry or per segment, never one per message) and a
//! hot window of bytes in the order in which they will go out. Deliveries of one queue leave in the
//! order in which the machine decided them: one that must wait for the disk holds up those behind.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bytes::Bytes;
use machine::{ConsumerId, QueueId, Ranges, SessionId};

use crate::checkpoint::Stored;
use crate::limits::{
    FETCH_PARTS, HOT_BYTES_IDLE_QUEUE, HOT_BYTES_PER_QUEUE, HOT_BYTES_PER_SHARD, READ_AHEAD_BYTES,
};

/// Messages that lie together, with their bytes.
#[derive(Clone, Debug)]
pub struct Run {
    pub first_seq: u64,
    pub count: u32,
    /// `machine::Messages::of(queue, &bytes)` yields `count` messages.
    pub bytes: Bytes,
}

impl Run {
    fn end(&self) -> u64 {
        self.first_seq + u64::from(self.count)
    }
}

/// Where the bytes of a run are.
#[derive(Clone, Debug)]
pub enum Source {
    /// In the log entry `index`, at these bytes of its data.
    Entry { index: u64, range: Range<u32> },
    /// In memory: queues of this node only.
    Memory(Bytes),
    /// In a segment of the group; some of the run's messages may be gone.
    Segment { segment: u64 },
}

#[derive(Clone, Debug)]
struct Extent {
    count: u64,
    source: Source,
}

/// Something to be read for a queue, in order.
#[derive(Clone, Debug)]
pub struct FetchPart {
    pub first_seq: u64,
    pub count: u64,
    pub source: Source,
}

/// A delivery that the machine decided, its bytes to be found.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) consumer: ConsumerId,
    pub(crate) first_seq: u64,
    pub(crate) count: u32,
    pub(crate) redelivered: bool,
    /// Asked for by `basic.get`: answered by number, not as a consumer's delivery.
    pub(crate) got: Option<Got>,
}

/// What a `Got` answer needs besides the message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Got {
    pub(crate) ticket: crate::Ticket,
    pub(crate) ready: u64,
}

/// What is left to do for a queue after bytes moved.
#[derive(Debug)]
pub(crate) enum Step {
    Deliver { outgoing: Outgoing, bytes: Bytes },
    Fetch { from_seq: u64, parts: Vec<FetchPart> },
}

#[derive(Debug, Default)]
struct QueueBodies {
    extents: BTreeMap<u64, Extent>,
    hot: VecDeque<Run>,
    hot_bytes: usize,
    outbox: VecDeque<Outgoing>,
    fetching: bool,
    consumers: usize,
    /// The sequence number behind the last delivery: where reading ahead goes on.
    next_seq: u64,
}

/// The bodies of all queues of one group.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    queues: BTreeMap<QueueId, QueueBodies>,
    hot_bytes: usize,
}

impl Bodies {
    /// Messages that were just applied from an entry. `bytes` is `None` while the log is replayed.
    pub(crate) fn enqueued(
        &mut self,
        queue: QueueId,
        first_seq: u64,
        count: u32,
        source: Source,
        bytes: Option<Bytes>,
    ) {
        let bodies = self.queues.entry(queue).or_default();
        bodies.extents.insert(first_seq, Extent { count: u64::from(count), source });
        let Some(bytes) = bytes else { return };
        let limit = if bodies.consumers > 0 { HOT_BYTES_PER_QUEUE } else { HOT_BYTES_IDLE_QUEUE };
        if bodies.hot_bytes + bytes.len() <= limit
            && self.hot_bytes + bytes.len() <= HOT_BYTES_PER_SHARD
        {
            self.hot_bytes += bytes.len();
            bodies.hot_bytes += bytes.len();
            bodies.hot.push_back(Run { first_seq, count, bytes });
        }
    }

    /// A segment holds the messages of `queue` from `first_seq` to `last_seq`.
    pub(crate) fn stored(&mut self, queue: QueueId, first_seq: u64, last_seq: u64, segment: u64) {
        let count = last_seq - first_seq + 1;
        let extent = Extent { count, source: Source::Segment { segment } };
        self.queues.entry(queue).or_default().extents.insert(first_seq, extent);
    }

    /// A checkpoint at `index` is synced: log extents up to there give way to what `stored` says,
    /// and so do all segments.
    pub(crate) fn checkpointed(&mut self, index: u64, stored: &[Stored]) {
        for bodies in self.queues.values_mut() {
            bodies.extents.retain(|_, extent| match &extent.source {
                Source::Entry { index: at, .. } => *at > index,
                Source::Segment { .. } => false,
                Source::Memory(_) => true,
            });
        }
        for stored in stored {
            if self.queues.contains_key(&stored.queue) {
                self.stored(stored.queue, stored.first_seq, stored.last_seq, stored.segment);
            }
        }
    }

    /// The log extents of every queue in entries up to `index`, for a checkpoint.
    pub(crate) fn in_entries_to(&self, index: u64) -> Vec<(QueueId, Vec<FetchPart>)> {
        let mut found = Vec::new();
        for (&queue, bodies) in &self.queues {
            let parts: Vec<FetchPart> = bodies
                .extents
                .iter()
                .filter(|(_, extent)| {
                    matches!(&extent.source, Source::Entry { index: at, .. } if *at <= index)
                })
                .map(|(&first_seq, extent)| FetchPart {
                    first_seq,
                    count: extent.count,
                    source: extent.source.clone(),
                })
                .collect();
            if !parts.is_empty() {
                found.push((queue, parts));
            }
        }
        found
    }

    /// Messages that are settled for good: extents in which nothing lives are forgotten.
    pub(crate) fn settled(&mut self, queue: QueueId, settled: &Ranges, live: Option<&Ranges>) {
        let Some(bodies) = self.queues.get_mut(&queue) else { return };
        let wanted =
            bodies.outbox.iter().map(|outgoing| outgoing.first_seq).min().unwrap_or(u64::MAX);
        for range in settled.ranges() {
            let before = bodies.extents.range(..=range.start).next_back().map(|(&seq, _)| seq);
            let from = before.unwrap_or(range.start);
            let dead: Vec<u64> = bodies
                .extents
                .range(from..range.end)
                .filter(|(first, extent)| {
                    let end = **first + extent.count;
                    end <= wanted && !live.is_some_and(|live| live.intersects(**first..end))
                })
                .map(|(&first, _)| first)
                .collect();
            for first in dead {
                bodies.extents.remove(&first);
            }
        }
        // What was purged or settled without being delivered leaves the hot window too.
        while let Some(run) = bodies.hot.front() {
            let span = run.first_seq..run.end();
            if span.end > wanted || live.is_some_and(|live| live.intersects(span)) {
                break;
            }
            let length = run.bytes.len();
            bodies.hot.pop_front();
            bodies.hot_bytes -= length;
            self.hot_bytes -= length;
        }
    }

    pub(crate) fn attached(&mut self, queue: QueueId) {
        self.queues.entry(queue).or_default().consumers += 1;
    }

    pub(crate) fn detached(&mut self, queue: QueueId) {
        if let Some(bodies) = self.queues.get_mut(&queue) {
            bodies.consumers = bodies.consumers.saturating_sub(1);
        }
    }

    pub(crate) fn dropped(&mut self, queue: QueueId) {
        if let Some(bodies) = self.queues.remove(&queue) {
            self.hot_bytes -= bodies.hot_bytes;
        }
    }

    /// Puts a delivery behind those that wait for their bytes.
    pub(crate) fn deliver(&mut self, queue: QueueId, outgoing: Outgoing) {
        self.queues.entry(queue).or_default().outbox.push_back(outgoing);
    }

    /// Takes back what waits for its bytes and was decided for `consumer`: it was never sent.
    pub(crate) fn withdraw(&mut self, queue: QueueId, consumer: ConsumerId) -> Vec<Range<u64>> {
        let Some(bodies) = self.queues.get_mut(&queue) else { return Vec::new() };
        let mut withdrawn = Vec::new();
        bodies.outbox.retain(|outgoing| {
            let keep = outgoing.consumer != consumer || outgoing.got.is_some();
            if !keep {
                let first = outgoing.first_seq;
                withdrawn.push(first..first + u64::from(outgoing.count));
            }
            keep
        });
        withdrawn
    }

    /// Nothing is sent to `session` any more.
    pub(crate) fn end_session(&mut self, session: SessionId) {
        for bodies in self.queues.values_mut() {
            bodies.outbox.retain(|outgoing| outgoing.consumer.session != session);
        }
    }

    /// Bytes that were fetched for `queue`.
    pub(crate) fn fetched(&mut self, queue: QueueId, runs: Vec<Run>) {
        let Some(bodies) = self.queues.get_mut(&queue) else { return };
        bodies.fetching = false;
        let Some(first) = runs.first() else { return };
        let mut at = bodies.hot.partition_point(|run| run.first_seq < first.first_seq);
        for mut run in runs {
            // An entry's part is fetched whole, and its end may be in the window already.
            let next = bodies.hot.get(at).map_or(u64::MAX, |run| run.first_seq);
            if run.first_seq >= next {
                break;
            }
            if run.end() > next {
                run = split(queue, &run, (next - run.first_seq) as u32).0;
            }
            self.hot_bytes += run.bytes.len();
            bodies.hot_bytes += run.bytes.len();
            bodies.hot.insert(at, run);
            at += 1;
        }
    }

    /// The next thing to do for `queue`, if there is one now.
    pub(crate) fn next(&mut self, queue: QueueId) -> Option<Step> {
        let bodies = self.queues.get_mut(&queue)?;
        let before = bodies.hot_bytes;
        let step = bodies.next(queue);
        self.hot_bytes = self.hot_bytes - before + bodies.hot_bytes;
        step
    }
}

impl QueueBodies {
    fn next(&mut self, queue: QueueId) -> Option<Step> {
        let Some(front) = self.outbox.front() else {
            return self.read_ahead();
        };
        let (first, wanted) = (front.first_seq, front.count);
        // What lies below went out before, or is settled.
        while self.hot.front().is_some_and(|run| run.end() <= first) {
            self.pop_hot();
        }
        if self.hot.front().is_none_or(|run| run.first_seq > first) {
            return self.fetch(first);
        }
        let mut run = self.pop_hot()?;
        if run.first_seq < first {
            run = split(queue, &run, (first - run.first_seq) as u32).1;
        }
        if run.count > wanted {
            let (taken, rest) = split(queue, &run, wanted);
            self.hot_bytes += rest.bytes.len();
            self.hot.push_front(rest);
            run = taken;
        }
        self.next_seq = run.end();
        let front = self.outbox.front_mut()?;
        let mut outgoing = front.clone();
        outgoing.count = run.count;
        front.first_seq += u64::from(run.count);
        front.count -= run.count;
        if front.count == 0 {
            self.outbox.pop_front();
        }
        Some(Step::Deliver { outgoing, bytes: run.bytes })
    }

    fn pop_hot(&mut self) -> Option<Run> {
        let run = self.hot.pop_front()?;
        self.hot_bytes -= run.bytes.len();
        Some(run)
    }

    /// While a consumer is reading a backlog, the bytes behind its last delivery are fetched early.
    fn read_ahead(&mut self) -> Option<Step> {
        if self.consumers == 0 || self.fetching {
            return None;
        }
        let mut next = self.next_seq;
        let mut ahead = 0;
        for run in &self.hot {
            if run.end() <= next {
                continue;
            }
            if run.first_seq > next {
                break;
            }
            next = run.end();
            ahead += run.bytes.len();
            if ahead >= READ_AHEAD_BYTES {
                return None;
            }
        }
        self.extents
            .range(..=next)
            .next_back()
            .filter(|(first, extent)| **first + extent.count > next)?;
        self.fetch(next)
    }

    fn fetch(&mut self, from_seq: u64) -> Option<Step> {
        if self.fetching {
            return None;
        }
        let until = self
            .hot
            .iter()
            .find(|run| run.first_seq > from_seq)
            .map_or(u64::MAX, |run| run.first_seq);
        let start = self.extents.range(..=from_seq).next_back().map_or(from_seq, |(&seq, _)| seq);
        let mut parts = Vec::new();
        for (&first_seq, extent) in self.extents.range(start..until) {
            let from = first_seq.max(from_seq);
            let end = (first_seq + extent.count).min(until);
            if from >= end {
                continue;
            }
            let source = extent.source.clone();
            // A part of an entry is fetched whole: its bytes can be told apart only from its start.
            let whole = !matches!(source, Source::Segment { .. });
            let (first_seq, count) =
                if whole { (first_seq, extent.count) } else { (from, end - from) };
            parts.push(FetchPart { first_seq, count, source });
            if parts.len() >= FETCH_PARTS || !whole {
                break;
            }
        }
        if parts.is_empty() {
            return None;
        }
        self.fetching = true;
        Some(Step::Fetch { from_seq, parts })
    }
}

/// `run` in two: its first `count` messages, and the others.
pub(crate) fn split(queue: QueueId, run: &Run, count: u32) -> (Run, Run) {
    assert!(count < run.count, "a run is split inside");
    let at = machine::Messages::of(queue, &run.bytes).offset_after(count as usize);
    let head = Run { first_seq: run.first_seq, count, bytes: run.bytes.slice(..at) };
    let rest = Run {
        first_seq: run.first_seq + u64::from(count),
        count: run.count - count,
        bytes: run.bytes.slice(at..),
    };
    (head, rest)
}
