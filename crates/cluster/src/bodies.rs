//! Where the bytes of messages are: in memory while they are young, in a log entry or a segment
//! otherwise; and the deliveries that wait for bytes to be fetched.
//!
//! The machine deals in sequence numbers and knows no bytes. Each queue has here a map from sequence numbers to
//! places (one extent per run of an entry or per segment, never one per message) and a window of bytes that are in
//! memory. Deliveries of one queue leave in the order in which the machine decided them: one that must wait for
//! the disk holds up those behind. Dead messages go to the dead-letter worker beside them. A level of a queue with
//! priorities is a queue of its own here, but for the order of its deliveries: that is kept with those of the
//! other levels.
//!
//! While a delivery waits, a fetch is under way. A fetch may come back with less than was asked or
//! with nothing, because a checkpoint moved the messages meanwhile: then it is asked again, of the
//! new places. What waits here and is settled already (a consumer that does not acknowledge) keeps
//! its places, also through a checkpoint, until it has left.

mod away;
mod check;
mod extents;
mod gathering;
mod leaves;
mod outbox;
mod plan;
mod queue;
mod sift;
mod store;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::Bytes;
use machine::{ConsumerId, QueueId, Ranges, Seqs, SessionId};

use crate::checkpoint::Stored;
pub use crate::fetch::{FetchPart, Source};
use crate::limits::{
    HOT_BYTES_IDLE, HOT_BYTES_IDLE_QUEUE, HOT_BYTES_PER_GROUP, HOT_BYTES_PER_QUEUE,
};
use crate::request::Ticket;
use away::Away;
use extents::Extent;
use gathering::Gathering;
pub(crate) use leaves::Leave;
pub(crate) use outbox::{Got, Outgoing, Withdrawn};
use plan::Plan;
use queue::QueueBodies;
pub(crate) use sift::Sift;

/// Messages that lie together, with their bytes.
#[derive(Clone, Debug)]
pub struct Run {
    pub first_seq: u64,
    pub count: u32,
    /// `machine::Messages::of(queue, &bytes)` yields `count` messages; of a subscription those of its stream.
    pub bytes: Bytes,
}

impl Run {
    fn end(&self) -> u64 {
        self.first_seq + u64::from(self.count)
    }

    pub(crate) fn span(&self) -> Range<u64> {
        self.first_seq..self.end()
    }
}

/// What is left to do for a queue after bytes moved.
#[derive(Debug)]
pub(crate) enum Step {
    Deliver {
        outgoing: Outgoing,
        bytes: Bytes,
    },
    Leave {
        leave: Leave,
        bytes: Bytes,
    },
    /// A filter is asked.
    Sift(Sift),
    Fetch {
        parts: Vec<FetchPart>,
    },
}

/// What the machine says of a queue's readers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Readers<'a> {
    /// What will be delivered next, in this order.
    pub(crate) ready: Option<Seqs<'a>>,
    /// What the store keeps; of a subscription, what it has not settled.
    pub(crate) kept: Option<Seqs<'a>>,
    /// Of a subscription: what its stream keeps.
    pub(crate) stream: Option<Seqs<'a>>,
    pub(crate) consumers: u32,
}

impl Readers<'_> {
    fn want(&self, span: Range<u64>) -> bool {
        self.ready.is_some_and(|ready| ready.intersects(span))
    }
}

/// The bodies of all queues of one group.
///
/// Leaders and followers keep the places, for every replica may have to deliver; only a leader has something that
/// waits. Nothing here is durable: places come back from the log and the checkpoint, bytes from a fetch.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    /// The places and the window of each queue. A message that the machine has and that is not settled has a place
    /// here, and so has one that waits to leave.
    queues: BTreeMap<QueueId, QueueBodies>,
    /// Queues with something that waits for bytes. A fetch is under way for each of them, and one that comes back with
    /// less than was asked is asked again.
    waiting: BTreeSet<QueueId>,
    /// Which stream a subscription reads. It has no places of its own, and bytes only as far as they were read for it.
    streams: BTreeMap<QueueId, QueueId>,
    /// The sum of what all windows weigh.
    hot_bytes: usize,
    /// Queues whose windows are to be cut once what can leave has left.
    overfull: Vec<QueueId>,
    /// Queues for which the entry that is being applied has brought messages in parts.
    gathered: Vec<QueueId>,
    /// The levels of queues with priorities, as far as something was delivered or left.
    levels: BTreeMap<QueueId, BTreeSet<QueueId>>,
    /// Counts deliveries. It never goes back: levels of one queue leave in the order of these numbers.
    turns: u64,
    /// Dead messages that are with the dead-letter worker. If the worker is lost, all of them are handed out again.
    away: Away,
}

