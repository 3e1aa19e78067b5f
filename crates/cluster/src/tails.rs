//! Who reads the streams of a group, on the node that leads it: how far each reader is, and what it is sent next.
//!
//! A *tail* is a consumer of a stream. It takes nothing out of it, so the machine does not know it: a tail is a number
//! (the message that it gets next) and credit. What it has settled is nobody's business, an acknowledgement is credit
//! and nothing else. When the leader changes, the node of its session says where it goes on.
//!
//! Young messages come from memory, and all tails share them. A tail that is behind those reads the log and segments:
//! so much at a time, in the order of the stream, into a buffer of its own. One fetch is under way for a stream; its
//! tails that are behind take turns, and those that stand at the same place share what comes. So a tail that is a day
//! behind costs those at the head nothing but the disk's time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use machine::{
    AttachError, ConsumerChange, ConsumerId, ConsumerSpec, GroupId, QueueId, QueueMachine, Ranges,
    SessionId, StreamOffset,
};

use crate::bodies::{Bodies, FetchPart, Run, split};
use crate::limits::{
    FETCHES_FRUITLESS_MAX, TAIL_AHEAD_BYTES, TAIL_BYTES_PER_GROUP, TAIL_FETCH_MESSAGES,
};
use crate::peer::message::Attachment;
use crate::request::Delivery;

/// What is to be done for the readers of streams.
#[derive(Debug)]
pub(crate) enum Step {
    Deliver(Delivery),
    Fetch { queue: QueueId, parts: Vec<FetchPart> },
}

/// The readers of all streams of one group.
#[derive(Debug, Default)]
pub(crate) struct Tails {
    streams: BTreeMap<QueueId, Readers>,
    /// Streams where a tail may be sent something.
    touched: BTreeSet<QueueId>,
    /// Streams that were paused when that was so: nobody says when they go on.
    paused: BTreeSet<QueueId>,
    /// Bytes in the buffers of all tails.
    buffered: usize,
}

/// The readers of one stream.
#[derive(Debug, Default)]
struct Readers {
    tails: BTreeMap<ConsumerId, Tail>,
    /// A fetch is under way.
    is_fetching: bool,
    /// Who was read for last, and from which message on: the next in line is.
    served: Option<(ConsumerId, u64)>,
}

#[derive(Debug)]
struct Tail {
    spec: ConsumerSpec,
    /// Messages that it may be sent now.
    credit: u32,
    /// The message that it gets next.
    next: u64,
    /// What was read for it and not sent: from `next` on, without a gap.
    buffer: VecDeque<Run>,
    buffered: usize,
    /// Fetches in a row that were made for it and brought nothing of what it waits for.
    fruitless: u32,
}

impl Tail {
    /// Whether it may be sent anything now.
    fn may_be_sent(&self) -> bool {
        self.credit > 0 && !self.spec.is_paused
    }

    /// Behind what is in its buffer.
    fn buffer_end(&self) -> u64 {
        self.buffer.back().map_or(self.next, |run| run.span().end)
    }

    /// The next messages of its buffer, at most `max`.
    fn take(&mut self, queue: QueueId, max: u32) -> Option<Run> {
        let run = self.buffer.pop_front()?;
        let run = if run.count > max {
            let (head, rest) = split(queue, &run, max);
            self.buffer.push_front(rest);
            head
        } else {
            run
        };
        self.buffered -= run.bytes.len();
        Some(run)
    }

    /// Takes what follows its buffer out of a run that was read.
    fn fill(&mut self, queue: QueueId, run: &Run) {
        let end = self.buffer_end();
        if !run.span().contains(&end) {
            return;
        }
        let run = match end - run.first_seq {
            0 => run.clone(),
            before => split(queue, run, before as u32).1,
        };
        let run = if planted::is("tail_skips_fetched") && run.count > 1 {
            split(queue, &run, 1).1
        } else if planted::is("tail_reads_beside") && run.count > 1 {
            let (first_seq, run) = (run.first_seq, split(queue, &run, 1).1);
            Run { first_seq, ..run }
        } else {
            run
        };
        self.buffered += run.bytes.len();
        self.buffer.push_back(run);
    }

