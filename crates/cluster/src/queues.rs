//! The queues of one group on the node that leads it: the machine, the bytes of its messages, and
//! what the machine's effects mean for sessions.
//!
//! Replicated groups and the group of queues that live in this node's memory only use this alike;
//! they differ in where entries come from.

use std::collections::BTreeMap;

use bytes::Bytes;
use machine::{
    Applied, AttachError, Attached, Batch, CloseError, ConsumerId, ConsumerSpec, Corrupt, Effect,
    GetReply, GroupId, Outcome, QueueId, QueueMachine, Ranges, SessionId,
};

use crate::bodies::{Bodies, FetchPart, Got, Outgoing, Readers, Run, Source, Step, cut_out};
use crate::checkpoint::Stored;
use crate::peer::message::Attachment;
use crate::request::{Answer, Delivery, Held, Request, Ticket};

/// What queues ask of their shard.
#[derive(Debug)]
pub(crate) enum Wish {
    Answer(SessionId, Answer),
    Fetch {
        queue: QueueId,
        from_seq: u64,
        parts: Vec<FetchPart>,
    },
    /// The last consumer of an auto-delete queue went away.
    Unused(QueueId),
}

/// What a leader leaves behind when it leads no longer.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) consumers: Vec<Attachment>,
    pub(crate) asked: Vec<(SessionId, Request)>,
    pub(crate) detached: Vec<(SessionId, Ticket)>,
    pub(crate) settled: Vec<Batch>,
}

fn attached(attachment: Attachment) -> Attached {
    let Attachment { queue, consumer, spec, is_attached, held } = attachment;
    Attached { queue, consumer, spec, is_attached, held }
}

fn attachment(attached: Attached) -> Attachment {
    let Attached { queue, consumer, spec, is_attached, held } = attached;
    Attachment { queue, consumer, spec, is_attached, held }
}

/// When a consumer's detach is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detached {
    Now,
    /// Its auto-delete queue has no consumer any more: once that is deleted.
    QueueIsOver,
    /// After messages that are settled already and wait for their bytes: that is seen to here.
    AfterDeliveries,
}

/// How an entry came to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Committed just now, on the leader.
    Committed,
    /// Found in the log at the start.
    Replayed,
    /// Of the group that has no log: its bytes stay in memory.
    Memory,
}

/// All queues of one group.
#[derive(Debug)]
pub(crate) struct Queues {
    group: GroupId,
    machine: QueueMachine,
    bodies: Bodies,
    effects: Vec<Effect>,
    touched: Vec<QueueId>,
    now_ms: u64,
    /// Settles that the machine holds for the log, and since when.
    gathered: u64,
    gathered_since_ms: Option<u64>,
    /// Who closed a queue that is not deleted yet: if the session ends before that, it is open again.
    closing: BTreeMap<QueueId, SessionId>,
}

impl Queues {
    pub(crate) fn new(group: GroupId, machine: QueueMachine) -> Self {
        Self {
            group,
            machine,
            bodies: Bodies::default(),
            effects: Vec::new(),
            touched: Vec::new(),
            now_ms: 0,
            gathered: 0,
            gathered_since_ms: None,
            closing: BTreeMap::new(),
        }
    }

    pub(crate) fn machine(&self) -> &QueueMachine {
        &self.machine
    }

    pub(crate) fn bodies(&self) -> &Bodies {
        &self.bodies
    }

    /// A segment of the checkpoint that the machine was restored from holds these messages.
    pub(crate) fn stored(&mut self, queue: QueueId, first_seq: u64, last_seq: u64, segment: u64) {
        let live = self.machine.live(queue);
        if live.is_some_and(|live| live.intersects(first_seq..last_seq + 1)) {
            self.bodies.stored(queue, first_seq, last_seq, segment);
        }
    }