impl Bodies {
    /// Messages that were just applied. `bytes`: if they are in memory, they and the size of the
    /// buffer that they are a slice of.
    pub(crate) fn enqueued(
        &mut self,
        queue: QueueId,
        first_seq: u64,
        count: u32,
        source: Source,
        bytes: Option<(Bytes, usize)>,
    ) {
        let bodies = self.queues.entry(queue).or_default();
        bodies.extents.insert(first_seq, u64::from(count), source);
        let Some((bytes, pinned)) = bytes else { return };
        self.end_gathering(queue);
        self.heat(queue, Run { first_seq, count, bytes }, pinned);
    }

    /// The same for messages that are a small part of an entry. What follows of the same entry is put behind them,
    /// and all of it is in memory from [`Bodies::end_entry`] on.
    pub(crate) fn enqueued_in_parts(
        &mut self,
        queue: QueueId,
        first_seq: u64,
        count: u32,
        source: Source,
        run: &[u8],
    ) {
        let bodies = self.queues.entry(queue).or_default();
        bodies.extents.insert(first_seq, u64::from(count), source);
        if let Some(gathering) = bodies.gathering.as_mut().filter(|it| it.goes_on_at(first_seq)) {
            gathering.add(queue, count, run);
            return;
        }
        self.end_gathering(queue);
        let bodies = self.queues.get_mut(&queue).expect("it was just there");
        bodies.gathering = Some(Gathering::new(queue, first_seq, count, run));
        self.gathered.push(queue);
    }

    /// An entry is applied: what it brought in parts is in memory.
    pub(crate) fn end_entry(&mut self) {
        while let Some(queue) = self.gathered.pop() {
            self.end_gathering(queue);
        }
    }

    fn end_gathering(&mut self, queue: QueueId) {
        // A queue that the same entry has dropped is gone, and has nothing.
        let gathering = self.queues.get_mut(&queue).and_then(|bodies| bodies.gathering.take());
        if let Some(gathering) = gathering {
            let (run, pinned) = gathering.into_run();
            self.heat(queue, run, pinned);
        }
    }

    /// The bytes of the newest messages of a queue are in memory.
    fn heat(&mut self, queue: QueueId, run: Run, pinned: usize) {
        let Some(bodies) = self.queues.get_mut(&queue) else { return };
        let before = bodies.hot_bytes();
        bodies.window.push(run, pinned);
        let after = bodies.hot_bytes();
        self.hot_bytes = self.hot_bytes - before + after;
        if after > HOT_BYTES_IDLE_QUEUE || self.hot_bytes > HOT_BYTES_IDLE {
            self.overfull.push(queue);
        }
    }