    /// Forgets its buffer. How many bytes that was.
    fn empty(&mut self) -> usize {
        self.buffer.clear();
        std::mem::take(&mut self.buffered)
    }

    /// It goes on at `seq`, if that is further on: what was before that is gone.
    fn skip_to(&mut self, seq: u64) {
        if self.next < seq {
            self.next = seq;
            self.fruitless = 0;
            self.empty();
        }
    }
}

impl Tails {
    /// Lets somebody read. Says where that begins.
    pub(crate) fn attach(
        &mut self,
        machine: &QueueMachine,
        queue: QueueId,
        consumer: ConsumerId,
        spec: ConsumerSpec,
    ) -> Result<u64, AttachError> {
        if !machine.is_leading() {
            return Err(AttachError::NotLeading);
        }
        let start = spec.start.unwrap_or(StreamOffset::Next);
        let next = machine.seq_at(queue, start).ok_or(AttachError::NoQueue)?;
        self.detach(queue, consumer);
        let (credit, buffer) = (spec.credit, VecDeque::new());
        let tail = Tail { spec, credit, next, buffer, buffered: 0, fruitless: 0 };
        self.streams.entry(queue).or_default().tails.insert(consumer, tail);
        self.touched.insert(queue);
        Ok(next)
    }

    /// It is sent nothing any more.
    pub(crate) fn detach(&mut self, queue: QueueId, consumer: ConsumerId) {
        let Some(readers) = self.streams.get_mut(&queue) else { return };
        if let Some(tail) = readers.tails.remove(&consumer) {
            self.buffered -= tail.buffered;
        }
        if readers.tails.is_empty() {
            self.streams.remove(&queue);
        }
    }

    /// It may be sent `add` messages more.
    pub(crate) fn credit(&mut self, queue: QueueId, consumer: ConsumerId, add: u32) {
        let readers = self.streams.get_mut(&queue);
        if let Some(tail) = readers.and_then(|readers| readers.tails.get_mut(&consumer)) {
            tail.credit = tail.credit.saturating_add(add);
            self.touched.insert(queue);
        }
    }

    /// Paused, it is sent nothing; then it goes on where it was.
    pub(crate) fn change(&mut self, queue: QueueId, consumer: ConsumerId, change: ConsumerChange) {
        let readers = self.streams.get_mut(&queue);
        if let Some(tail) = readers.and_then(|readers| readers.tails.get_mut(&consumer)) {
            tail.spec.change(change);
            self.touched.insert(queue);
        }
    }

    /// These sessions read nothing any more.
    pub(crate) fn end_sessions(&mut self, is_over: impl Fn(SessionId) -> bool) {
        let buffered = &mut self.buffered;
        self.streams.retain(|_, readers| {
            readers.tails.retain(|consumer, tail| {
                let is_over = is_over(consumer.session);
                if is_over {
                    *buffered -= tail.buffered;
                }
                !is_over
            });
            !readers.tails.is_empty()
        });
    }

    /// The stream is gone. Who read it.
    pub(crate) fn dropped(&mut self, queue: QueueId) -> Vec<ConsumerId> {
        let Some(readers) = self.streams.remove(&queue) else { return Vec::new() };
        self.buffered -= readers.tails.values().map(|tail| tail.buffered).sum::<usize>();
        readers.tails.into_keys().collect()
    }

    /// Something about the stream has changed.
    pub(crate) fn touch(&mut self, queue: QueueId) {
        if self.streams.contains_key(&queue) {
            self.touched.insert(queue);
        }
    }

    /// How many read a stream.
    pub(crate) fn count(&self, queue: QueueId) -> usize {
        self.streams.get(&queue).map_or(0, |readers| readers.tails.len())
    }