    /// Tells the time, for what is to be logged before long.
    pub(crate) fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Everything that lives may have been delivered by an earlier leader. Nothing is delivered before
    /// [`Queues::start_dispatch`].
    pub(crate) fn lead(&mut self) {
        self.machine.lead();
    }

    /// Consumers may be served.
    pub(crate) fn start_dispatch(&mut self, wishes: &mut Vec<Wish>) {
        self.machine.start_dispatch(&mut self.effects);
        self.perform(0, None, wishes);
    }

    /// These sessions have `attachments` in the group, and nothing else.
    pub(crate) fn join(
        &mut self,
        is_of_node: impl Fn(SessionId) -> bool,
        attachments: Vec<Attachment>,
        wishes: &mut Vec<Wish>,
    ) {
        self.bodies.end_sessions(&is_of_node, &mut self.touched);
        let attached: Vec<Attached> = attachments.into_iter().map(attached).collect();
        self.machine.join(&is_of_node, &attached, &mut self.effects);
        for (queue, _) in self.closing.extract_if(.., |_, by| is_of_node(*by)) {
            self.machine.reopen_queue(queue);
        }
        self.perform(0, None, wishes);
    }

    /// This node leads no longer. What the sessions that `is_ours` have here, what they asked that is
    /// not answered, whose detach is to be answered now, and settles that did not get into the log.
    pub(crate) fn follow(&mut self, is_ours: impl Fn(SessionId) -> bool) -> Left {
        let mut left = Left::default();
        let mut batch = Batch::new();
        while self.machine.settled_waiting() > 0 && self.machine.take_settled(&mut batch) {
            left.settled.push(std::mem::take(&mut batch));
        }
        self.gathered = 0;
        self.gathered_since_ms = None;
        let mut consumers: BTreeMap<(QueueId, ConsumerId), Attachment> = self
            .machine
            .attachments()
            .into_iter()
            .filter(|attached| is_ours(attached.consumer.session))
            .map(|attached| ((attached.queue, attached.consumer), attachment(attached)))
            .collect();
        // What waits for its bytes was never sent.
        for (queue, outgoing) in self.bodies.take_waiting() {
            let Outgoing { consumer, first_seq, count, no_ack, got, detached, .. } = outgoing;
            if !is_ours(consumer.session) {
                continue;
            }
            if let Some(found) = consumers.get_mut(&(queue, consumer)) {
                found.held.remove(first_seq..first_seq + u64::from(count));
                if got.is_none() {
                    found.spec.credit = found.spec.credit.saturating_add(count);
                }
            }
            if let Some(Got { ticket, .. }) = got {
                let group = self.group;
                let request = Request::Get { ticket, group, queue, consumer, no_ack };
                left.asked.push((consumer.session, request));
            }
            left.detached.extend(detached.into_iter().map(|ticket| (consumer.session, ticket)));
        }
        left.consumers = consumers
            .into_values()
            .filter(|found| found.is_attached || !found.held.is_empty())
            .collect();
        self.closing.clear();
        self.machine.follow();
        left
    }

    /// Applies an entry.
    pub(crate) fn apply(
        &mut self,
        at: Applied,
        entry: &Bytes,
        origin: Origin,
        wishes: &mut Vec<Wish>,
    ) -> Result<(), Corrupt> {
        self.machine.apply(at, entry, &mut self.effects)?;
        self.perform(at.index, Some((entry, origin)), wishes);
        Ok(())
    }

    pub(crate) fn attach(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        spec: ConsumerSpec,
        ticket: Ticket,
        wishes: &mut Vec<Wish>,
    ) {
        let result = self.machine.attach(queue, consumer, spec, &mut self.effects);
        wishes.push(Wish::Answer(consumer.session, Answer::Attached { ticket, result }));
        self.perform(0, None, wishes);
    }