    /// Cuts windows that grew too large, after all messages that could leave have left. Messages that no reader is
    /// about to get go first, then the newest messages, which leave last.
    pub(crate) fn cut<'a>(&mut self, readers: impl Fn(QueueId) -> Readers<'a>) {
        while let Some(queue) = self.overfull.pop() {
            let Some(bodies) = self.queues.get_mut(&queue) else { continue };
            let readers = readers(queue);
            let (limit, limit_of_all) = match readers.consumers {
                0 => (HOT_BYTES_IDLE_QUEUE, HOT_BYTES_IDLE),
                _ => (HOT_BYTES_PER_QUEUE, HOT_BYTES_PER_GROUP),
            };
            let others = self.hot_bytes - bodies.hot_bytes();
            let is_over = |bytes: usize| bytes > limit || others + bytes > limit_of_all;
            while is_over(bodies.hot_bytes()) && bodies.forget_one(readers) {}
            self.hot_bytes = others + bodies.hot_bytes();
        }
    }

    /// A segment holds the messages of `queue` from `first_seq` to `last_seq`.
    pub(crate) fn stored(&mut self, queue: QueueId, first_seq: u64, last_seq: u64, segment: u64) {
        let count = last_seq - first_seq + 1;
        let extents = &mut self.queues.entry(queue).or_default().extents;
        extents.insert(first_seq, count, Source::Segment { segment });
    }

    /// A checkpoint at `index` is synced: log extents up to there give way to what `stored` says,
    /// and so do all segments. `kept` tells what a queue keeps.
    pub(crate) fn checkpointed<'a>(
        &mut self,
        index: u64,
        stored: &[Stored],
        kept: impl Fn(QueueId) -> Option<Seqs<'a>>,
    ) {
        for bodies in self.queues.values_mut() {
            bodies.is_dry = false;
            bodies.extents.retain(|extent| match extent {
                Extent::Entry { index: at, .. } => *at > index,
                Extent::Segment { .. } | Extent::Gone { .. } => false,
                Extent::Memory { .. } => true,
            });
        }
        for &Stored { queue, first_seq, last_seq, segment } in stored {
            let Some(bodies) = self.queues.get(&queue) else { continue };
            let span = first_seq..last_seq + 1;
            if kept(queue).is_some_and(|kept| kept.intersects(span.clone()))
                || bodies.outbox.wants(span.clone())
                || self.wanted_of(queue).intersects(span)
            {
                self.stored(queue, first_seq, last_seq, segment);
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
                .filter(|extent| extent.entry().is_some_and(|at| at <= index))
                .filter_map(|extent| {
                    Some(FetchPart {
                        first_seq: extent.first_seq(),
                        count: extent.count(),
                        source: extent.source()?,
                        wanted: Ranges::from(extent.span()),
                    })
                })
                .collect();
            if !parts.is_empty() {
                found.push((queue, parts));
            }
        }
        found
    }

    /// Where the first of these messages of `queue` lie, as many as one fetch reads.
    pub(crate) fn places(&self, queue: QueueId, seqs: &Ranges) -> Vec<FetchPart> {
        let Some(bodies) = self.queues.get(&self.store_of(queue)) else { return Vec::new() };
        let mut plan = Plan::new(&bodies.extents);
        seqs.ranges().for_each(|range| plan.add(range, 1));
        plan.into_parts()
    }

    /// Whether the bytes of a message are in memory.
    pub(crate) fn holds(&self, queue: QueueId, seq: u64) -> bool {
        self.queues.get(&queue).is_some_and(|bodies| bodies.window.holds(seq))
    }

    /// The messages from `first` on that are in memory together, at most `count`. They stay there.
    pub(crate) fn copy(&self, queue: QueueId, first: u64, count: u32) -> Option<Run> {
        self.queues.get(&queue)?.window.copy(queue, first, count)
    }

    /// What of a store waits for its bytes: a checkpoint keeps it, although it may be settled.
    pub(crate) fn waiting(&self, store: QueueId) -> Ranges {
        let mut waiting = self.wanted_of(store);
        if let Some(bodies) = self.queues.get(&store) {
            bodies.outbox.spans().for_each(|span| {
                waiting.insert(span);
            });
        }
        waiting
    }

    /// Every store of which something waits for its bytes.
    pub(crate) fn all_waiting(&self) -> impl Iterator<Item = QueueId> + '_ {
        self.waiting.iter().map(|queue| self.store_of(*queue))
    }

    /// Messages that are settled for good: extents in which nothing lives are forgotten. True: what
    /// waits may go on without them.
    pub(crate) fn settled(
        &mut self,
        queue: QueueId,
        settled: &Ranges,
        kept: Option<Seqs<'_>>,
    ) -> bool {
        self.away.settled(queue, settled);
        let wanted = self.wanted_of(queue);
        let Some(bodies) = self.queues.get_mut(&queue) else { return false };
        let before = bodies.hot_bytes();
        let goes_on = bodies.settled(settled, kept, &wanted);
        self.hot_bytes = self.hot_bytes - before + bodies.hot_bytes();
        goes_on
    }

    /// Forgets a queue that is gone. Gives what waited for its bytes, and never leaves now. `kept` tells what a store
    /// keeps.
    pub(crate) fn dropped<'a>(
        &mut self,
        queue: QueueId,
        kept: impl Fn(QueueId) -> Option<Seqs<'a>>,
    ) -> Vec<Outgoing> {
        let Some(&stream) = self.streams.get(&queue) else { return self.forget(queue) };
        let mut levels = Vec::new();
        self.levels_of(queue, &mut levels);
        let gone: Vec<Outgoing> = levels.into_iter().flat_map(|it| self.forget(it)).collect();
        let spans: Vec<Range<u64>> = gone.iter().map(Outgoing::span).collect();
        self.left_stream(queue, &spans, kept(stream));
        self.streams.remove(&queue);
        gone
    }

    fn forget(&mut self, queue: QueueId) -> Vec<Outgoing> {
        self.waiting.remove(&queue);
        self.away.forget(queue);
        if let Some(levels) = self.levels.get_mut(&queue.base()) {
            levels.remove(&queue);
            if levels.is_empty() {
                self.levels.remove(&queue.base());
            }
        }
        let Some(bodies) = self.queues.remove(&queue) else { return Vec::new() };
        self.hot_bytes -= bodies.hot_bytes();
        bodies.outbox.into_all()
    }

    /// Puts a delivery behind those that wait for their bytes.
    pub(crate) fn deliver(&mut self, queue: QueueId, mut outgoing: Outgoing) {
        self.turns += 1;
        outgoing.turn = self.turns;
        self.note_level(queue);
        let bodies = self.queues.entry(queue).or_default();
        bodies.is_dry = false;
        bodies.outbox.push(outgoing);
    }

    /// The log has heard of deliveries below `to`. Of a subscription: whatever its level was when they were decided.
    pub(crate) fn marked(&mut self, queue: QueueId, to: u64) {
        let mut levels = Vec::new();
        if self.streams.contains_key(&queue.base()) {
            self.levels_of(queue, &mut levels);
        }
        for level in levels.into_iter().chain([queue]) {
            if let Some(bodies) = self.queues.get_mut(&level) {
                bodies.marked_to = bodies.marked_to.max(to);
            }
        }
    }

    /// A level has something that goes out: from now on it is pumped with its queue.
    fn note_level(&mut self, queue: QueueId) {
        if queue.priority() > 0 {
            self.levels.entry(queue.base()).or_insert_with(|| [queue.base()].into()).insert(queue);
        }
    }

    /// Dead messages go to the dead-letter worker.
    pub(crate) fn leave(&mut self, queue: QueueId, leave: Leave) {
        self.note_level(queue);
        self.queues.entry(queue).or_default().leaves.push(leave);
    }

    /// What waits to go to the dead-letter worker is handed out anew, or not at all. Gives the queues in which
    /// something waited.
    pub(crate) fn take_leaves(&mut self, freed: &mut Vec<QueueId>) {
        self.away.clear();
        for &queue in &self.waiting {
            let Some(bodies) = self.queues.get_mut(&queue) else { continue };
            let before = bodies.hot_bytes();
            bodies.leaves.clear();
            self.hot_bytes = self.hot_bytes - before + bodies.hot_bytes();
            freed.push(queue);
        }
    }

    /// Takes back what waits for its bytes and was decided for `consumer`: it was never sent. True: some
    /// is settled already, so it leaves all the same, and `ticket` comes back after it. `kept`: what the store keeps.
    pub(crate) fn withdraw(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        what: Withdrawn,
        ticket: Option<Ticket>,
        kept: Option<Seqs<'_>>,
    ) -> (Ranges, bool) {
        let store = self.store_of(queue);
        let Some(bodies) = self.queues.get_mut(&queue) else { return (Ranges::new(), false) };
        let (withdrawn, is_answered_later) = bodies.outbox.withdraw(consumer, what, ticket);
        if store == queue {
            bodies.wait_no_more(withdrawn.ranges(), kept);
        } else {
            let spans: Vec<Range<u64>> = withdrawn.ranges().collect();
            self.left_stream(queue, &spans, kept);
        }
        (withdrawn, is_answered_later)
    }

    /// The queue is over for `consumer`: what waited, and never leaves now.
    pub(crate) fn cancelled(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        kept: Option<Seqs<'_>>,
    ) -> Vec<Outgoing> {
        let store = self.store_of(queue);
        let bodies = self.queues.get_mut(&queue).filter(|bodies| !bodies.outbox.is_empty());
        let Some(bodies) = bodies else { return Vec::new() };
        let cancelled = bodies.outbox.cancel(consumer);
        if store == queue {
            bodies.wait_no_more(cancelled.iter().map(Outgoing::span), kept);
        } else {
            let spans: Vec<Range<u64>> = cancelled.iter().map(Outgoing::span).collect();
            self.left_stream(queue, &spans, kept);
        }
        cancelled
    }

    /// Takes out all deliveries that wait, and returns them. `kept` says which messages a store keeps.
    pub(crate) fn take_waiting<'a>(
        &mut self,
        kept: impl Fn(QueueId) -> Option<Seqs<'a>>,
    ) -> Vec<(QueueId, Outgoing)> {
        self.away.clear();
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for (&queue, bodies) in &mut self.queues {
            let all = bodies.outbox.take_all();
            if self.streams.contains_key(&queue.base()) {
                left.push((queue, all.iter().map(Outgoing::span).collect::<Vec<_>>()));
            } else {
                bodies.wait_no_more(all.iter().map(Outgoing::span), kept(queue));
            }
            taken.extend(all.into_iter().map(|outgoing| (queue, outgoing)));
            let before = bodies.hot_bytes();
            bodies.leaves.clear();
            self.hot_bytes = self.hot_bytes - before + bodies.hot_bytes();
            bodies.sifting = None;
            bodies.has_waited = false;
        }
        self.waiting.clear();
        for (queue, spans) in left {
            self.left_stream(queue, &spans, kept(self.store_of(queue)));
        }
        taken
    }

    /// Nothing is sent to these sessions any more. Gives the queues that may go on without them, and what was to be
    /// settled by leaving and had to wait for the log. `kept` tells what a store keeps.
    pub(crate) fn end_sessions<'a>(
        &mut self,
        is_over: impl Fn(SessionId) -> bool,
        kept: impl Fn(QueueId) -> Option<Seqs<'a>>,
        freed: &mut Vec<QueueId>,
    ) -> Vec<(QueueId, Ranges)> {
        let (mut unmarked, mut left) = (Vec::new(), Vec::new());
        for &queue in &self.waiting {
            let Some(bodies) = self.queues.get_mut(&queue) else { continue };
            let ended = bodies.outbox.end_sessions(&is_over);
            if !ended.is_empty() {
                if self.streams.contains_key(&queue.base()) {
                    left.push((queue, ended.iter().map(Outgoing::span).collect::<Vec<_>>()));
                } else {
                    bodies.wait_no_more(ended.iter().map(Outgoing::span), kept(queue));
                }
                freed.push(queue);
                let waits = ended.iter().filter(|outgoing| outgoing.no_ack && outgoing.waits);
                unmarked.push((queue, waits.map(Outgoing::span).collect()));
            }
        }
        for (queue, spans) in left {
            self.left_stream(queue, &spans, kept(self.store_of(queue)));
        }
        unmarked
    }

    /// Bytes that were fetched for `queue`.
    pub(crate) fn fetched(&mut self, queue: QueueId, runs: Vec<Run>, readers: Readers<'_>) {
        let Some(found) = self.queues.get_mut(&queue) else { return };
        if !self.streams.contains_key(&queue.base()) {
            let before = found.hot_bytes();
            found.fetched(queue, runs, None, readers);
            self.hot_bytes = self.hot_bytes - before + found.hot_bytes();
            return;
        }
        // A subscription looks at another queue's bytes while it changes its own.
        let mut bodies = std::mem::take(found);
        let before = bodies.hot_bytes();
        bodies.fetched(self.store_of(queue), runs, self.stream_of(queue), readers);
        self.hot_bytes = self.hot_bytes - before + bodies.hot_bytes();
        self.queues.insert(queue, bodies);
    }

    /// The levels with dead messages that waited for others to be stored, if they may go on.
    pub(crate) fn take_held_up(&mut self, into: &mut Vec<QueueId>) {
        if self.away.take_room() {
            let may_leave = |level: &&QueueId| {
                self.queues.get(level).is_some_and(|bodies| !bodies.leaves.is_empty())
            };
            into.extend(self.waiting.iter().filter(may_leave));
        }
    }

    /// Whether the delivery that is to leave next, of these levels of one queue, may leave now. Of a single level all
    /// has left that may.
    pub(crate) fn has_due(&self, levels: &[QueueId]) -> bool {
        if levels.len() <= 1 {
            return false;
        }
        let waiting = levels.iter().filter_map(|level| Some((*level, self.queues.get(level)?)));
        let next = waiting.filter_map(|(level, it)| Some((it.outbox.turn()?, level, it)));
        let next = next.min_by_key(|(turn, _, _)| *turn);
        next.is_some_and(|(_, level, bodies)| bodies.may_deliver(self.stream_of(level)))
    }

    /// Whose deliveries keep their order with those of `queue`, the highest first; it is among them.
    pub(crate) fn levels_of(&self, queue: QueueId, into: &mut Vec<QueueId>) {
        match self.levels.get(&queue.base()) {
            Some(levels) => into.extend(levels.iter().rev()),
            None => into.push(queue),
        }
    }

    /// Whether no other level of its queue has a delivery that was decided earlier.
    fn is_turn_of(&self, queue: QueueId) -> bool {
        let Some(levels) = self.levels.get(&queue.base()) else { return true };
        let turn = |level: &QueueId| self.queues.get(level).and_then(|it| it.outbox.turn());
        let Some(own) = turn(&queue) else { return true };
        !levels.iter().filter_map(turn).any(|other| other < own)
    }

    /// The next thing to do for `queue`, if there is one now. Its `readers` are looked at only if
    /// something must be read from the disk.
    pub(crate) fn next<'a>(
        &mut self,
        queue: QueueId,
        readers: impl Fn() -> Readers<'a>,
    ) -> Option<Step> {
        let how = (self.hot_bytes >= HOT_BYTES_PER_GROUP, self.is_turn_of(queue));
        let found = self.queues.get_mut(&queue)?;
        let before = found.hot_bytes();
        found.may_leave = !self.away.is_full();
        let is_subscription = self.streams.contains_key(&queue.base());
        let (step, after, is_waiting) = if is_subscription {
            // It looks at another queue's bytes while it changes its own.
            let mut bodies = std::mem::take(found);
            let had_waited = bodies.has_waited;
            let step = bodies.next(queue, &readers, self.stream_of(queue), how);
            let (after, is_waiting) = (bodies.hot_bytes(), bodies.is_waiting());
            self.queues.insert(queue, bodies);
            if had_waited && let Some(Step::Deliver { outgoing, .. }) = &step {
                self.left_stream(queue, &[outgoing.span()], readers().stream);
            }
            (step, after, is_waiting)
        } else {
            let step = found.next(queue, readers, None, how);
            (step, found.hot_bytes(), found.is_waiting())
        };
        if let Some(Step::Leave { leave, bytes }) = &step {
            self.away.add(queue, leave.span(), bytes.len());
        }
        self.hot_bytes = self.hot_bytes - before + after;
        match &step {
            Some(Step::Deliver { .. } | Step::Leave { .. } | Step::Sift(_)) => {}
            Some(Step::Fetch { .. }) | None if !is_waiting => {
                self.waiting.remove(&queue);
            }
            Some(Step::Fetch { .. }) | None => {
                self.waiting.insert(queue);
            }
        }
        step
    }
}