    /// Who reads a stream, and what credit each has.
    pub(crate) fn of(
        &self,
        queue: QueueId,
    ) -> impl Iterator<Item = (ConsumerId, ConsumerSpec, u32)> + '_ {
        let tails = self.streams.get(&queue).into_iter().flat_map(|readers| &readers.tails);
        tails.map(|(consumer, tail)| (*consumer, tail.spec, tail.credit))
    }

    /// This node leads no longer: those of its own sessions, as the next leader is told of them.
    pub(crate) fn take(&mut self, is_ours: impl Fn(SessionId) -> bool) -> Vec<Attachment> {
        self.touched.clear();
        self.paused.clear();
        self.buffered = 0;
        let mut left = Vec::new();
        for (queue, readers) in std::mem::take(&mut self.streams) {
            for (consumer, tail) in readers.tails {
                if is_ours(consumer.session) {
                    let start = Some(StreamOffset::At(tail.next));
                    let spec = ConsumerSpec { credit: tail.credit, start, ..tail.spec };
                    let (is_attached, held) = (true, Ranges::new());
                    left.push(Attachment { queue, consumer, spec, is_attached, held });
                }
            }
        }
        left
    }

    /// Messages that were read from the disk.
    pub(crate) fn fetched(&mut self, queue: QueueId, runs: &[Run]) {
        let Some(readers) = self.streams.get_mut(&queue) else { return };
        readers.is_fetching = false;
        for tail in readers.tails.values_mut() {
            let before = tail.buffered;
            runs.iter().for_each(|run| tail.fill(queue, run));
            self.buffered += tail.buffered - before;
        }
        // Whoever it was for may be gone, or further on: then it was for nothing, and nothing is wrong.
        if let Some((consumer, from)) = readers.served
            && let Some(tail) = readers.tails.get_mut(&consumer)
        {
            tail.fruitless = if tail.buffer_end() == from { tail.fruitless + 1 } else { 0 };
        }
        self.touched.insert(queue);
    }

    /// While too much is in buffers, those go whose tails cannot be sent anything now. It is read again.
    fn shed(&mut self) {
        let tails = self.streams.values_mut().flat_map(|readers| readers.tails.values_mut());
        for tail in tails {
            if self.buffered <= TAIL_BYTES_PER_GROUP {
                return;
            }
            if !tail.may_be_sent() {
                self.buffered -= tail.empty();
            }
        }
    }

    /// Sends what can be sent, and asks for what must be read before that.
    pub(crate) fn pump(
        &mut self,
        group: GroupId,
        machine: &QueueMachine,
        bodies: &Bodies,
        steps: &mut Vec<Step>,
    ) {
        self.touched.append(&mut self.paused);
        while let Some(queue) = self.touched.pop_first() {
            let Some(readers) = self.streams.get_mut(&queue) else { continue };
            let Some(from) = machine.seq_at(queue, StreamOffset::First) else { continue };
            if machine.settings(queue).is_none_or(|settings| settings.is_paused) {
                self.paused.insert(queue);
                continue;
            }
            let kept = from..machine.next_seq(queue).unwrap_or(from);
            for (consumer, tail) in &mut readers.tails {
                let before = tail.buffered;
                tail.skip_to(kept.start);
                while let Some(run) = next_run(queue, tail, kept.end, bodies) {
                    tail.credit -= run.count;
                    tail.next = run.span().end;
                    let (consumer, first_seq, count) = (*consumer, run.first_seq, run.count);
                    let (redelivered, returns, bytes) = (false, 0, run.bytes);
                    let delivery = Delivery {
                        group,
                        queue,
                        store: queue,
                        consumer,
                        first_seq,
                        count,
                        redelivered,
                        returns,
                        bytes,
                    };
                    steps.push(Step::Deliver(delivery));
                }
                self.buffered -= before - tail.buffered;
            }
            if readers.is_fetching {
                continue;
            }
            let may_read_ahead = self.buffered < TAIL_BYTES_PER_GROUP;
            if let Some((consumer, span)) = readers.next_read(&kept, bodies, queue, may_read_ahead)
            {
                let parts = bodies.places(queue, &Ranges::from(span.clone()));
                assert!(!parts.is_empty(), "messages {span:?} of stream {queue:?} lie nowhere");
                let fruitless = readers.tails.get(&consumer).map_or(0, |tail| tail.fruitless);
                assert!(
                    fruitless < FETCHES_FRUITLESS_MAX,
                    "messages {span:?} of stream {queue:?} are not where they should be: {parts:?}"
                );
                readers.is_fetching = true;
                readers.served = Some((consumer, span.start));
                steps.push(Step::Fetch { queue, parts });
            }
        }
        self.shed();
    }

    /// What must be true between steps. For tests: it looks at everything.
    pub(crate) fn check(&self) {
        let mut all = 0;
        for (queue, readers) in &self.streams {
            for (consumer, tail) in &readers.tails {
                let mut next = tail.next;
                for run in &tail.buffer {
                    assert_eq!(run.first_seq, next, "a gap before {consumer:?} of {queue:?}");
                    next = run.span().end;
                }
                let bytes: usize = tail.buffer.iter().map(|run| run.bytes.len()).sum();
                assert_eq!(bytes, tail.buffered, "bytes in the buffer of {consumer:?}");
                all += bytes;
            }
        }
        assert_eq!(all, self.buffered, "bytes in all buffers");
    }
}