    /// Stops a consumer. Says when `ticket` is to be answered.
    pub(crate) fn detach(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        ticket: Ticket,
        wishes: &mut Vec<Wish>,
    ) -> Detached {
        self.machine.detach(queue, consumer, &mut self.effects);
        let count = self.effects.len();
        self.effects.retain(|effect| !matches!(effect, Effect::Unused { .. }));
        let is_over = self.effects.len() < count;
        let ticket = Some(ticket).filter(|_| !is_over);
        let (withdrawn, is_answered_later) = self.bodies.withdraw(queue, consumer, ticket);
        let outcome = Outcome::Undelivered;
        self.machine.settle(queue, consumer, &withdrawn, outcome, &mut self.effects);
        self.touched.push(queue);
        self.perform(0, None, wishes);
        match (is_over, is_answered_later) {
            (true, _) => Detached::QueueIsOver,
            (false, true) => Detached::AfterDeliveries,
            (false, false) => Detached::Now,
        }
    }

    pub(crate) fn credit(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        add: u32,
        wishes: &mut Vec<Wish>,
    ) {
        self.machine.credit(queue, consumer, add, &mut self.effects);
        self.perform(0, None, wishes);
    }

    /// The outcome of messages that `consumer` holds.
    pub(crate) fn settle(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        ranges: &Ranges,
        outcome: Outcome,
        credit: u32,
        wishes: &mut Vec<Wish>,
    ) {
        self.machine.settle(queue, consumer, ranges, outcome, &mut self.effects);
        if credit > 0 {
            self.machine.credit(queue, consumer, credit, &mut self.effects);
        }
        if outcome.is_final() {
            self.gather(ranges.len());
        }
        self.perform(0, None, wishes);
    }

    /// Consumers let go of what a committed transaction settled.
    pub(crate) fn settled_by_entry(&mut self, settles: &[Held], wishes: &mut Vec<Wish>) {
        for held in settles {
            self.machine.settle_committed(
                held.queue,
                held.consumer,
                &held.ranges,
                held.outcome,
                &mut self.effects,
            );
            if held.credit > 0 {
                self.machine.credit(held.queue, held.consumer, held.credit, &mut self.effects);
            }
        }
        self.perform(0, None, wishes);
    }

    /// False: deliveries have not begun; it is to be asked again.
    pub(crate) fn get(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        no_ack: bool,
        ticket: Ticket,
        wishes: &mut Vec<Wish>,
    ) -> bool {
        let session = consumer.session;
        match self.machine.get(queue, consumer, no_ack, &mut self.effects) {
            GetReply::NotYet => return false,
            GetReply::Empty | GetReply::NoQueue => {
                let answer = Answer::Got { ticket, delivery: None, ready: 0 };
                wishes.push(Wish::Answer(session, answer));
            }
            GetReply::Delivered { ready } => {
                for effect in &mut self.effects {
                    if let Effect::Deliver {
                        queue,
                        consumer,
                        first_seq,
                        count,
                        redelivered,
                        no_ack,
                        returns,
                    } = effect
                    {
                        let outgoing = Outgoing {
                            consumer: *consumer,
                            first_seq: *first_seq,
                            count: *count,
                            redelivered: *redelivered,
                            no_ack: *no_ack,
                            returns: *returns,
                            got: Some(Got { ticket, ready }),
                            detached: Vec::new(),
                        };
                        self.bodies.deliver(*queue, outgoing);
                        self.touched.push(*queue);
                    }
                }
                self.effects.retain(|effect| !matches!(effect, Effect::Deliver { .. }));
                if no_ack {
                    self.gather(1);
                }
            }
        }
        self.perform(0, None, wishes);
        true
    }

    /// Forgets every ready message of `queue`; the count is told once that is logged.
    pub(crate) fn purge(&mut self, queue: QueueId) -> u64 {
        let count = self.machine.purge(queue).unwrap_or(0);
        self.gather(count);
        count
    }

    /// Which of messages with so many bytes there is no room for; for the others it is kept.
    pub(crate) fn admit(&mut self, queue: QueueId, sizes: &[u32]) -> Vec<u32> {
        self.machine.admit(queue, sizes)
    }

