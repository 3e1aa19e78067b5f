//! Where the bytes of messages are: in memory while they are young, in a log entry or a segment
//! otherwise; and the deliveries that wait for bytes to be fetched.
//!
//! The machine deals in sequence numbers and knows no bytes. Each queue has here a map from sequence
//! numbers to places (one extent per run of an entry or per segment, never one per message) and a
//! window of bytes that are in memory. Deliveries of one queue leave in the order in which the
//! machine decided them: one that must wait for the disk holds up those behind.
//!
//! While a delivery waits, a fetch is under way. A fetch may come back with less than was asked or
//! with nothing, because a checkpoint moved the messages meanwhile: then it is asked again, of the
//! new places. What waits here and is settled already (a consumer that does not acknowledge) keeps
//! its places, also through a checkpoint, until it has left.

mod check;
mod outbox;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::Bytes;
use machine::{ConsumerId, QueueId, Ranges, SessionId};

use crate::checkpoint::Stored;
use crate::limits::{
    FETCH_BYTES, FETCH_PARTS, FETCHES_FRUITLESS_MAX, HOT_BYTES_IDLE, HOT_BYTES_IDLE_QUEUE,
    HOT_BYTES_PER_GROUP, HOT_BYTES_PER_QUEUE, READ_AHEAD_BYTES, READ_AHEAD_RUNS,
};
use crate::request::Ticket;
use outbox::Outbox;
pub(crate) use outbox::{Got, Outgoing};
use window::Window;

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

    fn span(&self) -> Range<u64> {
        self.first_seq..self.end()
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

/// What is left to do for a queue after bytes moved.
#[derive(Debug)]
pub(crate) enum Step {
    Deliver { outgoing: Outgoing, bytes: Bytes },
    Fetch { from_seq: u64, parts: Vec<FetchPart> },
}

/// What the machine says of a queue's readers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Readers<'a> {
    /// What will be delivered next, in this order.
    pub(crate) ready: Option<&'a Ranges>,
    /// What is not settled for good.
    pub(crate) live: Option<&'a Ranges>,
    pub(crate) consumers: u32,
}

impl Readers<'_> {
    fn want(&self, span: Range<u64>) -> bool {
        self.ready.is_some_and(|ready| ready.intersects(span))
    }
}

#[derive(Debug, Default)]
struct QueueBodies {
    /// Disjoint, by their first sequence number.
    extents: BTreeMap<u64, Extent>,
    window: Window,
    outbox: Outbox,
    fetching: bool,
    /// Something in the outbox had to wait since it was empty.
    has_waited: bool,
    /// Everything below was sent at least once.
    sent_to: u64,
    /// The last fetch brought nothing: reading ahead waits until something else happens.
    is_dry: bool,
    /// Fetches in a row that did not bring what a delivery waits for.
    fruitless: u32,
}