impl Readers {
    /// For whom to read next, and what: first those who have nothing to be sent, then, if that is allowed, those who
    /// will soon have nothing.
    fn next_read(
        &self,
        kept: &Range<u64>,
        bodies: &Bodies,
        queue: QueueId,
        may_read_ahead: bool,
    ) -> Option<(ConsumerId, Range<u64>)> {
        let wants = |consumer: &ConsumerId, tail: &Tail, ahead: usize| {
            let from = tail.buffer_end();
            let is_behind = from < kept.end && tail.buffered <= ahead;
            let is_read = is_behind && tail.may_be_sent() && !bodies.holds(queue, from);
            is_read.then(|| (*consumer, from..kept.end.min(from + TAIL_FETCH_MESSAGES)))
        };
        let behind = |served: ConsumerId| {
            self.tails.range(served..).filter(move |(consumer, _)| **consumer != served)
        };
        let in_line = |ahead: usize| {
            let after = self.served.into_iter().flat_map(|(served, _)| behind(served));
            let mut all = after.chain(&self.tails);
            all.find_map(|(consumer, tail)| wants(consumer, tail, ahead))
        };
        in_line(0).or_else(|| in_line(TAIL_AHEAD_BYTES).filter(|_| may_read_ahead))
    }
}

/// What the tail is sent next: from its buffer, or from what all share in memory.
fn next_run(queue: QueueId, tail: &mut Tail, end: u64, bodies: &Bodies) -> Option<Run> {
    if !tail.may_be_sent() || tail.next >= end {
        return None;
    }
    tail.take(queue, tail.credit).or_else(|| bodies.copy(queue, tail.next, tail.credit))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use machine::{Applied, Batch, Features, QueueSettings, Retention};

    use super::*;

    const QUEUE: QueueId = QueueId(7);
    const GROUP: GroupId = GroupId(1);
    /// Messages in a segment, and the bytes of each.
    const COUNT: u64 = 100;
    const BYTES: usize = 512 << 10;

    /// A stream whose messages are not in memory.
    fn stream() -> (QueueMachine, Bodies) {
        let features = Features { stream: Some(Retention::default()), ..Features::default() };
        let settings =
            QueueSettings { features: Some(Box::new(features)), ..QueueSettings::default() };
        let mut batch = Batch::new();
        batch.create_queue(QUEUE, &settings);
        (0..COUNT).for_each(|_| batch.enqueue(&[QUEUE], &[], b""));
        let (mut machine, mut bodies) = (QueueMachine::new(), Bodies::default());
        let at = Applied { index: 1, time_ms: 1 };
        machine.lead();
        machine.apply(at, &batch.stamp(1), &mut Vec::new()).expect("our own entry");
        bodies.stored(QUEUE, 1, COUNT, 1);
        (machine, bodies)
    }

    /// Messages from the segment, as a fetch brings them.
    fn read(seqs: Range<u64>) -> Vec<Run> {
        let body = vec![0; BYTES];
        let message = |seq| {
            let mut batch = Batch::new();
            batch.enqueue(&[QUEUE], &[], &body);
            let entry = batch.stamp(0);
            let commands = entry[machine::ENTRY_HEAD_BYTES..].to_vec();
            Run { first_seq: seq, count: 1, bytes: Bytes::from(commands) }
        };
        seqs.map(message).collect()
    }

    #[test]
    fn what_is_read_for_many_slow_readers_stays_within_its_bound_and_all_of_them_get_everything() {
        let (machine, bodies) = stream();
        let mut tails = Tails::default();
        let who = |number| ConsumerId { session: SessionId(1), number };
        let readers = 2 * (TAIL_BYTES_PER_GROUP / BYTES) as u64;
        for number in 0..readers {
            // They stand at different places.
            let start = Some(StreamOffset::At(1 + number % COUNT));
            let spec = ConsumerSpec { credit: 1, start, ..ConsumerSpec::default() };
            tails.attach(&machine, QUEUE, who(number), spec).expect("it is there");
        }
        let mut next: Vec<u64> = (0..readers).map(|number| 1 + number % COUNT).collect();
        let mut most = 0;
        for _ in 0..100_000 {
            let mut steps = Vec::new();
            tails.pump(GROUP, &machine, &bodies, &mut steps);
            tails.check();
            most = most.max(tails.buffered);
            for step in steps {
                match step {
                    Step::Deliver(delivery) => {
                        let number = delivery.consumer.number;
                        assert_eq!(
                            (delivery.first_seq, delivery.count),
                            (next[number as usize], 1)
                        );
                        next[number as usize] += 1;
                        tails.credit(QUEUE, delivery.consumer, 1);
                    }
                    Step::Fetch { parts, .. } => {
                        let first = parts[0].wanted.first().expect("something is asked for");
                        tails.fetched(QUEUE, &read(first..(first + 2).min(COUNT + 1)));
                    }
                }
            }
            if next.iter().all(|next| *next == COUNT + 1) {
                break;
            }
        }
        assert!(next.iter().all(|next| *next == COUNT + 1), "{next:?}");
        let bound = TAIL_BYTES_PER_GROUP + 2 * readers as usize * BYTES;
        assert!(most > 0 && most <= bound, "{most} bytes were in buffers");
        assert_eq!(tails.buffered, 0, "memory goes back");
    }

    #[test]
    fn buffers_of_readers_that_take_nothing_are_dropped_above_the_bound() {
        let (machine, bodies) = stream();
        let mut tails = Tails::default();
        let readers = 2 * (TAIL_BYTES_PER_GROUP / BYTES) as u64;
        for number in 0..readers {
            let start = Some(StreamOffset::First);
            let spec = ConsumerSpec { credit: 1, start, ..ConsumerSpec::default() };
            let consumer = ConsumerId { session: SessionId(1), number };
            tails.attach(&machine, QUEUE, consumer, spec).expect("it is there");
        }
        let mut steps = Vec::new();
        tails.pump(GROUP, &machine, &bodies, &mut steps);
        tails.fetched(QUEUE, &read(1..4));
        assert!(tails.buffered > TAIL_BYTES_PER_GROUP, "all share what was read");
        tails.pump(GROUP, &machine, &bodies, &mut steps);
        assert!(tails.buffered <= TAIL_BYTES_PER_GROUP, "{}", tails.buffered);
        assert!(tails.buffered > TAIL_BYTES_PER_GROUP / 2, "and no more of them than must");
        tails.check();
        tails.end_sessions(|_| true);
        assert_eq!((tails.buffered, tails.count(QUEUE)), (0, 0));
    }

    #[test]
    fn readers_that_leave_before_they_are_read_for_do_no_harm_to_those_who_stay() {
        let (machine, bodies) = stream();
        let mut tails = Tails::default();
        let attach = |tails: &mut Tails, number, start| {
            let spec = ConsumerSpec { credit: 1, start: Some(start), ..ConsumerSpec::default() };
            let consumer = ConsumerId { session: SessionId(1), number };
            tails.attach(&machine, QUEUE, consumer, spec).expect("it is there");
            consumer
        };
        attach(&mut tails, 0, StreamOffset::Next);
        for number in 1..=u64::from(FETCHES_FRUITLESS_MAX) + 1 {
            let consumer = attach(&mut tails, number, StreamOffset::First);
            let mut steps = Vec::new();
            tails.pump(GROUP, &machine, &bodies, &mut steps);
            assert!(matches!(steps[..], [Step::Fetch { .. }]), "{steps:?}");
            tails.detach(QUEUE, consumer);
            tails.fetched(QUEUE, &[]);
        }
        tails.check();
        assert_eq!(tails.count(QUEUE), 1);
    }
}
