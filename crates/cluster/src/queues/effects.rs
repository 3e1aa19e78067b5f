//! What the machine's effects mean: for the bytes of messages, and for sessions.

use bytes::Bytes;
use machine::{Effect, QueueId, QueueMachine, SessionId};

use super::{Fetching, GroupEffect, Origin, Queues};
use crate::bodies::{
    FetchPart, Got, Leave, Outgoing, Readers, Run, Source, Step, cut_out, is_small_part, pick,
};
use crate::request::{Answer, Delivery, Leaving, Ticket};
use crate::tails;

impl Queues {
    /// Does what follows from the machine's effects. `entry`: the one that was applied, and its index.
    pub(super) fn perform(
        &mut self,
        index: u64,
        entry: Option<(&Bytes, Origin)>,
        group_effects: &mut Vec<GroupEffect>,
    ) {
        self.perform_once(index, entry, group_effects);
        // What filters said is seen to at once, as far as the bytes for it are in memory.
        while self.sift_more(group_effects) || !self.effects.is_empty() {
            self.perform_once(index, None, group_effects);
        }
        self.note_gathered();
        if self.machine.take_awaited() {
            self.hurry();
        }
    }

    fn perform_once(
        &mut self,
        index: u64,
        entry: Option<(&Bytes, Origin)>,
        group_effects: &mut Vec<GroupEffect>,
    ) {
        let mut effects = std::mem::take(&mut self.effects);
        let is_led = entry.is_some_and(|(_, origin)| origin != Origin::Replayed);
        for effect in effects.drain(..) {
            match effect {
                Effect::Enqueued { queue, first_seq, count, bytes } => {
                    let Some((entry, origin)) = entry else { continue };
                    self.tails.touch(queue);
                    let range = bytes.start as u32..bytes.end as u32;
                    let (source, hot) = match origin {
                        Origin::Committed if is_small_part(entry, &bytes) => {
                            let (source, run) = (Source::Entry { index, range }, &entry[bytes]);
                            self.bodies.enqueued_in_parts(queue, first_seq, count, source, run);
                            continue;
                        }
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
                Effect::Leave { queue, first_seq, count, reason } => {
                    self.bodies.leave(queue, Leave { first_seq, count, reason });
                    self.touched.push(queue);
                }
                Effect::Deliver { .. } => {
                    Outgoing::of(&effect, None).into_iter().for_each(|it| self.send_out(it));
                }
                Effect::Marked { queue, to } => {
                    self.bodies.marked(queue, to);
                    self.touched.push(queue);
                }
                Effect::Settled { queue, ranges } => {
                    if self.bodies.settled(queue, &ranges, self.machine.kept(queue)) {
                        self.touched.push(queue);
                    }
                }
                Effect::Cancelled { queue, consumer } => {
                    for level in self.levels(queue) {
                        let live = self.machine.kept(self.machine.store_of(level));
                        for outgoing in self.bodies.cancelled(level, consumer, live) {
                            self.never_sent(outgoing, group_effects);
                        }
                        self.touched.push(level);
                    }
                    let answer = Answer::Cancelled { queue, consumer };
                    group_effects.push(GroupEffect::Answer(consumer.session, answer));
                }
                Effect::Elected { queue, consumer, generation } => {
                    let answer = Answer::Elected { queue, consumer, generation };
                    group_effects.push(GroupEffect::Answer(consumer.session, answer));
                }
                Effect::Unused { queue } => group_effects.push(GroupEffect::Unused(queue.base())),
                Effect::Dropped { queue } => {
                    // Each level of a queue is told of.
                    self.went += u64::from(is_led && queue == queue.base());
                    self.closing.remove(&queue);
                    for fetching in self.sifting.dropped(queue) {
                        let Fetching { ticket, consumer, .. } = fetching;
                        let answer = Answer::Got { ticket, delivery: None, ready: 0 };
                        group_effects.push(GroupEffect::Answer(consumer.session, answer));
                    }
                    for consumer in self.tails.dropped(queue) {
                        let answer = Answer::Cancelled { queue, consumer };
                        group_effects.push(GroupEffect::Answer(consumer.session, answer));
                    }
                    let kept = |store| self.machine.kept(store);
                    for outgoing in self.bodies.dropped(queue, kept) {
                        self.never_sent(outgoing, group_effects);
                    }
                }
                Effect::Created { queue } => {
                    self.came += u64::from(is_led);
                    let store = self.machine.store_of(queue);
                    if store != queue {
                        self.bodies.subscribed(queue, store);
                    }
                    self.sifting.created(queue, self.machine.settings(queue));
                }
                Effect::Borrow { queue, of, ask } => {
                    group_effects.push(GroupEffect::Borrow { queue, of, ask });
                }
                Effect::Locked(reply) => self.lock_replies.push(reply),
            }
        }
        self.effects = effects;
        self.bodies.end_entry();
        self.pump(group_effects);
        self.pump_tails(group_effects);
    }

    /// Sends what has its bytes, and asks for what has not.
    fn pump(&mut self, group_effects: &mut Vec<GroupEffect>) {
        self.bodies.take_held_up(&mut self.touched);
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        let mut levels = Vec::new();
        for &queue in &touched {
            self.bodies.levels_of(queue, &mut levels);
            while self.pump_once(&levels, group_effects) && self.bodies.has_due(&levels) {}
            levels.clear();
        }
        touched.clear();
        self.touched = touched;
        self.bodies.cut(|queue| readers(&self.machine, queue));
    }

    /// The same for who reads streams.
    fn pump_tails(&mut self, group_effects: &mut Vec<GroupEffect>) {
        let mut steps = Vec::new();
        self.tails.pump(self.group, &self.machine, &self.bodies, &mut steps);
        group_effects.extend(steps.into_iter().map(|step| match step {
            tails::Step::Deliver(delivery) => {
                GroupEffect::Answer(delivery.consumer.session, Answer::Delivered(delivery))
            }
            tails::Step::Fetch { queue, parts } => {
                GroupEffect::Fetch { queue, reader: queue, parts }
            }
        }));
    }

    /// The same for some levels of one queue. True: something was delivered, and others may follow it.
    fn pump_once(&mut self, levels: &[QueueId], group_effects: &mut Vec<GroupEffect>) -> bool {
        let mut has_delivered = false;
        for &queue in levels {
            while let Some(step) = self.bodies.next(queue, || readers(&self.machine, queue)) {
                match step {
                    Step::Deliver { outgoing, bytes } => {
                        has_delivered = true;
                        self.deliver(queue, outgoing, bytes, group_effects);
                    }
                    Step::Leave { leave, bytes } => {
                        let Leave { first_seq, count, reason } = leave;
                        let (group, time_ms) = (self.group, self.time_ms);
                        let store = self.bodies.store_of(queue);
                        group_effects.push(GroupEffect::Leaving(Leaving {
                            group,
                            queue,
                            store,
                            reason,
                            first_seq,
                            count,
                            bytes,
                            time_ms,
                        }));
                    }
                    Step::Sift(sift) => self.sift(queue, sift),
                    Step::Fetch { parts } => {
                        let (reader, queue) = (queue, self.bodies.store_of(queue));
                        if let Some(runs) = in_memory(queue, &parts) {
                            let readers = readers(&self.machine, reader);
                            self.bodies.fetched(reader, runs, readers);
                        } else {
                            group_effects.push(GroupEffect::Fetch { queue, reader, parts });
                        }
                    }
                }
            }
        }
        has_delivered
    }

    fn deliver(
        &mut self,
        queue: QueueId,
        outgoing: Outgoing,
        bytes: Bytes,
        group_effects: &mut Vec<GroupEffect>,
    ) {
        let Outgoing { consumer, first_seq, count, redelivered, returns, got, detached, .. } =
            outgoing;
        let (group, store) = (self.group, self.bodies.store_of(queue));
        let delivery = Delivery {
            group,
            queue,
            store,
            consumer,
            first_seq,
            count,
            redelivered,
            returns,
            bytes,
        };
        let answer = match got {
            None => Answer::Delivered(delivery),
            Some(Got { ticket, ready, .. }) => {
                Answer::Got { ticket, delivery: Some(delivery), ready }
            }
        };
        group_effects.push(GroupEffect::Answer(consumer.session, answer));
        self.answer_detached(consumer.session, detached, group_effects);
    }

    /// The queue was dropped while this delivery waited for its bytes. A session that asked for it is answered
    /// all the same.
    fn never_sent(&mut self, outgoing: Outgoing, group_effects: &mut Vec<GroupEffect>) {
        let Outgoing { consumer, got, detached, .. } = outgoing;
        if let Some(Got { ticket, .. }) = got {
            let answer = Answer::Got { ticket, delivery: None, ready: 0 };
            group_effects.push(GroupEffect::Answer(consumer.session, answer));
        }
        self.answer_detached(consumer.session, detached, group_effects);
    }

    fn answer_detached(
        &mut self,
        session: SessionId,
        tickets: Vec<Ticket>,
        group_effects: &mut Vec<GroupEffect>,
    ) {
        for ticket in tickets {
            if let Some(levels) = self.detaching.get_mut(&(session, ticket)) {
                *levels -= 1;
                if *levels > 0 {
                    continue;
                }
                self.detaching.remove(&(session, ticket));
            }
            group_effects.push(GroupEffect::Answer(session, Answer::Detached { ticket }));
        }
    }
}

pub(super) fn readers(machine: &QueueMachine, queue: QueueId) -> Readers<'_> {
    if machine.is_stream(queue) {
        // Its readers have what they are behind with read for them: only the newest messages are worth keeping here.
        return Readers { ready: None, kept: machine.kept(queue), stream: None, consumers: 1 };
    }
    let consumers = machine.status(queue).map_or(0, |status| status.consumers);
    let store = machine.store_of(queue);
    if store == queue {
        let (ready, kept) = (machine.ready(queue), machine.kept(queue));
        return Readers { ready, kept, stream: None, consumers };
    }
    // What was given out before it was set to another place may be open still.
    let level = machine.levels_of(queue).next().unwrap_or(queue);
    let (ready, kept) = (machine.ready(queue), machine.kept(level));
    Readers { ready, kept, stream: machine.kept(store), consumers }
}

/// The runs of `parts` that need no disk, if none does.
fn in_memory(queue: QueueId, parts: &[FetchPart]) -> Option<Vec<Run>> {
    let mut runs = Vec::new();
    for part in parts {
        let Source::Memory(bytes) = &part.source else { return None };
        let (first_seq, count) = (part.first_seq, part.count as u32);
        let run = Run { first_seq, count, bytes: bytes.clone() };
        runs.append(&mut pick(queue, run, &part.wanted, false));
    }
    Some(runs)
}