/// The bodies of all queues of one group.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    queues: BTreeMap<QueueId, QueueBodies>,
    /// Queues with deliveries that wait for bytes.
    waiting: BTreeSet<QueueId>,
    /// What all windows weigh.
    hot_bytes: usize,
    /// Queues whose windows are to be cut once what can leave has left.
    overfull: Vec<QueueId>,
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
        bodies.extents.insert(first_seq, Extent { count: u64::from(count), source });
        let Some((bytes, pinned)) = bytes else { return };
        let before = bodies.window.bytes();
        bodies.window.push(Run { first_seq, count, bytes }, pinned);
        let after = bodies.window.bytes();
        self.hot_bytes = self.hot_bytes - before + after;
        if after > HOT_BYTES_IDLE_QUEUE || self.hot_bytes > HOT_BYTES_IDLE {
            self.overfull.push(queue);
        }
    }

    /// Cuts windows that grew too large, after what could leave has left. The newest messages go: they
    /// leave last.
    pub(crate) fn cut<'a>(&mut self, readers: impl Fn(QueueId) -> Readers<'a>) {
        while let Some(queue) = self.overfull.pop() {
            let Some(bodies) = self.queues.get_mut(&queue) else { continue };
            let (limit, limit_of_all) = match readers(queue).consumers {
                0 => (HOT_BYTES_IDLE_QUEUE, HOT_BYTES_IDLE),
                _ => (HOT_BYTES_PER_QUEUE, HOT_BYTES_PER_GROUP),
            };
            let before = bodies.window.bytes();
            let others = self.hot_bytes - before;
            while (bodies.window.bytes() > limit || others + bodies.window.bytes() > limit_of_all)
                && bodies.window.forget_back()
            {}
            self.hot_bytes = others + bodies.window.bytes();
        }
    }

    /// A segment holds the messages of `queue` from `first_seq` to `last_seq`.
    pub(crate) fn stored(&mut self, queue: QueueId, first_seq: u64, last_seq: u64, segment: u64) {
        let count = last_seq - first_seq + 1;
        let extent = Extent { count, source: Source::Segment { segment } };
        self.queues.entry(queue).or_default().extents.insert(first_seq, extent);
    }

    /// A checkpoint at `index` is synced: log extents up to there give way to what `stored` says,
    /// and so do all segments. `live` tells what of a queue is alive.
    pub(crate) fn checkpointed<'a>(
        &mut self,
        index: u64,
        stored: &[Stored],
        live: impl Fn(QueueId) -> Option<&'a Ranges>,
    ) {
        for bodies in self.queues.values_mut() {
            bodies.is_dry = false;
            bodies.extents.retain(|_, extent| match &extent.source {
                Source::Entry { index: at, .. } => *at > index,
                Source::Segment { .. } => false,
                Source::Memory(_) => true,
            });
        }
        for &Stored { queue, first_seq, last_seq, segment } in stored {
            let Some(bodies) = self.queues.get(&queue) else { continue };
            let span = first_seq..last_seq + 1;
            if live(queue).is_some_and(|live| live.intersects(span.clone()))
                || bodies.outbox.wants(span)
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

    /// What of `queue` waits for its bytes: a checkpoint keeps it, although it may be settled.
    pub(crate) fn waiting(&self, queue: QueueId) -> Ranges {
        self.queues.get(&queue).map(|bodies| bodies.outbox.spans().collect()).unwrap_or_default()
    }

    /// Messages that are settled for good: extents in which nothing lives are forgotten.
    pub(crate) fn settled(&mut self, queue: QueueId, settled: &Ranges, live: Option<&Ranges>) {
        let Some(bodies) = self.queues.get_mut(&queue) else { return };
        for range in settled.ranges() {
            bodies.forget_dead(range, live);
        }
        let wanted = bodies.outbox.first();
        let is_done = |span: Range<u64>| {
            span.end <= wanted && !live.is_some_and(|live| live.intersects(span))
        };
        // What was purged or settled without being delivered leaves the window too.
        let before = bodies.window.bytes();
        bodies.window.forget_front(is_done);
        self.hot_bytes = self.hot_bytes - before + bodies.window.bytes();
    }

    /// Forgets a queue that is gone. Gives what waited for its bytes, and never leaves now.
    pub(crate) fn dropped(&mut self, queue: QueueId) -> Vec<Outgoing> {
        self.waiting.remove(&queue);
        let Some(bodies) = self.queues.remove(&queue) else { return Vec::new() };
        self.hot_bytes -= bodies.window.bytes();
        bodies.outbox.into_all()
    }

    /// Puts a delivery behind those that wait for their bytes.
    pub(crate) fn deliver(&mut self, queue: QueueId, outgoing: Outgoing) {
        let bodies = self.queues.entry(queue).or_default();
        bodies.is_dry = false;
        bodies.outbox.push(outgoing);
    }

    /// Takes back what waits for its bytes and was decided for `consumer`: it was never sent. True: some
    /// is settled already, so it leaves all the same, and `ticket` comes back after it.
    pub(crate) fn withdraw(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        ticket: Option<Ticket>,
    ) -> (Ranges, bool) {
        match self.queues.get_mut(&queue) {
            Some(bodies) => bodies.outbox.withdraw(consumer, ticket),
            None => (Ranges::new(), false),
        }
    }

    /// Nothing waits to leave any more: what did.
    pub(crate) fn take_waiting(&mut self) -> Vec<(QueueId, Outgoing)> {
        let mut taken = Vec::new();
        for (&queue, bodies) in &mut self.queues {
            taken.extend(bodies.outbox.take_all().into_iter().map(|outgoing| (queue, outgoing)));
            bodies.has_waited = false;
        }
        self.waiting.clear();
        taken
    }

    /// Nothing is sent to these sessions any more. Gives the queues that may go on without them.
    pub(crate) fn end_sessions(
        &mut self,
        is_over: impl Fn(SessionId) -> bool,
        freed: &mut Vec<QueueId>,
    ) {
        for &queue in &self.waiting {
            let Some(bodies) = self.queues.get_mut(&queue) else { continue };
            if bodies.outbox.end_sessions(&is_over) {
                freed.push(queue);
            }
        }
    }

    /// Bytes that were fetched for `queue`.
    pub(crate) fn fetched(&mut self, queue: QueueId, runs: Vec<Run>, readers: Readers<'_>) {
        let Some(bodies) = self.queues.get_mut(&queue) else { return };
        let before = bodies.window.bytes();
        bodies.fetched(queue, runs, readers);
        self.hot_bytes = self.hot_bytes - before + bodies.window.bytes();
    }

    /// The next thing to do for `queue`, if there is one now. Its `readers` are looked at only if
    /// something must be read from the disk.
    pub(crate) fn next<'a>(
        &mut self,
        queue: QueueId,
        readers: impl Fn() -> Readers<'a>,
    ) -> Option<Step> {
        let bodies = self.queues.get_mut(&queue)?;
        let before = bodies.window.bytes();
        let step = bodies.next(queue, readers, self.hot_bytes >= HOT_BYTES_PER_GROUP);
        self.hot_bytes = self.hot_bytes - before + bodies.window.bytes();
        match &step {
            Some(Step::Deliver { .. }) => {}
            Some(Step::Fetch { .. }) | None if bodies.outbox.is_empty() => {
                self.waiting.remove(&queue);
            }
            Some(Step::Fetch { .. }) | None => {
                self.waiting.insert(queue);
            }
        }
        step
    }
}