    /// Takes no more consumers, if that is allowed; `session` is about to delete the queue.
    pub(crate) fn close_queue(
        &mut self,
        session: SessionId,
        queue: QueueId,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<u64, CloseError> {
        let count = self.machine.close_queue(queue, if_unused, if_empty)?;
        self.closing.insert(queue, session);
        Ok(count)
    }

    pub(crate) fn end_session(&mut self, session: SessionId, wishes: &mut Vec<Wish>) {
        self.bodies.end_sessions(|other| other == session, &mut self.touched);
        self.machine.end_session(session, &mut self.effects);
        for (queue, _) in self.closing.extract_if(.., |_, by| *by == session) {
            self.machine.reopen_queue(queue);
        }
        self.perform(0, None, wishes);
    }

    /// A checkpoint at `index` is synced, and `stored` says which segments hold what.
    pub(crate) fn checkpointed(&mut self, index: u64, stored: &[Stored]) {
        self.bodies.checkpointed(index, stored, |queue| self.machine.live(queue));
    }

    pub(crate) fn fetched(&mut self, queue: QueueId, runs: Vec<Run>, wishes: &mut Vec<Wish>) {
        self.bodies.fetched(queue, runs, readers(&self.machine, queue));
        self.touched.push(queue);
        self.perform(0, None, wishes);
    }

    /// Whether settles were gathered, and until when they may wait.
    pub(crate) fn settle_deadline_ms(&self) -> Option<u64> {
        let since = self.gathered_since_ms?;
        let full = self.gathered >= crate::limits::SETTLES_GATHERED;
        Some(if full { since } else { since + crate::limits::SETTLE_WAIT_MS })
    }

    /// Moves the gathered settles into `batch`.
    pub(crate) fn take_settled(&mut self, batch: &mut Batch) {
        self.gathered = 0;
        self.gathered_since_ms = None;
        if self.machine.take_settled(batch) && self.machine.settled_waiting() > 0 {
            self.gathered = self.machine.settled_waiting();
            self.gathered_since_ms = Some(self.now_ms);
        }
    }

    /// What must be true between steps. For tests: it looks at everything.
    pub(crate) fn check(&self) {
        let known = |queue| self.machine.live(queue).map(|_| readers(&self.machine, queue));
        self.bodies.check(known);
        let waits = self.machine.settled_waiting() > 0;
        assert!(!waits || self.gathered_since_ms.is_some(), "settles wait, and nobody knows");
    }

    fn gather(&mut self, count: u64) {
        self.gathered += count;
        self.gathered_since_ms.get_or_insert(self.now_ms);
    }

    fn perform(&mut self, index: u64, entry: Option<(&Bytes, Origin)>, wishes: &mut Vec<Wish>) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Enqueued { queue, first_seq, count, bytes } => {
                    let Some((entry, origin)) = entry else { continue };
                    let range = bytes.start as u32..bytes.end as u32;
                    let (source, hot) = match origin {
                        Origin::Committed => {
                            (Source::Entry { index, range }, Some(cut_out(entry, bytes)))
                        }
                        Origin::Replayed => (Source::Entry { index, range }, None),
                        Origin::Memory => {
                            let (bytes, pinned) = cut_out(entry, bytes);
                            (Source::Memory(bytes.clone()), Some((bytes, pinned)))
                        }
                    };
                    self.bodies.enqueued(queue, first_seq, count, source, hot);
                }
                Effect::Leave { .. } => {}
                Effect::Deliver {
                    queue,
                    consumer,
                    first_seq,
                    count,
                    redelivered,
                    no_ack,
                    returns,
                } => {
                    if no_ack {
                        self.gather(u64::from(count));
                    }
                    let (got, detached) = (None, Vec::new());
                    let outgoing = Outgoing {
                        consumer,
                        first_seq,
                        count,
                        redelivered,
                        no_ack,
                        returns,
                        got,
                        detached,
                    };
                    self.bodies.deliver(queue, outgoing);
                    self.touched.push(queue);
                }
                Effect::Settled { queue, ranges } => {
                    self.bodies.settled(queue, &ranges, self.machine.live(queue));
                }
                Effect::Cancelled { queue, consumer } => {
                    let answer = Answer::Cancelled { queue, consumer };
                    wishes.push(Wish::Answer(consumer.session, answer));
                }
                Effect::Unused { queue } => wishes.push(Wish::Unused(queue)),
                Effect::Dropped { queue } => {
                    self.closing.remove(&queue);
                    for outgoing in self.bodies.dropped(queue) {
                        never_sent(outgoing, wishes);
                    }
                }
                Effect::Created { .. } => {}
            }
        }
        self.effects = effects;
        self.pump(wishes);
    }

    /// Sends what has its bytes, and asks for what has not.
    fn pump(&mut self, wishes: &mut Vec<Wish>) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for &queue in &touched {
            let readers = || readers(&self.machine, queue);
            while let Some(step) = self.bodies.next(queue, readers) {
                match step {
                    Step::Deliver { outgoing, bytes } => {
                        deliver(self.group, queue, outgoing, bytes, wishes);
                    }
                    Step::Fetch { from_seq, parts } => {
                        if let Some(runs) = in_memory(&parts) {
                            self.bodies.fetched(queue, runs, readers());
                        } else {
                            wishes.push(Wish::Fetch { queue, from_seq, parts });
                        }
                    }
                }
            }
        }
        touched.clear();
        self.touched = touched;
        self.bodies.cut(|queue| readers(&self.machine, queue));
    }
}