/// `range` of `entry`: a slice, or a copy if the slice would keep much more than itself in memory.
/// And the size of the buffer that it keeps.
pub fn cut_out(entry: &Bytes, range: Range<usize>) -> (Bytes, usize) {
    let is_small = is_small_part(entry, &range);
    let slice = entry.slice(range);
    if is_small {
        let copy = Bytes::copy_from_slice(&slice);
        let bytes = copy.len();
        return (copy, bytes);
    }
    (slice, entry.len())
}

/// Whether a slice of `entry` would keep much more than itself in memory.
pub(crate) fn is_small_part(entry: &Bytes, range: &Range<usize>) -> bool {
    range.len() * COPIED_BELOW < entry.len()
}

/// What is a smaller part of its entry than this is copied out of it.
const COPIED_BELOW: usize = 4;

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

/// The `wanted` messages of `run`, in as few runs as possible. `apart`: in buffers of their own, if
/// they are not all of it.
pub fn pick(queue: QueueId, run: Run, wanted: &Ranges, apart: bool) -> Vec<Run> {
    let wanted = wanted.within(run.span());
    if wanted.len() == u64::from(run.count) {
        return vec![run];
    }
    let mut spans = (run.first_seq..).zip(machine::Messages::of(queue, &run.bytes).spans());
    let mut picked = Vec::new();
    for range in wanted.ranges() {
        let mut within = spans.by_ref().skip_while(|(seq, _)| *seq < range.start);
        let Some((_, first)) = within.next() else { break };
        let others = (range.end - range.start - 1) as usize;
        let end = within.take(others).last().map_or(first.end, |(_, last)| last.end);
        let slice = run.bytes.slice(first.start..end);
        let bytes = if apart { Bytes::copy_from_slice(&slice) } else { slice };
        picked.push(Run { first_seq: range.start, count: others as u32 + 1, bytes });
    }
    picked
}

#[cfg(test)]
mod tests;