impl QueueBodies {
    fn next<'a>(
        &mut self,
        queue: QueueId,
        readers: impl Fn() -> Readers<'a>,
        is_tight: bool,
    ) -> Option<Step> {
        let Some((first, count)) = self.outbox.front() else {
            self.has_waited = false;
            let last = self.extents.last_key_value();
            let is_all_sent = last.is_none_or(|(first, it)| first + it.count <= self.sent_to);
            let is_idle = is_tight || is_all_sent || self.fetching || self.is_dry;
            return if is_idle { None } else { self.read_ahead(readers()) };
        };
        if let Some(run) = self.window.take(queue, first, count) {
            self.fruitless = 0;
            self.sent_to = self.sent_to.max(run.end());
            let outgoing = self.outbox.sent(run.count);
            if outgoing.no_ack && self.has_waited {
                // If it was settled while it waited, its places were kept for this.
                self.forget_dead(run.span(), readers().live);
            }
            return Some(Step::Deliver { outgoing, bytes: run.bytes });
        }
        self.has_waited = true;
        if self.fetching {
            return None;
        }
        let (from_seq, parts) = self.parts(first, readers(), is_tight);
        assert!(!parts.is_empty(), "message {first} of {queue:?} goes out and lies nowhere");
        assert!(
            self.fruitless < FETCHES_FRUITLESS_MAX,
            "message {first} of {queue:?} is not where it should be: {parts:?}"
        );
        self.fetching = true;
        Some(Step::Fetch { from_seq, parts })
    }

    fn fetched(&mut self, queue: QueueId, runs: Vec<Run>, readers: Readers<'_>) {
        self.fetching = false;
        self.is_dry = true;
        for run in runs {
            // Settled or taken by others meanwhile: nobody will ask for it.
            if (self.outbox.wants(run.span()) || readers.want(run.span()))
                && self.window.fill(queue, run)
            {
                self.is_dry = false;
            }
        }
        if self.outbox.front().is_some_and(|(first, _)| !self.window.holds(first)) {
            self.fruitless += 1;
        }
    }

    /// Forgets extents that hold messages of `span`, but nothing that lives or waits.
    fn forget_dead(&mut self, span: Range<u64>, live: Option<&Ranges>) {
        let before = self.extents.range(..=span.start).next_back().map(|(&seq, _)| seq);
        let from = before.unwrap_or(span.start);
        let outbox = &self.outbox;
        let is_dead = |span: Range<u64>| {
            !live.is_some_and(|live| live.intersects(span.clone())) && !outbox.wants(span)
        };
        let dead: Vec<u64> = self
            .extents
            .range(from..span.end)
            .filter(|(first, extent)| is_dead(**first..**first + extent.count))
            .map(|(&first, _)| first)
            .collect();
        for first in dead {
            self.extents.remove(&first);
        }
    }

    /// While somebody consumes a backlog, the bytes that will be delivered next are fetched early.
    /// Those of requeued messages alone are not: they are due at once, or nobody wants them.
    fn read_ahead(&mut self, readers: Readers<'_>) -> Option<Step> {
        let ready = readers.ready?;
        if readers.consumers == 0 {
            return None;
        }
        let mut runs = self.window.runs().take(READ_AHEAD_RUNS).peekable();
        let (mut ahead, mut at) = (0, 0);
        let mut missing = None;
        'ready: for range in ready.ranges() {
            at = range.start.max(at);
            while at < range.end {
                while runs.next_if(|(span, _)| span.end <= at).is_some() {}
                let Some((span, bytes)) = runs.next_if(|(span, _)| span.start <= at) else {
                    missing = Some(at);
                    break 'ready;
                };
                ahead += bytes;
                if ahead >= READ_AHEAD_BYTES {
                    return None;
                }
                at = span.end;
            }
        }
        drop(runs);
        // Else more runs are ahead than were looked at.
        let from_seq = missing.filter(|&seq| !self.window.holds(seq))?;
        let (from_seq, parts) = self.parts(from_seq, readers, false);
        if parts.is_empty() {
            return None;
        }
        self.fetching = true;
        Some(Step::Fetch { from_seq, parts })
    }

    /// Where the messages from `from_seq` on lie: those that wait in the outbox, and unless memory
    /// `is_tight` those that are ready. Not what is in the window.
    fn parts(&self, from_seq: u64, readers: Readers<'_>, is_tight: bool) -> (u64, Vec<FetchPart>) {
        let until = self.window.next_start(from_seq);
        let due = self.outbox.due_from(from_seq);
        let start = self.extents.range(..=from_seq).next_back().map_or(from_seq, |(&seq, _)| seq);
        let (mut parts, mut bytes) = (Vec::new(), 0);
        for (&first_seq, extent) in self.extents.range(start..until) {
            let from = first_seq.max(from_seq);
            let end = (first_seq + extent.count).min(until);
            let is_due = from < due;
            if from >= end || !(is_due || (!is_tight && readers.want(from..end))) {
                continue;
            }
            let source = extent.source.clone();
            let is_last = match &source {
                Source::Segment { .. } => true,
                Source::Entry { range, .. } => {
                    bytes += u64::from(range.end - range.start);
                    bytes >= FETCH_BYTES || parts.len() + 1 >= FETCH_PARTS
                }
                Source::Memory(_) => parts.len() + 1 >= FETCH_PARTS,
            };
            // A part of an entry is fetched whole: its bytes can be told apart only from its start.
            let (first_seq, count) = match &source {
                Source::Segment { .. } if is_tight => (from, end.min(due) - from),
                Source::Segment { .. } => (from, end - from),
                Source::Entry { .. } | Source::Memory(_) => (first_seq, extent.count),
            };
            parts.push(FetchPart { first_seq, count, source });
            if is_last {
                break;
            }
        }
        (from_seq, parts)
    }
}

/// `range` of `entry`: a slice, or a copy if the slice would keep much more than itself in memory.
/// And the size of the buffer that it keeps.
pub fn cut_out(entry: &Bytes, range: Range<usize>) -> (Bytes, usize) {
    let slice = entry.slice(range);
    if slice.len() * COPIED_BELOW < entry.len() {
        let copy = Bytes::copy_from_slice(&slice);
        let bytes = copy.len();
        return (copy, bytes);
    }
    (slice, entry.len())
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

#[cfg(test)]
mod tests;