fn readers(machine: &QueueMachine, queue: QueueId) -> Readers<'_> {
    let consumers = machine.status(queue).map_or(0, |status| status.consumers);
    Readers { ready: machine.ready(queue), live: machine.live(queue), consumers }
}

fn deliver(
    group: GroupId,
    queue: QueueId,
    outgoing: Outgoing,
    bytes: Bytes,
    wishes: &mut Vec<Wish>,
) {
    let Outgoing { consumer, first_seq, count, redelivered, returns, got, detached, .. } = outgoing;
    let delivery =
        Delivery { group, queue, consumer, first_seq, count, redelivered, returns, bytes };
    let answer = match got {
        None => Answer::Delivered(delivery),
        Some(Got { ticket, ready }) => Answer::Got { ticket, delivery: Some(delivery), ready },
    };
    wishes.push(Wish::Answer(consumer.session, answer));
    tell_detached(consumer.session, detached, wishes);
}

/// Its queue was dropped while it waited for its bytes: whoever asked is told all the same.
fn never_sent(outgoing: Outgoing, wishes: &mut Vec<Wish>) {
    let Outgoing { consumer, got, detached, .. } = outgoing;
    if let Some(Got { ticket, .. }) = got {
        let answer = Answer::Got { ticket, delivery: None, ready: 0 };
        wishes.push(Wish::Answer(consumer.session, answer));
    }
    tell_detached(consumer.session, detached, wishes);
}

fn tell_detached(session: SessionId, tickets: Vec<Ticket>, wishes: &mut Vec<Wish>) {
    for ticket in tickets {
        wishes.push(Wish::Answer(session, Answer::Detached { ticket }));
    }
}

/// The runs of `parts` that need no disk, if none does.
fn in_memory(parts: &[FetchPart]) -> Option<Vec<Run>> {
    parts
        .iter()
        .map(|part| match &part.source {
            Source::Memory(bytes) => Some(Run {
                first_seq: part.first_seq,
                count: part.count as u32,
                bytes: bytes.clone(),
            }),
            Source::Entry { .. } | Source::Segment { .. } => None,
        })
        .collect()
}

/// An attach that names a group this node does not lead or have.
pub(crate) const NO_QUEUE: AttachError = AttachError::NoQueue;
